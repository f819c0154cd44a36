// strings.js - the words of the page in the reader's language, and how numbers are written.
//
// All strings lie in LANGUAGE.json. A string may hold {name} where a value goes.

export const LANGUAGES = { en: 'English', zh: '中文' };
const STORED = 'hone.language';

let current = 'en';
let strings = {};

export function language() {
  return current;
}

// What was chosen before, else the first of the browser's languages that exists here.
export function preferredLanguage() {
  let stored = null;
  try {
    stored = localStorage.getItem(STORED);
  } catch {
    // Storage may be forbidden; the choice then lasts as long as the page.
  }
  const wanted = [stored, ...navigator.languages].filter(Boolean);
  return wanted.map((tag) => tag.slice(0, 2).toLowerCase()).find((tag) => tag in LANGUAGES) ?? 'en';
}

export async function loadLanguage(tag) {
  const reply = await fetch(`${tag}.json`);
  strings = await reply.json();
  current = tag;
  document.documentElement.lang = tag === 'zh' ? 'zh-CN' : tag;
}

export function rememberLanguage(tag) {
  try {
    localStorage.setItem(STORED, tag);
  } catch {
    // As above.
  }
}

export function has(key) {
  return Object.hasOwn(strings, key);
}

// The string of a key with its values filled in. An unknown key shows itself, which tests find.
export function t(key, values = {}) {
  const text = has(key) ? strings[key] : key;
  return text.replace(/\{(\w+)\}/g, (whole, name) =>
    name in values ? String(values[name]) : whole,
  );
}

const ABSENT = '–';
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

export function formatInteger(value) {
  return isNumber(value) ? Math.round(value).toLocaleString(current) : ABSENT;
}

// Four digits after the point where a loss usually lies, fewer digits for large values.
export function formatLoss(value) {
  if (!isNumber(value)) {
    return ABSENT;
  }
  return Math.abs(value) < 100 ? value.toFixed(4) : value.toPrecision(5);
}

// Learning rates and the like: 3e-4, 0.015, 12.5.
export function formatReal(value) {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const size = Math.abs(value);
  const plain = value === 0 || (size >= 0.001 && size < 1e5);
  return plain
    ? String(Number(value.toPrecision(4)))
    : value.toExponential(2).replace(/\.?0+e/, 'e');
}

// 12,345 -> 12.3K: parameters and tokens per second.
export function formatCount(value) {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const unit = [
    ['T', 1e12],
    ['B', 1e9],
    ['M', 1e6],
    ['K', 1e3],
  ].find(([, size]) => value >= size);
  return unit ? `${Number((value / unit[1]).toPrecision(3))}${unit[0]}` : formatInteger(value);
}

export function formatBytes(value) {
  if (!isNumber(value)) {
    return ABSENT;
  }
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let rank = 0;
  let size = value;
  while (size >= 1024 && rank < units.length - 1) {
    size /= 1024;
    rank += 1;
  }
  return `${rank === 0 ? size : Number(size.toPrecision(3))} ${units[rank]}`;
}

// A part of a whole to a tenth of a percent, as accuracies are told.
export function formatShare(part) {
  return isNumber(part) ? `${(part * 100).toFixed(1)} %` : ABSENT;
}

export function formatPercent(part) {
  return isNumber(part) ? `${Math.floor(part * 100)} %` : ABSENT;
}

export function formatDuration(seconds) {
  if (!isNumber(seconds) || seconds < 0) {
    return ABSENT;
  }
  const whole = Math.round(seconds);
  const values = {
    d: Math.floor(whole / 86400),
    h: Math.floor((whole % 86400) / 3600),
    m: Math.floor((whole % 3600) / 60),
    s: whole % 60,
  };
  if (values.d > 0) {
    return t('time.days_hours', values);
  }
  if (values.h > 0) {
    return t('time.hours_minutes', values);
  }
  return values.m > 0 ? t('time.minutes_seconds', values) : t('time.seconds', values);
}

// Seconds since 1970 as a local time; today's without the date.
export function formatTime(seconds) {
  if (!isNumber(seconds) || seconds <= 0) {
    return ABSENT;
  }
  const when = new Date(seconds * 1000);
  const today = when.toDateString() === new Date().toDateString();
  const style = today ? { timeStyle: 'medium' } : { dateStyle: 'medium', timeStyle: 'short' };
  return new Intl.DateTimeFormat(document.documentElement.lang, style).format(when);
}
