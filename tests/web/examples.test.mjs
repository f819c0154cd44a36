// examples.test.mjs - files of examples on the page, with the real hone-train: what is in them, what is wrong, what
// will be trained.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { openBrowser, openWindow, skip as noBrowser, until } from '../lib/browser.mjs';
import { ROOT } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';

const trainer = resolve(ROOT, process.env.HONE_BUILD || 'build/release', 'hone-train');
const skip = noBrowser || (existsSync(trainer) ? false : 'hone-train is not built');

let honed = null;
let browser = null;

before(async () => {
  if (!skip) {
    browser = await openBrowser();
    honed = await startHoned({ trainer });
  }
});

after(async () => {
  await browser?.close();
  await honed?.stop();
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
