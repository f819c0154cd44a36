/* roots.c - folders of this machine that jobs may use. */
#include "server/roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/text.h"
#include "trainer/base/json.h"
#include "trainer/ckpt/folder.h"

enum { CONFIG_MAX = 1 << 20, NAME_MAX_ROOT = 32 };

struct root {
    enum root_kind kind;
    char name[NAME_MAX_ROOT + 1];
    int fd;
};

struct roots {
    int count;
    struct root at[2 * SETTING_LIST];
};

static int add_root(struct roots *r, enum root_kind kind, const char *text, struct err *err)
{
    const char *option = kind == ROOT_MODELS ? "--model-root" : "--data-root";
    struct root *root = &r->at[r->count];
    const size_t size = strcspn(text, "=");
    const size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_-.");

    if (size < 1 || size > NAME_MAX_ROOT || letters != size || text[size] != '=' ||
        strncmp(text, "job-", 4) == 0 || strncmp(text, "file-", 5) == 0) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s wants NAME=DIR, NAME of letters, digits and \"_-.\", not \"%.100s\"",
                    option, text);
    }
    for (int i = 0; i < r->count; i++) {
        if (r->at[i].kind == kind && strlen(r->at[i].name) == size &&
            strncmp(r->at[i].name, text, size) == 0) {
            return FAIL(err, ERR_BAD_REQUEST, "%s has the name \"%s\" twice", option,
                        r->at[i].name);
        }
    }
    root->fd = open(text + size + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root->fd < 0) {
        return FAIL(err, ERR_BAD_REQUEST, "%s: the folder %.200s can't be opened: %s", option,
                    text + size + 1, strerror(errno));
    }
    root->kind = kind;
    (void)snprintf(root->name, sizeof root->name, "%.*s", (int)size, text);
    r->count++;
    return 0;
}

int roots_open(struct roots **out, const struct settings *settings, struct err *err)
{
    struct roots *r = calloc(1, sizeof *r);
    int rc = 0;

    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the roots");
    }
    for (int i = 0; i < settings->model_root.count && rc == 0; i++) {
        rc = add_root(r, ROOT_MODELS, settings->model_root.at[i], err);
    }
    for (int i = 0; i < settings->data_root.count && rc == 0; i++) {
        rc = add_root(r, ROOT_DATA, settings->data_root.at[i], err);
    }
    if (rc != 0) {
        roots_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void roots_close(struct roots *r)
{
    for (int i = 0; r != NULL && i < r->count; i++) {
        (void)close(r->at[i].fd);
    }
    free(r);
}

/* The path behind an open descriptor. */
static bool path_of(int fd, char path[ROOT_PATH])
{
    char link[64];

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, ROOT_PATH - 1);
    path[n < 0 ? 0 : n] = '\0';
    return n > 0 && n < ROOT_PATH - 1;
}

/* Without openat2 (kernels before 5.6, some sandboxes): open, and see where that led. */
static int open_and_look(int root_fd, const char *relative)
{
    char root[ROOT_PATH], path[ROOT_PATH];
    const int fd = relative[0] == '/' ? -1 : openat(root_fd, relative, O_PATH | O_CLOEXEC);

    if (fd < 0 || !path_of(root_fd, root) || !path_of(fd, path)) {
        return fd;
    }
    const size_t size = strlen(root);
    if (strncmp(path, root, size) == 0 && (path[size] == '/' || path[size] == '\0')) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

/* Open for looking only; links must stay beneath. */
static int open_path(int root_fd, const char *relative)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const int fd = (int)syscall(SYS_openat2, root_fd, relative, &how, sizeof how);

    return fd < 0 && errno == ENOSYS ? open_and_look(root_fd, relative) : fd;
}

int roots_find(const struct roots *r, enum root_kind kind, const char *name, char path[ROOT_PATH],
               struct stat *st, struct err *err)
{
    const size_t size = strcspn(name, ":");

    for (int i = 0; i < r->count && name[size] == ':'; i++) {
        const struct root *root = &r->at[i];
        if (root->kind != kind || strlen(root->name) != size ||
            strncmp(root->name, name, size) != 0) {
            continue;
        }
        const char *relative = name + size + 1;
        const int fd = open_path(root->fd, *relative == '\0' ? "." : relative);
        const bool found = fd >= 0 && fstat(fd, st) == 0 && path_of(fd, path);
        if (fd >= 0) {
            (void)close(fd);
        }
        return found ? 0
                     : FAIL(err, ERR_NOT_FOUND, "there is no \"%.200s\" in the root \"%s\"",
                            relative, root->name);
    }
    return FAIL(err, ERR_NOT_FOUND,
                "\"%.200s\" does not begin with the name of a %s root and \":\"", name,
                kind == ROOT_MODELS ? "model" : "data");
}

static bool has_file(int dir_fd, const char *name)
{
    struct stat st;

    return fstatat(dir_fd, name, &st, 0) == 0 && S_ISREG(st.st_mode);
}

int model_describe(int dir_fd, json_t *out, struct err *err)
{
    struct safetensors_folder *weights = NULL;
    struct err none = {0};
    json_t *config = NULL;
    int64_t parameters = 0;
    uint64_t bytes = 0;

    /* what can't be told of a folder is left open: the list shows the others all the same */
    (void)json_parse_beneath(&config, dir_fd, "config.json", CONFIG_MAX, &none);
    const char *family = json_string_value(json_object_get(config, "model_type"));
    const bool is_adapter = has_file(dir_fd, "adapter_config.json");
    const bool has_weights = safetensors_folder_open_fd(&weights, dir_fd, "model", &none) == 0;
    for (int64_t i = 0; has_weights && i < safetensors_folder_count(weights); i++) {
        parameters += st_count(safetensors_folder_at(weights, i));
        bytes += safetensors_folder_at(weights, i)->bytes;
    }
    int rc = json_object_set_new(out, "family", family == NULL ? json_null() : json_string(family));
    rc |= json_object_set_new(out, "parameters",
                              has_weights ? json_integer(parameters) : json_null());
    rc |= json_object_set_new(out, "bytes",
                              has_weights ? json_integer((json_int_t)bytes) : json_null());
    rc |= json_object_set_new(out, "adapter", json_boolean(is_adapter));
    safetensors_folder_close(weights);
    json_decref(config);
    return rc == 0 ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a model");
}

/* A walk through a root. */
struct walk {
    const struct root *root;
    json_t *out;
    int entries;
    char relative[ROOT_PATH];
};

static int add_model(struct walk *w, int fd, const struct stat *st, struct err *err)
{
    json_t *o =
        json_pack("{s:o, s:s, s:I, s:s}", "id", json_sprintf("%s:%s", w->root->name, w->relative),
                  "object", "model", "created", (json_int_t)st->st_mtime, "owned_by", "machine");

    if (o == NULL || json_array_append_new(w->out, o) != 0) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the list");
    }
    return model_describe(fd, o, err);
}

static int add_file(struct walk *w, const struct stat *st, struct err *err)
{
    json_t *o = json_pack(
        "{s:o, s:s, s:I, s:I}", "id", json_sprintf("%s:%s", w->root->name, w->relative), "object",
        "data", "bytes", (json_int_t)st->st_size, "modified_at", (json_int_t)st->st_mtime);

    return o != NULL && json_array_append_new(w->out, o) == 0
               ? 0
               : FAIL(err, ERR_NO_MEMORY, "no memory for the list");
}

static int look_into(struct walk *w, int dir_fd, int depth, struct err *err);

/* One name of a folder. Names that are not UTF-8 or hidden are passed over, so are links. */
static int look_at(struct walk *w, int dir_fd, const char *name, int depth, struct err *err)
{
    const size_t length = strlen(w->relative);
    struct stat st;
    int rc = 0;

    if (name[0] == '.' || !text_is_plain(name) || length + strlen(name) + 2 > sizeof w->relative ||
        fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    (void)snprintf(w->relative + length, sizeof w->relative - length, "%s%s", length > 0 ? "/" : "",
                   name);
    if (S_ISREG(st.st_mode) && w->root->kind == ROOT_DATA) {
        rc = add_file(w, &st, err);
    } else if (S_ISDIR(st.st_mode) && depth < ROOT_DEPTH) {
        const int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        rc = fd < 0 ? 0 : look_into(w, fd, depth + 1, err);
    }
    w->relative[length] = '\0';
    return rc;
}

/* Takes dir_fd over. */
static int look_into(struct walk *w, int dir_fd, int depth, struct err *err)
{
    struct stat st;
    int rc = 0;

    if (w->root->kind == ROOT_MODELS && fstat(dir_fd, &st) == 0 &&
        (has_file(dir_fd, "config.json") || has_file(dir_fd, "adapter_config.json"))) {
        rc = add_model(w, dir_fd, &st, err);
        (void)close(dir_fd);
        return rc; /* a model is not looked into */
    }
    DIR *dir = fdopendir(dir_fd);
    if (dir == NULL) {
        (void)close(dir_fd);
        return 0;
    }
    for (const struct dirent *e = readdir(dir); e != NULL && rc == 0; e = readdir(dir)) {
        if (++w->entries > ROOT_ENTRIES) {
            break;
        }
        rc = look_at(w, dir_fd, e->d_name, depth, err);
    }
    closedir(dir);
    return rc;
}

int roots_list(const struct roots *r, enum root_kind kind, json_t **out, struct err *err)
{
    int rc = 0;

    *out = json_array();
    if (*out == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the list");
    }
    for (int i = 0; i < r->count && rc == 0; i++) {
        struct walk w = {.root = &r->at[i], .out = *out};
        const int fd = openat(r->at[i].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (r->at[i].kind == kind && fd >= 0) {
            rc = look_into(&w, fd, 0, err);
        } else if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (rc != 0) {
        json_decref(*out);
        *out = NULL;
    }
    return rc;
}
