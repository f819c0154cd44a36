// gate.test.mjs - raw bytes against honed: what must be refused, answered once, and closed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { rows } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { head, talk } from '../lib/raw.mjs';

let honed = null;
before(async () => {
  honed = await startHoned({ args: ['--header-seconds', '2', '--idle-seconds', '4'] });
});
after(() => honed?.stop());

const send = (text, options) => talk(honed.url, text, options);
const request = (line, ...lines) => head(honed.url, line, ...lines);
const SMUGGLED = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n';

// The error shape of every refusal of ours.
function errorOf(reply) {
  const { error } = JSON.parse(reply.slice(reply.indexOf('\r\n\r\n') + 4));
  assert.deepEqual(Object.keys(error).sort(), ['code', 'message', 'param', 'type']);
  assert.ok(error.message.length > 0);
  return error;
}

test('a plain request is answered, with the headers that all replies have', async () => {
  const { reply, statuses } = await send(request('GET /healthz HTTP/1.1', 'Connection: close'));
  assert.deepEqual(statuses, [200]);
  for (const name of [
    'content-security-policy',
    'x-content-type-options: nosniff',
    'referrer-policy',
    'x-request-id',
    'cross-origin-opener-policy',
    'cross-origin-resource-policy',
  ]) {
    assert.ok(reply.toLowerCase().includes(`\r\n${name}`), name);
  }
  assert.ok(!/access-control/i.test(reply));
});

// What follows such a request on the connection must not be run as another one.
const CLOSED = [
  ['two lengths', 400, 'POST /v1/login HTTP/1.1', 'Content-Length: 3', 'Content-Length: 40'],
  ['the same length twice', 400, 'POST /v1/login HTTP/1.1', 'Content-Length: 0', 'Content-Length: 0'],
  ['a length and chunks', 400, 'POST /v1/login HTTP/1.1', 'Content-Length: 3', 'Transfer-Encoding: chunked'],
  ['gzip as a transfer', 400, 'POST /v1/login HTTP/1.1', 'Transfer-Encoding: gzip'],
  ['gzip and chunks', 400, 'POST /v1/login HTTP/1.1', 'Transfer-Encoding: gzip, chunked'],
  ['xchunked', 400, 'POST /v1/login HTTP/1.1', 'Transfer-Encoding: xchunked'],
  ['chunks twice', 400, 'POST /v1/login HTTP/1.1', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
  ['a space before the colon', 400, 'POST /v1/login HTTP/1.1', 'Transfer-Encoding : chunked'],
  ['a huge length', 400, 'POST /v1/login HTTP/1.1', 'Content-Length: 18446744073709551615'],
  ['a body too large', 413, 'POST /v1/login HTTP/1.1', 'Content-Type: application/json', 'Content-Length: 99999999'],
  ['an unknown method', 501, 'BREW /healthz HTTP/1.1'],
  ['a method in small letters', 501, 'get /healthz HTTP/1.1'],
  ['an encoded slash', 400, 'GET /v1%2fme HTTP/1.1'],
  ['an encoded NUL', 400, 'GET /healthz%00 HTTP/1.1'],
  ['a backslash', 400, 'GET /..\\..\\etc HTTP/1.1'],
  ['dots', 400, 'GET /../../etc/passwd HTTP/1.1'],
  ['encoded dots', 400, 'GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1'],
  ['a broken escape', 400, 'GET /%zz HTTP/1.1'],
  ['another server in the target', 400, 'GET http://evil.example/healthz HTTP/1.1'],
  ['two Authorization headers', 400, 'GET /v1/me HTTP/1.1', 'Authorization: Bearer a', 'Authorization: Bearer b'],
  ['the session twice', 400, 'GET /v1/me HTTP/1.1', 'Cookie: hone_session=a; hone_session=b'],
  ['an expectation', 417, 'POST /v1/login HTTP/1.1', 'Expect: miracles'],
];

for (const [name, status, ...lines] of CLOSED) {
  test(`${name}: ${status}, and nothing after it is run`, async () => {
    const { reply, closed, statuses } = await send(request(...lines) + SMUGGLED);
    assert.ok(closed, 'the connection stays open');
    assert.equal(statuses[0], status, reply);
    assert.equal(statuses.length, 1, reply);
    errorOf(reply);
  });
}

test('hosts that are not ours are refused everywhere', async () => {
  const bad = ['evil.example', '127.0.0.1.evil.example', 'localhost:1@evil', 'localhost:x', ''];
  for (const path of ['/', '/healthz', '/v1/stream', '/v1/jobs', '/index.html']) {
    for (const host of bad) {
      const { statuses } = await send(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
      assert.ok([400, 421].includes(statuses[0]), `${path} ${host} ${statuses}`);
    }
  }
  for (const text of [
    'GET /healthz HTTP/1.1\r\n\r\n',
    'GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n',
    'GET /healthz HTTP/1.0\r\n\r\n',
  ]) {
    const { reply, statuses } = await send(text);
    // libmicrohttpd answers one of them itself, and twice at that
    assert.ok(statuses.length > 0 && statuses.every((status) => status === 400), reply);
  }
});

test('other versions of HTTP are refused', async () => {
  for (const version of ['HTTP/1.2', 'HTTP/2.0', 'HTTP/0.9', 'HTTP/1.1x']) {
    const { statuses } = await send(request(`GET /healthz ${version}`));
    assert.ok(statuses.every((status) => status >= 400), `${version} ${statuses}`);
  }
  const preface = await send('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  assert.ok(preface.statuses.every((status) => status >= 400));
});

test('too many headers, or too large ones, are refused', async () => {
  const many = Array.from({ length: 80 }, (_, i) => `X-${i}: 1`);
  const { statuses, reply } = await send(request('GET /healthz HTTP/1.1', ...many));
  assert.equal(statuses[0], 400);
  errorOf(reply);
  const large = await send(request('GET /healthz HTTP/1.1', `X: ${'a'.repeat(60000)}`));
  assert.ok(large.statuses.every((status) => status >= 400));
  const long = await send(request(`GET /${'a'.repeat(60000)} HTTP/1.1`));
  assert.ok(long.statuses.every((status) => status >= 400));
});

test('a method that an address does not know is 405 with Allow; HEAD goes where GET goes', async () => {
  const routes = rows('server/routes.def', 'ROUTE').map(([method, path]) => ({ method, path }));
  const paths = [...new Set(routes.map((route) => route.path))];
  for (const path of paths) {
    const known = routes.filter((route) => route.path === path).map((route) => route.method);
    const target = path.replaceAll(/\{[^}]*\}/g, 'x');
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      if (!known.includes(method)) {
        const reply = await fetch(honed.url + target, { method });
        const { error } = await reply.json();
        assert.equal(reply.status, 405, `${method} ${path}`);
        assert.equal(error.code, 'method_not_allowed');
        if (method !== 'OPTIONS') {
          const allow = reply.headers.get('allow').split(', ').filter((word) => word !== 'HEAD');
          assert.deepEqual(allow.sort(), [...known].sort());
        }
      }
    }
  }
  for (const path of ['/healthz', '/openapi.json', '/', '/v1/me', '/v1/jobs', '/v1/stream']) {
    const options = { headers: { Authorization: `Bearer ${honed.token}` } };
    const headReply = await fetch(honed.url + path, { ...options, method: 'HEAD' });
    assert.equal(headReply.status, 200, path);
    assert.equal(await headReply.text(), '');
  }
});

test('requests on one connection are answered in order', async () => {
  const two = request('GET /healthz HTTP/1.1') + request('GET /v1/none HTTP/1.1', 'Connection: close');
  const { statuses } = await send(two);
  assert.deepEqual(statuses, [200, 404]);
});

test('a head that comes byte by byte is cut off, and others are served meanwhile', async () => {
  const drip = ['GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: '];
  for (let i = 0; i < 40; i += 1) {
    drip.push(200, 'a');
  }
  const slow = Array.from({ length: 60 }, () => send(drip, { ms: 9000 }));
  await new Promise((done) => setTimeout(done, 500));
  const before = Date.now();
  assert.equal((await fetch(`${honed.url}/healthz`)).status, 200);
  assert.ok(Date.now() - before < 1000);
  const started = Date.now();
  for (const { closed } of await Promise.all(slow)) {
    assert.ok(closed);
  }
  assert.ok(Date.now() - started < 6000, 'they were cut off in time');
});

test('six hundred idle connections keep nobody out', async () => {
  const idle = Array.from({ length: 600 }, () => send('', { ms: 3500 }));
  await new Promise((done) => setTimeout(done, 700));
  for (let i = 0; i < 5; i += 1) {
    const started = Date.now();
    const { statuses } = await send(request('GET /healthz HTTP/1.1', 'Connection: close'));
    assert.deepEqual(statuses, [200]);
    assert.ok(Date.now() - started < 1000, `${Date.now() - started} ms`);
  }
  await Promise.all(idle);
});

test('JSON bodies out of the ordinary are refused in one sentence', async () => {
  const headers = { 'Content-Type': 'application/json', Authorization: `Bearer ${honed.token}` };
  const bodies = [
    '['.repeat(200000), '{"name":"a","name":"b"}', '{"name":1e999}', '{"expires_in":NaN}',
    '{"expires_in":9223372036854775808}', '{"name":"\\u0000"}', '{"name":"\\ud800"}', '"text"', '[]',
    'null', '', '{', '{}}', '\ufeff{}', '{"name": 5}', '{"name": {"a": 1}}', '{"expires_in": -1}',
    '{"expires_in": 1.5}', '{"user_id": 1}', '{"name":"a\\nb"}',
  ];
  for (const body of bodies) {
    const reply = await fetch(`${honed.url}/v1/tokens`, { method: 'POST', body, headers });
    assert.equal(reply.status, 400, body.slice(0, 40));
    errorOf(`\r\n\r\n${await reply.text()}`);
  }
  const large = await fetch(`${honed.url}/v1/tokens`, { method: 'POST', headers, body: `{"name":"${'a'.repeat(2 << 20)}"}` })
    .catch(() => null);
  assert.ok(large === null || large.status === 413);
});

test('pages come with their policy, and only pages', async () => {
  const page = await fetch(`${honed.url}/`);
  assert.equal(page.status, 200);
  assert.match(page.headers.get('content-type'), /^text\/html/);
  assert.match(page.headers.get('content-security-policy'), /default-src 'self'/);
  const again = await fetch(`${honed.url}/`, { headers: { 'If-None-Match': page.headers.get('etag') } });
  assert.equal(again.status, 304);
  for (const path of ['//etc/passwd', '/static/x', '/index.html/', '/%252e%252e%252fetc', '/.git', '/web/index.html']) {
    const { statuses } = await send(request(`GET ${path} HTTP/1.1`, 'Connection: close'));
    assert.ok([400, 404].includes(statuses[0]), `${path} ${statuses}`);
  }
});

test('the interface describes itself', async () => {
  const document = await (await fetch(`${honed.url}/openapi.json`)).json();
  assert.equal(document.openapi, '3.1.0');
  for (const [method, path] of rows('server/routes.def', 'ROUTE')) {
    assert.ok(document.paths[path]?.[method.toLowerCase()], `${method} ${path}`);
  }
  const { schema } = document.paths['/v1/jobs'].post.requestBody.content['application/json'];
  const fields = rows('trainer/spec.def', 'TEXT', 'OBJECT', 'INTEGER', 'NUMBER', 'CHOICE').map(([name]) => name);
  assert.deepEqual(Object.keys(schema.properties), fields);
});
