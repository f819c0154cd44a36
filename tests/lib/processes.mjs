// processes.mjs - the processes that jobs of a data folder have, read from /proc.
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';

const MARK = 'HONE_JOB_DIR=';

async function text(path) {
  return readFile(path, 'latin1').catch(() => '');
}

// What /proc/PID/stat says after the name: state, parent, group, session; `since` tells a number that is used again.
async function statOf(pid) {
  const line = await text(`/proc/${pid}/stat`);
  const [state, parent, group, session, ...more] = line.slice(line.lastIndexOf(')') + 2).split(' ');
  return line === '' ? null : { state, parent: Number(parent), group: Number(group), session: Number(session), since: more[15] };
}

export async function isAlive(one) {
  const now = await statOf(one.pid);
  return now !== null && now.since === one.since && !['Z', 'X'].includes(now.state);
}

// Every live process that carries the mark of a job below `folder`: {pid, since, job, session, isLauncher}. A launcher
// leads its session; what it forks is in that session.
export async function jobProcesses(folder) {
  const prefix = `${MARK}${join(folder, 'jobs')}/`;
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
  const found = await Promise.all(pids.map(async (pid) => {
    const marked = (await text(`/proc/${pid}/environ`)).split('\0').find((word) => word.startsWith(prefix));
    const stat = marked === undefined ? null : await statOf(pid);
    if (stat === null || ['Z', 'X'].includes(stat.state)) {
      return null;
    }
    return { pid, since: stat.since, job: marked.slice(prefix.length), session: stat.session, isLauncher: stat.session === pid };
  }));
  return found.filter((one) => one !== null);
}
