// arrays.test.mjs - jobs over a grid of values: all or none, what each is, what may be asked of them together.
import assert from 'node:assert/strict';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, refused, request, until, userOf } from '../lib/jobs.mjs';

const LATER = 4000000000;
let honed = null;
let ann = null;
let bob = null;
let file = null;

before(async () => {
  honed = await startHoned({ args: ['--max-jobs', '2000', '--grace-seconds', '2', '--rate', '10000'] });
  ann = await userOf(honed, 'ann');
  bob = await userOf(honed, 'bob');
  file = (await ann.upload('ann.txt', 'a training text\n'.repeat(100))).id;
});
after(() => honed?.stop());

const sweep = (user, grid, more = {}, base = {}, headers = {}) =>
  user.call('POST', '/v1/arrays', { request: request(file, 'ms=1', { begin_at: LATER, ...base }), grid, ...more }, headers);
const folders = async () => (await readdir(join(honed.folder, 'jobs'))).sort();
const cancelAll = (array) => ann.call('POST', `/v1/arrays/${array.id}/cancel`, {});

test('an array has a job for each point, the last field changing fastest', async () => {
  const array = await sweep(ann, { learning_rate: [0.001, 0.0003], seed: [1, 2, 3] }, { max_running: 2 });
  assert.match(array.id, /^array-[a-z2-7]{14}$/);
  assert.deepEqual([array.object, array.name, array.owner, array.total, array.max_running], ['array', 'ms=1', 'ann', 6, 2]);
  assert.deepEqual(array.points.map((point) => [point.index, point.values.learning_rate, point.values.seed]), [
    [0, 0.001, 1], [1, 0.001, 2], [2, 0.001, 3], [3, 0.0003, 1], [4, 0.0003, 2], [5, 0.0003, 3],
  ]);
  assert.equal(array.points[4].name, 'ms=1 [learning_rate=0.0003 seed=2]');
  assert.equal(Object.values(array.counts).reduce((a, b) => a + b), 6);
  const job = await ann.call('GET', `/v1/jobs/${array.points[4].job}`);
  assert.equal(job.request.seed, 2);
  assert.equal(job.request.learning_rate, 0.0003);
  assert.equal(job.request.name, job.name);
  const spec = JSON.parse(await readFile(join(honed.folder, 'jobs', job.id, 'spec.json')));
  assert.deepEqual(spec.request, job.request);
  assert.ok((await folders()).every((name) => !name.endsWith('.new')));
  await cancelAll(array);
});

test('jobs of an array run like any others, and the best loss is told', async () => {
  const array = await sweep(ann, { seed: [1, 2] }, {}, { begin_at: undefined, max_steps: 20, name: 'ms=1 eval=5' });
  for (const point of array.points) {
    assert.equal((await until(honed, point.job, ended)).state, 'succeeded');
  }
  const done = await ann.call('GET', `/v1/arrays/${array.id}`);
  assert.equal(done.counts.succeeded, 2);
  assert.ok(done.best.eval_loss > 0);
  assert.equal(done.best.job, done.points[done.best.index].job);
  assert.equal(done.points[0].best_eval_loss, done.best.eval_loss);
  assert.ok(done.points.every((point) => point.step === 20 && point.best_eval_loss >= done.best.eval_loss));
});

test('arrays that make no sense are refused whole', async () => {
  const before_ = await folders();
  const many = Object.fromEntries('abcdefghi'.split('').map((name) => [name, Array.from({ length: 10 }, (_, i) => i)]));
  const bad = [
    [{ grid: many }, 400, 'grid'], [{ grid: {} }, 400, 'grid'], [{ grid: { seed: [] } }, 400, 'grid'], [{ grid: { seed: 5 } }, 400, 'grid'],
    [{ grid: { seed: { a: 1 } } }, 400, 'grid'], [{ grid: { seed: [[1]] } }, 400, 'grid'], [{ grid: { seed: [1, 1] } }, 400, 'grid'],
    [{ grid: { seed: [null] } }, 400, 'grid'], [{ grid: [1] }, 400, 'grid'], [{ grid: 'seed' }, 400, 'grid'], [{ grid: undefined }, 400, 'grid'],
    [{ grid: { seed: Array.from({ length: 1001 }, (_, i) => i) } }, 400, 'grid'],
    [{ grid: { seed: [{}] } }, 422, 'seed'], [{ grid: { seed: [1, 'x'] } }, 422, 'seed'], [{ grid: { seed: [1, -2] } }, 422, 'seed'],
    [{ grid: { sede: [1] } }, 422, 'sede'], [{ grid: { 'a\u0007b': [1] } }, 422, null], [{ grid: { __proto__x: [1] } }, 422, '__proto__x'],
    [{ grid: { training_file: [file, 'file-aaaaaaaaaaaaaa'] } }, 422, 'training_file'], [{ grid: { devices: [1, 65] } }, 422, 'devices'],
    [{ grid: { priority: ['low', 'urgent'] } }, 403, 'priority'], [{ grid: { name: ['a', 'b\u202e'] } }, 422, 'name'],
    [{ grid: { max_steps: [1, 5] , n_epochs: [1] } }, 422, 'n_epochs'], [{ request: undefined }, 400, 'request'], [{ request: [] }, 400, 'request'],
    [{ request: {} }, 422, 'training_file'], [{ max_running: -1 }, 400, 'max_running'], [{ max_running: 'two' }, 400, 'max_running'],
    [{ max_running: 1001 }, 400, 'max_running'], [{ name: 7 }, 400, 'name'], [{ name: 'a\nb' }, 400, 'name'], [{ name: 'x'.repeat(129) }, 400, 'name'],
    [{ points: 5 }, 400, 'points'],
  ];
  for (const [change, status, param] of bad) {
    const body = { request: request(file, 'x', { begin_at: LATER, seed: 3 }), grid: { seed: [1, 2] }, ...change };
    const error = await refused(ann.call('POST', '/v1/arrays', body), change);
    assert.equal(error.status, status, `${JSON.stringify(change).slice(0, 200)}: ${error.message}`);
    if (param !== null) {
      assert.equal(error.param, param, error.message);
    }
    assert.ok(!/[\n\u0000-\u001f]/.test(error.message), error.message);
  }
  const point = await refused(sweep(ann, { learning_rate: [1, 2], seed: [1, -1] }));
  assert.match(point.message, /^point 1 of the grid: seed /);
  assert.deepEqual(await folders(), before_);
  assert.equal((await ann.call('GET', '/v1/arrays')).data.every((one) => one.name !== 'x'), true);
});

test('large bodies are refused before they grow', async () => {
  const fat = 'x'.repeat(30000);
  const error = await refused(sweep(ann, { seed: Array.from({ length: 1000 }, (_, i) => i) }, {}, { chat_template: `{# ${fat} #}`, config: { model_type: 'gpt2', note: fat } }));
  assert.equal(error.status, 413, error.message);
  const body = await refused(sweep(ann, { seed: [1] }, {}, { chat_template: 'x'.repeat(1 << 20) }));
  assert.equal(body.status, 413);
});

test('what one may have not ended counts for the whole array', async () => {
  await honed.call('PATCH', '/v1/users/bob', { max_queued: 3 });
  const own = (await bob.upload('bob.txt', 'a training text\n'.repeat(100))).id;
  const before_ = await folders();
  const error = await refused(sweep(bob, { seed: [1, 2, 3, 4] }, {}, { training_file: own }));
  assert.equal(error.status, 429);
  assert.match(error.message, /4 more/);
  assert.deepEqual(await folders(), before_);
  const array = await sweep(bob, { seed: [1, 2, 3] }, {}, { training_file: own });
  assert.equal((await refused(sweep(bob, { seed: [1] }, {}, { training_file: own }))).status, 429);
  await bob.call('POST', `/v1/arrays/${array.id}/cancel`);
});

test('of an array no more run at a time than it says', async () => {
  const slots = await startHoned({ args: ['--cpu-slots', '3', '--grace-seconds', '2'] });
  try {
    const own = (await slots.upload('a.txt', 'a training text\n'.repeat(100))).id;
    const array = await slots.call('POST', '/v1/arrays', {
      request: request(own, 'ms=20', { max_steps: 100000 }), grid: { seed: [1, 2, 3, 4] }, max_running: 1,
    });
    const runs = async () => {
      const { counts } = await slots.call('GET', `/v1/arrays/${array.id}`);
      return counts.starting + counts.running;
    };
    await until(slots, array.points[0].job, inState('running'));
    await new Promise((done) => setTimeout(done, 500));
    assert.equal(await runs(), 1);
    const second = await slots.call('GET', `/v1/jobs/${array.points[1].job}`);
    assert.deepEqual(second.array, { id: array.id, index: 1, values: { seed: 2 } });
    assert.equal(second.state, 'queued');
    await slots.call('PATCH', `/v1/arrays/${array.id}`, { max_running: 2 });
    await until(slots, array.points[1].job, inState('running'));
    assert.equal(await runs(), 2);
    await slots.call('PATCH', `/v1/arrays/${array.id}`, { max_running: 0 });
    await until(slots, array.points[2].job, inState('running'));
    await slots.call('POST', `/v1/arrays/${array.id}/cancel`);
  } finally {
    await slots.stop();
  }
});

test('cancel ends what has not ended and leaves the rest', async () => {
  const array = await sweep(ann, { max_steps: [2, 100000] }, {}, { begin_at: undefined, name: 'ms=20' });
  await until(honed, array.points[0].job, ended);
  assert.equal((await refused(bob.call('POST', `/v1/arrays/${array.id}/cancel`))).status, 403);
  const told = await ann.call('POST', `/v1/arrays/${array.id}/cancel`, { save: false });
  assert.equal(told.counts.succeeded, 1);
  await until(honed, array.points[1].job, inState('cancelled'));
  const after_ = await ann.call('POST', `/v1/arrays/${array.id}/cancel`);
  assert.deepEqual([after_.counts.succeeded, after_.counts.cancelled], [1, 1]);
  assert.equal((await refused(ann.call('POST', `/v1/arrays/${array.id}/cancel`, { save: 1 }))).status, 400);
});

test('who may see and change an array', async () => {
  const seen = await sweep(ann, { seed: [1, 2] });
  const hidden = await sweep(ann, { visibility: ['lab', 'private'] });
  assert.equal((await bob.call('GET', `/v1/arrays/${seen.id}`)).id, seen.id);
  const ids = (await bob.call('GET', '/v1/arrays?limit=100')).data.map((one) => one.id);
  assert.ok(ids.includes(seen.id) && !ids.includes(hidden.id));
  assert.ok((await honed.call('GET', '/v1/arrays?limit=100')).data.some((one) => one.id === hidden.id));
  assert.equal((await refused(bob.call('GET', `/v1/arrays/${hidden.id}`))).status, 404);
  assert.equal((await refused(bob.call('PATCH', `/v1/arrays/${hidden.id}`, { max_running: 1 }))).status, 404);
  assert.equal((await refused(bob.call('PATCH', `/v1/arrays/${seen.id}`, { max_running: 1 }))).status, 403);
  assert.equal((await ann.call('PATCH', `/v1/arrays/${seen.id}`, { max_running: 1 })).max_running, 1);
  assert.equal((await honed.call('PATCH', `/v1/arrays/${seen.id}`, { max_running: 0 })).max_running, 0);
  for (const body of [{}, { max_running: null }, { max_running: 1.5 }, { max_running: 1, name: 'x' }]) {
    assert.equal((await refused(ann.call('PATCH', `/v1/arrays/${seen.id}`, body))).status, 400);
  }
  assert.equal((await refused(ann.call('GET', '/v1/arrays/array-aaaaaaaaaaaaaa'))).status, 404);
  await cancelAll(seen);
  await cancelAll(hidden);
});

test('an array sent again with its key is the same array', async () => {
  const key = { 'Idempotency-Key': 'sweep-1' };
  const first = await sweep(ann, { seed: [1, 2] }, {}, {}, key);
  assert.equal((await sweep(ann, { seed: [1, 2] }, {}, {}, key)).id, first.id);
  assert.equal((await refused(sweep(ann, { seed: [1, 3] }, {}, {}, key))).status, 409);
  await cancelAll(first);
});

test('a thousand points are made at once, and none is left when honed is killed between', async () => {
  const grid = { learning_rate: Array.from({ length: 40 }, (_, i) => (i + 1) / 1000), seed: Array.from({ length: 25 }, (_, i) => i) };
  const began = Date.now();
  const array = await sweep(ann, grid);
  console.log(`# 1000 points: ${Date.now() - began} ms`);
  assert.equal(array.points.length, 1000);
  await cancelAll(array);
  const arrays = (await ann.call('GET', '/v1/arrays?limit=100')).data.length;
  const doomed = sweep(ann, grid).catch(() => null);
  const before_ = (await folders()).length;
  while ((await folders()).length < before_ + 50) {
    await new Promise((done) => setTimeout(done, 5));
  }
  await honed.kill();
  const whole = (await doomed) !== null;
  await honed.start();
  const now = (await ann.call('GET', '/v1/arrays?limit=100')).data;
  assert.equal(now.length, arrays + (whole || now[0].counts.queued > 0 ? 1 : 0));
  const names = await folders();
  assert.ok(names.every((name) => !name.endsWith('.new')));
  assert.equal(names.length, before_ + (now.length - arrays) * 1000);
});

test('the document says what may be asked', async () => {
  const { paths } = await honed.call('GET', '/openapi.json');
  const body = (method, path) => paths[path][method].requestBody.content['application/json'].schema;
  const spec = body('post', '/v1/jobs').properties;
  assert.deepEqual(body('post', '/v1/arrays').properties.request.properties, spec);
  assert.deepEqual(body('post', '/v1/arrays').required, ['request', 'grid']);
  assert.deepEqual(body('post', '/v1/jobs/{id}/clone').properties.changes.properties, spec);
  assert.deepEqual(Object.keys(body('patch', '/v1/jobs/{id}').properties), ['name', 'priority', 'time_limit_s', 'visibility', 'preemptible', 'begin_at']);
  assert.deepEqual(body('patch', '/v1/jobs/{id}').properties.priority, spec.priority);
  assert.deepEqual(body('post', '/v1/jobs/{id}/move').properties.to.enum, ['first', 'last']);
  assert.deepEqual(body('patch', '/v1/arrays/{id}').properties.max_running, { type: 'integer', minimum: 0, maximum: 1000 });
  assert.deepEqual(body('post', '/v1/reservations').required, ['to_at', 'devices']);
});
