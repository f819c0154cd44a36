// submit_queue.test.mjs - what a request may ask of the queue: class, devices, time, dependencies; and what is refused.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, refused, request, until, userOf } from '../lib/jobs.mjs';

const PROGRAM = join(resolve(ROOT, process.env.HONE_BUILD || 'build/release'), 'honed');
let honed = null;
let file = null;
let ann = null;
let annFile = null;

before(async () => {
  honed = await startHoned({ args: ['--time-limit-s', '7200', '--max-time-limit-s', '86400', '--grace-seconds', '2'] });
  file = (await honed.upload('a.txt', 'a training text\n'.repeat(100))).id;
  ann = await userOf(honed, 'ann');
  annFile = (await ann.upload('ann.txt', 'a training text\n'.repeat(100))).id;
});
after(() => honed?.stop());

const submit = (more, name = 'ms=1') => honed.call('POST', '/v1/jobs', request(file, name, more));

test('fields of the queue have the defaults of the server', async () => {
  const job = await submit({ begin_at: 4000000000 });
  assert.equal(job.resolved.time_limit_s, 7200);
  assert.equal(job.resolved.priority, 'normal');
  assert.equal(job.resolved.devices, 1);
  assert.equal(job.resolved.visibility, 'lab');
  assert.equal(job.resolved.preemptible, 'auto');
  assert.equal(job.resolved.begin_at, 4000000000);
  assert.equal(job.request.time_limit_s, undefined);
  const given = await submit({ time_limit_s: 86400, priority: 'idle', visibility: 'private', at_time_limit: 'requeue', begin_at: 4000000000 });
  assert.deepEqual(
    ['time_limit_s', 'priority', 'visibility', 'at_time_limit'].map((field) => given.resolved[field]),
    [86400, 'idle', 'private', 'requeue'],
  );
});

test('values that the queue has no use for are refused by field', async () => {
  const before_ = (await readdir(join(honed.folder, 'jobs'))).length;
  const bad = [
    ['devices', 65], ['devices', -1], ['devices', 1.5], ['devices', '2'], ['devices', [1]], ['devices', 1e300],
    ['priority', 'high'], ['priority', 1], ['priority', ''], ['priority', 'URGENT'], ['time_limit_s', 59], ['time_limit_s', -1],
    ['time_limit_s', 86401], ['time_limit_s', 31536001], ['time_limit_s', {}], ['at_time_limit', 'kill'], ['preemptible', true],
    ['preemptible', 'maybe'], ['begin_at', -5], ['begin_at', 4102444801], ['begin_at', 'tomorrow'], ['visibility', 'public'],
    ['depends_on', ['job-aaaaaaaaaaaaaa']], ['depends_on', 'job-aaaaaaaaaaaaaa'], ['depends_on', 'me'], ['depends_on', ','],
    ['depends_on', 'x'.repeat(1025)], ['depends_on', 'before:job-aaaaaaaaaaaaaa'],
    ['depends_on', `job-${'a'.repeat(14)},`.repeat(54)],
  ];
  for (const [field, value] of bad) {
    const error = await refused(submit({ [field]: value }), [field, value]);
    assert.equal(error.status, 422, `${field}=${JSON.stringify(value)}: ${error.message}`);
    assert.equal(error.param, field, error.message);
  }
  const ceiling = await refused(submit({ time_limit_s: 86401 }));
  assert.match(ceiling.message, /86400/);
  assert.equal((await readdir(join(honed.folder, 'jobs'))).length, before_);
});

test('only an administrator asks for urgent', async () => {
  const error = await refused(ann.call('POST', '/v1/jobs', request(annFile, 'x', { priority: 'urgent' })));
  assert.equal(error.status, 403);
  assert.equal(error.param, 'priority');
  assert.equal((await submit({ priority: 'urgent', begin_at: 4000000000 })).resolved.priority, 'urgent');
});

test('a job depends on jobs that its owner may see, each named once', async () => {
  const parent = await submit({ begin_at: 4000000000 });
  const secret = await submit({ begin_at: 4000000000, visibility: 'private' });
  const child = await submit({ depends_on: `after:${parent.id}, afterok:${secret.id}` });
  assert.equal(child.resolved.depends_on, `after:${parent.id}, afterok:${secret.id}`);
  const hidden = await refused(ann.call('POST', '/v1/jobs', request(annFile, 'x', { depends_on: secret.id })));
  const none = await refused(ann.call('POST', '/v1/jobs', request(annFile, 'x', { depends_on: 'job-aaaaaaaaaaaaaa' })));
  assert.equal(hidden.status, 422);
  assert.equal(hidden.param, 'depends_on');
  assert.equal(hidden.message.replace(secret.id, 'job-aaaaaaaaaaaaaa'), none.message);
  const twice = await refused(submit({ depends_on: `${parent.id},after:${parent.id}` }));
  assert.equal(twice.param, 'depends_on');
  assert.match(twice.message, /twice/);
});

test('what a job asked of the queue stands in it', async () => {
  const parent = await submit({ begin_at: 4000000000 });
  const job = await submit({
    begin_at: 4000000001, priority: 'low', time_limit_s: 3600, visibility: 'private', depends_on: `after:${parent.id}`,
  });
  const shown = Object.fromEntries(
    ['priority', 'devices', 'time_limit_s', 'preemptible', 'private', 'begin_at', 'depends_on', 'array', 'cloned_from', 'device_ids'].map((key) => [key, job[key]]),
  );
  assert.deepEqual(shown, {
    priority: 'low', devices: 1, time_limit_s: 3600, preemptible: true, private: true, begin_at: 4000000001,
    depends_on: [{ job: parent.id, kind: 'after' }], array: null, cloned_from: null, device_ids: [],
  });
  assert.ok(job.device_bytes > 0);
  assert.equal((await honed.call('POST', `/v1/jobs/${job.id}/clone`)).cloned_from, job.id);
});

test('a child waits for its parent, and goes when it can never start', async () => {
  const parent = await submit({ max_steps: 100000 }, 'ms=20');
  const child = await submit({ depends_on: parent.id });
  const other = await submit({ depends_on: `after:${parent.id}`, max_steps: 2 });
  await until(honed, parent.id, inState('running'));
  assert.equal((await honed.call('GET', `/v1/jobs/${child.id}`)).state, 'queued');
  await honed.call('POST', `/v1/jobs/${parent.id}/cancel`, {});
  assert.equal((await until(honed, child.id, ended)).state, 'cancelled');
  assert.equal((await until(honed, other.id, ended)).state, 'succeeded');
});

test('a parent that has ended meets the dependency or makes it impossible at once', async () => {
  const done = await submit({ max_steps: 2 });
  await until(honed, done.id, ended);
  const failed = await submit({}, 'fail_at=1');
  assert.equal((await until(honed, failed.id, ended)).state, 'failed');
  for (const list of [done.id, `after:${done.id}`, `after:${failed.id}`, `afternotok:${failed.id}`, `${done.id},afternotok:${failed.id}`]) {
    const job = await submit({ depends_on: list, max_steps: 2 });
    assert.equal((await until(honed, job.id, ended)).state, 'succeeded', list);
  }
  for (const list of [`afternotok:${done.id}`, failed.id, `after:${done.id},${failed.id}`]) {
    const error = await refused(submit({ depends_on: list }), list);
    assert.equal(error.param, 'depends_on');
    assert.match(error.message, /could never start/);
  }
});

test('a user who is at the limit of jobs is told both numbers', async () => {
  const tight = await startHoned({ args: ['--max-jobs', '2'] });
  try {
    const own = (await tight.upload('a.txt', 'text\n'.repeat(100))).id;
    const one = () => tight.call('POST', '/v1/jobs', request(own, 'x', { begin_at: 4000000000 }));
    await one();
    await one();
    const error = await refused(one());
    assert.equal(error.status, 429);
    assert.match(error.message, /2 jobs/);
  } finally {
    await tight.stop();
  }
});

test('a second submission with the same key is the same job', async () => {
  const body = request(file, 'ms=1', { begin_at: 4000000000 });
  const first = await honed.call('POST', '/v1/jobs', body, { 'Idempotency-Key': 'k1' });
  assert.equal((await honed.call('POST', '/v1/jobs', body, { 'Idempotency-Key': 'k1' })).id, first.id);
  assert.equal((await refused(honed.call('POST', '/v1/jobs', { ...body, seed: 7 }, { 'Idempotency-Key': 'k1' }))).status, 409);
  const again = await honed.call('POST', '/v1/jobs', body, { 'x-stainless-retry-count': '1' });
  assert.equal(again.id, first.id);
  assert.ok(inState('queued', 'starting')(again));
});

test('a store that is made anew knows what jobs asked of the queue', async () => {
  const parent = await submit({ begin_at: 4000000000 });
  const asked = { begin_at: 4000000001, priority: 'idle', time_limit_s: 3600, visibility: 'private', preemptible: 'no', depends_on: `after:${parent.id}` };
  const job = await submit(asked);
  await honed.kill();
  await promisify(execFile)(PROGRAM, ['rebuild', '--data', honed.folder]);
  await honed.start();
  const again = await honed.call('GET', `/v1/jobs/${job.id}`);
  for (const field of ['priority', 'time_limit_s', 'private', 'preemptible', 'begin_at', 'depends_on', 'devices', 'device_bytes', 'memory_bytes']) {
    assert.deepEqual(again[field], job[field], field);
  }
});
