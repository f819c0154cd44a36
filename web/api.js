// api.js - calls to the server: JSON in and out, the session's CSRF word, errors as one class.
import { t } from './strings.js';

// What the server refused: code and message are its own words, param the field it is about.
export class ApiError extends Error {
  constructor(status, error = {}) {
    super(error.message || t('error.offline'));
    this.status = status;
    this.code = error.code ?? 'offline';
    this.param = error.param ?? null;
  }
}

let csrf = '';
let signedOut = () => {};

export function setCsrf(word) {
  csrf = word ?? '';
}

// Called when the server no longer knows the session.
export function onSignedOut(callback) {
  signedOut = callback;
}

function headers(method, type) {
  const all = {};
  if (type) {
    all['Content-Type'] = type;
  }
  if (csrf && method !== 'GET' && method !== 'HEAD') {
    all['X-CSRF-Token'] = csrf;
  }
  return all;
}

async function send(method, path, options = {}) {
  try {
    return await fetch(path, { method, cache: 'no-store', credentials: 'same-origin', ...options });
  } catch {
    throw new ApiError(0);
  }
}

async function refuse(reply, path) {
  let error = { message: `${reply.status} ${reply.statusText}` };
  try {
    error = (await reply.json()).error ?? error;
  } catch {
    // A proxy's error page: the status line has to do.
  }
  if (reply.status === 401 && path !== '/v1/login' && path !== '/v1/me') {
    signedOut();
  }
  throw new ApiError(reply.status, error);
}

// One call; the reply as it begins to come. Throws ApiError.
async function open(method, path, body, { more = {}, signal } = {}) {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const reply = await send(method, path, {
    body: text,
    headers: { ...headers(method, text === undefined ? '' : 'application/json'), ...more },
    signal,
  });
  if (!reply.ok) {
    await refuse(reply, path);
  }
  return reply;
}

// One call; the reply's JSON. Throws ApiError. A signal breaks it off.
export const get = async (path, signal) => (await open('GET', path, undefined, { signal })).json();
export const post = async (path, body, more, signal) =>
  (await open('POST', path, body, { more, signal })).json();

export const patch = async (path, body) => (await open('PATCH', path, body)).json();

// One call whose reply is a stream of server-sent events: yields the object of each until [DONE]. Throws ApiError,
// also for an error inside the stream; a signal that breaks it off ends it quietly.
export async function* postStream(path, body, signal) {
  try {
    const reply = await open('POST', path, body, { signal });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (rest + part.value).split('\n\n');
      rest = events.pop();
      for (const data of events.map(dataOf).filter(Boolean)) {
        if (data === '[DONE]') {
          return;
        }
        const chunk = JSON.parse(data);
        if (chunk.error) {
          throw new ApiError(reply.status, chunk.error);
        }
        yield chunk;
      }
    }
    throw new ApiError(0, { message: t('talk.broken') });
  } catch (error) {
    if (!signal.aborted) {
      throw error instanceof ApiError ? error : new ApiError(0, { message: t('talk.broken') });
    }
  }
}

// The data of one server-sent event; comments have none.
function dataOf(event) {
  return event
    .split('\n')
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice(5).trimStart())
    .join('\n');
}

// Every object of a list, page by page, up to `most`.
export async function getAll(path, most = 1000) {
  const joint = path.includes('?') ? '&' : '?';
  const found = [];
  let after = '';
  for (;;) {
    const page = await get(`${path}${joint}limit=100${after}`);
    found.push(...page.data);
    if (!page.has_more || page.data.length === 0 || found.length >= most) {
      return found;
    }
    after = `&after=${encodeURIComponent(page.data[page.data.length - 1].id)}`;
  }
}

// The size of a text resource in bytes.
export async function sizeOf(path) {
  const reply = await send('HEAD', path);
  if (!reply.ok) {
    throw new ApiError(reply.status, { message: `${reply.status} ${reply.statusText}` });
  }
  return Number(reply.headers.get('Content-Length') ?? 0);
}

// Bytes [from, to) of a resource.
export async function getRange(path, from, to) {
  const reply = await send('GET', path, { headers: { Range: `bytes=${from}-${to - 1}` } });
  if (!reply.ok) {
    await refuse(reply, path);
  }
  const bytes = new Uint8Array(await reply.arrayBuffer());
  return reply.status === 206 ? bytes : bytes.subarray(from, to);
}

// Send a file; onProgress gets the part sent, 0 to 1. fetch tells no progress, so XMLHttpRequest it is.
// Returns {done: promise of the file object, abort()}.
export function upload(file, onProgress) {
  const request = new XMLHttpRequest();
  const done = new Promise((resolve, reject) => {
    request.open('PUT', `/v1/files?filename=${encodeURIComponent(file.name)}&purpose=fine-tune`);
    request.responseType = 'json';
    for (const [name, value] of Object.entries(headers('PUT', 'application/octet-stream'))) {
      request.setRequestHeader(name, value);
    }
    request.upload.addEventListener('progress', (event) => {
      if (event.lengthComputable) {
        onProgress(event.total > 0 ? event.loaded / event.total : 1);
      }
    });
    request.addEventListener('load', () => {
      if (request.status >= 200 && request.status < 300) {
        resolve(request.response);
      } else {
        reject(new ApiError(request.status, request.response?.error));
      }
    });
    request.addEventListener('error', () => reject(new ApiError(0)));
    request.addEventListener('abort', () =>
      reject(new ApiError(0, { message: t('upload.stopped') })),
    );
    request.send(file);
  });
  return { done, abort: () => request.abort() };
}
