// SPDX-License-Identifier: Apache-2.0
// What /metrics says, once a second while the page is visible, for two minutes back.

import {getMetrics} from './stream.js';

export const kSpan = 120_000;  // milliseconds that are kept
const kPeriod = 1000;
const kRetry = 5000;   // after an error
const kStale = 5000;   // samples further apart give no rate: the page was hidden between them

// Prometheus text format 0.0.4: name -> [{labels, value}]. Lines that are none are skipped.
export function parseMetrics(text) {
  const metrics = new Map();
  for (const line of text.split('\n')) {
    const match = /^\s*([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!match) continue;
    const [, name, labelText = '', written] = match;
    const value = written === '+Inf' ? Infinity : written === '-Inf' ? -Infinity : Number(written);
    if (Number.isNaN(value)) continue;
    const labels = {};
    for (const [, label, raw] of labelText.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = raw.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    }
    if (!metrics.has(name)) metrics.set(name, []);
    metrics.get(name).push({labels, value});
  }
  return metrics;
}

// Sum over all labels, or over those rows that have `labels`; null where the server does not tell it.
function sum(metrics, name, labels = {}) {
  const rows = (metrics.get(name) ?? []).filter((row) => Object.entries(labels).every(([k, v]) => row.labels[k] === v));
  return rows.length === 0 ? null : rows.reduce((total, row) => total + row.value, 0);
}

// Label -> value, over the others.
function by(metrics, name, label) {
  const sums = new Map();
  for (const {labels, value} of metrics.get(name) ?? []) {
    const at = labels[label] === '+Inf' ? Infinity : Number(labels[label]);
    if (!Number.isNaN(at)) sums.set(at, (sums.get(at) ?? 0) + value);
  }
  return sums;
}

// One look at the server.
export function sampleOf(metrics, time, previous) {
  const sample = {
    time,
    running: sum(metrics, 'hydrant_sequences_running'),
    waiting: sum(metrics, 'hydrant_sequences_waiting'),
    generated: sum(metrics, 'hydrant_generated_tokens_total'),
    perStep: sum(metrics, 'hydrant_emitted_per_step'),
    used: sum(metrics, 'hydrant_kv_blocks', {state: 'used'}),
    free: sum(metrics, 'hydrant_kv_blocks', {state: 'free'}),
    shared: sum(metrics, 'hydrant_kv_blocks', {state: 'shared'}),
    offered: by(metrics, 'hydrant_offered_tokens_total', 'depth'),
    accepted: by(metrics, 'hydrant_accepted_tokens_total', 'depth'),
    firstToken: by(metrics, 'hydrant_time_to_first_token_seconds_bucket', 'le'),
    between: by(metrics, 'hydrant_time_between_tokens_seconds_bucket', 'le'),
    perSecond: null,
  };
  const passed = previous ? time - previous.time : Infinity;
  if (passed < kStale && sample.generated !== null && previous.generated !== null) {
    const more = sample.generated - previous.generated;
    if (more >= 0) sample.perSecond = (1000 * more) / passed;  // less: the server has begun anew
  }
  return sample;
}

// Counts by label between two samples; null where the server has begun anew between them.
export function difference(newer, older) {
  const counts = new Map();
  for (const [at, value] of newer) {
    const more = value - (older?.get(at) ?? 0);
    if (more < 0) return null;
    counts.set(at, more);
  }
  return counts;
}

// The value below which a share of a histogram's counts lies, as Prometheus computes it: evenly within a bucket.
// `buckets`: upper bound -> count of all below it. NaN where nothing was counted.
export function quantile(buckets, share) {
  const bounds = [...buckets.keys()].sort((a, b) => a - b);
  const total = bounds.length > 0 ? buckets.get(bounds.at(-1)) : 0;
  if (!(total > 0)) return NaN;
  const rank = share * total;
  const i = bounds.findIndex((bound) => buckets.get(bound) >= rank);
  const low = i > 0 ? bounds[i - 1] : 0;
  if (bounds[i] === Infinity) return low;  // more cannot be said
  const below = i > 0 ? buckets.get(low) : 0;
  const inside = buckets.get(bounds[i]) - below;
  return inside > 0 ? low + ((bounds[i] - low) * (rank - below)) / inside : bounds[i];
}

export class Metrics {
  samples = [];  // oldest first
  #timer = 0;
  #request = null;
  #options;

  // `options`: key() -> the key; onSample(samples); onError(error).
  constructor(options) {
    this.#options = options;
    document.addEventListener('visibilitychange', () => this.restart());
    this.restart();
  }

  // Also after an error that had ended the polling.
  restart() {
    clearTimeout(this.#timer);
    this.#request?.abort();
    this.#request = null;
    if (document.visibilityState === 'visible') this.#poll();
  }

  async #poll() {
    const request = new AbortController();
    this.#request = request;
    const begin = performance.now();
    let pause = kPeriod;
    try {
      const metrics = parseMetrics(await getMetrics(this.#options.key(), request.signal));
      if (request.signal.aborted) return;
      const now = performance.now();
      this.samples.push(sampleOf(metrics, now, this.samples.at(-1)));
      this.samples = this.samples.filter(({time}) => now - time <= kSpan);
      this.#options.onSample(this.samples);
    } catch (error) {
      if (request.signal.aborted) return;
      this.#options.onError(error);
      // No such page, or no right to it: asking again brings the same, and an error in the console each time.
      if (error.status >= 400 && error.status < 500 && error.status !== 429) return;
      pause = kRetry;
    }
    this.#timer = setTimeout(() => this.#poll(), Math.max(0, pause - (performance.now() - begin)));
  }
}
