/* person.c - reads /proc of a process. */
#include "server/person.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/base/text.h"

enum { PATH = 320, TEXT = 64 << 10, GENERATIONS = 8 };

static size_t read_of(const char *root, int64_t pid, const char *name, char *out, size_t size)
{
    char path[PATH];

    (void)snprintf(path, sizeof path, "%s/proc/%lld/%s", root, (long long)pid, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        out[0] = '\0';
        return 0;
    }
    const size_t n = fread(out, 1, size - 1, f);
    (void)fclose(f);
    out[n] = '\0';
    return n;
}

/* Whether a variable of its environment says that it belongs to a job below `jobs`. */
static bool is_marked(const char *root, int64_t pid, const char *jobs)
{
    static const char mark[] = "HONE_JOB_DIR=";
    char *text = malloc(TEXT);
    const size_t size = strlen(jobs);
    bool found = false;

    if (text == NULL) {
        return false;
    }
    const size_t n = read_of(root, pid, "environ", text, TEXT);
    for (const char *at = text; !found && at < text + n; at += strlen(at) + 1) {
        const char *dir = at + sizeof mark - 1;
        found = strncmp(at, mark, sizeof mark - 1) == 0 && size > 0 &&
                strncmp(dir, jobs, size) == 0 && dir[size] == '/';
    }
    free(text);
    return found;
}

/* The process that started it; 0 when that can't be told. */
static int64_t parent_of(const char *root, int64_t pid)
{
    char text[512];

    (void)read_of(root, pid, "stat", text, sizeof text);
    const char *at = strrchr(text, ')'); /* behind the command, which may hold anything */
    return at != NULL && strlen(at) > 4 ? strtoll(at + 4, NULL, 10) : 0;
}

static bool descends_from_us(const char *root, int64_t pid)
{
    for (int i = 0; i < GENERATIONS && pid > 1; i++) {
        if (pid == (int64_t)getpid()) {
            return true;
        }
        pid = parent_of(root, pid);
    }
    return false;
}

void person_tell(struct device_process *p, const char *root, const char *jobs)
{
    char path[PATH], text[256];
    struct stat s;
    struct passwd entry, *found = NULL;
    char *room = malloc(TEXT);

    (void)snprintf(path, sizeof path, "%s/proc/%lld", root, (long long)p->pid);
    if (stat(path, &s) == 0) {
        (void)snprintf(p->user, sizeof p->user, "%u", s.st_uid);
        if (room != NULL && getpwuid_r(s.st_uid, &entry, room, TEXT, &found) == 0 &&
            found != NULL) {
            text_clean(p->user, sizeof p->user, found->pw_name);
        }
        const size_t n = read_of(root, p->pid, "comm", text, sizeof text);
        text[n > 0 && text[n - 1] == '\n' ? n - 1 : n] = '\0';
        text_clean(p->command, sizeof p->command, text);
        p->is_ours = is_marked(root, p->pid, jobs) || descends_from_us(root, p->pid);
    }
    free(room);
}
