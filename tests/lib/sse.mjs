// sse.mjs - reads a stream of server-sent events with fetch.

// Read events until `enough(events)` or `ms` have passed. Each is {id, event, data}.
export async function readEvents(url, headers, { enough, ms = 10000 }) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), ms);
  const events = [];
  let text = '';
  let comments = 0;
  try {
    const reply = await fetch(url, { headers, signal: abort.signal });
    if (!reply.ok) {
      throw Object.assign(new Error(await reply.text()), { status: reply.status });
    }
    const decoder = new TextDecoder();
    for await (const bytes of reply.body) {
      text += decoder.decode(bytes, { stream: true });
      const blocks = text.split('\n\n');
      text = blocks.pop();
      for (const block of blocks) {
        const event = parse(block);
        comments += block.startsWith(':') ? 1 : 0;
        if (event.data !== undefined) {
          events.push(event);
        }
      }
      if (enough(events)) {
        break;
      }
    }
    return { events, comments, ended: !enough(events) };
  } catch (error) {
    if (error.name !== 'AbortError') {
      throw error;
    }
    return { events, comments, ended: false };
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

function parse(block) {
  const event = {};
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon > 0) {
      const key = line.slice(0, colon);
      const value = line.slice(colon + 2);
      event[key] = key === 'data' ? JSON.parse(value) : value;
    }
  }
  return event;
}

export const numberOf = (id) => Number(id.slice(id.lastIndexOf('-') + 1));
