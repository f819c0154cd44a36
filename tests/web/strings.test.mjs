// strings.test.mjs - both languages have the strings that the page and the tables of the server need.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT, rows } from '../lib/defs.mjs';
import { GROUPS } from '../../web/fields.js';
import { PRESETS } from '../../web/presets.js';

const read = (name) => readFileSync(`${ROOT}web/${name}`, 'utf8');
const files = readdirSync(`${ROOT}web`);
const sources = files.filter((name) => name.endsWith('.js')).map((name) => [name, read(name)]);
const strings = { en: JSON.parse(read('en.json')), zh: JSON.parse(read('zh.json')) };

const fields = rows('trainer/spec.def', 'TEXT', 'INTEGER', 'NUMBER', 'CHOICE', 'OBJECT').map(
  ([name]) => name,
);
const states = rows('server/states.def', 'STATE').map(([, word]) => word);
const stages = rows('trainer/stages.def', 'STAGE').map(([, word]) => word);
const events = rows('trainer/protocol.def', 'EVENT').map(([, word]) => word);
// Errors that a run can end with; the others are about one HTTP request and come with their message.
const ABOUT_REQUESTS = [400, 401, 403, 405, 415, 416, 417, 421, 429, 501, 505];
const errors = rows('trainer/base/err.def', 'ERR')
  .filter(
    ([, status, , word]) =>
      word === 'invalid_file_format' || !ABOUT_REQUESTS.includes(Number(status)),
  )
  .map(([, , , word]) => word);
const reasons = rows('trainer/data/reasons.def', 'REASON').map(([name]) => name);
const regions = rows('trainer/regions.def', 'REGION').map(([, word]) => word);

// Keys that the page puts together while it runs: each table's words need a string each.
const made = [
  ...states.map((word) => `state.${word}`),
  ...stages.map((word) => `stage.${word}`),
  ...[...regions, 'constants', 'exchange', 'reader'].map((word) => `region.${word}`),
  ...errors.flatMap((word) => [`error.${word}`, `advice.${word}`]),
  ...fields.flatMap((name) => [`field.${name}`, `help.${name}`]),
  ...events
    .filter((word) => !['metrics', 'progress'].includes(word))
    .map((word) => `event.${word}`),
  ...PRESETS.map(({ id }) => `preset.${id}`),
  ...[...GROUPS.map(([group]) => group), 'other'].map((group) => `group.${group}`),
  ...reasons.map((name) => `reason.${name}`),
  ...['accept', 'skip', 'refuse'].flatMap((word) => [`fault.${word}`, `fault.to_${word}`]),
  ...['text', 'chat', 'completion', 'preference'].map((word) => `kind.${word}`),
  ...['jsonl', 'json'].map((word) => `format.${word}`),
  ...['user', 'assistant', 'text'].map((role) => `talk.role_${role}`),
  ...['chat', 'text'].map((mode) => `talk.mode_${mode}`),
  ...['temperature', 'top_p', 'max_tokens', 'seed'].flatMap((name) => [
    `talk.${name}`,
    `talk.${name}_help`,
  ]),
  ...['urgent', 'normal', 'low', 'idle'].map((word) => `class.${word}`),
  ...['free', 'leased', 'busy', 'quarantined', 'lost', 'unusable'].map((word) => `device.${word}`),
  ...['X', 'PIX', 'PXB', 'PHB', 'NODE', 'SYS', 'NV', 'unknown'].map((word) => `link.${word}`),
  ...['lab', 'private'].map((word) => `place.${word}`),
  ...['probed', 'file'].map((word) => `machine.source_${word}`),
  ...['utilization', 'temperature', 'power', 'ecc', 'cores', 'node', 'pcie', 'capability', 'mig'].map(
    (word) => `machine.${word}`,
  ),
  ...['processor', 'core_count', 'main_memory', 'channels', 'memory_ecc', 'psu'].map(
    (word) => `machine.${word}`,
  ),
  ...['first', 'up', 'down', 'pause', 'cancel'].map((verb) => `queue.${verb}_label`),
  ...['first', 'up', 'down'].map((verb) => `queue.${verb}`),
  'set.training',
  'set.validation',
];

const groups = new Set(Object.keys(strings.en).map((key) => key.split('.')[0]));
const literal = /'([a-z]+)\.([a-z0-9_]+)'/g;
const used = new Set(
  sources.flatMap(([, text]) =>
    [...text.matchAll(literal)]
      .filter(
        ([, group, rest]) =>
          groups.has(group) && !['js', 'json', 'css', 'txt', 'svg'].includes(rest),
      )
      .map(([, group, rest]) => `${group}.${rest}`),
  ),
);

test('the tables were read', () => {
  for (const table of [fields, states, stages, events, errors, reasons, regions]) {
    assert.ok(table.length >= 8, JSON.stringify(table));
  }
});

test('both languages have the same keys, in the same order', () => {
  assert.deepEqual(Object.keys(strings.zh), Object.keys(strings.en));
});

test('no key that the page uses is missing', () => {
  const missing = [...used, ...made].filter((key) => !(key in strings.en));
  assert.deepEqual(missing, []);
});

test('no key is unused', () => {
  const unused = Object.keys(strings.en).filter((key) => !used.has(key) && !made.includes(key));
  assert.deepEqual(unused, []);
});

test('a string has the same values to fill in in both languages, and is not empty', () => {
  const values = (text) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name).sort();
  for (const [key, text] of Object.entries(strings.en)) {
    assert.ok(text.trim() && strings.zh[key].trim(), key);
    assert.deepEqual(values(strings.zh[key]), values(text), key);
  }
});

test('Chinese strings are Chinese, but for names of things', () => {
  const names = [
    'checkpoints.sha256',
    'field.config',
    'field.adam_beta1',
    'field.adam_beta2',
    'field.adam_eps',
    'field.dropout',
    'progress.of',
    'queue.need',
    'queue.of',
    'machine.ecc',
    'machine.pcie',
    'machine.mig',
  ];
  const foreign = Object.entries(strings.zh).filter(
    ([key, text]) => !/\p{Script=Han}/u.test(text) && !names.includes(key),
  );
  assert.deepEqual(foreign, []);
});
