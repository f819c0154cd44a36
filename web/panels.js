// panels.js - parts of a job's page: the line of stages, the numbers, the failure, the settings. Each is
// {node, show(job)}.
import { h, setString, setText } from './dom.js';
import { fetchSchema, isAutomatic } from './fields.js';
import { curlButton } from './request.js';
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatInteger,
  formatLoss,
  formatShare,
  has,
  t,
} from './strings.js';
import { ENDED, STAGES } from './words.js';

// The stages in a row: those behind, the present one, those ahead.
export function stageLine() {
  const items = STAGES.map((stage) => h('li', { 'data-stage': stage, t: `stage.${stage}` }));
  const node = h('ol', { class: 'stages', 't-aria-label': 'job.stages' }, items);
  return {
    node,
    show(job) {
      const ended = ENDED.includes(job.state);
      const now = job.state === 'queued' ? 0 : STAGES.indexOf(job.stage);
      items.forEach((item, i) => {
        const done = job.state === 'succeeded' || i < now;
        const present = !ended && job.state !== 'paused' && i === now;
        const stopped = !present && !done && i === now;
        item.dataset.mark = present ? 'now' : stopped ? 'stopped' : done ? 'done' : 'ahead';
        if (present) {
          item.setAttribute('aria-current', 'step');
        } else {
          item.removeAttribute('aria-current');
        }
      });
    },
  };
}

// What failed, why, what to do, and what is kept.
export function errorBlock() {
  const what = h('h2');
  const why = h('p', { dir: 'auto' });
  const advice = h('p');
  const kept = h('p');
  const again = h('a', { class: 'button', t: 'error.again' });
  const node = h(
    'section',
    { class: 'card failure', hidden: true },
    what,
    why,
    advice,
    kept,
    h('div', { class: 'tools' }, again),
  );
  return {
    node,
    show(job, checkpoints) {
      const { error } = job;
      node.hidden = !error || job.state !== 'failed';
      if (node.hidden) {
        return;
      }
      setText(
        what,
        has(`error.${error.code}`)
          ? t(`error.${error.code}`)
          : t('error.unknown', { code: error.code }),
      );
      setText(why, error.message ?? '');
      const field = error.param
        ? ` ${t('error.field', { field: has(`field.${error.param}`) ? t(`field.${error.param}`) : error.param })}`
        : '';
      setText(
        advice,
        (has(`advice.${error.code}`) ? t(`advice.${error.code}`) : t('advice.unknown')) + field,
      );
      const last = checkpoints[checkpoints.length - 1];
      setText(kept, last ? t('error.kept', { step: formatInteger(last.step) }) : '');
      again.href = `#/new?like=${encodeURIComponent(job.id)}`;
    },
  };
}

const TILES = [
  ['job.loss', (job) => formatLoss(job.loss)],
  ['job.eval_loss', (job) => formatLoss(job.eval_loss)],
  ['job.accuracy', (job) => formatShare(job.eval_accuracy)],
  [
    'job.step',
    (job) =>
      job.total_steps > 0
        ? `${formatInteger(job.step ?? 0)} / ${formatInteger(job.total_steps)}`
        : '–',
  ],
  ['job.tokens_per_s', (job) => formatCount(job.tokens_per_s)],
  [
    'job.eta',
    (job) =>
      ENDED.includes(job.state)
        ? formatDuration(job.finished_at - job.started_at)
        : formatDuration(job.eta_s),
  ],
  ['job.parameters', (job) => formatCount(job.parameters)],
  ['job.memory', (job) => formatBytes(job.memory_bytes)],
];

const ACCURACY = TILES.findIndex(([key]) => key === 'job.accuracy');
const ETA = TILES.findIndex(([key]) => key === 'job.eta');

export function tiles() {
  const values = TILES.map(() => h('dd'));
  const heads = TILES.map(([key]) => h('dt', { t: key }));
  return {
    node: h(
      'dl',
      { class: 'tiles' },
      TILES.map((tile, i) => h('div', {}, heads[i], values[i])),
    ),
    show(job) {
      TILES.forEach(([, text], i) => setText(values[i], text(job)));
      heads[ACCURACY].parentNode.hidden = !(job.eval_accuracy >= 0);
      setString(heads[ETA], ENDED.includes(job.state) ? 'job.took' : 'job.eta');
    },
  };
}

// Every setting that the run has, as resolved; shown when it is opened.
export function settings() {
  const list = h('dl', { class: 'settings' });
  let shown = null;
  const copy = h(
    'div',
    { class: 'tools' },
    curlButton(() => shown?.request ?? {}),
  );
  const node = h('details', { class: 'card' }, h('summary', { t: 'job.settings' }), list, copy);

  function item(name, value, row) {
    const isObject = typeof value === 'object';
    const text = isObject
      ? JSON.stringify(value)
      : isAutomatic(row, value)
        ? t('form.auto')
        : String(value);
    return h(
      'div',
      { class: isObject ? 'wide' : '' },
      h('dt', { title: name }, has(`field.${name}`) ? t(`field.${name}`) : name),
      h('dd', { dir: 'auto' }, isObject ? h('code', {}, text) : text),
    );
  }

  async function paint() {
    if (!node.open || !shown) {
      return;
    }
    const schema = await fetchSchema().catch(() => ({}));
    const given = Object.entries(shown.resolved ?? shown.request ?? {}).filter(
      ([, value]) => value !== null && value !== '',
    );
    list.replaceChildren(...given.map(([name, value]) => item(name, value, schema[name])));
  }

  node.addEventListener('toggle', paint);
  return {
    node,
    show(job) {
      shown = job;
      paint();
    },
  };
}
