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
