// jobs.test.mjs - from a request to its end: refusals, order, what may be asked, how runs fail.
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, inState, request, until } from '../lib/jobs.mjs';

const TINY = {
  model_type: 'llama', architectures: ['LlamaForCausalLM'], vocab_size: 320, hidden_size: 32, intermediate_size: 64,
  num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64,
};
let honed = null;
let file = null;
let roots = null;

before(async () => {
  roots = await mkdtemp(join(tmpdir(), 'hone-roots-'));
  await mkdir(join(roots, 'models/llama/x'), { recursive: true });
  await mkdir(join(roots, 'models/bare'));
  await mkdir(join(roots, 'data/deep'), { recursive: true });
  await writeFile(join(roots, 'models/llama/x/config.json'), JSON.stringify(TINY));
  await writeFile(join(roots, 'models/llama/x/tokenizer.json'), '{}');
  await writeFile(join(roots, 'data/deep/text.txt'), 'some text\n'.repeat(100));
  await writeFile(join(roots, 'data/empty.txt'), '');
  await writeFile(join(roots, 'secret.txt'), 'not for jobs');
  await symlink('../secret.txt', join(roots, 'data/escape.txt'));
  await symlink('/etc/passwd', join(roots, 'data/passwd.txt'));
  await symlink('deep/text.txt', join(roots, 'data/inside.txt'));
  honed = await startHoned({
    args: ['--model-root', `lab=${join(roots, 'models')}`, '--data-root', `texts=${join(roots, 'data')}`, '--grace-seconds', '2', '--max-jobs', '12'],
  });
  file = (await honed.upload('a.txt', 'a training text\n'.repeat(100))).id;
});
after(async () => {
  await honed?.stop();
  await rm(roots, { recursive: true });
});

const submit = (name, more, headers) => honed.call('POST', '/v1/jobs', request(file, name, more), headers);
const refused = async (promise, what = '') => {
  try {
    await promise;
  } catch (error) {
    return { status: error.status, ...JSON.parse(error.body).error };
  }
  throw new Error(`it was not refused: ${JSON.stringify(what)}`);
};

test('a job runs from queued to succeeded and says so on the way', async () => {
  const job = await submit('ms=5 eval=20 save=50');
  assert.match(job.id, /^job-[a-z2-7]{14}$/);
  assert.equal(job.state, 'queued');
  assert.deepEqual(job.allowed_actions, ['cancel', 'pause']);
  assert.deepEqual(job.request, request(file, 'ms=5 eval=20 save=50'));
  assert.equal(job.resolved.learning_rate, 3e-4);
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'succeeded');
  assert.equal(done.step, 100);
  assert.equal(done.attempt, 1);
  assert.ok(done.loss > 0 && done.eval_loss > 0 && done.finished_at >= done.started_at);
  assert.deepEqual(done.allowed_actions, []);
  assert.equal(done.error, null);
  const events = await eventsOf(honed, job.id);
  const states = events.filter((event) => event.type === 'job').map((event) => event.state);
  assert.deepEqual(states.filter((state, i) => state !== states[i - 1]), ['queued', 'starting', 'running', 'succeeded']);
  const steps = events.filter((event) => event.type === 'metrics').map((event) => event.step);
  assert.deepEqual(steps, Array.from({ length: 100 }, (_, i) => i + 1));
  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics?points=1000`);
  assert.deepEqual(curve.steps, steps);
  assert.deepEqual(curve.eval.steps, [20, 40, 60, 80, 100]);
  assert.equal(curve.every, 1);
  const log = await fetch(`${honed.url}/v1/jobs/${job.id}/log`, { headers: { Authorization: `Bearer ${honed.token}` } });
  assert.match(log.headers.get('content-type'), /^text\/plain/);
  assert.match(await log.text(), /fake: rank 0 finished step 100\n/);
  assert.deepEqual(JSON.parse(await readFile(join(honed.folder, 'jobs', job.id, 'spec.json'))).request, job.request);
});

test('bad requests are refused by field, and leave nothing', async () => {
  const before = (await readdir(join(honed.folder, 'jobs'))).length;
  const cases = [
    [{ learning_rte: 1 }, 'learning_rte'], [{ learning_rate: 'high' }, 'learning_rate'], [{ learning_rate: -1 }, 'learning_rate'],
    [{ max_steps: -1 }, 'max_steps'], [{ max_steps: 1.5 }, 'max_steps'], [{ max_steps: 1e30 }, 'max_steps'],
    [{ precision: 'fp4' }, 'precision'], [{ config: 'gpt2' }, 'config'], [{ training_file: undefined }, 'training_file'],
    [{ training_file: 'file-aaaaaaaaaaaaaa' }, 'training_file'], [{ training_file: 'texts:nothing.txt' }, 'training_file'],
    [{ training_file: 'texts:../secret.txt' }, 'training_file'], [{ training_file: 'texts:escape.txt' }, 'training_file'],
    [{ training_file: 'texts:passwd.txt' }, 'training_file'], [{ training_file: 'texts:/etc/passwd' }, 'training_file'],
    [{ training_file: 'texts:deep' }, 'training_file'], [{ training_file: 'texts:empty.txt' }, 'training_file'],
    [{ training_file: 'lab:llama/x/config.json' }, 'training_file'], [{ training_file: '/etc/passwd' }, 'training_file'],
    [{ training_file: 'other:text.txt' }, 'training_file'], [{ validation_file: 'file-zzzzzzzzzzzzzz' }, 'validation_file'],
    [{ config: undefined, tokenizer_vocab_size: undefined, model: 'lab:bare' }, 'model'],
    [{ config: undefined, tokenizer_vocab_size: undefined, model: 'lab:../models/llama/x/../../..' }, 'model'],
    [{ config: undefined, tokenizer_vocab_size: undefined, model: 'llama' }, 'model'],
    [{ config: undefined, tokenizer_vocab_size: undefined, model: 'job-aaaaaaaaaaaaaa' }, 'model'],
    [{ config: undefined, tokenizer_vocab_size: undefined, model: 'job-aaaaaaaaaaaaaa:7' }, 'model'],
    [{ tokenizer_vocab_size: undefined, tokenizer: 'lab:bare' }, 'tokenizer'],
    [{ name: 'a\nb' }, 'name'], [{ name: 'a\u202eb' }, 'name'], [{ name: 'x'.repeat(200) }, 'name'],
    [{ user_id: 1 }, 'user_id'], [{ role: 'admin' }, 'role'], [{ state: 'succeeded' }, 'state'], [{ dir: '/tmp' }, 'dir'],
  ];
  for (const [more, param] of cases) {
    const error = await refused(honed.call('POST', '/v1/jobs', request(file, 'bad', more)), more);
    assert.equal(error.status, 422, JSON.stringify(more));
    assert.equal(error.param, param, error.message);
    assert.ok(!error.message.includes('\n') && error.message.length > 10 && !error.message.includes(roots));
  }
  assert.equal((await readdir(join(honed.folder, 'jobs'))).length, before);
});

test('what lies in roots is listed and can be trained on', async () => {
  const { data: models } = await honed.call('GET', '/v1/models');
  assert.deepEqual(models.filter((model) => model.owned_by === 'machine').map((model) => [model.id, model.family]), [['lab:llama/x', 'llama']]);
  const { data } = await honed.call('GET', '/v1/data');
  assert.deepEqual(data.map((one) => [one.id, one.bytes]).sort(), [['texts:deep/text.txt', 1000], ['texts:empty.txt', 0]]);
  for (const training of ['texts:deep/text.txt', 'texts:inside.txt']) {
    const job = await honed.call('POST', '/v1/jobs', { name: 'steps=2', model: 'lab:llama/x', training_file: training, max_steps: 2 });
    assert.equal((await until(honed, job.id, ended)).state, 'succeeded');
    const plan = JSON.parse(await readFile(join(honed.folder, 'jobs', job.id, 'attempts/1/plan.json')));
    assert.ok(JSON.stringify(plan).includes(join(roots, 'data/deep/text.txt')));
  }
});

test('a file that changed after submit is not trained on', async () => {
  const blocker = await submit('ms=20');
  await writeFile(join(roots, 'data/moving.txt'), 'one\n'.repeat(50));
  const job = await honed.call('POST', '/v1/jobs', request('texts:moving.txt', 'steps=2'));
  await writeFile(join(roots, 'data/moving.txt'), 'two and more\n'.repeat(50));
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'failed');
  assert.equal(done.error.code, 'invalid_training_file');
  assert.match(done.error.message, /changed/);
  await until(honed, blocker.id, ended);
});

test('jobs run one at a time, in the order of their submission', async () => {
  const jobs = [];
  for (let i = 0; i < 4; i += 1) {
    jobs.push(await submit('ms=2 steps=20', { max_steps: 20 }));
  }
  assert.equal(jobs.at(-1).state, 'queued');
  await until(honed, jobs[3].id, (now) => now.state !== 'queued' || /jobs? (is|are) before it/.test(now.reason));
  const times = [];
  for (const { id } of jobs) {
    await until(honed, id, ended);
    const events = (await eventsOf(honed, id)).filter((event) => event.type !== 'job');
    times.push([events[0].t, events.at(-1).t]);
  }
  for (let i = 1; i < times.length; i += 1) {
    assert.ok(times[i][0] >= times[i - 1][1], 'two ran at once');
  }
});

test('the same request with the same key is one job', async () => {
  const key = { 'Idempotency-Key': 'key-1' };
  const all = await Promise.all(Array.from({ length: 8 }, () => submit('steps=1', { max_steps: 1 }, key)));
  assert.equal(new Set(all.map((job) => job.id)).size, 1);
  const other = await refused(submit('steps=2', { max_steps: 2 }, key));
  assert.equal(other.status, 409);
  const bob = await honed.call('POST', '/v1/users', { name: 'bob', role: 'member' });
  const as = { Authorization: `Bearer ${bob.token}`, ...key };
  const bobs = await (await fetch(`${honed.url}/v1/files?filename=b`, { method: 'PUT', body: 'text', headers: { Authorization: as.Authorization } })).json();
  const his = await honed.call('POST', '/v1/jobs', request(bobs.id, 'steps=1', { max_steps: 1 }), as);
  assert.notEqual(his.id, all[0].id);
  await until(honed, all[0].id, ended);
  await until(honed, his.id, ended);
});

test('a client that tries again after a lost answer gets the first job', async () => {
  const first = await submit('steps=1 retry', { max_steps: 1 }, { 'x-stainless-retry-count': '0' });
  const second = await submit('steps=1 retry', { max_steps: 1 }, { 'x-stainless-retry-count': '1' });
  assert.equal(second.id, first.id);
  const third = await submit('steps=1 retry', { max_steps: 1 }, { 'x-stainless-retry-count': '0' });
  assert.notEqual(third.id, first.id);
  await until(honed, third.id, ended);
});

test('cancel: in the queue, while running, and again', async () => {
  const running = await submit('ms=20', { max_steps: 10000 });
  const waiting = await submit('ms=20', { max_steps: 10000 });
  assert.equal((await honed.call('POST', `/v1/jobs/${waiting.id}/cancel`)).state, 'cancelled');
  await until(honed, running.id, (job) => job.step > 3);
  const stopping = await honed.call('POST', `/v1/jobs/${running.id}/cancel`);
  assert.equal(stopping.state, 'stopping');
  const done = await until(honed, running.id, ended, 5000);
  assert.equal(done.state, 'cancelled');
  assert.equal((await honed.call('POST', `/v1/jobs/${running.id}/cancel`)).state, 'cancelled');
  const saved = await submit('ms=20', { max_steps: 10000 });
  await until(honed, saved.id, (job) => job.step > 3);
  await honed.call('POST', `/v1/jobs/${saved.id}/cancel`, { save: true });
  const kept = await until(honed, saved.id, ended, 5000);
  assert.equal(kept.state, 'cancelled');
  assert.equal(kept.checkpoints, 1);
  assert.deepEqual(kept.allowed_actions, ['resume']);
  assert.equal((await refused(honed.call('POST', `/v1/jobs/${saved.id}/cancel`, { save: 'yes' }))).param, 'save');
});

test('an ended job can be told nothing, and the client is told not to try again', async () => {
  const job = await submit('steps=1', { max_steps: 1 });
  await until(honed, job.id, ended);
  for (const action of ['cancel', 'save', 'pause', 'resume']) {
    const reply = await fetch(`${honed.url}/v1/jobs/${job.id}/${action}`, { method: 'POST', headers: { Authorization: `Bearer ${honed.token}` } });
    assert.equal(reply.status, 409, action);
    assert.equal(reply.headers.get('x-should-retry'), 'false');
  }
});

test('pause keeps the place, resume goes on from there', async () => {
  const job = await submit('ms=10', { max_steps: 150 });
  await until(honed, job.id, (now) => now.step > 20);
  await honed.call('POST', `/v1/jobs/${job.id}/pause`);
  const paused = await until(honed, job.id, inState('paused'), 8000);
  assert.ok(paused.checkpoints >= 1 && paused.allowed_actions.includes('resume'));
  assert.equal((await honed.call('POST', `/v1/jobs/${job.id}/pause`)).state, 'paused');
  assert.equal((await honed.call('POST', `/v1/jobs/${job.id}/resume`)).state, 'queued');
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'succeeded');
  assert.equal(done.attempt, 2);
  const steps = (await eventsOf(honed, job.id)).filter((event) => event.type === 'metrics').map((event) => event.step);
  assert.deepEqual(steps, Array.from({ length: 150 }, (_, i) => i + 1), 'a step was lost or done twice');
  const queued = [await submit('ms=10', { max_steps: 200 }), await submit('steps=1', { max_steps: 1 })];
  assert.equal((await honed.call('POST', `/v1/jobs/${queued[1].id}/pause`)).state, 'paused');
  assert.equal((await honed.call('POST', `/v1/jobs/${queued[1].id}/resume`)).state, 'queued');
  await honed.call('POST', `/v1/jobs/${queued[0].id}/cancel`);
  assert.equal((await until(honed, queued[1].id, ended)).state, 'succeeded');
});

test('save writes a checkpoint and the run goes on', async () => {
  const job = await submit('ms=20 save=100000', { max_steps: 120 });
  await until(honed, job.id, (now) => now.step > 5);
  const reply = await fetch(`${honed.url}/v1/jobs/${job.id}/save`, { method: 'POST', headers: { Authorization: `Bearer ${honed.token}` } });
  assert.equal(reply.status, 202);
  const saved = await until(honed, job.id, (now) => now.checkpoints > 0);
  assert.equal(saved.state, 'running');
  assert.equal((await until(honed, job.id, ended)).state, 'succeeded');
});

test('a run that is deaf is killed after the grace period', async () => {
  const deaf = await submit('ms=10 ignore_term', { max_steps: 100000 });
  await until(honed, deaf.id, (job) => job.step > 3);
  await honed.call('POST', `/v1/jobs/${deaf.id}/pause`);
  assert.equal((await honed.call('GET', `/v1/jobs/${deaf.id}`)).state, 'stopping');
  const failed = await until(honed, deaf.id, ended, 15000);
  assert.equal(failed.state, 'failed');
  assert.ok(['timed_out', 'interrupted'].includes(failed.error.code), failed.error.code);
  const hung = await submit('hang_at=3', { max_steps: 100 });
  await until(honed, hung.id, (job) => job.step >= 3);
  await honed.call('POST', `/v1/jobs/${hung.id}/cancel`);
  assert.equal((await until(honed, hung.id, ended, 15000)).state, 'cancelled');
});

test('every way in which a run fails has its word', async () => {
  const cases = [
    ['crash_at=3', 'worker_lost'], ['kill_at=3', 'worker_lost'], ['oom_at=3', 'out_of_memory'], ['fail_at=3', 'out_of_memory'],
    ['nan_at=3', 'numerical_divergence'], ['bad_file', 'invalid_training_file'], ['disk_full_at=3 save=3', 'disk_full'],
  ];
  for (const [name, code] of cases) {
    const job = await submit(`ms=2 ${name}`, { max_steps: 8 });
    const done = await until(honed, job.id, ended);
    assert.equal(done.state, 'failed', name);
    assert.ok([code].flat().includes(done.error.code), `${name}: ${done.error.code}`);
    assert.ok(done.error.message.length > 5);
  }
});

test('a run that ended out of memory says what was planned and seen, and its device keeps more free from then on', async () => {
  const before = await honed.call('GET', '/v1/machine');
  const job = await submit('ms=2 oom_at=3', { max_steps: 8 });
  const done = await until(honed, job.id, ended);
  assert.equal(done.error.code, 'out_of_memory');
  assert.match(done.error.message, /\(signal 9, SIGKILL\) because the machine ran out of memory; \d+\.\d\d GiB were planned; it held \d+\.\d\d GiB at most and 0\.01 GiB of the machine were free; \S+ has \d+\.\d\d GiB for jobs$/);
  const after = await honed.call('GET', '/v1/machine');
  const learned = after.constants.margins['CPU slots'];
  assert.ok(learned > (before.constants.margins['CPU slots'] ?? 0));
  for (const device of after.devices.filter((one) => one.kind === 'cpu')) {
    assert.equal(device.capacity_bytes, device.memory_bytes - device.reserved_bytes - learned);
  }
});

test('a diverged loss is null in every answer', async () => {
  const job = await submit('ms=2 nan_at=5', { max_steps: 8 });
  await until(honed, job.id, ended);
  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics`);
  assert.equal(curve.loss.at(-1), null);
  assert.ok(curve.loss[0] > 0);
});

test('a file that a job will need is not deleted', async () => {
  const text = (await honed.upload('b.txt', 'text\n'.repeat(10))).id;
  const job = await honed.call('POST', '/v1/jobs', request(text, 'ms=20', { max_steps: 10000 }));
  const error = await refused(honed.call('DELETE', `/v1/files/${text}`));
  assert.equal(error.status, 409);
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`);
  await until(honed, job.id, ended);
  await honed.call('DELETE', `/v1/files/${text}`);
});

test('a user can wait with so many jobs and no more', async () => {
  const jobs = [];
  let error = null;
  while (!error) {
    error = await submit('ms=50', { max_steps: 10000 }).then((job) => { jobs.push(job.id); return null; }, (e) => e);
  }
  assert.equal(error.status, 429);
  assert.equal(jobs.length, 12);
  const { data } = await honed.call('GET', '/v1/jobs?state=queued,starting,running&limit=100');
  assert.equal(data.length, 12);
  for (const id of jobs.reverse()) {
    await honed.call('POST', `/v1/jobs/${id}/cancel`);
  }
  for (const id of jobs) {
    await until(honed, id, ended);
  }
  for (const query of ['state=runing', 'state=queued,,running', `state=${'queued,'.repeat(100)}`]) {
    assert.equal((await refused(honed.call('GET', `/v1/jobs?${query}`))).status, 400, query);
  }
});
