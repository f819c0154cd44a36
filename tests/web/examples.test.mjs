// examples.test.mjs - files of examples on the page, with the real hone-train: what is in them, what is wrong, what
// will be trained.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { openBrowser, openWindow, skip as noBrowser, until } from '../lib/browser.mjs';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { makeModel } from '../lib/model.mjs';

const trainer = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone-train');
const skip = noBrowser || (existsSync(trainer) ? false : 'hone-train is not built');

const TEMPLATE = `{% for m in messages %}{% if m['role'] == 'user' %}<|user|>{{ m['content'] }}<|end|>{% else %}{{ m['content'] }}</s>{% endif %}{% endfor %}`;
const MANY_LINES = TEMPLATE.replaceAll('%}', '-%}\n');

let honed = null;
let browser = null;
let folder = null;

before(async () => {
  if (!skip) {
    folder = await mkdtemp(join(tmpdir(), 'hone-examples-'));
    await makeModel(join(folder, 'chats'), { template: TEMPLATE });
    browser = await openBrowser();
    honed = await startHoned({ trainer, args: ['--model-root', `m=${folder}`] });
  }
});

after(async () => {
  await browser?.close();
  await honed?.stop();
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

const chat = (question, answer) =>
  JSON.stringify({
    messages: [
      { role: 'user', content: question },
      ...(answer === undefined ? [] : [{ role: 'assistant', content: answer }]),
    ],
  });
const lines = (...all) => all.map((line) => `${line}\n`).join('');
const good = Array.from({ length: 12 }, (_, i) => chat(`question ${i}`, `answer ${i}`));

async function form(options = {}) {
  const window = await openWindow(browser, honed.url, options);
  const page = await window.context.newPage();
  await page.goto(await honed.loginLink());
  await page.locator('.user').waitFor({ state: 'attached' });
  await page.goto(`${honed.url}/#/new`);
  await page.locator('[name=training_file]').waitFor();
  return { ...window, page };
}

const choose = (page, file) => page.locator('[name=training_file]').selectOption(file.id);

test('a file of chats is described as soon as it is dropped', { skip }, async () => {
  const window = await form();
  const { page } = window;
  await page.locator('input[type=file]').setInputFiles({
    name: 'chats.jsonl',
    mimeType: 'application/x-ndjson',
    buffer: Buffer.from(lines(...good)),
  });
  const report = page.locator('.report');
  await report.getByText('All 12 examples will be used.').waitFor();
  assert.match(await report.innerText(), /Chats · JSONL/);
  assert.equal(await report.locator('.reasons').count(), 0);
  await window.close();
});

test(
  'faults are told by reason and line, and may be left out; the request then says so',
  { skip },
  async () => {
    const all = [...good];
    all[2] = '{"messages": [{"role": "user", "content": "he said "SECRET" once"}]}';
    all[7] = chat('a question that nobody answered');
    const file = await honed.upload('faulty.jsonl', lines(...all));
    const window = await form();
    const { page } = window;
    await choose(page, file);
    const report = page.locator('.report');
    await report.getByText('can’t be used like this').waitFor();
    const broken = report.locator('[data-reason=broken_json][data-action=refuse]');
    assert.match(await broken.innerText(), /refused[\s\S]*The JSON is broken[\s\S]*line 3 · column/);
    assert.match(
      await report.locator('li[data-reason=no_assistant][data-action=skip]').innerText(),
      /left out[\s\S]*line 8/,
    );
    assert.doesNotMatch(await report.innerText(), /SECRET/);

    const action = page.getByLabel('What to do: The JSON is broken.');
    await action.focus();
    await action.selectOption('skip');
    await report.getByText('10 of 12 examples will be used.').waitFor();
    await report.locator('li[data-reason=broken_json][data-action=skip]').waitFor();
    assert.equal(
      await page.evaluate(() => document.activeElement.dataset.reason),
      'broken_json',
      'the keyboard stays where it was',
    );
    assert.deepEqual(JSON.parse(await page.locator('[name=on_problem]').inputValue()), {
      broken_json: 'skip',
    });
    await page.getByRole('button', { name: '中文' }).click();
    await report.getByText('12 个样本中有 10 个可用。').waitFor();
    await window.close();
  },
);

test('a file that is none of ours is told by the sentence of the server', { skip }, async () => {
  const bytes = Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(lines(good[0]), 'utf16le')]);
  const file = await honed.upload('from-excel.jsonl', bytes);
  const window = await form();
  const { page } = window;
  await choose(page, file);
  await page.locator('.report').getByText('iconv -f UTF-16').waitFor();
  await page.locator('input[type=file]').setInputFiles({
    name: 'table.parquet',
    mimeType: 'application/octet-stream',
    buffer: Buffer.from('PAR1\0\0\0\0PAR1'),
  });
  await page.getByText('table.parquet is a Parquet file').waitFor();
  await window.close();
});

test('only the newest choice is shown, however fast it changes', { skip }, async () => {
  const [first, second] = await Promise.all([
    honed.upload('first.jsonl', lines(...good)),
    honed.upload('second.jsonl', lines(...good.slice(0, 5))),
  ]);
  const window = await form();
  const { page } = window;
  await page.route('**/report*', async (route) => {
    if (route.request().url().includes(first.id)) {
      await new Promise((done) => setTimeout(done, 1500));
    }
    await route.continue().catch(() => {});
  });
  const asked = page.waitForRequest((request) => request.url().includes(first.id));
  await choose(page, first);
  await asked;
  await choose(page, second);
  await page.locator('.report').getByText('All 5 examples will be used.').waitFor();
  await new Promise((done) => setTimeout(done, 2000));
  assert.equal(await page.locator('.report').getByText('All 5 examples').count(), 1);
  await choose(page, { id: '' });
  await until(async () => !(await page.locator('.report').isVisible()), 'no file, no report');
  await window.close();
});

const trainedText = (page) =>
  page.locator('.example').first().locator('mark.trained .token').allTextContents();

test(
  'the preview marks what is trained, token by token, as the API tells it',
  { skip },
  async () => {
    const file = await honed.upload('chats.jsonl', lines(...good, '{"messages": []}'));
    const window = await form();
    const { page } = window;
    await choose(page, file);
    await page.getByText('The tokens can be shown when the model has a tokenizer').waitFor();
    await page.getByLabel('Start from').selectOption('m:chats');
    await page.locator('.example').nth(2).waitFor();
    const preview = await honed.call('POST', '/v1/preview', {
      training_file: file.id,
      model: 'm:chats',
      n: 3,
    });
    const [{ ids, texts, labels, special }] = preview.examples;
    const first = page.locator('.example').first();
    assert.deepEqual(
      await trainedText(page),
      texts.filter((_, i) => labels[i] !== -100),
    );
    assert.match((await trainedText(page)).join(''), /answer 0/);
    assert.equal(await first.locator('.tokens .token').count(), ids.length);
    assert.equal(
      await first.locator('.tokens .token.special').count(),
      special.filter(Boolean).length,
    );
    assert.ok(special.some(Boolean) && !special.every(Boolean));

    await first.locator('.tokens .token').first().focus();
    await page.keyboard.press('ArrowRight');
    await first.getByText(`token 2 of ${ids.length} · id ${ids[1]}`).waitFor();

    await page.getByLabel('Sequence length').fill('16');
    await first.getByText('only the first 17 fit').waitFor();
    await first.getByText('tokens more are cut off').waitFor();
    await page.getByRole('button', { name: '中文' }).click();
    await page.getByRole('heading', { name: '模型看到的内容' }).waitFor();
    await page.locator('.report').getByText('参与训练的词元').waitFor();
    assert.ok((await page.locator('.histogram rect').count()) >= 1);
    await window.close();
  },
);

test('a model is trained whole or by adapters; a new model has no such choice', { skip }, async () => {
  const file = await honed.upload('chats.jsonl', lines(...good));
  const window = await form();
  const { page } = window;
  await choose(page, file);
  assert.equal(await page.locator('.tuning').isVisible(), false);
  await page.getByLabel('Start from').selectOption('m:chats');
  assert.equal(await page.getByLabel('All weights').isChecked(), true);
  const length = async () => [
    await page.getByLabel('Epochs').inputValue(),
    await page.getByLabel('Steps', { exact: true }).inputValue(),
  ];
  assert.deepEqual(await length(), ['3', '']);
  await page.getByLabel('Steps', { exact: true }).fill('40');
  assert.deepEqual(await length(), ['', '40']);
  await page.getByLabel('Start from').selectOption('preset llama-tiny');
  await page.getByLabel('Start from').selectOption('m:chats');
  assert.deepEqual(await length(), ['', '40'], 'what was written stays');
  assert.equal(await page.locator('[name=lora_rank]').isVisible(), false);
  const [plan] = await Promise.all([
    page.waitForRequest((request) => request.postData()?.includes('"lora_rank":16')),
    page.getByLabel('LoRA').check(),
  ]);
  assert.equal(plan.postDataJSON().model, 'm:chats');
  assert.equal(await page.locator('[name=lora_rank]').inputValue(), '16');
  await page.getByLabel('Name', { exact: true }).fill('by adapters');
  await page.getByLabel('Epochs').fill('1');
  await page.getByLabel('Sequence length').fill('128');
  await page.getByRole('button', { name: 'Start training' }).click();
  await page.getByRole('heading', { name: 'by adapters' }).waitFor();
  const id = decodeURIComponent(page.url().split('/').pop());
  const job = await honed.call('GET', `/v1/jobs/${id}`);
  assert.equal(job.request.lora_rank, 16);
  await until(
    async () => (await page.locator('.page-head .badge').getAttribute('data-state')) === 'succeeded',
    'its end',
    40,
  );
  // What was trained can be talked to and be trained on.
  await page.getByRole('link', { name: 'Talk to it' }).first().click();
  await page.getByRole('heading', { name: 'Talk to a model' }).waitFor();
  await until(
    async () => (await page.locator('[name=model]').inputValue()).startsWith(id),
    'the model is chosen',
  );
  await page.locator('[name=max_tokens]').fill('8');
  await page.getByLabel('Message').fill('question 1');
  await page.keyboard.press('Enter');
  await page.locator('.turn:last-child .turn-note').getByText(/\d tokens/).waitFor();
  // To train on is to go on with the adapter beside the same model.
  await page.goto(`${honed.url}/#/jobs/${id}`);
  await page.getByRole('link', { name: 'Train on from here' }).first().click();
  await until(
    async () => (await page.locator('[name=adapter]').inputValue()).startsWith(`${id}:`),
    'the adapter is chosen',
  );
  assert.equal(await page.locator('[name=model]').inputValue(), 'm:chats');
  assert.equal(await page.getByLabel('LoRA').isChecked(), true);
  assert.equal(await page.locator('[name=lora_rank]').isVisible(), false);
  const [reply] = await Promise.all([
    page.waitForResponse((response) => response.url().endsWith('/v1/plan')),
    choose(page, file),
  ]);
  assert.equal(reply.status(), 200, await reply.text());
  await page.goto(`${honed.url}/#/new?like=${id}`);
  await until(async () => await page.getByLabel('LoRA').isChecked(), 'the same choice again');
  await page.getByLabel('Start from').selectOption('preset llama-tiny');
  assert.equal(await page.locator('.tuning').isVisible(), false);
  assert.equal(await page.locator('[name=lora_rank]').inputValue(), '');
  await window.close();
});

test(
  'a run shows accuracies, its best checkpoint, what it writes, and what it left out',
  { skip },
  async () => {
    const file = await honed.upload('some.jsonl', lines(...good, chat('nobody answers')));
    const job = await honed.call('POST', '/v1/jobs', {
      name: 'judged',
      training_file: file.id,
      model: 'm:chats',
      max_steps: 6,
      sequence_length: 96,
      global_batch_size: 2,
      validation_fraction: 0.3,
      eval_interval: 2,
      early_stopping_patience: 100,
      sample_prompts: { prompts: ['Once upon'], max_tokens: 6 },
      chat_template: MANY_LINES,
    });
    const window = await form();
    const { page } = window;
    await page.goto(`${honed.url}/#/jobs/${job.id}`);
    await until(
      async () =>
        (await page.locator('.page-head .badge').getAttribute('data-state')) === 'succeeded',
      'its end',
      40,
    );
    // Asked as lines, the request is the same.
    await page.goto(`${honed.url}/#/new?like=${job.id}`);
    const prompts = page.locator('[name=sample_prompts]');
    await until(async () => /"max_tokens": 6/.test(await prompts.inputValue()), 'the prompts');
    assert.equal(await page.locator('[name=chat_template]').inputValue(), MANY_LINES);
    await page.getByText('Advanced').click();
    const [asked] = await Promise.all([
      page.waitForRequest((request) => /plan$/.test(request.url()) && /Twice/.test(request.postData())),
      prompts.fill('Once upon\n\n Twice upon '),
    ]);
    assert.deepEqual(asked.postDataJSON().sample_prompts, { prompts: ['Once upon', 'Twice upon'] });
    assert.equal(asked.postDataJSON().chat_template, MANY_LINES);
    await page.goto(`${honed.url}/#/jobs/${job.id}`);
    for (const round of ['live', 'after a reload']) {
      const { eval: judged } = await honed.call('GET', `/v1/jobs/${job.id}/metrics`);
      const accuracy = page.locator('.readout div', { hasText: 'Accuracy' }).locator('dd');
      await until(
        async () =>
          (await accuracy.textContent()) === `${(judged.accuracy.at(-1) * 100).toFixed(1)} %`,
        `the accuracy ${round}`,
      );
      await until(async () => (await page.locator('.mark.best').count()) === 1, `best ${round}`);
      const samples = await honed.call('GET', `/v1/jobs/${job.id}/events?type=sample&limit=100`);
      const written = page.locator('section', { hasText: 'What it writes' }).locator('.written');
      await until(
        async () => (await written.textContent()) === samples.data.at(-1).text,
        `the newest sample ${round}`,
      );
      await page.getByRole('slider').focus();
      await page.keyboard.press('Home');
      await until(
        async () => (await written.textContent()) === samples.data[0].text,
        `the first sample ${round}`,
      );
      await page.locator('summary', { hasText: 'Data of this run' }).click();
      await page.locator('li[data-reason=no_assistant][data-action=skip]').first().waitFor();
      await page.reload();
      await page.getByRole('heading', { name: 'judged' }).waitFor();
    }
    await window.close();
  },
);
