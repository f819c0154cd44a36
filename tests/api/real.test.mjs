// real.test.mjs - honed with the real trainer: a job from a text to a checkpoint that other readers load, what
// it writes, a server killed in the middle, and what a new user gets wrong.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';

const run = promisify(execFile);
const TRAINER = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone-train');
const WORDS = 'the small cat sees a red bird and it runs after them over there'.split(' ');
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
let text = '';

before(async () => {
  let x = 1;
  for (let i = 0; i < 3000; i += 1) {
    x = (x * 1103515245 + 12345) % 2147483648;
    text += WORDS[(x >> 16) % WORDS.length] + (i % 9 === 8 ? '.\n' : ' ');
  }
  folder = await mkdtemp(join(tmpdir(), 'hone-real-'));
  await mkdir(join(folder, 'models'));
  honed = await startHoned({
    trainer: TRAINER,
    args: ['--model-root', `m=${join(folder, 'models')}`],
  });
});

after(async () => {
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

async function ended(id) {
  for (let i = 0; i < 1200; i += 1) {
    const job = await honed.call('GET', `/v1/jobs/${id}`);
    if (['succeeded', 'failed', 'cancelled', 'paused'].includes(job.state)) {
      return job;
    }
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`job ${id} did not end`);
}

async function submit(more) {
  const file = await honed.upload('text.txt', text);
  return honed.call('POST', '/v1/jobs', {
    training_file: file.id,
    config: CONFIG,
    tokenizer_vocab_size: 300,
    max_steps: 30,
    sequence_length: 32,
    global_batch_size: 4,
    learning_rate: 0.003,
    threads: 1,
    ...more,
  });
}

async function events(id) {
  const all = [];
  for (let after = ''; ; ) {
    const page = await honed.call('GET', `/v1/jobs/${id}/events?limit=100${after}`);
    all.push(...page.data);
    if (!page.has_more) {
      return all;
    }
    after = `&after=${encodeURIComponent(page.last_id)}`;
  }
}

// All files of the newest checkpoint, each compared with the hash that the server names.
async function download(id, to) {
  const checkpoint = await honed.call('GET', `/v1/jobs/${id}/checkpoints/latest`);
  await mkdir(to, { recursive: true });
  for (const file of checkpoint.files) {
    const url = new URL(file.url, honed.url);
    const reply = await fetch(url, { headers: { Authorization: `Bearer ${honed.token}` } });
    assert.equal(reply.status, 200);
    const bytes = Buffer.from(await reply.arrayBuffer());
    assert.equal(bytes.length, file.bytes);
    assert.equal(createHash('sha256').update(bytes).digest('hex'), file.sha256);
    await writeFile(join(to, file.name), bytes);
  }
  return checkpoint;
}

test('a text becomes a model: the loss falls, the checkpoint loads elsewhere and writes text', async () => {
  const job = await ended((await submit({ name: 'first' })).id);
  assert.equal(job.state, 'succeeded', JSON.stringify(job.error));
  assert.equal(job.step, 30);
  assert.ok(job.memory_bytes > 1e6 && job.parameters > 1e4);

  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics`);
  assert.equal(curve.loss.length, 30);
  assert.ok(curve.loss.at(-1) < 0.7 * curve.loss[0], `${curve.loss[0]} to ${curve.loss.at(-1)}`);
  assert.ok(curve.eval.loss.at(-1) < curve.eval.loss[0]);
  const ready = (await events(job.id)).find((event) => event.type === 'ready');
  assert.equal(ready.memory_bytes, job.memory_bytes, 'planned at submit and by the rank');

  const to = join(folder, 'models', 'first');
  await download(job.id, to);
  const { stdout } = await run('node', [join(ROOT, 'tests/read_safetensors.mjs'), join(to, 'model.safetensors')]);
  const names = stdout.trim().split('\n');
  assert.equal(names.length, 2 + 2 * 9 + 1);
  assert.ok(names.some((line) => line.startsWith('model.layers.1.mlp.down_proj.weight F32 [32,64] ')));
  const config = JSON.parse(await readFile(join(to, 'config.json'), 'utf8'));
  assert.equal(config.vocab_size, 300);
  assert.deepEqual(config.architectures, ['LlamaForCausalLM']);
  const said = await run(TRAINER, ['generate', to, '--prompt', 'the small', '--max-tokens', '20', '--seed', '1']);
  assert.ok(WORDS.filter((word) => said.stdout.includes(word)).length >= 3, said.stdout);
});

test('a model of a root is trained on, by its path', async () => {
  const models = await honed.call('GET', '/v1/models');
  assert.ok(models.data.some((model) => model.id === 'm:first'));
  const job = await ended(
    (await submit({ config: null, tokenizer_vocab_size: null, model: 'm:first', max_steps: 5 })).id,
  );
  assert.equal(job.state, 'succeeded', JSON.stringify(job.error));
  const curve = await honed.call('GET', `/v1/jobs/${job.id}/metrics`);
  assert.ok(curve.loss[0] < 4.5, 'it starts from what was learned');
});

test('a run goes on while honed is killed and started again, and no event is lost or doubled', async () => {
  const { id } = await submit({ max_steps: 400, save_interval: 50 });
  for (let i = 0; (await honed.call('GET', `/v1/jobs/${id}`)).step < 20; i += 1) {
    assert.ok(i < 600);
    await new Promise((done) => setTimeout(done, 20));
  }
  await honed.kill();
  await honed.start();
  const job = await ended(id);
  assert.equal(job.state, 'succeeded', JSON.stringify(job.error));
  assert.equal(job.attempt, 1);
  const steps = (await events(id)).filter((event) => event.type === 'metrics').map((event) => event.step);
  assert.deepEqual(steps, Array.from({ length: 400 }, (_, i) => i + 1));
});

test('a pause keeps what was learned, and the run ends as if there had been none', async () => {
  const more = { max_steps: 2000, save_interval: 1000 };
  const whole = await ended((await submit(more)).id);
  const { id } = await submit(more);
  for (let i = 0; (await honed.call('GET', `/v1/jobs/${id}`)).step < 10; i += 1) {
    assert.ok(i < 600);
    await new Promise((done) => setTimeout(done, 20));
  }
  await honed.call('POST', `/v1/jobs/${id}/pause`);
  const paused = await ended(id);
  assert.equal(paused.state, 'paused', JSON.stringify(paused.error));
  assert.ok(paused.step < 2000);
  await honed.call('POST', `/v1/jobs/${id}/resume`);
  for (let i = 0; (await honed.call('GET', `/v1/jobs/${id}`)).state === 'paused'; i += 1) {
    assert.ok(i < 600);
    await new Promise((done) => setTimeout(done, 20));
  }
  const resumed = await ended(id);
  assert.equal(resumed.state, 'succeeded', JSON.stringify(resumed.error));
  const weights = async (job) => {
    const { files } = await honed.call('GET', `/v1/jobs/${job}/checkpoints/latest`);
    return files.find((file) => file.name === 'model.safetensors').sha256;
  };
  assert.equal(await weights(id), await weights(whole.id));
});

// What the server says at submit, or the job when it fails.
async function refusal(more, content) {
  try {
    const file = content === undefined ? null : await honed.upload('bad.txt', content);
    const job = await ended((await submit({ ...(file ? { training_file: file.id } : {}), ...more })).id);
    assert.equal(job.state, 'failed');
    return job.error;
  } catch (error) {
    if (!error.body) {
      throw error;
    }
    return JSON.parse(error.body).error;
  }
}

const copies = [
  ['damaged', 'model.safetensors', (bytes) => bytes.subarray(0, bytes.length - 100), /model\.safetensors/],
  ['lying', 'model.safetensors', (bytes) => Buffer.concat([Buffer.from([255, 255, 255, 255, 255, 255, 255, 127]), bytes.subarray(8)]), /model\.safetensors/],
  ['cut', 'tokenizer.json', (bytes) => bytes.subarray(0, bytes.length / 2), /tokenizer\.json/],
  ['wide', 'config.json', (bytes) => Buffer.from(bytes.toString().replace('"hidden_size": 32', '"hidden_size": 64')), /shape/],
  ['deep', 'config.json', (bytes) => Buffer.from(bytes.toString().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')), /model\.layers\.2/],
];

for (const [name, file, damage, says] of copies) {
  test(`a model folder with a bad ${file} (${name}) is refused in a sentence`, async () => {
    const to = join(folder, 'models', name);
    await cp(join(folder, 'models', 'first'), to, { recursive: true });
    await writeFile(join(to, file), damage(await readFile(join(to, file))));
    const error = await refusal({ config: null, tokenizer_vocab_size: null, model: `m:${name}` });
    assert.match(error.message, says);
    assert.ok(error.message.length < 300 && !error.message.includes('\n'));
  });
}

test('a text that is not UTF-8, empty, tiny or too short is refused, naming the line', async () => {
  const gbk = Buffer.concat([Buffer.from('fine\n'.repeat(8)), Buffer.from([0xc4, 0xe3]), Buffer.from('\n')]);
  const bad = await refusal({}, gbk);
  assert.equal(bad.code, 'invalid_training_file');
  assert.match(bad.message, /line 9/);
  assert.match((await refusal({}, '')).message, /empty|no text|tokens/i);
  const tiny = await refusal({}, 'a cat');
  assert.equal(tiny.code, 'no_trainable_tokens');
  assert.match(tiny.message, /sequence_length/);
  assert.match((await refusal({}, Buffer.from('hi there', 'utf16le'))).message, /UTF-16|NUL/);
});

test('wrong requests name the field', async () => {
  for (const [more, param, says] of [
    [{ learning_rte: 1 }, 'learning_rte', /learning_rate/],
    [{ learning_rate: 'fast' }, 'learning_rate', /number/],
    [{ max_steps: -5 }, 'max_steps', /-5/],
    [{ global_batch_size: 6, micro_batch_size: 4 }, 'micro_batch_size', /./],
    [{ training_file: 'file-nothere' }, 'training_file', /file-nothere/],
    [{ config: { ...CONFIG, model_type: 'bert' } }, 'config', /bert/],
    [{ config: { model_type: 'gpt2', n_positions: 16 } }, 'sequence_length', /16/],
    [{ config: { ...CONFIG, hidden_size: 65536, intermediate_size: 262144, num_hidden_layers: 80 } }, null, /GiB/],
  ]) {
    const error = await refusal(more);
    assert.match(error.message, says);
    if (param !== null) {
      assert.ok(error.param === param || (param === 'micro_batch_size' && error.param === 'global_batch_size'), JSON.stringify(error));
    }
  }
});

test('the plan of a request is what a job of it gets', async () => {
  const file = await honed.upload('text.txt', text);
  const plan = await honed.call('POST', '/v1/plan', {
    training_file: file.id,
    config: CONFIG,
    tokenizer_vocab_size: 300,
    max_steps: 1,
    sequence_length: 32,
    global_batch_size: 4,
    threads: 1,
  });
  assert.equal(plan.fits, true);
  assert.equal(
    Object.values(plan.memory).reduce((a, b) => a + b, 0),
    plan.memory_bytes,
  );
  const job = await ended((await submit({ max_steps: 1 })).id);
  assert.equal(job.memory_bytes, plan.memory_bytes);
});
