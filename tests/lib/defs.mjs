// defs.mjs - reads the .def tables, so that tests of the page know what the C sources know.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

// The rows of a table as lists of arguments: strings without their quotes, the rest as written.
export function rows(path, ...macros) {
  const text = readFileSync(ROOT + path, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
  const row = new RegExp(`^(?:${macros.join('|')})\\((.*)\\)\\s*$`, 'gm');
  return [...text.matchAll(row)].map(([, body]) =>
    [...body.matchAll(/\s*("(?:[^"\\]|\\.)*"|[^,"]+)\s*(?:,|$)/g)].map(([, word]) =>
      word.trim().replace(/^"(.*)"$/s, '$1'),
    ),
  );
}
