// SPDX-License-Identifier: Apache-2.0
// The settings: where they are kept, and the request that they make of a text.

import {byId} from './dom.js';

const kStore = 'hydrant.settings';
const kKeyStore = 'hydrant.key';

// Fields of the form that are numbers, by their name in the request. An empty one is left out: the server decides.
const kNumbers = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'];
// OpenAI's default of 16 tokens would end most texts in their first sentence.
const kDefaults = {max_tokens: '256'};

// Storage may be forbidden, or full: the page works without it.
function load(storage, name) {
  try {
    return window[storage].getItem(name);
  } catch {
    return null;
  }
}

function save(storage, name, value) {
  try {
    if (value === '') window[storage].removeItem(name);
    else window[storage].setItem(name, value);
  } catch {
    // Nothing is lost but the memory of it.
  }
}

// One stop string a line, with the escapes that the form names.
export function stopsOf(text) {
  const signs = {n: '\n', t: '\t', '\\': '\\'};
  return text.split(/\r?\n/).filter((line) => line !== '')
    .map((line) => line.replace(/\\([nt\\])/g, (_, sign) => signs[sign]));
}

// A word that a POSIX shell takes as this text and nothing else.
export const shellQuoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// `origin`: "http://127.0.0.1:8080". The key is named, never written.
export function curlOf({path, body}, origin, hasKey) {
  const parts = [`curl -sS -N ${shellQuoted(origin + path)}`, `-H ${shellQuoted('Content-Type: application/json')}`];
  if (hasKey) parts.push('-H "Authorization: Bearer $HYDRANT_API_KEY"');
  parts.push(`--data-raw ${shellQuoted(JSON.stringify(body))}`);
  return parts.join(' \\\n  ');
}

export class Settings {
  mode = null;  // "chat", "completion", or null: as the model is made
  #form = byId('settings-form');
  #key = byId('key');

  // `onKey`: the key is another one.
  constructor({onKey}) {
    this.#key.value = load('sessionStorage', kKeyStore) ?? '';
    this.#restore();
    this.#form.addEventListener('input', () => this.#onInput());
    this.#form.addEventListener('submit', (event) => event.preventDefault());
    this.#key.addEventListener('change', () => {
      save('sessionStorage', kKeyStore, this.key);
      onKey();
    });
    byId('settings-reset').addEventListener('click', () => {
      const key = this.#key.value;
      this.#form.reset();
      this.#key.value = key;
      this.#fill(kDefaults);
      this.#onInput();
    });
  }

  get key() { return this.#key.value.trim(); }

  // The first field whose value cannot be sent, or null.
  get invalidField() { return this.#form.querySelector(':invalid:not(fieldset)'); }

  remember() {
    const kept = {mode: this.mode};
    for (const field of this.#kept()) kept[field.name] = field.type === 'checkbox' ? field.checked : field.value;
    save('localStorage', kStore, JSON.stringify(kept));
  }

  // `asked`: {mode, text, before}, with the messages before it in a chat. Returns {path, body}.
  request(asked, model) {
    const body = model ? {model} : {};
    const system = this.#form.elements.system.value;
    if (asked.mode === 'chat') {
      body.messages = [...asked.before, {role: 'user', content: asked.text}];
      if (system.trim() !== '') body.messages.unshift({role: 'system', content: system});
    } else {
      body.prompt = asked.text;
    }
    for (const name of kNumbers) {
      const value = this.#form.elements[name].value;
      if (value !== '') body[name] = Number(value);
    }
    const stops = stopsOf(this.#form.elements.stop.value);
    if (stops.length > 0) body.stop = stops;
    const speculation = this.#speculation();
    if (Object.keys(speculation).length > 0) body.speculation = speculation;
    body.stream = true;
    body.stream_options = {include_usage: true, include_speculation: true};
    return {path: asked.mode === 'chat' ? '/v1/chat/completions' : '/v1/completions', body};
  }

  #speculation() {
    const {speculation, tree, lookup, accept} = this.#form.elements;
    if (!speculation.checked) return {enabled: false};
    const chosen = {};
    if (tree.value.trim() !== '') chosen.tree = tree.value.trim();
    if (lookup.value !== '') chosen.lookup = Number(lookup.value);
    if (accept.value !== '') chosen.accept = accept.value;
    return chosen;
  }

  // The key has no name, and so is not among them.
  #kept() { return [...this.#form.elements].filter((field) => field.name); }

  #restore() {
    let kept = kDefaults;
    try {
      kept = JSON.parse(load('localStorage', kStore)) ?? kDefaults;
    } catch {
      // Something else has written there: the defaults do.
    }
    if (kept.mode === 'chat' || kept.mode === 'completion') this.mode = kept.mode;
    this.#fill(kept);
    this.#check();
  }

  #fill(values) {
    for (const field of this.#kept()) {
      const value = values[field.name];
      if (field.type === 'checkbox' && typeof value === 'boolean') field.checked = value;
      if (field.type !== 'checkbox' && typeof value === 'string') field.value = value;
    }
  }

  #onInput() {
    this.#check();
    this.remember();
  }

  #check() {
    const {speculation, tree, lookup, accept} = this.#form.elements;
    for (const field of [tree, lookup, accept]) field.disabled = !speculation.checked;
    let problem = '';
    if (tree.value.trim().startsWith('[')) {
      try {
        JSON.parse(tree.value);
      } catch {
        problem = 'A list of paths looks like [[0],[0,0],[1]].';
      }
    }
    tree.setCustomValidity(problem);
  }
}
