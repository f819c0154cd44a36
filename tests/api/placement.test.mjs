// placement.test.mjs - which devices a job gets on machines that are described in files, and what is told about it.
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { inState, refused, request, until } from '../lib/jobs.mjs';

const GIB = 2 ** 30;
// As a lab has pasted it: one pair with NVLink, one without.
const TOPO = [
  '\t\u001b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\u001b[0m',
  'GPU0\t X \tNV12\tSYS\tSYS\t0-31\t0',
  'GPU1\tNV12\t X \tSYS\tSYS\t0-31\t0',
  'GPU2\tSYS\tSYS\t X \tNODE\t32-63\t1',
  'GPU3\tSYS\tSYS\tNODE\t X \t32-63\t1',
  '',
  'Legend:',
  '',
  '  X    = Self',
  '',
].join('\n');

let folder = null;
let honed = null;
let file = null;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-machine-'));
  const devices = [0, 1, 2, 3].map((i) => ({
    id: `GPU-${i}`,
    name: 'NVIDIA A100',
    memory_bytes: 80 * GIB,
    capability: [8, 0],
  }));
  const path = join(folder, 'machine.json');
  await writeFile(path, JSON.stringify({ name: 'two pairs', memory_bytes: 512 * GIB, devices, topo: TOPO }));
  honed = await startHoned({ args: ['--machine', path] });
  file = (await honed.upload('text.txt', 'a training text\n'.repeat(100))).id;
});
after(async () => {
  await honed?.stop();
  await rm(folder, { recursive: true });
});

const submit = (name, more) =>
  honed.call('POST', '/v1/jobs', request(file, name, { max_steps: 100000, ...more }));

test('the pair with NVLink goes first, and who gets the other is told', async () => {
  const first = await until(honed, (await submit('ms=20', { devices: 2 })).id, inState('running'));
  assert.deepEqual(first.device_ids, ['GPU-0', 'GPU-1']);
  assert.equal(first.placement, 'GPU 0 and GPU 1, joined by 12 NVLinks');
  const second = await until(honed, (await submit('ms=20', { devices: 2 })).id, inState('running'));
  assert.deepEqual(second.device_ids, ['GPU-2', 'GPU-3']);
  assert.match(second.placement, /^GPU 2 and GPU 3, no NVLink/);
  const third = await honed.call('GET', `/v1/jobs/${(await submit('ms=20')).id}`);
  assert.equal(third.placement, null);
  const queue = await honed.call('GET', '/v1/queue');
  assert.deepEqual(queue.running.map((run) => run.placement).sort(), [first.placement, second.placement].sort());
});

test('what can never fit is refused at submit, with what is missing', async () => {
  const many = await refused(submit('five', { devices: 5, global_batch_size: 5 }));
  assert.deepEqual([many.status, many.code, many.param], [422, 'does_not_fit', 'devices']);
  assert.match(many.message, /5 devices .* has 4/);
  const config = { model_type: 'llama', hidden_size: 8192, intermediate_size: 28672, num_hidden_layers: 20, num_attention_heads: 64, num_key_value_heads: 8, vocab_size: 300, max_position_embeddings: 64 };
  const huge = await refused(submit('huge', { config }));
  assert.deepEqual([huge.status, huge.code], [422, 'does_not_fit']);
  assert.match(huge.message, /needs [0-9.]+ GiB .* 80\.00 GiB at most; the largest part are/);
});
