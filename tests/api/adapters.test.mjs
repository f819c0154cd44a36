// adapters.test.mjs - jobs that train a part of a model: adapters from a run to the next, what is refused at once,
// the export of what was made.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';

const run = promisify(execFile);
const TRAINER = join(resolve(ROOT, process.env.HONE_BUILD || 'build/release'), 'hone-train');
const CONFIG = {
  model_type: 'llama',
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
};

let honed = null;
let folder = null;
let file = null;
let base = null;
let adapted = null;

async function ended(id) {
  for (let i = 0; i < 1500; i += 1) {
    const job = await honed.call('GET', `/v1/jobs/${id}`);
    if (['succeeded', 'failed', 'cancelled', 'paused'].includes(job.state)) {
      return job;
    }
    await new Promise((done) => setTimeout(done, 40));
  }
  throw new Error(`job ${id} did not end`);
}

const request = (more) => ({ training_file: file.id, sequence_length: 32, global_batch_size: 4, threads: 1, ...more });

const submit = async (more) => ended((await honed.call('POST', '/v1/jobs', request(more))).id);

async function refused(more) {
  try {
    await honed.call('POST', '/v1/jobs', request(more));
  } catch (error) {
    return JSON.parse(error.body).error;
  }
  throw new Error('it was not refused');
}

async function download(job, name, to) {
  const { files } = await honed.call('GET', `/v1/jobs/${job.id}/checkpoints/latest`);
  const { url } = files.find((one) => one.name === name);
  const reply = await fetch(`${honed.url}${url}`, { headers: { Authorization: `Bearer ${honed.token}` } });
  await writeFile(to, Buffer.from(await reply.arrayBuffer()));
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-adapters-'));
  honed = await startHoned({ trainer: TRAINER });
  file = await honed.upload('text.txt', 'the small cat sees a red bird and runs after it.\n'.repeat(300));
  base = await submit({ config: CONFIG, tokenizer_vocab_size: 300, max_steps: 3 });
  assert.equal(base.state, 'succeeded');
});

after(async () => {
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

test('a run with adapters leaves a PEFT folder', async () => {
  adapted = await submit({ model: base.id, lora_rank: 4, lora_targets: 'q_proj,down_proj', max_steps: 3 });
  assert.equal(adapted.state, 'succeeded');
  const { files } = await honed.call('GET', `/v1/jobs/${adapted.id}/checkpoints/latest`);
  const names = files.map(({ name }) => name);
  for (const name of ['adapter_config.json', 'adapter_model.safetensors', 'tokenizer.json', 'optimizer.safetensors']) {
    assert.ok(names.includes(name), name);
  }
  assert.ok(!names.includes('model.safetensors') && !names.includes('config.json'));
  await download(adapted, 'adapter_config.json', join(folder, 'adapter_config.json'));
  const config = JSON.parse(await readFile(join(folder, 'adapter_config.json'), 'utf8'));
  assert.equal(config.peft_type, 'LORA');
  assert.deepEqual([config.r, config.lora_alpha, config.bias], [4, 8, 'none']);
  assert.deepEqual(config.target_modules, ['q_proj', 'down_proj']);
});

test('the next run goes on from it', async () => {
  const job = await submit({ model: base.id, adapter: adapted.id, max_steps: 2 });
  assert.equal(job.state, 'succeeded');
});

test('what cannot be trained is refused at once', async () => {
  const cases = [
    [{ model: adapted.id }, 'model', /is an adapter: give it as adapter/],
    [{ model: base.id, adapter: base.id }, 'adapter', /no adapter_config.json/],
    [{ model: base.id, lora_rank: 4, lora_targets: 'c_attn' }, 'lora_targets', /no linear layer/],
    [{ model: base.id, lora_alpha: 4 }, 'lora_alpha', /goes with lora_rank/],
    [{ model: base.id, freeze: 'transformer.wte' }, 'freeze', /name of no parameter/],
    [{ model: base.id, freeze: 'model,lm_head' }, 'freeze', /nothing to train/],
    [{ model: base.id, early_stopping_min_delta: 0.1 }, 'early_stopping_min_delta', /patience/],
    [{ model: base.id, sample_prompts: { prompts: [] } }, 'sample_prompts', /1 to 8/],
    [{ model: base.id, sample_prompts: { prompts: ['a'], seed: 1 } }, 'sample_prompts', /nothing/],
  ];
  for (const [more, param, message] of cases) {
    const error = await refused({ max_steps: 2, ...more });
    assert.equal(error.param, param, error.message);
    assert.match(error.message, message);
  }
});

test('a plan with adapters has memory for these alone', async () => {
  const whole = await honed.call('POST', '/v1/plan', request({ model: base.id, max_steps: 2 }));
  const part = await honed.call('POST', '/v1/plan', request({ model: base.id, lora_rank: 1, max_steps: 2 }));
  assert.equal(whole.trainable, whole.parameters);
  assert.ok(part.trainable < whole.trainable / 10 && part.parameters > whole.parameters);
  assert.ok(part.memory.optimizer < whole.memory.optimizer / 2);
});

test('the adapter that was downloaded is merged into its base', async () => {
  await download(adapted, 'adapter_model.safetensors', join(folder, 'adapter_model.safetensors'));
  const merged = join(folder, 'merged');
  await run(TRAINER, ['export', folder, merged]);
  const config = JSON.parse(await readFile(join(merged, 'config.json'), 'utf8'));
  assert.equal(config.model_type, 'llama');
  const prompt = ['--prompt', 'the small', '--temperature', '0', '--max-tokens', '8', '--threads', '1'];
  const one = await run(TRAINER, ['generate', folder, ...prompt]);
  const other = await run(TRAINER, ['generate', merged, ...prompt]);
  assert.equal(one.stdout, other.stdout);
});
