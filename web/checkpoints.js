// checkpoints.js - a job's checkpoints: when, how large, their hash, and every file to download.
import { copyButton, h } from './dom.js';
import { formatBytes, formatInteger, formatTime } from './strings.js';

const folder = ({ job, step }) => `/v1/jobs/${encodeURIComponent(job)}/checkpoints/${step}/`;

function fileRow(file, checkpoint) {
  // Only an address of this server is followed, whatever the reply says.
  const url =
    typeof file.url === 'string' && file.url.startsWith('/v1/')
      ? file.url
      : folder(checkpoint) + encodeURIComponent(file.name);
  return h(
    'tr',
    {},
    h(
      'th',
      { scope: 'row' },
      h('a', { href: url, download: file.name.split('/').pop() }, file.name),
    ),
    h('td', {}, formatBytes(file.bytes)),
    h('td', {}, hash(file.sha256)),
  );
}

function hash(sha256) {
  return sha256
    ? h(
        'span',
        { class: 'hash' },
        h('code', { title: sha256 }, `${sha256.slice(0, 12)}…`),
        copyButton('copy.hash', () => sha256, 'copy.hash_label'),
      )
    : '–';
}

export class Checkpoints {
  constructor() {
    this.list = []; // oldest first
    this.job = null;
    this.opened = new Map(); // step -> whether the reader opened or closed it
    this.holder = h('div');
    this.node = h(
      'section',
      { class: 'card', 'aria-labelledby': 'checkpoints-title' },
      h(
        'div',
        { class: 'card-head' },
        h('h2', { id: 'checkpoints-title', t: 'checkpoints.title' }),
      ),
      this.holder,
    );
  }

  load(list, job) {
    this.list = [...list].sort((a, b) => a.step - b.step);
    this.job = job;
    this.paint();
  }

  paint() {
    if (this.list.length === 0) {
      this.holder.replaceChildren(h('p', { class: 'empty', t: 'checkpoints.empty' }));
      return;
    }
    this.holder.replaceChildren(
      ...[...this.list].reverse().map((checkpoint, i) => this.item(checkpoint, i === 0)),
    );
  }

  item(checkpoint, isLast) {
    const { step } = checkpoint;
    const id = `${this.job.id}:${step}`;
    const { model: base, lora_rank: rank, adapter } = this.job.resolved ?? this.job.request ?? {};
    // An adapter goes on beside the model that it was trained for.
    const isAdapter = Boolean(rank > 0 || adapter);
    const start = new URLSearchParams(isAdapter ? { model: base, adapter: id } : { model: id });
    const marks = [
      checkpoint.best && h('span', { class: 'mark best', t: 'checkpoints.best' }),
      isLast &&
        h('span', {
          class: 'mark',
          t: checkpoint.final ? 'checkpoints.final' : 'checkpoints.last',
        }),
    ];
    const details = h(
      'details',
      { class: 'checkpoint', open: this.opened.get(step) ?? (isLast && checkpoint.final) },
      h(
        'summary',
        {},
        h(
          'span',
          { class: 'grow' },
          h('strong', { t: ['checkpoints.step', { step: formatInteger(step) }] }),
          ' ',
          marks,
        ),
        h(
          'span',
          { class: 'hint' },
          `${formatTime(checkpoint.created_at)} · ${formatBytes(checkpoint.bytes)}`,
        ),
      ),
      h(
        'p',
        { class: 'tools' },
        h('a', { class: 'button', href: `#/talk?${new URLSearchParams({ model: id })}`, t: 'checkpoints.talk' }),
        h('a', { class: 'button', href: `#/new?${start}`, t: 'checkpoints.train' }),
      ),
      h(
        'p',
        { class: 'hint' },
        h(
          'a',
          { href: `${folder(checkpoint)}manifest.json`, download: 'manifest.json' },
          'manifest.json',
        ),
        ' ',
        h('span', { t: 'checkpoints.sha256' }),
        ' ',
        hash(checkpoint.sha256),
      ),
      h(
        'div',
        { class: 'table-scroll' },
        h(
          'table',
          { class: 'files' },
          h(
            'thead',
            {},
            h(
              'tr',
              {},
              ['checkpoints.file', 'checkpoints.size', 'checkpoints.sha256'].map((key) =>
                h('th', { scope: 'col', t: key }),
              ),
            ),
          ),
          h(
            'tbody',
            {},
            (checkpoint.files ?? []).map((file) => fileRow(file, checkpoint)),
          ),
        ),
      ),
      h(
        'p',
        { class: 'hint' },
        h('span', { t: isAdapter ? 'checkpoints.continue_adapter' : 'checkpoints.continue' }),
        ' ',
        h('code', {}, id),
        ' ',
        copyButton('copy.copy', () => id, 'copy.model_label'),
      ),
    );
    details
      .querySelector('summary')
      .addEventListener('click', () => this.opened.set(step, !details.open));
    return details;
  }
}
