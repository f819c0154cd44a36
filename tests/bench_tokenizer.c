/* bench_tokenizer.c - megabytes per second of encoding, decoding and learning, one thread.
 *
 *     bench_tokenizer TOKENIZER TEXT [TOKENIZER TEXT ...]
 *
 * Each figure is the best of a few passes over the whole text; the cache of words is warm after the first.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trainer/base/io.h"
#include "trainer/tokenizer/tokenizer.h"

enum { PASSES = 5, TEXT_MAX = 1 << 30, LEARNED = 4096 };

static double seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int measure(const struct tokenizer *t, const char *text, size_t n, struct err *err)
{
    struct token_list ids = {0};
    struct encoder *e;
    double encode = 1e9, decode = 1e9;
    int rc = 0;

    TRY(encoder_open(&e, t, err));
    for (int i = 0; rc == 0 && i < PASSES; i++) {
        char *back = NULL;
        size_t bytes;
        ids.count = 0;
        const double start = seconds();
        rc = encoder_encode(e, &ids, text, n, 0, err);
        const double middle = seconds();
        if (rc == 0) {
            rc = tokenizer_decode(t, &back, &bytes, ids.ids, ids.count, false, err);
        }
        const double end = seconds();
        free(back);
        encode = middle - start < encode ? middle - start : encode;
        decode = end - middle < decode ? end - middle : decode;
    }
    if (rc == 0) {
        printf("encode %7.1f MB/s   decode %7.1f MB/s   %.2f bytes a token",
               (double)n / encode / 1e6, (double)n / decode / 1e6, (double)n / (double)ids.count);
    }
    token_list_free(&ids);
    encoder_close(e);
    return rc;
}

static int measure_learning(const char *path, size_t n, struct err *err)
{
    const struct bpe_options o = {.vocab_size = LEARNED};
    struct tokenizer *t;

    const double start = seconds();
    TRY(bpe_train(&t, path, &o, err));
    printf("   learn %d tokens %.2f s (%.1f MB/s)\n", LEARNED, seconds() - start,
           (double)n / (seconds() - start) / 1e6);
    tokenizer_close(t);
    return 0;
}

static int bench(const char *tokenizer, const char *path, struct err *err)
{
    struct tokenizer *t;
    char *text = NULL;
    size_t n = 0;

    const double start = seconds();
    TRY(tokenizer_open(&t, tokenizer, err));
    printf("%s: open %.0f ms   ", tokenizer, (seconds() - start) * 1e3);
    int rc = io_read_file(&text, &n, path, TEXT_MAX, err);
    if (rc == 0) {
        rc = measure(t, text, n, err);
    }
    if (rc == 0) {
        rc = measure_learning(path, n, err);
    }
    free(text);
    tokenizer_close(t);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (bench(argv[i], argv[i + 1], &err) != 0) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
    }
    return 0;
}
