// jobs.js - the list of jobs, newest first, kept current by the stream.
import { get } from './api.js';
import { h, newId, setText } from './dom.js';
import { listen, whenLive } from './live.js';
import { tryButton } from './sample.js';
import { formatLoss, formatTime, t } from './strings.js';
import {
  badge,
  jobName,
  ownerName,
  progressBar,
  progressOf,
  progressText,
  stageFields,
} from './words.js';

const PAGE = 50;
const HEADS = [
  'jobs.name',
  'jobs.state',
  'jobs.progress',
  'jobs.loss',
  'jobs.owner',
  'jobs.started',
];

// A row that is updated in place, so that focus and selection stay where they are.
class Row {
  constructor(job) {
    this.job = job;
    this.link = h('a', { href: `#/jobs/${encodeURIComponent(job.id)}`, dir: 'auto' });
    this.badge = badge();
    this.bar = progressBar('jobs.progress');
    this.text = h('span', { class: 'hint' });
    this.loss = h('span', { class: 'value' });
    this.owner = h('span', { dir: 'auto' });
    this.time = h('time');
    const cell = (key, ...children) => h('td', { 't-data-label': key }, ...children);
    this.node = h(
      'tr',
      { 'data-job': job.id },
      h('th', { scope: 'row' }, this.link),
      cell('jobs.state', this.badge.node),
      cell('jobs.progress', this.bar.node, this.text),
      cell('jobs.loss', this.loss),
      cell('jobs.owner', this.owner),
      cell('jobs.started', this.time),
    );
    this.paint();
  }

  update(fields) {
    Object.assign(this.job, fields);
    this.paint();
  }

  paint() {
    const { job } = this;
    setText(this.link, jobName(job));
    this.badge.show(job.state);
    this.bar.show(progressOf(job));
    setText(this.text, progressText(job));
    setText(this.loss, formatLoss(job.loss));
    setText(this.owner, ownerName(job));
    setText(this.time, formatTime(job.started_at ?? job.created_at));
  }
}

// What the stream's small events change in a job of the list.
const CHANGES = {
  stage: stageFields,
  progress: stageFields,
  metrics: (data) => ({ step: data.step, loss: data.loss, tokens_per_s: data.tokens_per_s }),
};

export function jobsView(user) {
  const rows = new Map();
  const mineId = newId('mine');
  const mine = h('input', { type: 'checkbox', id: mineId });
  const body = h('tbody');
  const table = h(
    'table',
    { class: 'jobs', 'aria-labelledby': 'jobs-title' },
    h(
      'thead',
      {},
      h(
        'tr',
        {},
        HEADS.map((key) => h('th', { scope: 'col', t: key })),
      ),
    ),
    body,
  );
  const empty = h(
    'div',
    { class: 'card welcome', hidden: true },
    h('h2', { t: 'jobs.empty_title' }),
    h('p', { t: 'jobs.empty' }),
    h(
      'div',
      { class: 'tools' },
      tryButton(),
      h('a', { class: 'button', href: '#/new', t: 'jobs.first' }),
    ),
  );
  const older = h('button', { type: 'button', t: 'jobs.older', hidden: true });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const node = h(
    'div',
    {},
    h(
      'div',
      { class: 'page-head' },
      h('h1', { id: 'jobs-title', t: 'jobs.title', tabindex: -1 }),
      h('span', { class: 'switch' }, mine, h('label', { for: mineId, t: 'jobs.mine' })),
      h('a', { class: 'button primary', href: '#/new', t: 'page.new' }),
    ),
    problem,
    h('div', { class: 'card flush' }, table),
    empty,
    older,
  );
  table.hidden = true;
  let pages = 1;
  let turn = 0;
  let missed = null; // events that came while the list was being fetched; null otherwise

  const isShown = (job) => !mine.checked || ownerName(job) === user.name || job.owner === user.id;

  function place() {
    const none = rows.size === 0;
    table.hidden = none;
    table.parentNode.hidden = none;
    empty.hidden = !none;
  }

  async function fetchPage(after) {
    const query = new URLSearchParams({ limit: PAGE });
    if (mine.checked) {
      query.set('mine', '1');
    }
    if (after) {
      query.set('after', after);
    }
    return get(`/v1/jobs?${query}`);
  }

  async function load() {
    turn += 1;
    const thisTurn = turn;
    missed = [];
    try {
      const found = [];
      let page = null;
      for (let i = 0; i < pages; i += 1) {
        page = await fetchPage(page && found[found.length - 1].id);
        found.push(...page.data);
        if (!page.has_more) {
          break;
        }
      }
      if (thisTurn !== turn) {
        return;
      }
      rows.clear();
      body.replaceChildren(...found.map((job) => addRow(job).node));
      older.hidden = !page.has_more;
      problem.hidden = true;
      place();
      missed.forEach(apply);
      missed = null;
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
  }

  function addRow(job) {
    const row = new Row(job);
    rows.set(job.id, row);
    return row;
  }

  function isNew(job) {
    const [newest] = rows.values();
    return isShown(job) && (!newest || job.created_at >= newest.job.created_at);
  }

  function receive(message) {
    if (message.name === 'reset') {
      load();
      return;
    }
    missed?.push(message);
    apply(message);
  }

  function apply({ name, data }) {
    if (name === 'job') {
      if (rows.has(data.id)) {
        rows.get(data.id).update(data);
      } else if (isNew(data)) {
        const others = [...rows.values()];
        rows.clear();
        body.prepend(addRow(data).node);
        others.forEach((row) => rows.set(row.job.id, row));
        place();
      }
    } else if (name in CHANGES) {
      rows.get(data.job)?.update(CHANGES[name](data));
    }
  }

  const unlisten = listen(receive);
  mine.addEventListener('change', () => {
    pages = 1;
    load();
  });
  older.addEventListener('click', () => {
    pages += 1;
    load();
  });
  document.title = `${t('jobs.title')} – Hone`;
  whenLive().then(load);
  return {
    node,
    language() {
      document.title = `${t('jobs.title')} – Hone`;
      rows.forEach((row) => row.paint());
    },
    close: unlisten,
  };
}
