// stream_worker.js - the stream of events of all tabs of one browser: browsers open at most six
// connections to a server, so a stream per tab would starve the seventh tab.
//
// Tabs send 'join', 'leave', 'stop' (signed out); they receive what stream.js delivers.
import { Stream } from './stream.js';

const tabs = new Set();
const stream = new Stream((message) => {
  for (const tab of tabs) {
    tab.postMessage(message);
  }
});

const actions = {
  join(tab) {
    tabs.add(tab);
    stream.open();
    if (stream.isOpen) {
      tab.postMessage({ name: 'state', open: true });
    }
  },
  leave(tab) {
    tabs.delete(tab);
    if (tabs.size === 0) {
      stream.close();
    }
  },
  stop() {
    stream.close();
  },
};

self.addEventListener('connect', (event) => {
  const [tab] = event.ports;
  tab.addEventListener('message', ({ data }) => actions[data]?.(tab));
  tab.start();
});
