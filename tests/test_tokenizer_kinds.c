/* test_tokenizer_kinds.c - tokenizers of every kind against the `tokenizers` library, without a file. */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/tokenizer_kinds.h"

static bool same_ids(const struct token_list *got, const char *want, const char *kind,
                     const char *text)
{
    char *list = NULL;
    size_t n;
    FILE *f = open_memstream(&list, &n);

    for (size_t i = 0; i < got->count; i++) {
        (void)fprintf(f, "%s%d", i == 0 ? "" : " ", (int)got->ids[i]);
    }
    CHECK(fclose(f) == 0, "no memory");
    const bool same = strcmp(list, want) == 0;
    if (!same) {
        printf("# %s: '%s' is %s, not %s\n", kind, text, list, want);
    }
    free(list);
    return same;
}

static void check_decoded(const struct tokenizer *t, const struct token_list *ids, const char *want)
{
    struct decoder *d;
    struct err err;
    char *whole = NULL;
    size_t n = 0, at = 0;

    EXPECT(tokenizer_decode(t, &whole, &n, ids->ids, ids->count, false, &err) == 0);
    if (strcmp(whole, want) != 0) {
        printf("# decoded '%s', not '%s'\n", whole, want);
    }
    EXPECT(strcmp(whole, want) == 0);
    CHECK(decoder_open(&d, t, false, &err) == 0, "%s", err.text);
    for (size_t i = 0; i <= ids->count; i++) {
        const char *piece;
        size_t bytes;
        EXPECT((i < ids->count ? decoder_put(d, ids->ids[i], &piece, &bytes, &err)
                               : decoder_end(d, &piece, &bytes, &err)) == 0);
        EXPECT(utf8_prefix(piece, bytes, NULL) == bytes);
        EXPECT(at + bytes <= n && memcmp(whole + at, piece, bytes) == 0);
        at += bytes;
    }
    EXPECT(at == n);
    decoder_close(d);
    free(whole);
}

static void check_kind(const struct kind *k)
{
    struct tokenizer *t = make_kind(k);
    struct encoder *e;
    struct err err;

    EXPECT(t != NULL);
    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    for (int i = 0; i < TEXTS_MAX && k->texts[i].text != NULL; i++) {
        const char *text = k->texts[i].text, *ids = k->texts[i].ids;
        struct token_list got = {0};
        EXPECT(encoder_encode(e, &got, text, strlen(text), 0, &err) == 0);
        EXPECT(same_ids(&got, ids, k->name, text));
        check_decoded(t, &got, k->texts[i].decoded != NULL ? k->texts[i].decoded : text);
        got.count = 0;
        EXPECT(encoder_encode(e, &got, text, strlen(text), TOKENIZER_ADD_SPECIAL, &err) == 0);
        EXPECT(
            same_ids(&got, k->texts[i].special != NULL ? k->texts[i].special : ids, k->name, text));
        token_list_free(&got);
    }
    encoder_close(e);
    tokenizer_close(t);
}

static void every_kind_has_the_ids_and_the_text_of_the_library(void)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        check_kind(&kinds[i]);
    }
}

static void special_tokens_are_text_when_asked(void)
{
    struct tokenizer *t = make_kind(kind_named("gpt2"));
    struct token_list ids = {0};
    struct encoder *e;
    struct err err;
    const char text[] = "a<|endoftext|>";

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    EXPECT(encoder_encode(e, &ids, text, strlen(text), 0, &err) == 0);
    EXPECT(ids.count == 2 && tokenizer_is_special(t, ids.ids[1]));
    ids.count = 0;
    EXPECT(encoder_encode(e, &ids, text, strlen(text), TOKENIZER_AS_TEXT, &err) == 0);
    EXPECT(ids.count == 14);
    for (size_t i = 0; i < ids.count; i++) {
        EXPECT(!tokenizer_is_special(t, ids.ids[i]));
    }
    token_list_free(&ids);
    encoder_close(e);
    tokenizer_close(t);
}

static void decoding_leaves_special_tokens_out_when_asked(void)
{
    struct tokenizer *t = make_kind(kind_named("llama2"));
    const int32_t ids[] = {1, 0, 2, tokenizer_find(t, "\xE2\x96\x81hello", 8), 2, 9999999, -5};
    struct err err;
    char *text = NULL;
    size_t n;

    EXPECT(ids[3] > 0);
    EXPECT(tokenizer_decode(t, &text, &n, ids, 7, true, &err) == 0);
    EXPECT(strcmp(text, "hello") == 0 && n == 5);
    free(text);
    EXPECT(tokenizer_decode(t, &text, &n, ids, 7, false, &err) == 0);
    EXPECT(strcmp(text, "<s><unk></s> hello</s>") == 0);
    free(text);
    tokenizer_close(t);
}

static void bytes_that_are_no_character_become_replacement_marks(void)
{
    struct tokenizer *bytes = make_kind(kind_named("gpt2")),
                     *pieces = make_kind(kind_named("llama2"));
    const int32_t broken[] = {161, 118, 64, 161}; /* E5 BA a E5 */
    const int32_t run[] = {3 + 0xE5, 3 + 0xBA, 3 + 0x8A, 3 + 0xE5, 3 + 0xBA};
    struct err err;
    char *text = NULL;
    size_t n;

    EXPECT(tokenizer_decode(bytes, &text, &n, broken, 4, false, &err) == 0);
    EXPECT(strcmp(text, "\xEF\xBF\xBD"
                        "a\xEF\xBF\xBD") == 0);
    free(text);
    EXPECT(tokenizer_decode(pieces, &text, &n, run, 3, false, &err) == 0);
    EXPECT(strcmp(text, "\xE5\xBA\x8A") == 0);
    free(text);
    /* A run that is not UTF-8 as a whole is one mark for each byte. */
    EXPECT(tokenizer_decode(pieces, &text, &n, run, 5, false, &err) == 0);
    EXPECT(n == 15);
    free(text);
    tokenizer_close(bytes);
    tokenizer_close(pieces);
}

/* Each thread has its own; here they take turns. */
static void encoders_do_not_disturb_each_other(void)
{
    struct tokenizer *t = make_kind(kind_named("qwen2"));
    struct token_list x = {0}, y = {0};
    struct encoder *a, *b;
    struct err err;

    CHECK(encoder_open(&a, t, &err) == 0 && encoder_open(&b, t, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        EXPECT(encoder_encode(a, &x, "hello world", 11, 0, &err) == 0);
        EXPECT(encoder_encode(b, &y, "world hello", 11, 0, &err) == 0);
    }
    EXPECT(same_ids(&x, "259 265 259 265 259 265", "a", "hello world"));
    encoder_close(a);
    EXPECT(encoder_encode(b, &x, " world", 6, 0, &err) == 0);
    EXPECT(x.count == 7 && x.ids[6] == 265);
    encoder_close(b);
    token_list_free(&x);
    token_list_free(&y);
    tokenizer_close(t);
}

int main(void)
{
    RUN(every_kind_has_the_ids_and_the_text_of_the_library);
    RUN(special_tokens_are_text_when_asked);
    RUN(decoding_leaves_special_tokens_out_when_asked);
    RUN(bytes_that_are_no_character_become_replacement_marks);
    RUN(encoders_do_not_disturb_each_other);
    return tap_done();
}
