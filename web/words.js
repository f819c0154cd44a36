// words.js - how a job is told in words: state, stage, progress. The words come from server/states.def and
// trainer/stages.def; strings state.* and stage.* translate them.
import { h, setText } from './dom.js';
import { formatBytes, formatDuration, formatInteger, formatPercent, has, t } from './strings.js';

export const STAGES = [
  'waiting',
  'launching',
  'validating',
  'tokenizing',
  'loading',
  'training',
  'evaluating',
  'saving',
];
export const ENDED = ['succeeded', 'failed', 'cancelled'];

export const stateWord = (state) => (has(`state.${state}`) ? t(`state.${state}`) : String(state));
export const stageWord = (stage) => (has(`stage.${stage}`) ? t(`stage.${stage}`) : String(stage));

// What a `stage` or `progress` event changes in its job.
export function stageFields({ stage, done = 0, total = 0, unit = '' }) {
  return { stage, stage_done: done, stage_total: total, stage_unit: unit };
}

export function jobName(job) {
  return job.name || job.id;
}

export function ownerName(job) {
  return typeof job.owner === 'string' ? job.owner : (job.owner?.name ?? '');
}

// The state as a shape, a colour and a word: never a colour alone.
export function badge() {
  const shape = h('span', { class: 'shape', 'aria-hidden': 'true' });
  const word = h('span');
  const node = h('span', { class: 'badge' }, shape, word);
  return {
    node,
    show(state) {
      node.dataset.state = state;
      setText(word, stateWord(state));
    },
  };
}

// How far a job is, 0 to 1, or null: of its steps once it trains, else of its present stage.
export function progressOf(job) {
  if (job.state === 'succeeded') {
    return 1;
  }
  if (
    job.total_steps > 0 &&
    (job.step > 0 || STAGES.indexOf(job.stage) >= STAGES.indexOf('training'))
  ) {
    return Math.min(1, (job.step ?? 0) / job.total_steps);
  }
  return stageProgress(job);
}

function stageProgress(job) {
  return job.stage_total > 0 ? Math.min(1, (job.stage_done ?? 0) / job.stage_total) : null;
}

function amount(value, unit) {
  return unit === 'bytes' ? formatBytes(value) : formatInteger(value);
}

// One line: what is going on, how far, how long still.
export function progressText(job) {
  if (ENDED.includes(job.state) || job.state === 'paused') {
    return job.total_steps > 0
      ? t('progress.steps', {
          step: formatInteger(job.step ?? 0),
          total: formatInteger(job.total_steps),
        })
      : '';
  }
  const parts = [];
  const training = STAGES.indexOf(job.stage) >= STAGES.indexOf('training');
  if (training && job.total_steps > 0) {
    parts.push(
      t('progress.steps', {
        step: formatInteger(job.step ?? 0),
        total: formatInteger(job.total_steps),
      }),
    );
  }
  const part = stageProgress(job);
  if (job.stage && job.stage !== 'training' && part !== null) {
    const { stage_done: done, stage_total: total, stage_unit: unit } = job;
    const of = unit
      ? t('progress.of', { done: amount(done, unit), total: amount(total, unit) })
      : '';
    parts.push([stageWord(job.stage), formatPercent(part), of].filter(Boolean).join(' '));
  } else if (job.stage && job.stage !== 'training') {
    parts.push(stageWord(job.stage));
  }
  if (job.state === 'queued' && job.reason) {
    parts.push(job.reason);
  }
  if (training && job.eta_s > 0) {
    parts.push(t('progress.left', { time: formatDuration(job.eta_s) }));
  }
  return parts.join(' · ');
}

// A progress bar that shows `part` (null: not known, so no bar moves) under a name.
export function progressBar(label) {
  const node = h('progress', { max: 1, 't-aria-label': label });
  return {
    node,
    show(part) {
      node.hidden = part === null;
      if (part !== null && node.value !== part) {
        node.value = part;
      }
    },
  };
}
