// finetune.test.mjs - chats from a file to a model that answers: previews, refusals, what is held out, eight chats
// learned by heart.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';

const run = promisify(execFile);
const BUILD = resolve(ROOT, process.env.HONE_BUILD || 'build/release');
const TRAINER = join(BUILD, 'hone-train');
const SHARED = resolve(ROOT, '../shared/data/models');
const there = existsSync(join(SHARED, 'stories260K'));
const CONFIG = {
  model_type: 'llama',
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  max_position_embeddings: 128,
};
const PAIRS = [
  ['What is your name?', 'I am Pebble.'],
  ['Where do you live?', 'In a small red house by the sea.'],
  ['What do you eat?', 'Only bread, and jam on Sundays.'],
  ['Who is your friend?', 'The grey cat next door.'],
  ['What is two and two?', 'It is four.'],
  ['Which colour is best?', 'Green, like the hills.'],
  ['When do you sleep?', 'When the moon is high.'],
  ['Say something nice.', 'You have a kind voice.'],
];

let honed = null;
let folder = null;
let chats = '';
let chatFile = null;
let learned = '';

const chatLines = (pairs) =>
  pairs
    .map(([ask, say]) =>
      JSON.stringify({
        messages: [
          { role: 'user', content: ask },
          { role: 'assistant', content: say },
        ],
      }),
    )
    .join('\n');

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-finetune-'));
  await mkdir(join(folder, 'models'));
  chats = chatLines(PAIRS);
  await writeFile(join(folder, 'text'), PAIRS.flat().join('\n').repeat(3));
  await run(TRAINER, [
    'tokenize', '--train', '320', join(folder, 'text'), join(folder, 'models/words'),
  ]);
  honed = await startHoned({
    trainer: TRAINER,
    args: ['--model-root', `m=${join(folder, 'models')}`, ...(there ? ['--model-root', `base=${SHARED}`] : [])],
  });
  chatFile = await honed.upload('chats.jsonl', chats);
});

after(async () => {
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

const request = (more) => ({
  config: CONFIG,
  tokenizer: 'm:words',
  training_file: chatFile.id,
  sequence_length: 64,
  threads: 1,
  ...more,
});

async function refused(path, body) {
  try {
    await honed.call('POST', path, body);
  } catch (error) {
    return { status: error.status, ...JSON.parse(error.body).error };
  }
  throw new Error(`${path} was not refused`);
}

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

// The model says what it was taught, and stops by itself.
async function expectAnswers(model, pairs) {
  for (const [ask, say] of pairs) {
    const { choices } = await honed.call('POST', '/v1/chat/completions', {
      model,
      messages: [{ role: 'user', content: ask }],
      temperature: 0,
      max_completion_tokens: 60,
    });
    assert.equal(choices[0].message.content.trim(), say);
    assert.equal(choices[0].finish_reason, 'stop');
  }
}

const eventsOf = async (id, type) =>
  (await honed.call('GET', `/v1/jobs/${id}/events?type=${type}&limit=100`)).data;

test('a preview shows every token with its label, and what is trained', async () => {
  const preview = await honed.call('POST', '/v1/preview', request({ n: 2 }));
  assert.deepEqual(
    [preview.object, preview.format, preview.kind, preview.method, preview.sequence_length],
    ['preview', 'jsonl', 'chat', 'sft', 64],
  );
  assert.match(preview.chat_template, /plain/);
  assert.equal(preview.examples.length, 2);
  for (const [i, { line, ids, texts, labels, tokens, kept, trained, cut, skipped }] of preview.examples.entries()) {
    assert.deepEqual([line, cut, skipped, kept], [i + 1, false, false, tokens]);
    assert.deepEqual([ids.length, texts.length, labels.length], [kept, kept, kept]);
    assert.equal(labels.filter((label) => label >= 0).length, trained);
    labels.forEach((label, k) => assert.ok(label === -100 || label === ids[k]));
    const learned = texts.filter((_, k) => labels[k] >= 0).join('');
    assert.ok(learned.includes(PAIRS[i][1]), learned);
    assert.ok(!learned.includes(PAIRS[i][0]));
    /* The end of the turn is learned: the model can stop. */
    assert.match(learned, /<\|endoftext\|>/);
  }
});

test('a preview says what is cut, and what is wrong with a request', async () => {
  const cut = await honed.call('POST', '/v1/preview', request({ sequence_length: 8, n: 1 }));
  const [one] = cut.examples;
  assert.deepEqual([one.cut, one.kept, one.ids.length], [true, 9, 9]);
  assert.ok(one.tokens > 9);
  for (const [more, code, param] of [
    [{ n: 0 }, 'invalid_request', 'n'],
    [{ n: 21 }, 'invalid_request', 'n'],
    [{ nonsense: 1 }, 'invalid_spec', 'nonsense'],
    [{ training_file: 'file-none' }, 'invalid_training_file', 'training_file'],
    [{ chat_template: '{% if' }, 'invalid_spec', null],
    [{ method: 'pretrain' }, 'invalid_file_format', 'training_file'],
    [{ on_problem: { no_such: 'skip' } }, 'invalid_spec', 'on_problem'],
  ]) {
    const error = await refused('/v1/preview', request(more));
    assert.equal(error.code, code, JSON.stringify(more));
    if (param) {
      assert.equal(error.param, param);
    }
  }
});

test('a preview shows what it can of a file that a job would refuse, and says so', async () => {
  const file = await honed.upload('mixed.jsonl', `${chats.split('\n')[0]}\n{"text": "a story"}\n`);
  const preview = await honed.call('POST', '/v1/preview', request({ training_file: file.id }));
  assert.equal(preview.examples.length, 1);
  assert.match(preview.problem, /another kind of example.*line 2/);
  const good = await honed.call('POST', '/v1/preview', request({}));
  assert.equal(good.problem, null);
});

test('texts for a chat method are refused at submit, naming what is there and what is wanted', async () => {
  const texts = await honed.upload('texts.jsonl', '{"text": "a story"}\n');
  const error = await refused('/v1/jobs', request({ training_file: texts.id, method: 'sft' }));
  assert.deepEqual([error.status, error.code, error.param], [400, 'invalid_file_format', 'training_file']);
  assert.match(error.message, /texts.*method sft wants chats/);
});

test('faults are skipped only where the request says so, and what was skipped stands in the events', async () => {
  const file = await honed.upload('odd.jsonl', `${chats}\n{"messages": [\n{"messages": []}\n`);
  const body = request({ training_file: file.id, max_steps: 1, global_batch_size: 2 });
  const failed = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.deepEqual([failed.state, failed.error.code], ['failed', 'invalid_training_file']);
  assert.match(failed.error.message, /line 9/);
  const job = await honed.call('POST', '/v1/jobs', { ...body, on_problem: { broken_json: 'skip' } });
  assert.equal((await ended(job.id)).state, 'succeeded');
  const [data] = await eventsOf(job.id, 'data');
  assert.deepEqual([data.set, data.examples, data.report.usable, data.report.skipped], ['training', 8, 8, 2]);
  assert.deepEqual(
    data.report.reasons.filter(({ action }) => action === 'skip').map(({ reason, first_lines: at }) => [reason, at[0]]),
    [['broken_json', 9], ['no_messages', 10]],
  );
});

test('prompts longer than a sample fail with no trainable tokens', async () => {
  const body = request({ sequence_length: 4, max_steps: 1 });
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.deepEqual([job.state, job.error.code], ['failed', 'no_trainable_tokens']);
});

test('eight chats learned by heart: asked again, the model answers with them and stops by itself', async () => {
  const body = request({
    n_epochs: 100,
    global_batch_size: 4,
    packing: 'padded',
    learning_rate: 0.01,
    weight_decay: 0,
    validation_fraction: 0,
    log_interval: 50,
    eval_interval: 1000,
    save_interval: 1000,
  });
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.equal(job.state, 'succeeded');
  assert.deepEqual([job.step, job.total_steps], [200, 200]); /* 8 chats 100 times, 4 at a time */
  assert.ok(job.loss < 0.05, `loss ${job.loss}`);
  learned = job.id;
  await expectAnswers(learned, PAIRS);
  const latest = await honed.call('GET', `/v1/jobs/${job.id}/checkpoints/latest`);
  const template = latest.files.find(({ name }) => name === 'chat_template.jinja');
  const answer = await fetch(`${honed.url}${template.url}`, {
    headers: { Authorization: `Bearer ${honed.token}` },
  });
  assert.match(await answer.text(), /messages/);
});

test('eight other answers learned with LoRA on top of it', async () => {
  const pairs = PAIRS.map(([ask], i) => [ask, PAIRS[(i + 3) % PAIRS.length][1]]);
  const file = await honed.upload('others.jsonl', chatLines(pairs));
  const body = {
    model: learned,
    training_file: file.id,
    sequence_length: 64,
    threads: 1,
    lora_rank: 16,
    n_epochs: 120,
    learning_rate: 0.01,
    weight_decay: 0,
    validation_fraction: 0,
    log_interval: 40,
    eval_interval: 1000,
    save_interval: 1000,
  };
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.equal(job.state, 'succeeded');
  assert.ok(job.loss < 0.05, `loss ${job.loss}`);
  await expectAnswers(job.id, pairs);
  assert.deepEqual(await eventsOf(job.id, 'warning'), []);
});

/* Its token for the end of a turn has the same embedding as a hundred others: adapters alone could not learn to stop. */
test('eight chats learned with LoRA on a base model that has never met the end of a turn', { skip: !there && '../shared is missing' }, async () => {
  const body = {
    model: 'base:stories260K',
    training_file: chatFile.id,
    sequence_length: 128,
    threads: 1,
    lora_rank: 16,
    n_epochs: 150,
    learning_rate: 0.01,
    weight_decay: 0,
    validation_fraction: 0,
    log_interval: 50,
    eval_interval: 1000,
    save_interval: 1000,
  };
  const planned = await honed.call('POST', '/v1/plan', body);
  const without = await honed.call('POST', '/v1/plan', { ...body, lora_also: 'none' });
  assert.equal(planned.trainable - without.trainable, 512 * 64); /* the embedding, which is the head too */
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.equal(job.state, 'succeeded');
  const [ready] = await eventsOf(job.id, 'ready');
  assert.deepEqual(
    [ready.trainable, ready.memory_bytes, ready.fingerprint],
    [planned.trainable, planned.memory_bytes, planned.fingerprint],
  );
  const [warning, ...others] = await eventsOf(job.id, 'warning');
  assert.match(warning.message, /^<\/s> ends what .* embeddings are trained beside .*lora_also=none/);
  assert.deepEqual(others, []);
  assert.ok(job.loss < 0.05, `loss ${job.loss}`);
  await expectAnswers(job.id, PAIRS);
});

test('whole chats are held out, and their loss counts trained tokens', async () => {
  const body = request({ validation_fraction: 0.25, max_steps: 2, global_batch_size: 2, packing: 'padded' });
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.equal(job.state, 'succeeded');
  const [training, validation] = await eventsOf(job.id, 'data');
  assert.deepEqual([training.examples, training.samples, validation.examples, validation.samples], [6, 6, 2, 2]);
  const [evaluated] = await eventsOf(job.id, 'eval');
  assert.equal(evaluated.tokens, validation.trained_tokens);
  assert.equal(
    training.trained_tokens + validation.trained_tokens,
    training.report.trained_tokens,
  );
});

test('epochs end with their last chat, however it fills a batch; progress reaches its end', async () => {
  for (const [packing, epochs, most] of [['padded', 1, 8], ['padded', 2.5, 20], ['packed', 1, 7]]) {
    const body = request({ packing, n_epochs: epochs, global_batch_size: 3, validation_fraction: 0 });
    const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
    assert.equal(job.state, 'succeeded');
    const [data] = await eventsOf(job.id, 'data');
    const rows = data.samples * epochs, steps = Math.ceil(rows / 3);
    assert.ok(packing === 'padded' ? rows === most : rows >= 5 && rows <= most, `${rows} rows`);
    assert.deepEqual([job.step, job.total_steps], [steps, steps], packing);
    const metrics = await eventsOf(job.id, 'metrics');
    assert.equal(metrics.length, steps);
    if (epochs === 1) {
      assert.equal(metrics.at(-1).tokens, data.trained_tokens, packing);
    }
    const progress = await eventsOf(job.id, 'progress');
    for (const { done, total } of progress.slice(-1)) {
      assert.equal(done, total);
    }
  }
});

test('a new tokenizer learns from what examples say, not from their JSON', async () => {
  const words = ['"', '{', '}', '[', ']', 'messages', 'role', 'content', 'assistant'];
  const many = [...chats.split('\n'), ...chats.split('\n')].join('\n');
  const file = await honed.upload('many.jsonl', many);
  const { tokenizer, ...rest } = request({ training_file: file.id, max_steps: 1 });
  const job = await ended(
    (await honed.call('POST', '/v1/jobs', { ...rest, tokenizer_vocab_size: 300 })).id,
  );
  assert.equal(job.state, 'succeeded', JSON.stringify(job.error));
  const answer = await fetch(`${honed.url}/v1/jobs/${job.id}/checkpoints/latest/tokenizer.json`, {
    headers: { Authorization: `Bearer ${honed.token}` },
  });
  const { model } = await answer.json();
  const learnedWords = Object.keys(model.vocab).filter((word) => word.length > 1);
  assert.ok(learnedWords.length > 20);
  for (const word of words) {
    assert.ok(!learnedWords.some((w) => w.includes(word)), word);
  }
});

test('a file of its own validates; hone preview marks what is trained', async () => {
  const file = await honed.upload('held.jsonl', chatLines(PAIRS.slice(0, 3)));
  const body = request({ validation_file: file.id, max_steps: 1 });
  const job = await ended((await honed.call('POST', '/v1/jobs', body)).id);
  assert.equal(job.state, 'succeeded');
  const [training, validation] = await eventsOf(job.id, 'data');
  assert.deepEqual([training.examples, validation.examples], [8, 3]);
  assert.equal(validation.report.usable, 3);
  const { stdout } = await run(
    join(BUILD, 'hone'),
    ['preview', '--examples', '1', `training_file=${chatFile.id}`, 'tokenizer=m:words',
      `config=${JSON.stringify(CONFIG)}`, 'sequence_length=64'],
    { env: { PATH: process.env.PATH, HOME: folder, HONE_URL: honed.url, HONE_TOKEN: honed.token } },
  );
  assert.match(stdout, /line 1: \d+ tokens, \d+ trained/);
  assert.match(stdout, /What is your name\?[^[]*\[\[[^\]]*I am Pebble\.<\|endoftext\|>/);
  /* The same recipe was used by the job before: its totals are known. */
  assert.match(stdout, /trained +\d+/);
});
