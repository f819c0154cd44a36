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

int checkpoint_prepare_latest(const char *jobdir, int64_t step, struct err *err)
{
    char aside[IO_PATH_MAX], target[NAME_SIZE];

    TRY(io_join(aside, sizeof aside, jobdir, LATEST_ASIDE, err));
    make_name(target, NAME_COMPLETE, step);
    if (unlink(aside) != 0 && errno != ENOENT) {
        return IO_FAIL(err, errno, "cannot remove %s: %s", aside, strerror(errno));
    }
    if (symlink(target, aside) != 0) {
        return IO_FAIL(err, errno, "cannot make the link %s: %s", aside, strerror(errno));
    }
    return 0;
}

int checkpoint_replace_latest(const char *jobdir, struct err *err)
{
    char aside[IO_PATH_MAX], latest[IO_PATH_MAX];

    TRY(io_join(aside, sizeof aside, jobdir, LATEST_ASIDE, err));
    TRY(io_join(latest, sizeof latest, jobdir, LATEST, err));
    if (rename(aside, latest) != 0) {
        return IO_FAIL(err, errno, "cannot replace %s: %s", latest, strerror(errno));
    }
    return 0;
}
