/* writer_share.c - the files of a writer, filled by several processes at once. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/ckpt/writer_inside.h"

static int write_at(int fd, const void *bytes, size_t n, uint64_t at, const char *name,
                    struct err *err)
{
    const char *from = bytes;

    while (n > 0) {
        const ssize_t done = pwrite(fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return IO_FAIL(err, done < 0 ? errno : EIO, "cannot write %s: %s", name,
                           strerror(done < 0 ? errno : EIO));
        }
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

/* Make the file of a shard, at its full size: what does not fit on the disk is known before anything is copied. */
static int make_file(struct writer *w, int shard, const char *header, size_t n, struct err *err)
{
    struct manifest_file *file = &w->file[shard];
    unsigned char prefix[8];

    TRY(io_join(w->path, sizeof w->path, w->dir, file->name, err));
    const int fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return IO_FAIL(err, errno, "cannot create %s: %s", w->path, strerror(errno));
    }
    w->files++;
    w->fds[shard] = fd;
    const int number = posix_fallocate(fd, 0, (off_t)file->bytes);
    if (number != 0 && number != EOPNOTSUPP && number != EINVAL) {
        return IO_FAIL(err, number, "cannot make room for %s: %s", w->path, strerror(number));
    }
    if (number != 0 && ftruncate(fd, (off_t)file->bytes) != 0) {
        return IO_FAIL(err, errno, "cannot size %s: %s", w->path, strerror(errno));
    }
    writer_prefix(prefix, n);
    TRY(write_at(fd, prefix, sizeof prefix, 0, w->path, err));
    return write_at(fd, header, n, sizeof prefix, w->path, err);
}

/* Where the values of the tensors of a shard lie; returns the first tensor of the next. */
static int64_t lay_out(struct writer *w, int shard, int64_t first, size_t header)
{
    uint64_t at = 8 + header;
    int64_t i = first;

    for (; i < w->count && w->tensor[i].shard == shard; i++) {
        w->tensor[i].begin = at;
        w->where[w->tensor[i].number] = i;
        at += w->tensor[i].bytes;
    }
    w->file[shard].bytes = at;
    return i;
}

int writer_share(struct writer *w, bool creates, struct err *err)
{
    int64_t first = 0;

    CHECK(w->shard < 0 && !w->shared, "%s is started already", w->stem);
    TRY(writer_deal(w, err));
    w->shared = true;
    w->creates = creates;
    w->fds = malloc((size_t)w->shards * sizeof *w->fds);
    w->where = calloc((size_t)w->count + 1, sizeof *w->where);
    if (w->fds == NULL || w->where == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %d files", w->shards);
    }
    memset(w->fds, -1, (size_t)w->shards * sizeof *w->fds);
    for (int shard = 0; shard < w->shards; shard++) {
        size_t n = 0;
        char *header = writer_header(w, shard, first, &n);
        if (header == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for the header of %s", w->stem);
        }
        first = lay_out(w, shard, first, n);
        const int rc = creates ? make_file(w, shard, header, n, err) : 0;
        free(header);
        TRY(rc);
    }
    return 0;
}

/* The open file of a shard. */
static int open_file(struct writer *w, int shard, struct err *err)
{
    if (w->fds[shard] >= 0) {
        return 0;
    }
    TRY(io_join(w->path, sizeof w->path, w->dir, w->file[shard].name, err));
    w->fds[shard] = open(w->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (w->fds[shard] < 0) {
        return IO_FAIL(err, errno, "cannot open %s: %s", w->path, strerror(errno));
    }
    return 0;
}

static int flush(struct writer *w, struct err *err)
{
    const size_t n = w->staged;

    if (n == 0) {
        return 0;
    }
    w->staged = 0;
    TRY(open_file(w, w->stage_shard, err));
    return write_at(w->fds[w->stage_shard], w->stage, n, w->stage_at, w->file[w->stage_shard].name,
                    err);
}

int writer_put_at(struct writer *w, int64_t number, uint64_t at, const void *bytes, size_t n,
                  struct err *err)
{
    CHECK(w->shared && number >= 0 && number < w->count, "%s: tensor %lld", w->stem,
          (long long)number);
    const struct declared *t = &w->tensor[w->where[number]];
    const char *from = bytes;

    CHECK(at <= t->bytes && n <= t->bytes - at, "%s: %zu bytes at %llu of %llu", t->name, n,
          (unsigned long long)at, (unsigned long long)t->bytes);
    w->written += n;
    at += t->begin;
    if (w->stage_shard != t->shard || w->stage_at + w->staged != at) {
        TRY(flush(w, err));
    }
    while (n > 0) {
        const size_t room = WRITER_STAGE - w->staged, part = n < room ? n : room;
        if (w->staged == 0) {
            w->stage_shard = t->shard;
            w->stage_at = at;
        }
        memcpy(w->stage + w->staged, from, part);
        w->staged += part;
        from += part;
        at += part;
        n -= part;
        if (w->staged == WRITER_STAGE) {
            TRY(flush(w, err));
        }
    }
    return 0;
}

int writer_share_end(struct writer *w, struct err *err)
{
    int rc = flush(w, err);

    for (int i = 0; i < w->shards; i++) {
        if (w->fds[i] >= 0 && rc == 0 && fsync(w->fds[i]) != 0) {
            rc = IO_FAIL(err, errno, "cannot sync %s: %s", w->file[i].name, strerror(errno));
        }
        if (w->fds[i] >= 0 && close(w->fds[i]) != 0 && rc == 0) {
            rc = IO_FAIL(err, errno, "cannot close %s: %s", w->file[i].name, strerror(errno));
        }
        w->fds[i] = -1;
    }
    return rc;
}

int writer_share_finish(struct writer *w, struct err *err)
{
    CHECK(w->shared && w->creates, "%s is not this process's to finish", w->stem);
    if (w->shards > 1) {
        TRY(writer_index(w, err));
    }
    TRY(io_sync_dir(w->dir, err));
    w->finished = true;
    return 0;
}

uint64_t writer_share_written(const struct writer *w)
{
    return w->written;
}

uint64_t writer_share_bytes(const struct writer *w)
{
    uint64_t bytes = 0;

    for (int64_t i = 0; i < w->count; i++) {
        bytes += w->tensor[i].bytes;
    }
    return bytes;
}
