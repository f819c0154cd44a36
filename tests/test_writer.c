/* test_writer.c - what is written is what the reference would write, read back by an independent
 * reader. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/base/sha256.h"
#include "trainer/ckpt/folder.h"
#include "trainer/ckpt/writer.h"

static struct writer *new_writer(const char *stem, uint64_t shard_bytes)
{
    struct writer *w = NULL;
    struct err err = {0};

    CHECK(writer_new(&w, scratch, stem, shard_bytes, &err) == 0, "%s", err.text);
    return w;
}

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n) == 0;
}

static void declare(struct writer *w, const char *name, enum st_dtype type, int64_t rows,
                    int64_t cols)
{
    const int64_t shape[2] = {rows, cols};
    struct err err = {0};

    CHECK(writer_declare(w, name, type, 2, shape, &err) == 0, "%s", err.text);
}

/* Give every tensor that is wanted bytes which name it: its number, repeated. */
static int fill_numbers(struct writer *w, const uint64_t *bytes, struct err *err)
{
    unsigned char chunk[1000];

    for (int64_t i = writer_next(w); i >= 0; i = writer_next(w)) {
        memset(chunk, (int)i, sizeof chunk);
        for (uint64_t done = 0; done < bytes[i]; done += sizeof chunk) {
            const uint64_t left = bytes[i] - done;
            TRY(writer_put_bytes(w, chunk, left < sizeof chunk ? left : sizeof chunk, err));
        }
    }
    return writer_finish(w, err);
}

static void sorts_by_type_and_name_and_aligns(void)
{
    static const uint64_t bytes[] = {3, 8, 4, 2, 8, 0};
    struct writer *w = new_writer("sorted", WRITER_SHARD_BYTES);
    struct safetensors *st = NULL;
    struct err err = {0};
    int files = 0;

    declare(w, "bytes", ST_U8, 3, 1);
    declare(w, "z", ST_F32, 2, 1);
    declare(w, "a", ST_F32, 1, 1);
    declare(w, "half", ST_BF16, 1, 1);
    declare(w, "step", ST_I64, 1, 1);
    declare(w, "nothing", ST_F64, 0, 4);
    EXPECT(writer_metadata(w, "k", "v\n\"\xC3\xA9", &err) == 0);
    EXPECT(writer_start(w, &err) == 0 && writer_next(w) == 4);
    EXPECT(fill_numbers(w, bytes, &err) == 0 && writer_next(w) == -1);
    const struct manifest_file *file = writer_files(w, &files);
    EXPECT(files == 1 && strcmp(file->name, "sorted.safetensors") == 0);
    char hash[SHA256_TEXT];
    uint64_t size = 0;
    EXPECT(sha256_file(in_scratch("sorted.safetensors"), hash, &size, &err) == 0);
    EXPECT(strcmp(hash, file->sha256) == 0 && size == file->bytes);
    writer_free(w);
    CHECK(safetensors_open(&st, in_scratch("sorted.safetensors"), &err) == 0, "%s", err.text);
    static const char *const order[] = {"step", "nothing", "a", "z", "half", "bytes"};
    for (int i = 0; i < 6; i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        EXPECT(strcmp(t->name, order[i]) == 0 && t->offset % st_dtype_size(t->dtype) == 0);
    }
    EXPECT(safetensors_at(st, 0)->offset % 8 == 0);
    EXPECT(strcmp(safetensors_metadata(st, "k"), "v\n\"\xC3\xA9") == 0);
    EXPECT(strcmp(safetensors_metadata(st, "format"), "pt") == 0);
    unsigned char got[8] = {0};
    EXPECT(safetensors_read_bytes(safetensors_find(st, "z"), 0, got, 8, &err) == 0 && got[7] == 1);
    safetensors_close(st);
}

static void an_empty_model_is_a_valid_file(void)
{
    struct writer *w = new_writer("empty", 10);
    struct safetensors *st = NULL;
    struct err err = {0};

    EXPECT(writer_start(w, &err) == 0 && writer_next(w) == -1 && writer_finish(w, &err) == 0);
    writer_free(w);
    EXPECT(safetensors_open(&st, in_scratch("empty.safetensors"), &err) == 0);
    EXPECT(st != NULL && safetensors_count(st) == 0);
    safetensors_close(st);
}

/* The example of huggingface_hub's documentation, in units of 100 bytes: limit 10, sizes 6 6 2 6 2
 * 2, and one tensor of 15 that gets a shard of its own at once. */
static void deals_shards_as_hugging_face_does(void)
{
    static const uint64_t bytes[] = {600, 600, 1500, 200, 600, 200, 200};
    static const char *const names[] = {"a", "b", "big", "c", "d", "e", "f"};
    /* a | big | b c | d e f: big is dealt while "b c" still gathers, so it comes first. */
    static const int shard[] = {1, 3, 2, 3, 4, 4, 4};
    struct writer *w = new_writer("model", 1000);
    struct err err = {0};
    json_t *index = NULL;
    char name[64];
    int files = 0;

    for (int i = 0; i < 7; i++) {
        declare(w, names[i], ST_U8, (int64_t)bytes[i], 1);
    }
    EXPECT(writer_start(w, &err) == 0 && fill_numbers(w, bytes, &err) == 0);
    const struct manifest_file *file = writer_files(w, &files);
    EXPECT(files == 5 && strcmp(file[4].name, "model.safetensors.index.json") == 0);
    CHECK(json_parse_file(&index, in_scratch(file[4].name), 10000, &err) == 0, "%s", err.text);
    const json_t *map = json_object_get(index, "weight_map");
    for (int i = 0; i < 7; i++) {
        (void)snprintf(name, sizeof name, "model-%05d-of-00004.safetensors", shard[i]);
        EXPECT(strcmp(json_string_value(json_object_get(map, names[i])), name) == 0);
    }
    EXPECT(json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")) ==
           3900);
    json_decref(index);
    for (int i = 0; i < files; i++) {
        char hash[SHA256_TEXT];
        EXPECT(sha256_file(in_scratch(file[i].name), hash, NULL, &err) == 0);
        EXPECT(strcmp(hash, file[i].sha256) == 0);
    }
    writer_free(w);
    struct safetensors_folder *f = NULL;
    CHECK(safetensors_folder_open(&f, scratch, &err) == 0, "%s", err.text);
    EXPECT(safetensors_folder_count(f) == 7);
    for (int i = 0; i < 7; i++) {
        unsigned char got[1] = {255};
        const struct st_tensor *t = safetensors_folder_find(f, names[i]);
        EXPECT(t != NULL && t->bytes == bytes[i]);
        EXPECT(safetensors_read_bytes(t, bytes[i] - 1, got, 1, &err) == 0 && got[0] == i);
    }
    safetensors_folder_close(f);
}

/* The index as text: two spaces, sorted keys, a newline at the end. */
static void the_index_looks_like_transformers(void)
{
    static const uint64_t bytes[] = {2, 1};
    struct writer *w = new_writer("tiny", 2);
    struct err err = {0};
    char *text = NULL;
    size_t n = 0;

    declare(w, "b.weight", ST_U8, 2, 1);
    declare(w, "a\xC3\xA9", ST_U8, 1, 1);
    EXPECT(writer_start(w, &err) == 0 && fill_numbers(w, bytes, &err) == 0);
    writer_free(w);
    CHECK(io_read_file(&text, &n, in_scratch("tiny.safetensors.index.json"), 10000, &err) == 0,
          "%s", err.text);
    EXPECT(strcmp(text, "{\n  \"metadata\": {\n    \"total_size\": 3\n  },\n  \"weight_map\": {\n"
                        "    \"a\\u00E9\": \"tiny-00002-of-00002.safetensors\",\n"
                        "    \"b.weight\": \"tiny-00001-of-00002.safetensors\"\n  }\n}\n") == 0);
    free(text);
}

static void converts_and_transposes_large_and_odd_matrices(void)
{
    enum { ROWS = 517, COLS = 2063 }; /* 2.1 MB of bf16: more than one stage */
    float *values = malloc(sizeof *values * ROWS * COLS);
    float *back = malloc(sizeof *back * ROWS * COLS);
    struct writer *w = new_writer("turned", WRITER_SHARD_BYTES);
    struct safetensors *st = NULL;
    struct err err = {0};
    int64_t wrong = 0;

    CHECK(values != NULL && back != NULL, "no memory");
    for (int i = 0; i < ROWS * COLS; i++) {
        values[i] = (float)(i % 251);
    }
    declare(w, "turned", ST_BF16, COLS, ROWS);
    declare(w, "as_is", ST_F16, ROWS, COLS);
    EXPECT(writer_start(w, &err) == 0);
    while (writer_next(w) >= 0) {
        const struct tensor whole = tensor_make(values, DTYPE_F32, ROWS, COLS);
        if (writer_next(w) == 0) {
            EXPECT(writer_put(w, whole, ST_TRANSPOSED, &err) == 0);
        } else {
            EXPECT(writer_put(w, tensor_slice(whole, 0, 100), ST_AS_IS, &err) == 0);
            EXPECT(writer_put(w, tensor_slice(whole, 100, ROWS - 100), ST_AS_IS, &err) == 0);
        }
    }
    EXPECT(writer_finish(w, &err) == 0);
    writer_free(w);
    CHECK(safetensors_open(&st, in_scratch("turned.safetensors"), &err) == 0, "%s", err.text);
    const struct st_tensor *t = safetensors_find(st, "turned");
    EXPECT(safetensors_read(t, st_rect_all(t), ST_TRANSPOSED, back, DTYPE_F32, COLS, &err) == 0);
    wrong += !same_bytes(back, values, sizeof *values * ROWS * COLS);
    t = safetensors_find(st, "as_is");
    EXPECT(safetensors_read(t, st_rect_all(t), ST_AS_IS, back, DTYPE_F32, COLS, &err) == 0);
    wrong += !same_bytes(back, values, sizeof *values * ROWS * COLS);
    EXPECT(wrong == 0);
    safetensors_close(st);
    free(values);
    free(back);
}

/* One row longer than the stage, both ways. */
static void writes_rows_longer_than_its_buffer(void)
{
    enum { COLS = 600001 };
    float *values = malloc(sizeof *values * 2 * COLS), *back = malloc(sizeof *back * 2 * COLS);
    struct writer *w = new_writer("long", WRITER_SHARD_BYTES);
    struct safetensors *st = NULL;
    struct err err = {0};

    CHECK(values != NULL && back != NULL, "no memory");
    for (int i = 0; i < 2 * COLS; i++) {
        values[i] = (float)i;
    }
    declare(w, "a", ST_F32, 2, COLS);
    declare(w, "b", ST_F32, 2, COLS);
    EXPECT(writer_start(w, &err) == 0);
    EXPECT(writer_put(w, tensor_make(values, DTYPE_F32, 2, COLS), ST_AS_IS, &err) == 0);
    EXPECT(writer_put(w, tensor_make(values, DTYPE_F32, COLS, 2), ST_TRANSPOSED, &err) == 0);
    EXPECT(writer_finish(w, &err) == 0);
    writer_free(w);
    CHECK(safetensors_open(&st, in_scratch("long.safetensors"), &err) == 0, "%s", err.text);
    EXPECT(safetensors_read_bytes(safetensors_find(st, "a"), 0, back, sizeof *back * 2 * COLS,
                                  &err) == 0);
    EXPECT(same_bytes(back, values, sizeof *back * 2 * COLS));
    EXPECT(safetensors_read_bytes(safetensors_find(st, "b"), 0, back, sizeof *back * 2 * COLS,
                                  &err) == 0);
    EXPECT(back[1] == 2.0F && back[COLS] == 1.0F && back[2 * COLS - 1] == (float)(2 * COLS - 1));
    safetensors_close(st);
    free(values);
    free(back);
}

/* A file size limit stands for a full disk. */
static void a_full_disk_leaves_nothing_behind(void)
{
    static const uint64_t bytes[] = {60000, 60000};
    struct rlimit before, small;
    struct err err = {0};

    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0, "no limit");
    small = (struct rlimit){.rlim_cur = 50000, .rlim_max = before.rlim_max};
    struct writer *w = new_writer("full", 60000);
    declare(w, "a", ST_U8, 60000, 1);
    declare(w, "b", ST_U8, 60000, 1);
    EXPECT(writer_start(w, &err) == 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0, "no limit");
    EXPECT(fill_numbers(w, bytes, &err) == ERR_DISK_FULL);
    writer_free(w);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "no limit");
    EXPECT(access(in_scratch("full-00001-of-00002.safetensors"), F_OK) != 0 && errno == ENOENT);
}

static void an_unfinished_writer_removes_its_files(void)
{
    struct writer *w = new_writer("partial", WRITER_SHARD_BYTES);
    struct err err = {0};

    declare(w, "a", ST_U8, 4, 1);
    EXPECT(writer_start(w, &err) == 0 && access(in_scratch("partial.safetensors"), F_OK) == 0);
    writer_free(w);
    EXPECT(access(in_scratch("partial.safetensors"), F_OK) != 0);
    struct writer *nowhere = NULL;
    EXPECT(writer_new(&nowhere, "/nowhere/at/all", "model", 1, &err) == 0);
    EXPECT(writer_start(nowhere, &err) == ERR_IO);
    writer_free(nowhere);
}

/* node reads what was written, with its own checks; the hashes of bytes agree. */
static void an_independent_reader_agrees(void)
{
    struct writer *w = new_writer("node", WRITER_SHARD_BYTES);
    const float values[6] = {1, -2, 3.5F, 0, 1e-3F, -0.0F};
    const int64_t step = 1234567890123;
    struct err err = {0};
    char command[IO_PATH_MAX + 100], line[300], want[300], hash[SHA256_TEXT];

    if (system("node --version >/dev/null 2>&1") != 0) {
        printf("# skip: node is absent\n");
        writer_free(w);
        return;
    }
    declare(w, "w.\xE4\xB8\xAD", ST_F32, 2, 3);
    declare(w, "step", ST_I64, 1, 1);
    EXPECT(writer_start(w, &err) == 0);
    EXPECT(writer_put_bytes(w, &step, sizeof step, &err) == 0);
    EXPECT(writer_put_bytes(w, values, sizeof values, &err) == 0);
    EXPECT(writer_finish(w, &err) == 0);
    writer_free(w);
    (void)snprintf(command, sizeof command, "node tests/read_safetensors.mjs %s",
                   in_scratch("node.safetensors"));
    FILE *p = popen(command, "r");
    CHECK(p != NULL, "cannot run node");
    sha256_of(&step, sizeof step, hash);
    (void)snprintf(want, sizeof want, "step I64 [1,1] %s\n", hash);
    EXPECT(fgets(line, sizeof line, p) != NULL && strcmp(line, want) == 0);
    sha256_of(values, sizeof values, hash);
    (void)snprintf(want, sizeof want, "w.\xE4\xB8\xAD F32 [2,3] %s\n", hash);
    EXPECT(fgets(line, sizeof line, p) != NULL && strcmp(line, want) == 0);
    EXPECT(fgets(line, sizeof line, p) == NULL && pclose(p) == 0);
}

int main(void)
{
    scratch_make();
    RUN(sorts_by_type_and_name_and_aligns);
    RUN(an_empty_model_is_a_valid_file);
    RUN(deals_shards_as_hugging_face_does);
    RUN(the_index_looks_like_transformers);
    RUN(converts_and_transposes_large_and_odd_matrices);
    RUN(writes_rows_longer_than_its_buffer);
    RUN(a_full_disk_leaves_nothing_behind);
    RUN(an_unfinished_writer_removes_its_files);
    RUN(an_independent_reader_agrees);
    scratch_remove();
    return tap_done();
}
