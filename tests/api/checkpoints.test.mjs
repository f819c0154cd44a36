// checkpoints.test.mjs - lists, single files, parts of them, and what must not be reached through them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, request, until } from '../lib/jobs.mjs';

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
let honed = null;
let job = null;
let base = null;
const get = (path, headers = {}, method = 'GET') =>
  fetch(`${honed.url}${path}`, { method, headers: { Authorization: `Bearer ${honed.token}`, ...headers } });

before(async () => {
  honed = await startHoned();
  const file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
  job = await honed.call('POST', '/v1/jobs', request(file, 'ms=2 save=10', { max_steps: 60, keep_checkpoints: 3 }));
  job = await until(honed, job.id, ended);
  base = `/v1/jobs/${job.id}/checkpoints`;
});
after(() => honed?.stop());

test('the list names what is kept, the newest first, each file with its hash', async () => {
  assert.equal(job.state, 'succeeded');
  const { data, has_more: more } = await honed.call('GET', base);
  assert.deepEqual(data.map((one) => one.step), [60, 50, 40]);
  assert.equal(more, false);
  assert.deepEqual(data.map((one) => one.final), [true, false, false]);
  assert.deepEqual(data.map((one) => one.best), [false, false, true]);
  for (const one of data) {
    assert.equal(one.id, `${job.id}:${one.step}`);
    assert.equal(one.object, 'checkpoint');
    const manifest = Buffer.from(await (await get(`${base}/${one.step}/manifest.json`)).arrayBuffer());
    assert.equal(sha256(manifest), one.sha256);
    assert.deepEqual(JSON.parse(manifest).files, one.files.map(({ name, bytes, sha256: hash }) => ({ name, bytes, sha256: hash })));
    let bytes = 0;
    for (const file of one.files) {
      const reply = await get(file.url);
      const body = Buffer.from(await reply.arrayBuffer());
      bytes += body.length;
      assert.equal(body.length, file.bytes);
      assert.equal(sha256(body), file.sha256);
      assert.equal(reply.headers.get('etag'), `"${file.sha256}"`);
      assert.equal(reply.headers.get('content-disposition'), `attachment; filename="${file.name}"`);
      assert.equal(reply.headers.get('content-type'), 'application/octet-stream');
    }
    assert.equal(one.bytes, bytes);
    assert.deepEqual(await honed.call('GET', `${base}/${one.step}`), one);
  }
  assert.deepEqual(await honed.call('GET', `${base}/latest`), data[0]);
  const page = await honed.call('GET', `${base}?limit=2`);
  assert.deepEqual((await honed.call('GET', `${base}?limit=2&after=${page.last_id}`)).data, data.slice(2));
  assert.deepEqual((await honed.call('GET', `${base}?order=asc`)).data, [...data].reverse());
});

test('a broken download is continued, never mixed with another checkpoint', async () => {
  const [{ files }] = (await honed.call('GET', base)).data;
  const weights = files.find((file) => file.name === 'model.safetensors');
  const whole = Buffer.from(await (await get(weights.url)).arrayBuffer());
  const rest = await get(weights.url, { Range: 'bytes=50-', 'If-Range': `"${weights.sha256}"` });
  assert.equal(rest.status, 206);
  assert.ok(Buffer.from(await rest.arrayBuffer()).equals(whole.subarray(50)));
  const other = await get(weights.url, { Range: 'bytes=50-', 'If-Range': '"another"' });
  assert.equal(other.status, 200);
  assert.equal((await get(weights.url, { Range: `bytes=${whole.length}-` })).status, 416);
  const only = await get(weights.url, {}, 'HEAD');
  assert.equal(Number(only.headers.get('content-length')), whole.length);
});

test('what the manifest does not list is not there', async () => {
  const folder = join(honed.folder, 'jobs', job.id, 'checkpoints', 'step-00000060');
  await writeFile(join(folder, 'extra.txt'), 'not listed');
  const names = ['extra.txt', 'trainer', '.', '..', '%2e%2e', '..%2f..%2fspec.json', 'config.json%00', 'CONFIG.JSON', 'config.json/', 'none'];
  for (const name of names) {
    const reply = await get(`${base}/60/${name}`);
    assert.ok([400, 404, 200].includes(reply.status), `${name} ${reply.status}`);
    assert.ok(!(await reply.text()).includes('not listed'));
    if (!['.', '..', '%2e%2e'].includes(name)) { // fetch resolves those itself
      assert.notEqual(reply.status, 200, name);
    }
  }
  for (const step of ['10', '61', '-1', '1e1', '0x3c', 'newest', '99999999999999999999', '60.0']) {
    assert.equal((await get(`${base}/${step}`)).status, 404, step);
    assert.equal((await get(`${base}/${step}/config.json`)).status, 404, step);
  }
});

test('links, pipes and changed files are not served', async () => {
  const folder = join(honed.folder, 'jobs', job.id, 'checkpoints', 'step-00000050');
  const path = join(folder, 'config.json');
  const text = await readFile(path);
  const bad = async (what) => {
    const reply = await get(`${base}/50/config.json`);
    const body = await reply.text();
    assert.ok(reply.status >= 400, what);
    assert.ok(!body.includes('root:'), what);
    assert.ok(JSON.parse(body).error.message.length > 0);
  };
  await rm(path);
  await bad('missing');
  await symlink('/etc/passwd', path);
  await bad('a link');
  await rm(path);
  await symlink('../../spec.json', path);
  await bad('a link inside');
  await rm(path);
  execFileSync('mkfifo', [path]);
  await bad('a pipe');
  await rm(path);
  execFileSync('mkdir', [path]);
  await bad('a folder');
  await rm(path, { recursive: true });
  await writeFile(path, Buffer.concat([text, Buffer.from('x')]));
  await bad('a longer file');
  await writeFile(path, text);
  assert.equal((await get(`${base}/50/config.json`)).status, 200);
  await writeFile(join(folder, 'manifest.json'), '{"format":"hone-checkpoint-1","step":50,"created_at":1,"files":[{"name":"../../../spec.json","bytes":1,"sha256":"00"}]}');
  assert.equal((await get(`${base}/50/config.json`)).status, 404);
  assert.deepEqual((await honed.call('GET', `${base}/50`)).files, []);
});

test('a run can start from a checkpoint of one before', async () => {
  const file = (await honed.upload('b.txt', 'text\n'.repeat(100))).id;
  for (const model of [job.id, `${job.id}:60`, `${job.id}:latest`]) {
    const next = await honed.call('POST', '/v1/jobs', { name: 'steps=1', model, training_file: file, max_steps: 1 });
    const plan = await until(honed, next.id, ended).then(() => readFile(join(honed.folder, 'jobs', next.id, 'attempts/1/plan.json')));
    assert.ok(plan.toString().includes(`jobs/${job.id}/checkpoints/step-00000060"`));
  }
  const { data } = await honed.call('GET', '/v1/models');
  assert.ok(data.some((model) => model.id === `${job.id}:60` && model.object === 'model'));
});
