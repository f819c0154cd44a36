// plan.js - the live plan of a run: parameters and memory, before anything is started.
import { post } from './api.js';
import { h, setText } from './dom.js';
import { memoryBar } from './memory.js';
import { needText } from './queue.js';
import { formatBytes, formatCount, has, t } from './strings.js';

const PAUSE_MS = 400;
const MOST_ADVICE = 3;

const fieldWord = (name) => (has(`field.${name}`) ? t(`field.${name}`) : name);

// ask(request or null): show the plan of a request soon; null, or a server that can't tell, shows nothing.
// onRefused(error) hears of a refusal that names a field, onChange(field, value) of a change that would make
// the run fit, when it is chosen.
export function planPanel(onRefused, onChange) {
  const verdict = h('p', { class: 'verdict', role: 'status' });
  const numbers = h('p');
  const bar = memoryBar();
  const advice = h('ul', { class: 'advice' });
  const node = h(
    'aside',
    { class: 'card plan', hidden: true, 'aria-labelledby': 'plan-title' },
    h('h2', { id: 'plan-title', t: 'plan.title' }),
    verdict,
    numbers,
    bar.node,
    advice,
  );
  let timer = 0;
  let turn = 0;
  let last = null;

  function show(plan) {
    last = plan;
    node.hidden = !plan;
    if (!plan) {
      return;
    }
    verdict.dataset.fits = String(plan.fits !== false);
    setText(verdict, plan.fits === false ? t('plan.does_not_fit') : t('plan.fits'));
    const key = plan.available_bytes > 0 ? 'plan.of_machine' : 'plan.numbers';
    const wide = plan.devices > 1;
    const memory = wide ? needText(plan) : formatBytes(plan.memory_bytes);
    const machine = formatBytes(plan.available_bytes);
    const text = t(key, { parameters: formatCount(plan.parameters), memory, machine });
    setText(numbers, plan.layout ? `${text} (${plan.layout})` : text);
    const each = plan.available_bytes / (plan.devices || 1);
    bar.show(plan.memory, plan.device_bytes * 10 > each ? each : 0);
    advice.replaceChildren(...(plan.advice ?? []).slice(0, MOST_ADVICE).map(change));
    advice.hidden = advice.childElementCount === 0;
  }

  function change({ field, value, memory_bytes: bytes }) {
    const text = t('plan.change', { field: fieldWord(field), value, memory: formatBytes(bytes) });
    return h(
      'li',
      {},
      h('button', { type: 'button', onclick: () => onChange(field, value) }, text),
    );
  }

  async function fetchPlan(request) {
    turn += 1;
    const mine = turn;
    try {
      const plan = await post('/v1/plan', request);
      if (mine === turn) {
        show(plan);
      }
    } catch (error) {
      if (mine === turn) {
        show(null);
        if (error.param) {
          onRefused(error);
        }
      }
    }
  }

  return {
    node,
    ask(request) {
      clearTimeout(timer);
      if (request) {
        timer = setTimeout(() => fetchPlan(request), PAUSE_MS);
      } else {
        turn += 1;
        show(null);
      }
    },
    language: () => show(last),
    close() {
      clearTimeout(timer);
      turn += 1;
    },
  };
}
