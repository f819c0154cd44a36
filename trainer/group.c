/* group.c - makes, joins, kills and removes control groups of version 2. */
#include "trainer/group.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 16384, ID_MAX = 64, REMOVE_TRIES = 100, REMOVE_PAUSE_MS = 10 };

/* The beginning of a file, with a final 0. False when it can't be read. */
static bool read_text(const char *path, char *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;

    if (fd < 0) {
        return false;
    }
    for (ssize_t n = 1; n > 0 && have<size - 1; have += n> 0 ? (size_t)n : 0) {
        n = read(fd, out + have, size - 1 - have);
    }
    out[have] = '\0';
    (void)close(fd);
    return true;
}

static bool write_text(const char *group, const char *file, const char *text)
{
    char path[GROUP_PATH + 32];

    (void)snprintf(path, sizeof path, "%s/%s", group, file);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const bool is_written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return is_written;
}

/* Where version 2 is mounted: field 5 of the line of mountinfo whose type, behind " - ", is cgroup2. Paths with spaces are
 * written with \040 there and are not ours. */
static bool find_mount(char out[GROUP_PATH])
{
    char *text = malloc(TEXT), *save = NULL;
    bool is_found = false;

    if (text == NULL || !read_text("/proc/self/mountinfo", text, TEXT)) {
        free(text);
        return false;
    }
    for (char *line = strtok_r(text, "\n", &save); line != NULL && !is_found;
         line = strtok_r(NULL, "\n", &save)) {
        const char *type = strstr(line, " - cgroup2 ");
        is_found = type != NULL && sscanf(line, "%*s %*s %*s %*s %1000s", out) == 1;
    }
    free(text);
    return is_found;
}

/* Our own group below the mount: the line "0::/path". */
static bool find_own(char out[GROUP_PATH])
{
    char text[TEXT];

    if (!read_text("/proc/self/cgroup", text, sizeof text)) {
        return false;
    }
    const char *line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    return line != NULL && sscanf(line + (*line == '\n'), "0::%1000s", out) == 1 &&
           strstr(out, "..") == NULL; /* of another namespace */
}

void group_make(char out[GROUP_PATH], const char *id, int attempt)
{
    char mount[GROUP_PATH], own[GROUP_PATH], name[ID_MAX + 1];
    size_t n = 0;

    out[0] = '\0';
    if (!find_mount(mount) || !find_own(own)) {
        return;
    }
    for (; n < ID_MAX && id[n] != '\0'; n++) {
        name[n] = (char)(isalnum((unsigned char)id[n]) || id[n] == '-' ? id[n] : '_');
    }
    name[n] = '\0';
    /* The launcher's number sets equal jobs of two servers apart. */
    const int length = snprintf(out, GROUP_PATH, "%s%s/hone-%s-%d-%d", mount,
                                strcmp(own, "/") == 0 ? "" : own, name, attempt, (int)getpid());
    if (length >= GROUP_PATH || (mkdir(out, 0755) != 0 && errno != EEXIST)) {
        out[0] = '\0';
    }
}

bool group_join(const char *group)
{
    return group[0] != '\0' && write_text(group, "cgroup.procs", "0");
}

static bool is_group(const char *group)
{
    char mount[GROUP_PATH];
    const char *name = strrchr(group, '/');

    return name != NULL && strncmp(name, "/hone-", 6) == 0 && strstr(group, "..") == NULL &&
           find_mount(mount) && strncmp(group, mount, strlen(mount)) == 0 &&
           group[strlen(mount)] == '/';
}

int group_kill(const char *group)
{
    char path[GROUP_PATH + 32], text[TEXT];
    int count = 0;

    if (!is_group(group)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", group);
    if (!read_text(path, text, sizeof text) || text[0] == '\0') {
        return 0;
    }
    const bool is_sent = write_text(group, "cgroup.kill", "1"); /* Linux 5.14 */
    for (const char *line = text; line != NULL && line[0] != '\0'; count++) {
        const pid_t pid = (pid_t)strtol(line, NULL, 10);
        if (!is_sent && pid > 0 && pid != getpid()) {
            (void)kill(pid, SIGKILL);
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return count;
}

bool group_remove(const char *group)
{
    const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_MS * 1000000L};

    if (!is_group(group)) {
        return true;
    }
    for (int i = 0; i < REMOVE_TRIES && rmdir(group) != 0; i++) {
        if (errno != EBUSY) {
            return errno == ENOENT;
        }
        (void)nanosleep(&pause, NULL);
    }
    return access(group, F_OK) != 0;
}

int64_t group_memory_kills(const char *group)
{
    char path[GROUP_PATH + 32], text[TEXT];

    (void)snprintf(path, sizeof path, "%s/memory.events", group);
    if (group[0] == '\0' || !read_text(path, text, sizeof text)) {
        return -1;
    }
    const char *line = strstr(text, "oom_kill ");
    return line == NULL ? -1 : strtoll(line + 9, NULL, 10);
}
