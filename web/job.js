// job.js - a job's page: what it is doing, its curves, checkpoints, events and log.
//
// What was is fetched, what comes is taken from the stream; events that arrive while fetching are applied
// after it, so there is no hole. The lists skip what they have already, so nothing is there twice.
import { get, getAll, post } from './api.js';
import { Checkpoints } from './checkpoints.js';
import { Curve } from './curve.js';
import { Curves } from './curves.js';
import { ask } from './dialog.js';
import { announce, h, setText } from './dom.js';
import { Events } from './events.js';
import { jobData } from './jobdata.js';
import { listen, whenLive } from './live.js';
import { Log } from './log.js';
import { memoryBar } from './memory.js';
import { errorBlock, settings, stageLine, tiles } from './panels.js';
import { placePanel } from './place.js';
import { Samples } from './samples.js';
import { formatPercent, formatTime, t } from './strings.js';
import {
  ENDED,
  badge,
  jobName,
  ownerName,
  progressBar,
  progressOf,
  progressText,
  stageFields,
  stageWord,
  stateWord,
} from './words.js';

const MOST_POINTS = 4000; // more live points than this are fetched again, thinned by the server
const REFETCH_MS = 5000; // at most one refetch of the curve for a hole in this time

const PACE_POINTS = 50;

const ACTIONS = [
  { name: 'save', t: 'action.save' },
  { name: 'pause', t: 'action.pause' },
  { name: 'resume', t: 'action.resume', kind: 'primary' },
  { name: 'cancel', t: 'action.cancel', kind: 'danger' },
];

class JobPage {
  constructor(id, user) {
    this.id = id;
    this.isAdmin = user?.role === 'admin';
    this.path = `/v1/jobs/${encodeURIComponent(id)}`;
    this.job = null;
    this.curve = new Curve();
    this.missed = [];
    this.turn = 0;
    this.refetchedAt = 0;
    this.pace = []; // the newest points, to tell the time left
    this.closed = false;
    this.build();
    this.unlisten = listen((message) => this.receive(message));
    whenLive().then(() => this.load());
  }

  build() {
    this.title = h('h1', { tabindex: -1, dir: 'auto' });
    this.badge = badge();
    this.byline = h('p', { class: 'hint', dir: 'auto' });
    this.actions = h('div', { class: 'tools actions' });
    this.stages = stageLine();
    this.bar = progressBar('job.progress');
    this.progress = h('p', { class: 'progress-text' });
    this.problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    this.error = errorBlock();
    this.tiles = tiles();
    this.memory = memoryBar();
    this.place = placePanel(this.isAdmin, (job) => {
      this.changeTo(job);
      this.paint();
    });
    this.curves = new Curves();
    this.checkpoints = new Checkpoints();
    this.samples = new Samples();
    this.data = jobData();
    this.events = new Events();
    this.log = new Log(`${this.path}/log`);
    this.settings = settings();
    this.content = h(
      'div',
      { hidden: true },
      h(
        'div',
        { class: 'page-head' },
        h('div', { class: 'grow' }, this.title, this.byline),
        this.badge.node,
        this.actions,
      ),
      this.error.node,
      h(
        'section',
        { class: 'card', 't-aria-label': 'job.progress' },
        this.stages.node,
        this.bar.node,
        this.progress,
        this.tiles.node,
        this.memory.node,
      ),
      this.place.node,
      this.curves.node,
      this.checkpoints.node,
      this.samples.node,
      this.data.node,
      this.events.node,
      this.log.node,
      this.settings.node,
    );
    this.node = h(
      'div',
      {},
      h('a', { href: '#/', class: 'back', t: 'page.back' }),
      this.problem,
      this.content,
    );
    document.title = 'Hone';
  }

  fail(error) {
    setText(this.problem, [400, 404].includes(error.status) ? t('job.missing') : error.message);
    this.problem.hidden = false;
  }

  async load() {
    this.turn += 1;
    const turn = this.turn;
    this.missed = [];
    try {
      const job = await get(this.path);
      const [metrics, checkpoints, events, samples] = await Promise.all([
        get(`${this.path}/metrics?points=1000`),
        getAll(`${this.path}/checkpoints`).catch((error) => this.forOthers(error)),
        this.events.fetch(this.path).catch(() => []),
        this.samples.fetch(this.path),
      ]);
      if (turn !== this.turn || this.closed) {
        return;
      }
      this.problem.hidden = true;
      this.job = job;
      this.curve.load(metrics, job.attempt);
      job.eval_accuracy = this.curve.evalAccuracy.at(-1);
      this.checkpoints.load(checkpoints, job);
      this.events.load(events);
      this.samples.load(samples, job);
      this.memory.show(this.events.memory());
      this.content.hidden = false;
      const missed = this.missed;
      this.missed = null;
      missed.forEach((message) => this.apply(message));
      this.paintOnce();
      this.paint();
    } catch (error) {
      if (turn === this.turn && !this.closed) {
        this.missed = null;
        this.fail(error);
      }
    }
  }

  // Of another's job there is the curve; what the run wrote is its owner's.
  forOthers(error) {
    if (error.status !== 403) {
      throw error;
    }
    this.log.node.hidden = true;
    this.checkpoints.node.hidden = true;
    return [];
  }

  receive(message) {
    if (message.name === 'reset') {
      this.load();
    } else if ((message.name === 'job' ? message.data.id : message.data?.job) === this.id) {
      this.missed?.push(message);
      if (this.job && !this.missed) {
        this.apply(message);
        this.paint();
      }
    }
  }

  apply({ name, id, data }) {
    const job = this.job;
    this.events.add(name, id, data);
    if (name === 'job') {
      this.changeTo(data);
    } else if (name === 'stage' || name === 'progress') {
      this.changeTo(stageFields(data));
    } else if (name === 'metrics') {
      this.addPoint(data);
    } else if (name === 'eval') {
      this.curve.addEval(data);
      job.eval_loss = data.loss;
      job.eval_accuracy = data.accuracy;
    } else if (name === 'resumed') {
      this.curve.resume(data);
      this.samples.resume(data);
    } else if (name === 'sample') {
      this.samples.add(data);
    } else if (name === 'ready') {
      job.parameters = data.parameters ?? job.parameters;
      this.memory.show(data.memory);
    } else if (name === 'checkpoint' || name === 'checkpoint_deleted') {
      this.reloadCheckpoints();
    }
  }

  // Some fields of the job changed. A screen reader hears of another state or stage, not of each step, nor
  // of evaluating and saving, which come and go.
  changeTo(fields) {
    const before = this.job;
    const now = { ...before, ...fields };
    const brief = [before.stage, now.stage].some((stage) =>
      ['evaluating', 'saving'].includes(stage),
    );
    this.job = now;
    if (before.state !== now.state) {
      announce(stateWord(now.state));
      this.log.follow(!ENDED.includes(now.state), now.started_at > 0);
    } else if (before.stage !== now.stage && now.stage && !brief) {
      announce(stageWord(now.stage));
    }
  }

  addPoint(data) {
    const { job, curve } = this;
    const stride = curve.add(data);
    if (stride > 0) {
      const { step, loss, tokens_per_s } = data;
      Object.assign(job, { step, loss, tokens_per_s, eta_s: this.timeLeft(data) ?? job.eta_s });
    }
    const hole = stride > Math.max(1, job.resolved?.log_interval ?? 1) && curve.steps.length > 1;
    if ((hole || curve.steps.length > MOST_POINTS) && Date.now() - this.refetchedAt > REFETCH_MS) {
      this.refetchedAt = Date.now();
      this.load();
    }
  }

  // Seconds to the last step at the pace of the newest points; null while there is one point only.
  timeLeft({ attempt, step, seconds }) {
    const pace = this.pace.filter((point) => point.attempt === attempt && point.step < step);
    this.pace = [...pace.slice(-PACE_POINTS), { attempt, step, seconds }];
    const [first] = this.pace;
    const left = (this.job.total_steps ?? 0) - step;
    return step > first.step
      ? (Math.max(0, left) * (seconds - first.seconds)) / (step - first.step)
      : null;
  }

  async reloadCheckpoints() {
    try {
      const checkpoints = await getAll(`${this.path}/checkpoints`);
      if (!this.closed) {
        this.checkpoints.load(checkpoints, this.job);
        this.paint();
      }
    } catch {
      // The next event or reset fetches them again.
    }
  }

  // What changes only with a fetch.
  paintOnce() {
    this.settings.show(this.job);
    this.log.follow(!ENDED.includes(this.job.state), this.job.started_at > 0);
  }

  paint() {
    const { job } = this;
    setText(this.title, jobName(job));
    this.badge.show(job.state);
    const when =
      job.started_at > 0
        ? t('job.started', { time: formatTime(job.started_at) })
        : t('job.created', { time: formatTime(job.created_at) });
    setText(
      this.byline,
      [ownerName(job), when, job.attempt > 1 ? t('job.attempt', { n: job.attempt }) : '', job.id]
        .filter(Boolean)
        .join(' · '),
    );
    this.stages.show({ ...job, stage: job.stage ?? this.events.stage() });
    const part = progressOf(job);
    this.bar.show(
      ENDED.includes(job.state) && job.state !== 'succeeded' && part === null ? 0 : part,
    );
    setText(this.progress, progressText(job) || stateWord(job.state));
    this.tiles.show(job);
    this.place.show(job);
    this.curves.show(this.curve);
    this.data.show(this.events.reports());
    this.error.show(job, this.checkpoints.list);
    this.paintActions();
    document.title = `${part !== null && !ENDED.includes(job.state) ? `${formatPercent(part)} ` : ''}${jobName(job)} – Hone`;
  }

  paintActions() {
    const allowed = ACTIONS.filter(({ name }) => this.job.allowed_actions?.includes(name));
    const shown = [...this.actions.children].map((button) => button.dataset.action).join();
    if (shown !== allowed.map(({ name }) => name).join()) {
      this.actions.replaceChildren(
        ...allowed.map(({ name, t: key, kind }) =>
          h('button', {
            type: 'button',
            class: kind ?? '',
            t: key,
            'data-action': name,
            onclick: () => this.act(name),
          }),
        ),
      );
    }
  }

  async act(name) {
    let body;
    if (name === 'cancel') {
      const answer = await this.askCancel();
      if (!answer) {
        return;
      }
      body = { save: answer === 'save' };
    }
    try {
      this.problem.hidden = true;
      const job = await post(`${this.path}/${name}`, body);
      this.changeTo(job);
      this.paint();
    } catch (error) {
      this.fail(error);
    }
  }

  askCancel() {
    const keep = { value: '', t: 'cancel.keep' };
    if (this.job.state !== 'running') {
      return ask('cancel.title', 'cancel.plain', [
        { value: 'stop', t: 'cancel.stop', kind: 'danger' },
        keep,
      ]);
    }
    return ask('cancel.title', 'cancel.save', [
      { value: 'save', t: 'cancel.save_and_stop', kind: 'primary' },
      { value: 'stop', t: 'cancel.stop_only', kind: 'danger' },
      keep,
    ]);
  }

  language() {
    if (this.job) {
      this.paintOnce();
      this.paint();
      this.checkpoints.paint();
      this.events.paint();
      this.samples.paint();
      this.data.language();
      this.memory.show(this.events.memory());
    }
  }

  close() {
    this.closed = true;
    this.unlisten();
    this.curves.close();
    this.log.close();
  }
}

export function jobView(id, user) {
  return new JobPage(id, user);
}
