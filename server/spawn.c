/* spawn.c - starts programs with posix_spawn: a fork of a large process is slow, and this
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
            return strncmp(variable, "HONE_JOB_DIR=", 13) != 0 &&
                   strncmp(variable, "HONE_ATTEMPT=", 13) != 0;
        }
    }
    return false;
}

/* Standard input from `input`, or /dev/null when it is -1; all descriptors from 3 on closed, a session of its own, signals as at login; standard
 * output and errors are up to the caller, who acts before. */
static int set_up(posix_spawnattr_t *attributes, posix_spawn_file_actions_t *files, int input)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);
    rc = rc != 0 ? rc : posix_spawnattr_setsigmask(attributes, &none);
    rc = rc != 0 ? rc : posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0) {
        rc = input < 0 ? posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0)
                       : posix_spawn_file_actions_adddup2(files, input, 0);
    }
    return rc != 0 ? rc : posix_spawn_file_actions_addclosefrom_np(files, 3);
}

/* What of our environment a program may see, and up to two more where `more`, which ends with NULL, is there. */
static void set_environment(char *out[KEPT_MAX + 3], char *const more[])
{
    int kept = 0;

    for (int i = 0; more != NULL && more[i] != NULL; i++) {
        out[kept++] = more[i];
    }
    for (char **v = environ; *v != NULL && kept < KEPT_MAX + 2; v++) {
        if (is_kept(*v)) {
            out[kept++] = *v;
        }
    }
    out[kept] = NULL;
}

/* Start the program with the descriptors that `files` say. */
static int start(pid_t *pid, char *const arguments[], char *const more[], int input,
                 posix_spawn_file_actions_t *files, struct err *err)
{
    char *environment[KEPT_MAX + 3];
    posix_spawnattr_t attributes;

    set_environment(environment, more);
    posix_spawnattr_init(&attributes);
    int rc = set_up(&attributes, files, input);
    if (rc == 0) {
        rc = posix_spawn(pid, arguments[0], files, &attributes, arguments, environment);
    }
    posix_spawnattr_destroy(&attributes);
    if (rc != 0) {
        return FAIL(err, ERR_NOT_FOUND, "the trainer %.200s can't be started: %s", arguments[0],
                    strerror(rc));
    }
    return 0;
}

int spawn_launcher(pid_t *pid, const char *trainer, const char *dir, int attempt, struct err *err)
{
    char program[MARK], verb[] = "run", folder[MARK], mark[MARK + 16], number[32], log[MARK];
    char *arguments[] = {program, verb, folder, NULL}, *more[] = {mark, number, NULL};
    posix_spawn_file_actions_t files;

    (void)snprintf(program, sizeof program, "%s", trainer);
    (void)snprintf(folder, sizeof folder, "%s", dir);
    (void)snprintf(mark, sizeof mark, "HONE_JOB_DIR=%s", dir);
    (void)snprintf(number, sizeof number, "HONE_ATTEMPT=%d", attempt);
    (void)snprintf(log, sizeof log, "%s/log.txt", dir);
    posix_spawn_file_actions_init(&files);
    int rc = posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(&files, 1, 2);
    rc = rc != 0 ? FAIL(err, ERR_NO_MEMORY, "no memory to start the trainer")
                 : start(pid, arguments, more, -1, &files, err);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

int spawn_tool(pid_t *pid, char *const arguments[], int output, struct err *err)
{
    posix_spawn_file_actions_t files;

    posix_spawn_file_actions_init(&files);
    int rc = posix_spawn_file_actions_adddup2(&files, output, 1);
    rc = rc != 0 ? rc : posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    rc = rc != 0 ? FAIL(err, ERR_NO_MEMORY, "no memory to start the trainer")
                 : start(pid, arguments, NULL, -1, &files, err);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

int spawn_model(pid_t *pid, char *const arguments[], int input, const char *log, struct err *err)
{
    posix_spawn_file_actions_t files;

    posix_spawn_file_actions_init(&files);
    int rc = posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    rc = rc != 0 ? rc : posix_spawn_file_actions_adddup2(&files, 1, 2);
    rc = rc != 0 ? FAIL(err, ERR_NO_MEMORY, "no memory to start the trainer")
                 : start(pid, arguments, NULL, input, &files, err);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}
