// log.js - the end of a job's log, followed while the job runs and the log is open.
import { getRange, sizeOf } from './api.js';
import { h, setText } from './dom.js';

const TAIL_BYTES = 64 * 1024;
const FOLLOW_MS = 2500;
const NEAR_END = 40; // pixels from the end within which the view follows new lines

export class Log {
  constructor(path) {
    this.path = path;
    this.size = 0;
    this.text = '';
    this.decoder = new TextDecoder();
    this.live = false;
    this.exists = false;
    this.busy = false;
    this.view = h('pre', {
      class: 'log',
      tabindex: 0,
      role: 'region',
      't-aria-label': 'log.title',
    });
    this.empty = h('p', { class: 'empty', t: 'log.empty' });
    this.node = h(
      'details',
      { class: 'card' },
      h('summary', { t: 'log.title' }),
      this.empty,
      this.view,
      h(
        'div',
        { class: 'tools' },
        h('a', { href: path, class: 'button', download: 'log.txt', t: 'log.download' }),
      ),
    );
    this.node.addEventListener('toggle', () => this.refresh());
    this.timer = setInterval(() => {
      if (this.live && document.visibilityState === 'visible') {
        this.refresh();
      }
    }, FOLLOW_MS);
  }

  // Whether the job still writes, and whether it ever did.
  follow(live, exists = true) {
    this.live = live;
    this.exists ||= exists;
    this.refresh();
  }

  async refresh() {
    if (!this.node.open || !this.exists || this.busy) {
      return;
    }
    this.busy = true;
    try {
      const size = await sizeOf(this.path);
      if (size < this.size) {
        this.size = 0;
        this.text = '';
      }
      if (size > this.size) {
        const from = Math.max(this.size, size - TAIL_BYTES);
        const bytes = await getRange(this.path, from, size);
        this.text = (this.text + this.decoder.decode(bytes, { stream: true })).slice(-TAIL_BYTES);
        this.size = size;
      }
    } catch {
      // Not written yet, or the server is away: the next turn tries again.
    } finally {
      this.busy = false;
    }
    const follows =
      this.view.scrollHeight - this.view.scrollTop - this.view.clientHeight < NEAR_END;
    this.empty.hidden = this.text !== '';
    this.view.hidden = this.text === '';
    setText(this.view, this.text);
    if (follows) {
      this.view.scrollTop = this.view.scrollHeight;
    }
  }

  close() {
    clearInterval(this.timer);
  }
}
