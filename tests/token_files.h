/* token_files.h - token files of made-up examples, for tests. */
#ifndef TESTS_TOKEN_FILES_H
#define TESTS_TOKEN_FILES_H

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/data/pack.h"
#include "trainer/data/token_writer.h"

/* Example e: tokens that depend on (e, place), the first `lengths[e] / 3` not trained. Rows of the same number `alike`
 * (0: all differ) have the same tokens. */
static inline struct token_file *put_examples(const char *file, const int64_t *lengths, int64_t n,
                                              int64_t vocabulary, int64_t alike)
{
    const struct token_file_header known = {.vocab_size = vocabulary, .kind = TOKEN_FILE_EXAMPLES};
    struct token_writer *w = NULL;
    struct token_file *f = NULL;
    struct err err = {0};

    CHECK(token_writer_open(&w, scratch, file, &known, &err) == 0, "%s", err.text);
    for (int64_t e = 0; e < n; e++) {
        const int64_t kind = alike > 0 ? e % alike : e;
        for (int64_t k = 0; k < lengths[e]; k++) {
            const int64_t id = (kind * 31 + k * 7 + kind * k % 5) % vocabulary;
            CHECK(token_writer_put(w, (int32_t)id, k >= lengths[e] / 3, &err) == 0, "%s", err.text);
        }
        CHECK(token_writer_end(w, &err) == 0, "%s", err.text);
    }
    CHECK(token_writer_finish(w, "{}", &err) == 0, "%s", err.text);
    CHECK(token_file_open(&f, in_scratch(file), &err) == 0, "%s", err.text);
    return f;
}

/* All examples of the file as rows. */
static inline struct pack *pack_all(const struct token_file *f, int64_t S, enum pack_way way,
                                    int64_t group)
{
    struct pack_split all;
    struct pack *p = NULL;
    struct err err = {0};

    CHECK(pack_split(&all, f, 0.0, 1, &err) == 0, "%s", err.text);
    CHECK(pack_make(&p, f, all.example, all.training, S, way, group, &err) == 0, "%s", err.text);
    pack_split_fini(&all);
    return p;
}

#endif
