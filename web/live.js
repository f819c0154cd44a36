// live.js - this tab's end of the stream of events.
//
// listen(callback) gets every message of stream.js. Where the stream can't be had (a proxy that holds it
// back, too many streams), 'reset' comes every few seconds instead, so that pages stay current by fetching.
import { Stream } from './stream.js';

const PATIENCE_MS = 3000;
const POLL_MS = 5000;

const listeners = new Set();
let worker = null;
let stream = null;
let isOpen = false;
let poll = 0;
let opened = Promise.resolve();
let resolveOpened = () => {};
let hasFetched = false; // whether somebody did not wait for the stream and holds what may be old

function deliver(message) {
  if (message.name === 'reset' && message.first && !hasFetched) {
    return;
  }
  if (message.name === 'state') {
    isOpen = message.open;
    if (isOpen) {
      resolveOpened();
    }
  }
  for (const callback of [...listeners]) {
    callback(message);
  }
}

export function listen(callback) {
  listeners.add(callback);
  return () => listeners.delete(callback);
}

export function isLive() {
  return isOpen;
}

// Resolves once events flow: what is fetched afterwards has no hole. After a few seconds without, it resolves
// as well, and a reset follows when they flow.
export async function whenLive() {
  const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS));
  await Promise.race([opened, patience]);
  hasFetched = true;
}

function tell(word) {
  if (worker) {
    worker.port.postMessage(word);
  } else if (word === 'join') {
    stream.open();
  } else {
    stream.close();
  }
}

function connect() {
  if (worker || stream) {
    return;
  }
  try {
    worker = new SharedWorker('stream_worker.js', { type: 'module', name: 'hone-stream' });
    worker.port.addEventListener('message', ({ data }) => deliver(data));
    worker.port.start();
  } catch {
    // No shared workers here (Chrome on Android): this tab has a stream of its own.
    worker = null;
    stream = new Stream(deliver);
  }
}

export function startLive() {
  connect();
  hasFetched = false;
  opened = new Promise((resolve) => {
    resolveOpened = resolve;
  });
  tell('join');
  clearInterval(poll);
  poll = setInterval(() => {
    if (!isOpen && document.visibilityState === 'visible') {
      deliver({ name: 'reset' });
    }
  }, POLL_MS);
}

export function stopLive() {
  clearInterval(poll);
  if (worker || stream) {
    tell('stop');
  }
  isOpen = false;
}

// A tab that is closed, or kept aside by the browser, leaves; one that is brought back joins again.
window.addEventListener('pagehide', () => {
  if (worker) {
    tell('leave');
  }
});
window.addEventListener('pageshow', (event) => {
  if (event.persisted && worker) {
    tell('join');
    deliver({ name: 'reset' });
  }
});
