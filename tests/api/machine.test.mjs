// machine.test.mjs - what the machine is: cards of a driver, shipped descriptions, quarantine, the self test.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';

const GIB = 2 ** 30;
const WAIT_MS = 30000;
let home = null;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'hone-machine-'));
});
after(() => rm(home, { recursive: true, force: true }));

async function withHoned(args, use) {
  const honed = await startHoned({ args });
  try {
    await use(honed);
  } finally {
    await honed.stop();
  }
}

const machineOf = (honed) => honed.call('GET', '/v1/machine');

// The machine once it is as wanted.
async function machineWhen(honed, wanted) {
  const end = Date.now() + WAIT_MS;
  let machine = await machineOf(honed);
  while (!wanted(machine)) {
    assert.ok(Date.now() < end, JSON.stringify(machine.devices));
    await new Promise((done) => setTimeout(done, 100));
    machine = await machineOf(honed);
  }
  return machine;
}

async function put(path, value) {
  await writeFile(`${path}.new`, JSON.stringify(value));
  await rename(`${path}.new`, path); // never half of it
}

const refused = (status, pattern) => (error) => error.status === status && pattern.test(error.body);

test('cards that the driver tells of stand behind the CPU slots, and one that is lost stays out', async () => {
  const path = join(home, 'cards.json');
  const card = (id, bus, more) => ({ id, bus: `0000:${bus}:00.0`, name: 'Test GPU', memory_bytes: 8 * GIB, capability: [9, 0], ...more });
  const cards = { devices: [card('GPU-a', '10', { processes: [{ pid: 1, bytes: GIB }] }), card('GPU-b', '20')], links: [['X', 'NV4'], ['NV4', 'X']] };
  await put(path, cards);
  process.env.HONE_NVML = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'tests/fake_nvml.so');
  process.env.FAKE_NVML = path;
  try {
    await withHoned(['--cpu-slots', '2'], async (honed) => {
      const machine = await machineOf(honed);
      assert.equal(machine.source, 'probed');
      assert.deepEqual(machine.devices.map((one) => one.id), ['cpu0', 'cpu1', 'GPU-a', 'GPU-b']);
      assert.deepEqual(machine.devices.map((one) => one.state), ['free', 'free', 'unusable', 'unusable']);
      assert.match(machine.devices[2].reason, /CUDA/);
      assert.equal(machine.links[2][3].link, 'NV4');
      assert.deepEqual(machine.devices[2].processes.map((one) => [one.pid, one.bytes, one.ours]), [[1, GIB, false]]);
      cards.devices[1].fault = 'lost';
      await put(path, cards);
      const less = await machineWhen(honed, (now) => now.devices[3].state === 'lost');
      assert.match(less.devices[3].reason, /bus/);
      assert.equal(less.devices[2].state, 'unusable');
      assert.match(honed.output(), /GPU-b is quarantined/);
      const quarantines = () => honed.output().match(/GPU-a is quarantined/g)?.length ?? 0;
      cards.devices[0].ecc = { on: true, errors: 2 };
      await put(path, cards);
      await machineWhen(honed, () => quarantines() === 1);
      await honed.call('POST', '/v1/devices/GPU-a/release'); // the administrator knows of those two
      await honed.restart();
      assert.equal((await machineOf(honed)).devices[2].ecc.errors, 2);
      assert.equal(quarantines(), 1);
      cards.devices[0].ecc.errors = 3;
      await put(path, cards);
      await machineWhen(honed, () => quarantines() === 2);
    });
  } finally {
    delete process.env.HONE_NVML;
    delete process.env.FAKE_NVML;
  }
});

test('a shipped description is found by its name, and its devices can be taken out of use', async () => {
  await withHoned(['--machine', 'mainstream'], async (honed) => {
    const machine = await machineOf(honed);
    assert.equal(machine.source, 'file');
    assert.deepEqual(machine.devices.map((one) => one.state), ['free', 'free', 'free', 'free']);
    assert.deepEqual(machine.links[0].map((one) => one.link), ['X', 'NV12', 'SYS', 'SYS']);
    assert.deepEqual(machine.devices.map((one) => one.index), [0, 1, 2, 3]);
    assert.equal(machine.self_test, null);
    const { id } = machine.devices[1];
    const out = await honed.call('POST', `/v1/devices/${id}/quarantine`, { reason: 'its fan rattles' });
    assert.equal(out.state, 'quarantined');
    assert.match(out.reason, /its fan rattles; by /);
    await honed.restart();
    assert.deepEqual((await machineOf(honed)).devices.map((one) => one.state), ['free', 'quarantined', 'free', 'free']);
    assert.equal((await honed.call('POST', `/v1/devices/${id}/release`)).state, 'free');
    await assert.rejects(honed.call('POST', '/v1/devices/GPU-x/release'), refused(404, /no device/));
    for (const reason of [undefined, '', 3, 'a\nb', 'x'.repeat(200)]) {
      await assert.rejects(honed.call('POST', `/v1/devices/${id}/quarantine`, { reason }), refused(400, /reason/));
    }
    await assert.rejects(honed.call('POST', '/v1/machine/self_test'), refused(409, /file/));
  });
});

test('a fault of a device quarantines it until an administrator releases it', async () => {
  const path = join(home, 'fault.json');
  const machine = { devices: [{ id: 'a', memory_bytes: GIB }, { id: 'b', memory_bytes: GIB }] };
  await put(path, machine);
  await withHoned(['--machine', path], async (honed) => {
    machine.devices[0].fault = 'ecc';
    await put(path, machine);
    await machineWhen(honed, (now) => now.devices[0].state === 'quarantined');
    delete machine.devices[0].fault;
    machine.devices[1].temperature_c = 55;
    await put(path, machine);
    const now = await machineWhen(honed, ({ devices }) => devices[1].temperature_c === 55);
    assert.equal(now.devices[0].state, 'quarantined');
    assert.match(now.devices[0].reason, /can't correct/);
    assert.equal((await honed.call('POST', '/v1/devices/a/release')).state, 'free');
    assert.equal((await machineOf(honed)).devices[0].state, 'free');
  });
});

test('the self test measures what slots copy, once, and again when it is asked', async () => {
  await withHoned(['--cpu-slots', '2'], async (honed) => {
    const { self_test: first } = await machineWhen(honed, (now) => now.self_test !== null);
    assert.equal(first.timed_out, false);
    const again = await honed.call('POST', '/v1/machine/self_test');
    assert.ok(again.self_test.ran_at >= first.ran_at);
    for (const row of again.links) {
      assert.ok(row.every((one) => one.gb_per_s > 0));
    }
    const kept = JSON.parse(await readFile(join(honed.folder, 'machine.json'), 'utf8'));
    assert.equal(kept.ran_at, again.self_test.ran_at);
    await honed.restart();
    assert.deepEqual((await machineOf(honed)).self_test, again.self_test);
  });
});

test('what is wrong with a description is said at the start', async () => {
  const path = join(home, 'wrong.json');
  await put(path, { devices: [{ id: 'a', memory_bytes: '80 GB' }] });
  await assert.rejects(startHoned({ args: ['--machine', path] }), /memory_bytes/);
  await assert.rejects(startHoned({ args: ['--machine', 'no-such-machine'] }), /no-such-machine/);
});
