// curve.test.mjs - a job's curve: fetched points continued by events, without holes or doubles.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Curve, smooth } from '../../web/curve.js';

const metrics = (first, last, every = 1) => {
  const steps = [];
  for (let step = first; step <= last; step += every) {
    steps.push(step);
  }
  const loss = steps.map((step) => 10 / step);
  return {
    steps,
    loss,
    loss_min: loss,
    loss_max: loss,
    lr: loss,
    grad_norm: loss,
    tokens_per_s: loss,
    every,
    eval: {
      steps: steps.filter((step) => step % 10 === 0),
      loss: steps.filter((step) => step % 10 === 0),
    },
    last_step: last,
  };
};
const point = (step, attempt = 1) => ({
  step,
  attempt,
  loss: 10 / step,
  lr: 1,
  grad_norm: 1,
  tokens_per_s: 1,
});
const range = (first, last) => Array.from({ length: last - first + 1 }, (_, i) => first + i);

function loaded(last, attempt = 1) {
  const curve = new Curve();
  curve.load(metrics(1, last), attempt);
  return curve;
}

function isWhole(curve) {
  for (const list of ['loss', 'loss_min', 'loss_max', 'lr', 'grad_norm', 'tokens_per_s']) {
    assert.equal(curve[list].length, curve.steps.length, list);
  }
  assert.equal(curve.evalSteps.length, curve.evalLoss.length);
}

test('events continue what was fetched', () => {
  const curve = loaded(20);
  assert.equal(curve.add(point(21)), 1);
  assert.deepEqual(curve.steps, range(1, 21));
  assert.equal(curve.loss[20], 10 / 21);
  isWhole(curve);
});

test('events that were fetched already are skipped', () => {
  const curve = loaded(20);
  for (const step of range(15, 22)) {
    curve.add(point(step));
  }
  assert.deepEqual(curve.steps, range(1, 22));
  isWhole(curve);
});

test('events within the last thinned point are skipped', () => {
  const curve = new Curve();
  curve.load({ ...metrics(1, 97, 8), last_step: 100 }, 1);
  assert.equal(curve.add(point(99)), 0);
  assert.equal(curve.add(point(101)), 1);
});

test('a hole is told', () => {
  const curve = loaded(20);
  assert.equal(curve.add(point(25)), 5);
});

test('a resume drops the points beyond it, and the new attempt goes on', () => {
  const curve = loaded(30);
  curve.resume({ attempt: 2, from_step: 20 });
  assert.deepEqual(curve.steps, range(1, 20));
  assert.deepEqual(curve.evalSteps, [10, 20]);
  curve.add(point(21, 2));
  assert.deepEqual(curve.steps, range(1, 21));
  isWhole(curve);
});

test('late events of a given-up attempt are skipped', () => {
  const curve = loaded(30);
  curve.resume({ attempt: 2, from_step: 20 });
  assert.equal(curve.add(point(31, 1)), 0);
  curve.resume({ attempt: 1, from_step: 5 });
  curve.addEval({ attempt: 1, step: 40, loss: 1 });
  assert.deepEqual(curve.steps, range(1, 20));
  assert.deepEqual(curve.evalSteps, [10, 20]);
});

test('replaying a whole attempt after a fetch changes nothing', () => {
  const curve = loaded(25, 2);
  curve.resume({ attempt: 2, from_step: 20 });
  for (const step of range(21, 26)) {
    curve.add(point(step, 2));
  }
  assert.deepEqual(curve.steps, range(1, 26));
  isWhole(curve);
});

test('an attempt that starts over without a resume begins anew', () => {
  const curve = loaded(9);
  curve.add(point(1, 2));
  assert.deepEqual(curve.steps, [1]);
  isWhole(curve);
});

test('a value that is not finite stays a gap', () => {
  const curve = loaded(3);
  curve.add({ ...point(4), loss: null, finite: false });
  assert.equal(curve.loss[3], null);
  assert.equal(smooth([1, null, undefined, 1], 0.9)[1], null);
});

test('evaluation points are kept once and in order', () => {
  const curve = loaded(20);
  curve.addEval({ attempt: 1, step: 20, loss: 3 });
  curve.addEval({ attempt: 1, step: 30, loss: 2 });
  curve.addEval({ attempt: 1, step: 30, loss: 2 });
  assert.deepEqual(curve.evalSteps, [10, 20, 30]);
  assert.equal(curve.evalLoss[2], 2);
});

test('smoothing starts at the first value and keeps a constant', () => {
  assert.deepEqual(smooth([5], 0.9), [5]);
  for (const value of smooth([2, 2, 2, 2], 0.9)) {
    assert.ok(Math.abs(value - 2) < 1e-12);
  }
  const soft = smooth([1, 0], 0.5);
  assert.ok(Math.abs(soft[1] - 1 / 3) < 1e-12);
});
