// jobs.mjs - requests that fake_trainer understands, and waiting for what they do.

// A request whose `name` tells fake_trainer what to do (tests/fake_trainer.c).
export function request(file, name, more = {}) {
  return {
    name,
    training_file: file,
    config: { model_type: 'gpt2' },
    tokenizer_vocab_size: 300,
    max_steps: 100,
    ...more,
  };
}

// Poll the job until `check(job)`; throws with the job after `ms`.
export async function until(honed, id, check, ms = 20000) {
  const end = Date.now() + ms;
  for (;;) {
    const job = await honed.call('GET', `/v1/jobs/${id}`);
    if (check(job)) {
      return job;
    }
    if (Date.now() > end) {
      throw new Error(`waited in vain: ${JSON.stringify(job)}`);
    }
    await new Promise((done) => setTimeout(done, 50));
  }
}

export const inState = (...states) => (job) => states.includes(job.state);
export const ended = inState('succeeded', 'failed', 'cancelled');

// All events of a job, oldest first.
export async function eventsOf(honed, id) {
  const all = [];
  for (let after = ''; ; after = `&after=${all.at(-1).id}`) {
    const page = await honed.call('GET', `/v1/jobs/${id}/events?limit=1000${after}`);
    all.push(...page.data);
    if (!page.has_more) {
      return all;
    }
  }
}

// The error that a call is refused with, and its status; throws when it is not refused.
export async function refused(promise, what = '') {
  let answer = null;
  try {
    answer = await promise;
  } catch (error) {
    return { status: error.status, ...JSON.parse(error.body).error };
  }
  throw new Error(`it was not refused: ${JSON.stringify(what)} ${JSON.stringify(answer)}`);
}

// A new user of that name, with call and upload as of startHoned.
export async function userOf(honed, name, role = 'member') {
  const { token } = await honed.call('POST', '/v1/users', { name, role });
  const call = (method, path, body, headers = {}) =>
    honed.call(method, path, body, { Authorization: `Bearer ${token}`, ...headers });
  return { name, token, call, upload: (title, text) => honed.upload(title, text, token) };
}
