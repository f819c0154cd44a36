// lend.test.mjs - devices that no job needs are lent to models that answer; jobs go first.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startHoned } from '../lib/honed.mjs';
import { ended, inState, refused, request, until } from '../lib/jobs.mjs';
import { makeModel } from '../lib/model.mjs';

const WAIT = 60000;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
let folder = null;
let honed = null;
let file = null;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'hone-lend-'));
  await makeModel(join(folder, 'models/one'));
  honed = await startHoned({
    args: ['--cpu-slots', '2', '--model-root', `m=${join(folder, 'models')}`, '--serve-grace-s', '1'],
  });
  file = (await honed.upload('a.txt', 'text\n'.repeat(100))).id;
});
after(async () => {
  await honed?.stop();
  await rm(folder, { recursive: true, force: true });
});

const submit = (more) => honed.call('POST', '/v1/jobs', request(file, 'ms=20', { max_steps: 100000, ...more }));
const answer = () => honed.call('POST', '/v1/completions', { model: 'm:one', prompt: 'Hello', max_tokens: 5 });

// Until it answers: for a moment a model may be on its way out still.
async function answers() {
  for (const end = Date.now() + WAIT; ; await sleep(100)) {
    const got = await answer().catch((error) => error);
    if (got.object === 'text_completion') {
      return got;
    }
    assert.equal(got.status, 503, got.message);
    assert.ok(Date.now() < end, got.message);
  }
}

test('a job and a model that answers work side by side on two slots', async () => {
  const job = await submit();
  await until(honed, job.id, inState('running'), WAIT);
  assert.equal((await answers()).choices.length, 1);
  assert.equal((await honed.call('GET', `/v1/jobs/${job.id}`)).state, 'running');

  // a second job gets the device that the model is on, after the model has left
  const second = await submit();
  const now = await until(honed, second.id, inState('running'), WAIT);
  assert.equal(now.device_ids.length, 1);
  const error = await refused(answer());
  assert.equal(error.status, 503);
  assert.match(error.message, /a job needs the machine/);

  await honed.call('POST', `/v1/jobs/${second.id}/cancel`);
  await until(honed, second.id, ended, WAIT);
  await answers();
  await honed.call('POST', `/v1/jobs/${job.id}/cancel`);
  await until(honed, job.id, ended, WAIT);
});

test('a model on one device leaves a job that takes the other alone', async () => {
  await answers();
  const job = await submit({ max_steps: 30 });
  await until(honed, job.id, ended, WAIT);
  assert.ok(honed.output().split('loaded for answers').length <= 4, 'the model was loaded anew');
  await answers();
});
