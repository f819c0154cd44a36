/* test_folder.c - model folders: one file, shards, and every way an index can be wrong. */
#include <stdint.h>
#include <sys/stat.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/ckpt/folder.h"
#include "trainer/ckpt/writer.h"

/* A folder of the given name with the tensors "a", "b", ... of one byte, `each` to a shard. */
static const char *new_folder(const char *name, int tensors, uint64_t each)
{
    const char *dir = in_scratch(name);
    const int64_t shape[1] = {1};
    struct writer *w = NULL;
    struct err err = {0};
    char tensor[2] = "a", byte = 0;

    CHECK(mkdir(dir, 0700) == 0 && writer_new(&w, dir, "model", each, &err) == 0, "%s", err.text);
    for (int i = 0; i < tensors; i++) {
        tensor[0] = (char)('a' + i);
        CHECK(writer_declare(w, tensor, ST_U8, 1, shape, &err) == 0, "%s", err.text);
    }
    CHECK(writer_start(w, &err) == 0, "%s", err.text);
    for (int64_t i = writer_next(w); i >= 0; i = writer_next(w)) {
        byte = (char)i;
        CHECK(writer_put_bytes(w, &byte, 1, &err) == 0, "%s", err.text);
    }
    CHECK(writer_finish(w, &err) == 0, "%s", err.text);
    writer_free(w);
    return dir;
}

static void put_index(const char *dir, const char *text)
{
    char path[IO_PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    put_text(path, text);
}

/* Opening fails with `code`, and the sentence has `says` in it. */
static void expect_refused(const char *dir, int code, const char *says)
{
    struct safetensors_folder *f = NULL;
    struct err err = {0};
    const int rc = safetensors_folder_open(&f, dir, &err);

    EXPECT(f == NULL);
    if (rc != code || strstr(err.text, says) == NULL) {
        EXPECT_UNREACHED("it is refused");
        printf("# want %s, got %d: %s\n", says, rc, err.text);
    }
    safetensors_folder_close(f);
}

static void reads_one_file_or_many(void)
{
    const char *dirs[2] = {new_folder("one", 3, 100), new_folder("many", 5, 2)};

    for (int k = 0; k < 2; k++) {
        struct safetensors_folder *f = NULL;
        struct err err = {0};
        CHECK(safetensors_folder_open(&f, dirs[k], &err) == 0, "%s", err.text);
        EXPECT(safetensors_folder_count(f) == (k == 0 ? 3 : 5));
        for (int64_t i = 0; i < safetensors_folder_count(f); i++) {
            const char name[2] = {(char)('a' + i), '\0'};
            const struct st_tensor *t = safetensors_folder_find(f, name);
            char byte = -1;
            EXPECT(t != NULL && t == safetensors_folder_at(f, i));
            EXPECT(safetensors_read_bytes(t, 0, &byte, 1, &err) == 0 && byte == (char)i);
        }
        EXPECT(safetensors_folder_find(f, "z") == NULL && safetensors_folder_find(f, "") == NULL);
        safetensors_folder_close(f);
    }
}

static void a_single_file_goes_before_an_index(void)
{
    const char *dir = new_folder("both", 2, 100);
    struct safetensors_folder *f = NULL;
    struct err err = {0};

    put_index(dir, "damaged");
    EXPECT(safetensors_folder_open(&f, dir, &err) == 0);
    safetensors_folder_close(f);
}

static void says_what_is_there_instead(void)
{
    const char *dir = in_scratch("other");

    expect_refused(dir, ERR_NOT_FOUND, "does not exist");
    CHECK(mkdir(dir, 0700) == 0, "mkdir");
    expect_refused(dir, ERR_NO_MODEL, "neither model.safetensors nor");
    put_text(in_scratch("other/pytorch_model.bin"), "x");
    expect_refused(dir, ERR_NO_MODEL, "pytorch_model.bin; Hone reads only model.safetensors");
    expect_refused(in_scratch("other/pytorch_model.bin"), ERR_BAD_FILE, "not a folder");
}

static void refuses_an_index_that_is_wrong(void)
{
#define MAP(map) "{\"metadata\":{\"total_size\":3},\"weight_map\":" map "}"
    static const struct {
        const char *index, *says;
    } bad[] = {
        {"", "is empty"},
        {"[]", "no weight_map"},
        {"{}", "no weight_map"},
        {"{\"weight_map\"", "line 1"},
        {MAP("{}"), "no weight_map"},
        {MAP("[]"), "no weight_map"},
        {MAP("{\"a\":1}"), "must be a string"},
        {MAP("{\"a\":\"\"}"), "not the name of a file"},
        {MAP("{\"a\":\"../model-00001-of-00002.safetensors\"}"), "not the name of a file"},
        {MAP("{\"a\":\"/etc/passwd\"}"), "not the name of a file"},
        {MAP("{\"a\":\"sub/x.safetensors\"}"), "not the name of a file"},
        {MAP("{\"a\":\"..\"}"), "not the name of a file"},
        {MAP("{\"a\":\"link.safetensors\"}"), "symbolic link"},
        {MAP("{\"a\":\"missing.safetensors\"}"), "names missing.safetensors, which is missing"},
        {MAP("{\"a\":\"model.safetensors.index.json\"}"), "not safetensors"},
        {MAP("{\"a\":\"model-00001-of-00002.safetensors\",\"x\":\"model-00001-of-00002."
             "safetensors\"}"),
         "says that x is in model-00001-of-00002.safetensors, but it is not"},
        {MAP("{\"a\":\"model-00002-of-00002.safetensors\",\"b\":\"model-00001-of-00002."
             "safetensors\"}"),
         "says that a is in model-00002-of-00002.safetensors, but it is in model-00001"},
        {MAP("{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"copy.safetensors\"}"),
         "tensor a is both in"},
    };
    const char *dir = new_folder("wrong", 3, 2);
    char *text = NULL;
    size_t n = 0;
    struct err err = {0};

    CHECK(symlink("../secret", in_scratch("wrong/link.safetensors")) == 0, "symlink");
    CHECK(io_read_file(&text, &n, in_scratch("wrong/model-00001-of-00002.safetensors"), 10000,
                       &err) == 0,
          "%s", err.text);
    put_file(in_scratch("wrong/copy.safetensors"), text, n);
    free(text);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_index(dir, bad[i].index);
        expect_refused(dir, ERR_BAD_FILE, bad[i].says);
    }
}

static void refuses_too_many_shards(void)
{
    enum { MANY = 600 };
    char *index = malloc((size_t)MANY * 80), name[64];
    struct err err = {0};
    char *text = NULL;
    size_t n = 0, bytes = 0;

    CHECK(index != NULL, "no memory");
    (void)new_folder("manyshards", 1, 1);
    CHECK(io_read_file(&text, &bytes, in_scratch("manyshards/model.safetensors"), 10000, &err) == 0,
          "%s", err.text);
    CHECK(unlink(in_scratch("manyshards/model.safetensors")) == 0, "unlink");
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "manyshards/s%d", i);
        put_file(in_scratch(name), text, bytes);
        n += (size_t)sprintf(index + n, "%s\"t%d\":\"s%d\"", i == 0 ? "{\"weight_map\":{" : ",", i,
                             i);
    }
    (void)sprintf(index + n, "}}");
    put_index(in_scratch("manyshards"), index);
    expect_refused(in_scratch("manyshards"), ERR_BAD_FILE, "more than 512 files");
    free(index);
    free(text);
}

static void damage_in_a_shard_names_the_shard(void)
{
    const char *dir = new_folder("hurt", 4, 2);

    CHECK(truncate(in_scratch("hurt/model-00002-of-00002.safetensors"), 20) == 0, "truncate");
    expect_refused(dir, ERR_BAD_FILE, "model-00002-of-00002.safetensors");
    CHECK(unlink(in_scratch("hurt/model-00002-of-00002.safetensors")) == 0, "unlink");
    expect_refused(dir, ERR_BAD_FILE, "which is missing");
}

int main(void)
{
    scratch_make();
    RUN(reads_one_file_or_many);
    RUN(a_single_file_goes_before_an_index);
    RUN(says_what_is_there_instead);
    RUN(refuses_an_index_that_is_wrong);
    RUN(refuses_too_many_shards);
    RUN(damage_in_a_shard_names_the_shard);
    scratch_remove();
    return tap_done();
}
