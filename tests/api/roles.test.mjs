// roles.test.mjs - every address for everybody: nobody, a viewer, a member, the owner, an admin.
//
// A row for each row of routes.def: a new address without a row here fails. Then what roles promise beyond single
// addresses: private jobs, changes that count at once, the audit log, limits.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT, rows } from '../lib/defs.mjs';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, request, until } from '../lib/jobs.mjs';
import { readEvents } from '../lib/sse.mjs';

const PROGRAM = join(resolve(ROOT, process.env.HONE_BUILD || 'build/release'), 'honed');

// Who asks, in the order of the letters of a row.
const ACTORS = ['nobody', 'viewer', 'other', 'owner', 'admin'];
// Y may. y may; the thing it is tried on does not exist. N 403. H 404, as if it were not there. 0 401.
const check = {
  Y: (status) => ![401, 403, 404].includes(status),
  y: (status) => ![401, 403].includes(status),
  N: (status) => status === 403,
  H: (status) => status === 404,
  0: (status) => status === 401,
};

// Of an address: who may do it to a thing that is visible to all, to a private one, and the body.
const TABLE = {
  'GET /healthz': ['YYYYY'],
  'GET /openapi.json': ['YYYYY'],
  'POST /v1/login': ['yyyyy', null, {}],
  'POST /v1/logout': ['0yyyy'],
  'GET /v1/me': ['0YYYY'],
  'POST /v1/login_codes': ['0YYYY'],
  'GET /v1/tokens': ['0YYYY'],
  'POST /v1/tokens': ['0YYYY', null, { name: 'one more' }],
  'DELETE /v1/tokens/{id}': ['0HHYH'],
  'GET /v1/users': ['0NNNY'],
  'POST /v1/users': ['0NNNY', null, { name: 'somebody' }],
  'PATCH /v1/users/{name}': ['0NNNY', null, { weight: 2 }],
  'GET /v1/audit': ['0NNNY'],
  'PUT /v1/files': ['0NYYY', null, 'text'],
  'POST /v1/files': ['0NYYY', null, 'form'],
  'GET /v1/files': ['0YYYY'],
  'GET /v1/files/{id}': ['0HHYY'],
  'GET /v1/files/{id}/content': ['0HHYY'],
  'GET /v1/files/{id}/report': ['0HHYY'],
  'DELETE /v1/files/{id}': ['0NHYY'],
  'GET /v1/models': ['0YYYY'],
  'GET /v1/models/{id}': ['0NNYY', '0HHYY'],
  'GET /v1/data': ['0YYYY'],
  'GET /v1/data/report': ['0YYYY'],
  'POST /v1/jobs': ['0NYYY', null, {}],
  'GET /v1/jobs': ['0YYYY'],
  'GET /v1/jobs/{id}': ['0YYYY', '0HHYY'],
  'GET /v1/jobs/{id}/events': ['0YYYY', '0HHYY'],
  'GET /v1/jobs/{id}/metrics': ['0YYYY', '0HHYY'],
  'GET /v1/jobs/{id}/log': ['0NNYY', '0HHYY'],
  'GET /v1/jobs/{id}/checkpoints': ['0NNYY', '0HHYY'],
  'GET /v1/jobs/{id}/checkpoints/{step}': ['0NNYY', '0HHYY'],
  'GET /v1/jobs/{id}/checkpoints/{step}/{name}': ['0NNYY', '0HHYY'],
  'PATCH /v1/jobs/{id}': ['0NNYY', '0NHYY', { time_limit_s: 7200 }],
  'POST /v1/jobs/{id}/move': ['0NNYY', '0NHYY', { to: 'first' }],
  'POST /v1/jobs/{id}/clone': ['0NYYY', '0NHYY', { changes: { name: 'ms=1', max_steps: 1 } }],
  'POST /v1/jobs/{id}/save': ['0NNYY', '0NHYY'],
  'POST /v1/jobs/{id}/pause': ['0NNYY', '0NHYY'],
  'POST /v1/jobs/{id}/resume': ['0NNYY', '0NHYY'],
  'POST /v1/jobs/{id}/cancel': ['0NNYY', '0NHYY', {}],
  'POST /v1/plan': ['0NYYY', null, {}],
  'POST /v1/preview': ['0NYYY', null, {}],
  'POST /v1/completions': ['0NYYY', null, {}],
  'POST /v1/chat/completions': ['0NYYY', null, {}],
  'GET /v1/stream': ['0YYYY'],
  'GET /v1/machine': ['0YYYY'],
  'POST /v1/machine/self_test': ['0NNNy', null, 'none'],
  'POST /v1/devices/{id}/quarantine': ['0NNNy', null, { reason: 'test' }],
  'POST /v1/devices/{id}/release': ['0NNNy'],
  'GET /v1/queue': ['0YYYY'],
  'POST /v1/arrays': ['0NYYY', null, {}],
  'GET /v1/arrays': ['0YYYY'],
  'GET /v1/arrays/{id}': ['0YYYY', '0HHYY'],
  'PATCH /v1/arrays/{id}': ['0NNYY', '0NHYY', { max_running: 1 }],
  'POST /v1/arrays/{id}/cancel': ['0NNYY', '0NHYY', {}],
  'GET /v1/reservations': ['0YYYY'],
  'POST /v1/reservations': ['0NNNy', null, {}],
  'DELETE /v1/reservations/{id}': ['0NNNy'],
};

let honed = null;
const tokens = { nobody: null };
let file = null; // of the owner
let shared = null; // jobs of the owner: a visible one, a private one, and one that has ended, with checkpoints
let secret = null;
let done = null;
let doneSecret = null;
let sharedArray = null; // of the owner too; its jobs begin much later
let secretArray = null;

const ask = (who, method, path, { body, headers = {}, ...more } = {}) =>
  fetch(honed.url + path, {
    method,
    headers: {
      ...(tokens[who] ? { Authorization: `Bearer ${tokens[who]}` } : {}),
      ...(typeof body === 'object' && !(body instanceof FormData) ? { 'Content-Type': 'application/json' } : {}),
      ...headers,
    },
    body: typeof body === 'object' && !(body instanceof FormData) ? JSON.stringify(body) : body,
    ...more,
  });
const as = (who) => ({ Authorization: `Bearer ${tokens[who]}` });
const call = async (who, method, path, body) => {
  const reply = await ask(who, method, path, { body });
  const json = await reply.json();
  assert.ok(reply.ok, `${who} ${method} ${path}: ${reply.status} ${JSON.stringify(json)}`);
  return json;
};
const newFile = async (who) => (await call(who, 'PUT', '/v1/files?filename=a.txt', 'a text to train on\n'.repeat(50))).id;
const submit = (who, name, more = {}) => call(who, 'POST', '/v1/jobs', request(file, name, more));

before(async () => {
  honed = await startHoned({ args: ['--grace-seconds', '2'] });
  tokens.admin = honed.token;
  for (const [name, role] of [['viewer', 'viewer'], ['other', 'member'], ['owner', 'member']]) {
    tokens[name] = (await honed.call('POST', '/v1/users', { name, role })).token;
  }
  file = await newFile('owner');
  done = await submit('owner', 'ms=1', { max_steps: 5 });
  doneSecret = await submit('owner', 'ms=1', { max_steps: 5, visibility: 'private' });
  await until(honed, done.id, ended);
  await until(honed, doneSecret.id, ended);
  const array = (more) =>
    call('owner', 'POST', '/v1/arrays', { request: request(file, 'ms=1', { begin_at: 4000000000, ...more }), grid: { seed: [1, 2] } });
  sharedArray = await array({});
  secretArray = await array({ visibility: 'private' });
  shared = await submit('owner', 'ms=20', { max_steps: 100000 });
  secret = await submit('owner', 'ms=20', { max_steps: 100000, visibility: 'private' });
  await until(honed, shared.id, inState('running'));
});
after(() => honed?.stop());

// The path on a thing of the owner's, made anew where a request would use it up.
async function target(path, method, isPrivate) {
  if (path.startsWith('/v1/jobs/{id}') || path === '/v1/models/{id}') {
    const hasEnded = method === 'GET';
    const job = isPrivate ? (hasEnded ? doneSecret : secret) : hasEnded ? done : shared;
    return path.replace('{id}', job.id).replace('{step}', '5').replace('{name}', 'config.json');
  }
  if (path.startsWith('/v1/arrays/{id}')) {
    return path.replace('{id}', (isPrivate ? secretArray : sharedArray).id);
  }
  if (path.startsWith('/v1/files/{id}')) {
    return path.replace('{id}', method === 'DELETE' ? await newFile('owner') : file);
  }
  if (path === '/v1/tokens/{id}') {
    return path.replace('{id}', (await call('owner', 'POST', '/v1/tokens', { name: 'x' })).id);
  }
  return path.replace('{name}', 'other').replaceAll(/\{[^}]*\}/g, 'x');
}

function bodyOf(method, body) {
  if (body === 'form') {
    const form = new FormData();
    form.append('purpose', 'fine-tune');
    form.append('file', new Blob(['text']), 'a.txt');
    return form;
  }
  return method === 'GET' || body === 'none' ? undefined : body;
}

// Status, and the text but for streams, which do not end.
async function tryIt(who, method, path, body) {
  const abort = new AbortController();
  const reply = await ask(who, method, path, { body: bodyOf(method, body), signal: abort.signal });
  const isStream = reply.headers.get('content-type') === 'text/event-stream';
  const text = isStream ? '' : await reply.text();
  abort.abort();
  return { status: reply.status, text };
}

const routes = rows('server/routes.def', 'ROUTE').map(([method, path, access]) => ({ method, path, access }));

test('every address has a row here', () => {
  for (const { method, path } of routes) {
    assert.ok(TABLE[`${method} ${path}`], `${method} ${path} has no row in tests/api/roles.test.mjs`);
  }
});

test('an address that changes something is for viewers only where it is about themselves', () => {
  for (const { method, path, access } of routes) {
    const viewer = TABLE[`${method} ${path}`][0][1];
    if (method !== 'GET' && !['OPEN', 'SELF'].includes(access)) {
      assert.equal(viewer, 'N', `${method} ${path}`);
    }
    assert.equal(TABLE[`${method} ${path}`][0][0] === '0', access !== 'OPEN', `${method} ${path}`);
  }
});

for (const { method, path } of routes) {
  const [visible, hidden, body] = TABLE[`${method} ${path}`] ?? [''];
  for (const [letters, isPrivate] of [[visible, false], [hidden, true]]) {
    if (letters) {
      test(`${method} ${path}${isPrivate ? ' of a private job' : ''}: ${letters}`, async () => {
        for (const [i, who] of ACTORS.entries()) {
          const address = await target(path, method, isPrivate);
          const { status, text } = await tryIt(who, method, address, body);
          assert.ok(check[letters[i]](status), `${who}: ${status} ${text.slice(0, 300)}`);
          if (letters[i] === 'N') {
            const { error } = JSON.parse(text);
            assert.equal(error.code, 'permission_denied');
            assert.match(error.message, /^\S+ .* \S+$/);
          }
          if (letters[i] === 'H' && /^.v1.(jobs|arrays|files)/.test(path)) {
            const none = await tryIt(who, method, address.replace(/(job|array|file)-\w{14}/, '$1-aaaaaaaaaaaaaa'), body);
            assert.equal(none.status, 404);
            const bare = (one) => one.replace(/(job|array|file)-\w{14}/g, 'X');
            assert.equal(bare(text), bare(none.text));
          }
        }
      });
    }
  }
}

test('lists show visible jobs to all, private ones to their owner and admins', async () => {
  const ids = async (who, query = '') => (await call(who, 'GET', `/v1/jobs?limit=100${query}`)).data.map(({ id }) => id);
  for (const who of ['viewer', 'other', 'owner', 'admin']) {
    const seen = await ids(who);
    const mayAll = ['owner', 'admin'].includes(who);
    assert.ok(seen.includes(shared.id) && seen.includes(done.id), who);
    assert.equal(seen.includes(secret.id), mayAll, who);
    assert.equal((await ids(who, '&owner=owner')).includes(doneSecret.id), mayAll, who);
    assert.deepEqual(await ids(who, '&owner=viewer'), [], who);
    assert.equal((await ids(who, '&mine=1')).includes(done.id), who === 'owner', who);
    assert.equal((await ask(who, 'GET', `/v1/jobs?after=${secret.id}`)).status, mayAll ? 200 : 400, who);
    const arrays = (await call(who, 'GET', '/v1/arrays')).data.map(({ id }) => id);
    assert.deepEqual([arrays.includes(sharedArray.id), arrays.includes(secretArray.id)], [true, mayAll], who);
  }
});

test('the queue shows of private jobs only that they are there', async () => {
  const waiting = await submit('owner', 'ms=1 secret', { max_steps: 1, visibility: 'private', begin_at: 4000000000 });
  const running = await submit('owner', 'ms=20', { max_steps: 100000, visibility: 'private' });
  await until(honed, running.id, inState('running'));
  const find = async (who) => {
    const queue = await call(who, 'GET', '/v1/queue');
    const text = JSON.stringify(queue);
    return { queue, knows: [waiting.id, running.id, 'ms=1 secret'].map((word) => text.includes(word)) };
  };
  for (const who of ['owner', 'admin']) {
    assert.deepEqual((await find(who)).knows, [true, true, true], who);
  }
  for (const who of ['viewer', 'other']) {
    const { queue, knows } = await find(who);
    assert.deepEqual(knows, [false, false, false], who);
    for (const list of [queue.waiting, queue.running]) {
      assert.ok(list.some(({ job, name, owner }) => job === null && name === null && owner === null), who);
    }
  }
  if (routes.some(({ path }) => path === '/v1/machine')) {
    const [seen, whole] = await Promise.all(['viewer', 'owner'].map((who) => call(who, 'GET', '/v1/machine')));
    assert.ok(!JSON.stringify(seen).includes(running.id));
    assert.ok(JSON.stringify(whole).includes(running.id));
  }
  for (const { id } of [waiting, running]) {
    await call('owner', 'POST', `/v1/jobs/${id}/cancel`, { save: false });
  }
});

test('what a visible job says of itself does not name private ones', async () => {
  const parent = await submit('owner', 'ms=1', { begin_at: 4000000000, visibility: 'private' });
  const child = await submit('owner', 'ms=1', { max_steps: 1, depends_on: `${done.id},${parent.id}` });
  const copy = await call('owner', 'POST', `/v1/jobs/${parent.id}/clone`, { changes: { visibility: 'lab' } });
  const array = await call('owner', 'POST', '/v1/arrays', { request: request(file, 'ms=1', { begin_at: 4000000000 }), grid: { seed: [1, 2] } });
  const [hidden, seen] = array.points.map((point) => point.job);
  await call('owner', 'PATCH', `/v1/jobs/${hidden}`, { visibility: 'private' });
  const secrets = [parent.id, hidden, array.id];
  const told = async (who) => {
    const answers = await Promise.all(['/v1/queue', '/v1/jobs?limit=100', ...[child, copy, { id: seen }].map(({ id }) => `/v1/jobs/${id}`)].map((path) => call(who, 'GET', path)));
    return secrets.map((id) => JSON.stringify(answers).includes(id));
  };
  for (const who of ['viewer', 'other']) {
    assert.deepEqual(await told(who), [false, false, false], who);
    const { depends_on: waits, request: sent, cloned_from: from } = await call(who, 'GET', `/v1/jobs/${child.id}`);
    assert.deepEqual(waits.map((one) => one.job), [done.id, null]);
    assert.equal(sent.depends_on, `${done.id},a private job`);
    assert.equal(from, null);
    assert.equal((await call(who, 'GET', `/v1/jobs/${seen}`)).array, null);
  }
  assert.deepEqual(await told('owner'), [true, true, true]);
  assert.deepEqual(await told('admin'), [true, true, true]);
  const over = (events) => events.some(({ event, data }) => event === 'job' && data.id === child.id && data.state === 'cancelled');
  const live = readEvents(`${honed.url}/v1/stream`, as('other'), { enough: over, ms: 20000 });
  await new Promise((done_) => setTimeout(done_, 300));
  await call('owner', 'POST', `/v1/jobs/${parent.id}/cancel`, {});
  const heard = await live;
  assert.ok(over(heard.events) && !JSON.stringify(heard.events).includes(parent.id));
  const { state, reason } = await call('other', 'GET', `/v1/jobs/${child.id}`);
  assert.deepEqual([state, reason], ['cancelled', 'a private job is cancelled, and this job waited until it has succeeded']);
  assert.match((await call('owner', 'GET', `/v1/jobs/${child.id}`)).reason, new RegExp(parent.id));
  await call('owner', 'POST', `/v1/jobs/${copy.id}/cancel`, {});
  await call('owner', 'POST', `/v1/arrays/${array.id}/cancel`, {});
});

test('a private job is not heard of in streams; another is, from the moment on at which it is shown', async () => {
  const over = (id) => (events) => events.some(({ event, data }) => event === 'job' && data.id === id && data.state === 'succeeded');
  const job = await submit('owner', 'ms=1', { max_steps: 5, visibility: 'private', priority: 'normal' });
  const last = await submit('owner', 'ms=1', { max_steps: 5 });
  for (const one of [shared, secret]) {
    await call('admin', 'POST', `/v1/jobs/${one.id}/cancel`, { save: false });
  }
  const read = (who, headers = {}) => readEvents(`${honed.url}/v1/stream`, { ...as(who), ...headers }, { enough: over(last.id), ms: 20000 });
  const live = await Promise.all(['viewer', 'other', 'owner'].map((who) => read(who)));
  const of = ({ event, data }) => (event === 'job' ? data.id : data.job);
  const has = (all, id) => all.events.some((one) => of(one) === id);
  await until(honed, last.id, ended);
  assert.deepEqual(live.map((one) => has(one, job.id)), [false, false, true]);
  assert.deepEqual(live.map((one) => has(one, last.id)), [true, true, true]);
  const first = live[2].events[0].id.replace(/-.*/, '-1');
  const replay = await Promise.all(['viewer', 'other', 'owner'].map((who) => read(who, { 'Last-Event-ID': first })));
  assert.deepEqual(replay.map((one) => has(one, job.id) || has(one, secret.id)), [false, false, true]);
  assert.equal((await ask('other', 'GET', `/v1/stream?jobs=${job.id}`)).status, 404);
  await call('owner', 'PATCH', `/v1/jobs/${job.id}`, { visibility: 'lab' });
  assert.equal((await ask('other', 'GET', `/v1/jobs/${job.id}`)).status, 200);
  await call('owner', 'PATCH', `/v1/jobs/${job.id}`, { visibility: 'private' });
  assert.equal((await ask('other', 'GET', `/v1/jobs/${job.id}`)).status, 404);
});

test("another's checkpoint is no model of a job, of a report or of an answer", async () => {
  for (const [job, status] of [[done, 403], [doneSecret, 404]]) {
    const mine = await newFile('other');
    const refused = await ask('other', 'POST', '/v1/jobs', { body: { training_file: mine, model: job.id, max_steps: 1 } });
    assert.equal(refused.status, 422);
    const answer = await ask('other', 'POST', '/v1/completions', { body: { model: job.id, prompt: 'x' } });
    assert.equal(answer.status, status);
    const report = await ask('other', 'GET', `/v1/files/${mine}/report?model=${job.id}`);
    assert.equal(report.status, status);
    for (const name of ['training_file', 'validation_file']) {
      const body = { ...request(mine, 'x'), [name]: file };
      assert.equal((await ask('other', 'POST', '/v1/jobs', { body })).status, 422);
    }
  }
});

test('nobody gives himself more: there is no such address, and fields that are not asked for are refused', async () => {
  const wishes = { role: 'admin', user_id: 1, weight: 1000, max_devices: 64, max_queued: 1000000, disabled: false };
  for (const path of ['/v1/me', '/v1/users']) {
    assert.equal((await ask('other', 'PATCH', path, { body: wishes })).status, 405);
  }
  assert.equal((await ask('other', 'PATCH', '/v1/users/other', { body: { role: 'admin' } })).status, 403);
  for (const field of ['user_id', 'owner', 'state', 'dir', 'gpus', 'class', 'id', 'private', 'ticket_at']) {
    const reply = await ask('other', 'POST', '/v1/jobs', { body: { ...request(await newFile('other'), 'x'), [field]: 1 } });
    assert.ok([400, 422].includes(reply.status), field);
    const change = await ask('owner', 'PATCH', `/v1/jobs/${done.id}`, { body: { [field]: 1 } });
    assert.ok([400, 422].includes(change.status), `${field}: ${change.status}`);
    const user = await ask('admin', 'PATCH', '/v1/users/other', { body: { [field]: 1 } });
    assert.equal(user.status, 400, field);
    const token = await ask('other', 'POST', '/v1/tokens', { body: { name: 'x', [field]: 1 } });
    assert.equal(token.status, 400, field);
  }
  const urgent = await ask('other', 'POST', '/v1/jobs', { body: request(await newFile('other'), 'x', { priority: 'urgent' }) });
  assert.equal(urgent.status, 403);
});

test('nobody takes more of the queue than is his', async () => {
  const { token } = await honed.call('POST', '/v1/users', { name: 'greedy', max_queued: 10, max_devices: 1 });
  tokens.greedy = token;
  const mine = await newFile('greedy');
  const later = (more) => request(mine, 'ms=1', { max_steps: 1, begin_at: 4000000000, ...more });
  const refusal = async (method, path, body) => {
    const reply = await ask('greedy', method, path, { body });
    const { error } = await reply.json();
    assert.ok(reply.status >= 400 && reply.status < 500, `${path} ${JSON.stringify(body)}: ${reply.status}`);
    assert.ok(error.message.length > 10);
    return { status: reply.status, message: error.message };
  };
  const job = await call('greedy', 'POST', '/v1/jobs', later());
  const many = Array.from({ length: 1000 }, (_, i) => i + 1);
  const huge = { seed: many, max_steps: many, warmup_steps: many };
  assert.equal((await refusal('POST', '/v1/jobs', later({ priority: 'urgent' }))).status, 403);
  assert.equal((await refusal('PATCH', `/v1/jobs/${job.id}`, { priority: 'urgent' })).status, 403);
  assert.equal((await refusal('POST', `/v1/jobs/${job.id}/clone`, { changes: { priority: 'urgent' } })).status, 403);
  assert.equal((await refusal('POST', '/v1/arrays', { request: later({ priority: 'urgent' }), grid: { seed: [1] } })).status, 403);
  await refusal('POST', '/v1/arrays', { request: later(), grid: huge });
  await refusal('POST', '/v1/arrays', { request: later(), grid: { seed: many.slice(0, 500) } });
  await refusal('POST', '/v1/jobs', later({ devices: 2 }));
  await refusal('POST', '/v1/jobs', later({ time_limit_s: 2 ** 40 }));
  await refusal('PATCH', `/v1/jobs/${job.id}`, { time_limit_s: 31536000 });
  await refusal('POST', `/v1/jobs/${job.id}/move`, { before: shared.id });
  const cycle = await call('greedy', 'POST', '/v1/jobs', later({ depends_on: job.id }));
  assert.equal((await ask('greedy', 'PATCH', `/v1/jobs/${job.id}`, { body: { depends_on: cycle.id } })).status >= 400, true);
  const hidden = await refusal('POST', '/v1/jobs', later({ depends_on: doneSecret.id }));
  const missing = await refusal('POST', '/v1/jobs', later({ depends_on: 'job-aaaaaaaaaaaaaa' }));
  assert.equal(hidden.status, missing.status);
  assert.equal(hidden.message.replace(doneSecret.id, 'X'), missing.message.replace('job-aaaaaaaaaaaaaa', 'X'));
  const statuses = [];
  for (let i = 0; i < 30; i += 1) {
    statuses.push((await ask('greedy', 'POST', '/v1/jobs', { body: later({ seed: i }) })).status);
  }
  assert.equal(statuses.filter((status) => status === 201).length, 8);
  assert.equal(statuses.filter((status) => status === 429).length, 22);
  const other = await submit('owner', 'ms=1', { max_steps: 1 });
  await until(honed, other.id, ended);
  const jobs = (await call('greedy', 'GET', '/v1/jobs?mine=1&limit=100')).data;
  await Promise.all(jobs.map(({ id }) => call('greedy', 'POST', `/v1/jobs/${id}/cancel`, {})));
});

test('a role that is changed counts at once, in open streams too; a disabled user has nothing but his jobs', async () => {
  const { token } = await honed.call('POST', '/v1/users', { name: 'ann', role: 'member', max_queued: 2 });
  tokens.ann = token;
  const mine = await newFile('ann');
  const job = await call('ann', 'POST', '/v1/jobs', request(mine, 'ms=20', { max_steps: 100000 }));
  await until(honed, job.id, inState('running'));
  const login = await ask('nobody', 'POST', '/v1/login', { body: { token } });
  const cookie = { Cookie: login.headers.get('set-cookie').split(';')[0] };
  const endless = (headers) => readEvents(`${honed.url}/v1/stream`, headers, { enough: () => false, ms: 10000 });
  const streams = [endless(as('ann')), endless(cookie)];
  await new Promise((wait) => setTimeout(wait, 300));

  await honed.call('PATCH', '/v1/users/ann', { role: 'viewer' });
  assert.deepEqual((await Promise.all(streams)).map((one) => one.ended), [true, true]);
  assert.equal((await call('ann', 'GET', '/v1/me')).role, 'viewer');
  assert.equal((await ask('ann', 'POST', `/v1/jobs/${job.id}/cancel`)).status, 403);
  assert.equal((await ask('ann', 'PUT', '/v1/files?filename=x', { body: 'x' })).status, 403);
  assert.equal((await ask('ann', 'GET', `/v1/jobs/${job.id}/log`)).status, 200);

  const last = endless(as('ann'));
  await new Promise((wait) => setTimeout(wait, 300));
  await honed.call('PATCH', '/v1/users/ann', { disabled: true });
  assert.ok((await last).ended);
  assert.equal((await ask('ann', 'GET', '/v1/me')).status, 401);
  assert.equal((await ask('nobody', 'GET', '/v1/me', { headers: cookie })).status, 401);
  assert.equal((await ask('nobody', 'POST', '/v1/login', { body: { token } })).status, 401);
  assert.equal((await honed.call('GET', `/v1/jobs/${job.id}`)).state, 'running');
  await honed.call('PATCH', '/v1/users/ann', { disabled: false, role: 'member' });
  assert.equal((await ask('ann', 'GET', '/v1/me')).status, 200);

  await call('ann', 'POST', '/v1/jobs', request(mine, 'ms=1', { max_steps: 1 }));
  const more = await ask('ann', 'POST', '/v1/jobs', { body: request(mine, 'ms=1', { max_steps: 1 }) });
  assert.equal(more.status, 429);
  await honed.call('PATCH', '/v1/users/ann', { max_queued: 1 });
  assert.equal((await honed.call('GET', `/v1/jobs/${job.id}`)).state, 'running');
  const me = await call('ann', 'GET', '/v1/me');
  assert.deepEqual([me.max_queued, me.limits.max_queued, me.use.running, me.use.waiting], [1, 1, 1, 1]);
  const listed = (await honed.call('GET', '/v1/users')).data.find(({ name }) => name === 'ann');
  assert.deepEqual(listed.limits, me.limits);
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`, { save: false });
});

test('somebody stays who can undo it', async () => {
  const { name } = await honed.call('GET', '/v1/me');
  for (const change of [{ role: 'member' }, { role: 'viewer' }, { disabled: true }]) {
    await assert.rejects(honed.call('PATCH', `/v1/users/${name}`, change), { status: 409 });
  }
  assert.equal((await honed.call('GET', '/v1/me')).role, 'admin');
  await assert.rejects(honed.call('PATCH', '/v1/users/nobody', { weight: 1 }), { status: 404 });
});

test('what was changed, and what was refused, is in the audit log; values of tokens are not', async () => {
  const { token, id } = await call('other', 'POST', '/v1/tokens', { name: 'mine' });
  await call('admin', 'PATCH', '/v1/users/other', { max_running: 3 });
  await ask('viewer', 'POST', '/v1/jobs', { body: {} });
  await ask('other', 'GET', '/v1/audit');
  const login = await call('nobody', 'POST', '/v1/login', { token });
  for (let i = 0; i < 12; i += 1) {
    await ask('nobody', 'POST', '/v1/login', { body: { code: 'x'.repeat(43) } });
  }
  await call('other', 'GET', '/v1/jobs');
  await new Promise((wait) => setTimeout(wait, 1500));
  const { data } = await honed.call('GET', '/v1/audit?limit=1000');
  const find = (want) => data.filter((one) => Object.entries(want).every(([key, value]) => one[key] === value));
  assert.equal(find({ user: 'other', action: 'token_new', target: id, result: 'ok' }).length, 1);
  assert.equal(find({ action: 'user_change', target: 'other {"max_running":3}', result: 'ok' }).length, 1);
  assert.ok(find({ user: 'viewer', action: 'job_submit', result: 'permission_denied' }).length >= 1);
  assert.ok(find({ user: 'other', action: 'audit_list', result: 'permission_denied' }).length >= 1);
  assert.equal(find({ action: 'login', user: 'other', result: 'ok' }).length, 1);
  assert.equal(data.filter((one) => one.action === 'login' && one.result !== 'ok').length, 1, 'one a minute');
  assert.ok(find({ user: 'owner', action: 'job_submit', target: shared.id }).length === 1);
  assert.ok(find({ action: 'file_put', user: 'owner', address: '127.0.0.1' }).length >= 1);
  assert.equal(data.filter(({ action }) => ['jobs_list', 'me', 'plan', 'preview', 'completions'].includes(action) && action.result === 'ok').length, 0);
  assert.equal(login.user.name, 'other');

  const filtered = (await honed.call('GET', '/v1/audit?user=viewer&action=job_submit')).data;
  assert.ok(filtered.length >= 1 && filtered.every((one) => one.user === 'viewer' && one.action === 'job_submit'));
  const page = await honed.call('GET', `/v1/audit?limit=2&after=${data[1].id}`);
  assert.deepEqual(page.data.map((one) => one.id), [data[2].id, data[3].id]);

  const path = join(honed.folder, 'audit.jsonl');
  assert.equal(((await stat(path)).mode & 0o777).toString(8), '600');
  const text = await readFile(path, 'utf8');
  const lines = text.trim().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(lines.map(({ n }) => n), lines.map((_, i) => i + 1));
  assert.ok(lines.length >= data.length);
  for (const secretText of [...Object.values(tokens), token].filter(Boolean)) {
    assert.ok(!text.includes(secretText.slice(16)) && !JSON.stringify(data).includes(secretText.slice(16)));
  }
  const run = (...words) => promisify(execFile)(PROGRAM, [...words, '--data', honed.folder]);
  assert.match((await run('audit-check')).stdout, /^\d+ entries; none was changed/);
  await honed.restart();
  await call('admin', 'PATCH', '/v1/users/other', { max_running: null });
  assert.match((await run('audit-check')).stdout, /^\d+ entries; none was changed/);
});

test('a token that asks too often waits, and others do not', async () => {
  const strict = await startHoned({ args: ['--rate', '5'] });
  try {
    const bob = await strict.call('POST', '/v1/users', { name: 'bob', role: 'viewer' });
    const me = (token) => fetch(`${strict.url}/v1/me`, { headers: { Authorization: `Bearer ${token}` } });
    const replies = await Promise.all(Array.from({ length: 60 }, () => me(bob.token)));
    const refused = replies.filter(({ status }) => status === 429);
    assert.ok(refused.length >= 40 && refused.length <= 50, String(refused.length));
    assert.ok(refused.every((reply) => Number(reply.headers.get('retry-after')) >= 1));
    assert.equal((await refused[0].json()).error.code, 'rate_limit_exceeded');
    assert.equal((await me(strict.token)).status, 200);
    await new Promise((wait) => setTimeout(wait, 1000));
    assert.equal((await me(bob.token)).status, 200);
  } finally {
    await strict.stop();
  }
});

test('honed makes users of every role', async () => {
  const run = (...words) => promisify(execFile)(PROGRAM, [...words, '--data', honed.folder]);
  for (const [name, words, role] of [['v', ['--role', 'viewer'], 'viewer'], ['m', ['--role', 'member'], 'member'], ['a', ['--role', 'admin'], 'admin'], ['b', ['--admin'], 'admin'], ['c', [], 'member']]) {
    tokens[name] = (await run('adduser', name, ...words)).stdout.trim();
    assert.equal((await call(name, 'GET', '/v1/me')).role, role);
  }
  await assert.rejects(run('adduser', 'x', '--role', 'root'), /viewer, member or admin/);
  await assert.rejects(run('adduser', 'x', '--role'), /viewer, member or admin/);
  const { data } = await honed.call('GET', '/v1/audit?action=adduser');
  assert.equal(data.length, 5);
});
