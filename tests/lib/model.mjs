// model.mjs - writes a tiny model folder with random weights and a tokenizer of bytes: what it says makes no
// sense, but it says it as any model does.
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const SIZE = { hidden: 32, inner: 64, layers: 2, heads: 4, keys: 2 };
const SPECIAL = ['<s>', '</s>', '<|user|>', '<|end|>'];

// The character that stands for a byte in byte-level vocabularies (GPT-2's table).
function byteCharacters() {
  const own = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(own(b) ? b : next++));
}

function numbers(seed) {
  let x = seed;
  return () => {
    x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;
    return x / 0x7fffffff - 0.5;
  };
}

function tensors(vocabulary, scale, seed) {
  const { hidden: D, inner: F, layers, heads, keys } = SIZE;
  const K = D / heads;
  const next = numbers(seed);
  const list = [];
  const add = (name, shape, one) => {
    const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () =>
      one ? 1 : next() * scale,
    );
    list.push([name, shape, values]);
  };
  add('model.embed_tokens.weight', [vocabulary, D]);
  for (let l = 0; l < layers; l += 1) {
    const at = `model.layers.${l}`;
    add(`${at}.input_layernorm.weight`, [D], true);
    add(`${at}.self_attn.q_proj.weight`, [D, D]);
    add(`${at}.self_attn.k_proj.weight`, [keys * K, D]);
    add(`${at}.self_attn.v_proj.weight`, [keys * K, D]);
    add(`${at}.self_attn.o_proj.weight`, [D, D]);
    add(`${at}.post_attention_layernorm.weight`, [D], true);
    add(`${at}.mlp.gate_proj.weight`, [F, D]);
    add(`${at}.mlp.up_proj.weight`, [F, D]);
    add(`${at}.mlp.down_proj.weight`, [D, F]);
  }
  add('model.norm.weight', [D], true);
  return list;
}

function safetensors(list) {
  const header = {};
  let end = 0;
  for (const [name, shape, values] of list) {
    header[name] = { dtype: 'F32', shape, data_offsets: [end, end + values.byteLength] };
    end += values.byteLength;
  }
  let text = JSON.stringify(header);
  text += ' '.repeat((8 - (text.length % 8)) % 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const parts = list.map(([, , v]) => Buffer.from(v.buffer, v.byteOffset, v.byteLength));
  return Buffer.concat([length, Buffer.from(text), ...parts]);
}

// Options: positions, scale of the weights (larger: surer of what it says), seed, template (Jinja of chats).
export async function makeModel(
  folder,
  { positions = 256, scale = 0.6, seed = 1, template = null } = {},
) {
  const vocab = Object.fromEntries(SPECIAL.map((token, id) => [token, id]));
  for (const [b, c] of byteCharacters().entries()) {
    vocab[c] = SPECIAL.length + b;
  }
  const size = SPECIAL.length + 256;
  const config = {
    model_type: 'llama',
    architectures: ['LlamaForCausalLM'],
    vocab_size: size,
    hidden_size: SIZE.hidden,
    intermediate_size: SIZE.inner,
    num_hidden_layers: SIZE.layers,
    num_attention_heads: SIZE.heads,
    num_key_value_heads: SIZE.keys,
    max_position_embeddings: positions,
    tie_word_embeddings: true,
    bos_token_id: 0,
    eos_token_id: 1,
  };
  const tokenizer = {
    version: '1.0',
    added_tokens: SPECIAL.map((content, id) => ({
      id,
      content,
      special: true,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
    })),
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab, merges: [] },
  };
  const words = { bos_token: '<s>', eos_token: '</s>' };
  if (template !== null) {
    words.chat_template = template;
  }
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'config.json'), JSON.stringify(config));
  await writeFile(join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  await writeFile(join(folder, 'tokenizer_config.json'), JSON.stringify(words));
  await writeFile(join(folder, 'model.safetensors'), safetensors(tensors(size, scale, seed)));
}
