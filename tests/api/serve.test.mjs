// serve.test.mjs - models answer: the unmodified openai client against honed and the real hone-train.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { makeModel } from '../lib/model.mjs';

const TRAINER = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone-train');
const STORIES = join(ROOT, '../shared/data/models/stories260K');
const run = promisify(execFile);

const TEMPLATE =
  "{% if messages[0].role == 'tool' %}{{ raise_exception('a tool begins') }}{% endif %}" +
  '{% for m in messages %}<|user|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}' +
  '{% if add_generation_prompt %}<|user|>assistant: {% endif %}';
// The tokens of tests/lib/model.mjs: <s>, </s>, <|user|>, <|end|>, then the bytes.
const bytes = (text) => [...Buffer.from(text)].map((b) => b + 4);
const turn = (role, content) => [2, ...bytes(`${role}: ${content}`), 3];

let OpenAI = null;
let honed = null;
let client = null;
let folder = null;

before(async () => {
  ({ default: OpenAI } = await import('openai'));
  folder = await mkdtemp(join(tmpdir(), 'hone-serve-'));
  await makeModel(join(folder, 'models/one'));
  await makeModel(join(folder, 'models/two'), { seed: 2 });
  await makeModel(join(folder, 'models/three'), { seed: 3 });
  await makeModel(join(folder, 'models/broken'));
  await makeModel(join(folder, 'models/chat'), { template: TEMPLATE, positions: 512 });
  await makeModel(join(folder, 'models/mute'), { template: '{% for %}' });
  await writeFile(join(folder, 'models/broken/model.safetensors'), 'no tensors');
  if (existsSync(STORIES)) {
    await cp(STORIES, join(folder, 'models/stories'), { recursive: true });
  }
  honed = await startHoned({
    trainer: TRAINER,
    args: ['--model-root', `m=${join(folder, 'models')}`, '--serve-grace-s', '1', '--threads', '2'],
  });
  client = new OpenAI({ apiKey: honed.token, baseURL: `${honed.url}/v1`, maxRetries: 0 });
});

after(async () => {
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

const base = { model: 'm:one', prompt: 'Hello', max_tokens: 12, seed: 7 };

async function refused(promise, status, param, pattern = /./) {
  await assert.rejects(promise, (error) => {
    assert.equal(error.status, status, error.message);
    assert.equal(error.param, param);
    assert.match(error.message, pattern);
    return true;
  });
}

// Processes of models: [{pid, folder}].
async function processes() {
  const { stdout } = await run('ps', ['-eo', 'pid,args']);
  return stdout
    .split('\n')
    .map((line) => line.trim().match(/^(\d+) (\S+) serve (\S+) --socket (\S+)/))
    .filter((m) => m && m[4].startsWith(honed.folder))
    .map((m) => ({ pid: Number(m[1]), model: m[3].split('/').at(-1) }));
}

async function until(what, condition, ms = 10000) {
  const end = Date.now() + ms;
  while (!(await condition())) {
    if (Date.now() > end) {
      throw new Error(`in vain waited until ${what}`);
    }
    await new Promise((done) => setTimeout(done, 30));
  }
}

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) {
    chunks.push(chunk);
  }
  return chunks;
}

test('a completion has the shape of its kind, and counts', async () => {
  const answer = await client.completions.create(base);
  assert.match(answer.id, /^cmpl-/);
  assert.equal(answer.object, 'text_completion');
  assert.equal(answer.model, 'm:one');
  assert.ok(Math.abs(answer.created - Date.now() / 1000) < 60);
  assert.equal(answer.choices.length, 1);
  assert.equal(answer.choices[0].index, 0);
  assert.equal(answer.choices[0].logprobs, null);
  assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
  assert.equal(answer.usage.prompt_tokens, 5);
  assert.ok(answer.usage.completion_tokens <= 12);
  assert.equal(answer.usage.total_tokens, 5 + answer.usage.completion_tokens);
  const preset = await client.completions.create({ model: 'm:one', prompt: 'x', ignore_eos: true });
  assert.equal(preset.usage.completion_tokens, 16);
});

test('a seed decides; streamed it is the same text', async () => {
  const ask = { ...base, max_tokens: 60, temperature: 1.2, ignore_eos: true };
  const [one, two, other] = await Promise.all([
    client.completions.create(ask),
    client.completions.create(ask),
    client.completions.create({ ...ask, seed: 8 }),
  ]);
  assert.equal(one.choices[0].text, two.choices[0].text);
  assert.notEqual(one.choices[0].text, other.choices[0].text);
  const chunks = await collect(
    await client.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }),
  );
  assert.equal(chunks.map((c) => c.choices[0]?.text ?? '').join(''), one.choices[0].text);
  assert.equal(new Set(chunks.map((c) => c.id)).size, 1);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, one.usage);
  assert.equal(chunks.at(-2).choices[0].finish_reason, 'length');
  assert.ok(chunks.length > 10);
});

test('several prompts and choices keep their places', async () => {
  const ask = { ...base, prompt: ['Hello', 'World'], n: 2, temperature: 1 };
  const all = await client.completions.create(ask);
  assert.deepEqual(
    all.choices.map((c) => c.index),
    [0, 1, 2, 3],
  );
  const hello = await client.completions.create(base);
  const world = await client.completions.create({ ...base, prompt: 'World' });
  assert.equal(all.choices[0].text, hello.choices[0].text);
  assert.equal(all.choices[2].text, world.choices[0].text);
  assert.equal(all.usage.prompt_tokens, 10);
  const ids = await client.completions.create({
    ...base,
    prompt: [...'Hello'].map((c) => c.charCodeAt(0) + 4),
  });
  assert.equal(ids.choices[0].text, hello.choices[0].text);
});

test('a stop string ends the text before itself', async () => {
  const ask = { ...base, max_tokens: 80, temperature: 1, ignore_eos: true };
  const whole = (await client.completions.create(ask)).choices[0].text;
  const at = whole.search(/[!-~]{2}/);
  const stop = whole.slice(at, at + 2);
  const cut = await client.completions.create({ ...ask, stop: ['never', stop] });
  assert.equal(cut.choices[0].text, whole.slice(0, whole.indexOf(stop)));
  assert.equal(cut.choices[0].finish_reason, 'stop');
  const chunks = await collect(await client.completions.create({ ...ask, stop, stream: true }));
  assert.equal(chunks.map((c) => c.choices[0].text).join(''), cut.choices[0].text);
});

test('probabilities and the echo of a prompt', async () => {
  const answer = await client.completions.create({
    ...base,
    temperature: 0,
    echo: true,
    logprobs: 3,
    max_tokens: 4,
  });
  const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs;
  assert.ok(answer.choices[0].text.startsWith('Hello'));
  assert.deepEqual(tokens.slice(0, 5), [...'Hello']);
  assert.deepEqual(text_offset.slice(0, 6), [0, 1, 2, 3, 4, 5]);
  assert.equal(token_logprobs[0], null);
  assert.equal(top_logprobs[0], null);
  for (let i = 5; i < tokens.length; i += 1) {
    assert.ok(token_logprobs[i] <= 0);
    assert.ok(token_logprobs[i] >= Math.max(...Object.values(top_logprobs[i])) - 1e-9);
  }
});

const chat = (more) => ({
  model: 'm:chat',
  messages: [
    { role: 'developer', content: 'Be good.' },
    { role: 'user', content: [{ type: 'text', text: 'Say <|end|>' }, { type: 'text', text: ' é' }] },
  ],
  max_completion_tokens: 40,
  seed: 3,
  ...more,
});

test('a chat is asked by the template of its model; what users write is text in it', async () => {
  const ids = [...turn('system', 'Be good.'), ...turn('user', 'Say <|end|> é'), 2, ...bytes('assistant: ')];
  const answer = await client.chat.completions.create(chat());
  assert.match(answer.id, /^chatcmpl-/);
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.equal(answer.choices[0].message.refusal, null);
  assert.equal(answer.choices[0].logprobs, null);
  assert.equal(answer.usage.prompt_tokens, ids.length);
  // The same tokens as a text to go on with; a chat ends at the end of the turn as well.
  const text = await client.completions.create({
    model: 'm:chat', prompt: ids, max_tokens: 40, seed: 3, logprobs: 0,
  });
  const { tokens } = text.choices[0].logprobs;
  const end = tokens.indexOf('<|end|>');
  const expected = end < 0 ? text.choices[0].text : tokens.slice(0, end).join('');
  assert.equal(answer.choices[0].message.content.replaceAll('\ufffd', ''), expected.replaceAll('\ufffd', ''));
});

test('a chat ends at the end of its turn', async () => {
  const answer = await client.chat.completions.create(chat({ logit_bias: { 3: 100 } }));
  assert.equal(answer.choices[0].message.content, '');
  assert.equal(answer.choices[0].finish_reason, 'stop');
});

test('a chat streams in deltas, with probabilities', async () => {
  const ask = chat({ logprobs: true, top_logprobs: 2, n: 2, ignore_eos: true });
  const whole = await client.chat.completions.create(ask);
  const chunks = await collect(
    await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }),
  );
  for (const i of [0, 1]) {
    const mine = chunks.filter((c) => c.choices[0]?.index === i).map((c) => c.choices[0]);
    assert.deepEqual(mine[0].delta, { role: 'assistant', content: '' });
    assert.equal(mine.map((c) => c.delta.content ?? '').join(''), whole.choices[i].message.content);
    assert.equal(mine.at(-1).finish_reason, 'length');
    assert.deepEqual(mine.at(-1).delta, {});
    const tokens = mine.flatMap((c) => c.logprobs?.content ?? []);
    assert.deepEqual(tokens, whole.choices[i].logprobs.content);
    assert.equal(tokens.length, 40);
    assert.equal(tokens[0].top_logprobs.length, 2);
    assert.ok(tokens[0].top_logprobs[0].logprob >= tokens[0].top_logprobs[1].logprob);
  }
  assert.ok(chunks.every((c) => c.object === 'chat.completion.chunk'));
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  const runner = client.chat.completions.stream({ ...chat(), stream: true });
  const one = await client.chat.completions.create(chat());
  assert.equal(await runner.finalContent(), one.choices[0].message.content);
});

test('a chat that is wrong is refused by name', async () => {
  const create = (body) => client.chat.completions.create(chat(body));
  const user = { role: 'user', content: 'x' };
  await refused(create({ messages: undefined }), 400, 'messages');
  await refused(create({ messages: [] }), 400, 'messages');
  await refused(create({ messages: 'hi' }), 400, 'messages');
  await refused(create({ messages: [{ role: 'god', content: 'x' }] }), 400, 'messages', /\[0\].*role/);
  await refused(create({ messages: [user, { role: 'user' }] }), 400, 'messages', /\[1\]/);
  await refused(create({ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }), 400, 'messages', /image/);
  await refused(create({ messages: [{ role: 'tool', content: 'x' }] }), 400, 'messages', /a tool begins/);
  await refused(create({ messages: [{ role: 'user', content: 'x'.repeat(600) }] }), 400, 'messages', /512/);
  for (const name of ['tools', 'tool_choice', 'functions', 'function_call', 'audio', 'prediction']) {
    await refused(create({ [name]: [] }), 400, name);
  }
  await refused(create({ modalities: ['text', 'audio'] }), 400, 'modalities');
  await refused(create({ response_format: { type: 'json_object' } }), 400, 'response_format');
  await refused(create({ top_logprobs: 2 }), 400, 'top_logprobs');
  await refused(create({ logprobs: 2 }), 400, 'logprobs');
  await refused(create({ max_completion_tokens: 'x' }), 400, 'max_completion_tokens');
  await refused(create({ prompt: 'x' }), 400, 'prompt');
  const fine = await create({ response_format: { type: 'text' }, modalities: ['text'], tools: null });
  assert.equal(fine.object, 'chat.completion');
  await refused(create({ model: 'm:mute' }), 422, 'messages', /template/);
  assert.equal((await client.completions.create({ ...base, model: 'm:mute' })).object, 'text_completion');
});

test('what is wrong is refused by name, and nothing is loaded for it', async () => {
  const create = (body) => client.completions.create({ ...base, ...body });
  await refused(create({ model: 'm:none' }), 404, 'model');
  await refused(create({ model: 'job-abcdefghijklmn' }), 404, 'model');
  await refused(create({ model: '../../etc' }), 404, 'model');
  await refused(create({ model: 5 }), 400, 'model');
  await refused(create({ prompt: 5 }), 400, 'prompt');
  await refused(create({ prompt: [] }), 400, 'prompt');
  await refused(create({ prompt: [1, 'a'] }), 400, 'prompt');
  await refused(create({ prompt: [-1] }), 400, 'prompt');
  await refused(create({ prompt: [99999] }), 400, 'prompt', /260/);
  await refused(create({ prompt: Array(17).fill('a') }), 400, 'prompt', /16/);
  await refused(create({ temperature: 'hot' }), 400, 'temperature');
  await refused(create({ temperature: 3 }), 400, 'temperature');
  await refused(create({ top_p: -1 }), 400, 'top_p');
  await refused(create({ n: 1000 }), 400, 'n');
  await refused(create({ max_tokens: -1 }), 400, 'max_tokens');
  await refused(create({ stop: ['a', 'b', 'c', 'd', 'e'] }), 400, 'stop');
  await refused(create({ stop: '' }), 400, 'stop');
  await refused(create({ stop: [3] }), 400, 'stop');
  await refused(create({ logprobs: 21 }), 400, 'logprobs');
  await refused(create({ logit_bias: { x: 1 } }), 400, 'logit_bias');
  await refused(create({ logit_bias: { 999: 1 } }), 400, 'logit_bias');
  await refused(create({ seed: 1.5 }), 400, 'seed');
  await refused(create({ stream: 'yes' }), 400, 'stream');
  await refused(create({ stream_options: {} }), 400, 'stream_options');
  await refused(create({ best_of: 3 }), 400, 'best_of');
  await refused(create({ suffix: 'x' }), 400, 'suffix');
  await refused(create({ max_token: 5 }), 400, 'max_token');
  await refused(create({ prompt: 'x'.repeat(300) }), 400, 'prompt', /300.*256/);
  await refused(create({ max_tokens: 300 }), 400, 'prompt', /256/);
  await refused(create({ prompt: 'x'.repeat(300), stream: true }), 400, 'prompt', /256/);
  await refused(create({ model: 'm:broken' }), 422, 'model');
  const empty = await client.completions.create({ ...base, user: 'me', best_of: 1, seed: null });
  assert.equal(empty.object, 'text_completion');
});

test('several clients stream from two models at once', async () => {
  const names = ['m:one', 'm:two', 'm:one', 'm:two', 'm:one', 'm:two'];
  const asks = names.map((model, i) => ({ ...base, model, max_tokens: 40 + i, seed: i, ignore_eos: true }));
  const alone = [];
  for (const ask of asks) {
    alone.push((await client.completions.create(ask)).choices[0].text);
  }
  const together = await Promise.all(
    asks.map(async (ask) =>
      (await collect(await client.completions.create({ ...ask, stream: true })))
        .map((c) => c.choices[0].text)
        .join(''),
    ),
  );
  assert.deepEqual(together, alone);
  assert.deepEqual((await processes()).map((p) => p.model).sort(), ['one', 'two']);
});

test('a model is described by its name', async () => {
  const model = await client.models.retrieve('m:one');
  assert.equal(model.id, 'm:one');
  assert.equal(model.object, 'model');
  assert.equal(model.family, 'llama');
  assert.equal(model.adapter, false);
  await refused(client.models.retrieve('m:none'), 404, 'model');
  await refused(client.models.retrieve('job-abcdefghijklmn'), 404, 'model');
});

test('a third model takes the place of one that nobody asks', async () => {
  const answer = await client.completions.create({ ...base, model: 'm:three' });
  assert.equal(answer.model, 'm:three');
  const models = (await processes()).map((p) => p.model);
  assert.ok(models.includes('three') && models.length <= 2, models.join());
});

test('another user cannot ask a checkpoint that is not his', async () => {
  const { token } = await honed.call('POST', '/v1/users', { name: 'eve', role: 'member' });
  const eve = new OpenAI({ apiKey: token, baseURL: `${honed.url}/v1`, maxRetries: 0 });
  await refused(eve.completions.create({ ...base, model: 'job-abcdefghijklmn:3' }), 404, 'model');
  assert.equal((await eve.completions.create(base)).object, 'text_completion');
  await assert.rejects(
    new OpenAI({ apiKey: 'x', baseURL: `${honed.url}/v1`, maxRetries: 0 }).completions.create(base),
    OpenAI.AuthenticationError,
  );
});

// A text that goes on for long: the model has 256 positions, so it is asked for all choices at once.
const long = { ...base, prompt: Array(16).fill('a'), n: 16, max_tokens: 250, ignore_eos: true };

test('a client that goes away ends its request', async () => {
  await client.completions.create(base);
  const abort = new AbortController();
  const stream = await client.completions.create({ ...long, stream: true }, { signal: abort.signal });
  for await (const chunk of stream) {
    assert.ok(chunk.choices);
    break;
  }
  abort.abort();
  const gone = new AbortController();
  const whole = client.completions.create(long, { signal: gone.signal });
  setTimeout(() => gone.abort(), 50);
  await assert.rejects(whole);
  // 16 x 16 texts of 250 tokens would keep all slots for long
  const start = Date.now();
  await client.completions.create({ ...base, max_tokens: 2 });
  assert.ok(Date.now() - start < 2500, `${Date.now() - start} ms`);
});

test('a process that is killed fails its request clearly, and the next starts anew', async () => {
  await client.completions.create(base);
  const [before] = (await processes()).filter((p) => p.model === 'one');
  const whole = client.completions.create(long);
  const stream = await client.completions.create({ ...long, stream: true });
  setTimeout(() => process.kill(before.pid, 'SIGKILL'), 100);
  await refused(whole, 503, null, /signal 9|broke off/);
  await assert.rejects(collect(stream), (error) => /signal 9|broke off/.test(error.message));
  const answer = await client.completions.create(base);
  assert.equal(answer.object, 'text_completion');
  const [after] = (await processes()).filter((p) => p.model === 'one');
  assert.notEqual(after.pid, before.pid);
});

test('models leave when a job needs the machine', async () => {
  const busy = client.completions.create(long).catch((error) => error);
  await until('it answers', async () => (await processes()).length > 0);
  const file = await honed.upload('a.txt', 'the small cat sees a red bird and runs.\n'.repeat(3000));
  const job = await honed.call('POST', '/v1/jobs', {
    training_file: file.id,
    config: {
      model_type: 'llama',
      hidden_size: 32,
      intermediate_size: 64,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      max_position_embeddings: 64,
    },
    tokenizer_vocab_size: 300,
    sequence_length: 32,
    global_batch_size: 8,
    max_steps: 100000,
    save_interval: 5,
    eval_interval: 5,
  });
  const state = async () => (await honed.call('GET', `/v1/jobs/${job.id}`)).state;
  await until('the job runs', async () => (await state()) === 'running');
  assert.deepEqual(await processes(), []);
  const failed = await busy;
  assert.ok(failed.status === 503 || failed.object === 'text_completion', String(failed));
  await refused(client.completions.create(base), 503, null, /job/);
  await until('it saves', async () =>
    (await honed.call('GET', `/v1/jobs/${job.id}/checkpoints`)).data.length > 0);
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`, { save: true });
  await until('the job ends', async () => (await state()) === 'cancelled');
  await until('models answer', async () => {
    try {
      const answer = await client.completions.create({ ...base, model: job.id });
      assert.equal(answer.model, job.id);
      return true;
    } catch (error) {
      assert.equal(error.status, 503, error.message);
      return false;
    }
  });
  const { data } = await honed.call('GET', `/v1/jobs/${job.id}/checkpoints`);
  const answer = await client.completions.create({ ...base, model: data.at(-1).id });
  assert.equal(answer.model, data.at(-1).id);
  assert.equal(
    (await client.completions.create({ ...base, model: `${job.id}:best` })).model,
    `${job.id}:best`,
  );
  await refused(client.completions.create({ ...base, model: `${job.id}:worst` }), 404, 'model');
  await refused(client.completions.create({ ...base, model: `${job.id}:999999999` }), 404, 'model');
  const { token } = await honed.call('POST', '/v1/users', { name: 'mallory', role: 'member' });
  const mallory = new OpenAI({ apiKey: token, baseURL: `${honed.url}/v1`, maxRetries: 0 });
  await refused(mallory.completions.create({ ...base, model: job.id }), 403, 'model');
  const listed = [];
  for await (const model of client.models.list()) {
    listed.push(model.id);
  }
  assert.ok(listed.includes('m:one') && listed.includes(data.at(-1).id), listed.join());
});

test('the model of stories tells one', { skip: !existsSync(STORIES) }, async () => {
  const answer = await client.completions.create({
    model: 'm:stories',
    prompt: 'Once upon a time',
    temperature: 0,
    max_tokens: 12,
  });
  assert.equal(answer.choices[0].text, ', there was a little girl named Lily. She');
});

const FACTS = [
  ['What is the cat called?', 'The cat is called Tom.'],
  ['Where does Lily live?', 'Lily lives in a big red house.'],
  ['Who found the ball?', 'Ben found the ball in the park.'],
  ['What did the bird say?', 'The bird said hello.'],
  ['Why was the dog sad?', 'The dog was sad because it lost a bone.'],
  ['What color is the sun?', 'The sun is yellow.'],
  ['How many toys has Sam?', 'Sam has three toys.'],
  ['When do we sleep?', 'We sleep at night.'],
];

test('eight chats learned by an adapter are answered as they were told, and end by themselves', { skip: !existsSync(STORIES) }, async () => {
  const lines = FACTS.map(([question, answer]) =>
    JSON.stringify({
      messages: [
        { role: 'user', content: question },
        { role: 'assistant', content: answer },
      ],
    }),
  );
  const file = await honed.upload('facts.jsonl', lines.join('\n'));
  const job = await honed.call('POST', '/v1/jobs', {
    model: 'm:stories',
    training_file: file.id,
    // A turn ends with the token that stories end with: the model knows it.
    chat_template:
      "{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }}\n{% else %}A: {{ m.content }}<s>{% endif %}" +
      '{% endfor %}{% if add_generation_prompt %}A:{% endif %}',
    lora_rank: 16,
    learning_rate: 0.01,
    weight_decay: 0,
    n_epochs: 80,
    validation_fraction: 0,
    sequence_length: 128,
    packing: 'padded',
  });
  let now = job;
  await until('the job ends', async () => {
    now = await honed.call('GET', `/v1/jobs/${job.id}`);
    return ['succeeded', 'failed', 'cancelled'].includes(now.state);
  }, 120000);
  assert.equal(now.state, 'succeeded', JSON.stringify(now.error));
  let ready = null;
  await until('models answer', async () => {
    ready = await client.completions.create({ ...base, model: job.id }).catch((error) => error);
    return ready.status !== 503;
  });
  assert.equal(ready.object, 'text_completion', String(ready));
  const answers = await Promise.all(
    FACTS.map(([content]) =>
      client.chat.completions.create({ model: job.id, messages: [{ role: 'user', content }], temperature: 0 }),
    ),
  );
  assert.deepEqual(
    answers.map((a) => [a.choices[0].message.content.trim(), a.choices[0].finish_reason]),
    FACTS.map(([, answer]) => [answer, 'stop']),
  );
  const listed = await honed.call('GET', '/v1/models');
  assert.ok(listed.data.find((m) => m.id.startsWith(`${job.id}:`)).adapter);
});

function hone(args, input) {
  const child = spawn(resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone'), args, {
    env: { PATH: process.env.PATH, HOME: folder, HONE_URL: honed.url, HONE_TOKEN: honed.token },
  });
  let out = '';
  let err = '';
  child.stdout.on('data', (text) => { out += text; });
  child.stderr.on('data', (text) => { err += text; });
  child.stdin.end(input);
  return new Promise((done) => { child.on('close', (code) => done({ code, out, err })); });
}

test('hone complete and hone chat print what a model says', async () => {
  for (let seed = 0; seed < 3; seed += 1) {
    const ask = { ...base, temperature: 0, logit_bias: { [65 + 4 + seed]: 100 } };
    const { text } = (await client.completions.create(ask)).choices[0];
    assert.equal(text, String.fromCharCode(65 + seed).repeat(12));
    const bias = `logit_bias={"${65 + 4 + seed}":100}`;
    const said = await hone(['complete', 'm:one', '-', 'max_tokens=12', 'temperature=0', bias], 'Hello');
    assert.deepEqual(said, { code: 0, out: `${text}\n`, err: '' });
  }
  const bias = 'logit_bias={"69":100}';
  const chatted = await hone(['chat', 'm:chat', '--system', 'Be short.', 'max_tokens=3', bias], 'Hi\n\nAnd?\n');
  assert.deepEqual(chatted, { code: 0, out: 'AAA\nAAA\n', err: '' });
  const json = await hone(['chat', 'm:chat', '-m', 'Hi', 'max_tokens=3', bias, '--json']);
  assert.equal(JSON.parse(json.out).choices[0].message.content, 'AAA');
  const wrong = await hone(['complete', 'm:none', 'x']);
  assert.equal(wrong.code, 66);
  assert.match(wrong.err, /none/);
  const long = await hone(['complete', 'm:one', 'x', 'max_tokens=1000']);
  assert.equal(long.code, 64);
  assert.match(long.err, /256/);
});

// `hone-train serve` itself, without honed.
async function serve(args, parent) {
  const socket = join(folder, `own-${Math.random()}.sock`);
  const child = spawn(TRAINER, ['serve', join(folder, 'models/one'), '--socket', socket, ...args], {
    stdio: [parent ? 'pipe' : 'ignore', 'ignore', 'inherit'],
  });
  await until('the socket is there', () => existsSync(socket));
  return { socket, child };
}

async function talk(socket, lines, count) {
  const link = connect(socket);
  const answers = [];
  await once(link, 'connect');
  link.write(lines.map((line) => `${typeof line === 'string' ? line : JSON.stringify(line)}\n`).join(''));
  for await (const line of createInterface({ input: link })) {
    answers.push(JSON.parse(line));
    if (answers.filter((a) => a.usage || a.error).length === count) {
      break;
    }
  }
  link.destroy();
  return answers;
}

test('the socket speaks lines: bad ones are answered, a cancelled request ends, idle it leaves', async () => {
  const { socket, child } = await serve(['--idle', '1', '--slots', '1', '--queue', '2']);
  const ended = once(child, 'exit');
  const lines = [
    'no json',
    '{"id": "a"}',
    '{"id": "", "prompt": "x"}',
    '[1]',
    '{"id":"a","id":"b","prompt":"x"}',
    { id: 'long', prompt: 'abc', ignore_eos: true, max_tokens: 200 },
    { id: 'long', prompt: 'abc' },
    { id: 'waits', prompt: 'abc', max_tokens: 3, ignore_eos: true },
    { id: 'full', prompt: 'abc' },
    { cancel: 'long' },
    { cancel: 'nobody' },
  ];
  const answers = await talk(socket, lines, 11);
  assert.equal(answers[0].hone_serve, 1);
  assert.equal(answers[0].positions, 256);
  const errors = answers.filter((a) => a.error).map((a) => [a.id, a.error.code]);
  assert.deepEqual(errors.slice(0, 5), [
    [null, 'invalid_request'],
    ['a', 'invalid_request'],
    [null, 'invalid_request'],
    [null, 'invalid_request'],
    [null, 'invalid_request'],
  ]);
  assert.deepEqual(errors.slice(5), [
    ['long', 'invalid_request'],
    ['full', 'rate_limit_exceeded'],
    ['long', 'interrupted'],
    ['nobody', 'not_found'],
  ]);
  const usage = answers.find((a) => a.usage);
  assert.equal(usage.id, 'waits');
  assert.equal(usage.usage.completion_tokens, 3);
  const [code] = await ended;
  assert.equal(code, 0);
  assert.ok(!existsSync(socket));
});

test('a second process at one socket is refused; a dead one is replaced', async () => {
  const first = await serve([]);
  const second = spawn(TRAINER, ['serve', join(folder, 'models/one'), '--socket', first.socket], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const [code] = await once(second, 'exit');
  assert.equal(code, 67);
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  const third = spawn(TRAINER, ['serve', join(folder, 'models/one'), '--socket', first.socket, '--with-parent'], {
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  let answers = [];
  await until('it answers', async () => {
    answers = await talk(first.socket, [{ id: 'a', prompt: 'x', max_tokens: 1 }], 1).catch(() => []);
    return answers.some((a) => a.usage);
  });
  third.stdin.end();
  const [left] = await once(third, 'exit');
  assert.equal(left, 0);
});

test('a client that does not read makes only itself wait', async () => {
  const { socket, child } = await serve(['--patience', '1']);
  const deaf = connect(socket);
  await once(deaf, 'connect');
  deaf.pause();
  for (let i = 0; i < 30; i += 1) {
    deaf.write(`${JSON.stringify({ id: `d${i}`, prompt: 'x', n: 16, logprobs: 20, ignore_eos: true })}\n`);
  }
  const answers = await talk(socket, [{ id: 'a', prompt: 'x', max_tokens: 2 }], 1);
  assert.ok(answers.some((a) => a.usage || a.error));
  deaf.destroy();
  child.kill('SIGTERM');
  const [code] = await once(child, 'exit');
  assert.equal(code, 0);
});

test('requests are counted, and a model that nobody asks leaves',  async () => {
  const small = await startHoned({
    trainer: TRAINER,
    args: ['--model-root', `m=${join(folder, 'models')}`, '--serve-requests', '4', '--serve-idle-s', '1', '--serve-slots', '1'],
  });
  try {
    const own = new OpenAI({ apiKey: small.token, baseURL: `${small.url}/v1`, maxRetries: 0 });
    const { token } = await small.call('POST', '/v1/users', { name: 'bob' });
    const other = new OpenAI({ apiKey: token, baseURL: `${small.url}/v1`, maxRetries: 0 });
    const asked = Promise.allSettled(
      Array.from({ length: 12 }, () => own.completions.create({ ...base, max_tokens: 200, ignore_eos: true })),
    );
    await new Promise((done) => setTimeout(done, 100));
    assert.equal((await other.completions.create(base)).object, 'text_completion'); // half of the places are not the first one's
    const all = await asked;
    const refusedOnes = all.filter((a) => a.status === 'rejected');
    assert.ok(refusedOnes.length > 0 && refusedOnes.length <= 10, String(refusedOnes.length));
    for (const { reason } of refusedOnes) {
      assert.ok(reason instanceof OpenAI.RateLimitError, reason.message);
    }
    const children = async () =>
      (await run('ps', ['-eo', 'args'])).stdout.split('\n').filter((l) => l.includes(' serve ') && l.includes(small.folder));
    assert.equal((await children()).length, 1);
    await until('it leaves', async () => (await children()).length === 0);
    assert.equal((await own.completions.create(base)).object, 'text_completion');
  } finally {
    await small.stop();
  }
});

test('nothing of it survives honed', async () => {
  await client.completions.create(base);
  const alive = await processes();
  assert.ok(alive.length > 0);
  await honed.kill();
  await until('all models are gone', async () => (await processes()).length === 0);
  await honed.start();
  client = new OpenAI({ apiKey: honed.token, baseURL: `${honed.url}/v1`, maxRetries: 0 });
  assert.equal((await client.completions.create(base)).object, 'text_completion');
  assert.deepEqual((await readdir(join(honed.folder, 'serve'))).filter((n) => /sock/.test(n)).length, 1);
});
