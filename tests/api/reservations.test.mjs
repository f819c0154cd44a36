// reservations.test.mjs - devices kept for a user or for nobody: who may, what is refused, what is told.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, refused, request, until, userOf } from '../lib/jobs.mjs';

let honed = null;
let ann = null;
let file = null;
const ids = ['cpu0', 'cpu1'];
const now = () => Math.floor(Date.now() / 1000);

before(async () => {
  honed = await startHoned({ args: ['--cpu-slots', '2', '--grace-seconds', '2'] });
  ann = await userOf(honed, 'ann');
  file = (await ann.upload('ann.txt', 'a training text\n'.repeat(100))).id;
});
after(() => honed?.stop());

const reserve = (body, user = honed) => user.call('POST', '/v1/reservations', body);
const clear = async () => {
  for (const one of (await honed.call('GET', '/v1/reservations')).data) {
    await honed.call('DELETE', `/v1/reservations/${one.id}`);
  }
};

test('an administrator reserves devices, everybody sees it', async () => {
  const made = await reserve({ from_at: now() + 1000, to_at: now() + 2000, devices: [ids[0]], user: 'ann', note: 'thesis' });
  assert.match(made.id, /^resv-[a-z2-7]{14}$/);
  assert.deepEqual([made.object, made.devices, made.user, made.note, made.overlaps], ['reservation', [ids[0]], 'ann', 'thesis', []]);
  const { data } = await ann.call('GET', '/v1/reservations');
  const { overlaps, ...rest } = made;
  assert.deepEqual(data, [rest]);
  assert.deepEqual(overlaps, []);
  assert.equal((await refused(ann.call('DELETE', `/v1/reservations/${made.id}`))).status, 403);
  assert.equal((await honed.call('DELETE', `/v1/reservations/${made.id}`)).deleted, true);
  assert.equal((await refused(honed.call('DELETE', `/v1/reservations/${made.id}`))).status, 404);
  assert.deepEqual((await ann.call('GET', '/v1/reservations')).data, []);
});

test('reservations that make no sense are refused by field', async () => {
  const good = { from_at: now() + 1000, to_at: now() + 2000, devices: 'all' };
  const bad = [
    [{ to_at: undefined }, 400, 'to_at'], [{ to_at: now() - 5 }, 400, 'to_at'], [{ to_at: good.from_at }, 400, 'to_at'], [{ to_at: now() + 400 * 86400 }, 400, 'to_at'],
    [{ from_at: now() - 3600 }, 400, 'from_at'], [{ from_at: 'now' }, 400, 'from_at'], [{ from_at: 1e300 }, 400, 'from_at'], [{ devices: [] }, 400, 'devices'],
    [{ devices: ['nothing'] }, 404, 'devices'], [{ devices: [ids[0], ids[0]] }, 400, 'devices'], [{ devices: { a: 1 } }, 400, 'devices'], [{ devices: undefined }, 400, 'devices'],
    [{ devices: [null] }, 400, 'devices'], [{ user: 'nobody-here' }, 404, 'user'], [{ user: 1 }, 400, 'user'], [{ note: 'x'.repeat(201) }, 400, 'note'],
    [{ note: 'a\u202eb' }, 400, 'note'], [{ id: 'resv-a' }, 400, 'id'],
  ];
  for (const [change, status, param] of bad) {
    const error = await refused(reserve({ ...good, ...change }), change);
    assert.equal(error.status, status, `${JSON.stringify(change)}: ${error.message}`);
    assert.equal(error.param, param, error.message);
  }
  assert.equal((await refused(reserve(good, ann))).status, 403);
  assert.deepEqual((await honed.call('GET', '/v1/reservations')).data, []);
});

test('a device is reserved once at a time', async () => {
  const first = await reserve({ from_at: now() + 1000, to_at: now() + 2000, devices: [ids[0]] });
  const error = await refused(reserve({ from_at: now() + 1500, to_at: now() + 2500, devices: 'all' }));
  assert.equal(error.status, 409);
  assert.ok(error.message.includes(first.id) && error.message.includes(ids[0]));
  await reserve({ from_at: now() + 1500, to_at: now() + 2500, devices: ids.slice(1) });
  await reserve({ from_at: now() + 3000, to_at: now() + 3500, devices: 'all' });
  await clear();
});

test('runs that may last into a reservation go on and are told', async () => {
  const job = await ann.call('POST', '/v1/jobs', request(file, 'ms=20', { max_steps: 100000, time_limit_s: 3600 }));
  await until(honed, job.id, inState('running'));
  const made = await reserve({ to_at: now() + 600, devices: 'all' });
  assert.deepEqual(made.overlaps.map((run) => [run.job, run.owner]), [[job.id, 'ann']]);
  assert.ok(made.overlaps[0].ends_by_at > now() + 3000);
  await clear();
  const own = await reserve({ to_at: now() + 600, devices: 'all', user: 'ann' });
  assert.deepEqual(own.overlaps, []);
  await clear();
  assert.equal((await ann.call('GET', `/v1/jobs/${job.id}`)).state, 'running');
  await ann.call('POST', `/v1/jobs/${job.id}/cancel`, {});
  await until(honed, job.id, ended);
});

test('a job that would last into a reservation waits, and starts when it is ended', async () => {
  await reserve({ from_at: now() + 30, to_at: now() + 3600, devices: 'all', note: 'maintenance' });
  const job = await ann.call('POST', '/v1/jobs', request(file, 'ms=1', { max_steps: 5, time_limit_s: 600 }));
  await new Promise((done) => setTimeout(done, 1500));
  const waits = await ann.call('GET', `/v1/jobs/${job.id}`);
  assert.equal(waits.state, 'queued');
  assert.match(waits.reason, /reserv/);
  await clear();
  assert.equal((await until(honed, job.id, ended)).state, 'succeeded');
});
