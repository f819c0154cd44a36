// dom.js - builds elements. Text is always text: nothing on this page takes HTML from anywhere.
import { t } from './strings.js';

// Attributes whose words depend on the language: {t: 'key'} or {t: ['key', values]} is the text of the
// element, 't-aria-label' and so on are attributes. `translate` writes them again after a switch.
const TRANSLATED = ['aria-label', 'data-label', 'label'];

function bind(node, target, value) {
  const [key, values] = Array.isArray(value) ? value : [value, undefined];
  node.setAttribute(target === '' ? 'data-t' : `data-t-${target}`, key);
  if (values) {
    node.setAttribute('data-t-values', JSON.stringify(values));
  }
}

function write(node) {
  const values = JSON.parse(node.getAttribute('data-t-values') ?? '{}');
  if (node.hasAttribute('data-t')) {
    node.textContent = t(node.getAttribute('data-t'), values);
  }
  for (const name of TRANSLATED) {
    const key = node.getAttribute(`data-t-${name}`);
    if (key) {
      node.setAttribute(name, t(key, values));
    }
  }
}

export function translate(root) {
  const selector = ['[data-t]', ...TRANSLATED.map((name) => `[data-t-${name}]`)].join(',');
  root.querySelectorAll(selector).forEach(write);
}

// h('button', {class: 'primary', t: 'form.submit', onclick: submit}, child, 'text', null)
export function h(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  let bound = false;
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (key === 't') {
      bind(node, '', value);
      bound = true;
    } else if (key.startsWith('t-')) {
      bind(node, key.slice(2), value);
      bound = true;
    } else if (key.startsWith('on')) {
      node.addEventListener(key.slice(2), value);
    } else if (key === 'value') {
      node.value = value;
    } else {
      node.setAttribute(key, value === true ? '' : String(value));
    }
  }
  if (bound) {
    write(node);
  }
  append(node, children);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    node.setAttribute(key, String(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child);
    }
  }
}

// Change the text only when it differs, so that selections and screen readers are left alone.
export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

// Give an element another translated text.
export function setString(node, key, values) {
  bind(node, '', values ? [key, values] : key);
  const text = t(key, values);
  setText(node, text);
}

let lastId = 0;

// A fresh id, to tie labels and descriptions to fields.
export function newId(stem) {
  lastId += 1;
  return `${stem}-${lastId}`;
}

// Say something to a screen reader. For changes of stage and state only, never for each step.
export function announce(text) {
  setText(document.getElementById('announcer'), text);
}

// Copy, also where the clipboard interface is absent (plain HTTP beyond loopback).
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', { class: 'visually-hidden', readonly: true, value: text });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

// A button that copies what `text()` yields and says so for a moment.
export function copyButton(key, text, label) {
  const button = h('button', { type: 'button', class: 'quiet', t: key, 't-aria-label': label });
  button.addEventListener('click', async () => {
    await copyText(text());
    setString(button, 'copy.done');
    announce(t('copy.done'));
    setTimeout(() => setString(button, key), 1500);
  });
  return button;
}
