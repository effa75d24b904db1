// SPDX-License-Identifier: Apache-2.0
// The draft tree of one step as a drawing: root at the left, the accepted path thick, the rest faint.

import {byId, el, number, plural, prefersStill, remPixels, shown, svg} from './dom.js';

// In rem.
const kNodeHeight = 1.625;
const kRowGap = 0.375;
const kColumnGap = 2;
const kPadding = 0.5;
// A step has 64 nodes in the largest preset; a drawing of more than this helps nobody.
const kMostNodes = 512;

const kSources = {heads: 'by heads', lookup: 'by lookup', prediction: 'from the prediction', given: 'by the client'};

// The nodes to draw: those of the step and, behind the last accepted one, the base model's own token.
function nodesOf(step) {
  const kept = new Set(step.accepted);
  const nodes = step.parents.map((parent, i) => {
    return {parent, text: step.texts[i], kind: i === 0 ? 'root' : kept.has(i) ? 'kept' : 'left'};
  });
  if (step.bonus !== null) nodes.push({parent: step.accepted.at(-1) ?? 0, text: step.bonus, kind: 'bonus'});
  return nodes;
}

// Gives each node `depth`, `row` and its `children`, in place. A leaf has a row of its own, and a parent stands in the
// middle of its children. Returns the number of rows.
export function layOut(nodes) {
  let rows = 0;
  nodes.forEach((node, i) => {
    node.children = [];
    node.depth = i === 0 ? 0 : nodes[node.parent].depth + 1;
    if (i > 0) nodes[node.parent].children.push(node);
  });
  const place = (node) => {
    node.children.forEach(place);
    node.row = node.children.length === 0 ? rows++ : (node.children[0].row + node.children.at(-1).row) / 2;
  };
  place(nodes[0]);
  return rows;
}

const quoted = (text) => `“${shown(text, 40)}”`;

function sentenceOf(step) {
  const drafted = step.parents.length - 1;
  const kept = step.accepted.map((i) => quoted(step.texts[i])).join(', ');
  const how = kSources[step.source] ? ` drafted ${kSources[step.source]}` : '';
  const start = `Tree of ${plural(drafted, 'token')}${how}, ${number(step.accepted.length)} accepted`;
  const end = step.bonus === null ? '' : ` The base model's own choice after that: ${quoted(step.bonus)}.`;
  return `${start}${kept ? `: ${kept}` : ''}.${end}`;
}

function drawing(step, box) {
  const nodes = nodesOf(step);
  const rows = layOut(nodes);
  const rem = remPixels();
  const style = getComputedStyle(box);
  const pen = document.createElement('canvas').getContext('2d');
  pen.font = `600 ${style.fontSize} ${style.fontFamily}`;
  const columns = [];  // width of each depth
  for (const node of nodes) {
    node.label = shown(node.text);
    node.width = pen.measureText(node.label).width + rem;
    columns[node.depth] = Math.max(columns[node.depth] ?? 0, node.width);
  }
  const starts = columns.map((_, d) => {
    return kPadding * rem + columns.slice(0, d).reduce((sum, width) => sum + width + kColumnGap * rem, 0);
  });
  const height = kNodeHeight * rem;
  for (const node of nodes) {
    node.x = starts[node.depth];
    node.y = (kPadding + node.row * (kNodeHeight + kRowGap)) * rem;
  }
  const whole = {
    width: starts.at(-1) + columns.at(-1) + kPadding * rem,
    height: (2 * kPadding + rows * (kNodeHeight + kRowGap) - kRowGap) * rem,
  };
  // Faint edges first, so that the accepted path lies above them.
  const byWeight = [...nodes].sort((a, b) => (a.kind === 'left' ? 0 : 1) - (b.kind === 'left' ? 0 : 1));
  const picture = svg('svg', {
    class: 'tree-picture', role: 'img', 'aria-label': sentenceOf(step), focusable: 'false',
    width: Math.ceil(whole.width), height: Math.ceil(whole.height),
  });
  for (const node of byWeight) {
    if (node.parent >= 0) picture.append(edge(nodes[node.parent], node, height));
  }
  for (const node of byWeight) picture.append(nodeBox(node, height));
  return {picture, rootMiddle: nodes[0].y + height / 2};
}

function edge(from, to, height) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + height / 2, to.x, to.y + height / 2];
  const middle = (x1 + x2) / 2;
  return svg('path', {class: `edge e-${to.kind}`, d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`});
}

const kNames = {root: 'root', kept: 'accepted', left: 'not accepted', bonus: "the base model's own choice"};

function nodeBox(node, height) {
  const depth = node.kind === 'bonus' ? [] : [`depth ${node.depth}`];
  // The title is for pointers; to screen readers the drawing is one image, and its sentence says all.
  return svg('g', {class: `node n-${node.kind}`, 'aria-hidden': 'true'},
    svg('title', {}, [shown(node.text, 60), ...depth, kNames[node.kind]].join(' · ')),
    svg('rect', {x: node.x, y: node.y, width: node.width, height, rx: height / 4}),
    svg('text', {x: node.x + node.width / 2, y: node.y + height / 2}, node.label));
}

// The card with the tree. It follows a reply that is being written until the reader walks back.
export class TreeView {
  #reply = null;
  #idx = -1;
  #follows = true;
  #box = byId('tree-box');
  #back = byId('step-back');
  #on = byId('step-on');
  #timer = 0;

  constructor() {
    this.#back.addEventListener('click', () => this.#walk(-1));
    this.#on.addEventListener('click', () => this.#walk(1));
    this.show(null);
  }

  show(reply) {
    this.#reply = reply;
    this.#follows = true;
    this.#idx = (reply?.steps.length ?? 0) - 1;
    this.#draw();
  }

  showStep(reply, idx) {
    this.#reply = reply;
    this.#idx = idx;
    this.#follows = idx === reply.steps.length - 1;
    this.#draw();
  }

  // There may be new steps. At most five drawings a second, and none before the end where motion is unwanted.
  update() {
    if (this.#timer !== 0 || (prefersStill() && this.#reply?.isRunning)) return;
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.finish();
    }, 200);
  }

  finish() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (this.#follows) this.#idx = (this.#reply?.steps.length ?? 0) - 1;
    this.#draw();
  }

  #walk(by) {
    const last = this.#reply.steps.length - 1;
    this.#idx = Math.max(0, Math.min(last, this.#idx + by));
    this.#follows = this.#idx === last;
    this.#draw();
  }

  #draw() {
    const steps = this.#reply?.steps ?? [];
    const step = steps[this.#idx];
    // Not `disabled`, which would drop the focus of whoever has walked to the end.
    this.#back.disabled = this.#on.disabled = steps.length === 0;
    this.#back.setAttribute('aria-disabled', this.#idx <= 0);
    this.#on.setAttribute('aria-disabled', this.#idx >= steps.length - 1);
    byId('step-place').textContent = step ? `step ${number(this.#idx + 1)} of ${number(steps.length)}` : 'no step';
    if (!step || step.parents.length > kMostNodes) {
      this.#box.replaceChildren(el('p', {class: 'fine'}, this.#whyEmpty(step)));
      byId('tree-caption').textContent = '';
      return;
    }
    const {picture, rootMiddle} = drawing(step, this.#box);
    this.#box.replaceChildren(picture);
    this.#box.scrollTop = rootMiddle - this.#box.clientHeight / 2;
    byId('tree-caption').textContent = sentenceOf(step);
  }

  #whyEmpty(step) {
    if (step) return `The tree has ${number(step.parents.length)} nodes, too many to draw.`;
    if (!this.#reply) return 'A step drafts a tree of tokens, and the model keeps a path of it. Send a text to see it.';
    if (this.#reply.isRunning) return 'Waiting for the first step.';
    return 'No step of this reply has drafted a tree.';
  }
}
