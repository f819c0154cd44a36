/* io.c - files and folders through plain system calls. */
#include "trainer/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TREE_DEPTH_MAX = 64, FILE_MODE = 0600, DIR_MODE = 0700 };

bool io_disk_is_full(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG;
}

int io_join(char *out, size_t size, const char *dir, const char *name, struct err *err)
{
    const int n = snprintf(out, size, "%s/%s", dir, name);

    if (n < 0 || (size_t)n >= size) {
        return FAIL(err, ERR_IO, "the path of %s is longer than %zu bytes", name, size - 1);
    }
    return 0;
}

/* The sentence for a file that can't be opened. */
static int cannot_open(const char *path, int number, struct err *err)
{
    if (number == ENOENT || number == ENOTDIR) {
        return FAIL(err, ERR_NOT_FOUND, "%s does not exist", path);
    }
    return IO_FAIL(err, number, "cannot open %s: %s", path, strerror(number));
}

int io_read_at(int fd, void *out, size_t n, uint64_t offset, const char *path, struct err *err)
{
    char *to = out;

    while (n > 0) {
        const ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return FAIL(err, ERR_IO, "cannot read %s: %s", path, strerror(errno));
        }
        if (got == 0) {
            return FAIL(err, ERR_BAD_FILE, "%s ends at byte %llu, before what it should hold", path,
                        (unsigned long long)offset);
        }
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int io_read_fd(char **out, size_t *bytes, int fd, const char *path, size_t max_bytes,
               struct err *err)
{
    struct stat about;

    *out = NULL;
    if (fstat(fd, &about) != 0) {
        return FAIL(err, ERR_IO, "cannot stat %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        return FAIL(err, ERR_IO, "%s is not a file", path);
    }
    if ((uint64_t)about.st_size > max_bytes) {
        return FAIL(err, ERR_TOO_LARGE, "%s has %lld bytes, more than the %zu it may have", path,
                    (long long)about.st_size, max_bytes);
    }
    const size_t n = (size_t)about.st_size;
    char *text = malloc(n + 1);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the %zu bytes of %s", n, path);
    }
    const int rc = io_read_at(fd, text, n, 0, path, err);
    if (rc != 0) {
        free(text);
        return rc;
    }
    text[n] = '\0';
    *out = text;
    *bytes = n;
    return 0;
}

int io_read_file(char **out, size_t *bytes, const char *path, size_t max_bytes, struct err *err)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *out = NULL;
    if (fd < 0) {
        return cannot_open(path, errno, err);
    }
    const int rc = io_read_fd(out, bytes, fd, path, max_bytes, err);
    (void)close(fd);
    return rc;
}

int io_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err)
{
    const char *from = bytes;

    while (n > 0) {
        const ssize_t put = write(fd, from, n);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return IO_FAIL(err, errno, "cannot write %s: %s", path, strerror(errno));
        }
        from += put;
        n -= (size_t)put;
    }
    return 0;
}

/* Write and sync a new file; close reports what a network file system found only now. */
static int write_synced(const char *path, const void *bytes, size_t n, struct err *err)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);

    if (fd < 0) {
        return IO_FAIL(err, errno, "cannot create %s: %s", path, strerror(errno));
    }
    int rc = io_write_all(fd, bytes, n, path, err);
    if (rc == 0 && fsync(fd) != 0) {
        rc = IO_FAIL(err, errno, "cannot sync %s: %s", path, strerror(errno));
    }
    if (close(fd) != 0 && rc == 0) {
        rc = IO_FAIL(err, errno, "cannot close %s: %s", path, strerror(errno));
    }
    return rc;
}

int io_write_file(const char *path, const void *bytes, size_t n, struct err *err)
{
    char aside[IO_PATH_MAX], dir[IO_PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int dir_length = slash == NULL ? 0 : (int)(slash - path);

    if (snprintf(aside, sizeof aside, "%s~", path) >= (int)sizeof aside) {
        return FAIL(err, ERR_IO, "the path %.200s... is too long", path);
    }
    (void)snprintf(dir, sizeof dir, "%.*s", dir_length, path);
    if (dir[0] == '\0') {
        (void)snprintf(dir, sizeof dir, "%s", slash == NULL ? "." : "/");
    }
    int rc = write_synced(aside, bytes, n, err);
    if (rc == 0 && rename(aside, path) != 0) {
        rc = IO_FAIL(err, errno, "cannot rename %s: %s", aside, strerror(errno));
    }
    if (rc != 0) {
        (void)unlink(aside);
        return rc;
    }
    return io_sync_dir(dir, err);
}

/* Whether a path stays below its folder by its words alone. */
static bool stays_beneath(const char *relative)
{
    if (relative[0] == '\0' || relative[0] == '/' || strlen(relative) >= IO_PATH_MAX) {
        return false;
    }
    for (const char *part = relative; part != NULL;) {
        const char *end = strchr(part, '/');
        const size_t n = end == NULL ? strlen(part) : (size_t)(end - part);
        if (n == 2 && strncmp(part, "..", 2) == 0) {
            return false;
        }
        part = end == NULL ? NULL : end + 1;
    }
    return true;
}

/* Keep fd if it is a regular file, else close it. */
static int keep_regular(int *out, int fd, const char *relative, struct err *err)
{
    struct stat about;

    if (fstat(fd, &about) != 0) {
        const int number = errno;
        (void)close(fd);
        return FAIL(err, ERR_IO, "cannot stat %s: %s", relative, strerror(number));
    }
    if (!S_ISREG(about.st_mode)) {
        (void)close(fd);
        return FAIL(err, ERR_BAD_FILE, "%s is not a regular file", relative);
    }
    *out = fd;
    return 0;
}

static int cannot_open_beneath(const char *relative, int number, struct err *err)
{
    if (number == ELOOP) {
        return FAIL(err, ERR_BAD_FILE,
                    "%s is, or lies behind, a symbolic link, and links are not followed", relative);
    }
    if (number == EXDEV) {
        return FAIL(err, ERR_BAD_FILE, "%s leads out of its folder", relative);
    }
    if (number == ENXIO) {
        return FAIL(err, ERR_BAD_FILE, "%s is not a regular file", relative);
    }
    return cannot_open(relative, number, err);
}

/* O_DIRECTORY | O_NOFOLLOW fails with ENOTDIR for a link and for a file alike. */
static bool is_link(int dir_fd, const char *name)
{
    struct stat about;

    return fstatat(dir_fd, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(about.st_mode);
}

int io_open_beneath_walking(int *fd, int root_fd, const char *relative, struct err *err)
{
    char path[IO_PATH_MAX], *rest = path, *part = NULL;
    int at = root_fd, next = -1, number = 0;

    *fd = -1;
    if (!stays_beneath(relative)) {
        return FAIL(err, ERR_BAD_FILE, "%.200s is not a path below its folder", relative);
    }
    (void)snprintf(path, sizeof path, "%s", relative);
    while ((part = strsep(&rest, "/")) != NULL && number == 0) {
        if (part[0] == '\0' && rest != NULL) {
            continue;
        }
        const int kind = rest == NULL ? O_NONBLOCK : O_DIRECTORY;
        next = openat(at, part[0] == '\0' ? "." : part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | kind);
        number = next < 0 ? errno : 0;
        if (number == ENOTDIR && is_link(at, part)) {
            number = ELOOP;
        }
        if (at != root_fd) {
            (void)close(at);
        }
        at = next;
    }
    if (number != 0) {
        return cannot_open_beneath(relative, number, err);
    }
    return keep_regular(fd, at, relative, err);
}

static int open_strictly(int *fd, int root_fd, const char *relative, struct err *err)
{
    const struct open_how how = {
        .flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };

    *fd = -1;
    if (!stays_beneath(relative)) {
        return FAIL(err, ERR_BAD_FILE, "%.200s is not a path below its folder", relative);
    }
    long got = -1;
    do {
        got = syscall(SYS_openat2, root_fd, relative, &how, sizeof how);
    } while (got < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: raced with a rename */
    if (got < 0 && (errno == ENOSYS || errno == EPERM)) {
        return io_open_beneath_walking(fd, root_fd, relative, err); /* old kernel, old sandbox */
    }
    if (got < 0) {
        return cannot_open_beneath(relative, errno, err);
    }
    return keep_regular(fd, (int)got, relative, err);
}

/* Whether `name` is a link of a Hugging Face cache: snapshots/REVISION/NAME -> ../../blobs/BLOB. */
static bool is_cache_link(int dir_fd, const char *name, char blob[NAME_MAX + 1])
{
    static const char blobs[] = "../../blobs/";
    char target[sizeof blobs + NAME_MAX];
    const ssize_t n = readlinkat(dir_fd, name, target, sizeof target - 1);

    if (n < 0 || strchr(name, '/') != NULL) {
        return false;
    }
    target[n] = '\0';
    const char *rest = target + strlen(blobs);
    if ((size_t)n <= strlen(blobs) || strncmp(target, blobs, strlen(blobs)) != 0 ||
        strchr(rest, '/') != NULL || rest[0] == '.' || strlen(rest) > NAME_MAX) {
        return false;
    }
    memcpy(blob, rest, strlen(rest) + 1);
    return true;
}

int io_open_beneath(int *fd, int root_fd, const char *relative, struct err *err)
{
    char blob[NAME_MAX + 1];

    if (!is_cache_link(root_fd, relative, blob)) {
        return open_strictly(fd, root_fd, relative, err);
    }
    *fd = -1;
    const int blobs =
        openat(root_fd, "../../blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (blobs < 0) {
        return cannot_open_beneath(relative, errno, err);
    }
    const int rc = open_strictly(fd, blobs, blob, err);
    (void)close(blobs);
    return rc;
}

int io_open_dir(int *fd, const char *path, struct err *err)
{
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0 && errno == ENOTDIR) {
        return FAIL(err, ERR_BAD_FILE, "%s is not a folder", path);
    }
    return *fd < 0 ? cannot_open(path, errno, err) : 0;
}

int io_make_dir(const char *path, struct err *err)
{
    struct stat about;

    if (mkdir(path, DIR_MODE) == 0) {
        return 0;
    }
    if (errno != EEXIST) {
        return IO_FAIL(err, errno, "cannot make the folder %s: %s", path, strerror(errno));
    }
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        return FAIL(err, ERR_IO, "cannot make the folder %s: something else has that name", path);
    }
    return 0;
}

int io_sync_dir(const char *path, struct err *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return IO_FAIL(err, errno, "cannot open the folder %s: %s", path, strerror(errno));
    }
    int rc = 0;
    /* EINVAL: a file system without folders to sync, for instance some FUSE ones. */
    if (fsync(fd) != 0 && errno != EINVAL) {
        rc = IO_FAIL(err, errno, "cannot sync the folder %s: %s", path, strerror(errno));
    }
    (void)close(fd);
    return rc;
}

static int is_name(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* By bytes, not by the locale as alphasort(3) does. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int io_list_dir(struct io_names *out, const char *path, struct err *err)
{
    *out = (struct io_names){0};
    const int n = scandir(path, &out->at, is_name, by_name);
    if (n < 0 && errno == ENOENT) {
        return 0;
    }
    if (n < 0 && errno == ENOMEM) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to list %s", path);
    }
    if (n < 0) {
        return FAIL(err, ERR_IO, "cannot list %s: %s", path, strerror(errno));
    }
    out->count = n;
    return 0;
}

void io_names_fini(struct io_names *names)
{
    for (int i = 0; i < names->count; i++) {
        free(names->at[i]);
    }
    free(names->at);
    *names = (struct io_names){0};
}

/* What a walk does with a tree's entries. */
struct walk {
    const char *path; /* for errors */
    bool removing;
    uint64_t bytes; /* of the regular files seen */
    struct err *err;
};

static int walk_dir(struct walk *w, int dir_fd, int depth);

static int walk_entry(struct walk *w, int dir_fd, const char *name, int depth)
{
    struct stat about;

    if (fstatat(dir_fd, name, &about, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) {
            return 0; /* gone meanwhile */
        }
        return FAIL(w->err, ERR_IO, "cannot stat %s below %s: %s", name, w->path, strerror(errno));
    }
    if (S_ISDIR(about.st_mode)) {
        const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            return FAIL(w->err, ERR_IO, "cannot open %s below %s: %s", name, w->path,
                        strerror(errno));
        }
        TRY(walk_dir(w, fd, depth + 1));
    } else if (S_ISREG(about.st_mode)) {
        w->bytes += (uint64_t)about.st_size;
    }
    const int flag = S_ISDIR(about.st_mode) ? AT_REMOVEDIR : 0;
    if (w->removing && unlinkat(dir_fd, name, flag) != 0 && errno != ENOENT) {
        return FAIL(w->err, ERR_IO, "cannot remove %s below %s: %s", name, w->path,
                    strerror(errno));
    }
    return 0;
}

/* Visit what the folder open as dir_fd holds, and close dir_fd. */
static int walk_dir(struct walk *w, int dir_fd, int depth)
{
    DIR *dir = depth > TREE_DEPTH_MAX ? NULL : fdopendir(dir_fd);
    int rc = 0;

    if (dir == NULL) {
        (void)close(dir_fd);
        return FAIL(w->err, ERR_IO, "cannot list %s, %d folders deep", w->path, depth);
    }
    errno = 0;
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        rc = is_name(e) ? walk_entry(w, dirfd(dir), e->d_name, depth) : 0;
        errno = 0;
    }
    if (rc == 0 && errno != 0) {
        rc = FAIL(w->err, ERR_IO, "cannot list %s: %s", w->path, strerror(errno));
    }
    (void)closedir(dir);
    return rc;
}

int io_remove_tree(const char *path, struct err *err)
{
    struct walk w = {.path = path, .removing = true, .err = err};

    return walk_entry(&w, AT_FDCWD, path, 0);
}

int io_tree_bytes(const char *path, uint64_t *bytes, struct err *err)
{
    struct walk w = {.path = path, .err = err};
    const int rc = walk_entry(&w, AT_FDCWD, path, 0);

    *bytes = w.bytes;
    return rc;
}

int io_free_bytes(const char *path, uint64_t *bytes, struct err *err)
{
    struct statvfs about;

    if (statvfs(path, &about) != 0) {
        return FAIL(err, ERR_IO, "cannot ask for the free space at %s: %s", path, strerror(errno));
    }
    *bytes = (uint64_t)about.f_bavail * (uint64_t)about.f_frsize;
    return 0;
}
