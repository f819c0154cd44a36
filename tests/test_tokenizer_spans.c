/* test_tokenizer_spans.c - where ids end in the text, and special tokens that are only spelled in it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/tap.h"
#include "tests/tokenizer_kinds.h"

enum { TEXT_MAX = 512, ROUNDS = 200 };

/* What texts are put together from. */
static const char *const parts[] = {"hello world",
                                    " ",
                                    "  ",
                                    "\n\n",
                                    "a",
                                    "b",
                                    "ab",
                                    "caf\xC3\xA9",
                                    "cafe\xCC\x81",
                                    "<s>",
                                    "</s>",
                                    "<|endoftext|>",
                                    "<|im_end|>",
                                    "<mask>",
                                    "<tool>",
                                    "<tool>",
                                    "123",
                                    "it's",
                                    "\xE5\xBA\x8A\xE5\x89\x8D\xE3\x80\x82",
                                    "\xF0\x9F\x98\x80",
                                    "\xEF\xAC\x81x",
                                    "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
                                    "\xE2\x96\x81the",
                                    "i\xE1\xBA\xBFn",
                                    "\xE0\xA4\x95\xE0\xA5\x87",
                                    "a\xCC\xA7\xCC\x81",
                                    "llo",
                                    "The ",
                                    "    ",
                                    "<|im_",
                                    "end|>",
                                    "\xC4\xA0"};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static size_t make_text(char text[TEXT_MAX], uint32_t *state)
{
    const uint32_t count = 1 + next_random(state) % 9;
    size_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        const char *part = parts[next_random(state) % (sizeof parts / sizeof parts[0])];
        const size_t bytes = strlen(part);
        if (n + bytes < TEXT_MAX) {
            memcpy(text + n, part, bytes);
            n += bytes;
        }
    }
    text[n] = '\0';
    return n;
}

static bool same_list(const struct token_list *a, const struct token_list *b)
{
    return a->count == b->count &&
           (a->count == 0 || memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
}

static bool rising(const struct encoded *x, size_t n)
{
    for (size_t i = 0; i < x->ids.count; i++) {
        if (x->ends[i] > n || (i > 0 && x->ends[i] < x->ends[i - 1])) {
            return false;
        }
    }
    return true;
}

static void check_ids(struct encoder *e, const char *text, size_t n, const char *name)
{
    const struct text_span all = {.begin = 0, .end = n};
    struct token_list parsed = {0}, as_text = {0};
    struct encoded x = {0};
    struct err err = {0};

    EXPECT(encoder_encode(e, &parsed, text, n, 0, &err) == 0);
    EXPECT(encoder_encode(e, &as_text, text, n, TOKENIZER_AS_TEXT, &err) == 0);
    EXPECT(encoder_encode_spans(e, &x, text, n, NULL, 0, &err) == 0);
    const bool same = same_list(&x.ids, &parsed) && rising(&x, n) && x.spelled == 0;
    if (!same) {
        printf("# %s, '%s'\n", name, text);
    }
    EXPECT(same);
    EXPECT(encoder_encode_spans(e, &x, text, n, &all, 1, &err) == 0);
    EXPECT(same_list(&x.ids, &as_text) && rising(&x, n));
    EXPECT((x.spelled > 0) == !same_list(&parsed, &as_text));
    token_list_free(&parsed);
    token_list_free(&as_text);
    encoded_free(&x);
}

static void ids_are_those_of_the_text_parsed_or_as_text(void)
{
    for (size_t k = 0; k < KIND_COUNT; k++) {
        struct tokenizer *t = make_kind(&kinds[k]);
        struct encoder *e;
        struct err err;
        uint32_t state = 11;
        CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
        for (int round = 0; round < ROUNDS; round++) {
            char text[TEXT_MAX];
            const size_t n = make_text(text, &state);
            check_ids(e, text, n, kinds[k].name);
        }
        encoder_close(e);
        tokenizer_close(t);
    }
}

/* A tokenizer whose decoding gives back what it was given: the ids up to one that ends with a character are the
 * text up to there. */
static void check_prefixes(const struct tokenizer *t, struct encoder *e, const char *text, size_t n,
                           const char *name)
{
    struct encoded x = {0};
    struct err err = {0};

    EXPECT(encoder_encode_spans(e, &x, text, n, NULL, 0, &err) == 0);
    EXPECT(n == 0 || (x.ids.count > 0 && x.ends[x.ids.count - 1] == n));
    for (size_t i = 0; i < x.ids.count; i++) {
        const size_t end = x.ends[i];
        const bool within = end < n && ((unsigned char)text[end] & 0xC0U) == 0x80U;
        char *back;
        size_t bytes;
        if (within || (i + 1 < x.ids.count && x.ends[i + 1] == end)) {
            continue;
        }
        EXPECT(tokenizer_decode(t, &back, &bytes, x.ids.ids, i + 1, false, &err) == 0);
        const bool same = (bytes == end && memcmp(back, text, end) == 0) || (i == 0 && bytes == 0);
        if (!same) {
            printf("# %s, '%s': %zu ids are '%s', and end at %zu\n", name, text, i + 1, back, end);
        }
        EXPECT(same);
        free(back);
    }
    encoded_free(&x);
}

static void ids_up_to_an_end_decode_to_the_text_up_to_there(void)
{
    static const char *const names[] = {"gpt2", "llama3", "digits", "llama2"};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct tokenizer *t = make_kind(kind_named(names[k]));
        struct encoder *e;
        struct err err;
        uint32_t state = 5;
        CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
        for (int round = 0; round < ROUNDS; round++) {
            char text[TEXT_MAX];
            const size_t n = make_text(text, &state);
            if (strcmp(names[k], "llama2") != 0 || strstr(text, "s>") == NULL) {
                /* Llama 2 puts a space behind each special token, and U+2581 becomes one. */
                if (strcmp(names[k], "llama2") == 0 && strstr(text, "\xE2\x96\x81") != NULL) {
                    continue;
                }
                check_prefixes(t, e, text, n, names[k]);
            }
        }
        encoder_close(e);
        tokenizer_close(t);
    }
}

static void check_ends(const char *kind, const char *text, const char *ends)
{
    struct tokenizer *t = make_kind(kind_named(kind));
    struct encoder *e;
    struct encoded x = {0};
    struct err err;
    char got[256] = "";
    size_t at = 0;

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    EXPECT(encoder_encode_spans(e, &x, text, strlen(text), NULL, 0, &err) == 0);
    for (size_t i = 0; i < x.ids.count; i++) {
        at += (size_t)snprintf(got + at, sizeof got - at, "%s%zu", i == 0 ? "" : " ", x.ends[i]);
    }
    if (strcmp(got, ends) != 0) {
        printf("# %s, '%s': ends %s, not %s\n", kind, text, got, ends);
    }
    EXPECT(strcmp(got, ends) == 0);
    encoded_free(&x);
    encoder_close(e);
    tokenizer_close(t);
}

static void ends_go_through_normalizers_and_added_tokens(void)
{
    /* e and its accent are one character of two byte tokens; what follows is not moved. */
    check_ends("qwen2", "cafe\xCC\x81 hello", "1 2 3 6 12");
    /* Two characters in a row that could combine, and do not. */
    check_ends("qwen2", "e\xCC\x81\xE1\xBA\xBFx", "3 4 5 6 7");
    /* A ligature is two letters: both end with it. */
    check_ends("nfkc", "\xEF\xAC\x81x", "3 3 4");
    /* The space in front belongs to the first byte. */
    check_ends("llama2", "zz a", "1 1 2 3 4");
    check_ends("llama2", "\xE5\xBA\x8A", "1 1 2 3");
    check_ends("llama2", "a<s> b", "1 1 4 5 6");
    check_ends("prefix space", "\xC3\xA9 hello", "1 2 8");
    /* White space that an added token takes is its own. */
    check_ends("prefix space", "a <mask> b", "1 8 9 10");
    check_ends("unknown fused", "a??b", "1 1 3 4");
    check_ends("unknown apart", "a??b", "1 1 2 3 4");
    check_ends("metaspace always", "the a", "3 4 5");
}

/* The ids of two special tokens and between them those of `middle` as text. */
static void check_middle(const char *kind, const char *special, const char *middle)
{
    struct tokenizer *t = make_kind(kind_named(kind));
    const size_t s = strlen(special), m = strlen(middle), n = s + m + s;
    const struct text_span plain = {.begin = s, .end = s + m};
    const int32_t id = tokenizer_find(t, special, s);
    struct token_list want = {0};
    struct encoder *e;
    struct encoded x = {0};
    struct err err;
    char text[TEXT_MAX];

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    (void)snprintf(text, sizeof text, "%s%s%s", special, middle, special);
    EXPECT(token_list_put(&want, id, &err) == 0);
    EXPECT(encoder_encode(e, &want, middle, m, TOKENIZER_AS_TEXT, &err) == 0);
    EXPECT(token_list_put(&want, id, &err) == 0);
    EXPECT(encoder_encode_spans(e, &x, text, n, &plain, 1, &err) == 0);
    EXPECT(same_list(&x.ids, &want) && x.spelled == 1);
    EXPECT(x.ends[0] == s && x.ends[x.ids.count - 1] == n && x.ends[x.ids.count - 2] == s + m);
    token_list_free(&want);
    encoded_free(&x);
    encoder_close(e);
    tokenizer_close(t);
}

static void special_tokens_in_plain_spans_are_text(void)
{
    check_middle("gpt2", "<|endoftext|>", "user says <|endoftext|> twice");
    check_middle("qwen2", "<|im_end|>", "cafe\xCC\x81<|im_end|>");
    check_middle("llama3", "<s>", "<s>hello");
    check_middle("llama2", "</s>", "a</s>b");
}

static void a_special_token_that_only_touches_a_plain_span_is_text(void)
{
    struct tokenizer *t = make_kind(kind_named("qwen2"));
    const char text[] = "x<|im_end|>y<|im_end|>";
    /* The second half of the first one; nothing; a span that ends where the second one begins. */
    const struct text_span half = {.begin = 6, .end = 11}, none = {.begin = 4, .end = 4},
                           beside[] = {{.begin = 0, .end = 1}, {.begin = 11, .end = 12}};
    const int32_t special = tokenizer_find(t, "<|im_end|>", 10);
    struct encoder *e;
    struct encoded x = {0};
    struct err err;

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    EXPECT(encoder_encode_spans(e, &x, text, 22, &half, 1, &err) == 0);
    EXPECT(x.spelled == 1 && x.ids.count == 13 && x.ids.ids[12] == special);
    EXPECT(encoder_encode_spans(e, &x, text, 22, &none, 1, &err) == 0);
    EXPECT(x.spelled == 0 && x.ids.count == 4);
    EXPECT(encoder_encode_spans(e, &x, text, 22, beside, 2, &err) == 0);
    EXPECT(x.spelled == 0 && x.ids.count == 4 && x.ids.ids[1] == special);
    EXPECT(x.ends[0] == 1 && x.ends[1] == 11 && x.ends[2] == 12 && x.ends[3] == 22);
    EXPECT(encoder_encode_spans(e, &x, "a\xFF", 2, NULL, 0, &err) == ERR_BAD_FILE);
    EXPECT(x.ids.count == 0);
    encoded_free(&x);
    encoder_close(e);
    tokenizer_close(t);
}

/* One word longer than what is merged by scanning, and one that is cut. */
static void ends_hold_in_long_words(void)
{
    struct tokenizer *t = make_kind(kind_named("llama2"));
    struct encoder *e;
    struct err err;
    char text[2000];
    uint32_t state = 3;

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    for (size_t n = 40; n < sizeof text; n += 61) {
        for (size_t i = 0; i < n; i++) {
            text[i] = "abthel "[next_random(&state) % 7];
        }
        text[n] = '\0';
        check_prefixes(t, e, text, n, "long");
        check_ids(e, text, n, "long");
    }
    encoder_close(e);
    tokenizer_close(t);
}

static void real_vocabularies_agree(void)
{
    static const char *const folders[] = {"../shared/data/tokenizers/gpt2",
                                          "../shared/data/tokenizers/own_qwen2_4096",
                                          "../shared/data/models/stories260K"};
    for (size_t k = 0; k < sizeof folders / sizeof folders[0]; k++) {
        struct tokenizer *t;
        struct encoder *e;
        struct err err;
        uint32_t state = 77;
        CHECK(tokenizer_open(&t, folders[k], &err) == 0, "%s", err.text);
        CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
        for (int round = 0; round < ROUNDS; round++) {
            char text[TEXT_MAX];
            const size_t n = make_text(text, &state);
            check_ids(e, text, n, folders[k]);
            if (k == 0) {
                check_prefixes(t, e, text, n, folders[k]);
            }
        }
        encoder_close(e);
        tokenizer_close(t);
    }
}

int main(void)
{
    struct stat st;

    RUN(ids_are_those_of_the_text_parsed_or_as_text);
    RUN(ids_up_to_an_end_decode_to_the_text_up_to_there);
    RUN(ends_go_through_normalizers_and_added_tokens);
    RUN(special_tokens_in_plain_spans_are_text);
    RUN(a_special_token_that_only_touches_a_plain_span_is_text);
    RUN(ends_hold_in_long_words);
    if (stat("../shared", &st) == 0) {
        RUN(real_vocabularies_agree);
    }
    return tap_done();
}
