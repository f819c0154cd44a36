/* tiktoken.c - a tiktoken file to the JSON of a tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/foreign.h"

enum { TOKEN_BYTES_MAX = 512 }; /* all ways to split a token are tried */

#define WORDS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define FIRST "[^\\r\\n\\p{L}\\p{N}]?"

static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char cl100k[] = WORDS "|" FIRST "\\p{L}+|\\p{N}{1,3}" TAIL;
static const char qwen[] = WORDS "|" FIRST "\\p{L}+|\\p{N}" TAIL;
static const char o200k[] =
    FIRST UPPER "*" LOWER "+" WORDS "?|" FIRST UPPER "+" LOWER "*" WORDS
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
                "\\s+(?!\\S)|\\s+";

/* Special tokens: `count` of them from `id` on when `text` has numbers from `first` on behind it. */
struct known_token {
    int32_t id;
    const char *text;
    int first, count;
};

enum { KNOWN_TOKENS = 12 };

static const struct known {
    const char *name;
    int64_t size; /* highest rank + 1 */
    const char *pattern;
    int32_t bos; /* put in front of a text, -1: none */
    struct known_token tokens[KNOWN_TOKENS];
} known[] = {
    {"GPT-2", 50256, gpt2, -1, {{50256, "<|endoftext|>", 0, 0}}},
    {"p50k", 50281, gpt2, -1, {{50256, "<|endoftext|>", 0, 0}}},
    {"cl100k",
     100256,
     cl100k,
     -1,
     {{100257, "<|endoftext|>", 0, 0},
      {100258, "<|fim_prefix|>", 0, 0},
      {100259, "<|fim_middle|>", 0, 0},
      {100260, "<|fim_suffix|>", 0, 0},
      {100276, "<|endofprompt|>", 0, 0}}},
    {"o200k",
     199998,
     o200k,
     -1,
     {{199999, "<|endoftext|>", 0, 0}, {200018, "<|endofprompt|>", 0, 0}}},
    {"Llama 3",
     128000,
     cl100k,
     128000,
     {{128000, "<|begin_of_text|>", 0, 0},
      {128001, "<|end_of_text|>", 0, 0},
      {128002, "<|reserved_special_token_", 0, 2},
      {128004, "<|finetune_right_pad_id|>", 0, 0},
      {128005, "<|reserved_special_token_", 2, 1},
      {128006, "<|start_header_id|>", 0, 0},
      {128007, "<|end_header_id|>", 0, 0},
      {128008, "<|eom_id|>", 0, 0},
      {128009, "<|eot_id|>", 0, 0},
      {128010, "<|python_tag|>", 0, 0},
      {128011, "<|reserved_special_token_", 3, 245}}},
    {"Qwen",
     151643,
     qwen,
     -1,
     {{151643, "<|endoftext|>", 0, 0},
      {151644, "<|im_start|>", 0, 0},
      {151645, "<|im_end|>", 0, 0},
      {151646, "<|extra_", 0, 205}}},
};

static const struct known *known_of(int64_t size)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].size == size) {
            return &known[i];
        }
    }
    return NULL;
}

/* What is read; lists by rank. */
struct ranks {
    json_t *vocab; /* borrowed: printable forms, null where there is none */
    size_t line;
    bool bytes[256]; /* has a token */
    struct text token, printable;
};

/* A line without its end: base64, a space, the rank. */
static int read_line(struct ranks *r, const char *s, size_t n, struct err *err)
{
    const char *space = memchr(s, ' ', n);
    const size_t length = space == NULL ? 0 : (size_t)(space - s);
    int64_t rank = 0;
    size_t i = length + 1;

    for (; i < n && s[i] >= '0' && s[i] <= '9' && rank < TOKEN_ID_MAX; i++) {
        rank = rank * 10 + (s[i] - '0');
    }
    if (length == 0 || i != n || i == length + 1 || rank >= TOKEN_ID_MAX) {
        return FAIL(err, ERR_BAD_FILE, "line %zu of the tiktoken file is not a token and its rank",
                    r->line);
    }
    r->token.n = 0;
    if (text_put_base64(&r->token, s, length, err) != 0 || r->token.n == 0 ||
        r->token.n > TOKEN_BYTES_MAX) {
        return FAIL(err, ERR_BAD_FILE,
                    "line %zu of the tiktoken file is no token of 1 to %d bytes in base64", r->line,
                    TOKEN_BYTES_MAX);
    }
    TRY(text_reserve(&r->printable, 2 * r->token.n, err));
    r->printable.n = 0;
    for (size_t k = 0; k < r->token.n; k++) {
        const unsigned char byte = (unsigned char)r->token.at[k];
        r->printable.n += utf8_write(r->printable.at + r->printable.n, byte_to_char(byte));
        r->bytes[byte] = r->bytes[byte] || r->token.n == 1;
    }
    while ((int64_t)json_array_size(r->vocab) <= rank) {
        (void)json_array_append_new(r->vocab, json_null());
    }
    if (!json_is_null(json_array_get(r->vocab, (size_t)rank))) {
        return FAIL(err, ERR_BAD_FILE,
                    "line %zu of the tiktoken file has a rank that was there before", r->line);
    }
    (void)json_array_set_new(r->vocab, (size_t)rank, json_stringn(r->printable.at, r->printable.n));
    return 0;
}

static int read_lines(struct ranks *r, const char *bytes, size_t n, struct err *err)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        const size_t whole = end == NULL ? n - at : (size_t)(end - bytes) - at;
        const size_t line = whole > 0 && bytes[at + whole - 1] == '\r' ? whole - 1 : whole;
        r->line++;
        if (line > 0) {
            TRY(read_line(r, bytes + at, line, err));
        }
        at += whole + 1;
    }
    for (int b = 0; b < 256; b++) {
        if (!r->bytes[b]) {
            return FAIL(err, ERR_BAD_FILE, "the tiktoken file has no token for byte 0x%02X",
                        (unsigned)b);
        }
    }
    return 0;
}

static json_t *known_tokens(const struct known *k)
{
    json_t *tokens = json_object();

    for (size_t i = 0; k != NULL && i < KNOWN_TOKENS && k->tokens[i].text != NULL; i++) {
        const struct known_token *t = &k->tokens[i];
        for (int j = 0; j < t->count; j++) {
            char name[64];
            const int n = snprintf(name, sizeof name, "%s%d|>", t->text, t->first + j);
            foreign_put_token(tokens, t->id + j, name, (size_t)n, true);
        }
        if (t->count == 0) {
            foreign_put_token(tokens, t->id, t->text, strlen(t->text), true);
        }
    }
    return tokens;
}

static json_t *model_json(json_t *vocab)
{
    json_t *order = json_array();

    for (size_t i = 0; i < json_array_size(vocab); i++) {
        if (!json_is_null(json_array_get(vocab, i))) {
            (void)json_array_append_new(order, json_integer((json_int_t)i));
        }
    }
    return json_pack("{s:s, s:O, s:o, s:b}", "type", "BPE", "vocab", vocab, "merge_order", order,
                     "ignore_merges", 1);
}

static void fill(struct foreign *out, json_t *vocab, const json_t *config)
{
    const struct known *k = known_of((int64_t)json_array_size(vocab));
    const char *given = json_string_value(json_object_get(config, "pat_str"));
    const char *pattern = given != NULL ? given : k != NULL ? k->pattern : cl100k;

    out->bos = k != NULL ? k->bos : -1;
    const int32_t before = foreign_flag(config, "add_bos_token", true) ? out->bos : -1;
    json_t *level =
        json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0);
    json_t *split = json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "Regex", pattern,
                              "behavior", "Isolated");
    out->root = json_pack("{s:{s:s, s:[o, O]}, s:o, s:o, s:o, s:o}", "pre_tokenizer", "type",
                          "Sequence", "pretokenizers", split, level, "decoder", level,
                          "post_processor", foreign_template(before, -1), "added_tokens",
                          foreign_tokens(known_tokens(k), config), "model", model_json(vocab));
}

int tiktoken_read(struct foreign *out, const char *bytes, size_t n, const json_t *config,
                  struct err *err)
{
    struct ranks r = {.vocab = json_array()};

    *out = (struct foreign){.bos = -1, .eos = -1, .pad = -1};
    int rc = read_lines(&r, bytes, n, err);
    if (rc == 0) {
        fill(out, r.vocab, config);
        rc = out->root != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    text_free(&r.token);
    text_free(&r.printable);
    json_decref(r.vocab);
    return rc;
}
