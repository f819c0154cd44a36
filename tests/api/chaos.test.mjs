// chaos.test.mjs - honed, launchers and ranks killed at random moments while several people use the queue.
//
// A round: jobs of three users are submitted, paused, resumed, cancelled and preempted while processes are killed; then all of it
// has to come to rest, and everything that must hold is counted. HONE_ROUNDS rounds (5 unless told otherwise); HONE_SEED makes the
// same choices again, though not at the same microseconds. An odd seed has GPUs of a file, an even one CPU slots.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { eventsOf, request, userOf } from '../lib/jobs.mjs';
import { isAlive, jobProcesses } from '../lib/processes.mjs';
import { numberOf } from '../lib/sse.mjs';

const ROUNDS = Number(process.env.HONE_ROUNDS || 5);
const SEED = Number(process.env.HONE_SEED || Date.now() % 1000000);
const DEVICES = 3;
const JOBS = 9; // of a round
const CALM_MS = 90000;
const GIB = 2 ** 30;
const ENDED = ['succeeded', 'failed', 'cancelled'];
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

let state = SEED;
function random() {
  state = (state + 0x6d2b79f5) | 0;
  let x = Math.imul(state ^ (state >>> 15), state | 1);
  x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
  return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
}
const pick = (...choices) => choices[Math.floor(random() * choices.length)];
const between = (low, high) => low + Math.floor(random() * (high - low + 1));

let home = null;
let honed = null;
let users = [];
let up = Promise.resolve(); // until honed answers again
const jobs = new Map(); // id: what was done to it
const seen = { honed: 0, launcher: 0, rank: 0, resumed: 0, samples: 0 };

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'hone-chaos-'));
  const gpus = Array.from({ length: DEVICES }, (_, i) => ({
    id: `GPU-${i}`, name: 'Test GPU', kind: 'gpu', memory_bytes: 80 * GIB, reserved_bytes: GIB, used_bytes: GIB, free_bytes: 79 * GIB,
  }));
  await writeFile(join(home, 'machine.json'), JSON.stringify({ name: 'chaos', devices: gpus }));
  const machine = SEED % 2 === 1 ? ['--machine', join(home, 'machine.json')] : ['--cpu-slots', String(DEVICES)];
  honed = await startHoned({
    args: [...machine, '--retry-s', '0', '--max-tries', '100', '--preempt-after-s', '0', '--max-preemptions', '1000', '--grace-seconds', '20'],
  });
  users = [{ call: (...words) => honed.call(...words), upload: honed.upload }, await userOf(honed, 'ada'), await userOf(honed, 'bob')];
  for (const user of users) {
    user.file = (await user.upload('a.txt', 'text\n'.repeat(100))).id;
  }
});

after(async () => {
  await honed?.stop();
  await rm(home, { recursive: true, force: true });
});

// Ask until there is an answer: {status, body}, and whether it was asked more than once because honed was killed meanwhile.
async function ask(user, method, path, body, headers = {}) {
  for (let again = false; ; again = true) {
    await up;
    try {
      return { status: 200, body: await user.call(method, path, body, headers), again };
    } catch (error) {
      if (error.status !== undefined) {
        return { status: error.status, body: error.body, again };
      }
      await sleep(20); // no answer
    }
  }
}

async function read(path) {
  const answer = await ask(users[0], 'GET', path);
  assert.equal(answer.status, 200, answer.body);
  return answer.body;
}

async function submit(round, number) {
  const user = pick(...users);
  const early = number < DEVICES; // what fills the machine first gives way to what comes later
  const steps = early ? between(50, 100) : between(10, 60);
  const job = {
    user, steps, round, kills: 0, rankKills: 0, asked: pick('', '', '', 'cancel', 'pause', 'pause and resume'), after: between(50, 1500), said: {},
  };
  const name = `ms=${between(5, 20)} ranks=${between(1, 3)} save=${between(3, 20)} r${round}`;
  const more = { max_steps: steps, global_batch_size: 6, devices: pick(1, 1, 1, 2, 3), priority: early ? pick('low', 'idle') : pick('normal', 'normal', 'low', 'idle') };
  const answer = await ask(user, 'POST', '/v1/jobs', request(user.file, name, more), { 'Idempotency-Key': `${SEED}-${round}-${number}` });
  assert.equal(answer.status, 200, answer.body);
  assert.ok(!jobs.has(answer.body.id), 'two submissions got one job');
  job.id = answer.body.id;
  job.devices = more.devices;
  jobs.set(job.id, job);
  return job;
}

// What its owner does with a job after a while. What was answered with 200, and what may have been done unheard, is noted.
async function use(job) {
  const act = async (verb) => {
    const answer = await ask(job.user, 'POST', `/v1/jobs/${job.id}/${verb}`);
    assert.ok([200, 409].includes(answer.status), `${verb}: ${answer.status} ${answer.body}`);
    job.said[verb] = answer.status === 200 || answer.again;
  };
  await sleep(job.after);
  if (job.asked === '') {
    return;
  }
  await act(job.asked === 'cancel' ? 'cancel' : 'pause');
  if (job.asked === 'pause and resume' && (await rest([job]))[0].state === 'paused') {
    await act('resume');
    seen.resumed += 1;
  }
}

// The jobs once none of them waits or runs.
async function rest(list) {
  const end = Date.now() + CALM_MS;
  for (;;) {
    const now = await Promise.all(list.map((job) => read(`/v1/jobs/${job.id}`)));
    const busy = now.filter((job) => ![...ENDED, 'paused'].includes(job.state));
    if (busy.length === 0) {
      return now;
    }
    if (Date.now() > end) {
      throw new Error(`HONE_SEED=${SEED}: no rest: ${JSON.stringify(busy)}\n${honed.output().slice(-4000)}`);
    }
    await sleep(60);
  }
}

async function killHoned() {
  seen.honed += 1;
  let done;
  up = new Promise((resolve) => {
    done = resolve;
  });
  await honed.kill();
  await sleep(between(0, 400));
  if (random() < 0.3) { // once more while it finds out what there is
    const starting = honed.start().catch(() => {});
    await sleep(between(10, 200));
    await honed.kill();
    await starting;
    await honed.kill(); // where it had not been there yet
    seen.honed += 1;
  }
  await honed.start();
  done();
}

async function killOf(kind) {
  let all = [];
  for (let tries = 0; all.length === 0; tries += 1) {
    all = (await jobProcesses(honed.folder)).filter((one) => one.isLauncher === (kind === 'launcher') && jobs.has(one.job));
    if (all.length === 0 && tries > 20) {
      return;
    }
    await sleep(all.length === 0 ? 20 : between(0, 3)); // also as it starts, and as it ends
  }
  const one = pick(...all);
  const job = jobs.get(one.job);
  job.kills += 1; // before it may be heard of
  job.rankKills += kind === 'rank' ? 1 : 0;
  if (await isAlive(one)) {
    try {
      process.kill(one.pid, 'SIGKILL');
      seen[kind] += 1;
    } catch (error) {
      assert.equal(error.code, 'ESRCH'); // it has just ended
    }
  }
}

async function wreak() {
  for (let kills = between(3, 7); kills > 0; kills -= 1) {
    await sleep(between(30, 600));
    const kind = pick('honed', 'launcher', 'rank');
    if (kind === 'honed') {
      await killHoned();
    } else {
      await killOf(kind);
    }
    if (random() < 0.2) {
      await Promise.all([killHoned(), killOf('launcher')]);
    }
  }
}

// Device ids of the attempt that a launcher runs; null while it has not said that it does.
async function placeOf(launcher) {
  try {
    const dir = join(honed.folder, 'jobs', launcher.job);
    const { pid, attempt } = JSON.parse(await readFile(join(dir, 'pid'), 'utf8'));
    const plan = JSON.parse(await readFile(join(dir, `attempts/${attempt}/plan.json`), 'utf8'));
    return pid === launcher.pid ? plan.device_ids.split(',') : null;
  } catch {
    return null;
  }
}

// Two processes that were seen at a time: are both there now? One may have ended while the other was looked at.
const bothAlive = async (a, b) => (await isAlive(a)) && (await isAlive(b));

// No job has two launchers, and no device two jobs: by the processes that are there and what they were given.
async function sampleProcesses() {
  const launchers = (await jobProcesses(honed.folder)).filter((one) => one.isLauncher);
  const places = await Promise.all(launchers.map(placeOf));
  for (let i = 0; i < launchers.length; i += 1) {
    for (let k = 0; k < i; k += 1) {
      const [a, b] = [launchers[i], launchers[k]];
      const shared = places[i] !== null && places[k] !== null && places[i].some((id) => places[k].includes(id));
      if (a.job === b.job && places[i] !== null && places[k] !== null) {
        assert.ok(!(await bothAlive(a, b)), `${a.job} has two launchers: ${a.pid} and ${b.pid}`);
      } else if (shared) {
        assert.ok(!(await bothAlive(a, b)), `${a.job} on ${places[i]} and ${b.job} on ${places[k]}`);
      }
    }
  }
}

// The same by what is told.
async function sampleAnswers() {
  const { devices } = await read('/v1/machine');
  assert.equal(devices.filter((device) => device.usable).length, DEVICES);
  for (const device of devices) {
    assert.equal(device.state === 'leased', device.job !== null, JSON.stringify(device));
  }
  const { running } = await read('/v1/queue');
  const held = running.flatMap((run) => run.devices);
  assert.equal(new Set(held).size, held.length, `a device has two jobs: ${JSON.stringify(running)}`);
  for (const run of running) {
    assert.ok(!jobs.has(run.job) || run.devices.length === jobs.get(run.job).devices, JSON.stringify(run));
  }
}

// Waiting jobs that left for better ones.
async function sampleWaiting() {
  const { data } = await read('/v1/jobs?state=queued');
  for (const { id, back } of data) {
    if (jobs.has(id) && /made room/.test(back)) {
      jobs.get(id).madeRoom = true;
    }
  }
}

async function sampleUntil(isOver) {
  while (!isOver()) {
    await sampleProcesses();
    await sampleAnswers();
    await sampleWaiting();
    seen.samples += 1;
    await sleep(50);
  }
}

// How a job may end, by what was asked and killed.
function mayEnd(job, now) {
  const states = ['succeeded'];
  if (job.said.cancel) {
    states.push('cancelled');
  }
  if (job.said.pause && !job.said.resume) {
    states.push('paused');
  }
  if (job.rankKills > 1 && /not tried again/.test(now.error?.message)) { // twice before its first step
    states.push('failed');
  }
  return states;
}

// The stored events are the lines of the file, each once; attempts follow each other; no step is counted twice.
async function checkEvents(job, now) {
  const lines = (await readFile(join(honed.folder, 'jobs', job.id, 'events.jsonl'), 'utf8').catch(() => '')).trimEnd();
  const written = lines === '' ? [] : lines.split('\n').map((line) => JSON.parse(line));
  const all = await eventsOf(honed, job.id);
  const stored = all.filter((event) => event.type !== 'job');
  const brief = ({ type, step, attempt }) => [type, step, attempt];
  assert.deepEqual(stored.map(brief), written.map(brief), job.id);
  assert.equal(new Set(all.map((event) => numberOf(event.id))).size, all.length);
  let attempt = 0;
  let last = 0;
  for (const event of stored) {
    assert.ok(event.attempt >= attempt && event.attempt <= now.attempt, `${job.id}: an event of attempt ${event.attempt} after one of ${attempt}`);
    if (event.attempt > attempt) {
      last = 0;
      attempt = event.attempt;
    }
    last = event.type === 'resumed' ? event.from_step : last;
    if (event.type === 'metrics') {
      assert.equal(event.step, last + 1, `${job.id}: steps of attempt ${attempt}`);
      last = event.step;
    }
  }
  for (const type of ['started', 'ended']) {
    const told = stored.filter((event) => event.type === type).map((event) => event.attempt);
    assert.equal(new Set(told).size, told.length, `${job.id}: an attempt ${type} twice`);
  }
  const curve = await read(`/v1/jobs/${job.id}/metrics?points=10000`);
  assert.deepEqual(curve.steps, Array.from({ length: curve.steps.length }, (_, i) => i + 1), job.id);
  assert.ok(now.state !== 'succeeded' || curve.steps.length === job.steps, `${job.id}: ${curve.steps.length} of ${job.steps} steps`);
}

async function checkJob(job, now) {
  const told = `${JSON.stringify({ ...now, request: null, resolved: null })}\nasked ${job.asked}, done ${JSON.stringify(job.said)}, killed ${job.kills} (${job.rankKills} ranks)`;
  assert.ok(mayEnd(job, now).includes(now.state), told);
  assert.deepEqual(now.device_ids, [], told);
  const attempts = await readdir(join(honed.folder, 'jobs', job.id, 'attempts')).catch(() => []);
  // one that was told to leave before it had a process has no folder
  assert.ok(attempts.length <= now.attempt && attempts.every((name) => Number(name) >= 1 && Number(name) <= now.attempt), told);
  await checkEvents(job, now);
}

async function allIds() {
  const ids = [];
  for (let from = ''; ; from = `&after=${ids.at(-1)}`) {
    const page = await read(`/v1/jobs?limit=100${from}`);
    ids.push(...page.data.map((job) => job.id));
    if (!page.has_more) {
      return ids;
    }
  }
}

// All is at rest: nothing is left, nothing is lost, nothing is there twice.
async function checkRest(round) {
  assert.deepEqual(await jobProcesses(honed.folder), [], 'processes of jobs that are over');
  const queue = await read('/v1/queue');
  assert.deepEqual([queue.running, queue.waiting], [[], []]);
  const { devices } = await read('/v1/machine');
  assert.ok(devices.filter((device) => device.usable).every((device) => device.state === 'free' && device.job === null), JSON.stringify(devices));
  assert.deepEqual((await allIds()).sort(), [...jobs.keys()].sort());
  const folders = (await readdir(join(honed.folder, 'jobs'))).filter((name) => name.startsWith('job-'));
  assert.deepEqual(folders.sort(), [...jobs.keys()].sort());
  const mine = [...jobs.values()].filter((job) => job.round === round);
  for (const job of mine) {
    await checkJob(job, await read(`/v1/jobs/${job.id}`));
  }
}

async function playRound(round) {
  let over = false;
  const list = [];
  const sampling = sampleUntil(() => over).then(() => null, (error) => error);
  const load = async () => {
    const uses = [];
    for (let i = 0; i < JOBS; i += 1) {
      const job = await submit(round, i);
      list.push(job);
      uses.push(use(job));
      await sleep(between(0, 200));
    }
    await Promise.all(uses);
  };
  try {
    await Promise.all([load(), wreak()]);
    await rest(list);
  } finally {
    over = true;
  }
  const wrong = await sampling;
  if (wrong !== null) {
    throw wrong;
  }
  await checkRest(round);
  for (const job of list) { // what is paused is tidied up
    await ask(job.user, 'POST', `/v1/jobs/${job.id}/cancel`);
  }
}

test(`${ROUNDS} rounds of kills: nothing is left over, started twice, lost or doubled`, async (t) => {
  t.diagnostic(`HONE_SEED=${SEED}`);
  for (let round = 0; round < ROUNDS; round += 1) {
    try {
      await playRound(round);
    } catch (error) {
      error.message = `HONE_SEED=${SEED}, round ${round}: ${error.message}`;
      throw error;
    }
  }
  t.diagnostic(JSON.stringify({ ...seen, madeRoom: [...jobs.values()].filter((job) => job.madeRoom).length }));
  const kills = seen.honed + seen.launcher + seen.rank;
  assert.ok(kills >= ROUNDS, `only ${kills} kills in ${ROUNDS} rounds`);
});
