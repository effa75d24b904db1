// SPDX-License-Identifier: Apache-2.0
// One reply: its tokens, the trees of its steps, its times. Words as in docs/notation.md.

import {streamCompletion} from './stream.js';

// How tokens are shaded: "base", "d1" to "d4" (depth 4 and deeper), "text" (drafted from the text or by the client),
// "plain" (the server did not say).
export function kindOf({depth, source}) {
  if (!Number.isInteger(depth)) return 'plain';
  if (depth < 1) return 'base';
  if (source === 'lookup' || source === 'prediction' || source === 'given') return 'text';
  return `d${Math.min(depth, 4)}`;
}

// A step as the tree is drawn from it, or null where it is no tree: a parent stands before its children.
export function stepOf(raw, tokens) {
  const {parents, texts, accepted, source} = raw ?? {};
  if (!Array.isArray(parents) || !Array.isArray(texts) || parents.length === 0) return null;
  const isBefore = (parent, i) => Number.isInteger(parent) && parent >= (i === 0 ? -1 : 0) && parent < i;
  if (!parents.every(isBefore) || texts.length !== parents.length) return null;
  // The model may have accepted more than the reply took: one that ended within the step has fewer tokens.
  const numDrafted = tokens.filter(({depth}) => depth > 0).length;
  const told = Array.isArray(accepted) ? accepted : [];
  const kept = told.slice(0, numDrafted).filter((i) => i > 0 && i < parents.length);
  const last = tokens.at(-1);
  return {
    parents,
    texts: texts.map(String),
    accepted: kept,
    source: typeof source === 'string' ? source : 'heads',
    // The base model's own token after the accepted ones. None where the reply ended before it.
    bonus: last && last.depth === 0 ? last.text : null,
  };
}

export class Reply {
  state = 'waiting';  // then "writing"; in the end "done", "stopped" or "failed"
  text = '';
  tokens = [];  // {id, text, depth, source, kind, step}; `step` is an index of `steps`, or -1
  steps = [];   // stepOf, where the server told them
  finishReason = null;
  error = null;
  usage = null;
  speculation = null;
  seed = null;  // the one in use, as far as the server told it
  plain = null; // the Reply of the same request without drafts
  #numEvents = 0;
  #startedAt = 0;
  #firstAt = null;
  #lastAt = null;
  #endedAt = null;

  // `request`: {path, body}.
  constructor(request) {
    this.request = request;
    this.seed = request.body.seed ?? null;
  }

  // Streams the reply to its end; never throws, `state` and `error` say what happened. `onTokens` gets the new tokens
  // of each event.
  async run({key, signal, onTokens}) {
    this.#startedAt = performance.now();
    try {
      for await (const event of streamCompletion(this.request.path, this.request.body, {key, signal})) {
        const added = this.add(event, performance.now());
        if (added.length > 0) onTokens?.(added);
      }
      this.state = 'done';
    } catch (error) {
      this.state = signal?.aborted ? 'stopped' : 'failed';
      if (this.state === 'failed') this.error = error;
    }
    this.#endedAt = performance.now();
  }

  // Takes one event in, and returns its tokens.
  add(event, now) {
    if (event.usage) this.usage = event.usage;
    if (event.speculation) this.speculation = event.speculation;
    if (Number.isFinite(event.seed) && this.seed === null) this.seed = event.seed;
    const choice = event.choices?.[0];
    if (!choice) return [];
    if (choice.finish_reason) this.finishReason = choice.finish_reason;
    const text = choice.delta?.content ?? choice.text ?? '';
    const added = this.#tokensOf(choice, text);
    if (added.length === 0) return added;
    this.state = 'writing';
    this.text += text;
    this.#numEvents += 1;
    this.#firstAt ??= now;
    this.#lastAt = now;
    this.tokens.push(...added);
    return added;
  }

  #tokensOf(choice, text) {
    const told = Array.isArray(choice.speculation?.tokens) ? choice.speculation.tokens : [];
    const step = stepOf(choice.speculation?.step, told);
    if (step) this.steps.push(step);
    const stepIdx = step ? this.steps.length - 1 : -1;
    // The text counts, not its tokens: where they do not begin with it, it is shown unshaded.
    if (!told.map((token) => token.text ?? '').join('').startsWith(text)) {
      return [{text, depth: null, source: null, kind: 'plain', step: stepIdx}];
    }
    let left = text.length;  // less than the tokens' where a stop string or a token that ends replies was cut off
    return told.map(({id, text: whole = '', depth, source = depth > 0 ? 'heads' : 'base'}) => {
      const own = whole.slice(0, left);
      left -= own.length;
      return {id, text: own, depth, source, kind: kindOf({depth, source}), step: stepIdx};
    });
  }

  get isRunning() { return this.state === 'waiting' || this.state === 'writing'; }
  get isPlain() { return this.request.body.speculation?.enabled === false; }
  get numTokens() { return this.usage?.completion_tokens ?? this.tokens.length; }
  get timeToFirst() { return this.#firstAt === null ? NaN : this.#firstAt - this.#startedAt; }
  get wholeTime() { return this.#endedAt === null ? NaN : this.#endedAt - this.#startedAt; }

  // Without the first token, which the prompt's forward gives, as docs/notation.md defines it.
  get tokensPerStep() {
    if (this.speculation) return this.speculation.tokens_per_step;
    return this.#numEvents < 2 ? NaN : (this.tokens.length - 1) / (this.#numEvents - 1);
  }

  // Of the steps, without the prompt and the token that it gives. The server's clock counts where it was told: events
  // of a small model arrive in bundles, and the page would time the bundles.
  get tokensPerSecond() {
    const ms = this.speculation?.ms;
    const inSteps = ms ? ms.draft + ms.forward + ms.verify + ms.commit : this.#lastAt - this.#firstAt;
    return this.numTokens > 1 && inSteps > 0 ? (1000 * (this.numTokens - 1)) / inSteps : NaN;
  }
}
