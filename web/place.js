// place.js - a job's place in the queue, its devices and limits, and what its owner may change of them.
import { patch } from './api.js';
import { h, newId, setText } from './dom.js';
import { CLASSES, needText, whenText } from './queue.js';
import { formatDuration, formatInteger, t } from './strings.js';
import { ENDED } from './words.js';

const HOUR_S = 3600;

// show(job) paints it; onChanged(job) hears of a job that was changed here.
export function placePanel(isAdmin, onChanged) {
  const list = h('dl', { class: 'device-facts' });
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const classId = newId('class');
  const hoursId = newId('hours');
  const seenId = newId('seen');
  const classes = h('select', { id: classId });
  const hours = h('input', { id: hoursId, type: 'number', min: 1 / 60, step: 'any', class: 'short' });
  const seen = h(
    'select',
    { id: seenId },
    ['lab', 'private'].map((value) => h('option', { value, t: `place.${value}` })),
  );
  const field = (id, key, input) =>
    h('span', { class: 'switch' }, h('label', { for: id, t: key }), input);
  const save = h('button', { class: 'quiet', t: 'place.save' });
  const form = h(
    'form',
    { class: 'tools' },
    field(classId, 'queue.class', classes),
    field(hoursId, 'place.hours', hours),
    field(seenId, 'place.seen', seen),
    save,
  );
  const node = h('section', { class: 'card' }, h('h2', { t: 'place.title' }), list, form, problem);
  let shown = null;
  let edited = false; // hours: they are rounded, so an untouched field is no change

  const fact = (key, value) =>
    value === '' || value === null || value === undefined
      ? []
      : [h('dt', { t: key }), h('dd', { dir: 'auto' }, value)];
  const link = (to, text) => h('a', { href: to }, text);

  // What the form holds that the job has not.
  function changes() {
    const seconds = Math.round(Number(hours.value) * HOUR_S);
    const all = {
      priority: classes.value,
      time_limit_s: edited ? seconds : shown.time_limit_s,
      visibility: seen.value,
    };
    const had = {
      priority: shown.priority,
      time_limit_s: shown.time_limit_s,
      visibility: shown.private ? 'private' : 'lab',
    };
    return Object.fromEntries(Object.entries(all).filter(([key, value]) => value !== had[key]));
  }

  hours.addEventListener('input', () => {
    edited = true;
  });
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const body = changes();
    if (Object.keys(body).length === 0) {
      return;
    }
    try {
      onChanged(await patch(`/v1/jobs/${encodeURIComponent(shown.id)}`, body));
      problem.hidden = true;
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
    }
  });

  function paintFields(job) {
    classes.replaceChildren(
      ...CLASSES.filter((name) => name !== 'urgent' || isAdmin || job.priority === 'urgent').map(
        (name) => h('option', { value: name, selected: name === job.priority, t: `class.${name}` }),
      ),
    );
    edited = false;
    hours.value = String(Number((job.time_limit_s / HOUR_S).toFixed(3)));
    seen.value = job.private ? 'private' : 'lab';
  }

  return {
    node,
    show(job) {
      const before = shown;
      const waits = job.state === 'queued';
      shown = job;
      list.replaceChildren(
        ...fact('queue.class', t(`class.${job.priority ?? 'normal'}`)),
        ...(waits
          ? [
              ...fact('queue.place', job.position > 0 ? formatInteger(job.position) : ''),
              ...fact('queue.start', whenText(job.expected_start_at)),
              ...fact('queue.reason', job.reason ?? ''),
            ]
          : []),
        ...fact(
          'queue.on',
          job.device_ids?.length > 0
            ? h('span', {}, h('code', {}, job.device_ids.join(', ')), job.placement ? ` ${job.placement}` : '')
            : needText({ devices: job.devices ?? 1, device_bytes: job.device_bytes ?? 0 }),
        ),
        ...fact('place.layout', job.layout ?? ''),
        ...fact('place.limit', formatDuration(job.time_limit_s)),
        ...fact('queue.ends', job.ends_by_at ? t('queue.at_latest', { when: whenText(job.ends_by_at) }) : ''),
        ...(job.depends_on?.length > 0
          ? fact(
              'place.after',
              h(
                'span',
                {},
                job.depends_on.map((parent) =>
                  h(
                    'span',
                    {},
                    parent.job
                      ? link(`#/jobs/${encodeURIComponent(parent.job)}`, parent.job)
                      : t('queue.private'),
                    ` (${parent.kind}) `,
                  ),
                ),
              ),
            )
          : []),
        ...(job.array
          ? fact('queue.array', link(`#/arrays/${encodeURIComponent(job.array.id)}`, JSON.stringify(job.array.values ?? {})))
          : []),
        ...(job.cloned_from
          ? fact('place.cloned', link(`#/jobs/${encodeURIComponent(job.cloned_from)}`, job.cloned_from))
          : []),
      );
      form.hidden = ENDED.includes(job.state) || !(job.allowed_actions?.length > 0);
      const same = (key) => before && before[key] === job[key];
      if (!['priority', 'time_limit_s', 'private'].every(same)) {
        paintFields(job);
      }
    },
  };
}
