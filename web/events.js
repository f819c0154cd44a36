// events.js - what happened to a job, in words, newest first. Numbers of each step are the curves' matter.
import { get } from './api.js';
import { h } from './dom.js';
import { formatBytes, formatCount, formatInteger, formatLoss, formatShare, t } from './strings.js';
import { stageWord } from './words.js';

const MOST = 300;
const PAGES = 4;

// Each type that is told, in words; types that are not here (metrics, progress) are the curves' matter.
const inWords = {
  stage: (e) => t('event.stage', { stage: stageWord(e.stage) }),
  data: (e) =>
    t('event.data', {
      set: t(`set.${e.set}`),
      bytes: formatBytes(e.bytes),
      tokens: formatCount(e.tokens),
      documents: formatCount(e.documents),
    }),
  ready: (e) =>
    t('event.ready', {
      parameters: formatCount(e.parameters),
      steps: formatInteger(e.total_steps),
      memory: e.layout ? `${formatBytes(e.memory_bytes)} (${e.layout})` : formatBytes(e.memory_bytes),
    }),
  resumed: (e) => t('event.resumed', { step: formatInteger(e.from_step) }),
  eval: (e) =>
    t(e.accuracy > 0 ? 'event.eval_accuracy' : 'event.eval', {
      step: formatInteger(e.step),
      loss: formatLoss(e.loss),
      accuracy: formatShare(e.accuracy),
    }),
  sample: (e) => t('event.sample', { step: formatInteger(e.step), number: e.index + 1 }),
  early_stopping: (e) => t('event.early_stopping', { step: formatInteger(e.best_step) }),
  checkpoint: (e) =>
    t(e.best ? 'event.checkpoint_best' : 'event.checkpoint', {
      step: formatInteger(e.step),
      bytes: formatBytes(e.bytes),
    }),
  checkpoint_failed: (e) =>
    t('event.checkpoint_failed', { step: formatInteger(e.step), message: e.message }),
  checkpoint_deleted: (e) => t('event.checkpoint_deleted', { step: formatInteger(e.step) }),
  warning: (e) => t('event.warning', { message: e.message }),
  error: (e) => t('event.error', { message: e.message }),
  started: (e) => t('event.started', { attempt: e.attempt }),
  ended: (e) => t('event.ended', { status: e.status, step: formatInteger(e.step) }),
};

// The place of an event in the server's order: N of 'EPOCH-N'.
const number = (id) => Number(String(id).split('-').pop()) || 0;

// Evaluating and saving come and go while a run trains, and have events of their own: those changes of stage
// are left out.
function isTold(event, stageBefore) {
  const { type, stage } = event;
  return type !== 'stage' || !(['evaluating', 'saving'].includes(stage) || stage === stageBefore);
}

export class Events {
  constructor() {
    this.list = new Map(); // number -> event, in rising order
    this.body = h('ol', { class: 'events' });
    this.node = h('details', { class: 'card' }, h('summary', { t: 'events.title' }), this.body);
    this.node.addEventListener('toggle', () => this.paint());
  }

  // The newest events, oldest first; the newest of `ready` and `data` are always among them.
  async fetch(path) {
    const early = get(`${path}/events?type=ready,data&order=desc&limit=3`);
    const types = Object.keys(inWords).join();
    const found = [];
    let after = '';
    for (let i = 0; i < PAGES; i += 1) {
      const page = await get(`${path}/events?type=${types}&order=desc&limit=100${after}`);
      found.push(...page.data);
      if (!page.has_more || page.data.length === 0) {
        return found.reverse();
      }
      after = `&after=${encodeURIComponent(page.data[page.data.length - 1].id)}`;
    }
    return [...(await early).data.reverse(), ...found.reverse()];
  }

  load(events) {
    this.list.clear();
    events.forEach((event) => this.keep(event.id, event));
    this.paint();
  }

  keep(id, event) {
    if (Object.hasOwn(inWords, event.type) && !this.list.has(number(id))) {
      this.list.set(number(id), event);
      return true;
    }
    return false;
  }

  add(name, id, data) {
    if (this.keep(id, { ...data, type: name })) {
      this.paint();
    }
  }

  // The stage that the run was in last.
  stage() {
    return [...this.list.values()].filter((event) => event.type === 'stage').pop()?.stage;
  }

  // The regions of memory that the newest `ready` event named, or null.
  memory() {
    const ready = [...this.list.values()].filter((event) => event.type === 'ready').pop();
    return ready?.memory ?? null;
  }

  // What was found in the files of the run: {training, validation}, as far as it was told.
  reports() {
    const told = [...this.list.values()].filter(({ type, report }) => type === 'data' && report);
    return Object.fromEntries(told.map(({ set, report }) => [set, report]));
  }

  paint() {
    if (!this.node.open) {
      return;
    }
    let stage = '';
    const told = [...this.list.values()].filter((event) => {
      const shown = isTold(event, stage);
      stage = shown && event.type === 'stage' ? event.stage : stage;
      return shown;
    });
    const newest = told.slice(-MOST).reverse();
    this.body.replaceChildren(
      ...newest.map((event) =>
        h(
          'li',
          { 'data-type': event.type },
          h('time', {}, new Date(event.t * 1000).toLocaleTimeString(document.documentElement.lang)),
          ' ',
          h('span', { dir: 'auto' }, inWords[event.type](event)),
        ),
      ),
    );
  }
}
