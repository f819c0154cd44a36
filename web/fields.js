// fields.js - form fields made from the schema of a job request (trainer/spec.def, by /openapi.json).
import { get } from './api.js';
import { h, newId, setText } from './dom.js';
import { formatReal, has, t } from './strings.js';

// Under Advanced, in these groups; a field that no group names comes last, so none is ever missing.
export const GROUPS = [
  [
    'text',
    [
      'validation_file',
      'validation_fraction',
      'tokenizer',
      'tokenizer_vocab_size',
      'data_workers',
    ],
  ],
  ['examples', ['method', 'chat_template', 'packing', 'train_on_prompt', 'on_problem']],
  [
    'rate',
    [
      'batch_size_schedule',
      'min_learning_rate',
      'lr_schedule',
      'warmup_steps',
      'wsd_decay_steps',
      'wsd_decay_style',
    ],
  ],
  ['optimizer', ['weight_decay', 'adam_beta1', 'adam_beta2', 'adam_eps', 'clip_grad', 'dropout']],
  [
    'adapters',
    [
      'lora_rank',
      'lora_alpha',
      'lora_dropout',
      'lora_targets',
      'lora_rslora',
      'lora_also',
      'adapter',
      'freeze',
    ],
  ],
  [
    'machine',
    [
      'precision',
      'loss_scale',
      'initial_loss_scale',
      'min_loss_scale',
      'loss_scale_window',
      'hysteresis',
      'micro_batch_size',
      'moe_aux_loss_coeff',
      'moe_aux_loss_scaling',
      'moe_z_loss_coeff',
      'recompute',
      'recompute_modules',
      'recompute_method',
      'recompute_num_layers',
      'threads',
      'seed',
    ],
  ],
  [
    'parallel',
    [
      'devices',
      'tensor_model_parallel_size',
      'sequence_parallel',
      'expert_model_parallel_size',
      'expert_tensor_parallel_size',
      'context_parallel_size',
      'pipeline_model_parallel_size',
      'layers_per_stage',
      'num_virtual_stages_per_pipeline_rank',
      'microbatch_group_size_per_virtual_pipeline_stage',
      'use_distributed_optimizer',
      'overlap_grad_reduce',
    ],
  ],
  [
    'queue',
    [
      'priority',
      'time_limit_s',
      'at_time_limit',
      'preemptible',
      'begin_at',
      'depends_on',
      'visibility',
    ],
  ],
  [
    'saving',
    [
      'log_interval',
      'eval_interval',
      'save_interval',
      'keep_checkpoints',
      'async_save',
      'early_stopping_patience',
      'early_stopping_min_delta',
      'sample_prompts',
    ],
  ],
];

const LINE_MOST = 1024; // a longer text may have several lines

let schema = null;

// {field: {type, default, minimum, maximum, enum, description}} in the order of spec.def.
export async function fetchSchema() {
  if (!schema) {
    const document = await get('/openapi.json');
    const body = document.paths['/v1/jobs'].post.requestBody.content['application/json'].schema;
    const named = body.$ref
      ?.split('/')
      .slice(1)
      .reduce((part, name) => part[name], document);
    schema = (named ?? body).properties;
  }
  return schema;
}

// Whether a number stands for "decided by Hone": it lies below what may be asked for.
export const isAutomatic = (row, value) => typeof value === 'number' && value < row?.minimum;

const typeOf = (row) =>
  Array.isArray(row.type) ? row.type.find((type) => type !== 'null') : row.type;

// What an empty field stands for: the default, or "decided by Hone" where the default is out of range.
function presetText(row) {
  if (row.default === undefined || row.default === null || row.default === '') {
    return '';
  }
  if (isAutomatic(row, row.default)) {
    return t('form.auto');
  }
  return typeof row.default === 'number' ? formatReal(row.default) : String(row.default);
}

function makeInput(row, id) {
  const type = typeOf(row);
  if (row.enum) {
    const first = h('option', {
      value: '',
      t: ['form.default', { value: String(row.default ?? '') }],
    });
    return h(
      'select',
      { id },
      first,
      row.enum.map((word) => h('option', { value: word }, word)),
    );
  }
  if (type === 'integer' || type === 'number') {
    return h('input', {
      id,
      type: 'number',
      step: type === 'integer' ? '1' : 'any',
      min: row.minimum,
      max: row.maximum,
      inputmode: type === 'integer' ? 'numeric' : 'decimal',
    });
  }
  if (type === 'object') {
    return h('textarea', { id, rows: 6, spellcheck: 'false', class: 'code' });
  }
  if (row.maxLength > LINE_MOST) {
    return h('textarea', {
      id,
      rows: 2,
      maxlength: row.maxLength,
      spellcheck: 'false',
      class: 'code',
    });
  }
  return h('input', {
    id,
    type: 'text',
    maxlength: row.maxLength,
    autocomplete: 'off',
    spellcheck: 'false',
  });
}

// One labelled field. `input` may be given (a select of files); else it is made from the schema's row.
export class Field {
  constructor(name, row, input) {
    this.name = name;
    this.row = row;
    this.type = typeOf(row);
    this.id = input?.id || newId('field');
    this.input = input ?? makeInput(row, this.id);
    this.input.id = this.id;
    this.input.setAttribute('name', name);
    this.problem = h('p', { class: 'problem', id: `${this.id}-problem`, hidden: true });
    this.help = h('p', { class: 'hint', id: `${this.id}-help` });
    this.input.setAttribute('aria-describedby', `${this.id}-help ${this.id}-problem`);
    this.label = h('label', { for: this.id });
    this.node = h(
      'div',
      { class: 'field', 'data-field': name },
      this.label,
      this.input,
      this.problem,
      this.help,
    );
    this.input.addEventListener('input', () => this.setProblem(''));
    this.language();
  }

  language() {
    const { name, row } = this;
    setText(this.label, has(`field.${name}`) ? t(`field.${name}`) : name);
    setText(this.help, has(`help.${name}`) ? t(`help.${name}`) : (row.description ?? ''));
    if (this.input.localName === 'input') {
      this.input.placeholder = presetText(row);
    }
  }

  setProblem(text) {
    setText(this.problem, text);
    this.problem.hidden = text === '';
    if (text) {
      this.input.setAttribute('aria-invalid', 'true');
    } else {
      this.input.removeAttribute('aria-invalid');
    }
  }

  // The value for a request, undefined when empty. Throws a sentence when it can't be one.
  value() {
    if (this.input.validity?.badInput) {
      throw new Error(t('form.not_a_number'));
    }
    const text = this.input.value.trim();
    if (text === '') {
      return undefined;
    }
    if (this.type === 'object') {
      return parseObject(text);
    }
    if (this.type !== 'integer' && this.type !== 'number') {
      // Where there are lines, space at the ends may matter.
      return this.input.localName === 'textarea' ? this.input.value : text;
    }
    const number = Number(text);
    const { minimum: low, maximum: high } = this.row;
    if ((low !== undefined && number < low) || (high !== undefined && number > high)) {
      throw new Error(t('form.out_of_range', { low: formatReal(low), high: formatReal(high) }));
    }
    if (this.type === 'integer' && !Number.isInteger(number)) {
      throw new Error(t('form.not_whole'));
    }
    return number;
  }

  set(value) {
    const text =
      value === undefined || value === null
        ? ''
        : typeof value === 'object'
          ? JSON.stringify(value, null, 2)
          : String(value);
    if (
      this.input.localName === 'select' &&
      text &&
      ![...this.input.options].some((option) => option.value === text)
    ) {
      this.input.append(h('option', { value: text }, text));
    }
    this.input.value = text;
    this.setProblem('');
  }
}

// Prompts: one a line, or the whole object where it says more than that.
export class PromptsField extends Field {
  value() {
    const text = this.input.value.trim();
    if (text === '' || text.startsWith('{')) {
      return super.value();
    }
    const prompts = text.split('\n').map((line) => line.trim());
    return { prompts: prompts.filter(Boolean) };
  }

  set(value) {
    const { prompts, ...more } = value || {};
    const isPlain =
      Array.isArray(prompts) &&
      Object.keys(more).length === 0 &&
      prompts.every((one) => typeof one === 'string' && one.trim() === one && !/^\{|\n/.test(one));
    super.set(isPlain ? prompts.join('\n') : value);
  }
}

function parseObject(text) {
  let value = null;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(t('form.not_json', { message: error.message }));
  }
  if (value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new Error(t('form.not_an_object'));
  }
  return value;
}
