/* folder.c - one weight file or an index of shards. */
#include "trainer/ckpt/folder.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum { SHARDS_MAX = 512 /* the largest public models have fewer than 200 */ };
static const size_t INDEX_MAX = (size_t)64 << 20; /* bytes of model.safetensors.index.json */
static const char SINGLE[] = "model.safetensors", INDEX[] = "model.safetensors.index.json";

struct safetensors_folder {
    struct safetensors *shard[SHARDS_MAX]; /* owned */
    int shards;
    const struct st_tensor **by_name; /* owned; the tensors of all shards, sorted by name */
    int64_t count;
};

/* Why there is nothing to read. */
static int no_weights(int dir_fd, const char *dir, struct err *err)
{
    static const char *const others[] = {
        "pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth",
        "tf_model.h5",       "flax_model.msgpack",           "adapter_model.safetensors",
    };

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (faccessat(dir_fd, others[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
            return FAIL(err, ERR_NO_MODEL,
                        "%s has its weights in %s; Hone reads only model.safetensors or "
                        "model.safetensors.index.json with its shards",
                        dir, others[i]);
        }
    }
    return FAIL(err, ERR_NO_MODEL, "%s has neither model.safetensors nor %s", dir, INDEX);
}

static bool exists(int dir_fd, const char *name)
{
    return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The shard called `name`, opened when it is new. */
static int open_shard(struct safetensors_folder *f, int dir_fd, const char *name,
                      struct safetensors **out, struct err *err)
{
    for (int i = f->shards - 1; i >= 0; i--) {
        if (strcmp(safetensors_name(f->shard[i]), name) == 0) {
            *out = f->shard[i];
            return 0;
        }
    }
    if (f->shards == SHARDS_MAX) {
        return FAIL(err, ERR_BAD_FILE, "%s names more than %d files", INDEX, SHARDS_MAX);
    }
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
        return FAIL(err, ERR_BAD_FILE, "%s: \"%.100s\" is not the name of a file beside it", INDEX,
                    name);
    }
    const int rc = safetensors_open_beneath(&f->shard[f->shards], dir_fd, name, err);
    if (rc == ERR_NOT_FOUND) {
        return FAIL(err, ERR_BAD_FILE, "%s names %.100s, which is missing", INDEX, name);
    }
    TRY(rc);
    *out = f->shard[f->shards++];
    return 0;
}

/* The sentence for a tensor that is not where the map says. */
static int misplaced(const struct safetensors_folder *f, const char *name, const char *shard,
                     struct err *err)
{
    for (int i = 0; i < f->shards; i++) {
        if (safetensors_find(f->shard[i], name) != NULL) {
            return FAIL(err, ERR_BAD_FILE, "%s says that %.100s is in %.100s, but it is in %.100s",
                        INDEX, name, shard, safetensors_name(f->shard[i]));
        }
    }
    return FAIL(err, ERR_BAD_FILE, "%s says that %.100s is in %.100s, but it is not", INDEX, name,
                shard);
}

static int open_shards(struct safetensors_folder *f, int dir_fd, const json_t *map, struct err *err)
{
    json_t *borrowed = json_object_get(map, "weight_map"), *value = NULL;
    const char *name = NULL;
    struct safetensors *shard = NULL;

    if (!json_is_object(borrowed) || json_object_size(borrowed) == 0) {
        return FAIL(err, ERR_BAD_FILE, "%s has no weight_map of tensors to files", INDEX);
    }
    json_object_foreach(borrowed, name, value)
    {
        if (!json_is_string(value)) {
            return FAIL(err, ERR_BAD_FILE, "%s: the file of %.100s must be a string", INDEX, name);
        }
        TRY(open_shard(f, dir_fd, json_string_value(value), &shard, err));
    }
    json_object_foreach(borrowed, name, value)
    {
        TRY(open_shard(f, dir_fd, json_string_value(value), &shard, err));
        if (safetensors_find(shard, name) == NULL) {
            return misplaced(f, name, json_string_value(value), err);
        }
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* Sort all tensors by name; a name in two shards is refused. */
static int collect(struct safetensors_folder *f, struct err *err)
{
    int64_t total = 0, n = 0;

    for (int i = 0; i < f->shards; i++) {
        total += safetensors_count(f->shard[i]);
    }
    f->by_name = calloc((size_t)total + 1, sizeof(const struct st_tensor *));
    if (f->by_name == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the names of %lld tensors",
                    (long long)total);
    }
    for (int i = 0; i < f->shards; i++) {
        for (int64_t k = 0; k < safetensors_count(f->shard[i]); k++) {
            f->by_name[n++] = safetensors_at(f->shard[i], k);
        }
    }
    f->count = n;
    qsort(f->by_name, (size_t)n, sizeof(const struct st_tensor *), by_name);
    for (int64_t i = 1; i < n; i++) {
        const struct st_tensor *a = f->by_name[i - 1], *b = f->by_name[i];
        if (strcmp(a->name, b->name) == 0) {
            return FAIL(err, ERR_BAD_FILE, "tensor %.100s is both in %.100s and in %.100s", a->name,
                        safetensors_name(a->file), safetensors_name(b->file));
        }
    }
    return 0;
}

static int open_all(struct safetensors_folder *f, int dir_fd, const char *dir, struct err *err)
{
    json_t *map = NULL;
    int rc = 0;

    if (exists(dir_fd, SINGLE)) {
        TRY(safetensors_open_beneath(&f->shard[0], dir_fd, SINGLE, err));
        f->shards = 1;
        return collect(f, err);
    }
    if (!exists(dir_fd, INDEX)) {
        return no_weights(dir_fd, dir, err);
    }
    TRY(json_parse_beneath(&map, dir_fd, INDEX, INDEX_MAX, err));
    rc = open_shards(f, dir_fd, map, err);
    json_decref(map);
    return rc != 0 ? rc : collect(f, err);
}

int safetensors_folder_open_fd(struct safetensors_folder **out, int dir_fd, const char *dir,
                               struct err *err)
{
    struct safetensors_folder *f = calloc(1, sizeof *f);

    *out = NULL;
    if (f == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to open %s", dir);
    }
    const int rc = open_all(f, dir_fd, dir, err);
    if (rc != 0) {
        safetensors_folder_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

int safetensors_folder_open(struct safetensors_folder **out, const char *dir, struct err *err)
{
    int fd = -1;

    *out = NULL;
    TRY(io_open_dir(&fd, dir, err));
    const int rc = safetensors_folder_open_fd(out, fd, dir, err);
    (void)close(fd);
    return rc;
}

void safetensors_folder_close(struct safetensors_folder *f)
{
    if (f == NULL) {
        return;
    }
    for (int i = 0; i < f->shards; i++) {
        safetensors_close(f->shard[i]);
    }
    free(f->by_name);
    free(f);
}

int64_t safetensors_folder_count(const struct safetensors_folder *f)
{
    return f->count;
}

const struct st_tensor *safetensors_folder_at(const struct safetensors_folder *f, int64_t i)
{
    CHECK(i >= 0 && i < f->count, "tensor %lld of %lld", (long long)i, (long long)f->count);
    return f->by_name[i];
}

const struct st_tensor *safetensors_folder_find(const struct safetensors_folder *f,
                                                const char *name)
{
    const struct st_tensor key = {.name = name}, *at = &key;
    const struct st_tensor **found =
        bsearch(&at, f->by_name, (size_t)f->count, sizeof(const struct st_tensor *), by_name);

    return found == NULL ? NULL : *found;
}
