// SPDX-License-Identifier: Apache-2.0
// The server's API over fetch: requests with the key, errors as the API words them, events of a stream.

export class ApiError extends Error {
  constructor(message, {status = 0, param = null} = {}) {
    super(message);
    this.name = 'ApiError';
    this.status = status;  // of HTTP; 0: no reply came, or it broke off
    this.param = param;    // the field at fault
  }
}

const headersOf = (key) => (key ? {Authorization: `Bearer ${key}`} : {});

async function errorOf(response) {
  const text = await response.text().catch(() => '');
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    // A proxy between the page and the server may answer with HTML: the status alone is told then.
  }
  const message = typeof error?.message === 'string' ? error.message : `status ${response.status}`;
  return new ApiError(message, {status: response.status, param: error?.param ?? null});
}

// Throws ApiError; an abort by `options.signal` passes as it is.
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, {cache: 'no-store', credentials: 'same-origin', ...options});
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError('the server does not answer');
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function getModels(key) {
  const response = await ask('/v1/models', {headers: headersOf(key)});
  const list = await response.json().catch(() => null);
  if (!Array.isArray(list?.data)) throw new ApiError('/v1/models is no list of models');
  return list.data;
}

export async function getMetrics(key, signal) {
  const response = await ask('/metrics', {headers: headersOf(key), signal});
  return response.text();
}

// Cuts a text/event-stream into the data of its events, however the network has cut it into chunks
// (https://html.spec.whatwg.org/multipage/server-sent-events.html, "Parsing an event stream").
export class EventParser {
  #rest = '';
  #data = [];

  // The data of the events that `chunk` completes.
  push(chunk) {
    // A carriage return at the very end may be half of a line end: it waits for what follows.
    const lines = (this.#rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const events = [];
    for (const line of lines) {
      if (line === '') {
        if (this.#data.length > 0) events.push(this.#data.join('\n'));
        this.#data = [];
      } else if (line.startsWith('data:')) {
        this.#data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
    return events;
  }
}

// The events of a completion as objects, up to [DONE]. A stream that ends without it is an error, because its text may
// be cut anywhere.
export async function* streamCompletion(path, body, {key, signal}) {
  const response = await ask(path, {
    method: 'POST',
    headers: {'Content-Type': 'application/json', ...headersOf(key)},
    body: JSON.stringify(body),
    signal,
  });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  let isComplete = false;
  try {
    for (;;) {
      const {done, value} = await readFrom(reader, signal);
      if (done) throw new ApiError('the connection ended before the reply was complete');
      for (const data of parser.push(decoder.decode(value, {stream: true}))) {
        isComplete = data === '[DONE]';
        if (isComplete) return;
        yield eventOf(data);
      }
    }
  } finally {
    // Nothing waits for either; a stream that has failed has nothing to read or cancel.
    (isComplete ? readToEnd(reader) : reader.cancel()).catch(() => {});
  }
}

// A body that was read to its end leaves its connection to the next request.
async function readToEnd(reader) {
  while (!(await reader.read()).done);
}

async function readFrom(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError('the connection broke before the reply was complete');
  }
}

function eventOf(data) {
  let event;
  try {
    event = JSON.parse(data);
  } catch {
    throw new ApiError(`an event of the stream is no JSON: ${data.slice(0, 80)}`);
  }
  if (event?.error) {
    throw new ApiError(event.error.message ?? 'the server reported an error', {param: event.error.param ?? null});
  }
  return event;
}
