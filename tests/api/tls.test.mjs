// tls.test.mjs - honed with a certificate of its own: HTTPS only, new protocols only, files in both directions.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { connect } from 'node:tls';
import { ROOT } from '../lib/defs.mjs';
import { talk } from '../lib/raw.mjs';

const program = join(ROOT, process.env.BUILD || 'build/release', 'honed');
let folder = null;
let child = null;
let url = null;
let token = null;
let skip = false;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-tls-'));
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')];
  try {
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost', '-keyout', key, '-out', cert], { stdio: 'ignore' });
  } catch {
    skip = 'openssl is missing';
    return;
  }
  child = spawn(program, ['--data', join(folder, 'data'), '--port', '0', '--tls-cert', cert, '--tls-key', key, '--listen', '0.0.0.0'], { stdio: 'ignore' });
  for (let i = 0; i < 200 && !token; i += 1) {
    await new Promise((done) => setTimeout(done, 50));
    url = (await readFile(join(folder, 'data/honed.url'), 'utf8').catch(() => '')).trim();
    token = url && (await readFile(join(folder, 'data/admin.token'), 'utf8').catch(() => '')).trim();
  }
});
after(async () => {
  child?.kill('SIGTERM');
  await rm(folder, { recursive: true, force: true });
});

const ask = (path, { method = 'GET', body, headers = {} } = {}) => new Promise((resolve, reject) => {
  const asked = request(url + path, { method, rejectUnauthorized: false, headers: { Authorization: `Bearer ${token}`, ...headers } }, async (reply) => {
    const parts = [];
    for await (const part of reply) {
      parts.push(part);
    }
    resolve({ status: reply.statusCode, headers: reply.headers, body: Buffer.concat(parts) });
  });
  asked.on('error', reject);
  asked.end(body);
});

test('a file goes in and comes out over TLS, parts of it too', async (t) => {
  if (skip) {
    return t.skip(skip);
  }
  assert.match(url, /^https:\/\/127\.0\.0\.1:\d+$/);
  const bytes = randomBytes(3 << 20);
  const file = JSON.parse((await ask('/v1/files?filename=a', { method: 'PUT', body: bytes })).body);
  const whole = await ask(`/v1/files/${file.id}/content`);
  assert.ok(whole.body.equals(bytes));
  const part = await ask(`/v1/files/${file.id}/content`, { headers: { Range: 'bytes=1000000-2000000' } });
  assert.equal(part.status, 206);
  assert.ok(part.body.equals(bytes.subarray(1000000, 2000001)));
});

test('the session cookie is for TLS alone', async (t) => {
  if (skip) {
    return t.skip(skip);
  }
  const reply = await ask('/v1/login', { method: 'POST', body: JSON.stringify({ token }), headers: { 'Content-Type': 'application/json' } });
  assert.match(reply.headers['set-cookie'][0], /; Secure/);
});

test('old protocols and plain HTTP get nowhere', async (t) => {
  if (skip) {
    return t.skip(skip);
  }
  const { port } = new URL(url);
  for (const version of ['TLSv1', 'TLSv1.1']) {
    const agreed = await new Promise((resolve) => {
      const socket = connect({ port: Number(port), host: '127.0.0.1', rejectUnauthorized: false, minVersion: version, maxVersion: version, ciphers: 'DEFAULT:@SECLEVEL=0' }, () => { socket.destroy(); resolve(true); });
      socket.on('error', () => resolve(false));
    });
    assert.equal(agreed, false, version);
  }
  const { statuses } = await talk(`http://127.0.0.1:${port}`, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n', { ms: 1500 });
  assert.deepEqual(statuses, []);
  assert.equal((await ask('/healthz')).status, 200);
});
