// SPDX-License-Identifier: Apache-2.0
// The page of a Hydrant server: wires the playground, the figures, the tree and the charts together.

import {ChartsView} from './charts.js';
import {Conversation, tip} from './conversation.js';
import {byId, duration, el, figure, number, plural} from './dom.js';
import {FiguresView} from './figures.js';
import {Metrics} from './metrics.js';
import {Reply} from './reply.js';
import {curlOf, Settings} from './settings.js';
import {getModels} from './stream.js';
import {TreeView} from './tree.js';

const kExamples = {
  chat: ['Tell me a story about a fox and a hen.', 'Why is the sky blue?'],
  completion: ['Once upon a time there was a little hen who', 'The old king looked out of his window and'],
};
const kTitles = {chat: 'Message', completion: 'Text to continue'};
const kIntroductions = {
  chat: 'Write a message, or begin with one of these:',
  completion: 'Write the beginning of a text, or take one of these:',
};

const prompt = byId('prompt');
const settings = new Settings({onKey: () => { metrics.restart(); findModel(); }});
const figures = new FiguresView();
const tree = new TreeView();
const charts = new ChartsView();
const hooks = {onEdit: edit, onRetry: retry, onStep: showStep};
const conversations = {
  chat: new Conversation('chat', byId('chat-turns'), hooks),
  completion: new Conversation('completion', byId('completion-turns'), hooks),
};

let mode = 'completion';
let model = null;        // an entry of /v1/models
let running = null;      // the AbortController of what is being written
let editing = null;      // the turn that the next text replaces
let current = null;      // the Reply whose figures are shown
let lastRequest = null;  // {path, body} of the last one sent
let lookedAt = 0;        // when the model was last asked for

// ---- The model and the server's state

async function findModel() {
  lookedAt = performance.now();
  try {
    [model = null] = await getModels(settings.key);
  } catch (error) {
    model = null;
    showServerError(error);
    return;
  }
  byId('model-line').textContent = model ? describeModel() : 'The server has no model';
  document.title = model ? `${model.id} · Hydrant` : 'Hydrant';
  const hasTemplate = model?.has_chat_template === true;
  const chat = document.querySelector('input[name=mode][value=chat]');
  chat.disabled = !hasTemplate;
  chat.parentElement.title = hasTemplate ? '' : 'The model has no chat template';
  setMode(hasTemplate ? settings.mode ?? 'chat' : 'completion');
}

function describeModel() {
  const parts = [model.id];
  if (model.drafter && model.drafter !== 'none') {
    parts.push(model.num_heads > 0 ? `${model.drafter}, ${plural(model.num_heads, 'head')}` : model.drafter);
  }
  if (model.max_model_len) parts.push(`context of ${plural(model.max_model_len, 'token')}`);
  return parts.join(' · ');
}

function showServerError(error) {
  const needsKey = error.status === 401;
  byId('model-line').textContent = needsKey
    ? 'The server asks for an API key: enter it in the settings' : `No model: ${error.message}`;
}

const metrics = new Metrics({
  key: () => settings.key,
  onSample: (samples) => {
    byId('server-state').textContent = 'The last two minutes';
    charts.show(samples);
    if (model === null && performance.now() - lookedAt > 5000) findModel();  // the server may have come back
  },
  onError: (error) => { byId('server-state').textContent = `No figures: ${error.message}`; },
});

// ---- Modes

function setMode(chosen) {
  mode = chosen;
  for (const input of document.querySelectorAll('input[name=mode]')) input.checked = input.value === mode;
  for (const conversation of Object.values(conversations)) conversation.isShown = conversation.mode === mode;
  byId('prompt-label').textContent = kTitles[mode];
  byId('empty-text').textContent = kIntroductions[mode];
  byId('examples').replaceChildren(...kExamples[mode].map((text) => {
    const button = el('button', {type: 'button', class: 'example'}, text);
    button.addEventListener('click', () => {
      prompt.value = text;
      prompt.focus();
    });
    return el('li', {}, button);
  }));
  endEdit();
  updateEmpty();
}

function updateEmpty() {
  byId('empty').hidden = conversations[mode].turns.length > 0;
}

// ---- Sending

// False, and the field is shown, where a setting cannot be sent.
function checkSettings() {
  const field = settings.invalidField;
  if (!field) return true;
  openSettings(true);
  field.reportValidity();
  field.focus();
  return false;
}

function requestFor(text, turn) {
  const before = mode === 'chat' ? conversations.chat.messagesBefore(turn) : [];
  return settings.request({mode, text, before}, model?.id);
}

function send(event) {
  event.preventDefault();
  if (running) return tell('A reply is being written: Escape stops it.');
  const text = prompt.value;
  if (text.trim() === '') return tell('There is no text to send.');
  if (!checkSettings()) return;
  const conversation = conversations[mode];
  const replaced = editing;
  endEdit();
  if (replaced) conversation.cutFrom(replaced);
  const turn = conversation.add(text);
  updateEmpty();
  // A prompt is often tried again with a change, a message is not.
  if (mode === 'chat') prompt.value = '';
  answer(turn);
}

async function answer(turn) {
  const conversation = conversations[mode];
  const request = requestFor(turn.prompt, turn);
  // As the chat in the terminal does it: the next seed gives another text.
  if (request.body.seed !== undefined) request.body.seed += turn.retries;
  lastRequest = request;
  const reply = new Reply(request);
  current = reply;
  conversation.begin(turn, reply, model?.id ?? 'Model');
  tree.show(reply);
  await whileRunning(reply, 'Writing.', (tokens) => {
    turn.view.append(tokens);
    tree.update();
  });
  const note = conversation.finish(turn);
  if (current !== reply) return setStatus('');  // it was cleared away
  tree.finish();
  const summary = summaryOf(reply);
  setStatus(reply.state === 'failed' ? note : summary);
  announce([reply.text && `Reply: ${reply.text}`, note, summary].filter(Boolean).join('\n'));
}

function summaryOf(reply) {
  if (reply.state === 'failed' || reply.numTokens === 0) return '';
  const parts = [plural(reply.numTokens, 'token')];
  if (Number.isFinite(reply.tokensPerSecond)) parts.push(`${figure(reply.tokensPerSecond)} a second`);
  if (Number.isFinite(reply.tokensPerStep)) parts.push(`${figure(reply.tokensPerStep)} a step`);
  return `${parts.join(', ')}.`;
}

// Runs `reply` to its end, with the figures of `current` renewed twice a second.
async function whileRunning(reply, status, onTokens) {
  running = new AbortController();
  setBusy(true);
  setStatus(status);
  const timer = setInterval(() => figures.show(current, true), 500);
  await reply.run({key: settings.key, signal: running.signal, onTokens});
  clearInterval(timer);
  running = null;
  setBusy(false);
  figures.show(current, false);
}

async function compare() {
  const reply = current;
  if (running || !figures.canCompare) return;
  const body = {...reply.request.body, speculation: {enabled: false}};
  if (reply.seed !== null) body.seed = reply.seed;
  reply.plain = new Reply({path: reply.request.path, body});
  figures.show(reply, true);
  await whileRunning(reply.plain, 'Writing the same text without drafts.');
  if (current !== reply) return setStatus('');
  const sentence = byId('comparison').querySelector('.verdict')?.textContent ?? '';
  setStatus(reply.plain.state === 'done' ? 'Compared.' : sentence);
  announce(sentence);
}

function stop() {
  running?.abort();
}

function setBusy(isBusy) {
  const focused = document.activeElement;
  byId('send').hidden = isBusy;
  byId('stop').hidden = !isBusy;
  document.body.classList.toggle('is-busy', isBusy);
  // The focus must not vanish with the button that had it: Send, or Retry beside a turn.
  if (isBusy && focused?.matches('#send, .actions *')) byId('stop').focus();
  if (!isBusy && focused === byId('stop')) prompt.focus();
}

// ---- Turns

function edit(turn) {
  prompt.value = turn.prompt;
  if (mode === 'chat') {
    editing = turn;
    byId('editing-text').textContent = 'You change an earlier message. Sending it takes away what came after.';
    byId('editing').hidden = false;
  }
  prompt.focus();
}

function endEdit() {
  editing = null;
  byId('editing').hidden = true;
}

function retry(turn) {
  if (running) return tell('A reply is being written: Escape stops it.');
  if (!checkSettings()) return;
  endEdit();
  const conversation = conversations[mode];
  if (mode === 'chat') {
    const next = conversation.turns[conversation.turns.indexOf(turn) + 1];
    if (next) conversation.cutFrom(next);
  }
  turn.retries += 1;
  answer(turn);
}

function clear() {
  stop();
  conversations[mode].clear();
  current = lastRequest = null;
  figures.show(null, false);
  tree.show(null);
  endEdit();
  updateEmpty();
  setStatus('');
  prompt.focus();
}

function showStep(reply, idx) {
  if (!running) {
    current = reply;
    figures.show(reply, false);
  }
  tree.showStep(reply, idx);
}

// ---- Around it

function setStatus(text) {
  byId('status').textContent = text;
}

// For screen readers. Tokens are not announced one by one: the reply is, when it has ended.
function announce(text) {
  byId('announcer').textContent = text;
}

function tell(text) {
  setStatus(text);
  announce(text);
}

async function copyCurl() {
  if (!checkSettings()) return;
  const text = prompt.value;
  const request = text.trim() === '' && lastRequest ? lastRequest : requestFor(text, editing);
  const command = curlOf(request, location.origin, settings.key !== '');
  const box = byId('curl-box');
  box.hidden = true;
  try {
    // There is no clipboard on pages that came over HTTP from another machine.
    await navigator.clipboard.writeText(command);
    tell('The command is copied.');
  } catch {
    box.hidden = false;
    byId('curl-text').value = command;
    byId('curl-text').focus();
    byId('curl-text').select();
  }
}

function openSettings(isOpen) {
  byId('settings').hidden = !isOpen;
  byId('settings-toggle').setAttribute('aria-expanded', isOpen);
}

function onEscape(event) {
  if (event.key !== 'Escape' || event.isComposing) return;
  const hadTip = tip.hide();
  if (running) stop();
  else if (editing) endEdit();
  else if (!hadTip && byId('settings').contains(document.activeElement)) {
    openSettings(false);
    byId('settings-toggle').focus();
  }
}

function onPromptKey(event) {
  // Enter also ends the input of a Japanese or Chinese word; Safari tells that by the code 229 alone.
  if (event.key !== 'Enter' || event.isComposing || event.keyCode === 229) return;
  if (event.shiftKey && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  byId('composer').requestSubmit();
}

byId('composer').addEventListener('submit', send);
byId('stop').addEventListener('click', stop);
byId('clear').addEventListener('click', clear);
byId('compare').addEventListener('click', compare);
byId('curl').addEventListener('click', copyCurl);
byId('editing-cancel').addEventListener('click', () => { endEdit(); prompt.focus(); });
byId('settings-toggle').addEventListener('click', () => {
  openSettings(byId('settings').hidden);
  byId('settings').focus();  // in a narrow window they open far below the button
});
prompt.addEventListener('keydown', onPromptKey);
document.addEventListener('keydown', onEscape);
for (const input of document.querySelectorAll('input[name=mode]')) {
  input.addEventListener('change', () => {
    settings.mode = input.value;
    settings.remember();
    setMode(input.value);
  });
}

setMode('completion');
findModel();
