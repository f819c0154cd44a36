// cli_queue.test.mjs - hone's verbs for the queue, the machine and those who share them, against the real honed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, request, until, userOf } from '../lib/jobs.mjs';

const program = resolve(process.env.HONE_BUILD || 'build/release', 'hone');
const HOSTILE = '\u001b[31mred\u202eder\n\u0007';
let honed = null;
let folder = null;
let file = null;
let anna = null;

before(async () => {
  honed = await startHoned({ args: ['--cpu-slots', '2'] });
  folder = await mkdtemp(join(tmpdir(), 'hone-cli-queue-'));
  file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
  anna = await userOf(honed, 'anna');
});
after(async () => {
  await honed?.stop();
  await rm(folder, { recursive: true, force: true });
});

// What a failed test left would hold the slots of the next one.
afterEach(async () => {
  const { data } = await honed.call('GET', '/v1/jobs?limit=100&state=queued,starting,running,stopping,paused');
  await cancel(...data);
  await Promise.all(data.map((job) => until(honed, job.id, ended, 60000)));
});

function hone(args, token = honed.token, url = honed.url) {
  const child = spawn(program, args, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, TZ: 'UTC', HONE_URL: url, HONE_TOKEN: token } });
  let [out, err] = ['', ''];
  child.stdout.on('data', (bytes) => { out += bytes; });
  child.stderr.on('data', (bytes) => { err += bytes; });
  return new Promise((done) => child.on('close', (code) => done({ code, out, err })));
}

async function good(args, token, url) {
  const said = await hone(args, token, url);
  assert.equal(said.code, 0, `hone ${args.join(' ')}: ${said.err}`);
  assert.ok(!/[\u0000-\u0009\u000b-\u001f\u007f\u202e]/.test(said.out), 'a control character was printed');
  return said.out;
}

async function bad(args, pattern, token) {
  const said = await hone(args, token);
  assert.notEqual(said.code, 0, said.out);
  assert.match(said.err, pattern);
}

const submit = (name, more) => honed.call('POST', '/v1/jobs', request(file, name, { max_steps: 100000, ...more }));
const get = (id) => honed.call('GET', `/v1/jobs/${id}`);
const cancel = (...jobs) => Promise.all(jobs.map((job) => honed.call('POST', `/v1/jobs/${job.id}/cancel`, { save: false }).catch(() => {})));

test('queue, ls and show say who runs, who waits, for what and until when', async () => {
  const runs = [await submit('ms=20'), await submit('ms=20 other')];
  await Promise.all(runs.map((job) => until(honed, job.id, inState('running'))));
  const [next, later] = [await submit('ms=20 next'), await submit('ms=20 later')];
  await until(honed, later.id, (job) => job.position === 2);

  const queue = await good(['queue']);
  for (const job of runs) {
    assert.match(queue, new RegExp(`^${job.id} +root +normal +running +cpu`, 'm'));
  }
  assert.match(queue, new RegExp(`^ *\\*1 +${next.id} +root +normal +1 .*\\(in .*starts next: waits for 1 device`, 'm'));
  assert.match(queue, new RegExp(`^ +2 +${later.id} `, 'm'));
  assert.match(queue, /^2 running, 2 waiting; \* starts next/m);
  assert.match(await good(['queue', '-n', '1']), /2 waiting \(the first 1 are shown\)/);
  assert.equal(JSON.parse(await good(['queue', '--json'])).object, 'queue');

  const list = await good(['ls']);
  assert.match(list, new RegExp(`^${next.id} .* root +normal .* ms=20 next +in .*: starts next`, 'm'));
  const shown = await good(['show', next.id]);
  assert.match(shown, /class\W+normal/);
  assert.match(shown, /place in line\W+1/);
  assert.match(shown, /expected start\W+\d{4}-\d\d-\d\d \d\d:\d\d \(in /);
  assert.match(await good(['show', runs[0].id]), /devices\W+1: cpu/);

  // what a watcher of a waiting job is told
  const watching = hone(['watch', next.id]);
  await new Promise((done) => setTimeout(done, 1000));
  await cancel(next);
  assert.match((await watching).out, /^queued: starts next: .*; expected to start \d{4}-.* \(in /m);
  await cancel(...runs, later);
  await Promise.all([...runs, later].map((job) => until(honed, job.id, ended, 60000)));
  assert.match(await good(['queue']), /nothing runs and nothing waits/);
});

test('prio, move, edit and clone change where a job stands and what it is', async () => {
  const runs = [await submit('ms=20'), await submit('ms=20')];
  await Promise.all(runs.map((job) => until(honed, job.id, inState('running'))));
  const jobs = [];
  for (const name of ['a', 'b', 'c']) {
    jobs.push(await submit(`ms=20 ${name}`));
  }
  const order = async () => (await honed.call('GET', '/v1/queue')).waiting.map((job) => job.name.at(-1)).join('');
  const becomes = async (expected) => {
    for (let i = 0; i < 200 && (await order()) !== expected; i += 1) {
      await new Promise((done) => setTimeout(done, 50));
    }
    assert.equal(await order(), expected);
  };
  await becomes('abc');
  assert.match(await good(['move', jobs[2].id, 'first']), new RegExp(`^${jobs[2].id} is queued, class normal`));
  await becomes('cab');
  await good(['move', jobs[2].id, 'after', jobs[0].id]);
  await becomes('acb');
  await good(['move', jobs[1].id, 'before', jobs[0].id]);
  await becomes('bac');
  await good(['move', jobs[1].id, 'last']);
  await becomes('acb');
  await bad(['move', jobs[1].id, 'before'], /usage: hone move/);
  await bad(['move', jobs[1].id, 'up'], /usage: hone move/);

  assert.match(await good(['prio', jobs[1].id, 'urgent']), /class urgent/);
  await becomes('bac');
  await bad(['prio', jobs[1].id, 'higher'], /priority/);
  await bad(['prio', jobs[1].id, 'low'], /./, anna.token);

  await good(['edit', jobs[1].id, 'name=12', 'time_limit_s=600', 'begin_at=+2h', 'priority=low']);
  const edited = await get(jobs[1].id);
  assert.deepEqual([edited.name, edited.time_limit_s, edited.priority], ['12', 600, 'low']);
  assert.ok(Math.abs(edited.begin_at - Date.now() / 1000 - 7200) < 60);
  await good(['edit', jobs[1].id, 'priority=null']);
  assert.equal((await get(jobs[1].id)).priority, 'normal');
  await bad(['edit', jobs[1].id, 'begin_at=soon'], /begin_at must be a time/);
  assert.equal(JSON.parse(await good(['edit', jobs[1].id, 'name=b', '--json'])).name, 'b');

  const copy = (await good(['clone', jobs[0].id, 'max_steps=7', 'name=ms=1 copy'])).trim();
  const cloned = await get(copy);
  assert.deepEqual([cloned.cloned_from, cloned.request.max_steps, cloned.request.name], [jobs[0].id, 7, 'ms=1 copy']);
  await cancel(...runs, ...jobs);
  assert.equal((await until(honed, copy, ended, 60000)).state, 'succeeded');
});

test('sweep makes a job for each point of a grid, shows them and cancels them', async () => {
  const words = ['name=ms=20', `training_file=${file}`, 'config={"model_type":"gpt2"}', 'tokenizer_vocab_size=300', 'max_steps=100000'];
  const made = await good(['sweep', ...words, 'learning_rate=[1e-3,3e-4]', 'seed=[1,2]', '--max-running', '1']);
  assert.match(made, /^array-\w+ has 4 jobs$/m);
  const [id] = made.split(' ');
  const array = await honed.call('GET', `/v1/arrays/${id}`);
  assert.deepEqual(array.points.map((point) => [point.values.learning_rate, point.values.seed]), [[0.001, 1], [0.001, 2], [0.0003, 1], [0.0003, 2]]);
  assert.equal(array.max_running, 1);
  assert.match(await good(['sweep', 'ls']), new RegExp(`^${id} +root +4 `, 'm'));
  const shown = await good(['sweep', 'show', id]);
  assert.match(shown, new RegExp(`${array.points[3].job} .*learning_rate=0.0003 seed=2`));
  assert.match(await good(['show', array.points[1].job]), new RegExp(`sweep\\W+${id}, point `));
  await good(['sweep', 'cap', id, '2']);
  assert.equal((await honed.call('GET', `/v1/arrays/${id}`)).max_running, 2);
  await good(['sweep', 'cancel', id, '--no-save']);
  for (const point of array.points) {
    assert.equal((await until(honed, point.job, ended, 60000)).state, 'cancelled');
  }
  await bad(['sweep', ...words], /several values/);
  await bad(['sweep', ...words, 'seed=[]'], /seed lists no value/);
  await bad(['sweep', 'everything'], /usage: hone sweep/);
});

test('machine lists devices and links; administrators take a device out and put it back', async () => {
  const { devices } = await honed.call('GET', '/v1/machine');
  const slots = devices.filter((device) => device.kind === 'cpu');
  const listed = await good(['machine']);
  for (const device of devices) {
    assert.match(listed, new RegExp(`^${device.id} `, 'm'));
  }
  assert.match(listed, /^memory\W+.* free$/m);
  const links = await good(['machine', '--topology']);
  assert.match(links, new RegExp(`^0 ${devices[0].id} +X`, 'm'));
  assert.equal(JSON.parse(await good(['machine', '--json'])).object, 'machine');

  await bad(['quarantine', slots[1].id, 'x'], /./, anna.token);
  assert.match(await good(['quarantine', slots[1].id, 'the fan is loud']), /is quarantined/);
  assert.match(await good(['machine']), /quarantined .*the fan is loud/);
  assert.match(await good(['release', slots[1].id]), /is free/);
});

test('reservations are made by words for times, listed and ended', async () => {
  const { devices } = await honed.call('GET', '/v1/machine');
  const slot = devices.find((device) => device.kind === 'cpu').id;
  const id = (await good(['reserve', '+2h', '+4h', slot, '--user', 'anna', '--note', 'a talk'])).trim();
  const [made] = (await honed.call('GET', '/v1/reservations')).data;
  assert.deepEqual([made.id, made.devices, made.user, made.note, made.to_at - made.from_at], [id, [slot], 'anna', 'a talk', 7200]);
  assert.match(await good(['reservations'], anna.token), new RegExp(`^${id} .*\\(in 1 h 59 min|2 h\\).* ${slot} +anna +a talk +root`, 'm'));
  await bad(['reserve', '+2h', '+1h', 'all'], /TO must be later/);
  await bad(['reserve', 'soon', '+1h', 'all'], /FROM must be a time/);
  await bad(['reserve', '+5h', '+6h', 'all'], /./, anna.token);
  assert.match(await good(['unreserve', id]), /gone/);
  assert.match(await good(['reservations']), /no reservations/);
});

test('users have roles and limits, and what they did is in the audit log', async () => {
  await good(['adduser', 'vera', '--role', 'viewer', '--out', 'vera.token']);
  await bad(['adduser', 'otto', '--role', 'viewer', '--admin', '--out', 'otto.token'], /different things/);
  const vera = (await readFile(join(folder, 'vera.token'), 'utf8')).trim();
  assert.match(await good(['queue'], vera), /waiting|nothing/);
  await bad(['prio', 'job-1', 'low'], /./, vera);
  assert.match(await good(['user', 'anna', 'max_running=2', 'weight=3']), /^anna +member +3 +0 of 2 /m);
  const users = await good(['users']);
  assert.match(users, /^vera +viewer /m);
  assert.match(users, /^anna +member +3 +0 of 2 /m);
  await good(['user', 'anna', 'max_running=null', 'disabled=true']);
  assert.match(await good(['users']), /^anna .* disabled$/m);
  await bad(['users'], /./, vera);
  const log = await good(['audit', '-n', '50']);
  assert.match(log, / root .* anna/);
  const mine = JSON.parse(await good(['audit', '--user', 'root', '-n', '3', '--json']));
  assert.equal(mine.data.length, 3);
  assert.ok(mine.data.every((row) => row.user === 'root'));
});

// A server that answers every path with `answers[path]`.
async function stub(answers, use) {
  const server = createServer((rq, rp) => {
    const answer = answers[rq.url.split('?')[0]];
    rp.writeHead(answer === undefined ? 404 : 200, { 'Content-Type': 'application/json' });
    rp.end(JSON.stringify(answer ?? {}));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

test('texts of others never reach the terminal as they are, and no answer makes hone fall over', async () => {
  const row = { id: HOSTILE, job: HOSTILE, name: HOSTILE, owner: HOSTILE, priority: HOSTILE, state: HOSTILE, reason: HOSTILE, devices: [HOSTILE], user: HOSTILE, note: HOSTILE };
  const list = { object: 'list', data: [row], has_more: false };
  const array = { ...row, counts: { [HOSTILE]: 2 }, best: { job: HOSTILE, eval_loss: 1 }, points: [{ ...row, values: { [HOSTILE]: HOSTILE } }] };
  const device = { ...row, job: row, processes: [{ pid: 1, user: HOSTILE, command: HOSTILE, bytes: 1, ours: false }] };
  await stub({
    '/v1/queue': { running: [row], waiting: [{ ...row, position: 1 }], head: { job: HOSTILE } },
    '/v1/machine': { name: HOSTILE, processor: HOSTILE, source: HOSTILE, devices: [device], links: [[{ link: HOSTILE }]] },
    '/v1/reservations': list, '/v1/users': list, '/v1/audit': list, '/v1/jobs': list,
    '/v1/arrays': { ...list, data: [array] }, '/v1/arrays/a': array,
  }, async (url) => {
    for (const args of [['queue'], ['machine'], ['machine', '--topology'], ['reservations'], ['users'], ['audit'], ['ls'], ['sweep', 'ls'], ['sweep', 'show', 'a']]) {
      assert.match(await good(args, undefined, url), /\\x1b\[31mred\\u202eder\\n\\x07/, args.join(' '));
    }
  });
  const wrong = { running: 7, waiting: [7, null, {}], head: [], devices: { a: 1 }, links: 'x', data: [null, 7], points: [[]], counts: [], now: 'x' };
  await stub(Object.fromEntries(['queue', 'machine', 'reservations', 'users', 'audit', 'arrays', 'arrays/a'].map((path) => [`/v1/${path}`, wrong])), async (url) => {
    for (const args of [['queue'], ['machine'], ['machine', '--topology'], ['reservations'], ['users'], ['audit'], ['sweep', 'ls'], ['sweep', 'show', 'a']]) {
      assert.ok((await hone(args, undefined, url)).code !== null, args.join(' '));
    }
  });
});
