// SPDX-License-Identifier: Apache-2.0
// The card with the figures of a reply, beside those of plain decoding once these were measured.

import {byId, duration, el, figure, number, plural} from './dom.js';

// Name, value of a reply, how it is written, and whether more is better.
const kRows = [
  ['Tokens per second', (reply) => reply.tokensPerSecond, figure, true],
  ['Tokens per step', (reply) => reply.tokensPerStep, figure, true],
  ['Time to first token', (reply) => reply.timeToFirst, duration, false],
  ['Whole reply', (reply) => reply.wholeTime, duration, false],
];

const kPhases = ['prefill', 'draft', 'forward', 'verify', 'commit'];  // in the order in which they come

// Index of the first character in which two texts differ, -1 where they are equal.
export function firstDifference(a, b) {
  if (a === b) return -1;
  let i = 0;
  while (i < a.length && a[i] === b[i]) ++i;
  return i;
}

function factsOf(reply) {
  const {speculation, usage, seed} = reply;
  const facts = [];
  if (speculation) {
    facts.push(`${plural(reply.numTokens, 'token')} in ${plural(speculation.steps, 'step')}`);
    const {drafted_tokens: drafted, accepted_tokens: accepted, looked_up_tokens: lookedUp} = speculation;
    if (drafted > 0) facts.push(`${number(accepted)} of ${number(drafted)} drafted tokens accepted`);
    if (lookedUp > 0) facts.push(`${number(lookedUp)} of them looked up`);
  }
  if (usage) facts.push(`prompt of ${plural(usage.prompt_tokens, 'token')}`);
  // Digits without commas: a seed is copied into the settings.
  if (seed !== null) facts.push(`seed ${seed}`);
  const ms = kPhases.filter((phase) => Number.isFinite(speculation?.ms?.[phase]));
  if (ms.length > 0) facts.push(ms.map((phase) => `${phase} ${duration(speculation.ms[phase])}`).join(', '));
  return facts.join(' · ');
}

// A number with a bar that shows its share of the larger one.
function cell(value, other, write) {
  const td = el('td', {}, el('span', {class: 'value'}, write(value)));
  const bar = el('span', {class: 'bar-track', 'aria-hidden': 'true'}, el('span', {class: 'bar-fill'}));
  const most = Math.max(value || 0, other || 0);
  bar.firstChild.style.inlineSize = most > 0 ? `${(100 * (value || 0)) / most}%` : '0';
  td.append(bar);
  return td;
}

function tableOf(reply, plain) {
  const body = el('tbody');
  for (const [name, valueOf, write, isMoreBetter] of kRows) {
    const [ours, theirs] = [valueOf(reply), valueOf(plain)];
    const ratio = isMoreBetter ? ours / theirs : theirs / ours;
    body.append(el('tr', {}, el('th', {scope: 'row'}, name), cell(ours, theirs, write), cell(theirs, ours, write),
      el('td', {class: 'ratio'}, Number.isFinite(ratio) ? `${number(ratio, 2)} ×` : '–')));
  }
  const head = ['Figure', 'With drafts', 'Plain', 'Gain'].map((name) => el('th', {scope: 'col'}, name));
  return el('table', {}, el('caption', {class: 'hidden-text'}, 'One request with drafts and without'),
    el('thead', {}, el('tr', {}, ...head)), body);
}

// What the comparison says, in sentences.
export function verdictOf(reply, plain) {
  if (plain.state === 'failed') return {isGood: false, text: `The plain reply failed: ${plain.error.message}`};
  if (plain.state === 'stopped') return {isGood: false, text: 'The plain reply was stopped.'};
  const ratio = reply.tokensPerSecond / plain.tokensPerSecond;
  const speed = Number.isFinite(ratio) ? `${number(ratio, 2)} times as fast as plain decoding, in one run each. ` : '';
  const at = firstDifference(reply.text, plain.text);
  if (at < 0) return {isGood: true, text: `${speed}Both texts are equal.`};
  const part = (text) => `“${text.slice(at, at + 24)}”`;
  return {
    isGood: false,
    text: `${speed}The texts differ from character ${number(at + 1)} on: ${part(reply.text)} and plain ` +
      `${part(plain.text)}. Under the exact rule they must be equal; under the others they may differ.`,
  };
}

export class FiguresView {
  canCompare = false;
  #compare = byId('compare');
  #box = byId('comparison');

  // `isBusy`: something runs, so that nothing can be compared now.
  show(reply, isBusy) {
    byId('per-step').textContent = reply ? figure(reply.tokensPerStep) : '–';
    byId('per-second').textContent = reply ? figure(reply.tokensPerSecond) : '–';
    byId('first-token').textContent = reply ? duration(reply.timeToFirst) : '–';
    byId('reply-facts').textContent = reply ? factsOf(reply) : '';
    // Not `disabled`, which would drop the focus of whoever has pressed it.
    this.canCompare = !isBusy && reply?.state === 'done' && !reply.isPlain;
    this.#compare.setAttribute('aria-disabled', !this.canCompare);
    this.#compare.title = reply?.isPlain ? 'This reply was plain' : 'Sends the same request once more, without drafts';
    const plain = reply?.plain;
    this.#box.hidden = !plain;
    if (!plain) return;
    if (plain.isRunning) {
      this.#box.replaceChildren(el('p', {class: 'fine'}, 'The plain reply is being written.'));
      return;
    }
    const {isGood, text} = verdictOf(reply, plain);
    const verdict = el('p', {class: isGood ? 'verdict good' : 'verdict bad'}, text);
    this.#box.replaceChildren(...(plain.state === 'done' ? [tableOf(reply, plain), verdict] : [verdict]));
  }
}
