// openai.test.mjs - the unmodified openai client from npm against honed: files and models.
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';

// Node 18 has File only in node:buffer; the client wants it as a global.
globalThis.File ??= File;

const TEXT = '第一行\nThe second line.\n'.repeat(1000);

let OpenAI = null;
let toFile = null;
let honed = null;
let client = null;
let folder = null;

before(async () => {
  try {
    ({ default: OpenAI, toFile } = await import('openai'));
  } catch {
    throw new Error('the npm package openai is missing: run "npm ci"');
  }
  honed = await startHoned();
  client = new OpenAI({ apiKey: honed.token, baseURL: `${honed.url}/v1`, maxRetries: 0 });
  folder = await mkdtemp(join(tmpdir(), 'hone-openai-'));
});

after(async () => {
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

async function collect(pages) {
  const all = [];
  for await (const item of pages) {
    all.push(item);
  }
  return all;
}

test('a file is uploaded, retrieved, read and deleted', async () => {
  const file = await client.files.create({
    file: await toFile(Buffer.from(TEXT), '文 one.txt'),
    purpose: 'fine-tune',
  });
  assert.match(file.id, /^file-/);
  assert.equal(file.object, 'file');
  assert.equal(file.bytes, Buffer.byteLength(TEXT));
  assert.equal(file.filename, '文 one.txt');
  assert.equal(file.purpose, 'fine-tune');
  assert.ok(Math.abs(file.created_at - Date.now() / 1000) < 60);
  assert.equal((await client.files.waitForProcessing(file.id)).status, 'processed');
  assert.deepEqual(await client.files.retrieve(file.id), file);
  const content = await client.files.content(file.id);
  assert.equal(await content.text(), TEXT);
  assert.deepEqual(await client.files.delete(file.id), {
    id: file.id,
    object: 'file',
    deleted: true,
  });
  await assert.rejects(client.files.retrieve(file.id), OpenAI.NotFoundError);
});

test('a stream without a known length is uploaded', async () => {
  const path = join(folder, 'streamed.txt');
  await writeFile(path, TEXT);
  const file = await client.files.create({ file: createReadStream(path), purpose: 'fine-tune' });
  assert.equal(file.filename, 'streamed.txt');
  assert.equal(file.bytes, Buffer.byteLength(TEXT));
  assert.equal(await (await client.files.content(file.id)).text(), TEXT);
});

test('files are listed page by page, each once', async () => {
  const made = [];
  for (let i = 0; i < 5; i += 1) {
    made.push(
      await client.files.create({
        file: await toFile(Buffer.from(`text ${i}`), `page-${i}.txt`),
        purpose: 'fine-tune',
      }),
    );
  }
  const found = await collect(client.files.list({ limit: 2 }));
  const ids = found.map((file) => file.id);
  assert.equal(new Set(ids).size, ids.length);
  const mine = ids.filter((id) => made.some((file) => file.id === id));
  assert.deepEqual(mine, made.map((file) => file.id).reverse());
  const rising = (await collect(client.files.list({ limit: 2, order: 'asc' }))).map(
    (file) => file.id,
  );
  assert.deepEqual(rising, [...ids].reverse());
});

test('models are listed', async () => {
  for (const model of await collect(client.models.list())) {
    assert.equal(model.object, 'model');
    assert.equal(typeof model.id, 'string');
    assert.equal(typeof model.created, 'number');
    assert.equal(typeof model.owned_by, 'string');
  }
});

test('errors have the classes of the client and tell their reason', async () => {
  const stranger = new OpenAI({ apiKey: 'hone_nobody', baseURL: `${honed.url}/v1`, maxRetries: 0 });
  await assert.rejects(
    stranger.files.list(),
    (error) => error instanceof OpenAI.AuthenticationError && error.code === 'invalid_api_key',
  );
  await assert.rejects(client.files.retrieve('file-nothere'), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'not_found');
    return /\w/.test(error.message);
  });
  const odd = client.files.create({
    file: await toFile(Buffer.from('x'), 'x.txt'),
    purpose: 'no-such-purpose',
  });
  await assert.rejects(
    odd,
    (error) => error instanceof OpenAI.APIError && error.status >= 400 && error.status < 500,
  );
});

test('a second copy of the same name is another file', async () => {
  const [one, two] = await Promise.all(
    [1, 2].map(async (n) =>
      client.files.create({
        file: await toFile(Buffer.from(`same ${n}`), 'same.txt'),
        purpose: 'fine-tune',
      }),
    ),
  );
  assert.notEqual(one.id, two.id);
  assert.equal(await (await client.files.content(one.id)).text(), 'same 1');
  assert.equal(await (await client.files.content(two.id)).text(), 'same 2');
});
