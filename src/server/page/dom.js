// SPDX-License-Identifier: Apache-2.0
// Helpers for the document. Text from outside reaches it as text nodes alone, never as markup.

const kSvg = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

// The policy of the page (style-src 'self') forbids the attribute `style`: what must be set goes to node.style.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children);
  return node;
}

export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(kSvg, tag), attributes, children);

// Pixels of one rem. Drawings are sized in it, so that they grow with the reader's text.
export const remPixels = () => parseFloat(getComputedStyle(document.documentElement).fontSize) || 16;

export const prefersStill = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

const formats = new Map();

export function number(value, digits = 0) {
  if (!Number.isFinite(value)) return '–';
  if (!formats.has(digits)) {
    formats.set(digits, new Intl.NumberFormat('en', {minimumFractionDigits: digits, maximumFractionDigits: digits}));
  }
  return formats.get(digits).format(value);
}

// Three digits that mean something: 0, 0.42, 8.31, 42.1, 1,234.
export function figure(value) {
  const size = Math.abs(value);
  return number(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : 2);
}

export function duration(milliseconds) {
  if (!Number.isFinite(milliseconds)) return '–';
  return milliseconds < 1000 ? `${figure(milliseconds)} ms` : `${figure(milliseconds / 1000)} s`;
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? '' : 's'}`;

const kSigns = {' ': '␣', '\n': '↵', '\r': '↵', '\t': '⇥'};

// A token's text with its spaces and line ends made visible, `most` characters at most.
export function shown(text, most = 18) {
  if (text === '') return '∅';
  const signs = Array.from(text, (c) => kSigns[c] ?? c);
  return signs.length <= most ? signs.join('') : signs.slice(0, most - 1).join('') + '…';
}
