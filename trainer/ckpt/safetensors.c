/* safetensors.c - an open file and its checked header. */
#include "trainer/ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/ckpt/header.h"

enum { PREFIX = 8 }; /* the header size in front of the header  */
static const uint64_t HEADER_MAX = UINT64_C(100000000); /* as the reference reader */

struct safetensors {
    int fd;
    char *name; /* owned */
    struct st_header header;
};

static const struct {
    const char *name;
    size_t size;
    enum { FLOAT, INTEGER } kind;
} dtypes[ST_COUNT] = {
#define ST(name, bytes, kind) [ST_##name] = {#name, bytes, kind},
#include "trainer/ckpt/safetensors.def"
};

size_t st_dtype_size(enum st_dtype type)
{
    return dtypes[type].size;
}

const char *st_dtype_name(enum st_dtype type)
{
    return dtypes[type].name;
}

bool st_dtype_is_float(enum st_dtype type)
{
    return dtypes[type].kind == FLOAT;
}

bool st_dtype_from_name(const char *name, enum st_dtype *out)
{
    for (int i = 0; i < ST_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (enum st_dtype)i;
            return true;
        }
    }
    return false;
}

/* The size in front of the header, checked against the file's. */
static int read_prefix(const struct safetensors *st, uint64_t file_bytes, uint64_t *out,
                       struct err *err)
{
    unsigned char prefix[PREFIX];
    uint64_t n = 0;

    if (file_bytes < PREFIX) {
        return FAIL(err, ERR_BAD_FILE, "%s has %llu bytes, too few for safetensors", st->name,
                    (unsigned long long)file_bytes);
    }
    TRY(io_read_at(st->fd, prefix, sizeof prefix, 0, st->name, err));
    if (memcmp(prefix, "version ", PREFIX) == 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "%s is a Git LFS pointer, not the weights: fetch them with git lfs pull",
                    st->name);
    }
    for (int i = PREFIX - 1; i >= 0; i--) {
        n = n << 8 | prefix[i];
    }
    if (n > HEADER_MAX || n > file_bytes - PREFIX) {
        return FAIL(err, ERR_BAD_FILE,
                    "%s is not safetensors, or cut off: its header should have %llu bytes and the "
                    "file has %llu",
                    st->name, (unsigned long long)n, (unsigned long long)file_bytes);
    }
    *out = n;
    return 0;
}

static int read_header(struct safetensors *st, struct err *err)
{
    struct stat about;
    uint64_t n = 0;

    if (fstat(st->fd, &about) != 0) {
        return FAIL(err, ERR_IO, "cannot stat %s: %s", st->name, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return FAIL(err, ERR_BAD_FILE, "%s is not a regular file", st->name);
    }
    TRY(read_prefix(st, (uint64_t)about.st_size, &n, err));
    char *text = malloc((size_t)n + 1);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the header of %s", st->name);
    }
    const int rc = io_read_at(st->fd, text, (size_t)n, PREFIX, st->name, err);
    if (rc != 0) {
        free(text);
        return rc;
    }
    TRY(st_header_parse(&st->header, text, (size_t)n, (uint64_t)about.st_size - PREFIX - n,
                        st->name, err));
    for (int64_t i = 0; i < st->header.count; i++) {
        st->header.tensor[i].file = st;
        st->header.tensor[i].offset += PREFIX + n;
    }
    return 0;
}

/* An error quotes names from the file; keep it on one line. */
static void one_line(struct err *err)
{
    for (char *c = err->text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7F) {
            *c = '?';
        }
    }
}

int safetensors_open_fd(struct safetensors **out, int fd, const char *name, struct err *err)
{
    struct safetensors *st = calloc(1, sizeof *st);

    *out = NULL;
    if (st != NULL) {
        st->fd = fd;
        st->name = strdup(name);
    }
    if (st == NULL || st->name == NULL) {
        free(st);
        (void)close(fd);
        return FAIL(err, ERR_NO_MEMORY, "no memory to open %s", name);
    }
    const int rc = read_header(st, err);
    if (rc != 0) {
        one_line(err);
        safetensors_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

int safetensors_open(struct safetensors **out, const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *out = NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return FAIL(err, ERR_NOT_FOUND, "%s does not exist", path);
    }
    if (fd < 0) {
        return FAIL(err, ERR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    return safetensors_open_fd(out, fd, path, err);
}

int safetensors_open_beneath(struct safetensors **out, int root_fd, const char *relative,
                             struct err *err)
{
    int fd = -1;

    *out = NULL;
    TRY(io_open_beneath(&fd, root_fd, relative, err));
    return safetensors_open_fd(out, fd, relative, err);
}

void safetensors_close(struct safetensors *st)
{
    if (st == NULL) {
        return;
    }
    st_header_fini(&st->header);
    (void)close(st->fd);
    free(st->name);
    free(st);
}

int64_t safetensors_count(const struct safetensors *st)
{
    return st->header.count;
}

const struct st_tensor *safetensors_at(const struct safetensors *st, int64_t i)
{
    CHECK(i >= 0 && i < st->header.count, "tensor %lld of %lld", (long long)i,
          (long long)st->header.count);
    return &st->header.tensor[i];
}

const struct st_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
    int64_t low = 0, high = st->header.count;

    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = strcmp(name, st->header.by_name[middle]->name);
        if (order == 0) {
            return st->header.by_name[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *st, const char *key)
{
    for (int64_t i = 0; i < st->header.metadata_count; i++) {
        if (strcmp(st->header.metadata[i].key, key) == 0) {
            return st->header.metadata[i].value;
        }
    }
    return NULL;
}

const char *safetensors_name(const struct safetensors *st)
{
    return st->name;
}

int64_t st_count(const struct st_tensor *t)
{
    return (int64_t)(t->bytes / st_dtype_size(t->dtype));
}

int64_t st_rows(const struct st_tensor *t)
{
    int64_t rows = t->dims == 1 ? t->shape[0] : 1;

    for (int i = 0; i + 1 < t->dims; i++) {
        rows *= t->shape[i]; /* fits: the header's check multiplied them in this order */
    }
    return rows;
}

int64_t st_cols(const struct st_tensor *t)
{
    return t->dims < 2 ? 1 : t->shape[t->dims - 1];
}

int safetensors_read_bytes(const struct st_tensor *t, uint64_t begin, void *out, size_t n,
                           struct err *err)
{
    CHECK(begin <= t->bytes && n <= t->bytes - begin, "bytes %llu + %zu of %llu",
          (unsigned long long)begin, n, (unsigned long long)t->bytes);
    return io_read_at(t->file->fd, out, n, t->offset + begin, t->file->name, err);
}
