// crash.test.mjs - honed killed, launchers killed, stores lost: jobs go on, and no event is lost or doubled.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, inState, request, until } from '../lib/jobs.mjs';
import { numberOf } from '../lib/sse.mjs';

const program = join(ROOT, process.env.BUILD || 'build/release', 'honed');
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let honed = null;
let file = null;

before(async () => {
  honed = await startHoned({ args: ['--max-tries', '3'] });
  file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
});
after(() => honed?.stop());

const submit = (name, more) => honed.call('POST', '/v1/jobs', request(file, name, more));
const launcher = async (id) => JSON.parse(await readFile(join(honed.folder, 'jobs', id, 'pid'))).pid;
const linesOf = async (id) =>
  (await readFile(join(honed.folder, 'jobs', id, 'events.jsonl'), 'utf8')).trimEnd().split('\n').map((line) => JSON.parse(line));

// What the store has is what the run wrote: every line, once, in order.
async function agrees(id) {
  const written = await linesOf(id);
  const stored = (await eventsOf(honed, id)).filter((event) => event.type !== 'job');
  const brief = ({ type, step, attempt }) => [type, step, attempt];
  assert.deepEqual(stored.map(brief), written.map(brief));
  stored.forEach((event, i) => assert.ok(Math.abs(event.t - written[i].t) < 1e-4));
  const numbers = (await eventsOf(honed, id)).map((event) => numberOf(event.id));
  assert.equal(new Set(numbers).size, numbers.length);
}

test('honed killed five times in the middle of a job: the job never notices', async () => {
  const job = await submit('ms=20 eval=50 save=100', { max_steps: 400 });
  const waiting = await submit('steps=2', { max_steps: 2 });
  await until(honed, job.id, (now) => now.step > 2);
  const pid = await launcher(job.id);
  for (let round = 0; round < 5; round += 1) {
    await sleep(150 + round * 230);
    await honed.kill();
    await sleep(round * 200);
    await honed.start();
    assert.equal(await launcher(job.id), pid, 'another launcher was started');
    const now = await honed.call('GET', `/v1/jobs/${job.id}`);
    assert.ok(['running', 'succeeded'].includes(now.state), now.state);
    assert.equal((await honed.call('GET', `/v1/jobs/${waiting.id}`)).state, now.state === 'running' ? 'queued' : (await honed.call('GET', `/v1/jobs/${waiting.id}`)).state);
  }
  const done = await until(honed, job.id, ended, 30000);
  assert.equal(done.state, 'succeeded');
  assert.equal(done.attempt, 1);
  await agrees(job.id);
  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics?points=1000`);
  assert.deepEqual(curve.steps, Array.from({ length: 400 }, (_, i) => i + 1));
  assert.equal((await until(honed, waiting.id, ended)).state, 'succeeded');
});

test('a job that ends while honed is away is found ended', async () => {
  const job = await submit('ms=5', { max_steps: 60 });
  await until(honed, job.id, (now) => now.step > 2);
  await honed.kill();
  await sleep(1500);
  await honed.start();
  assert.equal((await until(honed, job.id, ended, 5000)).state, 'succeeded');
  await agrees(job.id);
});

test('an orderly stop leaves the run alone', async () => {
  const job = await submit('ms=20', { max_steps: 150 });
  await until(honed, job.id, (now) => now.step > 2);
  const pid = await launcher(job.id);
  await honed.restart();
  assert.equal(await launcher(job.id), pid);
  assert.equal((await until(honed, job.id, ended)).state, 'succeeded');
  await agrees(job.id);
});

test('what was asked for just before a crash is done after it', async () => {
  const job = await submit('ms=20', { max_steps: 100000 });
  await until(honed, job.id, (now) => now.step > 2);
  const asked = honed.call('POST', `/v1/jobs/${job.id}/pause`);
  await asked;
  await honed.kill();
  await honed.start();
  assert.equal((await until(honed, job.id, inState('paused'), 10000)).state, 'paused');
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`);
});

test('a launcher that is killed is started again from the last checkpoint, three times', async () => {
  const job = await submit('ms=20 save=10', { max_steps: 100000 });
  for (let attempt = 1; attempt <= 4; attempt += 1) {
    await until(honed, job.id, (now) => now.attempt === attempt && now.state === 'running' && now.checkpoints > 0 && now.step > attempt * 12);
    process.kill(await launcher(job.id), 'SIGKILL');
    if (attempt < 4) {
      await until(honed, job.id, (now) => now.attempt === attempt + 1);
    }
  }
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'failed');
  assert.equal(done.error.code, 'worker_lost');
  assert.deepEqual(done.allowed_actions, ['resume']);
  const events = await eventsOf(honed, job.id);
  const resumed = events.filter((event) => event.type === 'resumed');
  assert.equal(resumed.length, 3);
  assert.ok(resumed.every((event) => event.from_step % 10 === 0 && event.from_step > 0));
  // after each `resumed` the curve has every step once
  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics?points=10000`);
  assert.deepEqual(curve.steps, Array.from({ length: curve.steps.length }, (_, i) => i + 1));
  await agrees(job.id);
});

test('a process that outlives launcher and ranks does not keep the job for ever', async () => {
  const job = await submit('ms=20 save=10 escape once', { max_steps: 60 });
  await until(honed, job.id, (now) => now.checkpoints > 0);
  process.kill(await launcher(job.id), 'SIGKILL');
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'succeeded');
  assert.equal(done.attempt, 2);
  await agrees(job.id);
});

test('honed and the launcher killed together: the job goes on after the start', async () => {
  const job = await submit('ms=20 save=10', { max_steps: 120 });
  await until(honed, job.id, (now) => now.checkpoints > 0);
  const pid = await launcher(job.id);
  await honed.kill();
  process.kill(pid, 'SIGKILL');
  await honed.start();
  const done = await until(honed, job.id, ended);
  assert.equal(done.state, 'succeeded');
  assert.equal(done.attempt, 2);
  await agrees(job.id);
});

test('uploads and submissions that a crash cut short are finished or removed', async () => {
  await honed.kill();
  await writeFile(join(honed.folder, 'files', 'file-aaaaaaaaaaaaaa.part'), 'half a file');
  await mkdir(join(honed.folder, 'jobs', 'job-aaaaaaaaaaaaaa.new'));
  await honed.start();
  assert.ok(!(await readdir(join(honed.folder, 'files'))).some((name) => name.endsWith('.part')));
  assert.ok(!(await readdir(join(honed.folder, 'jobs'))).some((name) => name.endsWith('.new')));
});

test('a second honed on the same folder or port says so and ends', async () => {
  const other = await mkdtemp(join(tmpdir(), 'hone-second-'));
  const run = (...words) => promisify(execFile)(program, words);
  await assert.rejects(run('--data', honed.folder, '--port', '0'), (error) => /another honed/.test(error.stderr) && error.code === 67);
  await assert.rejects(run('--data', join(other, 'd'), '--port', new URL(honed.url).port), (error) => /taken/.test(error.stderr) && error.code === 67);
  await assert.rejects(run('--data', join(other, 'd'), '--listen', '0.0.0.0'), (error) => /TLS|tls/.test(error.stderr) && error.code === 64);
  await assert.rejects(run('--data', join(other, 'd'), '--listen', 'example.com'), (error) => error.code === 64);
  await assert.rejects(run('--data', join(other, 'd'), '--tls-cert', 'x'), (error) => error.code === 64);
  await assert.rejects(run('--data', join(other, 'd'), '--model-root', 'x=/does/not/exist'), (error) => error.code === 64);
  await writeFile(join(other, 'photo.jpg'), 'x');
  await assert.rejects(run('--data', other), (error) => /other things/.test(error.stderr));
  await assert.rejects(run('--nonsense'), (error) => error.code === 64 && !error.stderr.includes('\n\n'));
  await rm(other, { recursive: true });
});

test('a trainer that is not there fails the job with a sentence', async () => {
  const lone = await startHoned({ trainer: '/does/not/exist' });
  try {
    const text = (await lone.upload('a', 'text')).id;
    const job = await lone.call('POST', '/v1/jobs', request(text, 'x'));
    const done = await until(lone, job.id, ended);
    assert.equal(done.state, 'failed');
    assert.match(done.error.message, /trainer/);
  } finally {
    await lone.stop();
  }
  const wrong = await startHoned({ trainer: '/bin/false' });
  try {
    const text = (await wrong.upload('a', 'text')).id;
    const job = await wrong.call('POST', '/v1/jobs', request(text, 'x'));
    assert.match((await until(wrong, job.id, ended)).error.message, /ended with status 1/);
  } finally {
    await wrong.stop();
  }
});

test('a lost store is made anew from the job folders', async () => {
  const before = await honed.call('GET', '/v1/jobs?limit=100');
  const last = before.data.find((job) => job.state === 'succeeded');
  const curve = await honed.call('GET', `/v1/jobs/${last.id}/metrics`);
  const running = await submit('ms=20', { max_steps: 400 });
  await until(honed, running.id, (now) => now.step > 2);
  await assert.rejects(promisify(execFile)(program, ['rebuild', '--data', honed.folder]), /another honed/);
  await honed.kill();
  await promisify(execFile)(program, ['rebuild', '--data', honed.folder]);
  await honed.start();
  const now = await honed.call('GET', '/v1/jobs?limit=100');
  assert.deepEqual(now.data.map((job) => job.id).sort(), [...before.data.map((job) => job.id), running.id].sort());
  for (const job of before.data.filter((one) => ['succeeded', 'failed'].includes(one.state))) {
    const again = now.data.find((one) => one.id === job.id);
    const same = ({ state, step, loss, checkpoints, created_at: at, request: asked, error }) => ({ state, step, loss, checkpoints, at, asked, code: error?.code });
    // a launcher that was lost wrote no end: such a job waits for its owner
    if (job.error?.code === 'worker_lost') {
      assert.equal(again.state, 'paused');
    } else {
      assert.deepEqual(same(again), same(job));
    }
  }
  assert.deepEqual(await honed.call('GET', `/v1/jobs/${last.id}/metrics`), curve);
  assert.equal((await until(honed, running.id, ended)).state, 'succeeded');
  await agrees(running.id);
  assert.equal(await (await fetch(`${honed.url}/v1/files/${file}/content`, { headers: { Authorization: `Bearer ${honed.token}` } })).text(), 'text\n'.repeat(100));
});
