// new.js - the form for a new run: data, a model, a few settings; the rest under Advanced.
import { get, getAll, post } from './api.js';
import { h, newId, setText } from './dom.js';
import { Field, GROUPS, PromptsField, fetchSchema } from './fields.js';
import { dropZone, fetchFiles, fileSelect } from './filepicker.js';
import { planPanel } from './plan.js';
import { PRESETS } from './presets.js';
import { previewPanel } from './preview.js';
import { reportPanel } from './report.js';
import { curlButton, requestKey } from './request.js';
import { formatBytes, formatCount, t } from './strings.js';
import { TUNING, adapterSelect, tuningChoice } from './tuning.js';

const MAIN = [
  'name',
  'n_epochs',
  'max_steps',
  'sequence_length',
  'global_batch_size',
  'learning_rate',
];
const OWN = ['training_file', 'model', 'config']; // fields with a place of their own
const PREVIEWED = [
  'training_file',
  'model',
  'config',
  'tokenizer',
  'tokenizer_vocab_size',
  'method',
  'chat_template',
  'train_on_prompt',
  'on_problem',
  'sequence_length',
]; // what examples look like as tokens depends on these
const PRESET = 'preset ';
const CUSTOM = 'custom';
// What suits a model that has learned already.
const TUNED = { max_steps: '', n_epochs: 3, sequence_length: '', global_batch_size: 8 };
const RATE = { full: 5e-5, lora: 2e-4 };
// How long to train, and in which steps, is said once.
const RIVAL = {
  max_steps: 'n_epochs',
  n_epochs: 'max_steps',
  global_batch_size: 'batch_size_schedule',
  batch_size_schedule: 'global_batch_size',
};

function modelLabel(model) {
  const facts = [
    model.family,
    model.parameters > 0 && formatCount(model.parameters),
    model.bytes > 0 && formatBytes(model.bytes),
  ].filter(Boolean);
  return facts.length > 0 ? `${model.id} (${facts.join(', ')})` : model.id;
}

function modelSelect(models) {
  return h(
    'select',
    { id: newId('model') },
    h(
      'optgroup',
      { 't-label': 'form.new_model' },
      PRESETS.map(({ id }) => h('option', { value: PRESET + id, t: `preset.${id}` })),
      h('option', { value: CUSTOM, t: 'form.custom_config' }),
    ),
    models.length > 0 &&
      h(
        'optgroup',
        { 't-label': 'form.models' },
        models.map((model) => h('option', { value: model.id }, modelLabel(model))),
      ),
  );
}

class NewRun {
  // like: the id of a job whose settings are taken; model, adapter: ids to start from.
  constructor({ like, model, adapter }) {
    this.like = like;
    this.from = { model, adapter };
    this.fields = {};
    this.suggested = {}; // what the form has filled in by itself
    this.key = requestKey();
    this.problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    this.plan = planPanel(
      (error) => this.fields[error.param]?.setProblem(error.message),
      (name, value) => {
        this.fields[name].set(value);
        this.changed();
      },
    );
    this.report = reportPanel((reason, action) => this.treat(reason, action));
    this.preview = previewPanel();
    this.form = h('form', { class: 'run-form', novalidate: true });
    this.node = h(
      'div',
      {},
      h('div', { class: 'page-head' }, h('h1', { t: 'form.title', tabindex: -1 })),
      this.problem,
      h('div', { class: 'with-aside' }, this.form, this.plan.node),
    );
    document.title = `${t('form.title')} – Hone`;
    this.build();
  }

  async build() {
    try {
      const [schema, lists, models, before] = await Promise.all([
        fetchSchema(),
        fetchFiles(),
        getAll('/v1/models').catch(() => []),
        this.like ? get(`/v1/jobs/${encodeURIComponent(this.like)}`) : null,
      ]);
      this.schema = schema;
      this.layOut(lists, models);
      if (before) {
        this.fill(before.request ?? {});
        if (before.error?.param) {
          this.showProblem(before.error.param, before.error.message);
        }
      } else {
        this.applyPreset(PRESETS[0]);
        this.startFrom(this.from);
      }
      this.showTuning();
      this.changed();
    } catch (error) {
      this.complain(error.message);
    }
  }

  layOut({ files, machine }, models) {
    const { schema } = this;
    const select = fileSelect(files, machine, 'upload.choose');
    const validation = fileSelect(files, machine, 'upload.part_of_training');
    this.drop = dropZone((file) => {
      for (const choice of [select, validation]) {
        choice.append(
          h('option', { value: file.id }, `${file.filename} (${formatBytes(file.bytes)})`),
        );
      }
      select.value = file.id;
      this.fields.training_file.setProblem('');
      this.changed();
    });
    const make = (name, input) => {
      const kind = name === 'sample_prompts' ? PromptsField : Field;
      this.fields[name] = new kind(name, schema[name] ?? {}, input);
      return this.fields[name].node;
    };
    const training = make('training_file', select);
    const whole = models.filter(({ adapter }) => !adapter);
    const model = make('model', modelSelect(whole));
    const config = make('config');
    config.hidden = true;
    this.fields.model.input.addEventListener('change', () => {
      this.modelChanged();
      this.changed();
    });
    if ('lora_rank' in schema) {
      TUNING.filter((name) => name in schema).forEach((name) =>
        make(name, name === 'adapter' ? adapterSelect(models) : undefined),
      );
      this.tuning = tuningChoice(this.fields, (kind) => {
        this.suggest({ learning_rate: RATE[kind] });
        this.changed();
      });
    }
    const main = MAIN.filter((name) => name in schema).map((name) => make(name));
    const placed = [...OWN, ...MAIN, ...TUNING];
    const groups = GROUPS.map(([group, names]) => [
      group,
      names.filter((name) => name in schema && !placed.includes(name)),
    ]);
    const known = [...placed, ...groups.flatMap(([, names]) => names)];
    groups.push(['other', Object.keys(schema).filter((name) => !known.includes(name))]);
    this.advanced = h(
      'details',
      { class: 'card' },
      h('summary', { t: 'form.advanced' }),
      groups
        .filter(([, names]) => names.length > 0)
        .map(([group, names]) =>
          h(
            'fieldset',
            {},
            h('legend', { t: `group.${group}` }),
            h(
              'div',
              { class: 'fields' },
              names.map((name) => make(name, name === 'validation_file' ? validation : undefined)),
            ),
          ),
        ),
    );
    this.submit = h('button', { class: 'primary', t: 'form.submit' });
    this.form.append(
      h(
        'section',
        { class: 'card' },
        h('h2', { t: 'form.text' }),
        this.drop.node,
        training,
        this.report.node,
      ),
      h(
        'section',
        { class: 'card' },
        h('h2', { t: 'form.model' }),
        model,
        config,
        this.tuning?.node,
      ),
      this.preview.node,
      h(
        'section',
        { class: 'card' },
        h('h2', { t: 'form.settings' }),
        h('div', { class: 'fields' }, main),
      ),
      this.advanced,
      h(
        'div',
        { class: 'tools' },
        this.submit,
        curlButton(() => this.collect().request),
      ),
    );
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    this.form.addEventListener('input', ({ target }) => {
      if (RIVAL[target.name] && target.value !== '') {
        this.fields[RIVAL[target.name]]?.set('');
      }
      this.key = requestKey();
      this.changed();
    });
  }

  startFrom({ model, adapter }) {
    if (model) {
      this.fields.model.set(model);
      this.fields.adapter?.set(adapter);
      this.modelChanged();
      if (adapter) {
        this.suggest({ learning_rate: RATE.lora });
      }
    }
  }

  applyPreset(preset) {
    this.fields.model.set(PRESET + preset.id);
    this.suggest({ n_epochs: '', ...preset.fields });
  }

  // Fill in what suits a choice, where nothing else was written.
  suggest(values) {
    for (const [name, value] of Object.entries(values)) {
      const field = this.fields[name];
      const rival = value !== '' && this.fields[RIVAL[name]]?.input.value;
      if (field && !rival && ['', this.suggested[name] ?? ''].includes(field.input.value)) {
        field.set(value);
        this.suggested[name] = String(value);
      }
    }
  }

  modelChanged() {
    const choice = this.fields.model.input.value;
    const preset = PRESETS.find(({ id }) => PRESET + id === choice);
    this.fields.config.node.hidden = choice !== CUSTOM;
    if (preset) {
      this.applyPreset(preset);
    } else if (choice === CUSTOM) {
      if (!this.fields.config.input.value) {
        this.fields.config.set(PRESETS[0].config);
      }
    } else {
      // The model has a tokenizer and a context length of its own.
      this.fields.tokenizer_vocab_size?.set('');
      const kind = this.fields.lora_rank?.input.value ? 'lora' : 'full';
      this.suggest({ ...TUNED, learning_rate: RATE[kind] });
    }
    this.showTuning();
  }

  showTuning() {
    const choice = this.fields.model.input.value;
    this.tuning?.show(!choice.startsWith(PRESET) && choice !== CUSTOM);
  }

  // What to do with one kind of fault: an entry of on_problem.
  treat(reason, action) {
    let policy = {};
    try {
      policy = this.fields.on_problem.value() ?? {};
    } catch {
      // What stood there was no policy.
    }
    this.fields.on_problem.set({ ...policy, [reason]: action });
    this.changed();
  }

  // The settings of an earlier request.
  fill(request) {
    for (const [name, value] of Object.entries(request)) {
      if (!OWN.includes(name)) {
        this.fields[name]?.set(value);
      }
    }
    this.fields.training_file.set(request.training_file);
    if (request.config) {
      this.fields.model.set(CUSTOM);
      this.fields.config.set(request.config);
      this.fields.config.node.hidden = false;
    } else {
      this.fields.model.set(request.model);
    }
  }

  // {request, problems: [[field, sentence]]}
  collect() {
    const request = {};
    const problems = [];
    const choice = this.fields.model.input.value;
    const preset = PRESETS.find(({ id }) => PRESET + id === choice);
    for (const [name, field] of Object.entries(this.fields)) {
      try {
        const value = name === 'model' || name === 'config' ? undefined : field.value();
        if (value !== undefined) {
          request[name] = value;
        }
      } catch (error) {
        problems.push([name, error.message]);
      }
    }
    try {
      if (preset) {
        request.config = preset.config;
      } else if (choice === CUSTOM) {
        request.config = this.fields.config.value() ?? {};
      } else {
        request.model = choice;
      }
    } catch (error) {
      problems.push(['config', error.message]);
    }
    if (!request.training_file) {
      problems.push(['training_file', t('form.no_text')]);
    }
    return { request, problems };
  }

  changed() {
    const { request, problems } = this.collect();
    this.plan.ask(problems.length === 0 ? request : null);
    this.report.ask(request);
    const asked = Object.entries(request).filter(([name]) => PREVIEWED.includes(name));
    this.preview.ask(request.training_file ? Object.fromEntries(asked) : null);
  }

  complain(sentence) {
    setText(this.problem, sentence);
    this.problem.hidden = !sentence;
  }

  // Show a sentence at its field, wherever that is, and go there.
  showProblem(name, sentence) {
    const field = this.fields[name];
    if (!field || field.node.hidden) {
      this.complain(sentence);
      this.problem.scrollIntoView({ block: 'center' });
      return;
    }
    field.setProblem(sentence);
    if (this.advanced.contains(field.node)) {
      this.advanced.open = true;
    }
    field.input.focus();
  }

  async send() {
    this.complain('');
    const { request, problems } = this.collect();
    if (problems.length > 0) {
      [...problems].reverse().forEach(([name, sentence]) => this.showProblem(name, sentence));
      return;
    }
    this.submit.disabled = true;
    try {
      const job = await post('/v1/jobs', request, { 'Idempotency-Key': this.key });
      location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
    } catch (error) {
      // After a refusal the next request is another one; after silence it may be the same, sent again.
      if (error.status > 0) {
        this.key = requestKey();
      }
      this.showProblem(error.param, error.message);
    } finally {
      this.submit.disabled = false;
    }
  }

  language() {
    Object.values(this.fields).forEach((field) => field.language());
    this.plan.language();
    this.report.language();
    this.preview.language();
    document.title = `${t('form.title')} – Hone`;
  }

  close() {
    this.plan.close();
    this.report.close();
    this.preview.close();
    this.drop?.stop();
  }
}

export function newView(from) {
  return new NewRun(from);
}
