// stream.js - one EventSource on /v1/stream that outlives broken connections, sleep and server restarts.
//
// deliver(message) gets {name, id, data} for each event, {name: 'state', open} when the connection comes or
// goes, and {name: 'reset'} when what readers hold may have a hole: they must fetch again. `first` says that
// nothing came before it. The server replays what was missed from the last id, so a broken connection alone
// needs no reset.

// The types of trainer/protocol.def, and the stream's own two.
export const EVENTS = [
  'started',
  'stage',
  'progress',
  'data',
  'ready',
  'resumed',
  'metrics',
  'eval',
  'sample',
  'early_stopping',
  'checkpoint',
  'checkpoint_failed',
  'checkpoint_deleted',
  'warning',
  'error',
  'ended',
  'job',
  'reset',
];

const RETRY_FIRST_MS = 1000;
const RETRY_LAST_MS = 30000;
const CLOCK_MS = 10000;
const SLEPT_MS = 120000;

export class Stream {
  constructor(deliver) {
    this.deliver = deliver;
    this.source = null;
    this.lastId = null;
    this.isOpen = false;
    this.wait = RETRY_FIRST_MS;
    this.timer = 0;
    this.clock = 0;
  }

  open() {
    if (this.source || this.timer) {
      return;
    }
    this.connect();
    // After the machine slept the connection may look alive and be dead: a jump of the clock tells.
    let before = Date.now();
    this.clock = setInterval(() => {
      const now = Date.now();
      if (now - before > SLEPT_MS) {
        this.restart();
      }
      before = now;
    }, CLOCK_MS);
  }

  close() {
    clearInterval(this.clock);
    clearTimeout(this.timer);
    this.timer = 0;
    this.lastId = null;
    this.drop();
  }

  restart() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.drop();
    this.connect();
  }

  drop() {
    this.source?.close();
    this.source = null;
    this.setOpen(false);
  }

  setOpen(open) {
    if (this.isOpen !== open) {
      this.isOpen = open;
      this.deliver({ name: 'state', open });
    }
  }

  connect() {
    const query = this.lastId === null ? '' : `?lastEventId=${encodeURIComponent(this.lastId)}`;
    const source = new EventSource(`/v1/stream${query}`);
    this.source = source;
    source.addEventListener('open', () => {
      this.wait = RETRY_FIRST_MS;
      if (this.lastId === null) {
        this.deliver({ name: 'reset', first: true });
      }
      this.setOpen(true);
    });
    for (const name of EVENTS) {
      source.addEventListener(name, (event) => {
        // A lost connection is an event of type 'error' too, without data.
        if (typeof event.data === 'string') {
          this.receive(name, event);
        }
      });
    }
    source.addEventListener('error', (event) => {
      if (typeof event.data !== 'string') {
        this.broken(source);
      }
    });
  }

  receive(name, event) {
    if (event.lastEventId) {
      this.lastId = event.lastEventId;
    }
    let data = null;
    try {
      data = JSON.parse(event.data);
    } catch {
      return;
    }
    this.deliver({ name, id: event.lastEventId, data });
  }

  // The browser reconnects by itself unless the server answered with an error.
  broken(source) {
    this.setOpen(false);
    if (source.readyState !== EventSource.CLOSED || source !== this.source) {
      return;
    }
    this.source = null;
    this.deliver({ name: 'refused' });
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.connect();
    }, this.wait);
    this.wait = Math.min(this.wait * 2, RETRY_LAST_MS);
  }
}
