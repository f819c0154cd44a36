// tokenizers.test.mjs - tokenizer.json of every kind against the `tokenizers` library, text by text.
//
// The library is not among the packages of the tests (it is large). Where it is there, it is the oracle:
//   npm install --no-save tokenizers@0.23.2
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const require = createRequire(process.env.HONE_TOKENIZERS ? join(process.env.HONE_TOKENIZERS, '/') : import.meta.url);
let Tokenizer;
try {
  ({ Tokenizer } = require('tokenizers'));
} catch {
  Tokenizer = null;
}
const program = `${process.env.BUILD ?? 'build/release'}/hone-train`;
const folder = mkdtempSync(join(tmpdir(), 'hone-tokenizers-'));
process.on('exit', () => rmSync(folder, { recursive: true }));

const own = ['', ' ', 'hello world', ' Hello  World\n\n', 'the \u2581the', 'a<s>b</s>', 'x <mask>  y<tool> z', 'Ünïcödé ÀÉ İıſ', 'ﬁ ﬂ ½ ① Å', 'e\u0301a\u0327\u0301', '한국어 각', '日本語。テスト漢字', '😀👨‍👩‍👧 x', '\t\ttabs\r\nand\u00a0nbsp\u200b\ufeffzero\u2028', '12345 3.14 1,000', "it's we'll DON'T", 'snake_case camelCase HTTPServer', '¿qué? «x» …', '\u0000a\u0001b\u007f', 'aaaaaaaaaaaaaaaa', 'aaa aaaaaaa', 'ABAB abab', 'x'.repeat(200), 'the hello '.repeat(30), 'عربي हिन्दी ไทย', '\u1100\u1161\u11a8', '$100+50=150<~`^|>'];
const shared = '../shared/vectors/tokenizer/strings.json';
const texts = existsSync(shared) ? [...own, ...JSON.parse(readFileSync(shared)).map((s) => s.text)] : own;

// Byte to printable character, as GPT-2 has it.
const printable = [];
for (let b = 0, next = 0x100; b < 256; b++) {
  const itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  printable.push(String.fromCodePoint(itself ? b : next++));
}
const spell = (s) => [...Buffer.from(s)].map((b) => printable[b]).join('');

const words = ['he', 'll', 'hell', 'hello', ' w', 'or', ' wor', 'ld', ' world', 'th', ' th', ' the', 'ab', 'abab', '12', '123', '  ', '    ', '\n\n', "'s", 'é', ' a', '日本', '漢字', 'aa', 'aaaa', 'The', 'x ', ' x'];
function bytesVocabulary() {
  const vocab = {}, merges = [];
  [...printable].sort().forEach((c, i) => { vocab[c] = i; });
  for (const w of words) {
    const s = spell(w);
    for (let n = 2; n <= s.length; n++) { // left to right
      const made = s.slice(0, n);
      if (!(made in vocab)) {
        vocab[made] = Object.keys(vocab).length;
        merges.push([s.slice(0, n - 1), s[n - 1]]);
      }
    }
  }
  return { vocab, merges };
}
function piecesVocabulary(extra = []) {
  const vocab = {}, merges = [], add = (t) => { if (!(t in vocab)) vocab[t] = Object.keys(vocab).length; };
  ['<unk>', '<s>', '</s>'].forEach(add);
  for (let b = 0; b < 256; b++) add(`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`);
  '\u2581abcdefghijklmnopqrstuvwxyzTHABé日本漢字.,\'123'.split('').forEach(add);
  extra.forEach(add);
  for (const w of words.map((s) => s.replaceAll(' ', '\u2581'))) {
    for (let n = 2; n <= w.length; n++) {
      const made = w.slice(0, n);
      if (!(made in vocab) && w[n - 1] in vocab && w.slice(0, n - 1) in vocab) {
        add(made);
        merges.push([w.slice(0, n - 1), w[n - 1]]);
      }
    }
  }
  return { vocab, merges };
}
function unigramVocabulary() {
  const { vocab } = piecesVocabulary(['the', 'hello', 'world', '▁▁', '한국', 'ह', 'न']);
  let x = 12345;
  return Object.keys(vocab).map((piece, i) => {
    x = (x * 1103515245 + 12345) % 2147483648;
    return [piece, i < 3 ? 0 : piece.startsWith('<0x') ? -8 : -(8 - Math.min(6, piece.length)) - (x % 1000) / 997];
  });
}

const special = (id, content, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more });
const bytes = { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ...bytesVocabulary() };
const pieces = { ...bytes, ...piecesVocabulary(), unk_token: '<unk>', fuse_unk: true, byte_fallback: true };
const unigram = { type: 'Unigram', unk_id: 0, vocab: unigramVocabulary(), byte_fallback: false };
const level = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });
const normal = (...normalizers) => ({ type: 'Sequence', normalizers });
const split = (Regex, behavior = 'Isolated', invert = false) => ({ type: 'Split', pattern: { Regex }, behavior, invert });
const mark = { type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true };
const replace = (pattern, content) => ({ type: 'Replace', pattern, content });
const llama = { type: 'Sequence', decoders: [replace({ String: '\u2581' }, ' '), { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] };
const tokens = [special(0, '<s>'), special(0, '<mask>', { lstrip: true, rstrip: true }), special(0, '<tool>', { special: false, normalized: true, single_word: true }), special(0, 'HTTP', { special: false, normalized: true })];
const base = { version: '1.0', truncation: null, padding: null, added_tokens: tokens, normalizer: null, pre_tokenizer: level, post_processor: null, decoder: level, model: bytes };

const deepseek = sequence(split('\\p{N}{1,3}'), split('[一-龥぀-ゟ゠-ヿ]+'),
  split('[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'), level);
const deepseekLlm = sequence(split('[\\r\\n]'), split('\\s?\\p{L}+'), split('\\s?\\p{P}+'), split('[一-龥ࠀ-一가-퟿]+'), { type: 'Digits', individual_digits: true }, level);
const cl100k = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const o200k = "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const kinds = {
  'gpt2': { pre_tokenizer: { ...level, use_regex: true } },
  'gpt2 with a space in front': { pre_tokenizer: { ...level, add_prefix_space: true, use_regex: true } },
  'llama 3': { pre_tokenizer: sequence(split(cl100k), level), model: { ...bytes, ignore_merges: true } },
  'qwen 2': { normalizer: { type: 'NFC' }, pre_tokenizer: sequence(split(cl100k.replace('{1,3}', '')), level) },
  'gpt-4o': { pre_tokenizer: sequence(split(o200k), level) },
  'gpt-4o, what is between removed': { pre_tokenizer: sequence(split(o200k, 'Removed', true), level) },
  'neox': { normalizer: { type: 'NFC' }, pre_tokenizer: { ...level, use_regex: true }, added_tokens: [special(0, '<|endoftext|>'), special(0, '    ', { special: false, normalized: true }), special(0, '  ', { special: false, normalized: true })] },
  'deepseek v3': { pre_tokenizer: deepseek },
  'deepseek llm': { pre_tokenizer: deepseekLlm },
  'starcoder': { pre_tokenizer: sequence({ type: 'Digits', individual_digits: true }, { ...level, use_regex: true }) },
  'bytes as a normalizer': { normalizer: { type: 'ByteLevel' }, pre_tokenizer: null },
  'merges as strings': { model: { ...bytes, merges: bytes.merges.map((m) => m.join(' ')) } },
  'llama 2': { model: pieces, normalizer: normal({ type: 'Prepend', prepend: '\u2581' }, replace({ String: ' ' }, '\u2581')), pre_tokenizer: null, decoder: llama },
  'gemma': { model: pieces, normalizer: replace({ String: ' ' }, '\u2581'), pre_tokenizer: split(' ', 'MergedWithPrevious'), decoder: { type: 'Sequence', decoders: [replace({ String: '\u2581' }, ' '), { type: 'ByteFallback' }, { type: 'Fuse' }] } },
  'mistral, metaspace first': { model: pieces, pre_tokenizer: { ...mark, prepend_scheme: 'first', split: false }, decoder: llama },
  'no byte fallback': { model: { ...pieces, byte_fallback: false }, pre_tokenizer: mark, decoder: mark },
  'unigram': { model: unigram, pre_tokenizer: mark, decoder: mark },
  'unigram, not split': { model: unigram, pre_tokenizer: { ...mark, split: false }, decoder: mark },
  'unigram, nothing before it': { model: unigram, pre_tokenizer: null, decoder: mark },
  'unigram with byte fallback': { model: { ...unigram, byte_fallback: true }, pre_tokenizer: mark, decoder: llama },
  'unigram of t5': { model: unigram, normalizer: normal({ type: 'Strip', strip_left: false, strip_right: true }, replace({ Regex: ' {2,}' }, '\u2581')), pre_tokenizer: mark, decoder: mark },
  'unigram of xlm-roberta': { model: unigram, normalizer: normal({ type: 'Nmt' }, { type: 'NFKC' }, replace({ Regex: ' {2,}' }, ' ')), pre_tokenizer: mark, decoder: mark, post_processor: { type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 1], trim_offsets: true, add_prefix_space: true } },
  'unigram, lower case without accents': { model: unigram, normalizer: normal({ type: 'NFKD' }, { type: 'StripAccents' }, { type: 'Lowercase' }), pre_tokenizer: sequence({ type: 'WhitespaceSplit' }, mark), decoder: mark },
  'words': { model: { type: 'WordLevel', vocab: Object.fromEntries(['[UNK]', 'hello', 'world', 'the', '.', 'a', 'x', '\'', 's'].map((w, i) => [w, i])), unk_token: '[UNK]' }, pre_tokenizer: { type: 'Whitespace' }, normalizer: { type: 'Lowercase' }, decoder: null },
  'words of bert': { model: { type: 'WordLevel', vocab: Object.fromEntries(['[UNK]', 'hello', 'world', 'the', '.', 'a', 'x', '\'', 's', '日', '漢'].map((w, i) => [w, i])), unk_token: '[UNK]' }, pre_tokenizer: { type: 'BertPreTokenizer' }, normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true }, decoder: null, post_processor: { type: 'BertProcessing', sep: ['[SEP]', 1], cls: ['[CLS]', 2] } },
  'words apart at a character': { model: { type: 'WordLevel', vocab: { '?': 0, a: 1, x: 2 }, unk_token: '?' }, pre_tokenizer: { type: 'CharDelimiterSplit', delimiter: '-' }, decoder: null },
  'stripped left': { normalizer: { type: 'Strip', strip_left: true, strip_right: false } },
  'replaced by a dollar': { normalizer: replace({ Regex: '(l+)' }, '$1') },
  'dollar out': { decoder: { type: 'Sequence', decoders: [level, replace({ String: 'l' }, '$0')] } },
  'punctuation contiguous': { pre_tokenizer: sequence({ type: 'Punctuation', behavior: 'Contiguous' }, level) },
  'digits together': { pre_tokenizer: sequence({ type: 'Digits', individual_digits: false }, level) },
  'whitespace': { pre_tokenizer: sequence({ type: 'Whitespace' }, level) },
  'prefix and suffix': { model: { ...pieces, byte_fallback: false, end_of_word_suffix: '</w>', vocab: Object.fromEntries([...Object.keys(pieces.vocab), 'a</w>', 'o</w>', 'x</w>', 'd</w>', 'ld</w>'].map((t, i) => [t, i])), merges: [...pieces.merges, ['l', 'd</w>']] }, pre_tokenizer: { type: 'WhitespaceSplit' }, decoder: { type: 'BPEDecoder', suffix: '</w>' } },
};
for (const behavior of ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']) {
  for (const invert of [false, true]) {
    kinds[`split ${behavior}${invert ? ' inverted' : ''}`] = { pre_tokenizer: sequence(split('[ l]', behavior, invert), level) };
    kinds[`split at a string, ${behavior}${invert ? ' inverted' : ''}`] = { pre_tokenizer: sequence({ ...split('', behavior, invert), pattern: { String: ' ' } }, level) };
  }
}

function hone(file, options, lines) {
  const done = spawnSync(program, ['tokenize', file, '--lines', ...options, '-'], { input: `${lines.map((l) => JSON.stringify(l)).join('\n')}\n`, maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, done.stderr.toString());
  return done.stdout.toString().split('\n').slice(0, -1).map((l) => JSON.parse(l));
}

async function compare(file) {
  const library = Tokenizer.fromFile(file), parts = JSON.parse(readFileSync(file));
  const without = Tokenizer.fromString(JSON.stringify({ ...parts, post_processor: null, added_tokens: parts.added_tokens.filter((t) => !t.special) }));
  const plain = hone(file, [], texts), around = hone(file, ['--add-special'], texts), asText = hone(file, ['--as-text'], texts);
  const decoded = hone(file, ['--decode'], plain), clean = hone(file, ['--decode', '--skip-special'], plain);
  const bad = [];
  for (let i = 0; i < texts.length; i++) {
    const check = (what, got, want) => {
      if (JSON.stringify(got) !== JSON.stringify(want)) bad.push(`${what} of ${JSON.stringify(texts[i])}:\n  got  ${JSON.stringify(got)}\n  want ${JSON.stringify(want)}`);
    };
    const ids = (await library.encode(texts[i], null, { addSpecialTokens: false })).getIds();
    check('ids', plain[i], ids);
    check('ids with special ones', around[i], (await library.encode(texts[i], null, { addSpecialTokens: true })).getIds());
    check('decoded', decoded[i], await library.decode(plain[i], false));
    check('decoded without special ones', clean[i], await library.decode(plain[i], true));
    check('ids as text', asText[i], (await without.encode(texts[i], null, { addSpecialTokens: false })).getIds());
  }
  assert.equal(bad.length, 0, `${bad.length} differ, for example ${bad.slice(0, 4).join('\n')}`);
}

// What tests/test_tokenizer_models.c compares with where the library is not: HONE_WRITE=1 writes it anew.
const kept = ['gpt-4o', 'deepseek v3', 'deepseek llm', 'gemma', 'bytes as a normalizer', 'unigram', 'unigram, not split', 'unigram with byte fallback', 'unigram of t5', 'unigram of xlm-roberta', 'unigram, lower case without accents', 'words', 'words of bert', 'words apart at a character', 'prefix and suffix', 'replaced by a dollar'];
async function write(name, tokenizer) {
  const library = Tokenizer.fromString(JSON.stringify(tokenizer));
  const vectors = await Promise.all(own.map(async (text) => {
    const ids = (await library.encode(text, null, { addSpecialTokens: false })).getIds();
    return { text, ids, special: (await library.encode(text, null, { addSpecialTokens: true })).getIds(), decoded: await library.decode(ids, false) };
  }));
  const lines = vectors.map((v) => JSON.stringify(v)).join(',\n');
  writeFileSync(`tests/tokenizers/${name.replaceAll(/[^a-z0-9]+/g, '_')}.json`, `{"tokenizer":${JSON.stringify(tokenizer)},\n"vectors":[\n${lines}]}\n`);
}

// The table of nmt_nfkc, from a model that sentencepiece makes: field 2 of field 3.
function charsmap() {
  writeFileSync(join(folder, 'corpus'), 'the hello world\nit is a cat and a dog\n'.repeat(40));
  const made = spawnSync('spm_train', [`--input=${join(folder, 'corpus')}`, `--model_prefix=${join(folder, 'm')}`, '--vocab_size=30', '--hard_vocab_limit=false']);
  if (made.status !== 0) return null;
  const field = (bytes, wanted) => {
    for (let at = 0; at < bytes.length;) {
      const varint = () => { let x = 0, shift = 1; for (;;) { const b = bytes[at++]; x += (b & 127) * shift; if (b < 128) return x; shift *= 128; } };
      const tag = varint(), type = tag & 7;
      if (type === 0) { varint(); continue; }
      const n = type === 2 ? varint() : type === 5 ? 4 : 8;
      if (type === 2 && tag >> 3 === wanted) return bytes.subarray(at, at + n);
      at += n;
    }
    return null;
  };
  return field(field(readFileSync(join(folder, 'm.model')), 3), 2).toString('base64');
}
const map = Tokenizer === null ? null : charsmap();
if (map !== null) {
  const precompiled = { type: 'Precompiled', precompiled_charsmap: map };
  kinds['unigram with a charsmap'] = { model: unigram, normalizer: precompiled, pre_tokenizer: mark, decoder: mark };
  kinds['bytes with a charsmap'] = { normalizer: normal(precompiled, replace({ Regex: ' {2,}' }, ' ')) };
}

const skip = Tokenizer === null && 'the npm package tokenizers is not installed';
for (const [name, parts] of Object.entries(kinds)) {
  test(`tokenizer.json, ${name}`, { skip }, async () => {
    const file = join(folder, `${name.replaceAll(/[^a-z0-9]/g, '_')}.json`);
    const whole = { ...base, ...parts };
    // Added tokens that the model has not follow its vocabulary: the library numbers them so, whatever
    // the file says; special ones last, so that without them the others keep their ids.
    const { vocab } = whole.model, known = Array.isArray(vocab) ? vocab.map(([piece]) => piece) : Object.keys(vocab);
    let next = known.length;
    whole.added_tokens = whole.added_tokens.toSorted((a, b) => a.special - b.special).map((t) => ({ ...t, id: known.includes(t.content) ? known.indexOf(t.content) : next++ }));
    writeFileSync(file, JSON.stringify(whole));
    if (process.env.HONE_WRITE && kept.includes(name)) await write(name, whole);
    await compare(file);
  });
}
