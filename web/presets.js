// presets.js - small new models to start from, as Hugging Face configs, with settings that suit them. Their
// vocabulary is that of the tokenizer which is trained on the text.

function llama(hidden, inner, layers, heads, context) {
  return {
    model_type: 'llama',
    architectures: ['LlamaForCausalLM'],
    hidden_size: hidden,
    intermediate_size: inner,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: heads / 2,
    max_position_embeddings: context,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    hidden_act: 'silu',
    tie_word_embeddings: true,
  };
}

function gpt2(hidden, layers, heads, context) {
  return {
    model_type: 'gpt2',
    architectures: ['GPT2LMHeadModel'],
    n_embd: hidden,
    n_layer: layers,
    n_head: heads,
    n_positions: context,
    activation_function: 'gelu_new',
    layer_norm_epsilon: 1e-5,
    tie_word_embeddings: true,
  };
}

const TINY = { sequence_length: 128, global_batch_size: 8, learning_rate: 0.002, max_steps: 300 };
const SMALL = {
  sequence_length: 256,
  global_batch_size: 16,
  learning_rate: 0.001,
  max_steps: 1000,
};

export const PRESETS = [
  {
    id: 'llama-tiny',
    config: llama(128, 352, 4, 4, 256),
    fields: { ...TINY, tokenizer_vocab_size: 1024 },
  },
  {
    id: 'llama-small',
    config: llama(384, 1024, 6, 6, 512),
    fields: { ...SMALL, tokenizer_vocab_size: 8192 },
  },
  {
    id: 'gpt2-tiny',
    config: gpt2(128, 4, 4, 256),
    fields: { ...TINY, tokenizer_vocab_size: 1024 },
  },
  {
    id: 'gpt2-small',
    config: gpt2(384, 6, 6, 512),
    fields: { ...SMALL, tokenizer_vocab_size: 8192 },
  },
];
