// source.test.mjs - what can be told of the page from its sources: it knows the tables of the server, and
// never takes HTML or code from text.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { ROOT, rows } from '../lib/defs.mjs';
import { GROUPS } from '../../web/fields.js';
import { PRESETS } from '../../web/presets.js';
import { EVENTS } from '../../web/stream.js';
import { ENDED, STAGES } from '../../web/words.js';

const read = (name) => readFileSync(`${ROOT}web/${name}`, 'utf8');
const files = readdirSync(`${ROOT}web`);
const sources = files.filter((name) => name.endsWith('.js')).map((name) => [name, read(name)]);

const fields = rows('trainer/spec.def', 'TEXT', 'INTEGER', 'NUMBER', 'CHOICE', 'OBJECT').map(
  ([name]) => name,
);
const states = rows('server/states.def', 'STATE').map(([, word, final]) => ({
  word,
  final: final === 'true',
}));
const stages = rows('trainer/stages.def', 'STAGE').map(([, word]) => word);
const events = rows('trainer/protocol.def', 'EVENT').map(([, word]) => word);

test('the page knows every event, stage and final state of the tables', () => {
  assert.deepEqual(EVENTS, [...events, 'job', 'reset']);
  assert.deepEqual(STAGES, stages);
  assert.deepEqual(
    ENDED,
    states.filter(({ final }) => final).map(({ word }) => word),
  );
});

test('every field of a request has a place in the form, once', () => {
  const grouped = GROUPS.flatMap(([, names]) => names);
  assert.equal(new Set(grouped).size, grouped.length);
  assert.deepEqual(
    grouped.filter((name) => !fields.includes(name)),
    [],
  );
});

test('a preset sets fields that exist', () => {
  for (const { id, fields: preset } of PRESETS) {
    assert.deepEqual(
      Object.keys(preset).filter((name) => !fields.includes(name)),
      [],
      id,
    );
  }
});

test('nothing on the page takes HTML or code from text', () => {
  const forbidden =
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\(|new Function|setTimeout\('/;
  for (const [name, text] of sources) {
    assert.doesNotMatch(text, forbidden, name);
  }
});

test('the page itself has no inline script or style, and asks no other host', () => {
  const html = read('index.html');
  assert.doesNotMatch(html, /<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)/);
  for (const name of files.filter((file) => /\.(js|css|html|svg)$/.test(file))) {
    const text = read(name)
      .replace('http://www.w3.org/2000/svg', '')
      .replace('http://www.w3.org/2000/svg', '');
    assert.doesNotMatch(text, /https?:\/\//, name);
  }
});
