// plan.js - the live plan of a run: parameters and memory, before anything is started.
import { post } from './api.js';
import { h, setText } from './dom.js';
import { memoryBar } from './memory.js';
import { formatBytes, formatCount, t } from './strings.js';

const PAUSE_MS = 400;

function sentences(advice) {
  const list = Array.isArray(advice) ? advice : advice ? [advice] : [];
  return list
    .map((item) => (typeof item === 'string' ? item : (item.message ?? item.text ?? '')))
    .filter(Boolean);
}

// ask(request or null): show the plan of a request soon; null, or a server that can't tell, shows nothing.
// onRefused(error) hears of a refusal that names a field.
export function planPanel(onRefused) {
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
    setText(
      numbers,
      t('plan.numbers', {
        parameters: formatCount(plan.parameters),
        memory: formatBytes(plan.memory_bytes),
      }),
    );
    bar.show(plan.memory);
    advice.replaceChildren(...sentences(plan.advice).map((text) => h('li', { dir: 'auto' }, text)));
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
