/* protocol_lock.c - who runs a job: the lock, the pid file, signals to the launcher, the sweep
 * behind it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/group.h"
#include "trainer/process.h"
#include "trainer/protocol.h"

/* Who looks holds the lock for microseconds; ranks of a killed launcher live for milliseconds. */
enum { LOCK_TRIES = 50, LOCK_PAUSE_MS = 20, PID_FILE_MAX = 4096 };

int job_lock(int *fd, const char *dir, struct err *err)
{
    char path[JOB_PATH_SIZE];
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};

    TRY(io_join(path, sizeof path, dir, JOB_SPEC, err));
    if (access(path, F_OK) != 0) {
        return FAIL(err, ERR_NOT_FOUND, "%s is not a job folder: no " JOB_SPEC " in it", dir);
    }
    TRY(io_join(path, sizeof path, dir, JOB_LOCK, err));
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "open %s: %s", path, strerror(number));
    }
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            *fd = file;
            return 0;
        }
        if (errno != EWOULDBLOCK && errno != EINTR) {
            const int number = errno;
            (void)close(file);
            return FAIL(err, ERR_IO, "lock %s: %s", path, strerror(number));
        }
        (void)nanosleep(&pause, NULL);
    }
    (void)close(file);
    return FAIL(err, ERR_BAD_STATE, "another launcher runs the job in %s", dir);
}

bool job_is_alive(const char *dir)
{
    char path[JOB_PATH_SIZE];
    struct err ignored;

    if (io_join(path, sizeof path, dir, JOB_LOCK, &ignored) != 0) {
        return false;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return false;
    }
    const bool is_held = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    (void)close(fd);
    return is_held;
}

struct holder {
    int64_t pid, start_time, attempt;
    bool is_this_boot;
    char group[GROUP_PATH]; /* "" for none */
};

static int read_pid_file(struct holder *out, const char *dir, struct err *err)
{
    char path[JOB_PATH_SIZE], boot_id[BOOT_ID_SIZE];
    json_t *value = NULL;
    const char *boot = NULL, *group = NULL;

    *out = (struct holder){0};
    TRY(io_join(path, sizeof path, dir, JOB_PID, err));
    TRY(json_parse_file(&value, path, PID_FILE_MAX, err));
    const struct fields f = {.object = value, .where = path, .code = ERR_BAD_FILE};
    int rc = fields_integer(&f, "pid", FIELD_REQUIRED, 1, INT_MAX, &out->pid, err);
    rc = rc != 0 ? rc
                 : fields_integer(&f, "start_time", FIELD_REQUIRED, 0, INT64_MAX, &out->start_time,
                                  err);
    rc = rc != 0 ? rc
                 : fields_integer(&f, "attempt", FIELD_REQUIRED, 1, INT_MAX, &out->attempt, err);
    rc = rc != 0 ? rc : fields_text(&f, "boot_id", FIELD_REQUIRED, &boot, err);
    rc = rc != 0 ? rc : fields_text(&f, "group", FIELD_OPTIONAL, &group, err);
    if (rc == 0) {
        (void)snprintf(out->group, sizeof out->group, "%s", group == NULL ? "" : group);
        process_boot_id(boot_id);
        out->is_this_boot = strcmp(boot, boot_id) == 0;
    }
    json_decref(value);
    return rc;
}

/* Kill what is in the group of the pid file, and remove it; returns how many there were. */
static int end_group(const char *dir)
{
    struct holder holder;
    struct err ignored;

    if (read_pid_file(&holder, dir, &ignored) != 0 || !holder.is_this_boot) {
        return 0;
    }
    const int left = group_kill(holder.group);
    (void)group_remove(holder.group);
    return left;
}

int job_pid_write(const char *dir, int attempt, const char *group, struct err *err)
{
    char path[JOB_PATH_SIZE], boot_id[BOOT_ID_SIZE];
    struct process self = {.pid = getpid()};

    (void)end_group(dir); /* of a launcher that was killed */
    TRY(io_join(path, sizeof path, dir, JOB_PID, err));
    process_boot_id(boot_id);
    (void)process_read(&self, getpid());
    json_t *value = json_pack("{s:i, s:I, s:s, s:i, s:s}", "pid", (int)self.pid, "start_time",
                              (json_int_t)self.start_time, "boot_id", boot_id, "attempt", attempt,
                              "group", group);
    if (value == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", path);
    }
    const int rc = json_write_file(path, value, err);
    json_decref(value);
    return rc;
}

int job_pid_attempt(const char *dir)
{
    struct holder holder;
    struct err ignored;

    return read_pid_file(&holder, dir, &ignored) == 0 ? (int)holder.attempt : 0;
}

pid_t job_pid_launcher(const char *dir)
{
    struct holder holder;
    struct err ignored;

    return read_pid_file(&holder, dir, &ignored) == 0 && holder.is_this_boot ? (pid_t)holder.pid
                                                                             : 0;
}

int64_t job_pid_age_ms(const char *dir)
{
    const long ticks = sysconf(_SC_CLK_TCK);
    struct holder holder;
    struct timespec t;
    struct err ignored;

    if (read_pid_file(&holder, dir, &ignored) != 0 || !holder.is_this_boot || ticks <= 0) {
        return -1;
    }
    clock_gettime(CLOCK_BOOTTIME, &t);
    const int64_t age =
        (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000 - holder.start_time * 1000 / ticks;
    return age > 0 ? age : 0;
}

int job_signal(const char *dir, int signal, struct err *err)
{
    struct holder holder;

    TRY(read_pid_file(&holder, dir, err));
    if (!holder.is_this_boot || !process_signal((pid_t)holder.pid, holder.start_time, signal)) {
        return FAIL(err, ERR_NOT_FOUND, "the launcher of %s, process %lld, is gone", dir,
                    (long long)holder.pid);
    }
    return 0;
}

static int kill_marked(const struct process *p, void *context)
{
    return p->pid != getpid() && p->state != 'Z' && process_has_mark(p->pid, context) &&
           process_signal(p->pid, p->start_time, SIGKILL);
}

int job_sweep(const char *dir)
{
    char mark[JOB_PATH_SIZE + 16];

    (void)snprintf(mark, sizeof mark, "HONE_JOB_DIR=%s", dir);
    const int marked = process_each(kill_marked, mark);
    const int left = end_group(dir);
    return marked > left ? marked : left;
}
