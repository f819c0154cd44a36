// browser.mjs - real Chromium for tests of the page, and what every page under test must not do.
//
// CHROMIUM names another program than /usr/bin/chromium. HONE_SKIP_BROWSER=1 skips what needs a browser.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

const PROGRAM = process.env.CHROMIUM || '/usr/bin/chromium';
const ARGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

// For `test(name, {skip}, ...)`: why browser tests are skipped, or false.
export const skip = process.env.HONE_SKIP_BROWSER === '1' ? 'HONE_SKIP_BROWSER=1' : false;

// Throws one sentence that says what is missing.
export async function openBrowser() {
  let playwright = null;
  try {
    playwright = await import('playwright-core');
  } catch {
    throw new Error(
      'playwright-core is missing: run "npm ci" (or HONE_SKIP_BROWSER=1 skips these tests)',
    );
  }
  if (!existsSync(PROGRAM)) {
    throw new Error(
      `${PROGRAM} is missing: install Chromium ("apt-get install chromium"), or name it in CHROMIUM (or HONE_SKIP_BROWSER=1 skips these tests)`,
    );
  }
  // Each launch has a fresh profile of its own.
  return playwright.chromium.launch({ executablePath: PROGRAM, args: ARGS });
}

// A browser window of its own (cookies, storage). Everything that no page of ours may do is written to
// `complaints`: console errors, exceptions, violations of the content security policy, failed requests,
// requests to other hosts.
export async function openWindow(browser, url, options = {}) {
  const context = await browser.newContext({
    locale: 'en-US',
    viewport: { width: 1280, height: 900 },
    ...options,
  });
  context.setDefaultTimeout(15000);
  const complaints = [];
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(
        `content security policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`,
      );
    });
  });
  context.on('page', (page) => {
    page.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) {
        complaints.push(`console: ${message.text()} ${message.location().url}`);
      }
    });
    page.on('pageerror', (error) => complaints.push(`exception: ${error.stack}`));
    page.on('dialog', (dialog) => {
      complaints.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    page.on('request', (request) => {
      if (!request.url().startsWith(url) && !request.url().startsWith('data:')) {
        complaints.push(`foreign request: ${request.url()}`);
      }
    });
  });
  return {
    context,
    complaints,
    // Close it; `expected` are patterns of complaints that the test caused on purpose.
    async close(...expected) {
      await context.close();
      const rest = complaints.filter((text) => !expected.some((pattern) => pattern.test(text)));
      assert.deepEqual(rest, []);
    },
  };
}

// Wait until `check()` is true; it may throw meanwhile.
export async function until(check, what, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  let last = null;
  while (Date.now() < end) {
    try {
      if (await check()) {
        return;
      }
      last = null;
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`still not after ${seconds} s: ${what}${last ? ` (${last.message})` : ''}`);
}
