/* test_encoder_pool.c - several threads give the ids of one, whatever the text and wherever they start. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/tap.h"
#include "tests/tokenizer_kinds.h"
#include "trainer/tokenizer/encoder_pool.h"

enum { TEXT_BYTES = 540000 };

/* The thread sanitizer takes minutes for all of it, and learns nothing new from another vocabulary. */
#ifdef __SANITIZE_THREAD__
enum { KIND_STEP = 9, OF_A_KIND = 1, REAL_BYTES = 1 << 18 };
#else
enum { KIND_STEP = 1, OF_A_KIND = 3, REAL_BYTES = 2 << 20 };
#endif

static const char *const parts[] = {"hello world",
                                    " ",
                                    "    ",
                                    "\n\n",
                                    "\n",
                                    "a",
                                    "ab",
                                    "caf\xC3\xA9",
                                    "cafe\xCC\x81",
                                    "<s>",
                                    "<tool>",
                                    "<|endoftext|>",
                                    "<mask>",
                                    "123",
                                    "it's",
                                    "\xE5\xBA\x8A\xE5\x89\x8D\xE3\x80\x82",
                                    "\xF0\x9F\x98\x80",
                                    "the ",
                                    ".",
                                    ", ",
                                    "aaaaaaaaaaaa"};

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static size_t make_text(char *text, uint32_t seed)
{
    uint32_t state = seed;
    size_t n = 0;

    while (n < TEXT_BYTES) {
        const char *part = parts[next_random(&state) % (sizeof parts / sizeof parts[0])];
        const size_t bytes = strlen(part);
        memcpy(text + n, part, bytes + 1);
        n += bytes;
    }
    return n;
}

/* In two parts, the second from where the first was left. */
static int encode(struct encoder_pool *p, struct token_list *out, const char *text, size_t n,
                  size_t at, struct err *err)
{
    size_t used = 0;

    if (at > 0) {
        TRY(encoder_pool_encode_part(p, out, text, at, true, false, &used, err));
        EXPECT(used <= at);
    }
    const size_t from = used;
    TRY(encoder_pool_encode_part(p, out, text + from, n - from, from == 0, true, &used, err));
    EXPECT(used == n - from);
    return 0;
}

static void check(const struct tokenizer *t, const char *text, size_t n, const char *name)
{
    struct token_list want = {0};
    struct encoder *e;
    struct err err = {0};

    CHECK(encoder_open(&e, t, &err) == 0, "%s", err.text);
    EXPECT(encoder_encode(e, &want, text, n, 0, &err) == 0);
    for (int threads = 2; threads <= 5; threads += 3) {
        struct encoder_pool *p;
        struct token_list got = {0};
        size_t half = n / 2;
        CHECK(encoder_pool_open(&p, t, threads, &err) == 0, "%s", err.text);
        while ((text[half] & 0xC0) == 0x80) {
            half++;
        }
        for (int parts_of = 1; parts_of <= 2; parts_of++) {
            got.count = 0;
            EXPECT(encode(p, &got, text, n, parts_of == 1 ? 0 : half, &err) == 0);
            const bool same = got.count == want.count &&
                              memcmp(got.ids, want.ids, want.count * sizeof *want.ids) == 0;
            if (!same) {
                printf("# %s by %d threads in %d: %zu ids, not %zu\n", name, threads, parts_of,
                       got.count, want.count);
            }
            EXPECT(same);
        }
        token_list_free(&got);
        encoder_pool_close(p);
    }
    token_list_free(&want);
    encoder_close(e);
}

static void any_number_of_threads_gives_the_same_ids(void)
{
    char *text = malloc(TEXT_BYTES + 64);

    for (size_t k = 0; k < KIND_COUNT; k += KIND_STEP) {
        struct tokenizer *t = make_kind(&kinds[k]);
        const size_t n = make_text(text, (uint32_t)k + 1);
        check(t, text, n, kinds[k].name);
        tokenizer_close(t);
    }
    free(text);
}

/* One word, and one letter: where a thread starts tells nothing about where the ones before it cut. */
static void texts_without_places_to_cut_are_encoded_too(void)
{
    static const char *const names[] = {"gpt2", "llama2", "unknown apart"};
    char *text = malloc(TEXT_BYTES);

    for (size_t k = 0; k < OF_A_KIND; k++) {
        struct tokenizer *t = make_kind(kind_named(names[k]));
        memset(text, 'a', TEXT_BYTES);
        check(t, text, TEXT_BYTES / 2, names[k]);
        memset(text, ' ', TEXT_BYTES);
        check(t, text, TEXT_BYTES / 2 + 1, names[k]);
        for (size_t i = 0; i < TEXT_BYTES; i++) {
            text[i] = i % 2 == 0 ? 'a' : 'b';
        }
        check(t, text, TEXT_BYTES / 2 + 3, names[k]);
        tokenizer_close(t);
    }
    free(text);
}

static void a_text_that_is_not_utf8_fails_as_with_one_thread(void)
{
    struct tokenizer *t = make_kind(kind_named("gpt2"));
    struct encoder_pool *p;
    struct token_list got = {0};
    struct err err = {0};
    char *text = malloc(TEXT_BYTES);
    size_t used;

    memset(text, 'a', TEXT_BYTES);
    text[400000] = '\xFF';
    CHECK(encoder_pool_open(&p, t, 2, &err) == 0, "%s", err.text);
    EXPECT(encoder_pool_encode_part(p, &got, text, TEXT_BYTES, true, true, &used, &err) ==
           ERR_BAD_FILE);
    EXPECT(strstr(err.text, "byte 400001") != NULL && got.count == 0);
    token_list_free(&got);
    encoder_pool_close(p);
    tokenizer_close(t);
    free(text);
}

static void a_real_text_has_the_same_ids(void)
{
    static const char *const folders[] = {"../shared/data/tokenizers/gpt2",
                                          "../shared/data/tokenizers/own_qwen2_4096",
                                          "../shared/data/models/stories260K"};
    FILE *f = fopen("../shared/data/text/tinyshakespeare.txt", "rb");
    char *text = malloc(REAL_BYTES);
    struct err err;

    CHECK(f != NULL, "no text");
    const size_t n = fread(text, 1, REAL_BYTES, f);
    (void)fclose(f);
    for (size_t k = 0; k < OF_A_KIND; k++) {
        struct tokenizer *t;
        CHECK(tokenizer_open(&t, folders[k], &err) == 0, "%s", err.text);
        check(t, text, n, folders[k]);
        tokenizer_close(t);
    }
    free(text);
}

int main(void)
{
    struct stat st;

    RUN(any_number_of_threads_gives_the_same_ids);
    RUN(texts_without_places_to_cut_are_encoded_too);
    RUN(a_text_that_is_not_utf8_fails_as_with_one_thread);
    if (stat("../shared/data/text/tinyshakespeare.txt", &st) == 0) {
        RUN(a_real_text_has_the_same_ids);
    }
    return tap_done();
}
