// machine.js - the machine: its devices, who holds them, and how they are joined.
import { get, post } from './api.js';
import { h, newId, setText, svg } from './dom.js';
import { listen, whenLive } from './live.js';
import { formatBytes, formatInteger, formatPercent, formatReal, has, t } from './strings.js';

const POLL_MS = 5000;
const PATIENCE_MS = 700;
const RADIUS = 38; // of the drawing, in percent of its box

const MARKS = { free: '○', leased: '●', busy: '◐', quarantined: '✕', lost: '✕', unusable: '–' };

// What a word of the matrix means: NV4 is a number of NVLinks, the rest are names.
export function linkTitle(word) {
  const links = /^NV(\d+)$/.exec(word ?? '');
  if (links) {
    return t('link.NV', { count: links[1] });
  }
  return has(`link.${word}`) ? t(`link.${word}`) : t('link.unknown');
}

// How thick a link is drawn: NVLink, inside a PCIe tree, the rest not at all.
export function linkWidth(word) {
  if (/^NV\d/.test(word ?? '')) {
    return 3;
  }
  return ['PIX', 'PXB'].includes(word) ? 1.5 : 0;
}

function memoryBar(device) {
  const total = device.memory_bytes || 1;
  const ours = (device.processes ?? [])
    .filter((process) => process.ours)
    .reduce((sum, process) => sum + process.bytes, 0);
  const used = Math.min(device.used_bytes ?? 0, total);
  const part = (bytes, kind) => {
    const node = h('span', { class: `part ${kind}` });
    node.style.width = `${(100 * bytes) / total}%`;
    return node;
  };
  const mine = device.job ? Math.max(ours, 0) : ours;
  return h(
    'div',
    {},
    h(
      'div',
      { class: 'device-bar', 'aria-hidden': 'true' },
      part(Math.min(mine, used), 'ours'),
      part(Math.max(0, used - mine), 'foreign'),
    ),
    h(
      'p',
      { class: 'hint' },
      t('machine.memory_of', {
        used: formatBytes(used),
        total: formatBytes(device.memory_bytes),
        room: formatBytes(device.room_bytes ?? 0),
      }),
    ),
  );
}

const fact = (key, value) =>
  value === null || value === undefined || value === ''
    ? null
    : [h('dt', { t: `machine.${key}` }), h('dd', {}, value)];

function facts(device) {
  const ecc = device.ecc?.on
    ? t('machine.ecc_errors', { count: formatInteger(device.ecc.errors ?? 0) })
    : null;
  const pcie = device.pcie?.gen > 0 ? `${device.pcie.gen}.0 × ${device.pcie.width}` : null;
  const part = (value) => (typeof value === 'number' ? formatPercent(value) : null);
  const power =
    typeof device.power_w === 'number'
      ? `${formatReal(device.power_w)} W`
      : device.power_limit_w
        ? t('machine.power_most', { watts: formatReal(device.power_limit_w) })
        : null;
  return h(
    'dl',
    { class: 'device-facts' },
    fact('utilization', part(device.utilization)),
    fact(
      'temperature',
      typeof device.temperature_c === 'number' ? `${formatReal(device.temperature_c)} °C` : null,
    ),
    fact('power', power),
    fact('ecc', ecc),
    fact('cores', device.cores),
    fact('node', device.node >= 0 ? String(device.node) : null),
    fact('pcie', pcie),
    fact('capability', device.kind === 'gpu' ? (device.capability ?? []).join('.') : null),
    fact('mig', device.mig ? t('machine.on') : null),
  );
}

function processes(device) {
  const list = device.processes ?? [];
  if (list.length === 0) {
    return null;
  }
  return h(
    'ul',
    { class: 'plain hint' },
    list.map((process) =>
      h(
        'li',
        { dir: 'auto' },
        t(process.ours ? 'machine.process_ours' : 'machine.process', {
          pid: process.pid,
          user: process.user || '?',
          command: process.command || '?',
          bytes: formatBytes(process.bytes),
        }),
      ),
    ),
  );
}

// Ask why; resolves to a text, or null.
function askReason() {
  return new Promise((resolve) => {
    const id = newId('reason');
    const input = h('input', { id, maxlength: 120, required: true });
    const dialog = h(
      'dialog',
      { 'aria-labelledby': `${id}-title` },
      h('h2', { id: `${id}-title`, t: 'machine.quarantine_title' }),
      h(
        'form',
        { method: 'dialog' },
        h('label', { for: id, t: 'machine.reason' }),
        input,
        h(
          'div',
          { class: 'answers' },
          h('button', { value: 'yes', class: 'danger', t: 'machine.quarantine' }),
          h('button', { value: '', formnovalidate: true, t: 'machine.leave' }),
        ),
      ),
    );
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes' ? input.value : null);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function machineView(user) {
  const isAdmin = user.role === 'admin';
  let newest = null;
  let timer = 0;
  let closed = false;
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const about = h('dl', { class: 'device-facts wide' });
  const cards = h('div', { class: 'devices' });
  const matrix = h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-labelledby': 'topology-title' });
  const drawing = h('div', { class: 'drawing' });
  const legend = h('ul', { class: 'plain hint' });
  const topology = h(
    'section',
    { class: 'card' },
    h('h2', { id: 'topology-title', t: 'machine.topology' }),
    h('div', { class: 'topology' }, drawing, h('div', {}, matrix, legend)),
  );
  const title = h('h1', { t: 'machine.title', tabindex: -1 });
  const name = h('p', { class: 'hint', dir: 'auto' });
  const node = h(
    'div',
    {},
    h(
      'div',
      { class: 'page-head' },
      h('div', { class: 'grow' }, title, name),
      h('a', { class: 'button', href: '#/queue', t: 'page.queue' }),
    ),
    problem,
    cards,
    topology,
    h('section', { class: 'card' }, h('h2', { t: 'machine.about' }), about),
  );

  async function act(path, body) {
    try {
      await post(path, body);
      problem.hidden = true;
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
    await load();
  }

  function adminButton(device) {
    if (!isAdmin || device.state === 'unusable') {
      return null;
    }
    const path = `/v1/devices/${encodeURIComponent(device.id)}`;
    if (device.state === 'quarantined' || device.state === 'lost') {
      return h('button', {
        type: 'button',
        't-aria-label': ['machine.release_label', { device: device.name }],
        t: 'machine.release',
        'data-key': device.id,
        onclick: () => act(`${path}/release`),
      });
    }
    return h('button', {
      type: 'button',
      class: 'quiet',
      't-aria-label': ['machine.quarantine_label', { device: device.name }],
      t: 'machine.quarantine',
      'data-key': device.id,
      onclick: async () => {
        const reason = await askReason();
        if (reason) {
          await act(`${path}/quarantine`, { reason });
        }
      },
    });
  }

  function holder(device) {
    if (!device.job) {
      return null;
    }
    return h(
      'p',
      {},
      device.job.id
        ? h('a', { href: `#/jobs/${encodeURIComponent(device.job.id)}`, dir: 'auto' }, device.job.name || device.job.id)
        : h('span', { class: 'hint', t: 'queue.private' }),
      device.job.owner ? h('span', { class: 'hint', dir: 'auto' }, ` ${device.job.owner}`) : null,
    );
  }

  function card(device, i) {
    return h(
      'section',
      { class: 'card device', 'data-device': device.id, 'data-state': device.state },
      h(
        'div',
        { class: 'card-head' },
        h('h2', { dir: 'auto' }, `${i} · ${device.name}`),
        h(
          'span',
          { class: 'badge' },
          h('span', { 'aria-hidden': 'true' }, MARKS[device.state] ?? '?'),
          ' ',
          t(`device.${device.state}`),
        ),
      ),
      device.reason ? h('p', { class: 'hint', dir: 'auto' }, device.reason) : null,
      holder(device),
      memoryBar(device),
      facts(device),
      processes(device),
      adminButton(device),
    );
  }

  function paintMatrix(m) {
    const words = m.links.map((row) => row.map((link) => link.link));
    matrix.replaceChildren(
      h(
        'table',
        { class: 'matrix' },
        h(
          'thead',
          {},
          h('tr', {}, h('td'), words.map((_, i) => h('th', { scope: 'col' }, String(i)))),
        ),
        h(
          'tbody',
          {},
          words.map((row, i) =>
            h(
              'tr',
              {},
              h('th', { scope: 'row' }, String(i)),
              row.map((word, k) =>
                h('td', { title: linkTitle(word), 'data-link': word }, i === k ? '·' : word || '?'),
              ),
            ),
          ),
        ),
      ),
    );
    const kinds = [...new Set(words.flat())].filter((word) => word && word !== 'X').sort();
    legend.replaceChildren(
      ...kinds.map((word) => h('li', {}, h('strong', {}, word), ` ${linkTitle(word)}`)),
    );
  }

  function paintDrawing(m) {
    const n = m.devices.length;
    const at = (i) => {
      const angle = (2 * Math.PI * i) / n - Math.PI / 2;
      return [50 + RADIUS * Math.cos(angle), 50 + RADIUS * Math.sin(angle)];
    };
    const lines = [];
    for (let i = 0; i < n; i += 1) {
      for (let k = i + 1; k < n; k += 1) {
        const width = linkWidth(m.links[i][k].link);
        if (width > 0) {
          const [x1, y1] = at(i);
          const [x2, y2] = at(k);
          lines.push(svg('line', { x1, y1, x2, y2, class: 'link', 'stroke-width': width / 2 }));
        }
      }
    }
    const dots = m.devices.map((device, i) => {
      const [x, y] = at(i);
      return svg(
        'g',
        { class: 'dot', 'data-state': device.state },
        svg('circle', { cx: x, cy: y, r: 6 }),
        svg('text', { x, y: y + 2, 'text-anchor': 'middle', 'font-size': 6 }, String(i)),
      );
    });
    drawing.replaceChildren(
      svg('svg', { viewBox: '0 0 100 100', role: 'img', 'aria-label': t('machine.drawing') }, lines, dots),
    );
  }

  function paintAbout(m) {
    about.replaceChildren(
      ...[
        fact('processor', m.processor),
        fact('core_count', formatInteger(m.cores)),
        fact(
          'main_memory',
          m.source === 'file'
            ? formatBytes(m.memory_bytes)
            : t('machine.free_of', {
                free: formatBytes(m.memory_free_bytes),
                total: formatBytes(m.memory_bytes),
              }),
        ),
        fact('channels', m.memory_channels > 0 ? formatInteger(m.memory_channels) : null),
        fact('memory_ecc', m.memory_ecc ? t('machine.on') : null),
        fact('psu', m.psu_watts ? `${formatReal(m.psu_watts)} W` : null),
        ...(m.nodes ?? []).map((one, i) => [
          h('dt', {}, t('machine.node_n', { n: i })),
          h('dd', {}, t('machine.node_has', { cores: one.cores || '–', bytes: formatBytes(one.memory_bytes) })),
        ]),
        ...(m.disks ?? []).map((one) => [
          h('dt', {}, t('machine.disk')),
          h('dd', { dir: 'auto' }, `${one.path} ${formatBytes(one.bytes)} ${one.kind ?? ''}`),
        ]),
      ]
        .filter(Boolean)
        .flat(),
    );
  }

  function paint() {
    const key = document.activeElement?.dataset?.key;
    setText(name, `${newest.name} · ${t(`machine.source_${newest.source}`)}`);
    cards.replaceChildren(...newest.devices.map(card));
    topology.hidden = newest.devices.length < 2;
    if (!topology.hidden) {
      paintMatrix(newest);
      paintDrawing(newest);
    }
    paintAbout(newest);
    if (key) {
      node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
    }
  }

  async function load() {
    try {
      const found = await get('/v1/machine');
      if (!closed) {
        newest = found;
        paint();
      }
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
  }

  const unlisten = listen(({ name: what }) => {
    if (what === 'job' || what === 'reset') {
      clearTimeout(timer);
      timer = setTimeout(load, PATIENCE_MS);
    }
  });
  const poll = setInterval(() => {
    if (document.visibilityState === 'visible') {
      load();
    }
  }, POLL_MS);
  document.title = `${t('machine.title')} – Hone`;
  whenLive().then(load);
  return {
    node,
    language() {
      document.title = `${t('machine.title')} – Hone`;
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
