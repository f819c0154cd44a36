// queue.js - what runs, what waits for what, and who used how much of the machine lately.
import { get, patch, post } from './api.js';
import { ask } from './dialog.js';
import { announce, h, newId, setString, setText } from './dom.js';
import { listen, whenLive } from './live.js';
import { formatBytes, formatDuration, formatInteger, formatPercent, formatTime, t } from './strings.js';
import { badge } from './words.js';

export const CLASSES = ['urgent', 'normal', 'low', 'idle'];
const FIRST_ROWS = 200;
const PATIENCE_MS = 700; // between news and a fetch, so that many changes share one
const POLL_MS = 5000;

// "14:20 (in 12 min)"; what is not known says so.
export function whenText(seconds, now = Date.now() / 1000) {
  if (!seconds) {
    return t('queue.unknown');
  }
  const left = Math.round(seconds - now);
  return left < 5
    ? t('queue.now')
    : t('queue.when', { time: formatTime(seconds), left: formatDuration(left) });
}

// What a job asks for: "2 × 40 GiB".
export const needText = (row) =>
  row.device_bytes > 0
    ? t('queue.need', { devices: formatInteger(row.devices), bytes: formatBytes(row.device_bytes) })
    : formatInteger(row.devices);

const jobLink = (row) =>
  row.job
    ? h(
        'a',
        { href: `#/jobs/${encodeURIComponent(row.job)}`, dir: 'auto', 'data-key': `${row.job} link` },
        row.name || row.job,
      )
    : h('span', { class: 'hint', t: 'queue.private' });

const cell = (key, ...children) => h('td', { 't-data-label': key }, ...children);

function tableOf(id, heads, body) {
  return h(
    'table',
    { class: 'jobs queue', 'aria-labelledby': id },
    h('thead', {}, h('tr', {}, heads.map((key) => h('th', { scope: 'col', t: key })))),
    body,
  );
}

function runningRow(row) {
  const state = badge();
  state.show(row.state);
  const end = row.expected_end_at ?? row.ends_by_at;
  return h(
    'tr',
    { 'data-job': row.job },
    h('th', { scope: 'row' }, jobLink(row)),
    cell('queue.state', state.node),
    cell('queue.owner', h('span', { dir: 'auto' }, row.owner ?? '–')),
    cell('queue.class', t(`class.${row.priority}`)),
    cell('queue.on', h('code', {}, (row.devices ?? []).join(', ') || '–')),
    cell('queue.since', formatTime(row.started_at)),
    cell(
      'queue.ends',
      row.expected_end_at ? whenText(end) : t('queue.at_latest', { when: whenText(end) }),
    ),
  );
}

export function queueView(user) {
  const isAdmin = user.role === 'admin';
  const mayChange = (row) =>
    row.job && user.role !== 'viewer' && (isAdmin || row.owner === user.name);
  let shown = FIRST_ROWS;
  let newest = null;
  let timer = 0;
  let turn = 0;
  let closed = false;

  const summary = h('p', { class: 'hint' });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const running = h('tbody');
  const waiting = h('tbody');
  const users = h('tbody');
  const reservations = h('ul', { class: 'plain' });
  const more = h('button', { type: 'button', t: 'queue.more', hidden: true });
  const runningTable = tableOf(
    'queue-running',
    ['queue.job', 'queue.state', 'queue.owner', 'queue.class', 'queue.on', 'queue.since', 'queue.ends'],
    running,
  );
  const waitingTable = tableOf(
    'queue-waiting',
    ['queue.place', 'queue.job', 'queue.owner', 'queue.class', 'queue.needs', 'queue.start', 'queue.reason', 'queue.change'],
    waiting,
  );
  const usersTable = tableOf(
    'queue-users',
    ['queue.user', 'queue.runs', 'queue.holds', 'queue.waits', 'queue.used', 'queue.share'],
    users,
  );
  const none = (key) => h('p', { class: 'empty', t: key });
  const noRuns = none('queue.no_runs');
  const noWaits = none('queue.no_waits');
  const reserved = h(
    'section',
    { class: 'card' },
    h('h2', { t: 'queue.reservations' }),
    reservations,
  );
  const node = h(
    'div',
    {},
    h(
      'div',
      { class: 'page-head' },
      h('div', { class: 'grow' }, h('h1', { t: 'queue.title', tabindex: -1 }), summary),
      h('a', { class: 'button', href: '#/machine', t: 'page.machine' }),
    ),
    problem,
    h('h2', { id: 'queue-running', class: 'above', t: 'queue.running' }),
    h('div', { class: 'card flush' }, runningTable, noRuns),
    h('h2', { id: 'queue-waiting', class: 'above', t: 'queue.waiting' }),
    h('div', { class: 'card flush' }, waitingTable, noWaits),
    more,
    reserved,
    h('h2', { id: 'queue-users', class: 'above', t: 'queue.users' }),
    h('div', { class: 'card flush' }, usersTable),
  );

  async function change(work, said) {
    try {
      await work();
      announce(t(said));
      problem.hidden = true;
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
    await load();
  }

  const job = (row) => `/v1/jobs/${encodeURIComponent(row.job)}`;

  // The jobs of the row's owner and class, in their order: what a move goes past.
  function line(row) {
    return newest.waiting.filter(
      (other) => other.job && other.owner === row.owner && other.priority === row.priority,
    );
  }

  function moveButtons(row) {
    const own = line(row);
    const at = own.findIndex((other) => other.job === row.job);
    const button = (key, body, possible) =>
      h('button', {
        type: 'button',
        class: 'quiet',
        t: `queue.${key}`,
        't-aria-label': [`queue.${key}_label`, { name: row.name || row.job }],
        disabled: !possible,
        'data-key': `${row.job} ${key}`,
        onclick: () => change(() => post(`${job(row)}/move`, body), 'queue.moved'),
      });
    return [
      button('first', { to: 'first' }, at > 0),
      button('up', { before: own[at - 1]?.job }, at > 0),
      button('down', { after: own[at + 1]?.job }, at >= 0 && at < own.length - 1),
    ];
  }

  const sure = () =>
    ask('cancel.title', 'cancel.plain', [
      { value: 'stop', t: 'cancel.stop', kind: 'danger' },
      { value: '', t: 'cancel.keep' },
    ]);

  function changes(row) {
    if (!mayChange(row)) {
      return cell('queue.change');
    }
    const id = newId('class');
    const classes = h(
      'select',
      {
        id,
        't-aria-label': ['queue.class_label', { name: row.name || row.job }],
        'data-key': `${row.job} class`,
        onchange: ({ target }) =>
          change(() => patch(job(row), { priority: target.value }), 'queue.changed'),
      },
      CLASSES.filter((name) => name !== 'urgent' || isAdmin || row.priority === 'urgent').map(
        (name) =>
          h('option', { value: name, selected: name === row.priority, t: `class.${name}` }),
      ),
    );
    const act = (verb) =>
      h('button', {
        type: 'button',
        class: 'quiet',
        t: `action.${verb}`,
        't-aria-label': [`queue.${verb}_label`, { name: row.name || row.job }],
        'data-key': `${row.job} ${verb}`,
        onclick: async () => {
          if (verb === 'pause' || (await sure())) {
            await change(() => post(`${job(row)}/${verb}`, {}), 'queue.changed');
          }
        },
      });
    return cell(
      'queue.change',
      h('div', { class: 'tools tight' }, classes, moveButtons(row), act('pause'), act('cancel')),
    );
  }

  function waitingRow(row) {
    const isHead = newest.head && newest.head.job && newest.head.job === row.job;
    return h(
      'tr',
      { 'data-job': row.job },
      cell('queue.place', formatInteger(row.position)),
      h(
        'th',
        { scope: 'row' },
        jobLink(row),
        isHead ? h('span', { class: 'tag', t: 'queue.head' }) : null,
        row.array
          ? h('a', { class: 'hint', href: `#/arrays/${encodeURIComponent(row.array)}`, t: 'queue.array' })
          : null,
      ),
      cell('queue.owner', h('span', { dir: 'auto' }, row.owner ?? '–')),
      cell('queue.class', t(`class.${row.priority}`)),
      cell('queue.needs', needText(row)),
      cell('queue.start', whenText(row.expected_start_at)),
      cell('queue.reason', row.reason ?? ''),
      changes(row),
    );
  }

  function userRow(row, most) {
    const limit = (of) => (of ? t('queue.of', { most: formatInteger(of) }) : '');
    const limits = row.limits ?? {};
    return h(
      'tr',
      {},
      h('th', { scope: 'row', dir: 'auto' }, row.name),
      cell('queue.runs', `${formatInteger(row.running)} ${limit(limits.max_running)}`),
      cell('queue.holds', `${formatInteger(row.devices_held)} ${limit(limits.max_devices)}`),
      cell('queue.waits', `${formatInteger(row.waiting)} ${limit(limits.max_queued)}`),
      cell('queue.used', formatDuration(Math.round(row.usage_s ?? 0))),
      cell(
        'queue.share',
        h('meter', { min: 0, max: most || 1, value: row.usage_s ?? 0, 't-aria-label': 'queue.share' }),
        ` ${formatPercent(row.share ?? 0)}`,
      ),
    );
  }

  function reservationItem(row) {
    return h(
      'li',
      {},
      t('queue.reserved', {
        devices: (row.devices ?? []).join(', '),
        from: formatTime(row.from_at),
        to: formatTime(row.to_at),
        who: row.user || t('queue.nobody'),
      }),
      row.note ? h('span', { class: 'hint', dir: 'auto' }, ` ${row.note}`) : null,
    );
  }

  // New rows, with the focus where it was.
  function paint() {
    const key = document.activeElement?.dataset?.key;
    const q = newest;
    const rows = q.waiting.slice(0, shown);
    running.replaceChildren(...q.running.map(runningRow));
    waiting.replaceChildren(...rows.map(waitingRow));
    const most = Math.max(0, ...q.users.map((row) => row.usage_s ?? 0));
    users.replaceChildren(...q.users.map((row) => userRow(row, most)));
    reservations.replaceChildren(...q.reservations.map(reservationItem));
    runningTable.hidden = q.running.length === 0;
    noRuns.hidden = q.running.length > 0;
    waitingTable.hidden = q.waiting.length === 0;
    noWaits.hidden = q.waiting.length > 0;
    reserved.hidden = q.reservations.length === 0;
    more.hidden = (q.waiting_count ?? q.waiting.length) <= shown;
    setString(summary, 'queue.summary', {
      running: formatInteger(q.running.length),
      waiting: formatInteger(q.waiting_count ?? q.waiting.length),
    });
    if (key) {
      const again = node.querySelector(`[data-key="${CSS.escape(key)}"]`);
      const link = node.querySelector(`[data-key="${CSS.escape(`${key.split(' ')[0]} link`)}"]`);
      (again && !again.disabled ? again : link)?.focus({ preventScroll: true });
    }
  }

  async function load() {
    turn += 1;
    const mine = turn;
    try {
      const found = await get(`/v1/queue?limit=${shown + FIRST_ROWS}`);
      if (mine === turn && !closed) {
        newest = found;
        paint();
      }
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(load, PATIENCE_MS);
  }

  const unlisten = listen(({ name }) => {
    if (name === 'job' || name === 'reset') {
      soon();
    }
  });
  // Expected starts move without any event. A menu that is open is left alone.
  const poll = setInterval(() => {
    if (document.visibilityState === 'visible' && document.activeElement?.tagName !== 'SELECT') {
      load();
    }
  }, POLL_MS);
  more.addEventListener('click', () => {
    shown += FIRST_ROWS;
    load();
  });
  document.title = `${t('queue.title')} – Hone`;
  whenLive().then(load);
  return {
    node,
    language() {
      document.title = `${t('queue.title')} – Hone`;
      if (newest) {
        paint();
      }
    },
    close() {
      closed = true;
      clearInterval(poll);
      clearTimeout(timer);
      unlisten();
    },
  };
}
