// stream.test.mjs - the event stream: nothing lost, nothing twice, and who may see what.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, request, until } from '../lib/jobs.mjs';
import { numberOf, readEvents } from '../lib/sse.mjs';

let honed = null;
let file = null;
const as = (token) => ({ Authorization: `Bearer ${token}` });
const read = (query, options, headers = {}) => readEvents(`${honed.url}/v1/stream${query}`, { ...as(honed.token), ...headers }, options);
const submit = (name, more) => honed.call('POST', '/v1/jobs', request(file, name, more));
const isOver = (id) => (events) => events.some(({ event, data }) => event === 'job' && data.id === id && ['succeeded', 'failed', 'cancelled'].includes(data.state));

before(async () => {
  honed = await startHoned({ args: ['--max-streams', '8'] });
  file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
});
after(() => honed?.stop());

test('all that a job says arrives once, in order, and equals the stored events', async () => {
  const reading = read('', { enough: (events) => events.some(({ event, data }) => event === 'job' && data.state === 'succeeded'), ms: 20000 });
  await new Promise((done) => setTimeout(done, 200));
  const job = await submit('ms=3 eval=10 save=40');
  const { events } = await reading;
  const numbers = events.map(({ id }) => numberOf(id));
  assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b));
  assert.equal(new Set(numbers).size, numbers.length);
  const stored = (await eventsOf(honed, job.id)).map(({ id, type }) => `${id} ${type}`);
  assert.deepEqual(events.map(({ id, event }) => `${id} ${event}`), stored.slice(0, events.length));
  assert.deepEqual(events.filter(({ event }) => event === 'metrics').map(({ data }) => data.step), Array.from({ length: 100 }, (_, i) => i + 1));
  for (const { event, data } of events) {
    assert.equal(event === 'job' ? data.id : data.job, job.id);
  }
});

test('a stream goes on from any event, by header and by query', async () => {
  const job = await submit('ms=1', { max_steps: 400 });
  await until(honed, job.id, ended);
  const stored = await eventsOf(honed, job.id);
  for (const at of [0, 1, 200, stored.length - 2]) {
    const want = stored.slice(at + 1).map(({ id }) => id);
    const enough = (events) => events.length >= want.length;
    const byHeader = await read('', { enough }, { 'Last-Event-ID': stored[at].id });
    assert.deepEqual(byHeader.events.map(({ id }) => id), want);
    const byQuery = await read(`?jobs=${job.id}&lastEventId=${stored[at].id}`, { enough });
    assert.deepEqual(byQuery.events.map(({ id }) => id), want);
  }
  const last = stored.at(-1).id;
  assert.equal((await read('', { enough: (events) => events.length > 0, ms: 500 }, { 'Last-Event-ID': last })).events.length, 0);
});

test('an id of another store, of the future, or nonsense asks the page to begin anew', async () => {
  const { data } = await honed.call('GET', '/v1/jobs?limit=1');
  const [newest] = (await honed.call('GET', `/v1/jobs/${data[0].id}/events?order=desc&limit=1`)).data;
  const epoch = newest.id.split('-')[0];
  for (const id of ['OTHER00000-5', `${epoch}-99999999`, `${epoch}--5`, `${epoch}-18446744073709551616`, `${epoch}-`, epoch, '10', 'x'.repeat(300)]) {
    const { events } = await read('', { enough: (all) => all.length > 0, ms: 2000 }, { 'Last-Event-ID': id });
    assert.equal(events[0]?.event, 'reset', id);
    assert.equal(events[0].id, newest.id);
  }
  assert.equal((await read('', { enough: (all) => all.length > 0, ms: 400 }, { 'Last-Event-ID': '' })).events.length, 0);
});

test('topics and jobs narrow a stream', async () => {
  const reading = read('?topics=eval,checkpoint', { enough: (events) => events.length >= 6, ms: 15000 });
  await new Promise((done) => setTimeout(done, 100));
  const job = await submit('ms=2 eval=20 save=50', { max_steps: 100 });
  const { events } = await reading;
  assert.ok(events.every(({ event }) => ['eval', 'checkpoint'].includes(event)));
  await until(honed, job.id, ended);
  const cases = [
    ['?topics=dance', 400], ['?topics=job,', 200], ['?jobs=job-aaaaaaaaaaaaaa', 404], [`?jobs=${Array(40).fill(job.id).join(',')}`, 400],
  ];
  for (const [query, want] of cases) {
    const status = await read(query, { enough: () => false, ms: 300 }).then(() => 200, (error) => error.status);
    assert.equal(status, want, query);
  }
});

test('everybody hears of visible jobs, of others without what they read and wrote', async () => {
  const bob = await honed.call('POST', '/v1/users', { name: 'bob', role: 'member' });
  const bobs = await (await fetch(`${honed.url}/v1/files?filename=b`, { method: 'PUT', body: 'text', headers: as(bob.token) })).json();
  const url = `${honed.url}/v1/stream`;
  const of = ({ event, data }) => (event === 'job' ? data.id : data.job);
  const both = (events) => events.filter(({ data }) => data.state === 'succeeded').length >= 2;
  const his = readEvents(url, as(bob.token), { enough: both, ms: 15000 });
  const all = read('', { enough: both, ms: 15000 });
  await new Promise((done) => setTimeout(done, 200));
  const mine = await submit('ms=1', { max_steps: 5 });
  const job = await honed.call('POST', '/v1/jobs', request(bobs.id, 'ms=1', { max_steps: 5 }), as(bob.token));
  const seen = (await his).events;
  const check = (events) => {
    const types = (id) => new Set(events.filter((one) => of(one) === id).map(({ event }) => event));
    assert.deepEqual(new Set(events.map(of)), new Set([mine.id, job.id]));
    assert.ok(types(job.id).has('data') && types(job.id).has('metrics'));
    assert.ok(!types(mine.id).has('data') && types(mine.id).has('metrics'));
    const actions = (id) => events.filter(({ event, data }) => event === 'job' && data.id === id).map((one) => one.data.allowed_actions);
    assert.ok(actions(mine.id).length > 1 && actions(mine.id).every((list) => list.length === 0));
  };
  check(seen);
  assert.ok(seen.some(({ event, data }) => event === 'job' && data.id === job.id && data.allowed_actions.includes('cancel')));
  const types = new Set((await all).events.filter((one) => of(one) === mine.id).map(({ event }) => event));
  assert.ok(types.has('data'));
  const after = Number(seen[0].id.replace(/.*-/, '')) - 1;
  const replay = await readEvents(url, { ...as(bob.token), 'Last-Event-ID': seen[0].id.replace(/-.*/, `-${after}`) }, { enough: both, ms: 5000 });
  check(replay.events);
});

test('streams are counted, closed ones are not, and HEAD opens none', async () => {
  const open = [];
  const dial = () => new Promise((resolve) => {
    const { hostname, port } = new URL(honed.url);
    const socket = connect(Number(port), hostname);
    socket.write(`GET /v1/stream HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${honed.token}\r\n\r\n`);
    socket.on('error', () => {});
    socket.once('data', (bytes) => { open.push(socket); resolve(Number(bytes.toString().slice(9, 12))); });
  });
  for (let i = 0; i < 20; i += 1) {
    await fetch(`${honed.url}/v1/stream`, { method: 'HEAD', headers: as(honed.token) });
  }
  for (let i = 0; i < 8; i += 1) {
    assert.equal(await dial(), 200);
  }
  assert.equal(await dial(), 429);
  open.forEach((socket) => socket.destroy());
  // a vanished client is seen at the next words to it
  const job = await submit('ms=1', { max_steps: 3 });
  await until(honed, job.id, ended);
  let status = 429;
  for (let i = 0; i < 60 && status === 429; i += 1) {
    await new Promise((done) => setTimeout(done, 500));
    status = await dial();
    open.at(-1).destroy();
  }
  assert.equal(status, 200);
});

test('a reader that does not read holds up nobody', async () => {
  const { hostname, port } = new URL(honed.url);
  const deaf = connect(Number(port), hostname);
  deaf.on('error', () => {});
  deaf.write(`GET /v1/stream HTTP/1.1\r\nHost: ${hostname}:${port}\r\nAuthorization: Bearer ${honed.token}\r\n\r\n`);
  deaf.pause();
  const job = await submit('burst', { max_steps: 20000 });
  const { events } = await read(`?jobs=${job.id}&lastEventId=${(await eventsOf(honed, job.id))[0].id}`, { enough: isOver(job.id), ms: 40000 });
  const steps = events.filter(({ event }) => event === 'metrics').map(({ data }) => data.step);
  assert.equal(steps.length, 20000);
  assert.ok(steps.every((step, i) => step === i + 1));
  deaf.destroy();
});
