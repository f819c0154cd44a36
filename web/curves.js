// curves.js - the charts of a job's page: the loss with its evaluation points, smoothing, log scale and a
// table of the same numbers; learning rate, gradient norm and speed below it.
import { makeChart } from './chart.js';
import { smooth } from './curve.js';
import { h, newId, setString, setText } from './dom.js';
import {
  formatCount,
  formatInteger,
  formatLoss,
  formatReal,
  formatShare,
  t,
} from './strings.js';

const SMOOTHING = 0.9;
const TABLE_ROWS = 200;
const TABLE_MS = 2000;

const SMALL = [
  { list: 'lr', title: 'chart.lr', color: '--series-3', format: formatReal },
  { list: 'grad_norm', title: 'chart.grad_norm', color: '--series-4', format: formatReal },
  { list: 'tokens_per_s', title: 'chart.tokens_per_s', color: '--series-5', format: formatCount },
];

// All steps of the two lists in order, and the columns of the loss chart over them.
function lossColumns(curve, smoothed) {
  const steps = [...new Set([...curve.steps, ...curve.evalSteps])].sort((a, b) => a - b);
  const trained = new Map(curve.steps.map((step, i) => [step, i]));
  const evaluated = new Map(curve.evalSteps.map((step, i) => [step, i]));
  const spread = (values, index) =>
    steps.map((step) => (index.has(step) ? values[index.get(step)] : undefined));
  const soft = smoothed ? smooth(curve.loss, SMOOTHING) : curve.loss;
  return {
    x: steps,
    columns: [
      spread(curve.loss_min, trained),
      spread(curve.loss_max, trained),
      spread(smoothed ? curve.loss : [], trained),
      spread(soft, trained),
      spread(curve.evalLoss, evaluated),
    ],
    trained,
    evaluated,
  };
}

function switchBox(key, onchange) {
  const id = newId('switch');
  const box = h('input', { type: 'checkbox', id, role: 'switch' });
  box.addEventListener('change', () => onchange(box.checked));
  return h('span', { class: 'switch' }, box, h('label', { for: id, t: key }));
}

export class Curves {
  constructor() {
    this.smoothed = false;
    this.curve = null;
    this.hovered = null;
    this.frame = 0;
    this.tableAt = 0;
    this.readout = h('dl', { class: 'readout' });
    this.host = h('div', { class: 'chart', role: 'img' });
    this.table = h('div', {
      class: 'table-scroll',
      hidden: true,
      tabindex: 0,
      role: 'region',
      't-aria-label': 'chart.table',
    });
    this.small = SMALL.map((kind) => {
      const host = h('div', { class: 'chart', role: 'img' });
      const value = h('span', { class: 'value' });
      return { ...kind, host, value, chart: null };
    });
    this.node = h(
      'section',
      { class: 'card', 'aria-labelledby': 'curves-title' },
      h(
        'div',
        { class: 'card-head' },
        h('h2', { id: 'curves-title', t: 'chart.title' }),
        h(
          'div',
          { class: 'tools' },
          switchBox('chart.smooth', (on) => {
            this.smoothed = on;
            this.paint();
          }),
          switchBox('chart.log', (on) => this.loss.setLog(on)),
          switchBox('chart.as_table', (on) => {
            this.table.hidden = !on;
            this.tableAt = 0;
            this.paint();
          }),
        ),
      ),
      this.readout,
      (this.empty = h('p', { class: 'empty', t: 'chart.empty' })),
      this.host,
      this.table,
      (this.row = h(
        'div',
        { class: 'small-charts' },
        this.small.map((kind) =>
          h('div', {}, h('h3', {}, h('span', { t: kind.title }), ' ', kind.value), kind.host),
        ),
      )),
    );
    const lines = [
      { color: '--series-1', width: 0, band: true },
      { color: '--series-1', width: 0 },
      { color: '--series-1', width: 1, faint: true },
      { color: '--series-1', width: 2 },
      { color: '--series-2', width: 0, dots: true },
    ];
    this.loss = makeChart(this.host, lines, {
      height: 300,
      log: false,
      format: formatReal,
      sync: 'job',
      onHover: (index) => {
        this.hovered = index;
        this.paintReadout();
      },
    });
    for (const kind of this.small) {
      kind.chart = makeChart(kind.host, [{ color: kind.color, width: 1.5 }], {
        height: 130,
        log: false,
        format: kind.format,
        sync: 'job',
      });
    }
  }

  // Show a curve; drawing waits for the next frame, however many events come before it.
  show(curve) {
    this.curve = curve;
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.paint();
      });
    }
  }

  paint() {
    if (!this.curve) {
      return;
    }
    const curve = this.curve;
    const none = curve.steps.length === 0 && curve.evalSteps.length === 0;
    this.empty.hidden = !none;
    for (const part of [this.host, this.row, this.readout]) {
      part.hidden = none;
    }
    if (none) {
      return;
    }
    this.drawn = lossColumns(curve, this.smoothed);
    this.loss.draw(this.drawn);
    for (const kind of this.small) {
      kind.chart.draw({ x: curve.steps, columns: [curve[kind.list]] });
      setText(kind.value, kind.format(curve[kind.list][curve.steps.length - 1]));
      kind.host.setAttribute('aria-label', t(kind.title));
    }
    const last = curve.steps.length - 1;
    this.host.setAttribute(
      'aria-label',
      t('chart.summary', {
        first: formatLoss(curve.loss[0]),
        from: formatInteger(curve.steps[0]),
        last: formatLoss(curve.loss[last]),
        to: formatInteger(curve.steps[last]),
      }),
    );
    this.paintReadout();
    if (!this.table.hidden && Date.now() - this.tableAt > TABLE_MS) {
      this.tableAt = Date.now();
      this.paintTable();
    }
  }

  // The values under the pointer, else the newest.
  paintReadout() {
    if (!this.drawn || this.drawn.x.length === 0) {
      return;
    }
    const curve = this.curve;
    const { x, trained, evaluated } = this.drawn;
    const step = x[Math.min(this.hovered ?? x.length - 1, x.length - 1)];
    const at = trained.get(step);
    const lastEval =
      this.hovered === null
        ? curve.evalLoss[curve.evalLoss.length - 1]
        : curve.evalLoss[evaluated.get(step)];
    const accuracy =
      this.hovered === null
        ? curve.evalAccuracy[curve.evalAccuracy.length - 1]
        : curve.evalAccuracy[evaluated.get(step)];
    const values = [
      ['chart.step', formatInteger(step)],
      ['chart.loss', formatLoss(curve.loss[at]), 'series-1'],
      ['chart.eval_loss', formatLoss(lastEval), 'series-2'],
      ['chart.accuracy', formatShare(accuracy)],
      ['chart.lr', formatReal(curve.lr[at])],
      ['chart.grad_norm', formatReal(curve.grad_norm[at])],
      ['chart.tokens_per_s', formatCount(curve.tokens_per_s[at])],
    ];
    if (this.readout.childElementCount === 0) {
      this.readout.append(
        ...values.map(([, , tint]) => h('div', {}, h('dt', { class: tint }), h('dd'))),
      );
    }
    values.forEach(([key, text], i) => {
      const [term, value] = this.readout.children[i].children;
      setString(term, key);
      setText(value, text);
      // Runs from before there was an accuracy do without.
      term.parentNode.hidden = key === 'chart.accuracy' && !curve.evalAccuracy.some(Number.isFinite);
    });
  }

  paintTable() {
    const curve = this.curve;
    const { x, trained, evaluated } = this.drawn;
    const stride = Math.max(1, Math.ceil(x.length / TABLE_ROWS));
    const rows = x
      .filter((step, i) => (x.length - 1 - i) % stride === 0 || evaluated.has(step))
      .reverse();
    const heads = [
      'chart.step',
      'chart.loss',
      'chart.eval_loss',
      'chart.accuracy',
      'chart.lr',
      'chart.grad_norm',
      'chart.tokens_per_s',
    ];
    this.table.replaceChildren(
      h(
        'table',
        { class: 'numbers' },
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            heads.map((key) => h('th', { scope: 'col', t: key })),
          ),
        ),
        h(
          'tbody',
          {},
          rows.map((step) => {
            const at = trained.get(step);
            const cells = [
              formatLoss(curve.loss[at]),
              formatLoss(curve.evalLoss[evaluated.get(step)]),
              formatShare(curve.evalAccuracy[evaluated.get(step)]),
              formatReal(curve.lr[at]),
              formatReal(curve.grad_norm[at]),
              formatCount(curve.tokens_per_s[at]),
            ];
            return h(
              'tr',
              {},
              h('th', { scope: 'row' }, formatInteger(step)),
              cells.map((cell) => h('td', {}, cell)),
            );
          }),
        ),
      ),
    );
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.loss.destroy();
    this.small.forEach((kind) => kind.chart.destroy());
  }
}
