// check.test.mjs - the report of a file over HTTP and by `hone check`: facts, owner, cache, policy, faults of each kind.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { startHoned } from '../lib/honed.mjs';

const build = resolve(process.env.BUILD || process.env.HONE_BUILD || 'build/release');
const trainer = join(build, 'hone-train');
const skip = existsSync(trainer) ? false : 'hone-train is not built';
let honed = null, folder = null;

before(async () => {
  if (skip) return;
  folder = await mkdtemp(join(tmpdir(), 'hone-check-'));
  honed = await startHoned({ trainer, args: ['--data-root', `lab=${folder}`] });
});
after(async () => {
  await honed?.stop();
  if (folder !== null) await rm(folder, { recursive: true, force: true });
});

const chat = (...turns) => JSON.stringify({ messages: turns.map(([role, content, more]) => ({ role, content, ...more })) });
const good = (i) => chat(['user', `question ${i}`], ['assistant', `answer ${i}`]);
const lines = (...all) => all.map((line) => `${line}\n`).join('');
const send = async (name, bytes) =>
  (await fetch(`${honed.url}/v1/files?filename=${encodeURIComponent(name)}`, {
    method: 'PUT', body: bytes, headers: { Authorization: `Bearer ${honed.token}` },
  })).json();
const report = async (name, bytes, query = '') => honed.call('GET', `/v1/files/${(await send(name, bytes)).id}/report${query}`);
const found = (r, reason) => r.reasons.find((one) => one.reason === reason);
const hone = (args) => new Promise((done) => {
  execFile(join(build, 'hone'), args, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, HONE_URL: honed.url, HONE_TOKEN: honed.token } },
    (error, out, err) => done({ code: error === null ? 0 : error.code, out, err }));
});

test('a good file is described, whatever its name', { skip }, async () => {
  const text = lines(good(1), good(2), good(3));
  for (const name of ['TRAIN.JSONL', 'train.jsonl.txt', 'train', 'train.parquet']) {
    const r = await report(name, text);
    assert.equal(r.object, 'file.report');
    assert.deepEqual([r.format, r.compression, r.kind, r.columns, r.lines, r.examples, r.usable, r.skipped, r.refused, r.error],
      ['jsonl', 'none', 'chat', 'messages', 3, 3, 3, 0, false, null]);
    assert.deepEqual(r.reasons, []);
  }
  const packed = await report('x', gzipSync(text));
  assert.deepEqual([packed.compression, packed.usable], ['gzip', 3]);
});

test('a broken quote is named by line and column, and its text is not repeated', { skip }, async () => {
  const all = Array.from({ length: 40 }, (_, i) => good(i));
  all[36] = '{"messages": [{"role": "user", "content": "he said "SECRET" once"}]}';
  const r = await report('bad.jsonl', lines(...all));
  const fault = found(r, 'broken_json');
  assert.deepEqual([fault.count, fault.first_lines, fault.action, r.refused], [1, [37], 'refuse', true]);
  assert.match(fault.where, /^column 53: /);
  assert.equal(r.error.code, 'invalid_training_file');
  assert.match(r.error.message, /line 37, column 53/);
  assert.ok(!JSON.stringify(r).includes('SECRET'));
});

test('five lines with five faults are refused with five reasons', { skip }, async () => {
  const r = await report('five.jsonl', Buffer.concat([
    Buffer.from(lines('{"messages": [', '{"text": "a", "text": "b"}')),
    Buffer.from([...Buffer.from('{"text": "'), 0xc4, 0xe3, ...Buffer.from('"}\n')]),
    Buffer.from(lines(chat(['wizard', 'x'], ['assistant', 'y']), `${good(1)}${good(2)}`)),
  ]));
  assert.deepEqual(r.reasons.map((one) => [one.reason, one.first_lines[0]]),
    [['not_utf8', 3], ['broken_json', 1], ['several_objects', 5], ['duplicate_keys', 2], ['wrong_role', 4]]);
  assert.equal(found(r, 'not_utf8').where, 'byte 11');
  assert.equal(found(r, 'wrong_role').where, 'messages[0].role');
  assert.match(found(r, 'wrong_role').message, /system.*user.*assistant.*tool/);
  assert.equal(r.usable, 0);
  for (const word of ['line 3', 'line 1', 'line 5']) assert.ok(r.error.message.includes(word), r.error.message);
});

test('a policy skips what it says, and only what may be skipped', { skip }, async () => {
  const file = await send('policy.jsonl', lines(good(1), '{', good(2)));
  const path = `/v1/files/${file.id}/report`;
  assert.equal((await honed.call('GET', path)).refused, true);
  const r = await honed.call('GET', `${path}?on_problem=${encodeURIComponent('{"broken_json":"skip"}')}`);
  assert.deepEqual([r.refused, r.usable, r.skipped, r.error, found(r, 'broken_json').action], [false, 2, 1, null, 'skip']);
  for (const wrong of ['{"broken_json":"accept"}', '{"no_such":"skip"}']) {
    const bad = await honed.call('GET', `${path}?on_problem=${encodeURIComponent(wrong)}`);
    assert.equal(bad.error.code, 'invalid_spec');
    assert.match(bad.error.message, /on_problem/);
  }
  for (const wrong of ['nonsense', '[]', '1']) {
    await assert.rejects(honed.call('GET', `${path}?on_problem=${wrong}`), (e) => e.status === 400 && JSON.parse(e.body).error.param === 'on_problem');
  }
});

test('what is no text is refused with the conversion', { skip }, async () => {
  for (const [bytes, says] of [
    [Buffer.from('PAR1xxxxPAR1'), /Parquet.*to_json/],
    [Buffer.from('\ufeff{"text":"a"}\n', 'utf16le'), /UTF-16.*iconv/],
    [Buffer.from('PK\x03\x04xl/workbook.xml', 'latin1'), /Excel.*to_json/],
    [Buffer.from(''), /empty/],
    [Buffer.from(' \n \n'), /empty/],
    [gzipSync(lines(good(1))).subarray(0, 40), /cut off/],
  ]) {
    const r = await report('train.jsonl', bytes);
    assert.equal(r.error.code, 'invalid_training_file');
    assert.match(r.error.message, says);
  }
});

test('a report is for the owner and is kept', { skip }, async () => {
  const file = await send('mine.jsonl', lines(good(1)));
  const other = await honed.call('POST', '/v1/users', { name: 'other', role: 'member' });
  const path = `/v1/files/${file.id}/report`;
  await assert.rejects(honed.call('GET', path, undefined, { Authorization: `Bearer ${other.token}` }), (e) => e.status === 404);
  const reports = async () => (await readdir(join(honed.folder, 'cache'))).filter((name) => name.endsWith('.report'));
  const before = await reports();
  const first = await honed.call('GET', path);
  const added = (await reports()).filter((name) => !before.includes(name));
  assert.equal(added.length, 1);
  const kept = join(honed.folder, 'cache', added[0]);
  const { mtimeMs } = await stat(kept);
  assert.deepEqual(await honed.call('GET', path), first);
  assert.equal((await stat(kept)).mtimeMs, mtimeMs);
  await writeFile(kept, '{ damaged');
  assert.deepEqual(await honed.call('GET', path), first);
  assert.ok(JSON.parse(await readFile(kept, 'utf8')).usable === 1);
  await assert.rejects(honed.call('GET', '/v1/files/file-aaaaaaaaaaaaaa/report'), (e) => e.status === 404);
});

test('files of data folders have reports, too', { skip }, async () => {
  await writeFile(join(folder, 'lab.json'), JSON.stringify([{ instruction: 'a', output: 'b' }]));
  const r = await honed.call('GET', `/v1/data/report?id=${encodeURIComponent('lab:lab.json')}`);
  assert.deepEqual([r.file, r.format, r.columns, r.usable], ['lab:lab.json', 'json', 'alpaca', 1]);
  await writeFile(join(folder, 'lab.json'), JSON.stringify([{ instruction: 'a', output: 'b' }, { instruction: 'c', output: 'd' }]));
  assert.equal((await honed.call('GET', '/v1/data/report?id=lab:lab.json')).usable, 2);
  await assert.rejects(honed.call('GET', '/v1/data/report'), (e) => e.status === 400);
  await assert.rejects(honed.call('GET', '/v1/data/report?id=lab:..%2F..%2Fetc%2Fpasswd'), (e) => e.status === 404 || e.status === 400);
  await assert.rejects(honed.call('GET', '/v1/data/report?id=lab:'), (e) => e.status >= 400);
});

test('with a model, tokens are counted as training would', { skip: skip || !existsSync('../shared/data/models/stories260K') }, async () => {
  const models = await startHoned({ trainer, args: ['--model-root', `m=${resolve('../shared/data/models')}`] });
  try {
    const file = await models.upload('a.jsonl', lines('{"text":"Once upon a time"}', '{"text":"Once"}', '{"text":"Once upon a time there was a time"}'));
    const path = `/v1/files/${file.id}/report?model=m:stories260K`;
    const r = await models.call('GET', path);
    assert.equal(r.error, null);
    assert.ok(r.tokens > r.trained_tokens && r.trained_tokens >= 12, JSON.stringify(r));
    assert.equal(r.lengths.edges.length, r.lengths.counts.length + 1);
    assert.equal(r.lengths.counts.reduce((a, b) => a + b), 3);
    assert.equal((await models.call('GET', `${path}&sequence_length=1000`)).tokens, r.tokens);
    await assert.rejects(models.call('GET', `${path}&sequence_length=1`), (e) => e.status === 400);
    await assert.rejects(models.call('GET', `/v1/files/${file.id}/report?model=m:nowhere`), (e) => e.status === 404);
    const chats = await models.upload('b.jsonl', lines(good(1), chat(['user', 'a '.repeat(100)], ['assistant', 'b'])));
    const cut = await models.call('GET', `/v1/files/${chats.id}/report?model=m:stories260K&sequence_length=64`);
    assert.deepEqual([found(cut, 'too_long').count, found(cut, 'nothing_trained').count, cut.usable], [1, 1, 1]);
  } finally {
    await models.stop();
  }
});

test('hone check says it in words and by its exit status', { skip }, async () => {
  await writeFile(join(folder, 'good.jsonl'), lines(good(1), good(2)));
  await writeFile(join(folder, 'bad.jsonl'), lines(good(1), '{"messages": 7}', good(2)));
  const fine = await hone(['check', 'good.jsonl']);
  assert.equal(fine.code, 0, fine.err);
  assert.match(fine.out, /usable +2\n/);
  const id = fine.out.match(/file-\w+/)[0];
  assert.equal((await hone(['check', id])).out, fine.out);
  assert.equal(JSON.parse((await hone(['check', id, '--json'])).out).usable, 2);
  const bad = await hone(['check', 'bad.jsonl']);
  assert.equal(bad.code, 83);
  assert.match(bad.out, /wrong_type[^]*line 2, messages must be a list[^]*\nerror .*line 2/);
  const skipped = await hone(['check', 'bad.jsonl', '--on-problem', '{"wrong_type":"skip"}']);
  assert.equal(skipped.code, 0, skipped.err);
  assert.match(skipped.out, /skipped +1\n/);
  assert.match((await hone(['check', 'lab:lab.json'])).out, /alpaca/);
  assert.notEqual((await hone(['check', 'nowhere.jsonl'])).code, 0);
});

// A trainer that does what its script says; honed with it, and one uploaded file.
async function withTrainer(script, work) {
  const path = join(folder, `trainer-${Math.random().toString(36).slice(2)}`);
  await writeFile(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  const other = await startHoned({ trainer: path });
  try {
    const file = await other.upload('a.jsonl', lines(good(1)));
    await work(other, `/v1/files/${file.id}/report`);
  } finally {
    await other.stop();
  }
}

test('a trainer that says nothing, or something else than a report, is our fault and not the file\'s', { skip }, async () => {
  for (const script of ['exit 3', 'echo no JSON', 'echo "[1]"', 'kill -9 $$', 'yes']) {
    await withTrainer(script, async (other, path) => {
      await assert.rejects(other.call('GET', path), (e) => e.status === 500, script);
      assert.deepEqual(await readdir(join(other.folder, 'cache')).then((all) => all.filter((name) => name.endsWith('.report'))), []);
    });
  }
});

test('two reports are made at once, a third waits its turn, and the server stops without waiting for them', { skip }, async () => {
  let began = 0;
  await withTrainer('sleep 60', async (other, path) => {
    const running = [0, 1].map(() => other.call('GET', path).catch((e) => e));
    for (let i = 0; ; i += 1) {
      const third = await Promise.race([other.call('GET', path).catch((e) => e), new Promise((done) => { setTimeout(done, 300, null); })]);
      if (third !== null && third.status === 503) break;
      assert.ok(i < 50, 'a third is never refused');
    }
    began = Date.now();
    setTimeout(() => Promise.all(running), 0);
  });
  assert.ok(Date.now() - began < 10000, 'stopping took too long');
});
