// queue.test.mjs - several jobs on several devices: side by side, in order, making room, tried again, on cards that get lost.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, inState, refused, request, until, userOf } from '../lib/jobs.mjs';

const WAIT = 60000;
const GIB = 2 ** 30;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let home = null;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'hone-queue-'));
});
after(() => rm(home, { recursive: true, force: true }));

// A honed with what `use` needs, stopped in any case.
async function withHoned(args, use) {
  const honed = await startHoned({ args });
  try {
    const file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
    const submit = (name, more) => honed.call('POST', '/v1/jobs', request(file, name, { max_steps: 100000, ...more }));
    await use(honed, submit, file);
  } finally {
    await honed.stop();
  }
}

const queueOf = (honed) => honed.call('GET', '/v1/queue');
const running = (honed, job) => until(honed, job.id, inState('running'), WAIT);
const cancel = (honed, job) => honed.call('POST', `/v1/jobs/${job.id}/cancel`);

// A machine of so many GPUs, in a file that can be changed while honed runs.
async function machineFile(name, count) {
  const path = join(home, `${name}.json`);
  const devices = Array.from({ length: count }, (_, i) => ({
    id: `GPU-${i}`, name: 'Test GPU', kind: 'gpu', memory_bytes: 80 * GIB, reserved_bytes: GIB, used_bytes: GIB, free_bytes: 79 * GIB,
  }));
  const it = {
    path,
    devices,
    write: async () => {
      await writeFile(`${path}.new`, JSON.stringify({ name, devices }));
      await rename(`${path}.new`, path); // never half of it
    },
  };
  await it.write();
  return it;
}

test('two jobs run side by side on two slots, a third waits and says for what', async () => {
  await withHoned(['--cpu-slots', '2'], async (honed, submit) => {
    const jobs = [await submit('ms=20'), await submit('ms=20')];
    for (const job of jobs) {
      await running(honed, job);
    }
    const third = await submit('ms=20', { max_steps: 5 });
    const waiting = await until(honed, third.id, (job) => job.position === 1);
    assert.equal(waiting.state, 'queued');
    assert.equal(waiting.reason_code, 'devices');
    assert.match(waiting.reason, /starts next: waits for 1 device/);
    assert.ok(waiting.expected_start_at >= waiting.created_at);
    assert.deepEqual(waiting.device_ids, []);
    const fourth = await submit('ms=20', { max_steps: 5 });
    assert.match((await until(honed, fourth.id, (job) => job.position === 2)).reason, /1 job is before it/);

    const queue = await queueOf(honed);
    assert.deepEqual(queue.running.map((job) => job.job).sort(), jobs.map((job) => job.id).sort());
    assert.equal(new Set(queue.running.flatMap((job) => job.devices)).size, 2);
    assert.ok(queue.running.every((job) => job.ends_by_at > queue.now && job.owner === 'root'));
    assert.deepEqual(queue.waiting.map((job) => [job.position, job.job]), [[1, third.id], [2, fourth.id]]);
    assert.equal(queue.waiting[0].reason, waiting.reason);
    assert.equal(queue.head.job, third.id);
    const [me] = queue.users;
    assert.deepEqual([me.name, me.running, me.devices_held], ['root', 2, 2]);

    // what runs got the cores of its slot and no others
    const plans = await Promise.all(jobs.map(async (job) => JSON.parse(await readFile(join(honed.folder, 'jobs', job.id, 'attempts/1/plan.json')))));
    assert.ok(plans.every((plan) => plan.cores.length > 0));

    await cancel(honed, jobs[0]);
    assert.equal((await until(honed, third.id, ended, WAIT)).state, 'succeeded');
    assert.equal((await until(honed, fourth.id, ended, WAIT)).state, 'succeeded');
    assert.equal((await honed.call('GET', `/v1/jobs/${jobs[1].id}`)).state, 'running');
    const usage = (await queueOf(honed)).users[0];
    assert.equal(usage.devices_held, 1);
  });
});

test('a job that asks for two devices gets both or none', async () => {
  await withHoned(['--cpu-slots', '2'], async (honed, submit) => {
    const one = await submit('ms=20');
    await running(honed, one);
    const both = await submit('ms=20', { devices: 2, max_steps: 40 });
    assert.match((await until(honed, both.id, (job) => job.position === 1)).reason, /2 devices/);
    // a later job may use the other slot only if it is gone before the first one must be
    const late = await submit('ms=20', { max_steps: 3, time_limit_s: 60 });
    assert.equal((await until(honed, late.id, ended, WAIT)).state, 'succeeded');
    assert.equal((await honed.call('GET', `/v1/jobs/${both.id}`)).state, 'queued');
    await cancel(honed, one);
    const got = await running(honed, both);
    assert.equal(got.device_ids.length, 2);
    assert.equal((await until(honed, both.id, ended, WAIT)).state, 'succeeded');
  });
});

test('an idle job saves and makes room for a better one, and goes on afterwards', async () => {
  await withHoned(['--cpu-slots', '1', '--preempt-after-s', '0'], async (honed, submit) => {
    const idle = await submit('ms=20 save=100000', { priority: 'idle' });
    await until(honed, idle.id, (job) => job.step > 5, WAIT);
    const better = await submit('ms=20', { max_steps: 20 });
    const back = await until(honed, idle.id, (job) => job.state === 'queued' && job.back !== null, WAIT);
    assert.equal(back.back, `made room for ${better.id}`);
    assert.match(back.reason, /^made room for job-.*; /);
    assert.equal(back.checkpoints, 1);
    assert.equal((await until(honed, better.id, ended, WAIT)).state, 'succeeded');
    const again = await running(honed, idle);
    assert.equal(again.attempt, 2);
    const [resumed] = (await eventsOf(honed, idle.id)).filter((event) => event.type === 'resumed');
    assert.ok(resumed.from_step > 5);
    await cancel(honed, idle);
  });
});

test('a job whose device is lost goes on on another; the lost one stays out', async () => {
  const machine = await machineFile('lost', 2);
  await withHoned(['--machine', machine.path], async (honed, submit) => {
    const job = await submit('ms=20 save=10');
    const before = await until(honed, job.id, (now) => now.checkpoints > 0, WAIT);
    const [held] = before.device_ids;
    machine.devices.find((device) => device.id === held).fault = 'lost';
    await machine.write();
    const after = await until(honed, job.id, (now) => now.attempt === 2 && now.state === 'running', WAIT);
    assert.notEqual(after.device_ids[0], held);
    assert.ok(after.step > 5 || (await eventsOf(honed, job.id)).some((event) => event.type === 'resumed'));
    const two = await submit('ms=20', { devices: 2 });
    assert.equal((await until(honed, two.id, (now) => now.position > 0)).reason_code, 'missing');
    await cancel(honed, two);
    await cancel(honed, job);
    await until(honed, job.id, ended, WAIT);
  });
});

test('memory that others hold is waited for, and used when they are gone', async () => {
  const machine = await machineFile('foreign', 1);
  const [device] = machine.devices;
  device.used_bytes = 79 * GIB;
  device.free_bytes = GIB;
  device.processes = [{ pid: 4242, user: 'ada', command: 'python', bytes: 78 * GIB }];
  await machine.write();
  await withHoned(['--machine', machine.path], async (honed, submit) => {
    const job = await submit('ms=20', { max_steps: 5 });
    const waiting = await until(honed, job.id, (now) => now.reason_code === 'busy', WAIT);
    assert.match(waiting.reason, /GPU-0 is busy: processes outside Hone/);
    device.used_bytes = GIB;
    device.free_bytes = 79 * GIB;
    device.processes = [];
    await machine.write();
    assert.equal((await until(honed, job.id, ended, WAIT)).state, 'succeeded');
  });
});

test('memory that nobody says who holds is waited for, by the job that needs it alone', async () => {
  const machine = await machineFile('short', 2);
  machine.devices[0].free_bytes = 0; // its processes are not told
  await machine.write();
  await withHoned(['--machine', machine.path], async (honed, submit) => {
    const two = await submit('ms=20', { devices: 2, max_steps: 5 });
    const waiting = await until(honed, two.id, (now) => now.reason_code === 'busy', WAIT);
    assert.match(waiting.reason, /^GPU-0 is busy/);
    assert.equal(waiting.expected_start_at, null);
    assert.equal((await honed.call('GET', '/v1/queue')).head, null);
    const one = await submit('ms=20', { max_steps: 5 });
    assert.deepEqual((await until(honed, one.id, ended, WAIT)).state, 'succeeded');
    machine.devices[0].free_bytes = 79 * GIB;
    await machine.write();
    assert.equal((await until(honed, two.id, ended, WAIT)).state, 'succeeded');
  });
});

test('no start is promised on memory that others hold under a run', async () => {
  const machine = await machineFile('under', 1);
  const [device] = machine.devices;
  await withHoned(['--machine', machine.path], async (honed, submit) => {
    await running(honed, await submit('ms=20'));
    const next = await submit('ms=20', { max_steps: 5 });
    const head = await until(honed, next.id, (now) => now.reason_code === 'devices', WAIT);
    assert.ok(head.expected_start_at > 0);
    device.free_bytes = 0;
    await machine.write();
    const waiting = await until(honed, next.id, (now) => now.reason_code === 'busy', WAIT);
    assert.equal(waiting.expected_start_at, null);
    assert.equal((await queueOf(honed)).head, null);
    device.free_bytes = 79 * GIB;
    await machine.write();
    assert.ok((await until(honed, next.id, (now) => now.reason_code === 'devices', WAIT)).expected_start_at > 0);
  });
});

test('a job is on devices of one kind, and waits for that many of one', async () => {
  const machine = await machineFile('kinds', 3);
  machine.devices[1].kind = 'cpu';
  machine.devices[2].kind = 'cpu';
  machine.devices[2].fault = 'lost';
  await machine.write();
  await withHoned(['--machine', machine.path], async (honed, submit) => {
    const two = await submit('ms=20', { devices: 2 });
    const waiting = await until(honed, two.id, (now) => now.reason_code === 'missing', WAIT);
    assert.match(waiting.reason, /^needs 2 devices with .* GiB each, and only 1 is in order/);
    const no = await refused(submit('ms=20', { devices: 3, global_batch_size: 6 }));
    assert.match(no.message, /asks for 3 devices and this machine has 2 of one kind/);
  });
});

test('a device that is not free after its run is quarantined, and the job is over', async () => {
  const machine = await machineFile('drain', 2);
  await withHoned(['--machine', machine.path, '--drain-s', '3'], async (honed, submit) => {
    const job = await submit('ms=20');
    const [held] = (await running(honed, job)).device_ids;
    const device = machine.devices.find((one) => one.id === held);
    device.used_bytes = 40 * GIB;
    device.free_bytes = 40 * GIB;
    await machine.write();
    await sleep(1500); // it is read once a second
    await cancel(honed, job);
    const draining = await until(honed, job.id, (now) => now.state === 'stopping' && /memory/.test(now.reason), WAIT);
    assert.deepEqual(draining.device_ids, [held]);
    assert.equal((await until(honed, job.id, ended, WAIT)).state, 'cancelled');
    const next = await submit('ms=20');
    assert.notEqual((await running(honed, next)).device_ids[0], held);
    const two = await submit('ms=20', { devices: 2 });
    assert.equal((await until(honed, two.id, (now) => now.position > 0)).reason_code, 'missing');
  });
});

test('what fails with the machine is tried again later, what fails by itself never', async () => {
  await withHoned(['--retry-s', '2'], async (honed, submit) => {
    const lost = await submit('ms=20 crash_at=5 save=2 once', { max_steps: 10 });
    const waits = await until(honed, lost.id, (job) => job.retry_at !== null, WAIT);
    assert.equal(waits.state, 'queued');
    assert.match(waits.back, /SIGSEGV.*goes on from step 4/);
    const done = await until(honed, lost.id, ended, WAIT);
    assert.deepEqual([done.state, done.attempt, done.retry_at], ['succeeded', 2, null]);
    for (const [name, code] of [['fail_at=3', 'out_of_memory'], ['nan_at=3', 'numerical_divergence'], ['bad_file', 'invalid_training_file']]) {
      const job = await submit(`ms=5 ${name}`, { max_steps: 8 });
      const failed = await until(honed, job.id, ended, WAIT);
      assert.deepEqual([failed.state, failed.attempt, failed.error.code], ['failed', 1, code]);
    }
  });
});

test('a rank that dies twice before its first step is not tried a third time', async () => {
  await withHoned([], async (honed, submit) => {
    const job = await submit('ms=5 crash_at=0', { max_steps: 10 });
    const failed = await until(honed, job.id, ended, WAIT);
    assert.deepEqual([failed.error.code, failed.attempt], ['worker_lost', 2]);
    assert.match(failed.error.message, /SIGSEGV.*not tried again/);
  });
});

test('jobs wait for jobs: they start when those have ended as asked, and are cancelled when they can not', async () => {
  await withHoned([], async (honed, submit) => {
    const first = await submit('ms=20', { max_steps: 30 });
    const bad = await submit('ms=5 nan_at=2', { max_steps: 8 });
    const child = await submit('ms=5', { max_steps: 3, depends_on: `${first.id}` });
    const lost = await submit('ms=5', { max_steps: 3, depends_on: `afterok:${bad.id}` });
    const grandchild = await submit('ms=5', { max_steps: 3, depends_on: `afterok:${lost.id}` });
    const rescue = await submit('ms=5', { max_steps: 3, depends_on: `afternotok:${bad.id}` });
    const waiting = await until(honed, child.id, (job) => job.reason_code === 'dependency' || job.state !== 'queued');
    assert.match(waiting.reason, new RegExp(`waits for ${first.id}`));
    assert.deepEqual(waiting.depends_on, [{ job: first.id, kind: 'afterok' }]);
    assert.equal((await until(honed, child.id, ended, WAIT)).state, 'succeeded');
    assert.equal((await until(honed, rescue.id, ended, WAIT)).state, 'succeeded');
    for (const job of [lost, grandchild]) {
      const over = await until(honed, job.id, ended, WAIT);
      assert.equal(over.state, 'cancelled');
      assert.match(over.reason, /job-\w+ is (failed|cancelled), and this job waited until it has succeeded/);
    }
  });
});

test('the queue shows others that a private job is there, and nothing of it', async () => {
  await withHoned([], async (honed, submit) => {
    const secret = await submit('ms=20 hush', { visibility: 'private' });
    await running(honed, secret);
    const bob = await userOf(honed, 'bob');
    const seen = await bob.call('GET', '/v1/queue');
    assert.equal(seen.running.length, 1);
    assert.deepEqual([seen.running[0].job, seen.running[0].name, seen.running[0].owner], [null, null, null]);
    assert.ok(!JSON.stringify(seen).includes('hush'));
    const file = (await bob.upload('b.txt', 'text\n'.repeat(100))).id;
    const mine = await bob.call('POST', '/v1/jobs', request(file, 'ms=5', { max_steps: 3 }));
    const waiting = await until({ call: bob.call }, mine.id, (job) => job.position === 1);
    assert.match(waiting.reason, /a private job/);
    assert.ok(!waiting.reason.includes(secret.id));
    await cancel(honed, secret);
    assert.equal((await until({ call: bob.call }, mine.id, ended, WAIT)).state, 'succeeded');
  });
});

test('honed killed between the rows of a start and its process: the run is started once', async () => {
  await withHoned(['--cpu-slots', '2'], async (honed, submit) => {
    for (let round = 0; round < 5; round += 1) {
      const jobs = await Promise.all([submit('ms=10', { max_steps: 20 }), submit('ms=10', { max_steps: 20 })]);
      await sleep(round * 15);
      await honed.kill();
      await honed.start();
      for (const { id } of jobs) {
        const done = await until(honed, id, ended, WAIT);
        assert.deepEqual([done.state, done.attempt], ['succeeded', 1]);
        const starts = (await eventsOf(honed, id)).filter((event) => event.type === 'started');
        assert.equal(starts.length, 1);
      }
    }
    assert.deepEqual((await queueOf(honed)).running, []);
  });
});
