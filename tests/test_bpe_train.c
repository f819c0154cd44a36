/* test_bpe_train.c - learning a byte-level BPE: known merges, determinism, loading what was saved. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tap.h"
#include "trainer/base/io.h"
#include "trainer/tokenizer/tokenizer.h"

static char folder[] = "/tmp/hone-bpe-XXXXXX";

static const char *write_text(const char *text)
{
    static char path[256];
    struct err err;

    (void)snprintf(path, sizeof path, "%s/text", folder);
    EXPECT(io_write_file(path, text, strlen(text), &err) == 0);
    return path;
}

static struct tokenizer *train(const char *path, int64_t size, enum bpe_pattern pattern)
{
    const struct bpe_options o = {.vocab_size = size, .pattern = pattern};
    struct tokenizer *t;
    struct err err = {0};

    if (bpe_train(&t, path, &o, &err) != 0) {
        printf("# %s\n", err.text);
    }
    EXPECT(t != NULL);
    return t;
}

static bool is_token(const struct tokenizer *t, int32_t id, const char *want)
{
    const char *got = tokenizer_token(t, id, NULL);
    if (got == NULL || strcmp(got, want) != 0) {
        printf("# token %d is %s, not %s\n", id, got == NULL ? "none" : got, want);
    }
    return got != NULL && strcmp(got, want) == 0;
}

/* Worked out by hand. Words: aaab x3, " aab" x3. Pairs: (a,a) 2x3 + 3 = 9, (a,b) 6, (G,a) 3. */
static void the_most_frequent_pair_comes_first(void)
{
    struct tokenizer *t =
        train(write_text("aaab aab\naaab aab\naaab aab\n"), 261, BPE_PATTERN_GPT2);

    EXPECT(tokenizer_size(t) == 261);
    EXPECT(is_token(t, 0, "!") && is_token(t, 255, "\xC5\x83"));
    EXPECT(is_token(t, 256, "aa"));
    /* Now aa a b x3, G aa b x3: (a,b) 3, (aa,a) 3, (aa,b) 3, (G,aa) 3. Ties go to the smaller ids:
     * a is 64, b 65, G (the space) 220, aa 256. */
    EXPECT(is_token(t, 257, "ab"));
    EXPECT(is_token(t, 258,
                    "\xC4\xA0"
                    "aa"));
    EXPECT(is_token(t, 259, "aaab"));
    EXPECT(is_token(t, 260, "<|endoftext|>"));
    tokenizer_close(t);
}

static void stops_when_no_pair_occurs_twice(void)
{
    struct tokenizer *t = train(write_text("abc xyz abc"), 1000, BPE_PATTERN_GPT4);

    /* ab, abc; the second abc is " abc": G does not repeat. */
    EXPECT(tokenizer_size(t) == 259);
    EXPECT(is_token(t, 256, "ab") && is_token(t, 257, "abc"));
    EXPECT(tokenizer_eos(t) == 258 && tokenizer_bos(t) == 258 && tokenizer_pad(t) == 258);
    EXPECT(tokenizer_is_special(t, 258) && tokenizer_stops(t, 258));
    tokenizer_close(t);
}

/* All merges by the definition: count every pair anew for each. */
static void check_against_counting(const char *const words[], const int times[], int count)
{
    int ids[16][64], lengths[16];
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);
    struct tokenizer *t;

    for (int w = 0; w < count; w++) {
        for (int k = 0; k < times[w]; k++) {
            (void)fprintf(f, "%s\n", words[w]);
        }
        lengths[w] = (int)strlen(words[w]);
        for (int i = 0; i < lengths[w]; i++) {
            ids[w][i] = words[w][i] - '!';
        }
    }
    (void)fclose(f);
    t = train(write_text(text), 290, BPE_PATTERN_GPT2);
    free(text);
    for (int made = 256; made < 256 + (int)tokenizer_size(t) - 257; made++) {
        static int counts[300][300];
        int a = 0, b = 0;
        memset(counts, 0, sizeof counts);
        for (int w = 0; w < count; w++) {
            for (int i = 0; i + 1 < lengths[w]; i++) {
                counts[ids[w][i]][ids[w][i + 1]] += times[w];
            }
        }
        for (int x = 0; x < 300; x++) {
            for (int y = 0; y < 300; y++) {
                if (counts[x][y] > counts[a][b]) {
                    a = x;
                    b = y;
                }
            }
        }
        char want[256];
        (void)snprintf(want, sizeof want, "%s%s", tokenizer_token(t, a, NULL),
                       tokenizer_token(t, b, NULL));
        EXPECT(counts[a][b] >= 2);
        EXPECT(is_token(t, made, want));
        for (int w = 0; w < count; w++) {
            int n = 0;
            for (int i = 0; i < lengths[w]; i++) {
                const bool pair = i + 1 < lengths[w] && ids[w][i] == a && ids[w][i + 1] == b;
                ids[w][n++] = pair ? made : ids[w][i];
                i += pair;
            }
            lengths[w] = n;
        }
    }
    tokenizer_close(t);
}

static void learns_what_counting_anew_would_learn(void)
{
    static const char *const words[] = {"banana",   "ananas", "bandana", "aaaaaaaa",
                                        "abababab", "cabana", "nab",     "aaab"};
    static const int times[] = {5, 3, 4, 3, 2, 6, 9, 2};
    check_against_counting(words, times, 8);
}

static void text_that_spells_the_special_token_is_not_learned_from(void)
{
    struct tokenizer *t =
        train(write_text("<|endoftext|><|endoftext|><|endoftext|>ab<|endoftext|>"), 300,
              BPE_PATTERN_GPT4);
    EXPECT(tokenizer_size(t) == 257);
    tokenizer_close(t);
}

static void refuses_impossible_sizes_and_texts(void)
{
    struct bpe_options o = {.vocab_size = 256};
    struct tokenizer *t;
    struct err err;

    EXPECT(bpe_train(&t, write_text("text"), &o, &err) == ERR_BAD_SPEC && t == NULL);
    o.vocab_size = 300;
    EXPECT(bpe_train(&t, write_text(""), &o, &err) == ERR_NO_TOKENS && t == NULL);
    EXPECT(bpe_train(&t, write_text("a\xFF"), &o, &err) == ERR_BAD_TRAINING_FILE && t == NULL);
    EXPECT(bpe_train(&t, "/nowhere/at/all", &o, &err) == ERR_NOT_FOUND && t == NULL);
}

static void counts_bytes(void *context, uint64_t done, uint64_t total)
{
    uint64_t *last = context;
    EXPECT(done >= *last && done <= total);
    *last = done;
}

/* Pieces of several scripts; the same text through both patterns, saved, loaded, decoded. */
static void what_is_saved_loads_with_the_same_hash_and_ids(void)
{
    const char text[] = "The cat's hat, 12345 times: na\xC3\xAFve!\r\n\r\n  indented\tcode();\n"
                        "\xE5\xBA\x8A\xE5\x89\x8D\xE6\x98\x8E\xE6\x9C\x88\xE5\x85\x89\xEF\xBC\x8C"
                        "\xE7\x96\x91\xE6\x98\xAF\xE5\x9C\xB0\xE4\xB8\x8A\xE9\x9C\x9C\xE3\x80\x82\n"
                        "\xF0\x9F\x98\x80\xF0\x9F\x98\x80 The cat's hat, the cat's hat.\n";

    for (int pattern = BPE_PATTERN_GPT4; pattern <= BPE_PATTERN_GPT2; pattern++) {
        struct tokenizer *a = train(write_text(text), 320, (enum bpe_pattern)pattern), *b;
        struct encoder *ea = NULL, *eb = NULL;
        struct token_list x = {0}, y = {0};
        struct err err = {0};
        char *back = NULL;
        size_t n = 0;
        EXPECT(tokenizer_save(a, folder, &err) == 0);
        EXPECT(tokenizer_open(&b, folder, &err) == 0);
        EXPECT(strcmp(tokenizer_hash(a), tokenizer_hash(b)) == 0);
        EXPECT(tokenizer_eos(b) == tokenizer_eos(a) && tokenizer_size(a) == tokenizer_size(b));
        EXPECT(encoder_open(&ea, a, &err) == 0 && encoder_open(&eb, b, &err) == 0);
        EXPECT(encoder_encode(ea, &x, text, strlen(text), 0, &err) == 0);
        EXPECT(encoder_encode(eb, &y, text, strlen(text), 0, &err) == 0);
        EXPECT(x.count == y.count && memcmp(x.ids, y.ids, x.count * sizeof *x.ids) == 0);
        EXPECT(x.count < strlen(text));
        EXPECT(tokenizer_decode(a, &back, &n, x.ids, x.count, false, &err) == 0);
        EXPECT(n == strlen(text) && memcmp(back, text, n) == 0);
        free(back);
        token_list_free(&x);
        token_list_free(&y);
        encoder_close(ea);
        encoder_close(eb);
        tokenizer_close(a);
        tokenizer_close(b);
    }
}

static void one_long_word_takes_no_quadratic_time(void)
{
    const size_t n = 1 << 20;
    char *text = malloc(n + 1);
    uint32_t state = 1;
    uint64_t last = 0;
    const struct bpe_options o = {.vocab_size = 1000, .progress = counts_bytes, .context = &last};
    struct tokenizer *t;
    struct err err;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        text[i] = (char)('a' + (state >> 16) % 5);
    }
    text[n] = '\0';
    EXPECT(bpe_train(&t, write_text(text), &o, &err) == 0);
    EXPECT(tokenizer_size(t) == 1000);
    EXPECT(last == n);
    tokenizer_close(t);
    free(text);
}

int main(void)
{
    struct err err;

    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    RUN(the_most_frequent_pair_comes_first);
    RUN(stops_when_no_pair_occurs_twice);
    RUN(learns_what_counting_anew_would_learn);
    RUN(text_that_spells_the_special_token_is_not_learned_from);
    RUN(refuses_impossible_sizes_and_texts);
    RUN(what_is_saved_loads_with_the_same_hash_and_ids);
    RUN(one_long_word_takes_no_quadratic_time);
    (void)io_remove_tree(folder, &err);
    return tap_done();
}
