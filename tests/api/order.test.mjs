// order.test.mjs - a job that waits, changed: its fields, its place among its owner's own, and jobs like an old one.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, inState, refused, request, until, userOf } from '../lib/jobs.mjs';

const LATER = 4000000000;
let honed = null;
let ann = null;
let bob = null;
let annFile = null;
let bobFile = null;

before(async () => {
  honed = await startHoned({ args: ['--time-limit-s', '7200', '--max-time-limit-s', '86400', '--grace-seconds', '2'] });
  ann = await userOf(honed, 'ann');
  bob = await userOf(honed, 'bob');
  annFile = (await ann.upload('ann.txt', 'a training text\n'.repeat(100))).id;
  bobFile = (await bob.upload('bob.txt', 'a training text\n'.repeat(100))).id;
});
after(() => honed?.stop());

const waiting = (user, own, more = {}, name = 'ms=1') =>
  user.call('POST', '/v1/jobs', request(own, name, { begin_at: LATER, ...more }));
const patch = (user, id, body) => user.call('PATCH', `/v1/jobs/${id}`, body);
const move = (user, id, body) => user.call('POST', `/v1/jobs/${id}/move`, body);
const clone = (user, id, body, headers) => user.call('POST', `/v1/jobs/${id}/clone`, body, headers);
// A job that can't start yet: paused, so that no scheduler takes it.
const paused = async (user, own, more) => {
  const job = await waiting(user, own, more);
  await user.call('POST', `/v1/jobs/${job.id}/pause`);
  return until(honed, job.id, inState('paused'));
};

test('fields of a waiting job are changed, shown and announced', async () => {
  const job = await paused(ann, annFile);
  const events = (await eventsOf(ann, job.id)).length;
  const changed = await patch(ann, job.id, {
    name: 'a better name', priority: 'low', time_limit_s: 3600, visibility: 'private', preemptible: 'no', begin_at: LATER + 1,
  });
  assert.equal(changed.name, 'a better name');
  for (const [field, value] of [['priority', 'low'], ['time_limit_s', 3600], ['visibility', 'private'], ['preemptible', 'no'], ['begin_at', LATER + 1]]) {
    assert.equal(changed.resolved[field], value);
  }
  assert.deepEqual(changed.request, job.request);
  assert.equal((await eventsOf(ann, job.id)).length, events + 1);
  assert.equal((await refused(bob.call('GET', `/v1/jobs/${job.id}`))).status, 404);
  const reset = await patch(ann, job.id, { time_limit_s: null, preemptible: null, name: null });
  assert.equal(reset.resolved.time_limit_s, 7200);
  assert.equal(reset.resolved.preemptible, 'auto');
  assert.equal(reset.name, '');
});

test('changes that make no sense are refused by field', async () => {
  const job = await paused(ann, annFile);
  const bad = [
    [{}, 400, null], [{ seed: 1 }, 400, 'seed'], [{ state: 'succeeded' }, 400, 'state'], [{ devices: 2 }, 400, 'devices'],
    [{ depends_on: job.id }, 400, 'depends_on'], [{ training_file: 'x' }, 400, 'training_file'], [{ user_id: 1 }, 400, 'user_id'],
    [{ name: 7 }, 422, 'name'], [{ name: 'a\u202eb' }, 422, 'name'], [{ name: 'x'.repeat(129) }, 422, 'name'],
    [{ priority: 'best' }, 422, 'priority'], [{ priority: 'urgent' }, 403, 'priority'], [{ time_limit_s: 59 }, 422, 'time_limit_s'],
    [{ time_limit_s: 86401 }, 422, 'time_limit_s'], [{ time_limit_s: '60' }, 422, 'time_limit_s'], [{ visibility: true }, 422, 'visibility'],
    [{ preemptible: 'perhaps' }, 422, 'preemptible'], [{ begin_at: -1 }, 422, 'begin_at'], [{ name: 'x', begin_at: [] }, 422, 'begin_at'],
  ];
  for (const [body, status, param] of bad) {
    const error = await refused(patch(ann, job.id, body), body);
    assert.equal(error.status, status, `${JSON.stringify(body)}: ${error.message}`);
    assert.equal(error.param, param, error.message);
  }
  const same = await ann.call('GET', `/v1/jobs/${job.id}`);
  assert.equal(same.name, job.name);
  assert.deepEqual(same.resolved, job.resolved);
});

test('only the owner and administrators change a job, and a hidden one is not there', async () => {
  const seen = await paused(ann, annFile);
  const hidden = await paused(ann, annFile, { visibility: 'private' });
  for (const [id, status] of [[seen.id, 403], [hidden.id, 404], ['job-aaaaaaaaaaaaaa', 404], ['x', 404]]) {
    assert.equal((await refused(patch(bob, id, { name: 'mine' }))).status, status);
    assert.equal((await refused(move(bob, id, { to: 'first' }))).status, status);
  }
  assert.equal((await patch(honed, seen.id, { priority: 'urgent' })).resolved.priority, 'urgent');
  assert.equal((await patch(ann, seen.id, { priority: 'normal' })).resolved.priority, 'normal');
});

test('a job that has ended keeps what its run went by', async () => {
  const job = await ann.call('POST', '/v1/jobs', request(annFile, 'ms=1', { max_steps: 2 }));
  await until(honed, job.id, ended);
  for (const body of [{ priority: 'low' }, { preemptible: 'yes' }, { time_limit_s: 3600 }, { begin_at: LATER }]) {
    const error = await refused(patch(ann, job.id, body));
    assert.equal(error.status, 409);
    assert.equal(error.param, Object.keys(body)[0]);
  }
  assert.equal((await patch(ann, job.id, { name: 'done' })).name, 'done');
});

test('a run may get more time, and not less than it has had', async () => {
  const job = await ann.call('POST', '/v1/jobs', request(annFile, 'ms=20', { max_steps: 100000 }));
  await until(honed, job.id, inState('running'));
  assert.equal((await patch(ann, job.id, { time_limit_s: 86400 })).resolved.time_limit_s, 86400);
  assert.equal((await patch(ann, job.id, { time_limit_s: 60 })).resolved.time_limit_s, 60);
  assert.equal((await refused(patch(ann, job.id, { begin_at: LATER }))).status, 409);
  await ann.call('POST', `/v1/jobs/${job.id}/cancel`, {});
  await until(honed, job.id, ended);
});

test('a move names one place, among waiting jobs of one owner and class', async () => {
  const mine = await paused(ann, annFile);
  const other = await paused(bob, bobFile);
  const secret = await paused(bob, bobFile, { visibility: 'private' });
  for (const body of [{}, { to: 'top' }, { to: 1 }, { to: 'first', before: mine.id }, { before: 5 }, { after: null }, { place: 1 }]) {
    assert.equal((await refused(move(ann, mine.id, body), body)).status, 400);
  }
  assert.equal((await refused(move(ann, mine.id, { to: 'first' }))).status, 409);
  const hidden = await refused(move(ann, mine.id, { before: secret.id }));
  assert.equal(hidden.status, 404);
  assert.equal(hidden.param, 'before');
  assert.equal((await refused(move(ann, mine.id, { after: 'nothing' }))).status, 404);
  assert.equal((await refused(move(ann, mine.id, { after: other.id }))).status, 409);
});

test('a clone is a new job with the old request and changes on top', async () => {
  const job = await paused(ann, annFile, { seed: 5 });
  const same = await clone(ann, job.id);
  assert.notEqual(same.id, job.id);
  assert.deepEqual(same.request, job.request);
  const other = await clone(ann, job.id, { changes: { seed: null, learning_rate: 0.01, name: 'ms=1 again' } });
  assert.deepEqual(other.request, { ...request(annFile, 'ms=1 again', { begin_at: LATER }), learning_rate: 0.01 });
  assert.equal(other.resolved.seed, 1234);
});

test('a clone is judged like any request, as the one who asks', async () => {
  const job = await paused(ann, annFile);
  const hidden = await paused(ann, annFile, { visibility: 'private' });
  const bad = [
    [{ changes: { nothing: 1 } }, 422, 'nothing'], [{ changes: { devices: 65 } }, 422, 'devices'], [{ changes: [] }, 400, 'changes'],
    [{ changes: 'x' }, 400, 'changes'], [{ change: {} }, 400, 'change'], [{ changes: { training_file: null } }, 422, 'training_file'],
    [{ changes: { priority: 'urgent' } }, 403, 'priority'], [{ changes: { config: { model_type: 7 } } }, 422, 'config'],
  ];
  for (const [body, status, param] of bad) {
    const error = await refused(clone(ann, job.id, body), body);
    assert.equal(error.status, status, error.message);
    assert.equal(error.param, param, error.message);
  }
  const foreign = await refused(clone(bob, job.id));
  assert.equal(foreign.status, 422);
  assert.equal(foreign.param, 'training_file');
  const own = await clone(bob, job.id, { changes: { training_file: bobFile } });
  assert.equal(own.owner, 'bob');
  assert.equal((await refused(clone(bob, hidden.id, { changes: { training_file: bobFile } }))).status, 404);
  assert.equal((await refused(clone(ann, 'job-aaaaaaaaaaaaaa'))).status, 404);
});

test('a clone whose request names a checkpoint of another is refused by field', async () => {
  const job = await ann.call('POST', '/v1/jobs', request(annFile, 'ms=1 save=1', { max_steps: 2 }));
  await until(honed, job.id, ended);
  const error = await refused(bob.call('POST', '/v1/jobs', request(bobFile, 'x', {
    config: undefined, tokenizer_vocab_size: undefined, model: job.id,
  })));
  assert.equal(error.param, 'model', error.message);
  assert.ok([403, 422].includes(error.status));
});

test('a clone with the same key is one job', async () => {
  const job = await paused(ann, annFile);
  const key = { 'Idempotency-Key': 'again' };
  const first = await clone(ann, job.id, { changes: { seed: 2 } }, key);
  assert.equal((await clone(ann, job.id, { changes: { seed: 2 } }, key)).id, first.id);
  assert.equal((await refused(clone(ann, job.id, { changes: { seed: 3 } }, key))).status, 409);
  const second = await paused(ann, annFile);
  assert.equal((await refused(clone(ann, second.id, { changes: { seed: 2 } }, key))).status, 409);
});

// The waiting jobs of a user, in the order of the queue.
const orderOf = async (name) => {
  const { waiting: rows } = await honed.call('GET', '/v1/queue');
  return rows.filter((row) => row.owner === name).map((row) => row.job);
};
const settled = async (name, wanted) => {
  for (let i = 0; i < 100; i += 1) {
    const order = await orderOf(name);
    if (JSON.stringify(order) === JSON.stringify(wanted)) {
      return;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  assert.deepEqual(await orderOf(name), wanted);
};

test('the queue goes by the order that owners give their jobs, and by the class', async () => {
  const cyd = await userOf(honed, 'cyd');
  const own = (await cyd.upload('cyd.txt', 'a training text\n'.repeat(100))).id;
  const jobs = [];
  for (let i = 0; i < 4; i += 1) {
    jobs.push((await waiting(cyd, own)).id);
  }
  const [a, b, c, d] = jobs;
  await settled('cyd', [a, b, c, d]);
  await move(cyd, d, { to: 'first' });
  await settled('cyd', [d, a, b, c]);
  await move(cyd, d, { after: b });
  await settled('cyd', [a, b, d, c]);
  await move(honed, c, { before: a });
  await settled('cyd', [c, a, b, d]);
  const late = (await waiting(cyd, own)).id;
  await settled('cyd', [c, a, b, d, late]);
  await patch(cyd, c, { priority: 'low' });
  await settled('cyd', [a, b, d, late, c]);
  assert.equal((await refused(move(cyd, c, { before: a }))).status, 409);
  await move(cyd, a, { to: 'last' });
  await settled('cyd', [b, d, late, a, c]);
});
