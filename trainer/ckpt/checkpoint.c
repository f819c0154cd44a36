/* checkpoint.c - the folder of checkpoints: its names, what is complete, the newest, what goes. */
#include "trainer/ckpt/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/ckpt/names.h"

/* The steps that have a folder, complete or not, ascending. */
struct steps {
    int64_t *at; /* owned */
    int count;
};

static int by_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int add_step(struct steps *s, int64_t step, struct err *err)
{
    int64_t *grown = reallocarray(s->at, (size_t)s->count + 1, sizeof *grown);

    if (grown == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a list of checkpoints");
    }
    s->at = grown;
    s->at[s->count++] = step;
    return 0;
}

/* On failure *out is empty. */
static int read_steps(struct steps *out, const char *jobdir, struct err *err)
{
    char path[IO_PATH_MAX];
    struct io_names names;
    int64_t step = 0;
    int rc = 0;

    *out = (struct steps){0};
    TRY(io_join(path, sizeof path, jobdir, CHECKPOINTS, err));
    TRY(io_list_dir(&names, path, err));
    for (int i = 0; i < names.count && rc == 0; i++) {
        if (checkpoint_name_kind(names.at[i]->d_name, &step) == NAME_COMPLETE) {
            rc = add_step(out, step, err);
        }
    }
    io_names_fini(&names);
    if (rc != 0) {
        free(out->at);
        *out = (struct steps){0};
    } else if (out->count > 0) {
        qsort(out->at, (size_t)out->count, sizeof *out->at, by_step);
    }
    return rc;
}

/* Read the manifest of a step's folder and compare it with the folder: sizes, or hashes as well. */
static int read_one(struct checkpoint *out, const char *jobdir, int64_t step, bool hash,
                    struct err *err)
{
    char dir[IO_PATH_MAX];
    struct manifest m;

    TRY(checkpoint_path(dir, jobdir, NAME_COMPLETE, step, err));
    TRY(manifest_read(&m, dir, err));
    int rc = 0;
    if (m.step != step) {
        rc = FAIL(err, ERR_BAD_FILE, "the manifest in %s is of step %lld", dir, (long long)m.step);
    } else if (hash) {
        rc = manifest_check_hashes(&m, dir, err);
    } else {
        rc = manifest_check_sizes(&m, dir, err);
    }
    if (rc == 0) {
        checkpoint_describe(out, &m);
    }
    manifest_fini(&m);
    return rc;
}

int checkpoint_read(struct checkpoint *out, const char *jobdir, int64_t step, struct err *err)
{
    return read_one(out, jobdir, step, false, err);
}

int checkpoint_verify(const char *jobdir, int64_t step, struct err *err)
{
    struct checkpoint ignored;

    return read_one(&ignored, jobdir, step, true, err);
}

int checkpoint_list_read(struct checkpoint_list *out, const char *jobdir, struct err *err)
{
    struct steps steps;
    struct err reason;

    *out = (struct checkpoint_list){0};
    TRY(read_steps(&steps, jobdir, err));
    out->at = calloc((size_t)steps.count + 1, sizeof *out->at);
    for (int i = 0; i < steps.count && out->at != NULL; i++) {
        /* What can't be read is not complete; why is told when somebody asks for that step. */
        if (read_one(&out->at[out->count], jobdir, steps.at[i], false, &reason) == 0) {
            out->count++;
        }
    }
    free(steps.at);
    return out->at == NULL ? FAIL(err, ERR_NO_MEMORY, "no memory for a list of checkpoints") : 0;
}

void checkpoint_list_fini(struct checkpoint_list *l)
{
    free(l->at);
    *l = (struct checkpoint_list){0};
}

int checkpoint_newest_good(struct checkpoint *out, const char *jobdir, struct err *skipped,
                           struct err *err)
{
    struct steps steps;
    struct err reason;
    int i = 0;

    *skipped = (struct err){0};
    TRY(read_steps(&steps, jobdir, err));
    for (i = steps.count - 1; i >= 0; i--) {
        const int rc = read_one(out, jobdir, steps.at[i], true, &reason);
        if (rc == 0) {
            break;
        }
        if (skipped->code == ERR_NONE) {
            err_set(skipped, reason.code, "the checkpoint of step %lld is passed over: %s",
                    (long long)steps.at[i], reason.text);
        }
    }
    free(steps.at);
    if (i >= 0) {
        return 0;
    }
    return FAIL(err, ERR_NOT_FOUND, "the job has no checkpoint that can be resumed from");
}

/* Take the folder of a step out of sight in one rename, then remove it. */
static int remove_step(const char *jobdir, int64_t step, struct err *err)
{
    char from[IO_PATH_MAX], to[IO_PATH_MAX];

    TRY(checkpoint_path(from, jobdir, NAME_COMPLETE, step, err));
    TRY(checkpoint_path(to, jobdir, NAME_GONE, step, err));
    TRY(io_remove_tree(to, err));
    if (rename(from, to) != 0) {
        return IO_FAIL(err, errno, "cannot rename %s: %s", from, strerror(errno));
    }
    return io_remove_tree(to, err);
}

int checkpoint_keep(const char *jobdir, int keep, int64_t verified, checkpoint_gone_fn gone,
                    void *context, struct err *err)
{
    struct checkpoint_list list;
    struct steps steps = {0};

    CHECK(keep >= 1, "keep %d checkpoints", keep);
    TRY(checkpoint_list_read(&list, jobdir, err));
    const bool has_older = list.count > keep;
    const int64_t oldest = has_older ? list.at[list.count - keep].step : 0;
    const int64_t newest = has_older ? list.at[list.count - 1].step : 0;
    checkpoint_list_fini(&list);
    if (!has_older) {
        return 0;
    }
    if (newest != verified) {
        TRY(checkpoint_verify(jobdir, newest, err));
    }
    TRY(read_steps(&steps, jobdir, err));
    const int64_t best = checkpoint_best(jobdir);
    int rc = 0;
    for (int i = 0; i < steps.count && steps.at[i] < oldest && rc == 0; i++) {
        if (steps.at[i] == best) {
            continue;
        }
        rc = remove_step(jobdir, steps.at[i], err);
        if (rc == 0 && gone != NULL) {
            gone(context, steps.at[i]);
        }
    }
    free(steps.at);
    return rc;
}

/* One entry that a crash may have left. */
static int sweep_entry(const char *jobdir, const char *name, struct err *err)
{
    char path[IO_PATH_MAX], complete[IO_PATH_MAX];
    int64_t step = 0;
    const enum name_kind kind = checkpoint_name_kind(name, &step);

    switch (kind) {
    case NAME_OTHER:
    case NAME_COMPLETE: return 0;
    case NAME_PARTIAL:
    case NAME_GONE:
    case NAME_REPLACED: break;
    }
    TRY(checkpoint_path(path, jobdir, kind, step, err));
    TRY(checkpoint_path(complete, jobdir, NAME_COMPLETE, step, err));
    if (kind == NAME_REPLACED && access(complete, F_OK) != 0) {
        /* The crash came between the old one's rename and the new one's. */
        if (rename(path, complete) != 0) {
            return IO_FAIL(err, errno, "cannot rename %s: %s", path, strerror(errno));
        }
        return 0;
    }
    return io_remove_tree(path, err);
}

int checkpoint_sweep(const char *jobdir, struct err *err)
{
    char path[IO_PATH_MAX];
    struct checkpoint_list list;
    struct io_names names;
    int rc = 0;

    TRY(io_join(path, sizeof path, jobdir, CHECKPOINTS, err));
    TRY(io_list_dir(&names, path, err));
    if (names.count == 0) {
        return 0;
    }
    for (int i = 0; i < names.count && rc == 0; i++) {
        rc = sweep_entry(jobdir, names.at[i]->d_name, err);
    }
    io_names_fini(&names);
    TRY(rc);
    TRY(checkpoint_list_read(&list, jobdir, err));
    if (list.count > 0) {
        rc = checkpoint_prepare_latest(jobdir, list.at[list.count - 1].step, err);
        if (rc == 0) {
            rc = checkpoint_replace_latest(jobdir, err);
        }
    }
    checkpoint_list_fini(&list);
    return rc != 0 ? rc : io_sync_dir(path, err);
}
