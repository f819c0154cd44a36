// identity.test.mjs - who may do what: tokens, sessions, other sites, other users' things.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT, rows } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { readEvents } from '../lib/sse.mjs';

let honed = null;
let bob = null;
let file = null;

before(async () => {
  honed = await startHoned();
  bob = await honed.call('POST', '/v1/users', { name: 'bob', role: 'member' });
  file = await honed.upload('a.txt', 'the text of the admin\n'.repeat(50));
});
after(() => honed?.stop());

const ask = (path, { token, ...options } = {}) =>
  fetch(honed.url + path, {
    ...options,
    headers: { ...(token ? { Authorization: `Bearer ${token}` } : {}), ...options.headers },
  });
const errorOf = async (reply) => (await reply.json()).error;

// Sign a browser in: its cookie and its CSRF word.
async function signIn(body) {
  const reply = await ask('/v1/login', {
    method: 'POST',
    body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json' },
  });
  assert.equal(reply.status, 200);
  const cookie = reply.headers.get('set-cookie');
  return { cookie: cookie.split(';')[0], flags: cookie, ...(await reply.json()) };
}

test('every address but the open ones wants a token', async () => {
  for (const [method, path, access] of rows('server/routes.def', 'ROUTE')) {
    const target = path.replaceAll(/\{[^}]*\}/g, 'x');
    const reply = await ask(target, { method });
    if (access !== 'OPEN') {
      assert.equal(reply.status, 401, `${method} ${path}`);
      assert.equal((await errorOf(reply)).code, 'invalid_api_key');
    } else {
      assert.notEqual(reply.status, 401, `${method} ${path}`);
    }
  }
});

test('what is no token of ours is refused in one way', async () => {
  const { token } = await honed.call('POST', '/v1/tokens', { name: 'spare' });
  const values = [
    'Bearer ', 'Bearer x', `bearer${token}`, `Basic ${token}`, token, `Bearer ${token}x`, `Bearer ${token.slice(0, -1)}`,
    `Bearer ${'a'.repeat(10000)}`, `Bearer ${token} ${token}`, `Bearer ${token.toUpperCase()}`,
  ];
  const bodies = new Set();
  for (const value of values) {
    const reply = await ask('/v1/me', { headers: { Authorization: value } });
    assert.equal(reply.status, 401, value.slice(0, 50));
    bodies.add(await reply.text());
  }
  assert.equal(bodies.size, 1);
  assert.equal((await ask(`/v1/me?token=${token}&access_token=${token}`)).status, 401);
  assert.equal((await ask('/v1/me', { headers: { Authorization: `bearer ${token}` } })).status, 200);
});

test('a token is shown once, listed without its value, and ends when it is revoked', async () => {
  const made = await honed.call('POST', '/v1/tokens', { name: 'laptop', expires_in: 3600 });
  assert.match(made.token, /^hone_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}$/);
  assert.ok(Math.abs(made.expires_at - made.created_at - 3600) <= 1);
  const { data } = await honed.call('GET', '/v1/tokens');
  assert.ok(data.some((one) => one.id === made.id && one.name === 'laptop'));
  assert.ok(!JSON.stringify(data).includes(made.token.slice(16, 40)));

  const stream = readEvents(`${honed.url}/v1/stream`, { Authorization: `Bearer ${made.token}` }, { enough: () => false, ms: 8000 });
  await new Promise((done) => setTimeout(done, 300));
  assert.equal((await ask('/v1/me', { token: made.token })).status, 200);
  assert.equal((await ask(`/v1/tokens/${made.id}`, { token: bob.token, method: 'DELETE' })).status, 404);
  assert.deepEqual(await honed.call('DELETE', `/v1/tokens/${made.id}`), { id: made.id, object: 'token', deleted: true });
  assert.equal((await ask('/v1/me', { token: made.token })).status, 401);
  assert.ok((await stream).ended, 'its stream was closed');
  const short = await honed.call('POST', '/v1/tokens', { name: 'short', expires_in: 1 });
  await new Promise((done) => setTimeout(done, 2100));
  assert.equal((await ask('/v1/me', { token: short.token })).status, 401);
});

test('a login link opens once; the session wants its CSRF word', async () => {
  const { code, url, expires_at: expires } = await honed.call('POST', '/v1/login_codes');
  assert.equal(url, `${honed.url}/#login=${code}`);
  assert.ok(expires > Date.now() / 1000);
  const session = await signIn({ code });
  assert.match(session.flags, /HttpOnly/);
  assert.match(session.flags, /SameSite=Strict/);
  assert.match(session.flags, /Path=\//);
  const again = await ask('/v1/login', { method: 'POST', body: JSON.stringify({ code }), headers: { 'Content-Type': 'application/json' } });
  assert.equal(again.status, 401);

  const cookie = { Cookie: session.cookie };
  const me = await (await ask('/v1/me', { headers: cookie })).json();
  assert.equal(me.csrf, session.csrf);
  const body = JSON.stringify({ name: 'x' });
  const json = { 'Content-Type': 'application/json' };
  const make = (headers) => ask('/v1/tokens', { method: 'POST', body, headers: { ...json, ...cookie, ...headers } });
  assert.equal((await make({})).status, 403);
  assert.equal((await make({ 'X-CSRF-Token': 'wrong' })).status, 403);
  assert.equal((await make({ 'X-CSRF-Token': session.csrf })).status, 201);
  assert.equal((await make({ 'X-CSRF-Token': session.csrf, Origin: honed.url })).status, 201);
  assert.equal((await make({ 'X-CSRF-Token': session.csrf, Origin: 'https://evil.example' })).status, 403);
  assert.equal((await make({ 'X-CSRF-Token': session.csrf, Origin: 'null' })).status, 403);
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x']) {
    assert.equal((await make({ 'X-CSRF-Token': session.csrf, 'Content-Type': type })).status, 415, type);
  }
  for (const [method, path] of [['DELETE', '/v1/tokens/x'], ['POST', '/v1/logout'], ['PUT', '/v1/files?filename=x'], ['POST', '/v1/jobs/x/cancel']]) {
    assert.equal((await ask(path, { method, headers: cookie })).status, 403, `${method} ${path}`);
  }
  const out = await ask('/v1/logout', { method: 'POST', headers: { ...cookie, 'X-CSRF-Token': session.csrf } });
  assert.equal(out.status, 200);
  assert.equal((await ask('/v1/me', { headers: cookie })).status, 401);
});

test('a cookie chosen before signing in is not kept', async () => {
  const fixed = 'hone_session=chosenbytheattacker';
  const reply = await ask('/v1/login', {
    method: 'POST', body: JSON.stringify({ token: honed.token }), headers: { 'Content-Type': 'application/json', Cookie: fixed },
  });
  assert.equal(reply.status, 200);
  assert.ok(!reply.headers.get('set-cookie').includes('chosenbytheattacker'));
  assert.equal((await ask('/v1/me', { headers: { Cookie: fixed } })).status, 401);
});

test('no other site is let in', async () => {
  for (const origin of ['https://evil.example', 'null', 'http://localhost:1']) {
    const preflight = await ask('/v1/jobs', { method: 'OPTIONS', headers: { Origin: origin, 'Access-Control-Request-Method': 'POST' } });
    assert.equal(preflight.status, 405);
    const get = await ask('/v1/me', { token: honed.token, headers: { Origin: origin } });
    for (const reply of [preflight, get]) {
      assert.equal([...reply.headers.keys()].filter((name) => name.startsWith('access-control')).length, 0);
    }
    const post = await ask('/v1/login', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json', Origin: origin } });
    assert.equal(post.status, 403);
  }
});

test("another user's job is seen and not touched; his files are like files that do not exist", async () => {
  const job = await honed.call('POST', '/v1/jobs', {
    name: 'steps=3 ms=1', training_file: file.id, config: { model_type: 'gpt2' }, tokenizer_vocab_size: 300, max_steps: 3,
  });
  for (let i = 0; i < 100 && (await honed.call('GET', `/v1/jobs/${job.id}`)).state !== 'succeeded'; i += 1) {
    await new Promise((done) => setTimeout(done, 100));
  }
  const missing = 'job-aaaaaaaaaaaaaa';
  const paths = { '': 200, '/events': 200, '/metrics': 200, '/log': 403, '/checkpoints': 403, '/checkpoints/3': 403, '/checkpoints/latest': 403, '/checkpoints/3/config.json': 403 };
  for (const [path, status] of Object.entries(paths)) {
    assert.equal((await ask(`/v1/jobs/${job.id}${path}`, { token: bob.token })).status, status, path);
    assert.equal((await ask(`/v1/jobs/${missing}${path}`, { token: bob.token })).status, 404, path);
    assert.equal((await ask(`/v1/jobs/${job.id}${path}`, { token: honed.token })).status, 200, path);
  }
  const seen = await (await ask(`/v1/jobs/${job.id}`, { token: bob.token })).json();
  assert.deepEqual(seen.allowed_actions, []);
  const types = (await (await ask(`/v1/jobs/${job.id}/events?limit=1000`, { token: bob.token })).json()).data.map(({ type }) => type);
  assert.ok(types.includes('metrics') && !types.includes('sample') && !types.includes('data'));
  for (const action of ['cancel', 'save', 'pause', 'resume']) {
    const reply = await ask(`/v1/jobs/${job.id}/${action}`, { token: bob.token, method: 'POST' });
    assert.equal(reply.status, 403);
    assert.match((await errorOf(reply)).message, /owner/);
  }
  for (const [method, path] of [['GET', ''], ['GET', '/content'], ['DELETE', '']]) {
    assert.equal((await ask(`/v1/files/${file.id}${path}`, { token: bob.token, method })).status, 404);
  }
  assert.deepEqual((await (await ask('/v1/jobs', { token: bob.token })).json()).data.map(({ id }) => id), [job.id]);
  for (const list of ['/v1/jobs?mine=1', '/v1/jobs?owner=bob', '/v1/jobs?owner=nobody', '/v1/files', '/v1/models']) {
    assert.equal((await (await ask(list, { token: bob.token })).json()).data.length, 0, list);
  }
  for (const [field, value] of [['training_file', file.id], ['model', job.id], ['model', `${job.id}:3`]]) {
    const request = { config: { model_type: 'gpt2' }, tokenizer_vocab_size: 300, training_file: file.id, max_steps: 1, [field]: value };
    if (field === 'model') {
      delete request.config;
      delete request.tokenizer_vocab_size;
    }
    const reply = await ask('/v1/jobs', { token: bob.token, method: 'POST', body: JSON.stringify(request), headers: { 'Content-Type': 'application/json' } });
    assert.equal(reply.status, 422, JSON.stringify(request));
    assert.ok((await errorOf(reply)).message.length > 0);
  }
});

test('an admin sees all, a member may not add users', async () => {
  const bobs = await (await ask('/v1/files?filename=b.txt', { token: bob.token, method: 'PUT', body: "bob's text" })).json();
  assert.equal((await ask(`/v1/files/${bobs.id}`, { token: honed.token })).status, 200);
  for (const method of ['GET', 'POST']) {
    const reply = await ask('/v1/users', { token: bob.token, method, ...(method === 'POST' ? { body: '{"name":"eve","role":"admin"}', headers: { 'Content-Type': 'application/json' } } : {}) });
    assert.equal(reply.status, 403);
  }
  const { data } = await honed.call('GET', '/v1/users');
  assert.deepEqual(data.map((user) => [user.name, user.role]).slice(1), [['bob', 'member']]);
  await assert.rejects(honed.call('POST', '/v1/users', { name: 'bob', role: 'member' }), { status: 409 });
  for (const name of ['', '-x', 'a b', '../x', 'a\n', 5, null, 'x'.repeat(65)]) {
    await assert.rejects(honed.call('POST', '/v1/users', { name, role: 'member' }), { status: 400 });
  }
  await assert.rejects(honed.call('POST', '/v1/users', { name: 'mallory', role: 'root' }), { status: 400 });
});

test('guessing is slowed down, and who has the right word passes', async () => {
  const guess = (code) => ask('/v1/login', { method: 'POST', body: JSON.stringify({ code }), headers: { 'Content-Type': 'application/json' } });
  const seen = [];
  for (let i = 0; i < 30; i += 1) {
    const reply = await guess('x'.repeat(43));
    seen.push(reply.status);
    if (reply.status === 429) {
      assert.ok(Number(reply.headers.get('retry-after')) >= 1);
    }
  }
  assert.equal(seen[0], 401);
  assert.ok(seen.filter((status) => status === 429).length > 15);
  await signIn({ token: honed.token });
  await signIn({ code: (await honed.call('POST', '/v1/login_codes')).code });
});

test('what lies in the data folder is for its owner alone', async () => {
  const mode = async (name) => ((await stat(join(honed.folder, name))).mode & 0o777).toString(8);
  assert.equal(await mode(''), '700');
  for (const name of ['honed.db', 'admin.token', `files/${file.id}`]) {
    assert.equal(await mode(name), '600', name);
  }
  assert.ok(!honed.output().includes(honed.token), 'the token was printed');
});

test('users are made beside a running server too', async () => {
  const program = join(process.env.BUILD ? join(ROOT, process.env.BUILD) : join(ROOT, 'build/release'), 'honed');
  const run = (...words) => promisify(execFile)(program, [...words, '--data', honed.folder]);
  const carol = (await run('adduser', 'carol')).stdout.trim();
  assert.equal((await (await ask('/v1/me', { token: carol })).json()).role, 'member');
  const second = (await run('token', 'carol')).stdout.trim();
  assert.equal((await ask('/v1/me', { token: second })).status, 200);
  const link = (await run('login-link', 'carol')).stdout.trim();
  assert.ok(link.startsWith(`${honed.url}/#login=`));
  assert.equal((await signIn({ code: link.split('=')[1] })).user.name, 'carol');
  await assert.rejects(run('token', 'nobody'), /no user/);
  await assert.rejects(run('adduser', 'carol'), /already/);
});
