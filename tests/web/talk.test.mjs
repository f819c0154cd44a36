// talk.test.mjs - a talk with a model on the page, in real Chromium, with the real hone-train and tiny random models.
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
const TEMPLATE =
  "{% for m in messages %}<|user|>{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}";

let honed = null;
let browser = null;
let folder = null;

before(async () => {
  if (!skip) {
    folder = await mkdtemp(join(tmpdir(), 'hone-talk-'));
    await makeModel(join(folder, 'chats'), { template: TEMPLATE, positions: 4096 });
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

async function talk(query = 'model=m:chats', options = {}) {
  const window = await openWindow(browser, honed.url, options);
  const page = await window.context.newPage();
  await page.goto(await honed.loginLink());
  await page.locator('.user').waitFor({ state: 'attached' });
  await page.goto(`${honed.url}/#/talk?${query}`);
  await page.locator('[name=model] option').first().waitFor({ state: 'attached' });
  return { ...window, page };
}

async function set(page, values) {
  for (const [name, value] of Object.entries(values)) {
    await page.locator(`[name=${name}]`).fill(String(value));
  }
}

const said = (page, i) => page.locator('.turn .written').nth(i).textContent();
const over = (page) =>
  page.locator('.talk-log[aria-busy=false] .turn:last-child .turn-tools:visible').waitFor();
// What a random model says may be no character at all; how many tokens it took is told in any case.
const answered = (page) =>
  page.locator('.turn:last-child .turn-note').getByText(/\d tokens/).waitFor();
const body = { temperature: 0.7, top_p: 0.95, max_tokens: 24, seed: 7 };

test('a chat is answered as the API answers it, by keyboard alone', { skip }, async () => {
  const window = await talk();
  const { page } = window;
  await set(page, { max_tokens: 24, seed: 7, system: 'Be brief.' });
  await page.getByLabel('Message').focus();
  await page.keyboard.type('Hello there');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('model');
  await page.keyboard.press('Enter');
  await over(page);
  const first = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Hello there\nmodel' },
  ];
  const wanted = await honed.call('POST', '/v1/chat/completions', {
    ...body,
    model: 'm:chats',
    messages: first,
  });
  const answer = await said(page, 1);
  assert.equal(answer, wanted.choices[0].message.content);
  assert.equal(await page.locator('.turn').count(), 2);
  assert.equal(await page.evaluate(() => document.activeElement.name), 'say');

  await page.keyboard.type('And then?');
  await page.keyboard.press('Enter');
  await until(async () => (await page.locator('.turn').count()) === 4, 'the second answer');
  await over(page);
  const next = await honed.call('POST', '/v1/chat/completions', {
    ...body,
    model: 'm:chats',
    messages: [
      ...first,
      { role: 'assistant', content: answer },
      { role: 'user', content: 'And then?' },
    ],
  });
  assert.equal(await said(page, 3), next.choices[0].message.content);
  await window.close();
});

test('a text is continued, and goes on from where it ended', { skip }, async () => {
  const window = await talk('model=m:chats&mode=text');
  const { page } = window;
  await set(page, { max_tokens: 12, seed: 3, say: 'Once upon' });
  await page.getByRole('button', { name: 'Send' }).click();
  await over(page);
  const ask = (prompt) =>
    honed.call('POST', '/v1/completions', {
      ...body,
      max_tokens: 12,
      seed: 3,
      model: 'm:chats',
      prompt,
    });
  const first = (await ask('Once upon')).choices[0];
  assert.equal(await said(page, 0), first.text);
  assert.equal(first.finish_reason, 'length');
  await page.getByText('Cut off at the longest answer: 12 tokens').waitFor();
  await page.getByRole('button', { name: 'Go on', exact: true }).click();
  const whole = `Once upon${first.text}`;
  await until(
    async () => (await page.locator('.given').textContent()) === whole,
    'the text goes on',
  );
  await over(page);
  assert.equal(await said(page, 0), (await ask(whole)).choices[0].text);
  await window.close();
});

test('an answer is shown as it comes, and stops when it is told to', { skip }, async () => {
  const window = await talk();
  const { page } = window;
  await set(page, { max_tokens: 4000, temperature: 0 }); // the likeliest words of this model never end
  await page.getByLabel('Message').fill('Talk for ever');
  await page.keyboard.press('Enter');
  await until(async () => (await said(page, 1)).length > 20, 'the first words');
  const stop = page.getByRole('button', { name: 'Stop' });
  assert.equal(await stop.isVisible(), true);
  await page.keyboard.press('Escape');
  await page.getByText('Stopped').waitFor();
  const length = (await said(page, 1)).length;
  await new Promise((done) => setTimeout(done, 400));
  assert.equal((await said(page, 1)).length, length);
  assert.equal(await stop.isVisible(), false);
  await page.getByRole('button', { name: 'Clear' }).click();
  assert.equal(await page.locator('.turn').count(), 0);
  await window.close();
});

test('the language changes in place; what was said and is set stays', { skip }, async () => {
  const window = await talk('model=m:chats', { viewport: { width: 390, height: 800 } });
  const { page } = window;
  await page.getByText('How it writes').click();
  await set(page, { max_tokens: 8, seed: 5 });
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await over(page);
  const answer = await said(page, 1);
  await page.getByRole('button', { name: '中文' }).click();
  await page.getByRole('heading', { name: '与模型对话' }).waitFor();
  await page.locator('.turn h3').getByText('模型').waitFor();
  await page.getByText('已达最长回答：8 个词元').waitFor();
  assert.equal(await said(page, 1), answer);
  assert.equal(await page.locator('[name=seed]').inputValue(), '5');
  assert.equal(await page.locator('[name=model]').inputValue(), 'm:chats');
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= 390, `nothing lies beyond a phone's screen: ${width}`);
  await window.close();
});

test('what the user and the model say is text and nothing else', { skip }, async () => {
  const evil = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>';
  const window = await talk();
  const { page } = window;
  await page.route('**/v1/chat/completions', (route) => {
    const chunk = { choices: [{ index: 0, delta: { content: evil }, finish_reason: 'stop' }] };
    return route.fulfill({
      contentType: 'text/event-stream',
      body: `: hello\n\ndata: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`,
    });
  });
  await page.getByLabel('Message').fill(evil);
  await page.keyboard.press('Enter');
  await over(page);
  assert.deepEqual([await said(page, 0), await said(page, 1)], [evil, evil]);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator('main img, main script').count(), 0);
  await window.close();
});

test('a refusal is told in words, also inside a stream, and can be tried again', { skip }, async () => {
  const window = await talk();
  const { page } = window;
  const replies = [
    {
      status: 503,
      contentType: 'application/json',
      body: JSON.stringify({
        error: { code: 'busy', message: 'a job needs the machine', param: null },
      }),
    },
    {
      contentType: 'text/event-stream',
      body: `data: ${JSON.stringify({ error: { code: 'worker_lost', message: 'it fell over' } })}\n\n`,
    },
    { contentType: 'text/event-stream', body: 'data: {"choices":[]}\n\n' },
  ];
  await page.route('**/v1/chat/completions', (route) =>
    replies.length > 0 ? route.fulfill(replies.shift()) : route.continue(),
  );
  await set(page, { max_tokens: 8 });
  await page.getByLabel('Message').fill('Are you there?');
  await page.keyboard.press('Enter');
  await page.getByText('The machine is busy. a job needs the machine').waitFor();
  await page.getByRole('button', { name: 'Once more' }).click();
  await page.getByText('it fell over').waitFor();
  await page.getByRole('button', { name: 'Once more' }).click();
  await page.getByText('The answer broke off').waitFor();
  await page.getByRole('button', { name: 'Once more' }).click();
  await answered(page);
  assert.equal(await page.locator('.turn').count(), 2);
  await window.close(/503/);
});

test('a number that is none is told at its field, and nothing is sent', { skip }, async () => {
  const window = await talk();
  const { page } = window;
  await page.route('**/v1/chat/completions', () => assert.fail('a request was sent'));
  await set(page, { temperature: 9 });
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await page.getByText('Temperature: this number is not possible.').waitFor();
  await window.close();
});

test('while a job needs the machine, that is what a talk says', { skip }, async () => {
  const file = await honed.upload('text.txt', 'A text to train on, again and again.\n'.repeat(300));
  const job = await honed.call('POST', '/v1/jobs', {
    name: 'in the way',
    training_file: file.id,
    model: 'm:chats',
    max_steps: 100000,
    sequence_length: 64,
  });
  const window = await talk();
  const { page } = window;
  await until(
    async () => (await honed.call('GET', `/v1/jobs/${job.id}`)).state === 'running',
    'the job runs',
  );
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await page.getByText(/The machine is busy\..*a job needs the machine/).waitFor();
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`, { save: false });
  await until(
    async () => (await honed.call('GET', `/v1/jobs/${job.id}`)).state === 'cancelled',
    'the job is over',
  );
  await page.locator('[name=max_tokens]').fill('8');
  await page.getByRole('button', { name: 'Once more' }).click();
  await answered(page);
  await window.close(/503/);
});
