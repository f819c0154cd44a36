/* config.c - which server, and the token for it: HONE_URL, HONE_TOKEN, or what `hone login` saved. */
#include "server/cli/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/cli/assign.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum { FILE_MOST = 64 * 1024 }; /* bytes of a settings file */

int config_set_url(struct config *c, const char *url, struct err *err)
{
    const char *const slashes = strstr(url, "://");
    const char *const scheme = slashes == NULL ? "http://" : "";
    const char *const host = slashes == NULL ? url : slashes + 3;

    if (slashes != NULL && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return FAIL(err, ERR_BAD_REQUEST,
                    "%s is no address of a server: it must begin with http:// or "
                    "https://",
                    url);
    }
    for (const char *p = host; *p != '\0'; p++) {
        if (strchr("@?#\\\"<>", *p) != NULL || (unsigned char)*p <= 0x20 || *p == 0x7F) {
            return FAIL(err, ERR_BAD_REQUEST,
                        "%s is no address of a server: it must look like "
                        "http://HOST:PORT",
                        url);
        }
    }
    if (host[0] == '\0' || host[0] == '/' || host[0] == ':') {
        return FAIL(err, ERR_BAD_REQUEST, "the address '%s' names no host", url);
    }
    const int length = snprintf(c->url, sizeof c->url, "%s%s", scheme, url);
    if (length < 0 || (size_t)length >= sizeof c->url) {
        return FAIL(err, ERR_BAD_REQUEST, "the address is longer than %zu characters",
                    sizeof c->url - 1);
    }
    for (size_t n = strlen(c->url); n > 0 && c->url[n - 1] == '/'; n--) {
        c->url[n - 1] = '\0';
    }
    return 0;
}

int config_set_token(struct config *c, const char *token, struct err *err)
{
    while (isspace((unsigned char)*token)) {
        token++;
    }
    size_t length = strlen(token);
    while (length > 0 && isspace((unsigned char)token[length - 1])) {
        length--;
    }
    if (length == 0) {
        return FAIL(err, ERR_BAD_REQUEST, "the token is empty");
    }
    for (size_t i = 0; i < length; i++) {
        if (!isgraph((unsigned char)token[i])) {
            return FAIL(err, ERR_BAD_REQUEST,
                        "the token has a space or a character that no token has");
        }
    }
    if (length >= sizeof c->token) {
        return FAIL(err, ERR_BAD_REQUEST, "the token is longer than %zu characters",
                    sizeof c->token - 1);
    }
    memcpy(c->token, token, length);
    c->token[length] = '\0';
    return 0;
}

static int file_name(char path[IO_PATH_MAX], struct err *err)
{
    const char *const whole = getenv("HONE_CONFIG");
    const char *const base = getenv("XDG_CONFIG_HOME");
    const char *const home = getenv("HOME");
    int length = 0;

    if (whole != NULL && *whole != '\0') {
        length = snprintf(path, IO_PATH_MAX, "%s", whole);
    } else if (base != NULL && *base == '/') {
        length = snprintf(path, IO_PATH_MAX, "%s/hone/config.json", base);
    } else if (home != NULL && *home != '\0') {
        length = snprintf(path, IO_PATH_MAX, "%s/.config/hone/config.json", home);
    } else {
        return FAIL(err, ERR_IO, "there is no home folder: set HOME or HONE_CONFIG");
    }
    if (length < 0 || length >= IO_PATH_MAX) {
        return FAIL(err, ERR_IO, "the path of the settings file is too long");
    }
    return 0;
}

static int load_file(struct config *out, const char *path, struct err *err)
{
    json_t *saved = NULL;
    struct stat st;
    const int rc = json_parse_file(&saved, path, FILE_MOST, err);

    if (rc == ERR_NOT_FOUND) {
        return 0;
    }
    const char *const url = json_string_value(json_object_get(saved, "url"));
    const char *const token = json_string_value(json_object_get(saved, "token"));
    if (rc == ERR_BAD_FILE ||
        (rc == 0 && (url == NULL || config_set_url(out, url, err) != 0 ||
                     (token != NULL && config_set_token(out, token, err) != 0)))) {
        json_decref(saved);
        return FAIL(err, ERR_BAD_FILE, "%s is damaged; `hone login` writes it anew", path);
    }
    json_decref(saved);
    if (rc == 0 && stat(path, &st) == 0 && (st.st_mode & 077) != 0) {
        (void)fprintf(stderr, "hone: others can read %s; run chmod 600 on it\n", path);
    }
    return rc;
}

int config_load(struct config *out, struct err *err)
{
    const char *const url = getenv("HONE_URL");
    const char *const token = getenv("HONE_TOKEN");
    char path[IO_PATH_MAX];

    *out = (struct config){.url = CONFIG_DEFAULT_URL};
    if (file_name(path, err) == 0) {
        TRY(load_file(out, path, err));
    }
    if (url != NULL && *url != '\0') {
        struct config other = {0};

        TRY(config_set_url(&other, url, err));
        if (strcmp(other.url, out->url) != 0) {
            *out = other;
        }
    }
    if (token != NULL && *token != '\0') {
        TRY(config_set_token(out, token, err));
    }
    return 0;
}

/* Make the folders above `path`, each readable by its owner alone. */
static int make_parents(const char *path, struct err *err)
{
    char folder[IO_PATH_MAX];

    (void)snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        TRY(io_make_dir(folder, err));
        *slash = '/';
    }
    return 0;
}

int config_save(const struct config *c, char path[IO_PATH_MAX], struct err *err)
{
    json_t *const object = json_pack("{s:s, s:s}", "url", c->url, "token", c->token);
    char *const text = object != NULL ? assign_dump(object) : NULL;
    int rc = 0;

    json_decref(object);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    rc = file_name(path, err);
    rc = rc != 0 ? rc : make_parents(path, err);
    rc = rc != 0 ? rc : io_write_file(path, text, strlen(text), err);
    free(text);
    return rc;
}

int config_write_secret(const char *path, const char *secret, struct err *err)
{
    char line[512];
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return errno == EEXIST
                   ? FAIL(err, ERR_BAD_STATE, "%s exists already; name another file", path)
                   : FAIL(err, ERR_IO, "%s can't be written: %s", path, strerror(errno));
    }
    const int length = snprintf(line, sizeof line, "%s\n", secret);
    const int rc = io_write_all(fd, line, (size_t)length, path, err);
    if (close(fd) != 0 && rc == 0) {
        return FAIL(err, ERR_IO, "%s can't be written: %s", path, strerror(errno));
    }
    return rc;
}
