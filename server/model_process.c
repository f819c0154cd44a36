/* model_process.c - a `hone-train serve` process. */
#include "server/model_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/random.h"
#include "server/spawn.h"
#include "trainer/base/text.h"

enum { PATIENCE_MS = 5000, LOG_TAIL = 2000 };

int model_start(struct model_process *m, const struct settings *s, const char *home,
                struct err *err)
{
    char slots[24], positions[24], idle[24], name[17];
    int ends[2];
    const char *const arguments[] = {s->trainer,    "serve",
                                     m->dir,        "--socket",
                                     m->socket,     "--slots",
                                     slots,         "--idle",
                                     idle,          "--positions",
                                     positions,     "--with-parent",
                                     "--precision", s->serve_bf16 ? "bf16" : "f32",
                                     NULL};

    random_word(name, 16); /* one of an earlier honed may be on its way out still */
    (void)snprintf(m->socket, sizeof m->socket, "%.*s/%s.sock", SETTING_TEXT, home, name);
    (void)snprintf(m->log, sizeof m->log, "%.*s/%s.log", SETTING_TEXT, home, name);
    (void)snprintf(slots, sizeof slots, "%lld", (long long)s->serve_slots);
    (void)snprintf(positions, sizeof positions, "%lld", (long long)s->serve_positions);
    (void)snprintf(idle, sizeof idle, "%lld", (long long)s->serve_idle_s);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return FAIL(err, ERR_IO, "no pipe to a model: %s", strerror(errno));
    }
    /* posix_spawn writes to none of the words, but says nothing of it in its types */
    char *words[sizeof arguments / sizeof arguments[0]];
    memcpy(words, arguments, sizeof arguments);
    const int rc = spawn_model(&m->pid, words, ends[0], m->log, err);
    (void)close(ends[0]);
    if (rc != 0) {
        (void)close(ends[1]);
        return rc;
    }
    m->lifeline = ends[1];
    m->pid_fd = pidfd_open(m->pid, 0); /* without it the end is seen a little later */
    m->stage = MODEL_LOADING;
    return 0;
}

int model_connect(struct model_process *m)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char folder[MODEL_PATH];
    const char *slash = strrchr(m->socket, '/');

    /* the path may be longer than an address holds: by way of its folder */
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - m->socket), m->socket);
    const int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d%.40s", dir, slash);
    const int fd = dir < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool there = fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (dir >= 0) {
        (void)close(dir);
    }
    if (!there) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return -1;
    }
    m->stage = m->stage == MODEL_LOADING ? MODEL_READY : m->stage;
    return fd;
}

void model_leave(struct model_process *m, int64_t now_ms)
{
    if (m->told_ms == 0) {
        m->told_ms = now_ms;
        m->stage = MODEL_LEAVING;
        (void)kill(m->pid, SIGTERM);
    } else if (now_ms - m->told_ms > PATIENCE_MS) {
        (void)kill(m->pid, SIGKILL);
    }
}

/* The last line that it printed, for a person; "" for none. */
static void last_line(const char *path, char *out, size_t size)
{
    char tail[LOG_TAIL + 1];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;

    out[0] = '\0';
    if (fd < 0) {
        return;
    }
    const off_t end = lseek(fd, 0, SEEK_END);
    n = pread(fd, tail, LOG_TAIL, end > LOG_TAIL ? end - LOG_TAIL : 0);
    (void)close(fd);
    while (n > 0 && tail[n - 1] == '\n') {
        n--;
    }
    tail[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(tail, '\n');
    line = line == NULL ? tail : line + 1;
    if (strncmp(line, "hone-train: ", 12) == 0) {
        text_clean(out, size, line + 12);
    }
}

bool model_reap(struct model_process *m, struct err *err)
{
    char why[300];
    int status = 0;

    if (waitpid(m->pid, &status, WNOHANG) != m->pid) {
        return false;
    }
    last_line(m->log, why, sizeof why);
    if (WIFSIGNALED(status)) {
        err_set(err, ERR_INTERRUPTED, "the model's process was ended by signal %d; ask again",
                WTERMSIG(status));
    } else if (WEXITSTATUS(status) != 0 && why[0] != '\0') {
        err_set(err, err_from_exit(WEXITSTATUS(status)), "the model does not load: %s", why);
        err_about(err, "model");
    } else if (WEXITSTATUS(status) != 0) {
        err_set(err, ERR_INTERNAL, "the model's process ended with status %d", WEXITSTATUS(status));
    } else {
        err_set(err, ERR_INTERRUPTED, "the model's process has left; ask again");
    }
    if (m->pid_fd >= 0) {
        (void)close(m->pid_fd);
    }
    (void)close(m->lifeline);
    (void)unlink(m->socket);
    (void)unlink(m->log);
    return true;
}
