/* upload.c - files on their way in. */
#include "server/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"
#include "server/text.h"
#include "trainer/base/io.h"

enum { FORM_BUFFER = 64 << 10, PATH = SETTING_TEXT + 64 };

struct uploads {
    const struct settings *settings;
    struct store *store;
    char dir[PATH];
    pthread_mutex_t lock; /* guards the list and `bytes` of its members */
    struct upload *first;
};

struct upload {
    struct upload *next;
    struct uploads *all;
    struct uploaded what;
    char path[PATH + RANDOM_ID + 8];
    int fd;
    int64_t counted; /* bytes that this upload holds of the limits: told or arrived */
    int64_t room;    /* bytes that the user may still add, this upload included     */
    struct sha256 sha;
    struct MHD_PostProcessor *form;
    bool published;
    int rc; /* of the first failure inside the form's iterator */
    struct err err;
};

void upload_path(char *out, size_t size, const struct settings *settings, const char *id)
{
    (void)snprintf(out, size, "%s/files/%s", settings->data, id);
}

static int has_row(sqlite3 *db, void *argument, struct err *err)
{
    int64_t found = 0;

    TRY(db_integer(&found, 0, db, err, "SELECT 1 FROM files WHERE id=?", "s", argument));
    return found != 0 ? 0 : FAIL(err, ERR_NOT_FOUND, "no row");
}

/* An upload that a crash interrupted: finished when its row was committed, else removed. */
static int settle(struct uploads *u, const char *name, struct err *err)
{
    char from[PATH + 260], to[PATH + RANDOM_ID], id[RANDOM_ID];
    struct err none = {0};

    (void)snprintf(from, sizeof from, "%s/%s", u->dir, name);
    (void)snprintf(id, sizeof id, "%.*s", (int)(strlen(name) - 5), name);
    if (store_read(u->store, has_row, id, &none) != 0) {
        log_line("uploads: removing the unfinished %s", name);
        return unlink(from) == 0 ? 0 : FAIL(err, ERR_IO, "%s: %s", from, strerror(errno));
    }
    (void)snprintf(to, sizeof to, "%s/%s", u->dir, id);
    return rename(from, to) == 0 ? 0 : FAIL(err, ERR_IO, "%s: %s", from, strerror(errno));
}

static int settle_all(struct uploads *u, struct err *err)
{
    DIR *dir = opendir(u->dir);
    int rc = 0;

    if (dir == NULL) {
        return FAIL(err, ERR_IO, "%s: %s", u->dir, strerror(errno));
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        const size_t size = strlen(e->d_name);
        if (size > 5 && size < RANDOM_ID + 5 && strcmp(e->d_name + size - 5, ".part") == 0) {
            rc = settle(u, e->d_name, err);
        }
    }
    closedir(dir);
    return rc;
}

int uploads_open(struct uploads **out, const struct settings *settings, struct store *store,
                 struct err *err)
{
    struct uploads *u = calloc(1, sizeof *u);

    if (u == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for uploads");
    }
    u->settings = settings;
    u->store = store;
    pthread_mutex_init(&u->lock, NULL);
    (void)snprintf(u->dir, sizeof u->dir, "%s/files", settings->data);
    int rc = io_make_dir(u->dir, err);
    if (rc == 0) {
        rc = settle_all(u, err);
    }
    if (rc != 0) {
        uploads_close(u);
        return rc;
    }
    *out = u;
    return 0;
}

void uploads_close(struct uploads *u)
{
    if (u != NULL) {
        pthread_mutex_destroy(&u->lock);
        free(u);
    }
}

struct usage {
    int64_t user_id, bytes;
};

static int sum_files(sqlite3 *db, void *argument, struct err *err)
{
    struct usage *u = argument;

    return db_integer(&u->bytes, 0, db, err, "SELECT SUM(bytes) FROM files WHERE user_id=?", "i",
                      u->user_id);
}

static int too_large(int64_t room, struct err *err)
{
    return FAIL(err, ERR_TOO_LARGE, "the file is larger than the %lld bytes that you may still add",
                (long long)room);
}

/* Enter the list if the limits allow `length` bytes (-1: not known yet). */
static int reserve(struct upload *up, int64_t length, struct err *err)
{
    struct uploads *all = up->all;
    struct usage used = {.user_id = up->what.user_id};
    int64_t under_way = 0;
    uint64_t free_bytes = 0;
    int count = 0;

    TRY(store_read(all->store, sum_files, &used, err));
    TRY(io_free_bytes(all->dir, &free_bytes, err));
    pthread_mutex_lock(&all->lock);
    for (const struct upload *o = all->first; o != NULL; o = o->next) {
        under_way += o->what.user_id == up->what.user_id ? o->counted : 0;
        count += o->what.user_id == up->what.user_id;
    }
    up->room = all->settings->quota_bytes - used.bytes - under_way;
    up->room = up->room < 0 ? 0 : up->room;
    up->room = up->room > all->settings->max_upload ? all->settings->max_upload : up->room;
    up->counted = length < 0 ? 0 : length;

    int rc = 0;
    if (count >= UPLOADS_OF_USER) {
        rc = FAIL(err, ERR_TOO_MANY, "you have %d uploads under way; wait for one to end", count);
    } else if (up->counted > up->room) {
        rc = too_large(up->room, err);
    } else if ((uint64_t)up->counted + (uint64_t)all->settings->reserve_bytes > free_bytes) {
        rc = FAIL(err, ERR_DISK_FULL, "the disk of the server has no room for %lld more bytes",
                  (long long)up->counted);
    } else {
        up->next = all->first;
        all->first = up;
    }
    pthread_mutex_unlock(&all->lock);
    return rc;
}

static void leave_list(struct upload *up)
{
    pthread_mutex_lock(&up->all->lock);
    for (struct upload **p = &up->all->first; *p != NULL; p = &(*p)->next) {
        if (*p == up) {
            *p = up->next;
            break;
        }
    }
    pthread_mutex_unlock(&up->all->lock);
}

static int write_bytes(struct upload *up, const char *bytes, size_t size, struct err *err)
{
    const int64_t after = up->what.bytes + (int64_t)size;

    if (after > up->room) {
        return too_large(up->room, err);
    }
    if (after > up->counted) {
        pthread_mutex_lock(&up->all->lock);
        up->counted = after;
        pthread_mutex_unlock(&up->all->lock);
    }
    TRY(io_write_all(up->fd, bytes, size, "the uploaded file", err));
    sha256_add(&up->sha, bytes, size);
    up->what.bytes = after;
    return 0;
}

/* Browsers and the openai client write a quote in a file name as %22. */
static void take_filename(struct upload *up, const char *name)
{
    size_t used = 0;

    for (const char *p = name; *p != '\0' && used + 1 < sizeof up->what.filename; p++) {
        const bool quote = strncmp(p, "%22", 3) == 0;
        up->what.filename[used++] = *p;
        if (quote) {
            up->what.filename[used - 1] = '"';
        }
        p += quote ? 2 : 0;
    }
    up->what.filename[used] = '\0';
}

static int take_file(struct upload *up, const char *filename, const char *bytes, uint64_t offset,
                     size_t size)
{
    if (offset == 0 && up->what.has_file && size > 0 && up->what.bytes > 0) {
        return FAIL_PARAM(&up->err, ERR_BAD_REQUEST, "file", "the form has two files");
    }
    if (!up->what.has_file) {
        up->what.has_file = true;
        take_filename(up, filename == NULL ? "" : filename);
    }
    return write_bytes(up, bytes, size, &up->err);
}

static int take_purpose(struct upload *up, const char *bytes, uint64_t offset, size_t size)
{
    if (offset + size >= sizeof up->what.purpose) {
        return FAIL_PARAM(&up->err, ERR_BAD_REQUEST, "purpose", "purpose is too long");
    }
    memcpy(up->what.purpose + offset, bytes, size);
    up->what.purpose[offset + size] = '\0';
    return 0;
}

/* libmicrohttpd hands over a part of a form field. The nine parameters are its interface. */
/* NOLINTNEXTLINE(readability-function-size) */
static enum MHD_Result take_field(void *cls, enum MHD_ValueKind kind, const char *key,
                                  const char *filename, const char *type, const char *coding,
                                  const char *bytes, uint64_t offset, size_t size)
{
    struct upload *up = cls;

    (void)kind;
    (void)type;
    (void)coding;
    if (strcmp(key, "file") == 0) {
        up->rc = take_file(up, filename, bytes, offset, size);
    } else if (strcmp(key, "purpose") == 0) {
        up->rc = take_purpose(up, bytes, offset, size);
    }
    return up->rc == 0 ? MHD_YES : MHD_NO;
}

static int open_part(struct upload *up, int64_t length, struct err *err)
{
    (void)snprintf(up->path, sizeof up->path, "%s/%s.part", up->all->dir, up->what.id);
    up->fd = open(up->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (up->fd < 0) {
        return IO_FAIL(err, errno, "the upload can't be stored: %s", strerror(errno));
    }
    /* a file system that can't reserve is as good as one without limits */
    if (length > 0 && fallocate(up->fd, FALLOC_FL_KEEP_SIZE, 0, length) != 0 &&
        io_disk_is_full(errno)) {
        return FAIL(err, ERR_DISK_FULL, "the disk of the server has no room for %lld more bytes",
                    (long long)length);
    }
    return 0;
}

int upload_begin(struct upload **out, struct uploads *all, int64_t user_id, int64_t length,
                 struct MHD_Connection *form, struct err *err)
{
    struct upload *up = calloc(1, sizeof *up);

    if (up == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an upload");
    }
    up->all = all;
    up->fd = -1;
    up->what.user_id = user_id;
    up->what.has_file = form == NULL;
    random_id(up->what.id, "file");
    sha256_begin(&up->sha);
    int rc = reserve(up, length, err);
    if (rc != 0) {
        free(up);
        return rc;
    }
    rc = open_part(up, length, err);
    if (rc == 0 && form != NULL) {
        up->form = MHD_create_post_processor(form, FORM_BUFFER, take_field, up);
        rc = up->form != NULL
                 ? 0
                 : FAIL(err, ERR_BAD_REQUEST, "the multipart form has no usable boundary");
    }
    if (rc != 0) {
        upload_free(up);
        return rc;
    }
    *out = up;
    return 0;
}

int upload_take(struct upload *up, const char *bytes, size_t size, struct err *err)
{
    if (up->form == NULL) {
        return write_bytes(up, bytes, size, err);
    }
    const enum MHD_Result taken = MHD_post_process(up->form, bytes, size);
    if (up->rc != 0) {
        *err = up->err;
        return up->rc;
    }
    return taken == MHD_YES ? 0 : FAIL(err, ERR_BAD_REQUEST, "the multipart form is malformed");
}

static int finish_form(struct upload *up, struct err *err)
{
    const enum MHD_Result whole = MHD_destroy_post_processor(up->form);

    up->form = NULL;
    if (up->rc != 0) {
        *err = up->err;
        return up->rc;
    }
    if (whole != MHD_YES) {
        return FAIL(err, ERR_BAD_REQUEST, "the multipart form ends too early");
    }
    if (!up->what.has_file) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, "file", "the form has no part named \"file\"");
    }
    return 0;
}

int upload_finish(struct upload *up, struct uploaded *out, struct err *err)
{
    if (up->form != NULL) {
        TRY(finish_form(up, err));
    }
    /* give back what fallocate took beyond the end of a shorter form */
    if (ftruncate(up->fd, up->what.bytes) != 0 || fsync(up->fd) != 0) {
        return IO_FAIL(err, errno, "the upload can't be stored: %s", strerror(errno));
    }
    TRY(io_sync_dir(up->all->dir, err));
    sha256_end(&up->sha, up->what.sha256);
    *out = up->what;
    return 0;
}

int upload_publish(struct upload *up, struct err *err)
{
    char to[PATH + RANDOM_ID];

    upload_path(to, sizeof to, up->all->settings, up->what.id);
    up->published = true; /* the row names it: whatever fails now is mended when honed starts */
    if (rename(up->path, to) != 0) {
        return IO_FAIL(err, errno, "the upload can't be stored: %s", strerror(errno));
    }
    return io_sync_dir(up->all->dir, err);
}

void upload_free(struct upload *up)
{
    if (up == NULL) {
        return;
    }
    leave_list(up);
    if (up->form != NULL) {
        (void)MHD_destroy_post_processor(up->form); /* the rest is of no interest */
    }
    if (up->fd >= 0) {
        (void)close(up->fd);
        if (!up->published) {
            (void)unlink(up->path);
        }
    }
    free(up);
}

int upload_allow(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
                 struct err *err)
{
    int64_t owner = 0;
    char what[64];

    TRY(db_integer(&owner, 0, db, err, "SELECT user_id FROM files WHERE id=?", "s", id));
    if (owner == 0) {
        return FAIL(err, ERR_NOT_FOUND, "there is no file %.40s", id);
    }
    (void)snprintf(what, sizeof what, "file %.40s", id);
    return authorise(who, deed, owner, true, what, err);
}
