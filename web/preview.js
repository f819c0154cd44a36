// preview.js - the first examples as the trainer will see them, token by token: what is read and what is trained.
import { post } from './api.js';
import { h, setString, setText } from './dom.js';
import { Latest } from './latest.js';
import { formatInteger, has, t } from './strings.js';

const EXAMPLES = 3;
const NOT_TRAINED = -100;

const visible = (text) => text.replaceAll('\n', '↵\n').replaceAll('\t', '⇥\t');

// One example: a line of facts, its tokens, and what is under the pointer or the keyboard. One token at a time takes the
// focus; arrow keys go to its neighbours.
function exampleView(example) {
  const { ids = [], texts = [], labels = [], special = [] } = example;
  const readout = h('p', { class: 'hint readout-line', 'aria-live': 'polite' });
  const list = h('div', { class: 'tokens', role: 'group', 't-aria-label': 'preview.tokens' });
  const nodes = ids.map((id, i) => {
    const text = texts[i] ?? '';
    const node = h(
      'span',
      { class: special[i] ? 'token special' : 'token', tabindex: i === 0 ? 0 : -1, 'data-i': i },
      text === '' ? '·' : visible(text),
    );
    return node;
  });
  // What is trained is marked in the markup as well, not by its look alone.
  let run = null;
  nodes.forEach((node, i) => {
    const trained = labels[i] !== NOT_TRAINED;
    if (!run || (run.localName === 'mark') !== trained) {
      run = h(trained ? 'mark' : 'span', { class: trained ? 'trained' : '' });
      list.append(run);
    }
    run.append(node);
  });
  const left = (example.tokens ?? ids.length) - ids.length;
  if (left > 0) {
    const key = example.cut ? 'preview.cut' : 'preview.more';
    list.append(h('span', { class: 'cut', t: [key, { count: formatInteger(left) }] }));
  }

  function tell(i) {
    const id = formatInteger(ids[i]);
    const key = labels[i] === NOT_TRAINED ? 'preview.token_read' : 'preview.token_trained';
    const place = t(key, { place: formatInteger(i + 1), of: formatInteger(ids.length), id });
    setText(readout, special[i] ? `${place} · ${t('preview.special')}` : place);
  }

  const indexOf = (event) => Number(event.target.closest?.('.token')?.dataset.i ?? -1);
  list.addEventListener('mouseover', (event) => indexOf(event) >= 0 && tell(indexOf(event)));
  list.addEventListener('focusin', (event) => indexOf(event) >= 0 && tell(indexOf(event)));
  list.addEventListener('keydown', (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = nodes[indexOf(event) + (step ?? 0)];
    if (step && next) {
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    }
  });
  return h('article', { class: 'example' }, factsOf(example), ids.length > 0 && list, readout);
}

function factsOf(example) {
  const { line, tokens, kept, trained, cut, skipped, reason, error } = example;
  const facts = [
    line > 0 && t('report.line_at', { lines: formatInteger(line) }),
    tokens > 0 &&
      t('preview.count', { tokens: formatInteger(tokens), trained: formatInteger(trained) }),
    cut && t('preview.kept', { kept: formatInteger(kept) }),
  ];
  const why = reason && (has(`reason.${reason}`) ? t(`reason.${reason}`) : reason);
  return h(
    'p',
    { class: 'facts' },
    facts.filter(Boolean).join(' · '),
    skipped && h('strong', { class: 'left-out' }, ` ${t('fault.skip')}`),
    why && h('span', { class: 'hint' }, ` ${why}`),
    error && h('span', { class: 'problem', dir: 'auto' }, ` ${error}`),
  );
}

function legend() {
  return h(
    'p',
    { class: 'hint token-legend' },
    h('mark', { class: 'trained' }, h('span', { class: 'token', t: 'preview.is_trained' })),
    ' ',
    h('span', { class: 'token', t: 'preview.is_read' }),
    ' ',
    h('span', { class: 'token special', t: 'preview.special' }),
  );
}

function sourceText({ method, chat_template: template, sequence_length: length }) {
  return [
    t(method === 'pretrain' ? 'preview.all_trained' : 'preview.answers_trained'),
    template && t('preview.template', { source: template }),
    t('preview.length', { length: formatInteger(length) }),
  ]
    .filter(Boolean)
    .join(' · ');
}

function body(preview) {
  return [
    h('p', { class: 'hint', dir: 'auto' }, sourceText(preview)),
    legend(),
    ...preview.examples.map(exampleView),
  ];
}

export function previewPanel() {
  const status = h('p', { class: 'hint', role: 'status' });
  const holder = h('div');
  const node = h(
    'section',
    { class: 'card preview', hidden: true, 'aria-labelledby': 'preview-title' },
    h('h2', { id: 'preview-title', t: 'preview.title' }),
    status,
    holder,
  );
  let last = null;

  function show(state) {
    last = state;
    const { reply, error, waiting } = state;
    node.hidden = state.what === null;
    node.setAttribute('aria-busy', String(Boolean(waiting)));
    status.hidden = false;
    if (state.later) {
      holder.replaceChildren();
      setString(status, 'preview.later');
    } else if (waiting && holder.childElementCount === 0) {
      setString(status, 'preview.reading');
    } else if (error) {
      holder.replaceChildren();
      setText(status, error.message);
    } else if (reply) {
      status.hidden = true;
      holder.replaceChildren(...body(reply));
    }
  }

  const latest = new Latest(
    (request, signal) => post('/v1/preview', { ...request, n: EXAMPLES }, {}, signal),
    show,
  );
  return {
    node,
    // A request, or null: there is nothing to show. A tokenizer that is still to be learned has no tokens yet.
    ask(request) {
      if (request?.tokenizer_vocab_size) {
        latest.stop();
        show({ what: request, later: true });
      } else {
        latest.ask(request);
      }
    },
    language: () => last && show(last),
    close: () => latest.stop(),
  };
}
