// queue.test.mjs - the queue and the machine on the page, in real Chromium.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openBrowser, openWindow, skip, until } from '../lib/browser.mjs';
import { startHoned } from '../lib/honed.mjs';

const CONFIG = {
  model_type: 'llama',
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 2,
  vocab_size: 300,
  max_position_embeddings: 64,
};
let honed = null;
let browser = null;
let file = null;

before(async () => {
  if (!skip) {
    browser = await openBrowser();
    honed = await startHoned({ args: ['--machine', 'mainstream'] });
    file = await honed.upload('text.txt', 'a few words '.repeat(400));
  }
});

after(async () => {
  await browser?.close();
  await honed?.stop();
});

const submit = (name, more = {}, token = undefined) =>
  honed.call(
    'POST',
    '/v1/jobs',
    {
      name,
      training_file: file.id,
      config: CONFIG,
      tokenizer_vocab_size: 300,
      max_steps: 100000,
      ...more,
    },
    token ? { Authorization: `Bearer ${token}` } : {},
  );

async function open(address, options = {}) {
  const window = await openWindow(browser, honed.url, options);
  const page = await window.context.newPage();
  await page.goto(await honed.loginLink());
  await page.locator('.user').waitFor({ state: 'attached' });
  await page.goto(`${honed.url}/#/${address}`);
  return { ...window, page };
}

const order = (page) =>
  page.locator('table[aria-labelledby=queue-waiting] tbody tr').evaluateAll((rows) =>
    rows.map((row) => row.querySelector('th a')?.textContent),
  );

test('the queue says who runs where, who waits for what, and lets its owner change that', { skip }, async () => {
  const first = await submit('first ms=50', { devices: 4 });
  await until(async () => (await honed.call('GET', `/v1/jobs/${first.id}`)).state === 'running');
  for (const name of ['second ms=50', 'third ms=50', 'fourth ms=50']) {
    await submit(name, { devices: 2 });
  }
  const { page, context } = await open('queue');
  await page.getByText('1 running, 3 waiting').waitFor();
  assert.match(
    await page.locator('table[aria-labelledby=queue-running] tbody').textContent(),
    /first ms=50.*GPU-mainstream-0, .*GPU-mainstream-3/,
  );
  const head = page.locator('table[aria-labelledby=queue-waiting] tbody tr').first();
  await head.getByText('next', { exact: true }).waitFor();
  assert.match(await head.textContent(), /waits for 2 devices with .* ends at/);
  assert.deepEqual(await order(page), ['second ms=50', 'third ms=50', 'fourth ms=50']);

  await page.getByRole('button', { name: 'Move fourth ms=50 before all' }).click();
  await until(async () => (await order(page))[0] === 'fourth ms=50');
  await page.getByRole('button', { name: 'Move second ms=50 down' }).click();
  await until(async () => (await order(page))[2] === 'second ms=50');
  await page.getByLabel('Class of third ms=50').selectOption('low');
  await until(async () => (await order(page))[2] === 'third ms=50');

  await page.getByRole('button', { name: 'Cancel fourth ms=50' }).click();
  await page.locator('dialog').getByRole('button').first().click();
  await page.getByText('1 running, 2 waiting').waitFor();
  await context.close();
});

test('the machine shows who holds a device, how devices are joined, and takes one out of use', { skip }, async () => {
  const { page, context } = await open('machine');
  const device = page.locator('[data-device=GPU-mainstream-1]');
  await device.getByText('holds a job').waitFor();
  await device.getByRole('link', { name: 'first ms=50' }).waitFor();
  assert.equal(await page.locator('.matrix [data-link=NV12]').count(), 4);
  assert.equal(await page.locator('.drawing line').count(), 2);
  await page.getByText('12 NVLinks', { exact: false }).first().waitFor();

  await device.getByRole('button').click();
  await page.getByLabel('Why').fill('the fan is loud');
  await page.locator('dialog').getByRole('button', { name: 'Take out of use' }).click();
  await device.getByText('out of use').first().waitFor();
  await device.getByText('the fan is loud').waitFor();
  await device.getByRole('button', { name: 'Put NVIDIA' }).click();
  await device.getByText('holds a job').waitFor();
  await context.close();
});

test('an array shows its points, its cap and is cancelled whole', { skip }, async () => {
  const request = { name: 'sweep ms=50', training_file: file.id, config: CONFIG, tokenizer_vocab_size: 300, max_steps: 1000 };
  const array = await honed.call('POST', '/v1/arrays', { request, grid: { seed: [1, 2], learning_rate: [0.001, 0.0001] }, max_running: 1 });
  const { page, context } = await open(`arrays/${array.id}`);
  const rows = page.locator('table.queue tbody tr');
  await rows.nth(3).waitFor();
  assert.match(await rows.nth(1).textContent(), /1.*2?.*0.0001/);
  await page.getByLabel('At a time').fill('3');
  await page.getByRole('button', { name: 'Save changes' }).click();
  await until(async () => (await honed.call('GET', `/v1/arrays/${array.id}`)).max_running === 3);
  await page.getByRole('button', { name: 'Cancel all' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Cancel all' }).click();
  await page.getByText('cancelled 4').waitFor();
  await context.close();
});

test('on a phone nothing is wider than the screen', { skip }, async () => {
  const { page, context } = await open('queue', { viewport: { width: 390, height: 800 } });
  await page.locator('table[aria-labelledby=queue-running] tbody tr').first().waitFor();
  const wide = () =>
    page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok((await wide()) <= 1);
  await page.goto(`${honed.url}/#/machine`);
  await page.locator('.device').first().waitFor();
  assert.ok((await wide()) <= 1);
  await context.close();
});
