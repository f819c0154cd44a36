/* writer.c - declared tensors, dealt to shards, written in one pass. */
#include "trainer/ckpt/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/values.h"
#include "trainer/ckpt/writer_inside.h"

enum { ALIGN = 8 /* of the data's begin in the file */ };

int writer_new(struct writer **out, const char *dir, const char *stem, uint64_t shard_bytes,
               struct err *err)
{
    *out = NULL;
    CHECK(stem[0] != '\0' && strlen(stem) < sizeof(((struct writer *)0)->stem), "stem %s", stem);
    CHECK(shard_bytes > 0, "shards of no bytes");
    if (strlen(dir) >= IO_PATH_MAX) {
        return FAIL(err, ERR_IO, "the path %.100s... is too long", dir);
    }
    struct writer *w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->stage = malloc(WRITER_STAGE);
        w->metadata = json_pack("{s:s}", "format", "pt");
        w->shard_bytes = shard_bytes;
        w->fd = w->shard = -1;
        (void)snprintf(w->dir, sizeof w->dir, "%s", dir);
        (void)snprintf(w->stem, sizeof w->stem, "%s", stem);
    }
    if (w == NULL || w->stage == NULL || w->metadata == NULL) {
        writer_free(w);
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s/%s.safetensors", dir, stem);
    }
    *out = w;
    return 0;
}

void writer_free(struct writer *w)
{
    char path[IO_PATH_MAX + MANIFEST_NAME_MAX + 2];

    if (w == NULL) {
        return;
    }
    if (w->fd >= 0) {
        (void)close(w->fd);
    }
    for (int i = 0; w->fds != NULL && i < w->shards; i++) {
        if (w->fds[i] >= 0) {
            (void)close(w->fds[i]);
        }
    }
    for (int i = 0; i < w->files && !w->finished && (!w->shared || w->creates); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", w->dir, w->file[i].name);
        (void)unlink(path);
    }
    for (int64_t i = 0; i < w->count; i++) {
        free(w->tensor[i].name);
    }
    free(w->tensor);
    free(w->fds);
    free(w->where);
    free(w->file);
    free(w->stage);
    json_decref(w->metadata);
    free(w);
}

int writer_metadata(struct writer *w, const char *key, const char *value, struct err *err)
{
    CHECK(w->shard < 0, "metadata %s after the start", key);
    if (json_object_set_new(w->metadata, key, json_string(value)) != 0) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the metadata of %s", w->stem);
    }
    return 0;
}

int writer_declare(struct writer *w, const char *name, enum st_dtype dtype, int dims,
                   const int64_t *shape, struct err *err)
{
    int64_t bytes = (int64_t)st_dtype_size(dtype);

    CHECK(w->shard < 0, "tensor %s declared after the start", name);
    CHECK(dims >= 0 && dims <= ST_DIMS_MAX && strcmp(name, "__metadata__") != 0,
          "%s: %d dimensions", name, dims);
    if (w->count == w->room) {
        const int64_t room = w->room == 0 ? 64 : 2 * w->room;
        struct declared *grown = reallocarray(w->tensor, (size_t)room, sizeof *grown);
        if (grown == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for tensor %s", name);
        }
        w->tensor = grown;
        w->room = room;
    }
    struct declared *t = &w->tensor[w->count];
    *t = (struct declared){.dtype = dtype, .dims = dims, .number = w->count, .name = strdup(name)};
    if (t->name == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for tensor %s", name);
    }
    w->count++;
    for (int i = 0; i < dims; i++) {
        t->shape[i] = shape[i];
        CHECK(shape[i] >= 0 && !__builtin_mul_overflow(bytes, shape[i], &bytes),
              "%s: dimension %lld", name, (long long)shape[i]);
    }
    t->bytes = (uint64_t)bytes;
    return 0;
}

/* Give the tensors of [first, end) that have no shard yet this one. */
static void close_group(struct writer *w, int64_t first, int64_t end, int shard)
{
    for (int64_t i = first; i < end; i++) {
        if (w->tensor[i].shard < 0) {
            w->tensor[i].shard = shard;
        }
    }
}

/* As huggingface_hub does: a tensor larger than a shard gets one to itself at once; the others
 * gather in a group that gets the next number when a tensor no longer fits, or at the end. */
static void deal(struct writer *w)
{
    uint64_t used = 0;
    int64_t first = 0, gathered = 0;
    int next = 0;

    for (int64_t i = 0; i < w->count; i++) {
        struct declared *t = &w->tensor[i];
        t->shard = -1;
        if (t->bytes > w->shard_bytes) {
            t->shard = next++;
            continue;
        }
        if (used + t->bytes > w->shard_bytes) {
            close_group(w, first, i, next++);
            first = i;
            gathered = 0;
            used = 0;
        }
        gathered++;
        used += t->bytes;
    }
    if (gathered > 0 || w->count == 0) {
        close_group(w, first, w->count, next++);
    }
    w->shards = next;
}

/* Shard by shard, inside by type from the last row of safetensors.def to the first, then by name.
 * */
static int in_order(const void *a, const void *b)
{
    const struct declared *x = a, *y = b;

    if (x->shard != y->shard) {
        return x->shard < y->shard ? -1 : 1;
    }
    if (x->dtype != y->dtype) {
        return x->dtype > y->dtype ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

char *writer_header(const struct writer *w, int shard, int64_t first, size_t *bytes)
{
    json_t *header = json_pack("{s:O}", "__metadata__", w->metadata);
    uint64_t end = 0;
    bool failed = header == NULL;

    for (int64_t i = first; !failed && i < w->count && w->tensor[i].shard == shard; i++) {
        const struct declared *t = &w->tensor[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->dims; d++) {
            failed |= json_array_append_new(shape, json_integer(t->shape[d])) != 0;
        }
        json_t *entry =
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", st_dtype_name(t->dtype), "shape", shape,
                      "data_offsets", (json_int_t)end, (json_int_t)end + (json_int_t)t->bytes);
        CHECK(json_object_get(header, t->name) == NULL, "tensor %s is declared twice", t->name);
        failed |= json_object_set_new(header, t->name, entry) != 0;
        end += t->bytes;
    }
    char *text = failed ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    const size_t n = text == NULL ? 0 : strlen(text);
    const size_t padded = (n + ALIGN - 1) / ALIGN * ALIGN;
    char *grown = text == NULL ? NULL : realloc(text, padded + 1);
    if (grown == NULL) {
        free(text);
        return NULL;
    }
    memset(grown + n, ' ', padded - n);
    *bytes = padded;
    return grown;
}

void writer_prefix(unsigned char out[8], size_t header_bytes)
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i) & 0xFFU);
    }
}

/* Write to the open shard and hash. */
static int emit(struct writer *w, const void *bytes, size_t n, struct err *err)
{
    TRY(io_write_all(w->fd, bytes, n, w->path, err));
    sha256_add(&w->hash, bytes, n);
    w->file[w->files - 1].bytes += n;
    return 0;
}

static int write_header(struct writer *w, struct err *err)
{
    unsigned char prefix[8];
    size_t n = 0;
    char *text = writer_header(w, w->shard, w->at, &n);

    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the header of %s", w->path);
    }
    writer_prefix(prefix, n);
    int rc = emit(w, prefix, sizeof prefix, err);
    if (rc == 0) {
        rc = emit(w, text, n, err);
    }
    free(text);
    return rc;
}

/* Begin the file of the next shard. */
static int open_shard(struct writer *w, struct err *err)
{
    struct manifest_file *file = &w->file[w->files];

    w->shard++;
    TRY(io_join(w->path, sizeof w->path, w->dir, file->name, err));
    w->fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (w->fd < 0) {
        return IO_FAIL(err, errno, "cannot create %s: %s", w->path, strerror(errno));
    }
    w->files++;
    sha256_begin(&w->hash);
    return write_header(w, err);
}

static int close_shard(struct writer *w, struct err *err)
{
    const int fd = w->fd;
    int rc = 0;

    if (fsync(fd) != 0) {
        rc = IO_FAIL(err, errno, "cannot sync %s: %s", w->path, strerror(errno));
    }
    w->fd = -1;
    if (close(fd) != 0 && rc == 0) {
        rc = IO_FAIL(err, errno, "cannot close %s: %s", w->path, strerror(errno));
    }
    sha256_end(&w->hash, w->file[w->files - 1].sha256);
    return rc;
}

/* Pass tensors and shards that are complete. */
static int advance(struct writer *w, struct err *err)
{
    while (w->fd >= 0) {
        if (w->at < w->count && w->tensor[w->at].shard == w->shard) {
            if (w->done < w->tensor[w->at].bytes) {
                return 0;
            }
            w->at++;
            w->done = 0;
            continue;
        }
        TRY(close_shard(w, err));
        if (w->shard + 1 < w->shards) {
            TRY(open_shard(w, err));
        }
    }
    return 0;
}

int writer_deal(struct writer *w, struct err *err)
{
    deal(w);
    if (w->count > 0) {
        qsort(w->tensor, (size_t)w->count, sizeof *w->tensor, in_order);
    }
    w->file = calloc((size_t)w->shards + 1, sizeof *w->file);
    if (w->file == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %d files", w->shards);
    }
    for (int i = 0; i < w->shards; i++) {
        char *name = w->file[i].name;
        if (w->shards == 1) {
            (void)snprintf(name, sizeof w->file[i].name, "%s.safetensors", w->stem);
        } else {
            (void)snprintf(name, sizeof w->file[i].name, "%s-%05d-of-%05d.safetensors", w->stem,
                           i + 1, w->shards);
        }
    }
    return 0;
}

int writer_start(struct writer *w, struct err *err)
{
    CHECK(w->shard < 0, "%s is started already", w->stem);
    TRY(writer_deal(w, err));
    TRY(open_shard(w, err));
    return advance(w, err);
}

int64_t writer_next(const struct writer *w)
{
    return w->at < w->count ? w->tensor[w->at].number : -1;
}

int writer_put_bytes(struct writer *w, const void *bytes, size_t n, struct err *err)
{
    CHECK(w->fd >= 0 && w->at < w->count, "%s wants no more bytes", w->stem);
    const struct declared *t = &w->tensor[w->at];
    CHECK(n <= t->bytes - w->done, "%s: %zu bytes behind %llu of %llu", t->name, n,
          (unsigned long long)w->done, (unsigned long long)t->bytes);
    TRY(emit(w, bytes, n, err));
    w->done += n;
    return advance(w, err);
}

/* Part of a matrix of memory as the file wants it: rows [row, row + rows) and columns [col, col +
 * cols) of `values` or of its transpose. */
struct part {
    struct tensor values;
    enum st_turn turn;
    int64_t row, rows, col, cols;
};

/* Convert a part into `out`, row by row. False when an integer does not fit. */
static bool convert(const struct part *p, char *out, enum st_dtype dtype)
{
    const enum st_dtype type = values_stored(p->values.type);
    const int64_t size = (int64_t)st_dtype_size(dtype), from = (int64_t)dtype_size(p->values.type);
    const int64_t width = tensor_cols(p->values);
    char *values = p->values.data;
    bool fits = true;

    if (p->turn == ST_AS_IS) {
        for (int64_t r = 0; r < p->rows; r++) {
            fits &=
                values_convert(out + r * p->cols * size, dtype, 1,
                               values + ((p->row + r) * width + p->col) * from, type, 1, p->cols);
        }
        return fits;
    }
    const struct values_grid target = {out, dtype, p->cols};
    const struct values_grid source = {values + (p->col * width + p->row) * from, type, width};
    return values_transpose(target, source, p->cols, p->rows);
}

int writer_put(struct writer *w, struct tensor values, enum st_turn turn, struct err *err)
{
    const bool turned = turn == ST_TRANSPOSED;
    const int64_t rows = turned ? tensor_cols(values) : tensor_rows(values);
    const int64_t cols = turned ? tensor_rows(values) : tensor_cols(values);

    CHECK(w->fd >= 0 && w->at < w->count, "%s wants no more values", w->stem);
    const struct declared *t = &w->tensor[w->at];
    const int64_t most =
        WRITER_STAGE / (int64_t)st_dtype_size(t->dtype); /* elements of the stage */
    const int64_t step = cols >= most ? 1 : most / (cols > 0 ? cols : 1);
    const int64_t width = cols < most ? cols : most;

    CHECK(values_can_convert(values_stored(values.type), t->dtype), "%s: %s from %s", t->name,
          st_dtype_name(t->dtype), dtype_name(values.type));
    CHECK((uint64_t)(rows * cols) * st_dtype_size(t->dtype) <= t->bytes - w->done,
          "%s: %lld x %lld values behind %llu of %llu bytes", t->name, (long long)rows,
          (long long)cols, (unsigned long long)w->done, (unsigned long long)t->bytes);
    for (int64_t row = 0; row < rows && cols > 0; row += step) {
        for (int64_t col = 0; col < cols; col += width) {
            const struct part p = {.values = values,
                                   .turn = turn,
                                   .row = row,
                                   .rows = rows - row < step ? rows - row : step,
                                   .col = col,
                                   .cols = cols - col < width ? cols - col : width};
            const size_t n = (size_t)(p.rows * p.cols) * st_dtype_size(t->dtype);
            if (!convert(&p, w->stage, t->dtype)) {
                return FAIL(err, ERR_BAD_FILE, "%s: an integer does not fit %s", t->name,
                            st_dtype_name(t->dtype));
            }
            TRY(writer_put_bytes(w, w->stage, n, err));
        }
    }
    return 0;
}

int writer_index(struct writer *w, struct err *err)
{
    struct manifest_file *file = &w->file[w->files];
    json_t *map = json_object();
    uint64_t total = 0;
    bool failed = map == NULL;

    for (int64_t i = 0; i < w->count && !failed; i++) {
        const struct declared *t = &w->tensor[i];
        total += t->bytes;
        CHECK(json_object_get(map, t->name) == NULL, "tensor %s is declared twice", t->name);
        failed = json_object_set_new(map, t->name, json_string(w->file[t->shard].name)) != 0;
    }
    json_t *index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = index == NULL || failed
                     ? NULL
                     : json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    json_decref(index);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the index of %s", w->stem);
    }
    const size_t n = strlen(text);
    text[n] = '\n'; /* in the place of the NUL */
    (void)snprintf(file->name, sizeof file->name, "%s.safetensors.index.json", w->stem);
    file->bytes = n + 1;
    sha256_of(text, n + 1, file->sha256);
    int rc = io_join(w->path, sizeof w->path, w->dir, file->name, err);
    if (rc == 0) {
        w->files++;
        rc = io_write_file(w->path, text, n + 1, err);
    }
    free(text);
    return rc;
}

int writer_finish(struct writer *w, struct err *err)
{
    CHECK(w->shard + 1 == w->shards && w->fd < 0 && w->at == w->count,
          "%s: %lld of %lld tensors are written", w->stem, (long long)w->at, (long long)w->count);
    if (w->shards > 1) {
        TRY(writer_index(w, err));
    }
    TRY(io_sync_dir(w->dir, err));
    w->finished = true;
    return 0;
}

const struct manifest_file *writer_files(const struct writer *w, int *count)
{
    CHECK(w->finished, "%s is not finished", w->stem);
    *count = w->files;
    return w->file;
}
