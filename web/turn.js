// turn.js - one turn of a talk: who speaks, what was said or is being said, how it ended. What models say is text and
// nothing else.
import { copyButton, h, setString, setText } from './dom.js';
import { formatInteger, has, t } from './strings.js';

// role: 'user', 'assistant', or 'text': a continuation, of what `given` says.
export class Turn {
  constructor(role, { given = '', text = '' } = {}) {
    this.role = role;
    this.given = given;
    this.text = text;
    this.error = null;
    this.note = null; // [key, values] under the text
    this.frame = 0;
    this.written = h('span', { class: 'written' }, text);
    this.status = h('p', { class: 'hint turn-note', hidden: true });
    this.problem = h('p', { class: 'problem', role: 'alert', hidden: true });
    this.tools = h('div', { class: 'tools turn-tools', hidden: true });
    this.node = h(
      'article',
      { class: 'turn', 'data-role': role },
      h('h3', { t: `talk.role_${role}` }),
      h(
        'div',
        { class: 'said', dir: 'auto' },
        given && h('span', { class: 'given' }, given),
        this.written,
      ),
      this.status,
      this.problem,
      this.tools,
    );
  }

  // What is said so far, with what it goes on from.
  get whole() {
    return this.given + this.text;
  }

  add(text) {
    this.text += text;
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => this.paint());
    }
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    setText(this.written, this.text);
  }

  setNote(key, values) {
    this.status.hidden = !key;
    if (key) {
      setString(this.status, key, values);
    }
  }

  fail(error) {
    this.error = error;
    this.language();
  }

  // It is over: `buttons` are what can be done with it now.
  end(...buttons) {
    this.paint();
    this.tools.replaceChildren(
      ...(this.text ? [copyButton('copy.copy', () => this.text, 'talk.copy')] : []),
      ...buttons,
    );
    this.tools.hidden = this.tools.childElementCount === 0;
  }

  // Others follow: what was said can be copied, but not be asked again.
  settle() {
    this.end();
  }

  language() {
    const { error } = this;
    this.problem.hidden = !error;
    if (error) {
      const key = `error.${error.code}`;
      const sentences = [
        has(key) && error.status > 0 && t(key),
        error.message,
        error.param === 'messages' && t('talk.maybe_long'),
      ];
      setText(this.problem, sentences.filter(Boolean).join(' '));
    }
  }
}

// How an answer ended, as a note: reason of OpenAI's API, tokens, seconds.
export function endNote(reason, tokens, seconds) {
  const values = {
    tokens: formatInteger(tokens),
    rate: seconds > 0 ? formatInteger(tokens / seconds) : '–',
  };
  return [reason === 'length' ? 'talk.ended_length' : 'talk.ended_stop', values];
}
