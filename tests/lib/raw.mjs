// raw.mjs - bytes on a socket, and what comes back: for requests that no client would make.
import { connect } from 'node:net';

// Send `text` (a string in latin1 or a list of them with pauses in ms between) and collect until the server
// closes, or until `enough(reply)` holds, or for `ms`.
export function talk(url, text, { ms = 3000, enough = () => false, end = false } = {}) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let reply = '';
    let closed = false;
    let timer = null;
    const finish = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve({ reply, closed, statuses: statuses(reply) });
    };
    timer = setTimeout(finish, ms);
    socket.on('data', (bytes) => {
      reply += bytes.toString('latin1');
      if (enough(reply)) {
        finish();
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      closed = true;
      finish();
    });
    socket.on('connect', async () => {
      for (const part of Array.isArray(text) ? text : [text]) {
        if (typeof part === 'number') {
          await new Promise((done) => setTimeout(done, part));
        } else if (!socket.destroyed) {
          socket.write(Buffer.from(part, 'latin1'));
        }
      }
      if (end) {
        socket.end();
      }
    });
  });
}

// The status of every response in the bytes.
export function statuses(reply) {
  return [...reply.matchAll(/HTTP\/1\.[01] (\d{3}) /g)].map((match) => Number(match[1]));
}

// The head of a request, with the host and the lines given.
export function head(url, line, ...lines) {
  return `${[line, `Host: ${new URL(url).host}`, ...lines].join('\r\n')}\r\n\r\n`;
}
