/* commit.c - writing one checkpoint: a folder aside, complete at the rename or gone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/ckpt/names.h"

struct checkpoint_save {
    char jobdir[IO_PATH_MAX], partial[IO_PATH_MAX], complete[IO_PATH_MAX];
    struct manifest manifest;
};

int checkpoint_begin(struct checkpoint_save **out, const char *jobdir, int64_t step,
                     struct err *err)
{
    struct checkpoint_save *s = calloc(1, sizeof *s);
    char parent[IO_PATH_MAX];

    *out = NULL;
    if (s == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to save step %lld", (long long)step);
    }
    s->manifest.step = step;
    int rc = io_join(parent, sizeof parent, jobdir, CHECKPOINTS, err);
    if (rc == 0) {
        (void)snprintf(s->jobdir, sizeof s->jobdir, "%s", jobdir); /* shorter than parent */
    }
    if (rc == 0) {
        rc = checkpoint_path(s->partial, jobdir, NAME_PARTIAL, step, err);
    }
    if (rc == 0) {
        rc = checkpoint_path(s->complete, jobdir, NAME_COMPLETE, step, err);
    }
    if (rc == 0) {
        rc = io_make_dir(parent, err);
    }
    if (rc == 0) {
        rc = io_remove_tree(s->partial, err);
    }
    if (rc == 0) {
        rc = io_make_dir(s->partial, err);
    }
    if (rc != 0) {
        free(s);
        return rc;
    }
    *out = s;
    return 0;
}

const char *checkpoint_save_dir(const struct checkpoint_save *s)
{
    return s->partial;
}

int checkpoint_partial_dir(char *out, const char *jobdir, int64_t step, struct err *err)
{
    return checkpoint_path(out, jobdir, NAME_PARTIAL, step, err);
}

int checkpoint_files_hashed(struct checkpoint_save *s, const struct manifest_file *files, int count,
                            struct err *err)
{
    for (int i = 0; i < count; i++) {
        TRY(manifest_add(&s->manifest, files[i].name, files[i].bytes, files[i].sha256, err));
    }
    return 0;
}

/* Sync one file, and hash it unless its hash is known. */
static int seal_file(struct checkpoint_save *s, int fd, const char *name, bool verify,
                     struct err *err)
{
    char sha256[SHA256_TEXT];
    uint64_t bytes = 0;

    if (manifest_find(&s->manifest, name) == NULL) {
        TRY(sha256_fd(fd, name, sha256, &bytes, err));
        TRY(manifest_add(&s->manifest, name, bytes, sha256, err));
    }
    if (fsync(fd) != 0) {
        return IO_FAIL(err, errno, "cannot sync %s: %s", name, strerror(errno));
    }
    if (verify) {
        /* Clean pages are dropped, so that the verification reads what the disk has. */
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}

/* Every file of the folder into the manifest. Names with a dot in front are not the checkpoint's
 * (NFS makes such when an open file is removed). */
static int seal_files(struct checkpoint_save *s, bool verify, struct err *err)
{
    struct io_names names;
    int rc = 0, dir_fd = -1, fd = -1;

    TRY(io_list_dir(&names, s->partial, err));
    rc = io_open_dir(&dir_fd, s->partial, err);
    for (int i = 0; i < names.count && rc == 0; i++) {
        if (names.at[i]->d_name[0] == '.') {
            continue;
        }
        CHECK(manifest_name_is_valid(names.at[i]->d_name), "%s in %s", names.at[i]->d_name,
              s->partial);
        rc = io_open_beneath(&fd, dir_fd, names.at[i]->d_name, err);
        if (rc == 0) {
            rc = seal_file(s, fd, names.at[i]->d_name, verify, err);
            (void)close(fd);
        }
    }
    if (dir_fd >= 0) {
        (void)close(dir_fd);
    }
    io_names_fini(&names);
    return rc;
}

/* Where the step has a folder already, the two change places; then the old one is in the
 * partial's. */
static int put_in_place(struct checkpoint_save *s, struct err *err)
{
    char old[IO_PATH_MAX];

    if (renameat2(AT_FDCWD, s->partial, AT_FDCWD, s->complete, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (renameat2(AT_FDCWD, s->partial, AT_FDCWD, s->complete, RENAME_EXCHANGE) == 0) {
        return 0;
    }
    /* A file system without these: the sweep puts the old one back if the second rename never
     * comes. */
    TRY(checkpoint_path(old, s->jobdir, NAME_REPLACED, s->manifest.step, err));
    TRY(io_remove_tree(old, err));
    if (rename(s->complete, old) != 0 && errno != ENOENT) {
        return IO_FAIL(err, errno, "cannot rename %s: %s", s->complete, strerror(errno));
    }
    if (rename(s->partial, s->complete) != 0) {
        const int number = errno;
        (void)rename(old, s->complete);
        return IO_FAIL(err, number, "cannot rename %s: %s", s->partial, strerror(number));
    }
    return io_remove_tree(old, err);
}

static int complete(struct checkpoint_save *s, bool verify, struct err *err)
{
    char parent[IO_PATH_MAX];

    s->manifest.created_at = (int64_t)time(NULL);
    TRY(io_join(parent, sizeof parent, s->jobdir, CHECKPOINTS, err));
    TRY(seal_files(s, verify, err));
    TRY(manifest_write(&s->manifest, s->partial, err));
    TRY(verify ? manifest_check_hashes(&s->manifest, s->partial, err)
               : manifest_check_sizes(&s->manifest, s->partial, err));
    TRY(checkpoint_prepare_latest(s->jobdir, s->manifest.step, err));
    TRY(put_in_place(s, err));
    TRY(io_sync_dir(parent, err));
    TRY(checkpoint_replace_latest(s->jobdir, err));
    return io_sync_dir(parent, err);
}

int checkpoint_commit(struct checkpoint_save *s, bool verify, struct checkpoint *out,
                      struct err *err)
{
    const int rc = complete(s, verify, err);

    if (rc == 0) {
        checkpoint_describe(out, &s->manifest);
    }
    checkpoint_abort(s);
    return rc;
}

void checkpoint_abort(struct checkpoint_save *s)
{
    struct err ignored; /* what stays behind is swept at the next start */

    if (s == NULL) {
        return;
    }
    (void)io_remove_tree(s->partial, &ignored);
    manifest_fini(&s->manifest);
    free(s);
}
