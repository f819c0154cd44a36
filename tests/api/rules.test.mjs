// rules.test.mjs - every rule of trainer/rules.def that a request can break is told at submit, with what would work.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { refused } from '../lib/jobs.mjs';

const build = process.env.BUILD ?? 'build/release';
const devices = Array.from({ length: 64 }, (_, i) => ({ id: `GPU-${i}`, name: 'Large GPU', memory_bytes: 2 ** 36 }));
let folder = null;
let honed = null;
let file = null;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-rules-'));
  const machine = join(folder, 'machine.json');
  await writeFile(machine, JSON.stringify({ name: 'large', devices }));
  honed = await startHoned({ args: ['--machine', machine] });
  file = (await honed.upload('text.txt', 'a training text\n'.repeat(1000))).id;
});
after(async () => {
  await honed?.stop();
  await rm(folder, { recursive: true });
});

const cases = execFileSync(join(build, 'tests/test_rules'), ['--cases'], { encoding: 'utf8' })
  .trim()
  .split('\n')
  .map((line) => JSON.parse(line));

for (const { request, param, says } of cases) {
  const { config, training_file: _, tokenizer_vocab_size: __, ...fields } = request;
  test(`${config.model_type} with ${JSON.stringify(fields)} is refused`, async () => {
    const body = { ...request, training_file: file, max_steps: 10, config: { ...config, vocab_size: 300 } };
    for (const path of ['/v1/jobs', '/v1/plan']) {
      const no = await refused(honed.call('POST', path, body));
      assert.deepEqual([no.status, no.code, no.param], [422, 'invalid_spec', param], JSON.stringify(no));
      assert.ok(no.message.includes(says), `${no.message} does not say: ${says}`);
    }
  });
}

test('there is a case of every rule', () => {
  assert.ok(cases.length >= 17, `${cases.length}`);
});
