/* fuzz_data.c - any bytes as a token file and as a text: refused with a sentence, or read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/data/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { S = 8, ROWS = 3 };

static const char json[] =
    "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":false,\"unk_token\":\"?\",\"vocab\":{\"?\":0,"
    "\"a\":1,\"b\":2,\" \":3,\"ab\":4},\"merges\":[\"a "
    "b\"]},\"added_tokens\":[{\"id\":5,\"content\":"
    "\"</s>\",\"special\":true}]}";

static void read_rows(const struct token_file *f, const struct data_rows *rows, enum pack_way way)
{
    struct pack_split split;
    struct pack *p = NULL;
    struct err err;

    if (pack_split(&split, f, 0.3, 1, &err) != 0) {
        return;
    }
    CHECK(split.training >= 1, "no examples");
    if (pack_make(&p, f, split.example, split.training, S, way, ROWS, &err) == 0) {
        const struct data_set set = pack_set(p, 1);
        int64_t trained = 0;
        for (int64_t at = 0; at < p->rows; at += ROWS) {
            trained += data_batch(&set, rows, at, ROWS, p->rows);
        }
        CHECK(trained == p->trained, "%lld targets, not %lld", (long long)trained,
              (long long)p->trained);
    }
    pack_free(p);
    pack_split_fini(&split);
}

static void read_samples(struct token_file *f)
{
    int32_t memory[4 * ROWS * S];
    const struct data_rows rows = {memory, memory + ROWS * S, memory + 2 * ROWS * S,
                                   memory + 3 * ROWS * S};
    size_t bytes;
    struct data_set training, validation;
    struct err err;

    (void)token_file_report(f, &bytes);
    if (token_file_kind(f) == TOKEN_FILE_EXAMPLES) {
        read_rows(f, &rows, PACK_TOGETHER);
        read_rows(f, &rows, PACK_ALONE);
        return;
    }
    if (data_split(&training, &validation, f, 0.3, S, 1, &err) == 0) {
        training.apart = true;
        CHECK(data_batch(&training, &rows, 0, ROWS, 100) >= 1, "no labels");
        (void)data_batch_in_order(&validation, &rows, 0, ROWS);
        for (int i = 0; i < ROWS * S; i++) {
            CHECK(rows.first[i] >= 0 && rows.first[i] <= rows.positions[i], "first %d",
                  rows.first[i]);
        }
    }
}

static void check_text(const char *path, const char *cache)
{
    const struct data_source s = {
        .path = path, .cache_dir = cache, .blame = ERR_BAD_TRAINING_FILE, .name = "text"};
    struct tokenizer *t;
    struct token_file *f;
    struct err err = {0};

    CHECK(tokenizer_parse(&t, json, sizeof json - 1, &err) == 0, "%s", err.text);
    const int rc = data_prepare(&f, &s, t, &err);
    CHECK(rc == 0 || rc == ERR_BAD_TRAINING_FILE || rc == ERR_NO_TOKENS, "%d: %s", rc, err.text);
    if (rc == 0) {
        read_samples(f);
    }
    token_file_close(f);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char folder[] = "/tmp/hone-fuzz-XXXXXX", path[64], cache[64];
    struct token_file *f;
    struct err err = {0};

    CHECK(mkdtemp(folder) != NULL, "no temporary folder");
    (void)snprintf(path, sizeof path, "%s/input", folder);
    (void)snprintf(cache, sizeof cache, "%s/cache", folder);
    CHECK(io_write_file(path, bytes, n, &err) == 0, "%s", err.text);
    if (token_file_open(&f, path, &err) == 0) {
        read_samples(f);
    } else {
        CHECK(err.text[0] != '\0', "no sentence");
    }
    token_file_close(f);
    check_text(path, cache);
    CHECK(io_remove_tree(folder, &err) == 0, "%s", err.text);
    return 0;
}
