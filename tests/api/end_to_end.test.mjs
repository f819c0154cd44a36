// end_to_end.test.mjs - the script that fine-tunes a model on a file of chats and talks to it by curl alone.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { ROOT } from '../lib/defs.mjs';

const there = existsSync(join(ROOT, '../shared/data/models/stories260K'));

test('a model is fine-tuned on chats and says what it learned, by curl alone', { skip: !there }, async () => {
  const { stdout } = await promisify(execFile)(
    join(ROOT, 'tests/end_to_end'),
    [process.env.HONE_BUILD || 'build/release'],
    { cwd: ROOT, maxBuffer: 1 << 24, timeout: 300000 },
  );
  assert.match(stdout, /\$ curl -X POST .*\/v1\/jobs/);
  assert.match(stdout, /the model has learned who it is: .*\{\{name\}\}/);
});
