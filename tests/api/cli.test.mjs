/* cli.test.mjs - hone against the real honed, with a trainer that only pretends: every verb once. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';

const program = resolve(process.env.BUILD || 'build/release', 'hone');
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const config = { model_type: 'llama', hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2, vocab_size: 300 };
const text = 'Once upon a time there was a workstation.\n'.repeat(500);

let honed, folder;
before(async () => {
  honed = await startHoned();
  folder = await mkdtemp(join(tmpdir(), 'hone-cli-'));
  await writeFile(join(folder, 'text.txt'), text);
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
});
after(async () => {
  await honed?.stop();
  await rm(folder, { recursive: true, force: true });
});

function start(args, { env = {}, input } = {}) {
  const child = spawn(program, args, { cwd: folder, env: { PATH: process.env.PATH, HOME: folder, HONE_URL: honed.url, HONE_TOKEN: honed.token, ...env } });
  let out = '', err = '';
  child.stdout.on('data', (bytes) => { out += bytes; });
  child.stderr.on('data', (bytes) => { err += bytes; });
  if (input !== undefined) child.stdin.end(input);
  const ended = new Promise((done) => child.on('close', (code) => done({ code, out, err })));
  return { child, ended, out: () => out };
}
const hone = (args, options) => start(args, options).ended;

async function good(args, options) {
  const said = await hone(args, options);
  assert.equal(said.code, 0, `hone ${args.join(' ')}: ${said.err}`);
  assert.ok(!(said.out + said.err).includes(honed.token), 'a token was printed');
  return said.out;
}

async function until(check, what) {
  const end = Date.now() + 20000;
  for (;;) {
    if (await check()) return;
    assert.ok(Date.now() < end, `still not: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}
const state = async (job) => JSON.parse(await good(['show', job, '--json'])).state;

async function submit(name, ...words) {
  const job = (await good(['submit', `name=${name}`, 'config=@config.json', 'tokenizer_vocab_size=300',
    ...words, ...(words.some((word) => word.startsWith('training_file')) ? [] : ['--upload', 'training_file=text.txt'])])).trim();
  assert.match(job, /^job-\w+$/);
  return job;
}

test('login, whoami, login-link, version', async () => {
  const env = { HONE_URL: '', HONE_TOKEN: '' };
  const refused = await hone(['whoami'], { env });
  assert.equal(refused.code, 77);
  const bad = await hone(['login', honed.url, '--token-stdin'], { env, input: `${honed.token.slice(0, -1)}${honed.token.endsWith('x') ? 'y' : 'x'}\n` });
  assert.equal(bad.code, 77, bad.err);
  assert.match(await good(['login', honed.url, '--token-stdin'], { env, input: `${honed.token}\n` }), /signed in/);
  const saved = join(folder, '.config', 'hone', 'config.json');
  assert.equal((await stat(saved)).mode & 0o777, 0o600);
  assert.equal((await stat(join(folder, '.config', 'hone'))).mode & 0o077, 0);
  const me = await good(['whoami'], { env });
  assert.match(me, /^name +\S+$/m);
  assert.match(me, /^role +admin$/m);
  assert.equal(JSON.parse(await good(['whoami', '--json'])).role, 'admin');
  const link = (await good(['login-link'])).trim();
  assert.ok(link.startsWith(`${honed.url}/#login=`), link);
  const code = link.split('#login=')[1];
  const enter = () => fetch(`${honed.url}/v1/login`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ code }) });
  assert.equal((await enter()).status, 200);
  assert.notEqual((await enter()).status, 200);
  assert.match(await good(['version']), /^hone \d+\.\d+\.\d+\nserver at .*: \d/);
});

test('files go up, are listed, and go away', async () => {
  const file = JSON.parse(await good(['upload', 'text.txt', '--json']));
  assert.equal(file.sha256, sha256(text));
  assert.equal(file.bytes, text.length);
  const piped = JSON.parse(await good(['upload', '-', '--name', 'odd & näme.txt', '--json'], { input: text }));
  assert.equal(piped.filename, 'odd & näme.txt');
  const listed = await good(['files']);
  assert.ok(listed.includes(file.id) && listed.includes('odd & näme.txt'));
  assert.match(await good(['rm', piped.id]), /deleted/);
  assert.equal((await hone(['rm', piped.id])).code, 66);
  assert.equal((await hone(['upload', 'missing.txt'])).code, 66);
  assert.equal((await hone(['upload', '.'])).code, 64);
  assert.equal((await hone(['models'])).code, 0);
  assert.equal((await hone(['data'])).code, 0);
});

test('the fields of a job, and what a job would take', async () => {
  const fields = await good(['help', 'fields']);
  for (const field of ['training_file', 'max_steps', 'learning_rate', 'config', 'precision']) assert.match(fields, new RegExp(`^${field} `, 'm'));
  const file = JSON.parse(await good(['upload', 'text.txt', '--json'])).id;
  const words = ['config=@config.json', 'tokenizer_vocab_size=300', `training_file=${file}`, 'sequence_length=32'];
  const plan = JSON.parse(await good(['plan', ...words, '--json']));
  assert.equal(plan.fits, true);
  assert.ok(plan.parameters > 10000);
  assert.match(await good(['plan', ...words]), /^fits +yes$/m);
});

test('bad requests are one sentence that names the field', async () => {
  for (const [words, field] of [[['max_step=5'], 'max_step'], [['max_steps=many'], 'max_steps'], [['learning_rate=-1'], 'learning_rate'],
    [['training_file=file-none', 'config=@config.json', 'tokenizer_vocab_size=300'], 'training_file|file-none']]) {
    const said = await hone(['submit', ...words]);
    assert.ok([65, 66, 83].includes(said.code), `${words}: ${said.code} ${said.err}`);
    assert.match(said.err, new RegExp(`^hone: [^\\n]*(${field})[^\\n]*\\n$`));
  }
  assert.equal((await hone(['show', 'job-none'])).code, 66);
  assert.equal((await hone(['cancel', '../v1/me'])).code, 64);
});

test('submit and watch a job to its end; its events, curve, log and checkpoints', async () => {
  const said = await hone(['submit', 'name=steps=30 ms=5 eval=10 save=10', 'config=@config.json', 'tokenizer_vocab_size=300',
    '--upload', 'training_file=text.txt', '--watch']);
  assert.equal(said.code, 0, said.err + said.out);
  const job = said.out.split('\n')[0];
  assert.match(said.out, /^step 30\/30 /m);
  assert.match(said.out, /^succeeded after 30 steps, loss /m);
  const checkpoints = said.out.match(/^step \d+  checkpoint .*sha256 [0-9a-f]{64}$/gm);
  assert.equal(checkpoints.length, new Set(checkpoints).size);
  assert.ok(!said.out.includes('\u001b') && !said.out.includes('\r'));

  assert.match(await good(['show', 'latest']), new RegExp(`^id +${job}$`, 'm'));
  assert.match(await good(['ls']), new RegExp(`^${job} +succeeded`, 'm'));
  assert.match(await good(['ls', '--state', 'succeeded', '--mine', '-n', '1']), new RegExp(job));
  assert.match(await good(['watch', job]), /succeeded after 30 steps/);
  const events = await good(['events', job]);
  for (const type of ['started', 'ready', 'metrics', 'eval', 'checkpoint', 'ended']) assert.match(events, new RegExp(` ${type} `));
  assert.match(events, / checkpoint +\{.*"step":10.*"sha256":"[0-9a-f]{64}"/);
  const ids = events.split('\n').slice(1).map((line) => line.split(' ')[0]).filter(Boolean);
  assert.equal(ids.length, new Set(ids).size);
  const curve = JSON.parse(await good(['metrics', job, '--json', '--points', '1000']));
  assert.equal(curve.last_step, 30);
  assert.match(await good(['metrics', job]), /LOSS/);
  assert.equal((await hone(['logs', job])).code, 0);
  assert.match(await good(['checkpoints', job]), /[0-9a-f]{64}/);
});

test('get downloads a checkpoint whole, and a second time nothing', async () => {
  const job = await submit('steps=12 burst save=4', 'max_steps=12');
  await hone(['watch', job]);
  const listed = JSON.parse(await good(['checkpoints', job, '--json'])).data;
  const said = await good(['get', `${job}:latest`, 'latest']);
  assert.match(said, /every SHA-256 checked/);
  const manifest = await readFile(join(folder, 'latest', 'manifest.json'));
  assert.ok(listed.some((checkpoint) => checkpoint.sha256 === sha256(manifest)));
  for (const file of JSON.parse(manifest).files) {
    assert.equal(sha256(await readFile(join(folder, 'latest', file.name))), file.sha256);
  }
  assert.match(await good(['get', job, 'latest']), /0 B came over the network/);
  const step = listed.find((checkpoint) => checkpoint.step < 12)?.step;
  if (step !== undefined) {
    await good(['get', `${job}:${step}`]);
    assert.ok((await readdir(folder)).includes(`${job}-step-${String(step).padStart(8, '0')}`));
  }
  assert.equal((await hone(['get', `${job}:5`, 'none'])).code, 66);
  assert.ok(!(await readdir(folder)).includes('none'));

  /* Half of a file, as a broken line leaves it: the rest comes by Range. */
  const weights = await readFile(join(folder, 'latest', 'model.safetensors'));
  await mkdir(join(folder, 'half'));
  await writeFile(join(folder, 'half', 'model.safetensors.part'), weights.subarray(0, weights.length >> 1));
  await good(['get', job, 'half']);
  assert.deepEqual(await readFile(join(folder, 'half', 'model.safetensors')), weights);
});

test('save, pause, resume, cancel', async () => {
  const job = await submit('ms=20 steps=5000', 'max_steps=5000');
  await until(async () => await state(job) === 'running', 'running');
  await good(['save', job]);
  await until(async () => JSON.parse(await good(['checkpoints', job, '--json'])).data.length === 1, 'a checkpoint');
  await good(['pause', job]);
  await until(async () => await state(job) === 'paused', 'paused');
  const paused = await hone(['watch', job]);
  assert.equal(paused.code, 90);
  assert.match(await good(['resume', job]), /queued|starting|running/);
  await until(async () => await state(job) === 'running', 'running again');
  await good(['cancel', job, '--no-save']);
  await until(async () => await state(job) === 'cancelled', 'cancelled');
  assert.match(await good(['cancel', job]), /is cancelled/);
  assert.equal((await hone(['pause', job])).code, 67);
});

test('Ctrl-C leaves the job running; logs -f ends with it; a failure is the exit status', async () => {
  const job = await submit('ms=20 steps=5000', 'max_steps=5000');
  await until(async () => await state(job) === 'running', 'running');
  const watching = start(['watch', job]);
  await until(() => /^step /m.test(watching.out()), 'a line of metrics');
  watching.child.kill('SIGINT');
  const left = await watching.ended;
  assert.equal(left.code, 130);
  assert.match(left.err, /goes on/);
  assert.equal(await state(job), 'running');
  const log = start(['logs', job, '-f']);
  await new Promise((done) => setTimeout(done, 300));
  await good(['cancel', job]);
  assert.equal((await log.ended).code, 0);

  const failing = await submit('steps=20 burst fail_at=9', 'max_steps=20');
  const said = await hone(['watch', failing]);
  assert.equal(said.code, 75, said.out);
  assert.match(said.out, /^failed after \d+ steps.*\(out_of_memory\)$/m);
});

test('watch goes on when the server is killed and started again', async () => {
  const job = await submit('ms=10 steps=400 save=50', 'max_steps=400');
  await until(async () => await state(job) === 'running', 'running');
  const watching = start(['watch', job]);
  await until(() => /^step /m.test(watching.out()), 'a line of metrics');
  await honed.kill();
  await honed.start();
  const said = await watching.ended;
  assert.equal(said.code, 0, said.err + said.out);
  assert.match(said.out, /the connection is lost/);
  assert.match(said.out, /succeeded after 400 steps/);
  const checkpoints = said.out.match(/^step \d+  checkpoint /gm);
  assert.equal(checkpoints.length, new Set(checkpoints).size);
});

test('tokens and users; what is not yours does not exist', async () => {
  assert.equal((await hone(['tokens', 'new', 'laptop'])).code, 64);
  const made = await good(['tokens', 'new', 'laptop', '--out', 'laptop.token', '--expires', '30']);
  const secret = (await readFile(join(folder, 'laptop.token'), 'utf8')).trim();
  assert.ok(!made.includes(secret));
  assert.equal((await stat(join(folder, 'laptop.token'))).mode & 0o777, 0o600);
  assert.equal((await hone(['tokens', 'new', 'laptop', '--out', 'laptop.token'])).code, 67);
  assert.equal((await hone(['whoami'], { env: { HONE_TOKEN: secret } })).code, 0);
  const listed = await good(['tokens']);
  assert.ok(!listed.includes(secret));
  const id = JSON.parse(await good(['tokens', '--json'])).data.find((row) => row.name === 'laptop').id;
  await good(['tokens', 'revoke', id]);
  assert.equal((await hone(['whoami'], { env: { HONE_TOKEN: secret } })).code, 77);

  await good(['adduser', 'ada', '--out', 'ada.token']);
  const env = { HONE_TOKEN: (await readFile(join(folder, 'ada.token'), 'utf8')).trim() };
  assert.match((await hone(['whoami'], { env })).out, /^name +ada$/m);
  assert.equal((await hone(['adduser', 'eve', '--out', 'eve.token'], { env })).code, 78);
  assert.ok(!(await readdir(folder)).includes('eve.token'));
  const file = JSON.parse(await good(['upload', 'text.txt', '--json'])).id;
  assert.equal((await hone(['rm', file], { env })).code, 66);
});
