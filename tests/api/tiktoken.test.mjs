// tiktoken.test.mjs - GPT-2's vocabulary as a tiktoken file gives the ids of its tokenizer.json.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const program = `${process.env.BUILD ?? 'build/release'}/hone-train`;
const gpt2 = '../shared/data/tokenizers/gpt2', strings = '../shared/vectors/tokenizer/strings.json';

function ids(tokenizer, input) {
  const done = spawnSync(program, ['tokenize', tokenizer, '--lines', '-'], { input, maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr.toString());
  return done.stdout.toString();
}

test('a tiktoken file of GPT-2', { skip: !existsSync(gpt2) && '../shared is missing' }, (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'hone-tiktoken-'));
  t.after(() => rmSync(dir, { recursive: true }));
  const { model } = JSON.parse(readFileSync(join(gpt2, 'tokenizer.json')));
  const bytes = new Map();
  for (let b = 0, next = 0x100; b < 256; b++) {
    const itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    bytes.set(String.fromCodePoint(itself ? b : next++), b);
  }
  const lines = Object.entries(model.vocab).filter(([, id]) => id < 50256)
    .map(([token, id]) => `${Buffer.from([...token].map((c) => bytes.get(c))).toString('base64')} ${id}\n`);
  writeFileSync(join(dir, 'r50k_base.tiktoken'), lines.join(''));
  const input = [...JSON.parse(readFileSync(strings)).map((s) => s.text), 'a<|endoftext|> b'].map((s) => `${JSON.stringify(s)}\n`).join('');
  assert.equal(ids(dir, input), ids(gpt2, input));
});
