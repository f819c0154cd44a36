/* cli_hostile.test.mjs - hone against servers that lie, stutter, vanish, or are no Hone server. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';

const program = resolve(process.env.BUILD || 'build/release', 'hone');
const token = 'hone_testtoken_0123456789';
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const job = (fields) => ({ id: 'job-1', object: 'job', state: 'running', stage: 'training', step: 0,
  total_steps: 4, loss: null, error: null, ...fields });

let folder;
before(async () => { folder = await mkdtemp(join(tmpdir(), 'hone-cli-')); });
after(() => rm(folder, { recursive: true }));

/* A server whose answers are `routes`: {'GET /path': handler(request, response, body)}. */
async function serve(routes) {
  const seen = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const path = request.url.split('?')[0];
    seen.push({ method: request.method, url: request.url, headers: request.headers });
    const handler = routes[`${request.method} ${path}`];
    if (handler) return handler(request, response, Buffer.concat(chunks));
    response.writeHead(404, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: 'no such thing', type: 'invalid_request_error', param: null, code: 'not_found' } }));
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}`, seen, server,
    close: () => { server.closeAllConnections(); return new Promise((done) => server.close(done)); } };
}

const json = (value, status = 200) => (request, response) => {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(value));
};

function start(url, args, options = {}) {
  const child = spawn(program, args, {
    cwd: folder, env: { PATH: process.env.PATH, HOME: folder, HONE_URL: url, HONE_TOKEN: token, ...options.env } });
  let out = '', err = '';
  child.stdout.on('data', (text) => { out += text; });
  child.stderr.on('data', (text) => { err += text; });
  if (options.input !== undefined) child.stdin.end(options.input);
  const ended = new Promise((done) => child.on('close', (code, signal) => done({ code, signal, out, err })));
  return { child, ended, out: () => out };
}
const hone = (url, args, options) => start(url, args, options).ended;

function checkpoint(files, { names, hashes, manifest } = {}) {
  const text = manifest ?? JSON.stringify({ format: 'hone-checkpoint-1', step: 20, created_at: 1,
    files: Object.entries(files).map(([name, bytes], i) => ({ name: names?.[i] ?? name, bytes: bytes.length, sha256: hashes?.[i] ?? sha256(bytes) })) });
  const routes = {
    'GET /v1/jobs/job-1/checkpoints/latest': json({ id: 'job-1:20', object: 'checkpoint', step: 20, sha256: sha256(text), files: [] }),
    'GET /v1/jobs/job-1/checkpoints/20/manifest.json': (request, response) => response.end(text),
  };
  for (const [name, bytes] of Object.entries(files)) {
    routes[`GET /v1/jobs/job-1/checkpoints/20/${name}`] = (request, response) => {
      const etag = `"${sha256(bytes)}"`;
      const range = /^bytes=(\d+)-$/.exec(request.headers.range ?? '');
      if (range && (request.headers['if-range'] ?? etag) === etag) {
        response.writeHead(206, { etag, 'content-range': `bytes ${range[1]}-${bytes.length - 1}/${bytes.length}` });
        return response.end(bytes.subarray(Number(range[1])));
      }
      response.writeHead(200, { etag });
      response.end(bytes);
    };
  }
  return routes;
}

test('what is no Hone server is told apart', async () => {
  const page = await serve({ 'GET /v1/me': (request, response) => response.end('<html>hello</html>') });
  const said = await hone(page.url, ['whoami']);
  assert.equal(said.code, 74);
  assert.match(said.err, /is that a Hone server\?/);
  const missing = await hone(page.url, ['files']);
  assert.equal(missing.code, 66);
  await page.close();
  const gone = await hone(page.url, ['whoami']);
  assert.equal(gone.code, 74);
  assert.match(gone.err, /no server answers at .*start one there with `honed`/);
});

test('a redirect is not followed, so the token goes nowhere else', async () => {
  const thief = await serve({});
  const server = await serve({ 'GET /v1/me': (request, response) => { response.writeHead(302, { location: `${thief.url}/v1/me` }); response.end(); } });
  const said = await hone(server.url, ['whoami']);
  assert.notEqual(said.code, 0);
  assert.equal(thief.seen.length, 0);
  await server.close();
  await thief.close();
});

test('a saved token is not sent to another address', async () => {
  const home = await serve({ 'GET /v1/me': json({ id: 'u', name: 'ada', role: 'member' }) });
  const other = await serve({ 'GET /v1/me': json({ id: 'u', name: 'eve', role: 'member' }) });
  const config = join(folder, 'saved.json');
  const env = { HONE_CONFIG: config, HONE_TOKEN: '', HONE_URL: '' };
  const login = await hone('', ['login', home.url, '--token-stdin'], { env, input: `${token}\n` });
  assert.equal(login.code, 0, login.err);
  assert.ok(!(login.out + login.err).includes(token));
  assert.equal((await stat(config)).mode & 0o777, 0o600);
  assert.equal((await hone('', ['whoami'], { env })).code, 0);
  assert.equal(home.seen.at(-1).headers.authorization, `Bearer ${token}`);
  const said = await hone(other.url, ['whoami'], { env: { ...env, HONE_URL: other.url } });
  assert.equal(said.code, 77);
  assert.equal(other.seen.length, 0);
  await home.close();
  await other.close();
});

test("the server's sentence, code and control characters", async () => {
  const server = await serve({
    'GET /v1/me': json({ error: { message: 'evil\u001b[31m\nsecond line', type: 'x', param: null, code: 'disk_full' } }, 507),
    'GET /v1/jobs/job-1': json(job({ name: 'a\u001b]0;title\u0007\u202e', state: 'failed', error: { code: 'x', message: 'm\r\n' } })),
    'GET /v1/files': json({ object: 'list', data: [{ id: 'file-1', filename: 'x\u001b[2J\nfile-2', bytes: 3 }], has_more: false }),
  });
  const said = await hone(server.url, ['whoami']);
  assert.equal(said.code, 88);
  assert.equal(said.err, 'hone: evil\\x1b[31m\\nsecond line\n');
  for (const verb of [['show', 'job-1'], ['files']]) {
    const printed = await hone(server.url, verb);
    assert.equal(printed.code, 0, printed.err);
    assert.ok(!/[\u0000-\u0009\u000b-\u001f\u007f\u202e]/.test(printed.out), JSON.stringify(printed.out));
  }
  const raw = await hone(server.url, ['show', 'job-1', '--json']);
  assert.equal(JSON.parse(raw.out).name, 'a\u001b]0;title\u0007\u202e');
  await server.close();
});

test('a list is read to its end, and one that never ends is left', async () => {
  const ids = Array.from({ length: 250 }, (_, i) => `file-${String(i).padStart(4, '0')}`);
  const server = await serve({ 'GET /v1/files': (request, response) => {
    const query = new URL(request.url, 'http://x').searchParams;
    const from = query.has('after') ? ids.indexOf(query.get('after')) + 1 : 0;
    const data = ids.slice(from, from + Number(query.get('limit'))).map((id) => ({ id, filename: id, bytes: 1 }));
    json({ object: 'list', data, has_more: from + data.length < ids.length })(request, response);
  } });
  const all = await hone(server.url, ['files']);
  assert.deepEqual(all.out.match(/^file-\d+/gm), ids);
  const some = await hone(server.url, ['files', '--limit', '120']);
  assert.equal(some.out.match(/^file-\d+/gm).length, 120);
  await server.close();
  const empty = await serve({ 'GET /v1/files': json({ object: 'list', data: [], has_more: true }) });
  assert.equal((await hone(empty.url, ['files'])).code, 0);
  await empty.close();
});

test('get refuses names that leave the folder, before it downloads anything', async () => {
  for (const name of ['../evil', '/etc/evil', 'a/b', '..', '.hidden', 'a\\b', 'line\nbreak', '', 'manifest.json']) {
    const server = await serve(checkpoint({ 'model.safetensors': Buffer.from('x') }, { names: [name] }));
    const said = await hone(server.url, ['get', 'job-1', join(folder, 'names')]);
    assert.equal(said.code, 69, `${JSON.stringify(name)}: ${said.err}`);
    assert.match(said.err, /refused/);
    assert.equal(said.err.trimEnd().split('\n').length, 1);
    assert.deepEqual(await readdir(join(folder, 'names')), []);
    await server.close();
  }
});

test('get refuses a damaged file and a damaged manifest', async () => {
  const bytes = Buffer.from('weights');
  let server = await serve(checkpoint({ 'model.safetensors': bytes }, { hashes: [sha256('other')] }));
  let said = await hone(server.url, ['get', 'job-1', join(folder, 'damaged')]);
  assert.equal(said.code, 69);
  assert.match(said.err, /SHA-256/);
  assert.deepEqual(await readdir(join(folder, 'damaged')), []);
  await server.close();

  const routes = checkpoint({ 'model.safetensors': bytes });
  routes['GET /v1/jobs/job-1/checkpoints/20/manifest.json'] = (request, response) => response.end('{}');
  server = await serve(routes);
  said = await hone(server.url, ['get', 'job-1', join(folder, 'damaged')]);
  assert.equal(said.code, 69);
  assert.deepEqual(await readdir(join(folder, 'damaged')), []);
  await server.close();

  server = await serve(checkpoint({ 'model.safetensors': Buffer.from('longer than promised') },
    { manifest: JSON.stringify({ files: [{ name: 'model.safetensors', bytes: 4, sha256: sha256('long') }] }) }));
  said = await hone(server.url, ['get', 'job-1', join(folder, 'damaged')]);
  assert.equal(said.code, 69);
  assert.match(said.err, /longer/);
  await server.close();
});

test('get goes on where a broken line stopped, and asks for nothing twice', async () => {
  const bytes = Buffer.alloc(300000, 'abcdefghij');
  const routes = checkpoint({ 'config.json': Buffer.from('{}'), 'model.safetensors': bytes, empty: Buffer.alloc(0) });
  const whole = routes['GET /v1/jobs/job-1/checkpoints/20/model.safetensors'];
  let breaks = 2;
  routes['GET /v1/jobs/job-1/checkpoints/20/model.safetensors'] = (request, response) => {
    if (breaks-- > 0) {
      const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? 'bytes=0-')[1]);
      response.writeHead(from > 0 ? 206 : 200, { 'content-length': bytes.length - from });
      response.write(bytes.subarray(from, from + 100000), () => response.destroy());
      return undefined;
    }
    return whole(request, response);
  };
  const server = await serve(routes);
  const said = await hone(server.url, ['get', 'job-1', join(folder, 'resumed')]);
  assert.equal(said.code, 0, said.err);
  assert.deepEqual(await readFile(join(folder, 'resumed', 'model.safetensors')), bytes);
  const asked = server.seen.filter((r) => r.url.endsWith('model.safetensors')).map((r) => r.headers.range ?? '');
  assert.equal(asked.length, 3);
  assert.equal(asked[0], '');
  assert.ok(Number(asked[2].slice(6, -1)) >= Number(asked[1].slice(6, -1)));
  assert.ok(server.seen.every((r) => !r.headers.range || r.headers['if-range'] === `"${sha256(bytes)}"`));
  assert.deepEqual((await readdir(join(folder, 'resumed'))).sort(), ['config.json', 'empty', 'manifest.json', 'model.safetensors']);

  const before = server.seen.length;
  const again = await hone(server.url, ['get', 'job-1', join(folder, 'resumed')]);
  assert.equal(again.code, 0, again.err);
  assert.match(again.out, /was there/);
  assert.equal(server.seen.length - before, 2); /* the checkpoint and its manifest */
  await server.close();
});

test('get starts over when the .part is of another file, and never mixes two', async () => {
  const bytes = Buffer.alloc(5000, 'new');
  const server = await serve(checkpoint({ 'model.safetensors': bytes }));
  const dir = join(folder, 'mixed');
  await hone(server.url, ['get', 'job-1', dir]);
  await rm(join(dir, 'model.safetensors'));
  await writeFile(join(dir, 'model.safetensors.part'), Buffer.alloc(1000, 'old'));
  const said = await hone(server.url, ['get', 'job-1', dir]);
  assert.equal(said.code, 69); /* the old bytes are found by the hash, and thrown away */
  const again = await hone(server.url, ['get', 'job-1', dir]);
  assert.equal(again.code, 0, again.err);
  assert.deepEqual(await readFile(join(dir, 'model.safetensors')), bytes);

  await writeFile(join(dir, 'model.safetensors'), 'mine');
  const kept = await hone(server.url, ['get', 'job-1', dir]);
  assert.equal(kept.code, 67);
  assert.match(kept.err, /--force/);
  assert.equal(String(await readFile(join(dir, 'model.safetensors'))), 'mine');
  assert.equal((await hone(server.url, ['get', 'job-1', dir, '--force'])).code, 0);
  assert.deepEqual(await readFile(join(dir, 'model.safetensors')), bytes);
  await server.close();
});

/* A server with a stream: `script` is called with the response of each connection. */
async function streaming(script, current = job()) {
  let connection = 0;
  const state = { job: current };
  const server = await serve({
    'GET /v1/jobs/job-1': (request, response) => json(state.job)(request, response),
    'GET /v1/stream': (request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      script(response, connection++, request);
    },
  });
  return { ...server, state };
}
const event = (id, type, data) => `id: ${id}\nevent: ${type}\ndata: ${JSON.stringify({ job: 'job-1', ...data })}\n\n`;
const jobEvent = (fields) => `event: job\ndata: ${JSON.stringify(job(fields))}\n\n`;

test('watch survives a lost connection without missing or doubling an event', async () => {
  const server = await streaming((response, n, request) => {
    if (n === 0) {
      response.write(event('e-1', 'checkpoint', { step: 1, bytes: 10, sha256: 'aa' }));
      response.write(event('e-2', 'eval', { step: 1, loss: 3 }));
      setTimeout(() => response.destroy(), 50);
    } else {
      assert.equal(request.headers['last-event-id'], 'e-2');
      response.write(event('e-2', 'eval', { step: 1, loss: 3 }));
      response.write(event('e-3', 'checkpoint', { step: 2, bytes: 10, sha256: 'bb' }));
      response.write(jobEvent({ state: 'succeeded', step: 4, loss: 1.5 }));
    }
  });
  const said = await hone(server.url, ['watch', 'job-1']);
  assert.equal(said.code, 0, said.err);
  assert.equal(said.out.match(/^step 1  eval loss 3\.0000$/gm).length, 1);
  assert.deepEqual(said.out.match(/sha256 ../g), ['sha256 aa', 'sha256 bb']);
  assert.match(said.out, /the connection is lost/);
  assert.match(said.out, /succeeded after 4 steps, loss 1\.5000/);
  assert.ok(!said.out.includes('\u001b'));
  await server.close();
});

test('watch reads the job anew after a reset, and ends if it has ended meanwhile', async () => {
  const server = await streaming((response, n) => {
    server.state.job = job({ state: 'failed', step: 2, error: { code: 'out_of_memory', message: 'no memory' } });
    response.write('event: reset\ndata: {}\n\n');
  });
  const said = await hone(server.url, ['watch', 'job-1']);
  assert.equal(said.code, 75);
  assert.match(said.out, /failed after 2 steps: no memory \(out_of_memory\)/);
  await server.close();
});

test('Ctrl-C stops the watching and says that the job goes on', async () => {
  const server = await streaming((response) => response.write(event('e-1', 'eval', { step: 1, loss: 3 })));
  const watching = start(server.url, ['watch', 'job-1']);
  while (!watching.out().includes('eval loss')) await new Promise((done) => setTimeout(done, 20));
  const begun = Date.now();
  watching.child.kill('SIGINT');
  const said = await watching.ended;
  assert.equal(said.code, 130);
  assert.match(said.err, /stopped watching; job-1 goes on/);
  assert.ok(Date.now() - begun < 3000);
  assert.ok(!server.seen.some((r) => r.url.includes('cancel')));
  await server.close();
});

test('submit tries again with the same key when the answer is lost', async () => {
  const keys = [];
  const server = await serve({ 'POST /v1/jobs': (request, response, body) => {
    keys.push(request.headers['idempotency-key']);
    if (keys.length === 1) return request.socket.destroy();
    return json(job({ request: JSON.parse(body) }), 201)(request, response);
  } });
  const spec = join(folder, 'spec.json');
  await writeFile(spec, JSON.stringify({ name: 'x', max_steps: 4 }));
  const said = await hone(server.url, ['submit', '--spec', spec]);
  assert.equal(said.code, 0, said.err);
  assert.equal(said.out, 'job-1\n');
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.match(keys[0], /^[0-9a-f]{32}$/);
  await server.close();
});

test('an upload is refused early when the server says so, and its hash is compared', async () => {
  const big = join(folder, 'big.txt');
  await writeFile(big, Buffer.alloc(4 << 20, 'x'));
  let server = await serve({});
  server.server.removeAllListeners('request');
  server.server.on('request', (request, response) => json({ error: { message: 'the quota is used up', type: 'x', param: null, code: 'too_large' } }, 413)(request, response));
  let said = await hone(server.url, ['upload', big]);
  assert.equal(said.code, 79);
  assert.equal(said.err, 'hone: the quota is used up\n');
  await server.close();

  server = await serve({ 'PUT /v1/files': json({ id: 'file-1', filename: 'big.txt', bytes: 1, sha256: sha256('other') }) });
  said = await hone(server.url, ['upload', big]);
  assert.equal(said.code, 74);
  assert.match(said.err, /other bytes/);
  await server.close();

  server = await serve({ 'PUT /v1/files': (request, response, body) => json({ id: 'file-1', filename: 'a', bytes: body.length, sha256: sha256(body) })(request, response) });
  said = await hone(server.url, ['upload', '-', '--name', 'from a pipe.txt'], { input: 'hello' });
  assert.equal(said.code, 0, said.err);
  assert.match(server.seen.at(-1).url, /filename=from%20a%20pipe\.txt&purpose=fine-tune/);
  assert.match(said.out, new RegExp(sha256('hello')));
  await server.close();
});

test('log text is printed harmless, whole characters however they are cut', async () => {
  const text = Buffer.from('步骤 one\n\u001b[31mred\u0007 é\n\u{1f642}');
  const server = await serve({ 'GET /v1/jobs/job-1/log': async (request, response) => {
    for (const byte of text) {
      response.write(Buffer.from([byte]));
      await new Promise((done) => setImmediate(done));
    }
    response.end();
  } });
  const said = await hone(server.url, ['logs', 'job-1']);
  assert.equal(said.code, 0, said.err);
  assert.equal(said.out, '步骤 one\n\\x1b[31mred\\x07 é\n\u{1f642}');
  await server.close();
});

test('usage errors are one line and exit with 64', async () => {
  for (const args of [['fly'], ['show'], ['ls', '--wat'], ['submit'], ['submit', 'nofield'], ['get', 'job-1:x'], ['ls', '--limit', 'many'], ['login'], ['tokens', 'new', 'x']]) {
    const said = await hone('http://127.0.0.1:9', args);
    const expected = args[1] === 'nofield' ? 74 : 64; /* the fields are asked of the server first */
    assert.equal(said.code, expected, `${args}: ${said.err}`);
    assert.match(said.err, /^hone: [^\n]+\n$/);
  }
});
