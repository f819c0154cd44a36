/* manifest.c - manifest.json as a sorted list of files. */
#include "trainer/ckpt/manifest.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

static const char FORMAT[] = "hone-checkpoint-1", NAME[] = "manifest.json";
static const size_t MANIFEST_BYTES_MAX = (size_t)4 << 20;

bool manifest_name_is_valid(const char *name)
{
    const size_t n = strlen(name);

    if (n == 0 || n > MANIFEST_NAME_MAX || name[0] == '.' || strcmp(name, NAME) == 0) {
        return false;
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '/' || (unsigned char)*c < ' ' || *c == 0x7F) {
            return false;
        }
    }
    return true;
}

/* The place of `name`, or where it belongs. */
static int place_of(const struct manifest *m, const char *name)
{
    int low = 0, high = m->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(m->files[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *name)
{
    const int i = place_of(m, name);

    return i < m->count && strcmp(m->files[i].name, name) == 0 ? &m->files[i] : NULL;
}

int manifest_add(struct manifest *m, const char *name, uint64_t bytes, const char *sha256,
                 struct err *err)
{
    const int i = place_of(m, name);

    CHECK(manifest_name_is_valid(name) && sha256_is_text(sha256), "%s: %s", name, sha256);
    if (i == m->count || strcmp(m->files[i].name, name) != 0) {
        if (m->count == MANIFEST_FILES_MAX) {
            return FAIL(err, ERR_BAD_FILE, "a checkpoint has more than %d files",
                        MANIFEST_FILES_MAX);
        }
        struct manifest_file *grown =
            reallocarray(m->files, (size_t)m->count + 1, sizeof *m->files);
        if (grown == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a list of %d files", m->count + 1);
        }
        m->files = grown;
        memmove(&grown[i + 1], &grown[i], (size_t)(m->count - i) * sizeof *grown);
        m->count++;
    }
    struct manifest_file *file = &m->files[i];
    *file = (struct manifest_file){.bytes = bytes};
    memcpy(file->name, name, strlen(name) + 1);
    memcpy(file->sha256, sha256, SHA256_TEXT);
    return 0;
}

uint64_t manifest_bytes(const struct manifest *m)
{
    uint64_t bytes = 0;

    for (int i = 0; i < m->count; i++) {
        bytes += m->files[i].bytes;
    }
    return bytes;
}

int manifest_write(struct manifest *m, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX];
    json_t *files = json_array();
    bool failed = files == NULL;

    for (int i = 0; i < m->count; i++) {
        const struct manifest_file *f = &m->files[i];
        failed |=
            json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", f->name, "bytes",
                                                   (json_int_t)f->bytes, "sha256", f->sha256)) != 0;
    }
    json_t *all = json_pack("{s:s, s:I, s:I, s:o}", "format", FORMAT, "step", (json_int_t)m->step,
                            "created_at", (json_int_t)m->created_at, "files", files);
    char *text = failed || all == NULL ? NULL : json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to write %s", NAME);
    }
    const size_t n = strlen(text);
    text[n] = '\n'; /* in the place of the NUL */
    int rc = io_join(path, sizeof path, dir, NAME, err);
    if (rc == 0) {
        rc = io_write_file(path, text, n + 1, err);
    }
    if (rc == 0) {
        sha256_of(text, n + 1, m->sha256);
    }
    free(text);
    return rc;
}

/* One element of "files". */
static int read_entry(struct manifest *m, const json_t *entry, struct err *err)
{
    const struct fields f = {entry, "manifest.json: files", ERR_BAD_FILE};
    const char *name = NULL, *sha256 = NULL;
    int64_t bytes = 0;

    TRY(fields_text(&f, "name", FIELD_REQUIRED, &name, err));
    TRY(fields_integer(&f, "bytes", FIELD_REQUIRED, 0, INT64_MAX, &bytes, err));
    TRY(fields_text(&f, "sha256", FIELD_REQUIRED, &sha256, err));
    if (!manifest_name_is_valid(name)) {
        return FAIL(err, ERR_BAD_FILE, "%s: a checkpoint can't have a file of the name \"%.100s\"",
                    NAME, name);
    }
    if (!sha256_is_text(sha256)) {
        return FAIL(err, ERR_BAD_FILE, "%s: %.100s has no valid sha256", NAME, name);
    }
    if (manifest_find(m, name) != NULL) {
        return FAIL(err, ERR_BAD_FILE, "%s: %.100s is there twice", NAME, name);
    }
    return manifest_add(m, name, (uint64_t)bytes, sha256, err);
}

static int read_all(struct manifest *m, const json_t *all, struct err *err)
{
    const struct fields f = {all, NAME, ERR_BAD_FILE};
    const char *format = NULL;
    const json_t *files = NULL, *entry = NULL;
    size_t i = 0;

    TRY(fields_text(&f, "format", FIELD_REQUIRED, &format, err));
    if (strcmp(format, FORMAT) != 0) {
        return FAIL(err, ERR_BAD_FILE, "%s: format must be \"%s\", not \"%.60s\"", NAME, FORMAT,
                    format);
    }
    TRY(fields_integer(&f, "step", FIELD_REQUIRED, 0, INT64_MAX, &m->step, err));
    TRY(fields_integer(&f, "created_at", FIELD_REQUIRED, 0, INT64_MAX, &m->created_at, err));
    TRY(fields_array(&f, "files", FIELD_REQUIRED, &files, err));
    json_array_foreach(files, i, entry)
    {
        TRY(read_entry(m, entry, err));
    }
    return 0;
}

int manifest_read(struct manifest *out, const char *dir, struct err *err)
{
    char path[IO_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    json_t *all = NULL;

    *out = (struct manifest){0};
    TRY(io_join(path, sizeof path, dir, NAME, err));
    TRY(io_read_file(&text, &bytes, path, MANIFEST_BYTES_MAX, err));
    sha256_of(text, bytes, out->sha256);
    int rc = json_parse_text(&all, text, bytes, path, err);
    free(text);
    if (rc == 0) {
        rc = read_all(out, all, err);
    }
    json_decref(all);
    if (rc != 0) {
        manifest_fini(out);
    }
    return rc;
}

void manifest_fini(struct manifest *m)
{
    free(m->files);
    *m = (struct manifest){0};
}

/* Compare one file with its entry. */
static int check_file(const struct manifest_file *want, int dir_fd, bool hash, struct err *err)
{
    char sha256[SHA256_TEXT];
    struct stat about;
    int fd = -1;

    const int found = io_open_beneath(&fd, dir_fd, want->name, err);
    if (found == ERR_NOT_FOUND) {
        return FAIL(err, ERR_BAD_FILE, "%s is missing", want->name);
    }
    TRY(found);
    int rc = 0;
    if (fstat(fd, &about) != 0) {
        rc = FAIL(err, ERR_IO, "cannot stat %s: %s", want->name, strerror(errno));
    } else if ((uint64_t)about.st_size != want->bytes) {
        rc = FAIL(err, ERR_BAD_FILE, "%s has %lld bytes instead of %llu", want->name,
                  (long long)about.st_size, (unsigned long long)want->bytes);
    } else if (hash) {
        rc = sha256_fd(fd, want->name, sha256, NULL, err);
        if (rc == 0 && strcmp(sha256, want->sha256) != 0) {
            rc = FAIL(err, ERR_BAD_FILE, "%s is damaged: its sha256 is %s instead of %s",
                      want->name, sha256, want->sha256);
        }
    }
    (void)close(fd);
    return rc;
}

static int check_files(const struct manifest *m, const char *dir, bool hash, struct err *err)
{
    int dir_fd = -1, rc = 0;

    TRY(io_open_dir(&dir_fd, dir, err));
    for (int i = 0; i < m->count && rc == 0; i++) {
        rc = check_file(&m->files[i], dir_fd, hash, err);
    }
    (void)close(dir_fd);
    return rc;
}

int manifest_check_sizes(const struct manifest *m, const char *dir, struct err *err)
{
    return check_files(m, dir, false, err);
}

int manifest_check_hashes(const struct manifest *m, const char *dir, struct err *err)
{
    return check_files(m, dir, true, err);
}
