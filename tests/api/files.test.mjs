// files.test.mjs - uploads by two doors, their limits, parts of files, and what broken clients leave behind.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, request, until } from '../lib/jobs.mjs';
import { head, talk } from '../lib/raw.mjs';

const QUOTA = 20 << 20;
const LARGEST = 8 << 20;
let honed = null;
let token = null;

before(async () => {
  honed = await startHoned({ args: ['--quota-bytes', String(QUOTA), '--max-upload', String(LARGEST)] });
  token = `Authorization: Bearer ${honed.token}`;
});
after(() => honed?.stop());

const auth = () => ({ Authorization: `Bearer ${honed.token}` });
const put = (name, body, more = {}) =>
  fetch(`${honed.url}/v1/files?filename=${encodeURIComponent(name)}`, { method: 'PUT', body, headers: auth(), ...more });
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const parts = async () => (await readdir(join(honed.folder, 'files'))).filter((name) => name.endsWith('.part'));
const settled = async (check) => {
  for (let i = 0; i < 60 && !(await check()); i += 1) {
    await new Promise((done) => setTimeout(done, 50));
  }
  return check();
};

function form(fields, boundary = 'XX') {
  const list = fields.map(({ name, filename, value }) =>
    `--${boundary}\r\nContent-Disposition: form-data; name="${name}"${filename === undefined ? '' : `; filename="${filename}"`}\r\n\r\n${value}\r\n`);
  return `${list.join('')}--${boundary}--\r\n`;
}
const post = (body, type = 'multipart/form-data; boundary=XX') =>
  fetch(`${honed.url}/v1/files`, { method: 'POST', body, headers: { ...auth(), 'Content-Type': type } });

test('a file comes back as it went in, by both doors', async () => {
  const bytes = randomBytes(300001);
  const one = await (await put('名 "one" %.bin', bytes)).json();
  assert.deepEqual({ ...one, id: 'file-x', created_at: 0 }, {
    id: 'file-x', object: 'file', bytes: 300001, created_at: 0, filename: '名 "one" %.bin', purpose: 'fine-tune',
    status: 'processed', sha256: sha256(bytes), expires_at: null,
  });
  const back = await fetch(`${honed.url}/v1/files/${one.id}/content`, { headers: auth() });
  assert.equal(back.headers.get('content-type'), 'application/octet-stream');
  assert.match(back.headers.get('content-disposition'), /^attachment; filename="[^"\\;%]*"$/);
  assert.equal(back.headers.get('x-content-type-options'), 'nosniff');
  assert.equal(sha256(Buffer.from(await back.arrayBuffer())), one.sha256);

  const two = await (await post(form([{ name: 'file', filename: 'a%22b.txt', value: 'hello' }, { name: 'purpose', value: 'evals' }]))).json();
  assert.equal(two.filename, 'a"b.txt');
  assert.equal(two.purpose, 'evals');
  assert.equal(two.bytes, 5);
  assert.deepEqual(await honed.call('GET', `/v1/files/${two.id}`), two);
});

test('an empty file is a file', async () => {
  const file = await (await put('empty', '')).json();
  assert.equal(file.bytes, 0);
  assert.equal(file.sha256, sha256(''));
});

test('forms out of the ordinary are refused in one sentence', async () => {
  const cases = [
    [form([{ name: 'purpose', value: 'fine-tune' }]), 400, 'file'],
    [form([{ name: 'file', filename: 'a', value: 'x' }]), 400, 'purpose'],
    [form([{ name: 'file', filename: 'a', value: 'x' }, { name: 'purpose', value: 'vision' }]), 400, 'purpose'],
    [form([{ name: 'file', filename: 'a', value: 'x' }, { name: 'purpose', value: 'f'.repeat(500) }]), 400, 'purpose'],
    [form([{ name: 'file', filename: 'a', value: 'x' }, { name: 'file', filename: 'b', value: 'y' }, { name: 'purpose', value: 'evals' }]), 400, 'file'],
    [form([{ name: 'file', value: 'x' }, { name: 'purpose', value: 'evals' }]), 400, 'filename'],
    [form([{ name: 'file', filename: 'a\u202eb', value: 'x' }, { name: 'purpose', value: 'evals' }]), 400, 'filename'],
    [form([{ name: 'file', filename: 'a', value: 'x' }, { name: 'purpose', value: 'evals' }]).slice(0, -20), 400, null],
    ['no form at all', 400, 'file'],
    ['', 400, 'file'],
  ];
  for (const [body, status, param] of cases) {
    const reply = await post(body);
    const { error } = await reply.json();
    assert.equal(reply.status, status, `${body.slice(0, 80)} ${error.message}`);
    assert.equal(error.param, param, error.message);
  }
  assert.equal((await post('{}', 'application/json')).status, 415);
  assert.equal((await post(form([]), 'multipart/form-data')).status, 400);
  assert.equal((await post(form([]), `multipart/form-data; boundary=${'b'.repeat(20000)}`)).status, 400);
  assert.ok(await settled(async () => (await parts()).length === 0));
});

test('names that a disk or a header would mind are only names', async () => {
  for (const name of ['../../etc/passwd', '/etc/passwd', 'a;$(id)', '--config=/etc', '<img src=x onerror=alert(1)>', "'; DROP TABLE files;--", '=cmd', '.']) {
    const file = await (await put(name, 'x')).json();
    assert.equal(file.filename, name);
    const back = await fetch(`${honed.url}/v1/files/${file.id}/content`, { headers: auth() });
    assert.match(back.headers.get('content-disposition'), /^attachment; filename="[^"\\/;%]*"$/);
  }
  for (const name of ['', 'a\u0000b', 'a\nb', 'x'.repeat(256)]) {
    assert.equal((await put(name, 'x')).status, 400, JSON.stringify(name.slice(0, 9)));
  }
  assert.equal((await fetch(`${honed.url}/v1/files?filename=a&purpose=bad`, { method: 'PUT', body: 'x', headers: auth() })).status, 400);
});

test('what is over the limit is refused before it is sent', async () => {
  const over = LARGEST + 1;
  const first = await talk(honed.url, head(honed.url, 'PUT /v1/files?filename=a HTTP/1.1', token, `Content-Length: ${over}`, 'Expect: 100-continue'));
  assert.deepEqual(first.statuses, [413]);
  assert.match(first.reply, /x-should-retry: false/i);
  const second = await talk(honed.url, head(honed.url, 'PUT /v1/files?filename=a HTTP/1.1', token, `Content-Length: ${over}`), { enough: (text) => text.includes('}}') });
  assert.deepEqual(second.statuses, [413]);
  const unknown = await talk(honed.url, head(honed.url, 'PUT /v1/files?filename=a HTTP/1.1', 'Content-Length: 1000000', 'Expect: 100-continue'));
  assert.deepEqual(unknown.statuses, [401]);
  assert.ok(await settled(async () => (await parts()).length === 0));
});

test('what is over the limit without saying so ends there', async () => {
  const chunk = `10000\r\n${'a'.repeat(0x10000)}\r\n`;
  const count = Math.ceil(LARGEST / 0x10000) + 40;
  const { statuses } = await talk(honed.url,
    [head(honed.url, 'PUT /v1/files?filename=a HTTP/1.1', token, 'Transfer-Encoding: chunked'), ...Array(count).fill(chunk), '0\r\n\r\n'], { ms: 8000 });
  assert.ok(statuses.length === 0 || statuses[0] === 413, `${statuses}`);
  assert.ok(await settled(async () => (await parts()).length === 0));
});

test('a quota counts what is there and what is under way', async () => {
  const { data } = await honed.call('GET', '/v1/files');
  let left = QUOTA - data.reduce((sum, file) => sum + file.bytes, 0);
  const made = [];
  while (left > LARGEST) {
    made.push(await (await put('big', Buffer.alloc(LARGEST))).json());
    left -= LARGEST;
  }
  assert.equal((await put('big', Buffer.alloc(left + 1))).status, 413);
  const slow = talk(honed.url, [head(honed.url, 'PUT /v1/files?filename=slow HTTP/1.1', token, `Content-Length: ${left}`), 'x', 2000], { ms: 2000 });
  assert.ok(await settled(async () => (await parts()).length === 1));
  assert.equal((await put('other', Buffer.alloc(1000))).status, 413);
  await slow;
  assert.ok(await settled(async () => (await parts()).length === 0));
  assert.equal((await put('other', Buffer.alloc(1000))).status, 200);
  for (const file of made) {
    await honed.call('DELETE', `/v1/files/${file.id}`);
  }
});

test('a hundred clients that vanish leave nothing', async () => {
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(Array.from({ length: 5 }, () =>
      talk(honed.url, [head(honed.url, 'PUT /v1/files?filename=gone HTTP/1.1', token, 'Content-Length: 100000'), 'x'.repeat(50000), 10], { ms: 60 })));
  }
  assert.ok(await settled(async () => (await parts()).length === 0), `${await parts()}`);
  const { data } = await honed.call('GET', '/v1/files');
  assert.ok(!data.some((file) => file.filename === 'gone'));
});

test('too many uploads at once are told to wait', async () => {
  const slow = Array.from({ length: 8 }, () =>
    talk(honed.url, [head(honed.url, 'PUT /v1/files?filename=slow HTTP/1.1', token, 'Content-Length: 100'), 'x'], { ms: 1500 }));
  assert.ok(await settled(async () => (await parts()).length === 8));
  assert.equal((await put('ninth', 'x')).status, 429);
  await Promise.all(slow);
  assert.ok(await settled(async () => (await parts()).length === 0));
});

test('parts of a file: the matrix of Range', async () => {
  const bytes = randomBytes(1000);
  const file = await (await put('r', bytes)).json();
  const path = `${honed.url}/v1/files/${file.id}/content`;
  const etag = `"${file.sha256}"`;
  const get = (headers) => fetch(path, { headers: { ...auth(), ...headers } });
  const cases = [
    ['bytes=0-0', 206, 0, 1], ['bytes=0-', 206, 0, 1000], ['bytes=10-19', 206, 10, 20], ['bytes=-5', 206, 995, 1000],
    ['bytes=-5000', 206, 0, 1000], ['bytes=999-', 206, 999, 1000], ['bytes=0-99999', 206, 0, 1000],
    ['bytes=1000-', 416], ['bytes=-0', 416], ['bytes=5-2', 416], ['bytes=18446744073709551615-', 416],
    ['bytes=0-9,20-29', 200], ['items=0-5', 200], ['bytes=abc', 200], ['bytes=', 200],
    [`bytes=${Array.from({ length: 1000 }, (_, i) => `${i}-${i}`).join(',')}`, 200],
  ];
  for (const [range, status, from, to] of cases) {
    const reply = await get({ Range: range });
    const body = Buffer.from(await reply.arrayBuffer());
    assert.equal(reply.status, status, range);
    if (status === 206) {
      assert.ok(body.equals(bytes.subarray(from, to)), range);
      assert.equal(reply.headers.get('content-range'), `bytes ${from}-${to - 1}/1000`);
    } else if (status === 200) {
      assert.ok(body.equals(bytes), range);
    } else {
      assert.equal(reply.headers.get('content-range'), 'bytes */1000');
      assert.equal(JSON.parse(body.toString()).error.code, 'range_not_satisfiable');
    }
  }
  assert.equal((await get({ Range: 'bytes=0-9', 'If-Range': etag })).status, 206);
  assert.equal((await get({ Range: 'bytes=0-9', 'If-Range': '"old"' })).status, 200);
  assert.equal((await get({ 'If-None-Match': etag })).status, 304);
  assert.equal((await get({ 'If-None-Match': `"a", W/${etag}` })).status, 304);
  assert.equal((await get({ 'If-None-Match': '"a"' })).status, 200);
  const onlyHead = await fetch(path, { method: 'HEAD', headers: auth() });
  assert.equal(onlyHead.headers.get('content-length'), '1000');
});

test('lists are paged in both directions, each file once', async () => {
  const { data: all } = await honed.call('GET', '/v1/files');
  for (const order of ['asc', 'desc']) {
    const found = [];
    let after = '';
    for (let page = null; !page || page.has_more; ) {
      page = await honed.call('GET', `/v1/files?limit=3&order=${order}${after}`);
      assert.equal(page.first_id, page.data[0].id);
      assert.equal(page.last_id, page.data.at(-1).id);
      found.push(...page.data.map((file) => file.id));
      after = `&after=${page.last_id}`;
    }
    const want = all.map((file) => file.id);
    assert.deepEqual(found, order === 'desc' ? want : want.reverse());
  }
  for (const query of ['limit=0', 'limit=x', 'limit=999999', 'order=up', 'after=file-none', 'limit=-1']) {
    await assert.rejects(honed.call('GET', `/v1/files?${query}`), { status: 400 });
  }
});

test('a deleted file is gone, also from the disk', async () => {
  const file = await (await put('x', 'x')).json();
  await honed.call('DELETE', `/v1/files/${file.id}`);
  for (const [method, path] of [['GET', ''], ['GET', '/content'], ['DELETE', '']]) {
    await assert.rejects(honed.call(method, `/v1/files/${file.id}${path}`), { status: 404 });
  }
  await assert.rejects(stat(join(honed.folder, 'files', file.id)), { code: 'ENOENT' });
});

test('a full disk is told at once, and in the middle of an upload; nothing stays', async (t) => {
  const disk = await mkdtemp(join(tmpdir(), 'hone-disk-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=24m', 'tmpfs', disk], { stdio: 'ignore' });
  } catch {
    await rm(disk, { recursive: true });
    t.skip('mounting a small disk needs root');
    return;
  }
  const small = await startHoned({ parent: disk, args: ['--reserve-bytes', '1048576'] });
  try {
    const auth2 = { Authorization: `Bearer ${small.token}` };
    const early = await fetch(`${small.url}/v1/files?filename=big`, { method: 'PUT', body: Buffer.alloc(40 << 20), headers: auth2 }).catch((error) => error);
    assert.ok(early.status === 507 || early instanceof Error, `${early.status}`);
    const told = await talk(small.url, head(small.url, 'PUT /v1/files?filename=a HTTP/1.1', `Authorization: Bearer ${small.token}`, `Content-Length: ${40 << 20}`, 'Expect: 100-continue'));
    assert.deepEqual(told.statuses, [507]);
    const chunk = `10000\r\n${'a'.repeat(0x10000)}\r\n`;
    const late = await talk(small.url,
      [head(small.url, 'PUT /v1/files?filename=a HTTP/1.1', `Authorization: Bearer ${small.token}`, 'Transfer-Encoding: chunked'), ...Array(500).fill(chunk), '0\r\n\r\n'], { ms: 8000 });
    assert.ok(late.statuses.length === 0 || late.statuses[0] === 507, `${late.statuses}`);
    const left = async () => (await readdir(join(small.folder, 'files'))).length;
    for (let i = 0; i < 40 && (await left()) > 0; i += 1) {
      await new Promise((done) => setTimeout(done, 50));
    }
    assert.equal(await left(), 0);
    const fine = await fetch(`${small.url}/v1/files?filename=ok`, { method: 'PUT', body: 'small', headers: auth2 });
    assert.equal(fine.status, 200);
    // nothing can be written any more, not even by the store: the server stays, and works again afterwards
    execFileSync('sh', ['-c', `dd if=/dev/zero of=${disk}/ballast bs=64k 2>/dev/null || true`]);
    const body = JSON.stringify(request((await fine.json()).id, 'steps=1', { max_steps: 1 }));
    const submit = () => fetch(`${small.url}/v1/jobs`, { method: 'POST', body, headers: { ...auth2, 'Content-Type': 'application/json' } });
    const full = await submit();
    assert.equal(full.status, 507, await full.clone().text());
    assert.equal(full.headers.get('x-should-retry'), 'false');
    assert.deepEqual((await small.call('GET', '/v1/jobs')).data, []);
    await rm(join(disk, 'ballast'));
    const job = await (await submit()).json();
    assert.equal((await until(small, job.id, ended)).state, 'succeeded');
  } finally {
    await small.stop();
    execFileSync('umount', [disk]);
    await rm(disk, { recursive: true });
  }
});
