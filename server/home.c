/* home.c - the data folder. */
#include "server/home.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "trainer/base/io.h"

enum { HOME_PATH = SETTING_TEXT + 64, LOCK_TRIES = 50, LOCK_PAUSE_NS = 40000000 };

/* File systems on which locks or syncs of a database can't be relied on (statfs f_type). */
static const struct {
    unsigned magic;
    const char *name;
} networks[] = {
    {0x6969, "NFS"},      {0x517B, "SMB"},        {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB"},
    {0x01021997, "9P"},   {0x65735546, "FUSE"},   {0x00C36400, "Ceph"}, {0x0BD00BD0, "Lustre"},
    {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x5346414F, "AFS"},  {0x73757245, "Coda"},
    {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"},  {0x564C, "NCP"},
};

static int refuse_network(const char *dir, struct err *err)
{
    struct statfs fs;

    if (statfs(dir, &fs) != 0) {
        return FAIL(err, ERR_IO, "%s: %s", dir, strerror(errno));
    }
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        if ((unsigned)fs.f_type == networks[i].magic) {
            return FAIL(
                err, ERR_BAD_REQUEST,
                "%s is on a network file system (%s), which can't hold the database; choose a "
                "local folder with --data",
                dir, networks[i].name);
        }
    }
    return 0;
}

/* Make the folder and those above it. */
static int make_path(const char *dir, struct err *err)
{
    char path[HOME_PATH];

    (void)snprintf(path, sizeof path, "%s", dir);
    for (char *p = path + 1; *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            if (mkdir(path, 0755) != 0 && errno != EEXIST) {
                return IO_FAIL(err, errno, "the folder %s can't be made: %s", path,
                               strerror(errno));
            }
            *p = '/';
        }
    }
    return io_make_dir(path, err);
}

/* Whether the folder has nothing, or is a data folder already. */
static int check_owner(const char *dir, struct err *err)
{
    char path[HOME_PATH];
    bool is_empty = true, is_ours = false;
    DIR *d = opendir(dir);

    if (d == NULL) {
        return FAIL(err, ERR_IO, "the data folder %s can't be read: %s", dir, strerror(errno));
    }
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        is_ours = is_ours || strcmp(e->d_name, "honed.db") == 0 || strcmp(e->d_name, "jobs") == 0 ||
                  strcmp(e->d_name, "settings.json") == 0;
        is_empty = is_empty && e->d_name[0] == '.';
    }
    closedir(d);
    if (!is_empty && !is_ours) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s holds other things than honed's; choose an empty folder with --data", dir);
    }
    (void)snprintf(path, sizeof path, "%s", dir);
    if (chmod(path, 0700) != 0) {
        return FAIL(err, ERR_IO, "the data folder %s can't be made private: %s", dir,
                    strerror(errno));
    }
    return 0;
}

int home_prepare(const struct settings *s, struct err *err)
{
    static const char *const folders[] = {"jobs", "files", "cache"};
    char path[HOME_PATH];

    TRY(make_path(s->data, err));
    TRY(refuse_network(s->data, err));
    TRY(check_owner(s->data, err));
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", s->data, folders[i]);
        TRY(io_make_dir(path, err));
    }
    return 0;
}

int home_lock(const struct settings *s, struct err *err)
{
    char path[HOME_PATH];

    (void)snprintf(path, sizeof path, "%s/lock", s->data);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return IO_FAIL(err, errno, "%s: %s", path, strerror(errno));
    }
    /* A honed killed while it started a process leaves a copy of its descriptor in the child until that has called exec. */
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            (void)close(fd);
            return FAIL(err, ERR_BAD_STATE, "another honed is running on the data folder %s",
                        s->data);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return 0; /* held by the open descriptor until the process ends */
}

int home_write(const struct settings *s, const char *name, const char *text, struct err *err)
{
    char path[HOME_PATH];

    (void)snprintf(path, sizeof path, "%s/%s", s->data, name);
    return io_write_file(path, text, strlen(text), err);
}

void home_remove(const struct settings *s, const char *name)
{
    char path[HOME_PATH];

    (void)snprintf(path, sizeof path, "%s/%s", s->data, name);
    (void)unlink(path); /* not there: as wanted */
}

/* The first of the places that exists goes to out. */
static void find_near(char out[SETTING_TEXT], const char *here, const char *const *places)
{
    char path[2 * SETTING_TEXT];

    for (int i = 0; places[i] != NULL && out[0] == '\0'; i++) {
        const int size = snprintf(path, sizeof path, "%s/%s", here, places[i]);
        if (size < SETTING_TEXT && (access(path, F_OK) == 0 || places[i + 1] == NULL)) {
            memcpy(out, path, (size_t)size + 1);
        }
    }
}

int home_find_programs(struct settings *s, struct err *err)
{
    static const char *const trainers[] = {"hone-train", NULL};
    static const char *const webs[] = {"web", "../../web", "../share/hone/web", NULL};
    char here[SETTING_TEXT];

    const ssize_t size = readlink("/proc/self/exe", here, sizeof here - 1);
    if (size < 0) {
        return FAIL(err, ERR_IO, "the program's own folder can't be told: %s", strerror(errno));
    }
    here[size] = '\0';
    *strrchr(here, '/') = '\0';
    find_near(s->trainer, here, trainers);
    find_near(s->web, here, webs);
    return 0;
}
