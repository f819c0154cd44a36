/* process.c - readers of /proc, and signals that reach only who was meant. */
#include "trainer/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { ENVIRONMENT_MAX = 2 << 20 }; /* bytes of an environment that are searched */

/* Up to size - 1 bytes of a file of /proc, and a final 0. Returns how many, -1 when it can't be
 * read. */
static ssize_t read_file(const char *path, char *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;

    if (fd < 0) {
        return -1;
    }
    while (have < size - 1) {
        const ssize_t n = read(fd, out + have, size - 1 - have);
        if (n <= 0) {
            break;
        }
        have += (size_t)n;
    }
    out[have] = '\0';
    (void)close(fd);
    return (ssize_t)have;
}

bool process_read(struct process *out, pid_t pid)
{
    char path[64], text[1024];

    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_file(path, text, sizeof text) <= 0) {
        return false;
    }
    /* "1234 (any name) S 1 ...": the name may hold spaces and brackets, so count from its last
     * bracket. The state is field 3, the parent 4, the start time 22. */
    const char *at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ') {
        return false;
    }
    *out = (struct process){.pid = pid, .state = at[2]};
    at += 2;
    for (int field = 3; field < 22; field++) {
        at = strchr(at, ' ');
        if (at == NULL) {
            return false;
        }
        at++;
        if (field == 3) {
            out->parent = (pid_t)strtol(at, NULL, 10);
        }
    }
    out->start_time = strtoll(at, NULL, 10);
    return true;
}

void process_boot_id(char out[BOOT_ID_SIZE])
{
    if (read_file("/proc/sys/kernel/random/boot_id", out, BOOT_ID_SIZE) < 0) {
        out[0] = '\0';
    }
    out[strcspn(out, "\n")] = '\0';
}

bool process_signal(pid_t pid, int64_t start_time, int signal)
{
    struct process p;
    /* Opened first and looked at then: from here on the number can't come to mean somebody else. */
    const int fd = pidfd_open(pid, 0);
    const bool is_old_system = fd < 0 && errno == ENOSYS;

    if (fd < 0 && !is_old_system) {
        return false;
    }
    bool is_sent = process_read(&p, pid) && p.start_time == start_time && p.state != 'Z';
    if (is_sent) {
        is_sent =
            is_old_system ? kill(pid, signal) == 0 : pidfd_send_signal(fd, signal, NULL, 0) == 0;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_sent;
}

int process_each(int (*each)(const struct process *p, void *context), void *context)
{
    DIR *list = opendir("/proc");
    int sum = 0;

    if (list == NULL) {
        return 0;
    }
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        struct process p;
        if (isdigit((unsigned char)entry->d_name[0]) &&
            process_read(&p, (pid_t)strtol(entry->d_name, NULL, 10))) {
            sum += each(&p, context);
        }
    }
    (void)closedir(list);
    return sum;
}

bool process_has_mark(pid_t pid, const char *assignment)
{
    char path[64];
    char *text = malloc(ENVIRONMENT_MAX);
    bool is_found = false;

    if (text == NULL) {
        return false;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    const ssize_t n = read_file(path, text, ENVIRONMENT_MAX);
    for (ssize_t at = 0; at < n && !is_found; at += (ssize_t)strlen(text + at) + 1) {
        is_found = strcmp(text + at, assignment) == 0;
    }
    free(text);
    return is_found;
}
