// sample.js - "try the tiny sample": a text made up here, uploaded and trained on with one click.
import { post, upload } from './api.js';
import { h, setString, setText } from './dom.js';
import { PRESETS } from './presets.js';
import { requestKey } from './request.js';
import { language } from './strings.js';

const WORDS = {
  en: {
    who: [
      'a red fox',
      'the old miller',
      'a small girl',
      'the grey cat',
      'a young sailor',
      'the baker',
      'a clever crow',
      'the shepherd',
    ],
    did: [
      'walked to',
      'looked for',
      'ran past',
      'waited near',
      'dreamed of',
      'sang beside',
      'slept under',
      'came home from',
    ],
    where: [
      'the river',
      'the tall tower',
      'the green hill',
      'the quiet harbour',
      'the stone bridge',
      'the apple tree',
      'the market',
      'the deep forest',
    ],
    when: [
      'in the morning',
      'at night',
      'when it rained',
      'before the sun rose',
      'after supper',
      'in the first snow',
      'on a warm day',
    ],
    line: ({ who, did, where, when }) =>
      `${when[0].toUpperCase()}${when.slice(1)} ${who} ${did} ${where}.`,
  },
  zh: {
    who: ['小狐狸', '老船夫', '小姑娘', '灰猫', '年轻的渔夫', '面包师', '聪明的乌鸦', '牧羊人'],
    did: ['走到', '找到了', '跑过', '守在', '梦见了', '唱着歌来到', '睡在', '离开了'],
    where: ['小河边', '高塔下', '青山上', '安静的港口', '石桥旁', '苹果树下', '集市', '深深的森林'],
    when: ['清晨', '夜里', '下雨的时候', '日出之前', '晚饭以后', '初雪那天', '暖和的日子里'],
    line: ({ who, did, where, when }) => `${when}，${who}${did}${where}。`,
  },
};
const LINES = 2500;
const PARAGRAPH = 6;
const STEPS = 150; // about a minute on two cores

// The same text every time: a linear congruential generator picks the words.
export function sampleText(tag) {
  const { line, ...lists } = WORDS[tag] ?? WORDS.en;
  let state = 1;
  const pick = (list) => {
    state = (state * 48271) % 2147483647;
    return list[state % list.length];
  };
  const lines = Array.from({ length: LINES }, () =>
    line(Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, pick(list)]))),
  );
  return lines
    .map((text, i) => text + ((i + 1) % PARAGRAPH === 0 ? '\n\n' : tag === 'zh' ? '' : ' '))
    .join('');
}

async function trySample() {
  const tag = language();
  const file = await upload(
    new File([sampleText(tag)], `tiny-sample-${tag}.txt`, { type: 'text/plain' }),
    () => {},
  ).done;
  const { config, fields } = PRESETS[0];
  const request = {
    name: 'tiny sample',
    training_file: file.id,
    config,
    ...fields,
    max_steps: STEPS,
  };
  const job = await post('/v1/jobs', request, { 'Idempotency-Key': requestKey() });
  location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
}

export function tryButton() {
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const button = h('button', { type: 'button', class: 'primary', t: 'sample.try' });
  button.addEventListener('click', async () => {
    button.disabled = true;
    setString(button, 'sample.preparing');
    try {
      await trySample();
    } catch (error) {
      setText(problem, error.message);
      problem.hidden = false;
      button.disabled = false;
      setString(button, 'sample.try');
    }
  });
  return h('div', {}, button, problem);
}
