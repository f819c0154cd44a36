/* spawn.c - starts the launcher of a job with posix_spawn: a fork of a large process is slow, and this
 * process has threads. */
#include "server/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT_MAX = 64, MARK = 4200 };

/* Whether a run may see a variable of our environment. */
static bool is_kept(const char *variable)
{
    static const char *const kept[] = {"PATH=",
                                       "HOME=",
                                       "LANG=",
                                       "LC_ALL=",
                                       "TZ=",
                                       "TMPDIR=",
                                       "HONE_",
                                       "OMP_",
                                       "ASAN_OPTIONS=",
                                       "UBSAN_OPTIONS=",
                                       "TSAN_OPTIONS=",
                                       "LD_LIBRARY_PATH=",
                                       "CUDA_VISIBLE_DEVICES="};

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (strncmp(variable, kept[i], strlen(kept[i])) == 0) {
            return strncmp(variable, "HONE_JOB_DIR=", 13) != 0;
        }
    }
    return false;
}

static int set_up(posix_spawnattr_t *attributes, posix_spawn_file_actions_t *files, const char *dir)
{
    char log[MARK];
    sigset_t none, all;

    (void)snprintf(log, sizeof log, "%s/log.txt", dir);
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);
    rc = rc != 0 ? rc : posix_spawnattr_setsigmask(attributes, &none);
    rc = rc != 0 ? rc : posix_spawnattr_setsigdefault(attributes, &all);
    rc = rc != 0 ? rc : posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    rc = rc != 0
             ? rc
             : posix_spawn_file_actions_addopen(files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(files, 1, 2);
    return rc != 0 ? rc : posix_spawn_file_actions_addclosefrom_np(files, 3);
}

int spawn_launcher(pid_t *pid, const char *trainer, const char *dir, struct err *err)
{
    char program[MARK], verb[] = "run", folder[MARK], mark[MARK + 16];
    char *arguments[] = {program, verb, folder, NULL};
    char *environment[KEPT_MAX + 2] = {mark};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    int kept = 1;

    (void)snprintf(program, sizeof program, "%s", trainer);
    (void)snprintf(folder, sizeof folder, "%s", dir);
    (void)snprintf(mark, sizeof mark, "HONE_JOB_DIR=%s", dir);
    for (char **v = environ; *v != NULL && kept <= KEPT_MAX; v++) {
        if (is_kept(*v)) {
            environment[kept++] = *v;
        }
    }
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_init(&files);
    int rc = set_up(&attributes, &files, dir);
    if (rc == 0) {
        rc = posix_spawn(pid, program, &files, &attributes, arguments, environment);
    }
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (rc != 0) {
        return FAIL(err, ERR_NOT_FOUND, "the trainer %.200s can't be started: %s", trainer,
                    strerror(rc));
    }
    return 0;
}
