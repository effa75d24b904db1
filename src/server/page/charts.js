// SPDX-License-Identifier: Apache-2.0
// Charts of the server's last two minutes, drawn as SVG.

import {byId, duration, el, figure, number, remPixels, svg} from './dom.js';
import {difference, kSpan, quantile} from './metrics.js';

const kHeight = 8;      // rem
const kGap = 3500;      // milliseconds without a sample that break a line
const kFallback = 280;  // pixels, where the card has no width yet

// The least of 1, 2, 4, 6, 8, 10, 20, 40, ... that is no less than `value`: half of it is a round number, too.
export function ceilingOf(value) {
  if (!(value > 1)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map((digit) => digit * power).find((bound) => bound >= value);
}

const percent = (share) => `${number(100 * share)} %`;

// Short names of large numbers on an axis: 1.2k.
function short(value) {
  if (value >= 1e6) return `${number(value / 1e6, value % 1e6 === 0 ? 0 : 1)}M`;
  if (value >= 1e3) return `${number(value / 1e3, value % 1e3 === 0 ? 0 : 1)}k`;
  return Number.isInteger(value) ? number(value) : number(value, 1);
}

// Where the drawing stands in its SVG, in pixels. The margins grow with the text.
function frameOf(node) {
  const rem = remPixels();
  const width = node.clientWidth || kFallback;
  const height = kHeight * rem;
  node.setAttribute('viewBox', `0 0 ${width} ${height}`);
  return {rem, left: 2.75 * rem, right: width - 0.5 * rem, top: 0.75 * rem, bottom: height - 1.5 * rem};
}

function axisY(frame, ceiling, write) {
  return [0, ceiling / 2, ceiling].flatMap((value) => {
    const y = frame.bottom - ((frame.bottom - frame.top) * value) / ceiling;
    return [
      svg('line', {class: value === 0 ? 'axis' : 'grid', x1: frame.left, x2: frame.right, y1: y, y2: y}),
      svg('text', {class: 'tick y', x: frame.left - 0.375 * frame.rem, y}, write(value)),
    ];
  });
}

function axisTime(frame) {
  const y = frame.bottom + 0.375 * frame.rem;
  return [
    svg('text', {class: 'tick start', x: frame.left, y}, '2 min ago'),
    svg('text', {class: 'tick middle', x: (frame.left + frame.right) / 2, y}, '1 min'),
    svg('text', {class: 'tick end', x: frame.right, y}, 'now'),
  ];
}

// A path through [time, value] pairs, broken where samples are missing.
function pathOf(points, toX, toY) {
  let path = '';
  let previous = -Infinity;
  for (const [time, value] of points) {
    const [x, y] = [toX(time).toFixed(1), toY(value).toFixed(1)];
    path += time - previous > kGap ? `M${x} ${y}h.1` : `L${x} ${y}`;
    previous = time;
  }
  return path;
}

// `lines`: lists of [time, value], the first one thick, the second dashed.
function drawLines(node, lines, atLeast) {
  const frame = frameOf(node);
  const now = performance.now();
  const most = Math.max(...lines.flat().map(([, value]) => value), 0);
  const ceiling = Math.max(atLeast, ceilingOf(most));
  const toX = (time) => frame.right - ((frame.right - frame.left) * (now - time)) / kSpan;
  const toY = (value) => frame.bottom - ((frame.bottom - frame.top) * value) / ceiling;
  const paths = lines.map((points, i) => svg('path', {class: `line line-${i}`, d: pathOf(points, toX, toY)}));
  node.replaceChildren(...axisY(frame, ceiling, short), ...axisTime(frame), ...paths.reverse());
}

// `shares`: [depth, share] pairs.
function drawBars(node, shares) {
  const frame = frameOf(node);
  const slot = (frame.right - frame.left) / Math.max(shares.length, 4);
  const width = Math.min(0.6 * slot, 2.5 * frame.rem);
  const parts = axisY(frame, 100, (value) => `${value} %`);
  shares.forEach(([depth, share], i) => {
    const middle = frame.left + (i + 0.5) * slot;
    const height = (frame.bottom - frame.top) * Math.min(1, share);
    parts.push(
      svg('rect', {class: 'bar-depth', x: middle - width / 2, y: frame.bottom - height, width, height}),
      svg('text', {class: 'bar-value', x: middle, y: frame.bottom - height - 0.25 * frame.rem}, percent(share)),
      svg('text', {class: 'tick middle', x: middle, y: frame.bottom + 0.375 * frame.rem}, `depth ${depth}`));
  });
  node.replaceChildren(...parts);
}

// [time, value] of the samples that tell it.
const series = (samples, name) => {
  return samples.filter((sample) => Number.isFinite(sample[name])).map((sample) => [sample.time, sample[name]]);
};

function rangeText(points, write) {
  if (points.length === 0) return 'no values yet';
  const values = points.map(([, value]) => value);
  return `least ${write(Math.min(...values))}, most ${write(Math.max(...values))}`;
}

// The change over the samples. Where too little happened in them, or the server began anew, all since it started.
function recent(samples, name) {
  const newest = samples.at(-1)[name];
  const counts = difference(newest, samples[0][name]);
  const isEnough = counts && Math.max(0, ...counts.values()) > 0;
  return {counts: isEnough ? counts : newest, isEnough};
}

function sharesOf(samples) {
  const offered = recent(samples, 'offered');
  const newest = samples.at(-1).accepted;
  const accepted = offered.isEnough ? difference(newest, samples[0].accepted) : newest;
  const depths = [...offered.counts.keys()].filter((depth) => offered.counts.get(depth) > 0).sort((a, b) => a - b);
  return {
    shares: depths.slice(0, 8).map((depth) => [depth, (accepted?.get(depth) ?? 0) / offered.counts.get(depth)]),
    since: offered.isEnough ? 'last 2 minutes' : 'since the server started',
  };
}

// Each chart: title; the field of a sample without which it has nothing to show; draw(node, samples), which returns the
// current value as text, '' for none, and a description.
const kCharts = [
  {
    title: 'Sequences',
    needs: 'running',
    draw(node, samples) {
      const lines = [series(samples, 'running'), series(samples, 'waiting')];
      drawLines(node, lines, 2);
      const {running, waiting} = samples.at(-1);
      const told = [[running, 'running'], [waiting, 'waiting (dashed)']].filter(([value]) => value !== null);
      const now = told.map(([value, word]) => `${number(value)} ${word}`).join(', ');
      return {now, more: `running ${rangeText(lines[0], number)}`};
    },
  },
  {
    title: 'Tokens per second',
    needs: 'generated',
    draw(node, samples) {
      const points = series(samples, 'perSecond');
      drawLines(node, [points], 10);
      return {now: points.length > 0 ? figure(points.at(-1)[1]) : '', more: rangeText(points, figure)};
    },
  },
  {
    title: 'Tokens per step, mean',
    needs: 'perStep',
    draw(node, samples) {
      const points = series(samples, 'perStep');
      drawLines(node, [points], 4);
      return {now: points.length > 0 ? figure(points.at(-1)[1]) : '', more: rangeText(points, figure)};
    },
  },
  {
    title: 'KV blocks in use',
    needs: 'used',
    draw(node, samples) {
      const points = series(samples, 'used');
      drawLines(node, [points], 10);
      const {used, free, shared} = samples.at(-1);
      let now = used === null ? '' : number(used);
      if (now && free !== null) now += ` of ${number(used + free)}`;
      if (now && shared > 0) now += `, ${number(shared)} shared`;
      return {now, more: rangeText(points, number)};
    },
  },
  {
    title: 'Drafts accepted, by depth',
    draw(node, samples) {
      const {shares, since} = sharesOf(samples);
      drawBars(node, shares);
      const told = shares.map(([depth, share]) => `depth ${depth} ${percent(share)}`).join(', ');
      return {now: '', more: told === '' ? 'none yet' : `${told}, ${since}`};
    },
  },
];

// Name, field of a sample.
const kWaits = [['Time to first token', 'firstToken'], ['Between tokens', 'between']];

export class ChartsView {
  #charts;
  #waits = el('tbody');
  #waitsNote = el('p', {class: 'fine'});
  #samples = [];

  constructor() {
    this.#charts = kCharts.map((chart) => {
      const node = svg('svg', {class: 'chart', role: 'img', 'aria-label': `${chart.title}: no values yet`});
      const now = el('span', {class: 'now'});
      const caption = el('figcaption', {}, el('span', {class: 'title'}, chart.title), now);
      const box = el('figure', {}, caption, node);
      byId('charts').append(box);
      return {...chart, box, node, now};
    });
    const head = ['Wait', 'Median', '95 %'].map((name) => el('th', {scope: 'col'}, name));
    byId('charts').append(el('figure', {}, el('figcaption', {}, el('span', {class: 'title'}, 'Waits')),
      el('table', {class: 'waits'}, el('thead', {}, el('tr', {}, ...head)), this.#waits), this.#waitsNote));
    // Text that grows, or a window that does, changes the room. In the next frame: a drawing may change the height, and
    // an observer that changes what it observes is an error in the console.
    new ResizeObserver(() => requestAnimationFrame(() => this.show(this.#samples))).observe(byId('charts'));
  }

  show(samples) {
    this.#samples = samples;
    if (samples.length === 0) return;
    for (const {title, needs, box, node, now, draw} of this.#charts) {
      // What this server does not tell has no chart.
      box.hidden = needs !== undefined && samples.at(-1)[needs] === null;
      if (box.hidden) continue;
      const said = draw(node, samples);
      now.textContent = said.now;
      node.setAttribute('aria-label', `${title}: ${said.now ? `now ${said.now}; ` : ''}${said.more}`);
    }
    const found = kWaits.map(([name, field]) => ({name, ...recent(samples, field)}));
    const write = (seconds) => duration(1000 * seconds);
    this.#waits.replaceChildren(...found.map(({name, counts}) => el('tr', {}, el('th', {scope: 'row'}, name),
      el('td', {}, write(quantile(counts, 0.5))), el('td', {}, write(quantile(counts, 0.95))))));
    this.#waitsNote.textContent = found.some(({isEnough}) => isEnough) ? 'Last 2 minutes' : 'Since the server started';
  }
}
