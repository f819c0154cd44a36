// report.js - what is in a file and what is wrong with it: format, numbers, the reasons by which examples are left
// out or refused, and what is to be done for each (the field on_problem of a request).
import { get } from './api.js';
import { h, newId, setText } from './dom.js';
import { histogram } from './histogram.js';
import { Latest } from './latest.js';
import { formatInteger, has, t } from './strings.js';

const ACTIONS = ['accept', 'skip', 'refuse'];

const word = (group, name) => (has(`${group}.${name}`) ? t(`${group}.${name}`) : String(name));

function reportPath({ id, policy, model, length }) {
  const machine = id.includes(':');
  const path = machine ? '/v1/data/report' : `/v1/files/${encodeURIComponent(id)}/report`;
  const query = new URLSearchParams(machine ? { id } : {});
  if (policy && Object.keys(policy).length > 0) {
    query.set('on_problem', JSON.stringify(policy));
  }
  if (model) {
    query.set('model', model);
  }
  if (model && length) {
    query.set('sequence_length', length);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

// "lines 3, 9, 27 …", in front of the detail of the first one.
function placeText({ count, first_lines: lines, where }) {
  const places = [];
  if (lines.length > 0) {
    const more = count > lines.length ? ' …' : '';
    places.push(
      t(lines.length > 1 ? 'report.lines_at' : 'report.line_at', {
        lines: lines.map(formatInteger).join(', ') + more,
      }),
    );
  }
  if (where) {
    places.push(where);
  }
  return places.join(' · ');
}

// One reason of a report as a list item; onAction(reason, action) when another action is chosen, or nothing can be.
function reasonItem(reason, onAction) {
  const { reason: name, action, allowed = [], count } = reason;
  const sentence = has(`reason.${name}`) ? t(`reason.${name}`) : reason.message;
  let choice = null;
  if (onAction && allowed.length > 1) {
    const id = newId('action');
    choice = h(
      'span',
      { class: 'choice' },
      h('label', { for: id, class: 'visually-hidden' }, t('report.choose', { reason: sentence })),
      h(
        'select',
        {
          id,
          'data-reason': name,
          onchange: (event) => onAction(name, event.target.value),
        },
        ACTIONS.filter((one) => allowed.includes(one)).map((one) =>
          h('option', { value: one, selected: one === action }, word('fault', `to_${one}`)),
        ),
      ),
    );
  }
  return h(
    'li',
    { 'data-reason': name, 'data-action': action },
    h('span', { class: 'verdict-mark' }, word('fault', action)),
    h(
      'div',
      { class: 'grow' },
      h('strong', { class: 'value' }, t('report.times', { count: formatInteger(count) })),
      ' ',
      h('span', {}, sentence),
      h('div', { class: 'hint', dir: 'auto' }, placeText(reason)),
    ),
    choice,
  );
}

function figures(pairs) {
  return h(
    'dl',
    { class: 'figures' },
    pairs
      .filter(([, value]) => value !== undefined && value !== null)
      .map(([key, value]) => h('div', {}, h('dt', { t: key }), h('dd', {}, formatInteger(value)))),
  );
}

const isPlainText = (report) => report.format === 'text';

// "Chats · JSONL · gzip"
function kindText({ kind, format, columns, compression }) {
  return [
    kind && word('kind', kind),
    format && format !== 'text' && word('format', format),
    columns,
    compression && compression !== 'none' && compression,
  ]
    .filter(Boolean)
    .join(' · ');
}

// The numbers, reasons and lengths of a report, in words. Also for the report of a job (onAction left out).
export function reportBody(report, onAction) {
  const { reasons = [] } = report;
  const numbers = isPlainText(report)
    ? [['report.lines', report.lines]]
    : [
        ['report.lines', report.lines],
        ['report.examples', report.examples],
        ['report.usable', report.usable],
        ['report.skipped', report.skipped],
        ['report.tokens', report.tokens],
        ['report.trained_tokens', report.trained_tokens],
      ];
  return [
    h('p', { class: 'kind' }, kindText(report)),
    figures(numbers),
    reasons.length > 0 &&
      h(
        'ul',
        { class: 'reasons', 't-aria-label': 'report.reasons' },
        [...reasons]
          .sort((a, b) => ACTIONS.indexOf(b.action) - ACTIONS.indexOf(a.action))
          .map((reason) => reasonItem(reason, onAction)),
      ),
    report.lengths && histogram(report.lengths, 'report.lengths'),
  ].filter(Boolean);
}

function verdictText(report) {
  if (report.error) {
    return report.reasons?.length > 0 ? t('report.refused') : report.error.message;
  }
  if (isPlainText(report)) {
    return t('report.text_ok');
  }
  const values = {
    usable: formatInteger(report.usable),
    examples: formatInteger(report.examples),
  };
  return t(report.skipped > 0 ? 'report.some' : 'report.all', values);
}

// The panel under the choice of a file. onAction(reason, action): what is to be done with that reason from now on.
export function reportPanel(onAction) {
  const verdict = h('p', { class: 'verdict', role: 'status' });
  const body = h('div');
  const node = h(
    'section',
    { class: 'report', hidden: true, 't-aria-label': 'report.title' },
    verdict,
    body,
  );
  let last = null;

  function show(state) {
    last = state;
    const { reply, error, waiting } = state;
    node.hidden = state.what === null;
    node.setAttribute('aria-busy', String(Boolean(waiting)));
    if (waiting) {
      // What was there stays until the answer: nothing jumps while a choice is changed.
      if (body.childElementCount === 0) {
        delete verdict.dataset.fits;
        setText(verdict, t('report.reading'));
      }
      return;
    }
    const refused = Boolean(error ?? reply?.error);
    verdict.dataset.fits = String(!refused);
    setText(verdict, error ? error.message : reply ? verdictText(reply) : '');
    const chosen = body.contains(document.activeElement)
      ? document.activeElement.dataset.reason
      : undefined;
    body.replaceChildren(...(reply?.lines === undefined ? [] : reportBody(reply, onAction)));
    if (chosen) {
      body.querySelector(`select[data-reason="${CSS.escape(chosen)}"]`)?.focus();
    }
  }

  // Tokens need the model and every example encoded: they are counted once the rest is shown, and do without when that
  // takes the server too long.
  const fetchReport = (what, signal) => get(reportPath(what), signal);
  const counting = new Latest(fetchReport, (state) => state.reply && show(state));
  const latest = new Latest(fetchReport, (state) => {
    show(state);
    if (state.reply && !state.reply.error) {
      counting.ask(wanted?.model ? wanted : null);
    }
  });
  let wanted = null;
  let shownId = null;
  return {
    node,
    // About the file of a request, for the model that it starts from.
    ask({ training_file: id = null, on_problem: policy, model, sequence_length: length }) {
      if (id !== shownId) {
        shownId = id;
        body.replaceChildren();
      }
      counting.stop();
      wanted = id && { id, policy, model, length };
      if (latest.ask(id ? { id, policy } : null) === false && last?.reply && !last.reply.error) {
        counting.ask(model ? wanted : null);
      }
    },
    language: () => last && show(last),
    close() {
      latest.stop();
      counting.stop();
    },
  };
}
