// sentencepiece.test.mjs - sentencepiece models made here from a text, against sentencepiece itself.
//
// The oracle is Debian's: apt-get install sentencepiece python3-sentencepiece. Where it is not, these are skipped.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const program = `${process.env.BUILD ?? 'build/release'}/hone-train`;
const python = ['/usr/bin/python3', 'python3'].find((p) => spawnSync(p, ['-c', 'import sentencepiece']).status === 0);
const trainer = spawnSync('spm_train', ['--help']).error === undefined;
const corpus = '../shared/data/text/botchan.txt', strings = '../shared/vectors/tokenizer/strings.json';
const skip = !(python && trainer && existsSync(corpus)) && 'sentencepiece or its text is missing';
const folder = mkdtempSync(join(tmpdir(), 'hone-sentencepiece-'));
process.on('exit', () => rmSync(folder, { recursive: true }));

// Control symbols that a text spells are added tokens here and text there: the strings have none.
const texts = [' ', '  two  spaces ', '\u2581mark \u2581\u2581', 'ﬁ ① Å ﷺ ｆｕｌｌ', 'e\u0301 \u1112\u1161\u11ab', 'a\u200bb\u00a0c\td', 'ÀÉİ ĞŞ', '日本語 テスト', '😀👨‍👩‍👧', 'x'.repeat(300),
  ...(skip ? [] : readFileSync(corpus, 'utf8').split('\n').filter((l) => l.length > 0).slice(0, 1500)),
  ...(existsSync(strings) ? JSON.parse(readFileSync(strings)).map((s) => s.text) : [])].filter((t) => !/<s>|<\/s>|<unk>|<0x|\u0000/.test(t));

const oracle = `
import json, sys, sentencepiece
sp = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
print(json.dumps([sp.get_piece_size(), sp.unk_id()]))
for line in sys.stdin:
    ids = sp.encode(json.loads(line))
    print(json.dumps([ids, sp.decode(ids)]))
`;

function run(command, args, input) {
  const done = spawnSync(command, args, { input, maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr?.toString());
  return done.stdout.toString().split('\n').slice(0, -1).map((l) => JSON.parse(l));
}

const kinds = {
  unigram: ['--model_type=unigram', '--vocab_size=2000'],
  'unigram with bytes and own symbols': ['--model_type=unigram', '--vocab_size=2000', '--byte_fallback', '--user_defined_symbols=[tool],@@'],
  'unigram as it is': ['--model_type=unigram', '--vocab_size=1500', '--normalization_rule_name=identity', '--remove_extra_whitespaces=false', '--add_dummy_prefix=false'],
  'unigram across words': ['--model_type=unigram', '--vocab_size=1500', '--split_by_whitespace=false'],
  'bpe of llama 2': ['--model_type=bpe', '--vocab_size=2000', '--byte_fallback', '--normalization_rule_name=identity', '--remove_extra_whitespaces=false', '--split_digits'],
  'bpe in lower case': ['--model_type=bpe', '--vocab_size=1500', '--normalization_rule_name=nmt_nfkc_cf', '--add_dummy_prefix=false'],
  'bpe across words': ['--model_type=bpe', '--vocab_size=1500', '--split_by_whitespace=false', '--max_sentencepiece_length=24'],
};

for (const [name, options] of Object.entries(kinds)) {
  test(`sentencepiece, ${name}`, { skip }, () => {
    const dir = join(folder, name.replaceAll(' ', '_'));
    mkdirSync(dir);
    const made = spawnSync('spm_train', [`--input=${corpus}`, `--model_prefix=${join(dir, 'm')}`, '--hard_vocab_limit=false', ...options]);
    assert.equal(made.status, 0, made.stderr.toString());
    const model = join(dir, 'tokenizer.model');
    renameSync(join(dir, 'm.model'), model);
    const input = `${texts.map((t) => JSON.stringify(t)).join('\n')}\n`;
    const [[size, unk], ...want] = run(python, ['-c', oracle, model], input);
    const ids = run(program, ['tokenize', dir, '--lines', '-'], input);
    const decoded = run(program, ['tokenize', dir, '--lines', '--decode', '-'], `${want.map(([w]) => JSON.stringify(w)).join('\n')}\n`);
    const bad = [];
    for (let i = 0; i < texts.length; i++) {
      if (JSON.stringify(ids[i]) !== JSON.stringify(want[i][0])) bad.push(`ids of ${JSON.stringify(texts[i])}\n  got  ${JSON.stringify(ids[i])}\n  want ${JSON.stringify(want[i][0])}`);
      if (!want[i][0].includes(unk) && decoded[i] !== want[i][1]) bad.push(`text of ${JSON.stringify(want[i][0])}\n  got  ${JSON.stringify(decoded[i])}\n  want ${JSON.stringify(want[i][1])}`);
    }
    assert.equal(bad.length, 0, `${bad.length} of ${texts.length} differ, for example ${bad.slice(0, 5).join('\n')}`);
    assert.ok(size > 1000);
    // The same file by its path, and saved by a job under its name: no other way in.
    writeFileSync(join(dir, 'other.bin'), readFileSync(model));
    assert.deepEqual(run(program, ['tokenize', join(dir, 'other.bin'), '--lines', '-'], input), ids);
  });
}
