/* audit_file.c - DATA/audit.jsonl. */
#include "server/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/audit.h"
#include "server/log.h"
#include "trainer/base/io.h"

enum { ROWS = 256, TAIL = 8192 };

/* Lines on their way from the store. */
struct page {
    int64_t after, last;
    int rows;
    char *text; /* owned by the caller */
    size_t size;
};

static void write_hex(char out[2 * AUDIT_HASH + 1], sqlite3_stmt *q, int column)
{
    const unsigned char *hash = sqlite3_column_blob(q, column);
    const int size = sqlite3_column_bytes(q, column);

    out[0] = '\0';
    for (int i = 0; i < size && i < AUDIT_HASH; i++) {
        (void)snprintf(out + (size_t)i * 2, 3, "%02x", hash[i]);
    }
}

static int add_line(struct page *p, sqlite3_stmt *q, struct err *err)
{
    char hash[2 * AUDIT_HASH + 1];

    write_hex(hash, q, 8);
    json_t *line = json_pack("{s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "n",
                             (json_int_t)sqlite3_column_int64(q, 0), "t",
                             (json_int_t)sqlite3_column_int64(q, 1), "user", db_text(q, 2), "token",
                             db_text(q, 3), "address", db_text(q, 4), "action", db_text(q, 5),
                             "object", db_text(q, 6), "result", db_text(q, 7), "hash", hash);
    char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    const size_t size = text == NULL ? 0 : strlen(text);
    char *more = text == NULL ? NULL : realloc(p->text, p->size + size + 1);

    json_decref(line);
    if (more == NULL) {
        free(text);
        return FAIL(err, ERR_NO_MEMORY, "no memory for the audit log");
    }
    memcpy(more + p->size, text, size + 1);
    more[p->size + size] = '\n';
    free(text);
    p->text = more;
    p->size += size + 1;
    p->last = sqlite3_column_int64(q, 0);
    p->rows++;
    return 0;
}

static int read_page(sqlite3 *db, void *argument, struct err *err)
{
    struct page *p = argument;
    sqlite3_stmt *q = NULL;
    bool row = true;

    TRY(db_query(&q, db, err,
                 "SELECT n, t, user, token, address, action, object, result, hash FROM audit"
                 " WHERE n>? ORDER BY n LIMIT ?",
                 "ii", p->after, (int64_t)ROWS));
    int rc = db_next(q, &row, err);
    while (rc == 0 && row) {
        rc = add_line(p, q, err);
        rc = rc != 0 ? rc : db_next(q, &row, err);
    }
    sqlite3_finalize(q);
    return rc;
}

/* One write for each line: a reader sees whole lines, and so does what is left after a crash. */
static int write_lines(struct audit_file *f, const struct page *p, struct err *err)
{
    for (const char *at = p->text; at < p->text + p->size;) {
        const size_t left = (size_t)(p->text + p->size - at);
        const size_t size = (size_t)((const char *)memchr(at, '\n', left) - at) + 1;
        const ssize_t n = write(f->fd, at, size);
        if (n != (ssize_t)size) {
            return IO_FAIL(err, n < 0 ? errno : ENOSPC, "%s: %s", f->path,
                           n < 0 ? strerror(errno) : "written in part");
        }
        f->written++;
        at += size;
    }
    f->written = p->last;
    return 0;
}

static int open_file(struct audit_file *f, struct err *err)
{
    f->fd = open(f->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return f->fd >= 0 ? 0 : IO_FAIL(err, errno, "%s: %s", f->path, strerror(errno));
}

int audit_file_follow(struct audit_file *f, struct store *store, struct err *err)
{
    struct page p = {.rows = ROWS};
    int rc = 0;

    if (f->fd < 0) {
        TRY(open_file(f, err));
    }
    while (rc == 0 && p.rows == ROWS) {
        p = (struct page){.after = f->written};
        rc = store_read(store, read_page, &p, err);
        if (rc == 0 && p.rows > 0) {
            rc = write_lines(f, &p, err);
        }
        free(p.text);
    }
    return rc;
}

static int64_t number_of(const char *line, size_t size)
{
    json_t *o = json_loadb(line, size, 0, NULL);
    const int64_t n = json_integer_value(json_object_get(o, "n"));

    json_decref(o);
    return n;
}

/* The number of the last whole line; 0 when there is none. A line that a crash cut short is ended. */
static int64_t find_last(const char *path)
{
    char tail[TAIL];
    int64_t n = 0;
    const int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        return 0;
    }
    const off_t end = lseek(fd, 0, SEEK_END);
    const off_t begin = end > TAIL ? end - TAIL : 0;
    const ssize_t got = end > 0 ? pread(fd, tail, (size_t)(end - begin), begin) : 0;
    for (ssize_t from = 0; from < got;) {
        const char *stop = memchr(tail + from, '\n', (size_t)(got - from));
        const ssize_t size = stop == NULL ? got - from : stop - (tail + from);
        const int64_t found = stop == NULL ? 0 : number_of(tail + from, (size_t)size);
        n = found > n ? found : n;
        from += size + 1;
    }
    if (got > 0 && tail[got - 1] != '\n' && write(fd, "\n", 1) != 1) {
        log_line("%s: the last line is broken and can't be ended", path);
    }
    (void)close(fd);
    return n;
}

static int last_row(sqlite3 *db, void *argument, struct err *err)
{
    return db_integer(argument, 0, db, err, "SELECT MAX(n) FROM audit", "");
}

int audit_file_open(struct audit_file *f, struct store *store, const char *dir, struct err *err)
{
    char aside[sizeof f->path + 64];
    int64_t last = 0;

    *f = (struct audit_file){.fd = -1};
    (void)snprintf(f->path, sizeof f->path, "%s/audit.jsonl", dir);
    TRY(store_read(store, last_row, &last, err));
    f->written = find_last(f->path);
    if (f->written > last) {
        (void)snprintf(aside, sizeof aside, "%s/audit.%lld.jsonl", dir, (long long)time(NULL));
        if (rename(f->path, aside) != 0) {
            return FAIL(err, ERR_IO, "%s: %s", aside, strerror(errno));
        }
        log_line("the audit log of another store is put aside as %s", aside);
        f->written = 0;
    }
    return 0;
}

void audit_file_close(struct audit_file *f)
{
    if (f->fd >= 0) {
        (void)close(f->fd);
    }
    f->fd = -1;
}

/* Whether the line says of its row what the row says. One that a crash cut short says nothing. */
static int check_line(sqlite3 *db, const char *line, int64_t *n, bool *fits, struct err *err)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *hash = json_string_value(json_object_get(o, "hash"));
    int64_t same = 0;
    int rc = 0;

    *n = json_integer_value(json_object_get(o, "n"));
    if (*n > 0 && hash != NULL) {
        rc = db_integer(&same, 0, db, err, "SELECT 1 FROM audit WHERE n=? AND hex(hash)=upper(?)",
                        "is", *n, hash);
    }
    *fits = same == 1 || *n <= 0 || hash == NULL;
    json_decref(o);
    return rc;
}

int audit_file_check(sqlite3 *db, const char *dir, int64_t *first_bad, struct err *err)
{
    char path[1100], *line = NULL;
    size_t room = 0;
    int64_t n = 0;
    bool fits = true;
    int rc = 0;

    *first_bad = 0;
    (void)snprintf(path, sizeof path, "%s/audit.jsonl", dir);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT ? 0 : FAIL(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    while (rc == 0 && *first_bad == 0 && getline(&line, &room, file) > 0) {
        if (line[0] != '\n' && line[strcspn(line, "\n")] == '\n') {
            rc = check_line(db, line, &n, &fits, err);
            *first_bad = rc == 0 && !fits ? n : 0;
        }
    }
    free(line);
    (void)fclose(file);
    return rc;
}
