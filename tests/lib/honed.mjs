// honed.mjs - starts a real honed on a free port, in a folder of its own, with fake_trainer for its runs.
//
// HONE_BUILD names another folder than build/release. A honed that ends on its own fails what waits for it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ROOT } from './defs.mjs';

const BUILD = resolve(ROOT, process.env.HONE_BUILD || 'build/release');
const START_MS = 15000;

function program(name) {
  const path = join(BUILD, name);
  if (!existsSync(path)) {
    throw new Error(`${path} is missing: run "make all ${path.slice(ROOT.length)}"`);
  }
  return path;
}

// Options: args (further arguments of honed; what failed with the machine is tried again at once unless they say otherwise), trainer (a path), parent (of the folder). The result:
//   url, token (of the admin), folder (the data folder), output() (what honed printed)
//   call(method, path, body, headers)   JSON; throws an Error with status and body when refused
//   upload(name, text, token)           the file object; of the admin without a token
//   loginLink(), stop(), kill() (-9), start() (again, on the same port and data), restart()
export async function startHoned({
  args = [],
  trainer = program('tests/fake_trainer'),
  parent = tmpdir(),
} = {}) {
  const honed = program('honed');
  const home = await mkdtemp(join(parent, 'hone-test-'));
  const folder = join(home, 'data');
  let port = 0;
  let child = null;
  let output = '';

  const it = { folder, url: '', token: '', output: () => output };

  it.start = async () => {
    await rm(join(folder, 'honed.url'), { force: true });
    child = spawn(
      honed,
      [
        '--data',
        folder,
        '--port',
        String(port),
        '--trainer',
        trainer,
        '--web',
        join(ROOT, 'web'),
        '--rate',
        '100000', // a test asks more often than people do
        ...(args.includes('--retry-s') ? [] : ['--retry-s', '0']),
        ...args,
      ],
      {
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    );
    for (const pipe of [child.stdout, child.stderr]) {
      pipe.on('data', (text) => {
        output += text;
      });
    }
    it.url = await address(child, folder, () => output);
    port = Number(new URL(it.url).port);
    it.token = (await readFile(join(folder, 'admin.token'), 'utf8')).trim();
  };

  it.kill = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    }
  };

  // An orderly stop and a start; what runs goes on meanwhile.
  it.restart = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    const [code] = await ended;
    if (code !== 0) {
      throw new Error(`honed ended with ${code}: ${output.slice(-2000)}`);
    }
    await it.start();
  };

  // Runs outlive honed by design, so what still runs is cancelled first.
  it.stop = async () => {
    try {
      const { data } = await it.call(
        'GET',
        '/v1/jobs?state=queued,starting,running,stopping&limit=100',
      );
      await Promise.all(
        data.map((job) =>
          it.call('POST', `/v1/jobs/${job.id}/cancel`, { save: false }).catch(() => {}),
        ),
      );
      for (
        let i = 0;
        i < 100 &&
        (await it.call('GET', '/v1/jobs?state=starting,running,stopping')).data.length > 0;
        i += 1
      ) {
        await new Promise((done) => setTimeout(done, 50));
      }
    } catch {
      // Killed by the test, or never up.
    }
    if (child.exitCode === null && child.signalCode === null) {
      const ended = once(child, 'exit');
      child.kill('SIGTERM');
      await ended;
    }
    await rm(home, { recursive: true, force: true });
  };

  it.call = async (method, path, body, headers = {}) => {
    const reply = await fetch(it.url + path, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
      headers: {
        Authorization: `Bearer ${it.token}`,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers,
      },
    });
    return read(reply, `${method} ${path}`);
  };

  it.upload = async (name, text, token = it.token) => {
    const query = new URLSearchParams({ filename: name, purpose: 'fine-tune' });
    const reply = await fetch(`${it.url}/v1/files?${query}`, {
      method: 'PUT',
      body: text,
      headers: { Authorization: `Bearer ${token}` },
    });
    return read(reply, `upload of ${name}`);
  };

  it.loginLink = async () => (await it.call('POST', '/v1/login_codes')).url;

  try {
    await it.start();
  } catch (error) {
    await it.kill();
    await rm(home, { recursive: true, force: true });
    throw error;
  }
  return it;
}

// The address is in DATA/honed.url once honed listens.
async function address(child, folder, output) {
  const end = Date.now() + START_MS;
  while (Date.now() < end) {
    if (child.exitCode !== null || child.signalCode !== null) {
      throw new Error(
        `honed ended with ${child.exitCode ?? child.signalCode}: ${output().slice(-2000)}`,
      );
    }
    const text = await readFile(join(folder, 'honed.url'), 'utf8').catch(() => '');
    if (text.endsWith('\n') && existsSync(join(folder, 'admin.token'))) {
      return text.trim();
    }
    await new Promise((done) => setTimeout(done, 20));
  }
  throw new Error(`honed was not up after ${START_MS} ms: ${output().slice(-2000)}`);
}

async function read(reply, what) {
  const text = await reply.text();
  if (!reply.ok) {
    throw Object.assign(new Error(`${what}: ${reply.status} ${text}`), {
      status: reply.status,
      body: text,
    });
  }
  return JSON.parse(text);
}
