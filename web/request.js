// request.js - a job request as others send it: the same call for curl.
import { copyButton } from './dom.js';

// For a POSIX shell: nothing inside single quotes is special but the quote itself.
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curlText(request) {
  return [
    `curl -sS ${quote(`${location.origin}/v1/jobs`)}`,
    '-H "Authorization: Bearer $HONE_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${quote(JSON.stringify(request))}`,
  ].join(' \\\n  ');
}

export function curlButton(request) {
  return copyButton('copy.curl', () => curlText(request()));
}

// A word that no other request has, so that a repeated send makes no second job.
export function requestKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
}
