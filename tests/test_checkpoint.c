/* test_checkpoint.c - a checkpoint is whole or absent, whatever kills, fills or damages it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/scratch.h"
#include "tests/tap.h"
#include "trainer/ckpt/checkpoint.h"

enum { FILES = 3, FILE_BYTES = 40000, ALL_BYTES = 120000 };

/* A fresh job folder, valid for seven further calls of in_scratch. */
static const char *new_job(void)
{
    static int next;
    char name[32];

    (void)snprintf(name, sizeof name, "job%d", next++);
    const char *dir = in_scratch(name);
    CHECK(mkdir(dir, 0700) == 0, "cannot make %s", dir);
    return dir;
}

static const char *below(const char *dir, const char *name)
{
    static char path[4][IO_PATH_MAX];
    static int next;
    char *out = path[next++ % 4];

    CHECK(snprintf(out, IO_PATH_MAX, "%s/%s", dir, name) < IO_PATH_MAX, "%s", name);
    return out;
}

/* Write the files of a checkpoint: file i of step s is full of the byte s + i + salt. */
static int write_files(const char *dir, int64_t step, int salt, struct err *err)
{
    static char bytes[FILE_BYTES];
    char name[32];

    for (int i = 0; i < FILES; i++) {
        memset(bytes, (int)(step + i + salt), sizeof bytes);
        (void)snprintf(name, sizeof name, "file-%d.bin", i);
        const int fd = open(below(dir, name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0) {
            return IO_FAIL(err, errno, "cannot create %s", name);
        }
        const int rc = io_write_all(fd, bytes, sizeof bytes, name, err);
        (void)close(fd);
        TRY(rc);
    }
    return 0;
}

static int save(const char *job, int64_t step, int salt, struct err *err)
{
    struct checkpoint_save *s = NULL;
    struct checkpoint out;

    TRY(checkpoint_begin(&s, job, step, err));
    const int rc = write_files(checkpoint_save_dir(s), step, salt, err);
    if (rc != 0) {
        checkpoint_abort(s);
        return rc;
    }
    TRY(checkpoint_commit(s, true, &out, err));
    EXPECT(out.step == step && out.bytes == ALL_BYTES && sha256_is_text(out.sha256));
    return 0;
}

static int steps_of(const char *job, int64_t steps[16])
{
    struct checkpoint_list list;
    struct err err = {0};
    int n = 0;

    CHECK(checkpoint_list_read(&list, job, &err) == 0, "%s", err.text);
    for (n = 0; n < list.count && n < 16; n++) {
        steps[n] = list.at[n].step;
    }
    checkpoint_list_fini(&list);
    return n;
}

static bool latest_is(const char *job, const char *want)
{
    char target[64] = "";

    return readlink(below(job, "checkpoints/latest"), target, sizeof target - 1) > 0 &&
           strcmp(target, want) == 0;
}

/* Names in checkpoints/ that begin with a dot: none after a good end. */
static int leftovers(const char *job)
{
    struct io_names names;
    struct err err = {0};
    int n = 0;

    CHECK(io_list_dir(&names, below(job, "checkpoints"), &err) == 0, "%s", err.text);
    for (int i = 0; i < names.count; i++) {
        n += names.at[i]->d_name[0] == '.';
    }
    io_names_fini(&names);
    return n;
}

static char first_byte(const char *job, const char *name)
{
    char c = 0;
    const int fd = open(below(job, name), O_RDONLY | O_CLOEXEC);

    EXPECT(fd >= 0 && read(fd, &c, 1) == 1);
    (void)close(fd);
    return c;
}

static void damage(const char *job, const char *name)
{
    const int fd = open(below(job, name), O_WRONLY | O_CLOEXEC);

    CHECK(fd >= 0 && pwrite(fd, "X", 1, 12345) == 1 && close(fd) == 0, "cannot damage %s", name);
}

static void a_saved_checkpoint_is_listed_and_verifies(void)
{
    const char *job = new_job();
    int64_t steps[16];
    struct checkpoint c;
    struct err err = {0}, skipped;
    struct stat about;

    EXPECT(steps_of(job, steps) == 0);
    EXPECT(checkpoint_newest_good(&c, job, &skipped, &err) == ERR_NOT_FOUND && skipped.code == 0);
    EXPECT(checkpoint_sweep(job, &err) == 0);
    EXPECT(save(job, 1000, 0, &err) == 0 && save(job, 200, 0, &err) == 0);
    EXPECT(save(job, 1234567890, 0, &err) == 0);
    EXPECT(steps_of(job, steps) == 3 && steps[0] == 200 && steps[1] == 1000 &&
           steps[2] == 1234567890);
    EXPECT(latest_is(job, "step-1234567890") && leftovers(job) == 0);
    EXPECT(checkpoint_read(&c, job, 1000, &err) == 0);
    EXPECT(strcmp(c.dir, "checkpoints/step-00001000") == 0 && c.created_at > 1600000000);
    EXPECT(checkpoint_verify(job, 200, &err) == 0);
    EXPECT(checkpoint_newest_good(&c, job, &skipped, &err) == 0 && c.step == 1234567890);
    EXPECT(checkpoint_read(&c, job, 7, &err) == ERR_NOT_FOUND);
    EXPECT(stat(below(job, "checkpoints/step-00001000/manifest.json"), &about) == 0);
    EXPECT((about.st_mode & 0777) == 0600);
}

static void the_manifest_has_every_file_with_its_hash(void)
{
    const char *job = new_job();
    struct manifest m;
    struct err err = {0};
    char hash[SHA256_TEXT];

    EXPECT(save(job, 5, 0, &err) == 0);
    CHECK(manifest_read(&m, below(job, "checkpoints/step-00000005"), &err) == 0, "%s", err.text);
    EXPECT(m.count == FILES && m.step == 5 && manifest_bytes(&m) == ALL_BYTES);
    EXPECT(sha256_file(below(job, "checkpoints/step-00000005/manifest.json"), hash, NULL, &err) ==
           0);
    EXPECT(strcmp(hash, m.sha256) == 0);
    EXPECT(sha256_file(below(job, "checkpoints/step-00000005/file-1.bin"), hash, NULL, &err) == 0);
    EXPECT(manifest_find(&m, "file-1.bin") != NULL);
    EXPECT(strcmp(manifest_find(&m, "file-1.bin")->sha256, hash) == 0);
    EXPECT(manifest_find(&m, "manifest.json") == NULL && manifest_find(&m, "file-9.bin") == NULL);
    manifest_fini(&m);
}

static void resuming_passes_over_damaged_checkpoints(void)
{
    const char *job = new_job();
    struct checkpoint c;
    struct err err = {0}, skipped;

    EXPECT(save(job, 1, 0, &err) == 0 && save(job, 2, 0, &err) == 0 && save(job, 3, 0, &err) == 0);
    damage(job, "checkpoints/step-00000003/file-1.bin");
    EXPECT(checkpoint_verify(job, 3, &err) == ERR_BAD_FILE &&
           strstr(err.text, "file-1.bin") != NULL);
    EXPECT(checkpoint_newest_good(&c, job, &skipped, &err) == 0 && c.step == 2);
    EXPECT(skipped.code == ERR_BAD_FILE && strstr(skipped.text, "step 3 ") != NULL);
    CHECK(truncate(below(job, "checkpoints/step-00000002/file-0.bin"), 5) == 0, "cannot cut");
    EXPECT(checkpoint_newest_good(&c, job, &skipped, &err) == 0 && c.step == 1);
    CHECK(unlink(below(job, "checkpoints/step-00000001/file-2.bin")) == 0, "cannot remove");
    EXPECT(checkpoint_newest_good(&c, job, &skipped, &err) == ERR_NOT_FOUND);
    EXPECT(strstr(skipped.text, "step 3 ") != NULL);
    int64_t steps[16];
    EXPECT(steps_of(job, steps) == 1 && steps[0] == 3); /* its sizes are right */
}

static void a_file_damaged_before_the_rename_is_noticed(void)
{
    const char *job = new_job();
    struct checkpoint_save *s = NULL;
    struct manifest_file told = {.name = "file-0.bin", .bytes = FILE_BYTES};
    struct checkpoint c;
    struct err err = {0};

    sha256_of("other", 5, told.sha256);
    EXPECT(checkpoint_begin(&s, job, 9, &err) == 0);
    EXPECT(write_files(checkpoint_save_dir(s), 9, 0, &err) == 0);
    EXPECT(checkpoint_files_hashed(s, &told, 1, &err) == 0);
    EXPECT(checkpoint_commit(s, true, &c, &err) == ERR_BAD_FILE);
    EXPECT(strstr(err.text, "file-0.bin is damaged") != NULL);
    EXPECT(access(below(job, "checkpoints/step-00000009"), F_OK) != 0 &&
           access(below(job, "checkpoints/.step-00000009-tmp"), F_OK) != 0);
    told.bytes--;
    EXPECT(checkpoint_begin(&s, job, 9, &err) == 0);
    EXPECT(write_files(checkpoint_save_dir(s), 9, 0, &err) == 0);
    EXPECT(checkpoint_files_hashed(s, &told, 1, &err) == 0);
    EXPECT(checkpoint_commit(s, false, &c, &err) == ERR_BAD_FILE);
}

static void saving_a_step_again_replaces_it_whole(void)
{
    const char *job = new_job();
    int64_t steps[16];
    struct err err = {0};

    EXPECT(save(job, 10, 0, &err) == 0 && save(job, 10, 50, &err) == 0);
    EXPECT(steps_of(job, steps) == 1 && checkpoint_verify(job, 10, &err) == 0);
    EXPECT(first_byte(job, "checkpoints/step-00000010/file-0.bin") == 60 && leftovers(job) == 0);
    damage(job, "checkpoints/step-00000010/file-0.bin");
    EXPECT(save(job, 10, 1, &err) == 0 && checkpoint_verify(job, 10, &err) == 0);
}

static void an_aborted_checkpoint_leaves_the_older_ones(void)
{
    const char *job = new_job();
    struct checkpoint_save *s = NULL;
    int64_t steps[16];
    struct err err = {0};

    EXPECT(save(job, 1, 0, &err) == 0 && checkpoint_begin(&s, job, 2, &err) == 0);
    EXPECT(write_files(checkpoint_save_dir(s), 2, 0, &err) == 0);
    EXPECT(steps_of(job, steps) == 1);
    checkpoint_abort(s);
    checkpoint_abort(NULL);
    EXPECT(steps_of(job, steps) == 1 && leftovers(job) == 0 && latest_is(job, "step-00000001"));
}

static void the_sweep_removes_what_a_crash_left(void)
{
    const char *job = new_job();
    int64_t steps[16];
    struct err err = {0};

    EXPECT(save(job, 1, 0, &err) == 0 && save(job, 2, 0, &err) == 0 && save(job, 3, 0, &err) == 0);
    CHECK(mkdir(below(job, "checkpoints/.step-00000004-tmp"), 0700) == 0, "mkdir");
    put_text(below(job, "checkpoints/.step-00000004-tmp/model.safetensors"), "half");
    CHECK(rename(below(job, "checkpoints/step-00000001"),
                 below(job, "checkpoints/.step-00000001-gone")) == 0,
          "rename");
    CHECK(rename(below(job, "checkpoints/step-00000002"),
                 below(job, "checkpoints/.step-00000002-old")) == 0,
          "rename");
    CHECK(symlink("step-00000009", below(job, "checkpoints/.latest-tmp")) == 0, "symlink");
    CHECK(unlink(below(job, "checkpoints/latest")) == 0, "unlink");
    CHECK(mkdir(below(job, "checkpoints/keep-me"), 0700) == 0, "mkdir");
    EXPECT(checkpoint_sweep(job, &err) == 0);
    EXPECT(steps_of(job, steps) == 2 && steps[0] == 2 && steps[1] == 3 && leftovers(job) == 0);
    EXPECT(latest_is(job, "step-00000003") && access(below(job, "checkpoints/keep-me"), F_OK) == 0);
}

static int gone_count;
static int64_t gone_last;

static void count_gone(void *context, int64_t step)
{
    EXPECT(context == &gone_count);
    gone_count++;
    gone_last = step;
}

static void keeping_the_newest_deletes_the_oldest(void)
{
    const char *job = new_job();
    int64_t steps[16];
    struct err err = {0};

    for (int i = 1; i <= 5; i++) {
        EXPECT(save(job, i, 0, &err) == 0);
    }
    EXPECT(checkpoint_keep(job, 5, -1, count_gone, &gone_count, &err) == 0 && gone_count == 0);
    EXPECT(checkpoint_keep(job, 3, 5, count_gone, &gone_count, &err) == 0 && gone_count == 2 &&
           gone_last == 2);
    EXPECT(steps_of(job, steps) == 3 && steps[0] == 3 && leftovers(job) == 0);
    /* The newest is damaged: nothing is deleted. */
    damage(job, "checkpoints/step-00000005/file-2.bin");
    EXPECT(checkpoint_keep(job, 1, -1, count_gone, &gone_count, &err) == ERR_BAD_FILE);
    EXPECT(steps_of(job, steps) == 3 && gone_count == 2);
    /* An incomplete newest one doesn't count. */
    CHECK(unlink(below(job, "checkpoints/step-00000005/file-2.bin")) == 0, "unlink");
    EXPECT(checkpoint_keep(job, 1, -1, NULL, NULL, &err) == 0);
    EXPECT(steps_of(job, steps) == 1 && steps[0] == 4);
    EXPECT(save(job, 6, 0, &err) == 0 && checkpoint_keep(job, 1, 6, NULL, NULL, &err) == 0);
    EXPECT(steps_of(job, steps) == 1 && steps[0] == 6);
    EXPECT(access(below(job, "checkpoints/step-00000005"), F_OK) != 0); /* incomplete and old */
}

/* A process saves steps one after the other until it's killed at a moment of chance. */
static void killed_at_any_moment_all_is_whole(void)
{
    const char *job = new_job();
    int64_t steps[16];
    struct err err = {0};
    int64_t newest = 0;
    unsigned chance = 12345;
    int damaged = 0, saved = 0;

    for (int round = 0; round < 30; round++) {
        const pid_t child = fork();
        if (child == 0) {
            for (int64_t step = newest + 1;; step++) {
                struct err mine;
                if (save(job, step, round, &mine) != 0 ||
                    checkpoint_keep(job, 3, step, NULL, NULL, &mine) != 0 ||
                    (step % 3 == 0 && save(job, step, round + 1, &mine) != 0)) {
                    _exit(1);
                }
            }
        }
        chance = chance * 1103515245U + 12345U;
        const struct timespec wait = {.tv_nsec = (long)(1 + chance / 65536 % 40) * 1000000L};
        (void)nanosleep(&wait, NULL);
        int status = 0;
        CHECK(child > 0 && kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child,
              "child");
        EXPECT(WIFSIGNALED(status)); /* it did not end by itself with an error */
        const int before = steps_of(job, steps);
        for (int i = 0; i < before; i++) {
            damaged += checkpoint_verify(job, steps[i], &err) != 0;
        }
        const int64_t was = newest;
        newest = before > 0 ? steps[before - 1] : newest;
        damaged += newest < was;
        saved += newest > was;
        EXPECT(checkpoint_sweep(job, &err) == 0);
        EXPECT(leftovers(job) == 0 && steps_of(job, steps) >= before);
        char want[64];
        (void)snprintf(want, sizeof want, "step-%08lld", (long long)newest);
        EXPECT(newest == 0 || latest_is(job, want));
    }
    EXPECT(damaged == 0 && saved > 0);
    printf("# %lld steps saved in 30 rounds\n", (long long)newest);
}

/* RLIMIT_FSIZE stands for a full disk. */
static void a_file_size_limit_is_a_full_disk(void)
{
    const char *job = new_job();
    struct rlimit before;
    struct err err = {0};
    int64_t steps[16];

    EXPECT(save(job, 1, 0, &err) == 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR && getrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    const struct rlimit small = {.rlim_cur = FILE_BYTES - 1, .rlim_max = before.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0, "limit");
    const int rc = save(job, 2, 0, &err);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0, "limit");
    EXPECT(rc == ERR_DISK_FULL && leftovers(job) == 0);
    EXPECT(steps_of(job, steps) == 1 && checkpoint_verify(job, 1, &err) == 0);
    EXPECT(save(job, 2, 0, &err) == 0);
}

/* A tmpfs, ever fuller: the write fails in a file, in the manifest, or nowhere. */
static void on_a_full_disk_the_older_checkpoint_stays(void)
{
    const char *job = new_job();
    struct err err = {0};
    int64_t steps[16];
    int full = 0, good = 0;

    if (mount("tmpfs", job, "tmpfs", 0, "size=400k,mode=0700") != 0) {
        printf("# skip: no right to mount a tmpfs\n");
        return;
    }
    EXPECT(save(job, 1, 0, &err) == 0);
    for (int ballast = 4096; ballast < 280000; ballast += 4096) {
        const int fd = open(below(job, "ballast"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0, "no ballast");
        (void)!posix_fallocate(fd, 0, ballast);
        (void)close(fd);
        const int rc = save(job, 2, ballast, &err);
        full += rc == ERR_DISK_FULL;
        good += rc == 0;
        EXPECT(rc == 0 || rc == ERR_DISK_FULL);
        EXPECT(checkpoint_verify(job, 1, &err) == 0 && leftovers(job) == 0);
        EXPECT(good == 0 || checkpoint_verify(job, 2, &err) == 0);
        EXPECT(steps_of(job, steps) == (good > 0 ? 2 : 1));
    }
    EXPECT(full > 5 && good > 5);
    CHECK(umount2(job, MNT_DETACH) == 0, "cannot unmount %s", job);
}

static void a_read_only_folder_is_an_error(void)
{
    const char *job = new_job();
    struct err err = {0};

    if (geteuid() == 0) {
        if (mount("tmpfs", job, "tmpfs", MS_RDONLY, NULL) != 0) {
            printf("# skip: no right to mount a tmpfs\n");
            return;
        }
        EXPECT(save(job, 1, 0, &err) == ERR_IO && strstr(err.text, "Read-only") != NULL);
        CHECK(umount2(job, MNT_DETACH) == 0, "cannot unmount %s", job);
        return;
    }
    CHECK(chmod(job, 0500) == 0, "chmod");
    EXPECT(save(job, 1, 0, &err) == ERR_IO && err.text[0] != '\0');
    CHECK(chmod(job, 0700) == 0, "chmod");
}

static void manifests_that_lie_are_refused(void)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"format\":\"hone-checkpoint-2\"}",
        "{\"format\":\"hone-checkpoint-1\",\"step\":-1,\"created_at\":1,\"files\":[]}",
        "{\"format\":\"hone-checkpoint-1\",\"step\":\"1\",\"created_at\":1,\"files\":[]}",
        "{\"format\":\"hone-checkpoint-1\",\"step\":1,\"created_at\":1,\"files\":{}}",
        "{\"format\":\"hone-checkpoint-1\",\"step\":1,\"created_at\":1,\"files\":[1]}",
        "{\"format\":\"hone-checkpoint-1\",\"step\":2,\"created_at\":1,\"files\":[]}",
    };
    static const char *const names[] = {"../x", "/etc/passwd",   "a/b",  "..", ".", ".x",
                                        "",     "manifest.json", "a\\nb"};
    const char *job = new_job();
    struct checkpoint c;
    struct err err = {0};
    char text[1000], hash[SHA256_TEXT];

    EXPECT(save(job, 1, 0, &err) == 0);
    const char *path = below(job, "checkpoints/step-00000001/manifest.json");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_text(path, bad[i]);
        EXPECT(checkpoint_read(&c, job, 1, &err) == ERR_BAD_FILE && err.text[0] != '\0');
    }
    sha256_of("", 0, hash);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"format\":\"hone-checkpoint-1\",\"step\":1,\"created_at\":1,\"files\":[{"
                       "\"name\":\"%s\","
                       "\"bytes\":0,\"sha256\":\"%s\"}]}",
                       names[i], hash);
        put_text(path, text);
        EXPECT(checkpoint_read(&c, job, 1, &err) == ERR_BAD_FILE);
        EXPECT(strstr(err.text, "can't have a file") != NULL);
    }
    put_text(below(job, "secret"), "s");
    CHECK(symlink("../../secret", below(job, "checkpoints/step-00000001/link")) == 0, "symlink");
    (void)snprintf(text, sizeof text,
                   "{\"format\":\"hone-checkpoint-1\",\"step\":1,\"created_at\":1,\"files\":[{"
                   "\"name\":\"link\","
                   "\"bytes\":1,\"sha256\":\"%s\"}]}",
                   hash);
    put_text(path, text);
    EXPECT(checkpoint_read(&c, job, 1, &err) == ERR_BAD_FILE &&
           strstr(err.text, "symbolic link") != NULL);
}

int main(void)
{
    scratch_make();
    RUN(a_saved_checkpoint_is_listed_and_verifies);
    RUN(the_manifest_has_every_file_with_its_hash);
    RUN(resuming_passes_over_damaged_checkpoints);
    RUN(a_file_damaged_before_the_rename_is_noticed);
    RUN(saving_a_step_again_replaces_it_whole);
    RUN(an_aborted_checkpoint_leaves_the_older_ones);
    RUN(the_sweep_removes_what_a_crash_left);
    RUN(keeping_the_newest_deletes_the_oldest);
    RUN(killed_at_any_moment_all_is_whole);
    RUN(a_file_size_limit_is_a_full_disk);
    RUN(on_a_full_disk_the_older_checkpoint_stays);
    RUN(a_read_only_folder_is_an_error);
    RUN(manifests_that_lie_are_refused);
    scratch_remove();
    return tap_done();
}
