// samples.js - what the model wrote to fixed prompts at each evaluation: one step at a time, chosen on a line of them.
import { getAll } from './api.js';
import { h, newId, setText } from './dom.js';
import { formatInteger, t } from './strings.js';

const MOST = 2000;

// A prompt is a text, or a list of messages of which the last is answered.
const promptText = (prompt) =>
  Array.isArray(prompt) ? (prompt.at(-1)?.content ?? '') : (prompt ?? '');

export class Samples {
  constructor() {
    this.steps = new Map(); // step -> [text of prompt 0, 1, ...], in rising order
    this.prompts = [];
    this.follows = true; // the newest is shown until the reader chooses one
    const id = newId('samples');
    this.slider = h('input', { type: 'range', id, min: 0, step: 1, value: 0 });
    this.label = h('label', { for: id });
    this.list = h('div');
    this.node = h(
      'section',
      { class: 'card', hidden: true, 'aria-labelledby': 'samples-title' },
      h('div', { class: 'card-head' }, h('h2', { id: 'samples-title', t: 'samples.title' })),
      h('div', { class: 'timeline' }, this.label, this.slider),
      this.list,
    );
    this.slider.addEventListener('input', () => {
      this.follows = Number(this.slider.value) === this.steps.size - 1;
      this.paint();
    });
  }

  // All that were kept so far, of a job whose address is `path`.
  async fetch(path) {
    return getAll(`${path}/events?type=sample&order=asc`, MOST).catch(() => []);
  }

  load(events, job) {
    const { prompts = [] } = (job.resolved ?? job.request)?.sample_prompts ?? {};
    this.prompts = prompts;
    this.steps.clear();
    events.forEach((event) => this.keep(event));
    this.paint();
  }

  add(event) {
    this.keep(event);
    this.paint();
  }

  // An attempt that resumed writes some anew: the later one counts.
  keep({ step, index, text }) {
    const texts = this.steps.get(step) ?? [];
    texts[index] = text;
    this.steps.set(step, texts);
  }

  // A `resumed` event: what came later is void.
  resume({ from_step: from = 0 }) {
    [...this.steps.keys()].filter((step) => step > from).forEach((step) => this.steps.delete(step));
    this.paint();
  }

  paint() {
    const steps = [...this.steps.keys()].sort((a, b) => a - b);
    this.node.hidden = steps.length === 0;
    if (steps.length === 0) {
      return;
    }
    this.slider.max = String(steps.length - 1);
    if (this.follows) {
      this.slider.value = this.slider.max;
    }
    const step = steps[Number(this.slider.value)];
    const words = t('checkpoints.step', { step: formatInteger(step) });
    setText(this.label, words);
    this.slider.setAttribute('aria-valuetext', words);
    this.list.replaceChildren(
      ...this.steps.get(step).map((text, i) =>
        h(
          'article',
          { class: 'turn', 'data-role': 'text' },
          h(
            'div',
            { class: 'said', dir: 'auto' },
            h('span', { class: 'given' }, promptText(this.prompts[i])),
            h('span', { class: 'written' }, text),
          ),
        ),
      ),
    );
  }
}
