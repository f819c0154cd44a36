// stream.test.mjs - the stream of events through broken connections, with a fake EventSource and clock.
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Stream } from '../../web/stream.js';

let sources = [];
let heard = [];
let stream = null;
let clock = null;

class FakeSource extends EventTarget {
  static CLOSED = 2;

  constructor(url) {
    super();
    this.url = url;
    this.readyState = 0;
    sources.push(this);
  }

  close() {
    this.readyState = FakeSource.CLOSED;
  }

  opens() {
    this.readyState = 1;
    this.dispatchEvent(new Event('open'));
  }

  sends(name, data, lastEventId) {
    this.dispatchEvent(Object.assign(new Event(name), { data, lastEventId }));
  }

  // The connection is lost; `refused`: the server answered with an error, so the browser gives up.
  breaks(refused = false) {
    this.readyState = refused ? FakeSource.CLOSED : 0;
    this.dispatchEvent(new Event('error'));
  }
}

// The timers of a page whose clock stands still until told otherwise.
class FakeClock {
  constructor() {
    this.now = 1e12;
    this.timers = new Map();
    this.real = { setTimeout, clearTimeout, setInterval, clearInterval, dateNow: Date.now };
    const add = (call, wait, every) => {
      const id = this.timers.size + 1;
      this.timers.set(id, { call, due: this.now + wait, every });
      return id;
    };
    const remove = (id) => this.timers.set(id, null);
    globalThis.setTimeout = (call, wait) => add(call, wait, 0);
    globalThis.setInterval = (call, wait) => add(call, wait, wait);
    globalThis.clearTimeout = remove;
    globalThis.clearInterval = remove;
    Date.now = () => this.now;
  }

  // The machine sleeps: time passes and no timer runs.
  sleep(ms) {
    this.now += ms;
    for (const timer of this.timers.values()) {
      if (timer) {
        timer.due += ms;
      }
    }
  }

  tick(ms) {
    const end = this.now + ms;
    for (;;) {
      const [next] = [...this.timers]
        .filter(([, timer]) => timer && timer.due <= end)
        .sort(([, a], [, b]) => a.due - b.due);
      if (!next) {
        break;
      }
      const [id, timer] = next;
      this.now = timer.due;
      this.timers.set(id, timer.every > 0 ? { ...timer, due: timer.due + timer.every } : null);
      timer.call();
    }
    this.now = end;
  }

  restore() {
    const { dateNow, ...timers } = this.real;
    Object.assign(globalThis, timers);
    Date.now = dateNow;
  }
}

const names = () =>
  heard.map(({ name, open }) => (name === 'state' ? (open ? 'open' : 'shut') : name));
const source = () => sources[sources.length - 1];

beforeEach(() => {
  sources = [];
  heard = [];
  globalThis.EventSource = FakeSource;
  clock = new FakeClock();
  stream = new Stream((message) => heard.push(message));
  stream.open();
});

afterEach(() => {
  stream.close();
  clock.restore();
  delete globalThis.EventSource;
});

test('the first opening says that readers must fetch', () => {
  assert.equal(source().url, '/v1/stream');
  source().opens();
  assert.deepEqual(names(), ['reset', 'open']);
  assert.equal(heard[0].first, true);
});

test('events are delivered with their ids; damaged ones are dropped', () => {
  source().opens();
  source().sends('metrics', '{"job":"job-1","step":3}', 'e-7');
  source().sends('metrics', '{"job":', 'e-8');
  assert.deepEqual(heard.slice(2), [
    { name: 'metrics', id: 'e-7', data: { job: 'job-1', step: 3 } },
  ]);
});

test("a run's error event is not taken for a lost connection", () => {
  source().opens();
  source().sends('error', '{"job":"job-1","code":"disk_full"}', 'e-9');
  assert.deepEqual(names(), ['reset', 'open', 'error']);
});

test('a short break needs no reset: the browser reconnects and the server replays', () => {
  source().opens();
  source().sends('stage', '{}', 'e-1');
  source().breaks();
  source().opens();
  assert.deepEqual(names(), ['reset', 'open', 'stage', 'shut', 'open']);
  assert.equal(sources.length, 1);
});

test('a break before the first event ends in a reset, as there is no id to go on from', () => {
  source().opens();
  source().breaks();
  source().opens();
  assert.deepEqual(names(), ['reset', 'open', 'shut', 'reset', 'open']);
});

test('a refused stream is tried again, ever less often, from the last id', () => {
  source().opens();
  source().sends('stage', '{}', 'e-5');
  const waits = [1000, 2000, 4000, 8000, 16000, 30000, 30000];
  for (const [i, wait] of waits.entries()) {
    source().breaks(true);
    assert.equal(sources.length, i + 1);
    clock.tick(wait - 1);
    assert.equal(sources.length, i + 1);
    clock.tick(1);
    assert.equal(sources.length, i + 2);
    assert.equal(source().url, '/v1/stream?lastEventId=e-5');
  }
  source().opens();
  source().breaks(true);
  clock.tick(1000);
  assert.equal(sources.length, waits.length + 2);
});

test("the server's reset is passed on", () => {
  source().opens();
  source().sends('reset', '{}', 'f-1');
  assert.deepEqual(names(), ['reset', 'open', 'reset']);
  assert.equal(heard[2].first, undefined);
});

test('after the machine slept the stream is opened anew from the last id', () => {
  source().opens();
  source().sends('stage', '{}', 'e-5');
  const [before] = sources;
  clock.sleep(3600000);
  clock.tick(10000);
  assert.equal(before.readyState, FakeSource.CLOSED);
  assert.equal(source().url, '/v1/stream?lastEventId=e-5');
});

test('closing ends it: nothing is retried, and the next opening begins anew', () => {
  source().opens();
  source().sends('stage', '{}', 'e-5');
  source().breaks(true);
  stream.close();
  clock.tick(60000);
  assert.equal(sources.length, 1);
  stream.open();
  assert.equal(source().url, '/v1/stream');
});
