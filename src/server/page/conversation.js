// SPDX-License-Identifier: Apache-2.0
// Turns on the page: what was asked, and the reply token by token, each shaded by how it came.

import {byId, el, shown} from './dom.js';

const kSources = {
  base: "the base model's own choice",
  heads: 'drafted by heads',
  lookup: 'looked up in the text',
  prediction: "from the request's prediction",
  given: 'given by the client',
};

function describe(token) {
  const how = kSources[token.source] ?? 'the server did not say how it came';
  const parts = [shown(token.text)];
  if (Number.isInteger(token.depth)) parts.push(`depth ${token.depth}`);
  parts.push(how);
  if (token.step >= 0) parts.push(`step ${token.step + 1}`);
  return parts.join(' · ');
}

// The note beside the token under the pointer or the focus. It stays while the pointer is on it, and Escape hides it
// (WCAG 1.4.13).
class Tip {
  #box = byId('tip');
  #owner = null;
  #timer = 0;

  constructor() {
    this.#box.addEventListener('pointerenter', () => clearTimeout(this.#timer));
    this.#box.addEventListener('pointerleave', () => this.hideSoon());
    addEventListener('scroll', () => this.#onScroll(), {capture: true, passive: true});
  }

  show(owner, text) {
    clearTimeout(this.#timer);
    this.hide();
    this.#owner = owner;
    owner.setAttribute('aria-describedby', 'tip');
    this.#box.textContent = text;
    this.#box.hidden = false;
    this.#place();
  }

  #place() {
    // A token that is broken over two lines often has a mere space on one of them: the longer part counts.
    const parts = [...this.#owner.getClientRects()].sort((a, b) => b.width - a.width);
    const at = parts[0] ?? this.#owner.getBoundingClientRect();
    this.#box.style.left = '0';  // where it stood before would limit its width
    const left = Math.min(at.left, document.documentElement.clientWidth - this.#box.offsetWidth - 8);
    const above = at.top - this.#box.offsetHeight - 4;
    this.#box.style.left = `${Math.max(8, left)}px`;
    this.#box.style.top = `${above >= 4 ? above : at.bottom + 4}px`;
  }

  // Going to a token by key may scroll it into view.
  #onScroll() {
    if (this.#owner === null) return;
    if (this.#owner === document.activeElement) this.#place();
    else this.hide();
  }

  hideSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.hide(), 150);
  }

  // True where there was something to hide.
  hide() {
    if (this.#owner === null) return false;
    this.#owner.removeAttribute('aria-describedby');
    this.#owner = null;
    this.#box.hidden = true;
    return true;
  }
}

export const tip = new Tip();

// Makes a change of the turns. Who was at their end before it is there afterwards; who reads further up is left there.
function keepingAtEnd(change) {
  const scroller = byId('scroll');
  const isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 48;
  change();
  if (isAtEnd) scroller.scrollTop = scroller.scrollHeight;
}

// The text of one reply. Tokens are one stop of the tab key; arrows go through them.
class ReplyText {
  #waiting = [];
  #frame = 0;
  #tokenOf = new WeakMap();
  #onStep;

  constructor(onStep) {
    this.#onStep = onStep;
    this.node = el('span', {class: 'reply'});
    this.node.addEventListener('pointerover', (event) => this.#point(event.target));
    this.node.addEventListener('pointerout', () => tip.hideSoon());
    this.node.addEventListener('focusin', (event) => this.#point(event.target));
    this.node.addEventListener('focusout', () => tip.hide());
    this.node.addEventListener('click', (event) => this.#choose(event.target));
    this.node.addEventListener('keydown', (event) => this.#onKey(event));
  }

  // Drawn once a frame: a small model writes thousands of tokens a second.
  append(tokens) {
    this.#waiting.push(...tokens);
    if (this.#frame === 0) this.#frame = requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const spans = this.#waiting.filter((token) => token.text !== '').map((token) => {
      const span = el('span', {class: `token k-${token.kind}`, tabindex: -1}, token.text);
      this.#tokenOf.set(span, token);
      return span;
    });
    this.#waiting = [];
    keepingAtEnd(() => this.node.append(...spans));
    const first = this.node.firstElementChild;
    if (first && !this.node.querySelector('[tabindex="0"]')) this.#makeStop(first);
  }

  #makeStop(span) {
    this.node.querySelector('[tabindex="0"]')?.setAttribute('tabindex', -1);
    span.setAttribute('tabindex', 0);
  }

  #point(target) {
    const token = this.#tokenOf.get(target);
    if (token) tip.show(target, describe(token));
  }

  #choose(target) {
    const token = this.#tokenOf.get(target);
    if (!token) return;
    this.#makeStop(target);
    if (token.step >= 0) this.#onStep(token.step);
  }

  #onKey(event) {
    const span = event.target;
    if (!this.#tokenOf.has(span)) return;
    const next = {
      ArrowRight: span.nextElementSibling,
      ArrowLeft: span.previousElementSibling,
      Home: this.node.firstElementChild,
      End: this.node.lastElementChild,
    }[event.key];
    if (event.key === 'Enter') this.#choose(span);
    if (next) {
      this.#makeStop(next);
      next.focus();
    }
    if (next || event.key === 'Enter') event.preventDefault();
  }
}

function noteOf(reply) {
  if (reply.state === 'failed') return `Error: ${reply.error.message}`;
  if (reply.state === 'stopped') return 'Stopped.';
  if (reply.finishReason === 'length') return 'Ended at the limit of tokens.';
  if (reply.finishReason === 'cancelled' || reply.finishReason === 'error') return 'The server ended the reply early.';
  return reply.text === '' ? 'The reply is empty.' : '';
}

// All turns of one mode, "chat" or "completion". `hooks`: onEdit(turn), onRetry(turn), onStep(reply, step).
export class Conversation {
  turns = [];  // {prompt, reply, retries, ...nodes}
  #list;
  #hooks;

  constructor(mode, list, hooks) {
    this.mode = mode;
    this.#list = list;
    this.#hooks = hooks;
  }

  set isShown(value) { this.#list.hidden = !value || this.turns.length === 0; }

  add(prompt) {
    const turn = {prompt, reply: null, retries: 0};
    const isChat = this.mode === 'chat';
    const button = (name, onClick) => {
      const node = el('button', {type: 'button', class: `quiet ${name.toLowerCase()}`}, name);
      node.addEventListener('click', onClick);
      return node;
    };
    turn.body = el('p', {class: 'text', dir: 'auto'});
    turn.note = el('p', {class: 'note', hidden: true});
    turn.who = el('h3', {class: 'who'});
    const actions = el('div', {class: 'actions'},
      button('Edit', () => this.#hooks.onEdit(turn)), button('Retry', () => this.#hooks.onRetry(turn)));
    turn.item = el('li', {class: `turn ${this.mode}`});
    if (isChat) {
      const said = el('p', {class: 'text', dir: 'auto'}, prompt);
      turn.item.append(el('div', {class: 'asked'}, el('h3', {class: 'who'}, 'You'), said));
    } else {
      turn.body.append(el('span', {class: 'prompt-text'}, prompt));
    }
    turn.item.append(el('div', {class: 'answered'}, turn.who, turn.body, turn.note), actions);
    this.turns.push(turn);
    this.#list.append(turn.item);
    this.#list.hidden = false;
    return turn;
  }

  begin(turn, reply, modelName) {
    tip.hide();  // its token goes
    turn.reply = reply;
    turn.view?.node.remove();
    turn.view = new ReplyText((step) => this.#hooks.onStep(reply, step));
    turn.body.append(turn.view.node);
    turn.who.textContent = modelName;
    turn.note.hidden = true;
    turn.item.setAttribute('aria-busy', 'true');
    const scroller = byId('scroll');
    scroller.scrollTop = scroller.scrollHeight;
  }

  finish(turn) {
    turn.view.flush();
    const note = noteOf(turn.reply);
    keepingAtEnd(() => {
      turn.item.removeAttribute('aria-busy');
      turn.note.textContent = note;
      turn.note.hidden = note === '';
      turn.note.classList.toggle('error', turn.reply.state === 'failed');
    });
    return note;
  }

  // Takes away `turn` and what follows it.
  cutFrom(turn) {
    const from = this.turns.indexOf(turn);
    if (from < 0) return;
    tip.hide();
    for (const gone of this.turns.splice(from)) gone.item.remove();
  }

  clear() {
    tip.hide();
    for (const turn of this.turns.splice(0)) turn.item.remove();
    this.#list.hidden = true;
  }

  // What the model sees of the turns before `turn` (of all: null). A turn without a reply is left out, because most
  // templates want user and assistant in turn.
  messagesBefore(turn) {
    const end = turn ? this.turns.indexOf(turn) : this.turns.length;
    return this.turns.slice(0, end).filter(({reply}) => reply?.text).flatMap(({prompt, reply}) => [
      {role: 'user', content: prompt},
      {role: 'assistant', content: reply.text},
    ]);
  }
}
