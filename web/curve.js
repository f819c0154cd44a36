// curve.js - the points of a job's curves: what /metrics sent, continued by the stream's events.
//
// Invariant: steps rise strictly, each list has one value per step. A value that was not finite is null.

const LISTS = ['loss', 'loss_min', 'loss_max', 'lr', 'grad_norm', 'tokens_per_s'];

export class Curve {
  constructor() {
    this.attempt = 0;
    this.clear();
  }

  clear() {
    this.steps = [];
    for (const name of LISTS) {
      this[name] = [];
    }
    this.evalSteps = [];
    this.evalLoss = [];
    this.evalAccuracy = [];
    this.every = 1;
    this.lastStep = 0;
  }

  // Start from a reply of /v1/jobs/ID/metrics; `attempt` is the job's at that time.
  load(metrics, attempt) {
    this.clear();
    this.attempt = attempt ?? 0;
    this.every = metrics.every || 1;
    const count = metrics.steps.length;
    this.steps = metrics.steps.slice();
    for (const name of LISTS) {
      const values = metrics[name] ?? [];
      this[name] = Array.from({ length: count }, (_, i) => values[i] ?? null);
    }
    this.evalSteps = (metrics.eval?.steps ?? []).slice();
    this.evalLoss = (metrics.eval?.loss ?? []).slice();
    this.evalAccuracy = this.evalSteps.map((_, i) => metrics.eval.accuracy?.[i] ?? null);
    this.lastStep = Math.max(metrics.last_step ?? 0, this.last());
  }

  last() {
    return this.steps.length > 0 ? this.steps[this.steps.length - 1] : 0;
  }

  // A `metrics` event. Points that are there already, or belong to an attempt that was given up, are
  // skipped. Returns the number of steps between this point and the one before it, 0 when skipped.
  add(event) {
    const attempt = event.attempt ?? this.attempt;
    if (attempt < this.attempt || !Number.isFinite(event.step)) {
      return 0;
    }
    if (attempt > this.attempt) {
      this.attempt = attempt;
      this.cut(event.step - 1);
    }
    const before = Math.max(this.last(), this.lastStep);
    if (event.step <= before) {
      return 0;
    }
    this.steps.push(event.step);
    for (const name of LISTS) {
      const source = name.startsWith('loss_') ? 'loss' : name;
      this[name].push(event[source] ?? null);
    }
    this.lastStep = event.step;
    return event.step - before;
  }

  // An `eval` event, likewise.
  addEval(event) {
    if ((event.attempt ?? this.attempt) < this.attempt || !Number.isFinite(event.step)) {
      return;
    }
    const last = this.evalSteps[this.evalSteps.length - 1] ?? -1;
    if (event.step > last) {
      this.evalSteps.push(event.step);
      this.evalLoss.push(event.loss ?? null);
      this.evalAccuracy.push(event.accuracy ?? null);
    }
  }

  // A `resumed` event: points of earlier attempts beyond from_step are void.
  resume(event) {
    const attempt = event.attempt ?? this.attempt;
    if (attempt < this.attempt) {
      return;
    }
    this.attempt = attempt;
    this.cut(event.from_step ?? 0);
  }

  // Drop the points beyond `step`.
  cut(step) {
    const kept = this.steps.filter((s) => s <= step).length;
    this.steps.length = kept;
    for (const name of LISTS) {
      this[name].length = kept;
    }
    const keptEvals = this.evalSteps.filter((s) => s <= step).length;
    this.evalSteps.length = keptEvals;
    this.evalLoss.length = keptEvals;
    this.evalAccuracy.length = keptEvals;
    this.lastStep = Math.min(this.lastStep, step);
  }
}

// A running mean that forgets: each value weighs `keep` times less per point that follows it; corrected
// for its start, so that the first value is itself (as Adam corrects its moments).
export function smooth(values, keep) {
  let mean = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null || value === undefined) {
      return value;
    }
    mean = keep * mean + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return mean / weight;
  });
}
