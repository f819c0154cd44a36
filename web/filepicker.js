// filepicker.js - choose a text: drop or pick a file, which is uploaded at once, or take one that is there.
import { getAll, upload } from './api.js';
import { announce, h, newId, setText } from './dom.js';
import { formatBytes, formatPercent, t } from './strings.js';
import { progressBar } from './words.js';

const LOOK_BYTES = 65536;

const PACKED = [
  [0x1f, 0x8b], // gzip
  [0x28, 0xb5, 0x2f, 0xfd], // zstd
];

// A sentence about a file that can't be a text, or null. The server checks every byte; this saves the wait.
async function objection(file) {
  if (file.size === 0) {
    return t('upload.empty_file', { name: file.name });
  }
  const start = new Uint8Array(await file.slice(0, LOOK_BYTES).arrayBuffer());
  if (PACKED.some((magic) => magic.every((byte, i) => start[i] === byte))) {
    return null;
  }
  if ([0x50, 0x41, 0x52, 0x31].every((byte, i) => start[i] === byte)) {
    return t('upload.parquet', { name: file.name });
  }
  return start.includes(0) ? t('upload.not_text', { name: file.name }) : null;
}

// A select of files: the user's uploads and the machine's own.
export function fileSelect(files, machine, firstKey) {
  const group = (key, list, label) =>
    list.length > 0 &&
    h(
      'optgroup',
      { 't-label': key },
      list.map((file) => h('option', { value: file.id }, label(file))),
    );
  return h(
    'select',
    { id: newId('file') },
    h('option', { value: '', t: firstKey }),
    group('upload.yours', files, (file) => `${file.filename} (${formatBytes(file.bytes)})`),
    group('upload.machine', machine, (file) => `${file.id} (${formatBytes(file.bytes)})`),
  );
}

// What can be chosen: {files, machine}. A list that can't be had is empty.
export async function fetchFiles() {
  const quietly = (path) => getAll(path).catch(() => []);
  const [files, machine] = await Promise.all([quietly('/v1/files'), quietly('/v1/data')]);
  return { files, machine };
}

// The drop zone. onFile(file object of the server) is called after each upload.
export function dropZone(onFile) {
  const id = newId('drop');
  const input = h('input', { type: 'file', id, class: 'visually-hidden' });
  const zone = h(
    'label',
    { for: id, class: 'drop' },
    h('strong', { t: 'upload.drop' }),
    h('span', { class: 'hint', t: 'upload.kind' }),
  );
  const bar = progressBar('upload.progress');
  const text = h('span', { class: 'value' });
  const stop = h('button', { type: 'button', class: 'quiet', t: 'upload.stop' });
  const status = h('div', { class: 'uploading', hidden: true }, bar.node, text, stop);
  const problem = h('p', { class: 'problem', role: 'alert', hidden: true });
  const node = h('div', { class: 'dropper' }, input, zone, status, problem);
  let running = null;

  function complain(sentence) {
    setText(problem, sentence ?? '');
    problem.hidden = !sentence;
  }

  async function take(file) {
    if (!file || running) {
      return;
    }
    complain(await objection(file));
    if (!problem.hidden) {
      return;
    }
    status.hidden = false;
    const show = (part) => {
      bar.show(part);
      setText(
        text,
        t('upload.sent', {
          name: file.name,
          percent: formatPercent(part),
          size: formatBytes(file.size),
        }),
      );
    };
    show(0);
    running = upload(file, show);
    try {
      const stored = await running.done;
      announce(t('upload.done', { name: file.name }));
      onFile(stored);
    } catch (error) {
      complain(error.message);
    } finally {
      running = null;
      status.hidden = true;
      input.value = '';
    }
  }

  stop.addEventListener('click', () => running?.abort());
  input.addEventListener('change', () => take(input.files[0]));
  for (const name of ['dragenter', 'dragover']) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.add('over');
    });
  }
  for (const name of ['dragleave', 'drop']) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.remove('over');
    });
  }
  zone.addEventListener('drop', (event) => take(event.dataTransfer.files[0]));
  return { node, stop: () => running?.abort() };
}
