// jobdata.js - what a run found in its files: used, left out and why.
import { h } from './dom.js';
import { reportBody } from './report.js';

// show({training: report, validation: report}), each as the run told it.
export function jobData() {
  const holder = h('div');
  const node = h(
    'details',
    { class: 'card', hidden: true },
    h('summary', { t: 'jobdata.title' }),
    holder,
  );
  let shown = {};

  function paint() {
    node.hidden = Object.keys(shown).length === 0;
    // Validation examples held out of the training file have its report: it is shown once.
    const { training, validation } = shown;
    const same = JSON.stringify(training) === JSON.stringify(validation);
    const sets = Object.entries(same ? { training } : shown);
    holder.replaceChildren(
      ...sets.flatMap(([set, report]) => [
        sets.length > 1 && h('h3', { class: 'set', t: `set.${set}` }),
        ...reportBody(report),
      ]).filter(Boolean),
    );
  }

  return {
    node,
    show(reports) {
      if (JSON.stringify(reports) !== JSON.stringify(shown)) {
        shown = reports;
        paint();
      }
    },
    language: paint,
  };
}
