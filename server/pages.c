/* pages.c - the web page's files. */
#include "server/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"
#include "trainer/base/io.h"
#include "trainer/base/sha256.h"

enum { PAGE_PATH = 256, PAGE_DEPTH = 4 };

struct page {
    char path[PAGE_PATH]; /* "/index.html" */
    const char *type;
    char *bytes; /* owned */
    size_t size;
    char etag[SHA256_TEXT];
};

struct pages {
    int count;
    size_t bytes;
    struct page at[PAGES_MAX];
};

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".mjs", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".json", "application/json"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".ico", "image/x-icon"},
        {".woff2", "font/woff2"},
        {".txt", "text/plain; charset=utf-8"},
    };
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot != NULL && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(dot, types[i][0]) == 0) {
            return types[i][1];
        }
    }
    return "application/octet-stream";
}

static int add_page(struct pages *p, int dir_fd, const char *name, const char *path,
                    struct err *err)
{
    struct page *page = &p->at[p->count];

    if (p->count == PAGES_MAX) {
        return FAIL(err, ERR_TOO_LARGE, "the web folder has more than %d files", PAGES_MAX);
    }
    const int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return FAIL(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    const int rc = io_read_fd(&page->bytes, &page->size, fd, path, PAGE_BYTES_MAX - p->bytes, err);
    (void)close(fd);
    TRY(rc);
    (void)snprintf(page->path, sizeof page->path, "%s", path);
    page->type = type_of(path);
    sha256_of(page->bytes, page->size, page->etag);
    p->bytes += page->size;
    p->count++;
    return 0;
}

/* Takes dir_fd over. */
static int read_folder(struct pages *p, int dir_fd, const char *prefix, int depth, struct err *err)
{
    DIR *dir = fdopendir(dir_fd);
    char path[PAGE_PATH];
    struct stat st;
    int rc = 0;

    if (dir == NULL) {
        (void)close(dir_fd);
        return FAIL(err, ERR_IO, "%s: %s", prefix, strerror(errno));
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, 0) != 0 ||
            snprintf(path, sizeof path, "%s/%s", prefix, e->d_name) >= PAGE_PATH) {
            continue;
        }
        if (S_ISREG(st.st_mode)) {
            rc = add_page(p, dirfd(dir), e->d_name, path, err);
        } else if (S_ISDIR(st.st_mode) && depth < PAGE_DEPTH) {
            const int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            rc = fd < 0 ? 0 : read_folder(p, fd, path, depth + 1, err);
        }
    }
    closedir(dir);
    return rc;
}

int pages_open(struct pages **out, const char *dir, struct err *err)
{
    struct pages *p = calloc(1, sizeof *p);
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    if (p == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for the web page");
    } else if (fd < 0) {
        log_line("no web page: the folder %s can't be opened", dir);
    } else {
        rc = read_folder(p, fd, "", 0, err);
    }
    if (rc != 0) {
        pages_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void pages_close(struct pages *p)
{
    for (int i = 0; p != NULL && i < p->count; i++) {
        free(p->at[i].bytes);
    }
    free(p);
}

static const struct page *find_page(const struct pages *p, const struct gate_request *in)
{
    char path[PAGE_PATH] = "";
    size_t used = 0;

    for (int i = 0; i < in->segment_count && used < sizeof path; i++) {
        used += (size_t)snprintf(path + used, sizeof path - used, "/%s", in->segments[i]);
    }
    for (int i = 0; i < p->count && used < sizeof path; i++) {
        if (strcmp(p->at[i].path, used == 0 ? "/index.html" : path) == 0) {
            return &p->at[i];
        }
    }
    return NULL;
}

static int handle_page(const struct request *rq, struct reply *rp, struct err *err)
{
    const struct page *page = find_page(rq->app->pages, rq->in);
    const char *have = request_header(rq, "If-None-Match");
    char etag[SHA256_TEXT + 2];

    if (page == NULL) {
        return FAIL(err, ERR_NOT_FOUND, "no such page");
    }
    (void)snprintf(etag, sizeof etag, "\"%s\"", page->etag);
    reply_add(rp, "ETag", "%s", etag);
    reply_add(rp, "Cache-Control", "no-cache");
    if (have != NULL && strcmp(have, etag) == 0) {
        rp->status = 304;
        return 0;
    }
    reply_add(rp, "Content-Type", "%s", page->type);
    rp->text = page->bytes;
    rp->text_size = page->size;
    rp->text_is_borrowed = true;
    return 0;
}

const struct route *pages_route(const struct pages *p, const struct gate_request *in)
{
    static const struct route route = {
        METHOD_GET, "/", ACCESS_OPEN, BODY_NONE, handle_page, "page", "a file of the web page"};

    return in->method <= METHOD_HEAD && find_page(p, in) != NULL ? &route : NULL;
}
