// sizing.test.mjs - what a job needs on each device against what devices have: refused with what would fit, or planned.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, refused, request, until } from '../lib/jobs.mjs';

const MIB = 2 ** 20;
const MODEL = {
  model_type: 'llama', architectures: ['LlamaForCausalLM'], vocab_size: 32000, hidden_size: 512, intermediate_size: 1024,
  num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 1024,
};
let honed = null;
let home = null;
let job = null; // the request
let whole = 0; // bytes that it needs
let path = '';

// Four cards of so many bytes, of which `used` are somebody's on the last two.
function machine(bytes, used = 0) {
  const devices = [0, 1, 2, 3].map((i) => ({
    id: `GPU-${i}`, name: 'Small GPU', kind: 'gpu', memory_bytes: bytes, reserved_bytes: 0,
    used_bytes: i < 2 ? 0 : used, free_bytes: bytes - (i < 2 ? 0 : used),
  }));
  return JSON.stringify({ name: 'small', devices });
}

async function start(bytes, used) {
  await writeFile(path, machine(bytes, used));
  honed = await startHoned({ args: ['--machine', path] });
  const file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
  job = request(file, 'ms=2', { config: MODEL, sequence_length: 512, global_batch_size: 8, micro_batch_size: 4, threads: 2, max_steps: 3 });
}

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'hone-sizing-'));
  path = join(home, 'machine.json');
});
after(() => rm(home, { recursive: true, force: true }));

test('what fits is planned: bytes on each device, and whether that is free now', async () => {
  await start(4096 * MIB, 4000 * MIB);
  try {
    const plan = await honed.call('POST', '/v1/plan', job);
    whole = plan.memory_bytes;
    assert.ok(whole > 300 * MIB && whole < 3000 * MIB, `${whole}`);
    assert.deepEqual([plan.fits, plan.fits_now, plan.devices, plan.device_bytes], [true, true, 1, whole]);
    assert.deepEqual(plan.advice, []);
    assert.deepEqual(plan.on.map((one) => one.room_bytes), [4096, 4096, 96, 96].map((n) => n * MIB));
    const wide = await honed.call('POST', '/v1/plan', { ...job, devices: 3, global_batch_size: 12 });
    assert.deepEqual([wide.fits, wide.fits_now, wide.devices, wide.ranks, wide.layout], [true, false, 3, 3, 'dp 3']);
    assert.equal(wide.device_bytes * 3, wide.memory_bytes);
    const five = await refused(honed.call('POST', '/v1/jobs', { ...job, devices: 5, global_batch_size: 20 }));
    assert.deepEqual([five.status, five.code, five.param], [422, 'does_not_fit', 'devices']);
    assert.match(five.message, /asks for 5 devices and this machine has 4/);
  } finally {
    await honed.stop();
  }
});

test('what can never fit is refused with the largest part, both numbers and what would fit', async () => {
  const bytes = Math.floor((whole * 62) / 100);
  await start(bytes);
  try {
    const plan = await honed.call('POST', '/v1/plan', job);
    assert.deepEqual([plan.fits, plan.fits_now], [false, false]);
    assert.ok(plan.advice.length > 0 && plan.advice.length <= 3);
    for (const { field, value } of plan.advice) {
      const changed = { ...job, [field]: Number.isNaN(Number(value)) ? value : Number(value) };
      assert.equal((await honed.call('POST', '/v1/plan', changed)).fits, true, field);
    }
    const two = plan.advice.find(({ field }) => field === 'tensor_model_parallel_size');
    assert.equal(two?.value, '2', JSON.stringify(plan.advice));
    const no = await refused(honed.call('POST', '/v1/jobs', job));
    assert.deepEqual([no.status, no.code], [422, 'does_not_fit']);
    const gib = (n) => (n / 2 ** 30).toFixed(2).replace('.', '\\.');
    assert.match(no.message, new RegExp(`needs ${gib(whole)} GiB and the machine has devices of ${gib(bytes)} GiB at most; the largest part are ${plan.largest} with \\d+\\.\\d\\d GiB; it fits with .*tensor_model_parallel_size 2`));
    assert.equal((await honed.call('GET', '/v1/jobs')).data.length, 0);
    const yes = await honed.call('POST', '/v1/jobs', { ...job, tensor_model_parallel_size: 2 });
    assert.deepEqual([yes.devices, yes.layout, yes.device_bytes * 2], [2, 'tp 2', yes.memory_bytes]);
    const done = await until(honed, yes.id, ended);
    assert.equal(done.state, 'succeeded', JSON.stringify(done.error));
  } finally {
    await honed.stop();
  }
});

// Three heads, which no even number of tensor-parallel ranks divides.
const ODD = { ...MODEL, hidden_size: 384, num_attention_heads: 3, num_key_value_heads: 3, num_hidden_layers: 8 };

test('stages of a pipeline are advised, planned and refused with what would work', async () => {
  await start(4096 * MIB);
  try {
    const least = { ...job, config: ODD, micro_batch_size: 1, recompute: 'full', precision: 'bf16' };
    const one = await honed.call('POST', '/v1/plan', least);
    const two = await honed.call('POST', '/v1/plan', { ...least, pipeline_model_parallel_size: 2 });
    assert.deepEqual([two.fits, two.ranks, two.devices, two.layout], [true, 2, 2, 'pp 2']);
    assert.ok(two.device_bytes < one.device_bytes && two.parameters === one.parameters && two.trainable === one.trainable);
    const four = { ...least, pipeline_model_parallel_size: 2, num_virtual_stages_per_pipeline_rank: 2, devices: 4 };
    assert.equal((await honed.call('POST', '/v1/plan', four)).layout, 'pp 2 x dp 2');

    const refusals = [
      [{ pipeline_model_parallel_size: 3 }, 'pipeline_model_parallel_size', /8 layers do not divide among 3 .*; 2 or 4 would work/],
      [{ pipeline_model_parallel_size: 2, layers_per_stage: '4,3' }, 'layers_per_stage', /has 7 layers in all, but the model has 8/],
      [{ pipeline_model_parallel_size: 2, layers_per_stage: 'eight' }, 'layers_per_stage', /number 1 does not fit/],
      [{ num_virtual_stages_per_pipeline_rank: 2 }, 'num_virtual_stages_per_pipeline_rank', /is for pipelines.*; 1 would work/],
      [{ pipeline_model_parallel_size: 4, micro_batch_size: 8, num_virtual_stages_per_pipeline_rank: 2 }, 'global_batch_size', /; 32 would work/],
      [{ pipeline_model_parallel_size: 64, tensor_model_parallel_size: 64 }, 'devices', /4096 devices.*at most 64/],
    ];
    for (const [fields, param, text] of refusals) {
      const no = await refused(honed.call('POST', '/v1/jobs', { ...least, ...fields }));
      assert.deepEqual([no.code, no.param], ['invalid_spec', param], JSON.stringify(no));
      assert.match(no.message, text);
    }
    for (const layers of ['auto', '3,5', '']) {
      const yes = await honed.call('POST', '/v1/plan', { ...least, pipeline_model_parallel_size: 2, layers_per_stage: layers });
      assert.equal(yes.layout, 'pp 2');
    }
    assert.equal((await honed.call('POST', '/v1/plan', { ...least, layers_per_stage: 'auto' })).fits, true);

    await honed.stop();
    await start(Math.ceil((one.device_bytes + two.device_bytes) / 2));
    const again = { ...least, training_file: job.training_file };
    const plan = await honed.call('POST', '/v1/plan', again);
    assert.equal(plan.fits, false);
    assert.deepEqual(plan.advice.map(({ field, value }) => [field, value])[0], ['pipeline_model_parallel_size', '2'], JSON.stringify(plan.advice));
    const done = await until(honed, (await honed.call('POST', '/v1/jobs', { ...again, pipeline_model_parallel_size: 2 })).id, ended);
    assert.deepEqual([done.state, done.layout, done.devices], ['succeeded', 'pp 2', 2], JSON.stringify(done.error));
  } finally {
    await honed.stop();
  }
});

test('a margin that was learned counts too', async () => {
  await start(Math.floor(whole * 1.01));
  try {
    assert.equal((await honed.call('POST', '/v1/plan', job)).fits, true);
    const out = await honed.call('POST', '/v1/jobs', { ...job, name: 'ms=2 oom_at=2' });
    const done = await until(honed, out.id, ended);
    assert.equal(done.error.code, 'out_of_memory');
    assert.ok((await honed.call('GET', '/v1/machine')).constants.margins['Small GPU'] >= Math.floor(whole / 50));
    assert.equal((await refused(honed.call('POST', '/v1/jobs', job))).code, 'does_not_fit');
  } finally {
    await honed.stop();
  }
});

test('each rank of a job has the cores of its own CPU slot, and as many threads as the others; the ids are in its plan', async () => {
  const slot = (id, cores, more) => ({ id, name: id, kind: 'cpu', memory_bytes: 16384 * MIB, reserved_bytes: 0, free_bytes: 16384 * MIB, node: 0, cores, ...more });
  await writeFile(path, JSON.stringify({ name: 'slots', nodes: [{ cores: '0-1', memory_bytes: 4096 * MIB }, { cores: '2-3', memory_bytes: 4096 * MIB }], devices: [slot('cpu0', '0-1', { core_count: 1 }), slot('cpu1', '1-3', { node: 1 })] }));
  honed = await startHoned({ args: ['--machine', path] });
  try {
    const file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
    const planOf = async (more) => {
      const one = await honed.call('POST', '/v1/jobs', request(file, 'ms=2', { max_steps: 3, ...more }));
      const done = await until(honed, one.id, ended);
      assert.equal(done.state, 'succeeded', JSON.stringify(done.error));
      return JSON.parse(await readFile(join(honed.folder, 'jobs', one.id, 'attempts/1/plan.json'), 'utf8'));
    };
    const one = await planOf({});
    assert.deepEqual([one.cores, one.threads, one.devices, one.gpus, one.device_ids, one.memory_node], [[0, 1], 1, 1, 0, 'cpu0', 0]);
    const two = await planOf({ devices: 2 });
    assert.deepEqual([two.cores, two.threads, two.devices, two.device_ids, two.memory_node], [[0, 1, 1, 2, 3], 1, 2, 'cpu0,cpu1', -1]);
    assert.deepEqual(two.places, [{ first: 0, count: 2, node: 0 }, { first: 2, count: 3, node: 1 }]);
    assert.equal((await planOf({ devices: 2, threads: 2 })).threads, 2);
  } finally {
    await honed.stop();
  }
});
