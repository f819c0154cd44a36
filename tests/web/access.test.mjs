// access.test.mjs - the page for everyone: keyboard, screen reader, phone, zoom, dark, without uPlot.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openBrowser, openWindow, skip, until } from '../lib/browser.mjs';
import { startHoned } from '../lib/honed.mjs';

let honed = null;
let browser = null;
let job = null;

before(async () => {
  if (!skip) {
    browser = await openBrowser();
    honed = await startHoned();
    const file = await honed.upload('text.txt', 'A text of some length.\n'.repeat(300));
    job = await honed.call('POST', '/v1/jobs', {
      name: 'ms=5 eval=10',
      training_file: file.id,
      tokenizer_vocab_size: 300,
      max_steps: 40,
      config: { model_type: 'gpt2', n_embd: 64, n_layer: 2, n_head: 2, n_positions: 64 },
    });
    await until(
      async () => (await honed.call('GET', `/v1/jobs/${job.id}`)).state === 'succeeded',
      'a job that ended',
      30,
    );
  }
});

after(async () => {
  await browser?.close();
  await honed?.stop();
});

async function signedIn(hash, options = {}, prepare = async () => {}) {
  const window = await openWindow(browser, honed.url, options);
  const page = await window.context.newPage();
  await prepare(page);
  await page.goto(await honed.loginLink());
  await page.locator('main h1').first().waitFor();
  await page.goto(`${honed.url}/${hash}`);
  return { ...window, page };
}

const VIEWS = () => [
  ['#/', 'table.jobs tbody tr'],
  [`#/jobs/${job.id}`, '.chart .uplot'],
  ['#/new', '[name=learning_rate]'],
  ['#/queue', 'table[aria-labelledby=queue-users] tbody tr'],
  ['#/machine', '.device'],
];

test('the tiny sample can be tried with the keyboard alone', { skip }, async () => {
  const empty = await startHoned();
  const window = await openWindow(browser, empty.url);
  try {
    const page = await window.context.newPage();
    await page.goto(empty.url);
    await page.getByLabel('Token').waitFor();
    await page.getByLabel('Token').focus();
    await page.keyboard.type(empty.token);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Try the tiny sample' }).waitFor();
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    for (let i = 0; i < 30 && (await focused()) !== 'Try the tiny sample'; i += 1) {
      await page.keyboard.press('Tab');
    }
    assert.equal(await focused(), 'Try the tiny sample');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'tiny sample' }).waitFor();
    await page.locator('.stages [data-stage=training][data-mark=now]').waitFor();
  } finally {
    await window.close(/401/);
    await empty.stop();
  }
});

test('every stop of the Tab key is visible and has a name', { skip }, async () => {
  const window = await signedIn('#/');
  const { page } = window;
  for (const [hash, ready] of VIEWS()) {
    await page.goto(`${honed.url}/${hash}`);
    await page.locator(ready).first().waitFor();
    await page.locator('.skip').focus();
    let stops = 0;
    for (; stops < 60; stops += 1) {
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const node = document.activeElement;
        if (!node || node === document.body) {
          return null;
        }
        const shown = node.classList.contains('visually-hidden') ? node.nextElementSibling : node;
        const { outlineStyle } = getComputedStyle(shown);
        const name =
          node.getAttribute('aria-label') ||
          [...(node.labels ?? [])].map((label) => label.textContent).join() ||
          node.textContent;
        return { outlineStyle, name: name.trim(), html: node.outerHTML.slice(0, 120) };
      });
      if (!stop) {
        break;
      }
      assert.notEqual(stop.outlineStyle, 'none', stop.html);
      assert.ok(stop.name, stop.html);
    }
    assert.ok(stops >= 6, `${hash}: ${stops} stops`);
  }
  await window.close();
});

test('every field has a label and every id is there once', { skip }, async () => {
  const window = await signedIn('#/new');
  const { page } = window;
  for (const [hash, ready] of VIEWS()) {
    await page.goto(`${honed.url}/${hash}`);
    await page.locator(ready).first().waitFor();
    const found = await page.evaluate(() => {
      const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
      const references = [
        ...document.querySelectorAll('[aria-describedby], [aria-labelledby]'),
      ].flatMap((node) =>
        `${node.getAttribute('aria-describedby') ?? ''} ${node.getAttribute('aria-labelledby') ?? ''}`
          .trim()
          .split(/\s+/),
      );
      return {
        unlabelled: [...document.querySelectorAll('input, select, textarea')]
          .filter((node) => node.labels.length === 0)
          .map((node) => node.outerHTML),
        doubled: ids.filter((id, i) => ids.indexOf(id) !== i),
        dangling: references.filter((id) => !document.getElementById(id)),
      };
    });
    assert.deepEqual(found, { unlabelled: [], doubled: [], dangling: [] }, hash);
  }
  await window.close();
});

test('a screen reader hears of stages, not of steps', { skip }, async () => {
  const window = await signedIn('#/');
  const { page } = window;
  const run = await honed.call('POST', '/v1/jobs', {
    ...job.request,
    name: 'ms=20',
    max_steps: 60,
    eval_interval: 10,
  });
  await page.goto(`${honed.url}/#/jobs/${run.id}`);
  await page.evaluate(() => {
    window.heard = [];
    new MutationObserver(() =>
      window.heard.push(document.getElementById('announcer').textContent),
    ).observe(document.getElementById('announcer'), {
      childList: true,
      characterData: true,
      subtree: true,
    });
  });
  await page.locator('.page-head [data-state=succeeded]').waitFor();
  const heard = await page.evaluate(() => window.heard);
  assert.ok(heard.includes('training') && heard.includes('succeeded'), heard.join());
  assert.ok(heard.length <= 12, heard.join());
  await window.close();
});

for (const [name, options] of [
  ['a phone', { viewport: { width: 360, height: 740 } }],
  ['a screen at 200 %', { viewport: { width: 640, height: 450 }, deviceScaleFactor: 2 }],
  [
    'a phone in Chinese and dark',
    { viewport: { width: 360, height: 740 }, locale: 'zh-CN', colorScheme: 'dark' },
  ],
]) {
  test(`${name} needs no sideways scrolling`, { skip }, async () => {
    const window = await signedIn('#/', options);
    const { page } = window;
    for (const [hash, ready] of VIEWS()) {
      await page.goto(`${honed.url}/${hash}`);
      await page.locator(ready).first().waitFor();
      await page.evaluate(() =>
        document.querySelectorAll('details').forEach((node) => node.setAttribute('open', '')),
      );
      await until(
        () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
        `${hash} fits`,
        5,
      );
    }
    await window.close();
  });
}

// The contrast of text against the first background behind it that is not transparent.
test('text has enough contrast in light and dark', { skip }, async () => {
  for (const colorScheme of ['light', 'dark']) {
    const window = await signedIn('#/', { colorScheme });
    const { page } = window;
    for (const [hash, ready] of VIEWS()) {
      await page.goto(`${honed.url}/${hash}`);
      await page.locator(ready).first().waitFor();
      const weak = await page.evaluate(() => {
        const canvas = Object.assign(document.createElement('canvas'), {
          width: 1,
          height: 1,
        }).getContext('2d', { willReadFrequently: true });
        const rgb = (text) => {
          canvas.clearRect(0, 0, 1, 1);
          canvas.fillStyle = text;
          canvas.fillRect(0, 0, 1, 1);
          return [...canvas.getImageData(0, 0, 1, 1).data];
        };
        const light = ([r, g, b]) =>
          [r, g, b]
            .map((c) => c / 255)
            .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (node) => {
          for (let at = node; at; at = at.parentElement) {
            const color = rgb(getComputedStyle(at).backgroundColor);
            if (color[3] === 255) {
              return color;
            }
          }
          return [255, 255, 255, 255];
        };
        const texts = [...document.querySelectorAll('body *')].filter(
          (node) =>
            node.getClientRects().length > 0 &&
            !node.disabled &&
            [...node.childNodes].some(
              (child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim(),
            ),
        );
        return texts.flatMap((node) => {
          const [a, b] = [light(rgb(getComputedStyle(node).color)), light(behind(node))].sort(
            (x, y) => y - x,
          );
          const ratio = (a + 0.05) / (b + 0.05);
          return ratio < 4.5 ? [`${ratio.toFixed(2)} ${node.outerHTML.slice(0, 100)}`] : [];
        });
      });
      assert.deepEqual(weak, [], `${colorScheme} ${hash}`);
    }
    await window.close();
  }
});

test('without uPlot the curves are plain lines', { skip }, async () => {
  const window = await signedIn(`#/jobs/${job.id}`, {}, (page) =>
    page.route('**/vendor/**', (route) => route.abort()),
  );
  const { page } = window;
  const line = page.locator('.chart svg.plain-chart path.series-1').first();
  await line.waitFor({ state: 'attached' });
  assert.equal((await line.getAttribute('d')).split('L').length, 40);
  await page.getByRole('switch', { name: 'Smooth' }).check();
  await page.getByRole('switch', { name: 'Log scale' }).check();
  await line.waitFor({ state: 'attached' });
  await window.close(/vendor/);
});

test('nothing moves for who asked for reduced motion', { skip }, async () => {
  const window = await signedIn(`#/jobs/${job.id}`, { reducedMotion: 'reduce' });
  const { page } = window;
  await page.locator('.chart .uplot').first().waitFor();
  const moving = await page.evaluate(() =>
    [...document.querySelectorAll('*')]
      .filter((node) => {
        const style = getComputedStyle(node);
        return (
          style.animationName !== 'none' ||
          (style.transitionDuration !== '0s' && style.transitionProperty !== 'none')
        );
      })
      .map((node) => node.outerHTML.slice(0, 80)),
  );
  assert.deepEqual(moving, []);
  await window.close();
});
