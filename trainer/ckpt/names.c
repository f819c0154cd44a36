/* names.c - making and reading the names of checkpoint folders. */
#include "trainer/ckpt/names.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"

enum { NAME_SIZE = 64 };
static const char BEST[] = CHECKPOINTS "/best", BEST_ASIDE[] = CHECKPOINTS "/.best-tmp";
static const char LATEST[] = CHECKPOINTS "/latest", LATEST_ASIDE[] = CHECKPOINTS "/.latest-tmp";

static const struct {
    const char *prefix, *suffix;
} shapes[] = {
    [NAME_OTHER] = {"", ""},
    [NAME_COMPLETE] = {"step-", ""},
    [NAME_PARTIAL] = {".step-", "-tmp"},
    [NAME_REPLACED] = {".step-", "-old"},
    [NAME_GONE] = {".step-", "-gone"},
};

static void make_name(char out[NAME_SIZE], enum name_kind kind, int64_t step)
{
    (void)snprintf(out, NAME_SIZE, "%s%08" PRId64 "%s", shapes[kind].prefix, step,
                   shapes[kind].suffix);
}

enum name_kind checkpoint_name_kind(const char *name, int64_t *step)
{
    char again[NAME_SIZE];

    for (enum name_kind kind = NAME_COMPLETE; kind <= NAME_GONE; kind++) {
        const size_t n = strlen(shapes[kind].prefix);
        if (strncmp(name, shapes[kind].prefix, n) != 0) {
            continue;
        }
        errno = 0;
        *step = strtoll(name + n, NULL, 10);
        make_name(again, kind, *step);
        if (errno == 0 && *step >= 0 && strcmp(name, again) == 0) {
            return kind;
        }
    }
    return NAME_OTHER;
}

int checkpoint_path(char *out, const char *jobdir, enum name_kind kind, int64_t step,
                    struct err *err)
{
    char name[NAME_SIZE], below[NAME_SIZE + sizeof CHECKPOINTS];

    CHECK(step >= 0 && kind != NAME_OTHER, "step %lld", (long long)step);
    make_name(name, kind, step);
    (void)snprintf(below, sizeof below, "%s/%s", CHECKPOINTS, name);
    return io_join(out, IO_PATH_MAX, jobdir, below, err);
}

void checkpoint_describe(struct checkpoint *out, const struct manifest *m)
{
    char name[NAME_SIZE];

    make_name(name, NAME_COMPLETE, m->step);
    *out = (struct checkpoint){
        .step = m->step, .created_at = m->created_at, .bytes = manifest_bytes(m)};
    memcpy(out->sha256, m->sha256, SHA256_TEXT);
    CHECK(snprintf(out->dir, sizeof out->dir, "%s/%s", CHECKPOINTS, name) < (int)sizeof out->dir,
          "step %lld", (long long)m->step);
}

static int prepare_link(const char *jobdir, const char *name, int64_t step, struct err *err)
{
    char aside[IO_PATH_MAX], target[NAME_SIZE];

    TRY(io_join(aside, sizeof aside, jobdir, name, err));
    make_name(target, NAME_COMPLETE, step);
    if (unlink(aside) != 0 && errno != ENOENT) {
        return IO_FAIL(err, errno, "cannot remove %s: %s", aside, strerror(errno));
    }
    if (symlink(target, aside) != 0) {
        return IO_FAIL(err, errno, "cannot make the link %s: %s", aside, strerror(errno));
    }
    return 0;
}

static int replace_link(const char *jobdir, const char *from, const char *to, struct err *err)
{
    char aside[IO_PATH_MAX], path[IO_PATH_MAX];

    TRY(io_join(aside, sizeof aside, jobdir, from, err));
    TRY(io_join(path, sizeof path, jobdir, to, err));
    if (rename(aside, path) != 0) {
        return IO_FAIL(err, errno, "cannot replace %s: %s", path, strerror(errno));
    }
    return 0;
}

int checkpoint_prepare_latest(const char *jobdir, int64_t step, struct err *err)
{
    return prepare_link(jobdir, LATEST_ASIDE, step, err);
}

int checkpoint_replace_latest(const char *jobdir, struct err *err)
{
    return replace_link(jobdir, LATEST_ASIDE, LATEST, err);
}

int checkpoint_mark_best(const char *jobdir, int64_t step, struct err *err)
{
    TRY(prepare_link(jobdir, BEST_ASIDE, step, err));
    return replace_link(jobdir, BEST_ASIDE, BEST, err);
}

int64_t checkpoint_best(const char *jobdir)
{
    char path[IO_PATH_MAX], target[NAME_SIZE];
    struct err ignored = {0};
    int64_t step = -1;

    if (io_join(path, sizeof path, jobdir, BEST, &ignored) != 0) {
        return -1;
    }
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0) {
        return -1;
    }
    target[n] = '\0';
    return checkpoint_name_kind(target, &step) == NAME_COMPLETE ? step : -1;
}
