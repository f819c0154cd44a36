// talk.js - talk to a model: a chat, or a text that it goes on with, written as it comes.
import { getAll, postStream } from './api.js';
import { announce, h, newId, setString, setText } from './dom.js';
import { formatBytes, formatCount, t } from './strings.js';
import { Turn, endNote } from './turn.js';

const SLOW_MS = 700; // an answer that has not begun by then is waited for in words
const NEAR = 80; // pixels: a reader this close to the end follows it

const TEXT_TOKENS = 256; // of a continuation, where no number is given

// name in a request -> [preset, attributes of its field]
const NUMBERS = {
  temperature: [0.7, { min: 0, max: 2, step: 0.1 }],
  top_p: [0.95, { min: 0.01, max: 1, step: 0.01 }],
  max_tokens: ['', { min: 1, max: 100000, step: 1 }],
  seed: ['', { min: 0, max: 2147483647, step: 1 }],
};

const isRun = ({ id }) => id.startsWith('job-');

// What can be talked to, runs of one's own first.
function modelOptions(models, jobs) {
  const names = new Map(jobs.map((job) => [job.id, job.name]));
  const label = (model) => {
    const [job, step] = model.id.split(':');
    const name = isRun(model) && names.get(job);
    const facts = [
      name ? model.id : model.family,
      model.parameters > 0 && formatCount(model.parameters),
      !name && model.bytes > 0 && formatBytes(model.bytes),
    ].filter(Boolean);
    const title = name ? `${name}${step ? `, ${t('checkpoints.step', { step })}` : ''}` : model.id;
    return facts.length > 0 ? `${title} (${facts.join(', ')})` : title;
  };
  const group = (key, list) =>
    list.length > 0 &&
    h(
      'optgroup',
      { 't-label': key },
      list.map((model) => h('option', { value: model.id }, label(model))),
    );
  return [
    group('talk.runs', models.filter(isRun)),
    group(
      'upload.machine',
      models.filter((model) => !isRun(model)),
    ),
  ].filter(Boolean);
}

class Talk {
  constructor({ model, mode }) {
    this.wanted = model;
    this.turns = [];
    this.control = null;
    this.build(mode === 'text' ? 'text' : 'chat');
    this.load();
  }

  build(mode) {
    this.model = h('select', { id: newId('model'), name: 'model' });
    this.mode = h(
      'select',
      { id: newId('mode'), name: 'mode' },
      ['chat', 'text'].map((one) => h('option', { value: one, t: `talk.mode_${one}` })),
    );
    this.mode.value = mode;
    this.system = h('textarea', { id: newId('system'), name: 'system', rows: 3 });
    this.numbers = Object.fromEntries(
      Object.entries(NUMBERS).map(([name, [value, limits]]) => [
        name,
        h('input', { type: 'number', id: newId('number'), name, value, ...limits, step: 'any' }),
      ]),
    );
    this.log = h('div', {
      class: 'talk-log',
      role: 'log',
      tabindex: 0,
      't-aria-label': 'talk.log',
    });
    this.empty = h('p', { class: 'empty' });
    this.log.append(this.empty);
    this.problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    this.text = h('textarea', { id: newId('say'), name: 'say', rows: 3, dir: 'auto' });
    this.textLabel = h('label', { for: this.text.id });
    this.sendButton = h('button', { class: 'primary', t: 'talk.send' });
    this.stopButton = h('button', { type: 'button', t: 'talk.stop', hidden: true });
    this.clearButton = h('button', { type: 'button', class: 'quiet', t: 'talk.clear' });
    this.form = h(
      'form',
      { class: 'composer' },
      this.textLabel,
      this.text,
      h(
        'div',
        { class: 'tools' },
        this.sendButton,
        this.stopButton,
        this.clearButton,
        h('span', { class: 'hint keys', t: 'talk.keys' }),
      ),
    );
    this.node = h(
      'div',
      {},
      h('div', { class: 'page-head' }, h('h1', { t: 'talk.title', tabindex: -1 })),
      this.problem,
      h(
        'div',
        { class: 'with-aside' },
        h('section', { class: 'card talk' }, this.log, this.form),
        this.settings(),
      ),
    );
    this.listen();
    this.modeChanged();
    this.title();
  }

  settings() {
    const field = (key, input, help) => {
      const hint = help && h('p', { class: 'hint', id: `${input.id}-help`, t: help });
      if (hint) {
        input.setAttribute('aria-describedby', hint.id);
      }
      return h('div', { class: 'field' }, h('label', { for: input.id, t: key }), input, hint);
    };
    this.systemField = field('talk.system', this.system, 'talk.system_help');
    return h(
      'aside',
      { class: 'card plan talk-settings', 't-aria-label': 'talk.settings' },
      field('talk.model', this.model),
      field('talk.mode', this.mode, 'talk.mode_help'),
      this.systemField,
      h(
        'details',
        { open: window.matchMedia('(min-width: 46rem)').matches },
        h('summary', { t: 'talk.sampling' }),
        h(
          'div',
          { class: 'fields' },
          Object.entries(this.numbers).map(([name, input]) =>
            field(`talk.${name}`, input, `talk.${name}_help`),
          ),
        ),
      ),
    );
  }

  listen() {
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.say();
    });
    this.text.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.say();
      }
    });
    this.node.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        this.stop();
      }
    });
    this.stopButton.addEventListener('click', () => this.stop());
    this.clearButton.addEventListener('click', () => this.clear());
    this.mode.addEventListener('change', () => this.modeChanged());
    this.model.addEventListener('change', () => this.address());
  }

  async load() {
    try {
      const [models, jobs] = await Promise.all([
        getAll('/v1/models'),
        getAll('/v1/jobs?mine=1').catch(() => []),
      ]);
      this.lists = { models, jobs };
      this.model.append(...modelOptions(models, jobs));
      if (this.wanted && ![...this.model.options].some(({ value }) => value === this.wanted)) {
        this.model.append(h('option', { value: this.wanted }, this.wanted));
      }
      if (this.wanted) {
        this.model.value = this.wanted;
      }
      if (this.model.options.length === 0) {
        this.complain(t('talk.no_models'));
      }
      this.sendButton.disabled = this.model.options.length === 0;
    } catch (error) {
      this.complain(error.message);
    }
  }

  complain(sentence) {
    setText(this.problem, sentence);
    this.problem.hidden = !sentence;
  }

  // The address names the model, so that it can be opened again.
  address() {
    const query = new URLSearchParams({ model: this.model.value });
    if (this.mode.value === 'text') {
      query.set('mode', 'text');
    }
    history.replaceState(null, '', `#/talk?${query}`);
  }

  // A chat and a continuation have nothing in common: the other begins empty.
  modeChanged() {
    const chat = this.mode.value === 'chat';
    this.clear();
    this.systemField.hidden = !chat;
    setString(this.textLabel, chat ? 'talk.message' : 'talk.prompt');
    setString(this.empty, chat ? 'talk.empty_chat' : 'talk.empty_text');
    if (this.model.value) {
      this.address();
    }
  }

  clear() {
    this.stop();
    this.turns = [];
    this.log.replaceChildren(this.empty);
    this.clearButton.hidden = true;
    this.complain('');
  }

  stop() {
    this.control?.abort();
  }

  put(turn) {
    this.turns.push(turn);
    if (this.turns.length === 1) {
      this.log.replaceChildren();
    }
    this.log.append(turn.node);
    this.clearButton.hidden = false;
    this.log.scrollTop = this.log.scrollHeight;
  }

  say() {
    const text = this.text.value;
    if (this.control || text.trim() === '' || !this.model.value) {
      return;
    }
    this.text.value = '';
    this.dropUnanswered();
    if (this.mode.value === 'chat') {
      this.put(new Turn('user', { text: text.trim() }));
      this.answer(new Turn('assistant'));
    } else {
      this.answer(new Turn('text', { given: text }));
    }
  }

  // A question that got no answer, with its failure: it is no part of the talk any more.
  dropUnanswered() {
    const last = this.turns.at(-1);
    if (last?.role === 'assistant' && last.text === '') {
      this.turns.splice(-2).forEach((turn) => turn.node.remove());
    }
  }

  // The same question once more, or a continuation that goes on.
  again(turn, next) {
    if (this.control) {
      return;
    }
    turn.node.remove();
    this.turns = this.turns.filter((one) => one !== turn);
    this.answer(next);
  }

  // The body of a request that `turn` will hold the answer to. Throws a sentence about a number that is none.
  request(turn) {
    const request = {
      model: this.model.value,
      stream: true,
      stream_options: { include_usage: true },
    };
    for (const [name, input] of Object.entries(this.numbers)) {
      if (!input.checkValidity()) {
        input.reportValidity();
        throw new Error(t('talk.bad_number', { field: t(`talk.${name}`) }));
      }
      if (input.value !== '') {
        request[name] = Number(input.value);
      }
    }
    if (turn.role === 'text') {
      return { max_tokens: TEXT_TOKENS, ...request, prompt: turn.given };
    }
    const said = this.turns
      .filter(({ text }) => text !== '')
      .map(({ role, text }) => ({ role, content: text }));
    const system = this.system.value.trim();
    const messages = system ? [{ role: 'system', content: system }, ...said] : said;
    return { ...request, messages };
  }

  async answer(turn) {
    let request = null;
    this.complain('');
    try {
      request = this.request(turn);
    } catch (error) {
      this.complain(error.message);
      return;
    }
    this.turns.filter(({ role }) => role !== 'user').forEach((one) => one.settle());
    this.put(turn);
    this.running(true);
    const control = new AbortController();
    this.control = control;
    const slow = setTimeout(() => turn.setNote('talk.waiting'), SLOW_MS);
    try {
      const ending = await this.write(turn, request, control.signal, () => clearTimeout(slow));
      turn.setNote(...(control.signal.aborted ? ['talk.stopped'] : ending));
      announce(turn.text);
    } catch (error) {
      turn.setNote('');
      turn.fail(error);
    }
    clearTimeout(slow);
    if (this.control === control) {
      this.control = null;
      this.running(false);
    }
    turn.end(...this.buttons(turn));
    this.log.scrollTop = this.log.scrollHeight;
  }

  // Write what comes into the turn; the note on its end.
  async write(turn, request, signal, onBegin) {
    const path = turn.role === 'text' ? '/v1/completions' : '/v1/chat/completions';
    let reason = 'stop';
    let tokens = 0;
    let begun = 0;
    for await (const { choices = [], usage } of postStream(path, request, signal)) {
      const [choice] = choices;
      const piece = choice?.delta?.content ?? choice?.text ?? '';
      if (begun === 0) {
        begun = performance.now();
        onBegin();
        turn.setNote('');
      }
      if (piece) {
        const { scrollHeight, scrollTop, clientHeight } = this.log;
        turn.add(piece);
        if (scrollHeight - scrollTop - clientHeight < NEAR) {
          requestAnimationFrame(() => {
            this.log.scrollTop = this.log.scrollHeight;
          });
        }
      }
      reason = choice?.finish_reason ?? reason;
      tokens = usage?.completion_tokens ?? tokens;
    }
    return endNote(reason, tokens, (performance.now() - begun) / 1000);
  }

  buttons(turn) {
    const button = (key, next) =>
      h('button', {
        type: 'button',
        class: 'quiet',
        t: key,
        onclick: () => this.again(turn, next()),
      });
    const { role, given } = turn;
    const again = button('talk.again', () => new Turn(role, { given }));
    return role === 'text' && turn.text
      ? [again, button('talk.go_on', () => new Turn(role, { given: turn.whole }))]
      : [again];
  }

  // A screen reader hears the whole answer at its end, not its pieces.
  running(on) {
    this.log.setAttribute('aria-busy', String(on));
    this.stopButton.hidden = !on;
    this.sendButton.hidden = on;
  }

  title() {
    document.title = `${t('talk.title')} – Hone`;
  }

  language() {
    this.title();
    this.turns.forEach((turn) => turn.language());
    if (this.lists) {
      const chosen = this.model.value;
      this.model.replaceChildren(...modelOptions(this.lists.models, this.lists.jobs));
      this.model.value = chosen;
    }
  }

  close() {
    this.stop();
  }
}

export function talkView(from) {
  return new Talk(from);
}
