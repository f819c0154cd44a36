// latest.js - asks the server for what is shown beside a form: not for each key, and only the newest answer
// counts; what it replaces is broken off.

const PAUSE_MS = 400;
const BUSY_MS = 1500;

// fetch(what, signal) asks; show({what, reply, error, waiting}) hears of each change. A server that is busy is
// asked again.
export class Latest {
  constructor(fetch, show) {
    this.fetch = fetch;
    this.show = show;
    this.timer = 0;
    this.control = null;
    this.key = '';
  }

  // Ask about `what` (a plain value) soon; null: there is nothing to ask. The same again changes nothing: false.
  ask(what) {
    const key = JSON.stringify(what);
    if (key === this.key) {
      return false;
    }
    this.stop();
    this.key = key;
    this.show({ what, waiting: what !== null });
    if (what !== null) {
      this.timer = setTimeout(() => this.run(what), PAUSE_MS);
    }
    return true;
  }

  async run(what) {
    const control = new AbortController();
    this.control = control;
    try {
      const reply = await this.fetch(what, control.signal);
      if (!control.signal.aborted) {
        this.show({ what, reply });
      }
    } catch (error) {
      if (control.signal.aborted) {
        return;
      }
      if (error.code === 'busy') {
        this.timer = setTimeout(() => this.run(what), BUSY_MS);
      } else {
        this.show({ what, error });
      }
    }
  }

  // Break off what runs; the next question is asked even when it is the same.
  stop() {
    clearTimeout(this.timer);
    this.control?.abort();
    this.control = null;
    this.key = '';
  }
}
