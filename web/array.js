// array.js - the jobs of an array: what each was told, how far it is, which is the best.
import { get, patch, post } from './api.js';
import { ask } from './dialog.js';
import { announce, h, newId, setText } from './dom.js';
import { listen, whenLive } from './live.js';
import { formatInteger, formatLoss, t } from './strings.js';
import { badge, stateWord } from './words.js';

const PATIENCE_MS = 700;

const valueText = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

export function arrayView(id, user) {
  const path = `/v1/arrays/${encodeURIComponent(id)}`;
  let newest = null;
  let timer = 0;
  let closed = false;
  const title = h('h1', { tabindex: -1, dir: 'auto' });
  const summary = h('p', { class: 'hint' });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const head = h('tr');
  const body = h('tbody');
  const capId = newId('cap');
  const cap = h('input', { id: capId, type: 'number', min: 0, max: 1000, class: 'short' });
  const stop = h('button', { type: 'button', class: 'danger', t: 'array.cancel' });
  const form = h(
    'form',
    { class: 'tools' },
    h('span', { class: 'switch' }, h('label', { for: capId, t: 'array.cap' }), cap),
    h('button', { class: 'quiet', t: 'place.save' }),
    stop,
  );
  const node = h(
    'div',
    {},
    h('a', { href: '#/queue', class: 'back', t: 'page.queue' }),
    h('div', { class: 'page-head' }, h('div', { class: 'grow' }, title, summary), form),
    problem,
    h(
      'div',
      { class: 'card flush scroll', tabindex: 0, role: 'region', 't-aria-label': 'array.points' },
      h('table', { class: 'jobs queue' }, h('thead', {}, head), body),
    ),
  );

  function fail(error) {
    setText(problem, error.message);
    problem.hidden = false;
  }

  function row(point, names, best) {
    const state = badge();
    state.show(point.state);
    return h(
      'tr',
      { 'data-job': point.job },
      h(
        'th',
        { scope: 'row' },
        h('a', { href: `#/jobs/${encodeURIComponent(point.job)}` }, formatInteger(point.index)),
        best ? h('span', { class: 'tag', t: 'array.best' }) : null,
      ),
      names.map((name) =>
        h('td', { 'data-label': name, dir: 'auto' }, valueText(point.values[name] ?? null)),
      ),
      h('td', { 't-data-label': 'queue.state' }, state.node),
      h('td', { 't-data-label': 'array.step' }, formatInteger(point.step ?? 0)),
      h('td', { 't-data-label': 'array.loss', class: 'value' }, formatLoss(point.loss)),
      h('td', { 't-data-label': 'array.best_loss', class: 'value' }, formatLoss(point.best_eval_loss)),
    );
  }

  function paint() {
    const names = [...new Set(newest.points.flatMap((point) => Object.keys(point.values)))];
    setText(title, newest.name || newest.id);
    setText(
      summary,
      [
        newest.owner,
        ...Object.entries(newest.counts)
          .filter(([, count]) => count > 0)
          .map(([state, count]) => `${stateWord(state)} ${formatInteger(count)}`),
      ].join(' · '),
    );
    head.replaceChildren(
      h('th', { scope: 'col', t: 'array.point' }),
      ...names.map((name) => h('th', { scope: 'col', dir: 'auto' }, name)),
      ...['queue.state', 'array.step', 'array.loss', 'array.best_loss'].map((key) =>
        h('th', { scope: 'col', t: key }),
      ),
    );
    body.replaceChildren(
      ...newest.points.map((point) => row(point, names, newest.best?.job === point.job)),
    );
    if (document.activeElement !== cap) {
      cap.value = String(newest.max_running ?? 0);
    }
    form.hidden = user.role !== 'admin' && (user.role === 'viewer' || newest.owner !== user.name);
    document.title = `${newest.name || newest.id} – Hone`;
  }

  async function load() {
    try {
      const found = await get(path);
      if (!closed) {
        newest = found;
        paint();
      }
    } catch (error) {
      fail(error);
    }
  }

  async function change(work) {
    try {
      newest = await work();
      problem.hidden = true;
      announce(t('queue.changed'));
      paint();
    } catch (error) {
      fail(error);
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    change(() => patch(path, { max_running: Number(cap.value) }));
  });
  stop.addEventListener('click', async () => {
    const answer = await ask('array.cancel_title', 'array.cancel_text', [
      { value: 'stop', t: 'array.cancel', kind: 'danger' },
      { value: '', t: 'cancel.keep' },
    ]);
    if (answer) {
      await change(() => post(`${path}/cancel`, {}));
    }
  });
  const unlisten = listen(({ name, data }) => {
    const mine = name === 'job' && newest?.points.some((point) => point.job === data.id);
    if (mine || name === 'reset') {
      clearTimeout(timer);
      timer = setTimeout(load, PATIENCE_MS);
    }
  });
  document.title = 'Hone';
  whenLive().then(load);
  return {
    node,
    language() {
      if (newest) {
        paint();
      }
    },
    close() {
      closed = true;
      clearTimeout(timer);
      unlisten();
    },
  };
}
