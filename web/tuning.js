// tuning.js - what of a model is trained: all of its weights, or low-rank adapters beside them (LoRA).
import { h, newId } from './dom.js';

export const TUNING = ['adapter', 'lora_rank', 'lora_alpha', 'lora_targets'];
const NEW = TUNING.slice(1); // of a new adapter; one that is there has its own
const RANK = 16;

// A select of the adapters among models, to go on from.
export function adapterSelect(models) {
  return h(
    'select',
    { id: newId('adapter') },
    h('option', { value: '', t: 'tuning.new_adapter' }),
    models
      .filter(({ adapter }) => adapter)
      .map(({ id }) => h('option', { value: id }, id)),
  );
}

// `fields` are those of TUNING, by name; they count only while LoRA is chosen. onChange('full' or 'lora') hears of
// a choice.
export function tuningChoice(fields, onChange) {
  const name = newId('tuning');
  const radio = (value, key, help) => {
    const id = newId('tuning');
    const input = h('input', { type: 'radio', id, name, value, 'aria-describedby': `${id}-help` });
    input.addEventListener('change', choose);
    return {
      input,
      node: h(
        'div',
        { class: 'option' },
        input,
        h('label', { for: id, t: key }),
        h('p', { class: 'hint', id: `${id}-help`, t: help }),
      ),
    };
  };
  const full = radio('full', 'tuning.full', 'tuning.full_help');
  const lora = radio('lora', 'tuning.lora', 'tuning.lora_help');
  const details = h(
    'div',
    { class: 'fields' },
    TUNING.map((field) => fields[field]?.node).filter(Boolean),
  );
  const node = h(
    'fieldset',
    { class: 'tuning' },
    h('legend', { t: 'tuning.title' }),
    h('div', { class: 'options' }, full.node, lora.node),
    details,
  );

  const hasAdapter = () => Boolean(fields.adapter?.input.value);

  function paint() {
    details.hidden = !lora.input.checked;
    NEW.forEach((field) => {
      if (fields[field]) {
        fields[field].node.hidden = hasAdapter();
      }
    });
  }

  function fillIn() {
    if (hasAdapter()) {
      NEW.forEach((field) => fields[field]?.set(''));
    } else if (!fields.lora_rank.input.value) {
      fields.lora_rank.set(RANK);
    }
  }

  fields.adapter?.input.addEventListener('change', () => {
    fillIn();
    paint();
    onChange('lora');
  });

  function choose() {
    if (lora.input.checked) {
      fillIn();
    } else {
      TUNING.forEach((field) => fields[field]?.set(''));
    }
    paint();
    onChange(lora.input.checked ? 'lora' : 'full');
  }

  return {
    node,
    // As the fields say now; adapters need a model to stand beside.
    show(hasModel) {
      if (!hasModel) {
        TUNING.forEach((field) => fields[field]?.set(''));
      }
      node.hidden = !hasModel;
      const chosen = Boolean(fields.lora_rank.input.value) || hasAdapter();
      lora.input.checked = chosen;
      full.input.checked = !chosen;
      paint();
    },
  };
}
