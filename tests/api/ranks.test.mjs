// ranks.test.mjs - jobs on four devices lose a rank or their launcher at random moments: all their processes are gone soon, they
// go on by themselves, and the model is, bit for bit, that of a job that was left alone.
//
// HONE_KILLS: rounds (3). HONE_SEED repeats the moments and victims of a run.
import assert from 'node:assert/strict';
import { resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { ended, eventsOf, until } from '../lib/jobs.mjs';
import { isAlive, jobProcesses } from '../lib/processes.mjs';

const TRAINER = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone-train');
const ROUNDS = Number(process.env.HONE_KILLS || 3);
const SEED = Number(process.env.HONE_SEED || Date.now() % 1000000);
const WORDS = 'the small cat sees a red bird and it runs after them over there'.split(' ');
const STEPS = 60;
const GONE_MS = 10000;

// Four ranks each; the third also divides experts.
const LLAMA = { model_type: 'llama', hidden_size: 32, intermediate_size: 64, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 64 };
const MIXTRAL = { ...LLAMA, model_type: 'mixtral', num_local_experts: 4, num_hidden_layers: 2 };
const LAYOUTS = [
  { config: LLAMA, devices: 4, tensor_model_parallel_size: 2, use_distributed_optimizer: 'yes', overlap_grad_reduce: 'yes' },
  { config: LLAMA, devices: 4, pipeline_model_parallel_size: 2, num_virtual_stages_per_pipeline_rank: 2, async_save: 'yes' },
  { config: MIXTRAL, devices: 4, expert_model_parallel_size: 2, use_distributed_optimizer: 'yes', precision: 'bf16' },
];

let honed = null;
let file = null;
let state = SEED;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Whole numbers below n.
function random(n) {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 4294967296) * n);
}

before(async () => {
  let text = '';
  let x = 1;
  for (let i = 0; i < 3000; i += 1) {
    x = (x * 1103515245 + 12345) % 2147483648;
    text += WORDS[(x >> 16) % WORDS.length] + (i % 9 === 8 ? '.\n' : ' ');
  }
  honed = await startHoned({ trainer: TRAINER, args: ['--cpu-slots', '4'] });
  file = (await honed.upload('text.txt', text)).id;
});
after(() => honed?.stop());

const submit = (layout, name) =>
  honed.call('POST', '/v1/jobs', {
    name,
    training_file: file,
    tokenizer_vocab_size: 300,
    max_steps: STEPS,
    save_interval: 10,
    eval_interval: 30,
    sequence_length: 32,
    global_batch_size: 4,
    micro_batch_size: 1,
    learning_rate: 0.003,
    threads: 1,
    ...layout,
  });

// What was learned: the hashes of the last checkpoint's numbers.
async function numbers(id) {
  const { files, step } = await honed.call('GET', `/v1/jobs/${id}/checkpoints/latest`);
  assert.equal(step, STEPS);
  return Object.fromEntries(files.filter(({ name }) => name.endsWith('.safetensors')).map(({ name, sha256 }) => [name, sha256]));
}

// Kill a process of the job, mostly a rank; returns what was killed, and the others of its run, or null when it had ended.
async function killOne(id) {
  const all = (await jobProcesses(honed.folder)).filter(({ job }) => job.startsWith(id));
  const launcher = random(5) === 0;
  const victims = all.filter(({ isLauncher }) => isLauncher === launcher);
  if (victims.length === 0) {
    return null;
  }
  const victim = victims[random(victims.length)];
  try {
    process.kill(victim.pid, 'SIGKILL');
  } catch {
    return null;
  }
  return { launcher, others: all.filter(({ pid }) => pid !== victim.pid) };
}

const wholes = [];

test(`jobs on four devices survive ${ROUNDS} kills`, { timeout: 120000 + ROUNDS * 60000 }, async (t) => {
  t.diagnostic(`HONE_SEED=${SEED}`);
  let killed = 0;
  let slowest = 0;
  for (let round = 0; killed < ROUNDS; round += 1) {
    assert.ok(round < 4 * ROUNDS + 4, 'jobs end before they can be killed');
    const layout = round % LAYOUTS.length;
    if (!wholes[layout]) {
      const alone = await until(honed, (await submit(LAYOUTS[layout], 'alone')).id, ended, 60000);
      assert.equal(alone.state, 'succeeded', JSON.stringify(alone.error));
      assert.equal(alone.attempt, 1);
      wholes[layout] = await numbers(alone.id);
    }
    const job = await submit(LAYOUTS[layout], `round ${round}`);
    const at = random(STEPS - 10);
    await until(honed, job.id, (now) => now.step >= at || ended(now), 60000);
    await sleep(random(60));
    const struck = await killOne(job.id);
    if (struck === null) {
      continue;
    }
    const begun = Date.now();
    while ((await Promise.all(struck.others.map(isAlive))).some(Boolean)) {
      assert.ok(Date.now() - begun < GONE_MS, 'a process outlives its run');
      await sleep(20);
    }
    slowest = Math.max(slowest, Date.now() - begun);
    const done = await until(honed, job.id, ended, 60000);
    assert.equal(done.state, 'succeeded', JSON.stringify(done.error));
    assert.deepEqual(await numbers(job.id), wholes[layout], `round ${round}: other numbers`);
    if (done.attempt > 1) {
      killed += 1;
      const losses = (await eventsOf(honed, job.id)).filter(({ type }) => type === 'error');
      assert.ok(struck.launcher || losses.some(({ message }) => /rank \d/.test(message)), JSON.stringify(losses));
    }
  }
  t.diagnostic(`${killed} kills, all processes gone within ${slowest} ms`);
});
