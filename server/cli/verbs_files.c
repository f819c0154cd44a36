/* verbs_files.c - files and models: upload, files, rm, models, data. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/cli/cli.h"
#include "server/cli/progress.h"
#include "server/cli/show.h"
#include "trainer/base/sha256.h"

/* A file on its way to the server. */
struct sending {
    FILE *file;
    struct sha256 hash;
    int64_t bytes; /* -1 when not known */
    int64_t begun_ms;
    bool failed;
    struct progress progress;
    char name[256]; /* safe to print */
};

static size_t read_some(void *self, char *out, size_t room)
{
    struct sending *const s = self;
    const size_t got = fread(out, 1, room, s->file);

    if (got == 0 && ferror(s->file) != 0) {
        s->failed = true;
        return SIZE_MAX;
    }
    sha256_add(&s->hash, out, got);
    return got;
}

static bool show_sent(void *self, int64_t sent)
{
    struct sending *const s = self;
    const double seconds = (double)(progress_now_ms() - s->begun_ms) / 1000.0;
    char right[128], amount[24], rate[24];

    (void)snprintf(right, sizeof right, "%s  %s/s", show_bytes(amount, sent),
                   show_bytes(rate, seconds > 0.1 ? (int64_t)((double)sent / seconds) : 0));
    progress_draw(&s->progress, s->bytes > 0 ? (double)sent / (double)s->bytes : -1.0, s->name,
                  right, false);
    return true;
}

static int open_source(struct sending *s, const char *path, struct err *err)
{
    struct stat st;

    s->bytes = -1;
    if (strcmp(path, "-") == 0) {
        s->file = stdin;
        return 0;
    }
    s->file = fopen(path, "rbe");
    if (s->file == NULL) {
        return errno == ENOENT ? FAIL(err, ERR_NOT_FOUND, "there is no file %s", path)
                               : FAIL(err, ERR_IO, "%s can't be read: %s", path, strerror(errno));
    }
    if (fstat(fileno(s->file), &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)fclose(s->file);
        return FAIL(err, ERR_BAD_REQUEST, "%s is a folder; upload its files one by one", path);
    }
    if (S_ISREG(st.st_mode)) {
        s->bytes = (int64_t)st.st_size;
    }
    return 0;
}

static const char *last_part(const char *path)
{
    const char *const slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Send the opened file; the answer's hash must be that of the bytes that were read. */
static int send_file(struct cli *c, struct sending *s, const char *address, json_t **file,
                     char **text, struct err *err)
{
    const struct http_request request = {.method = "PUT",
                                         .path = address,
                                         .read = read_some,
                                         .bytes = s->bytes,
                                         .tick = show_sent,
                                         .self = s,
                                         .quiet_s = 300};
    struct http_reply reply;
    char hex[SHA256_TEXT];

    sha256_begin(&s->hash);
    s->begun_ms = progress_now_ms();
    s->progress = progress_make(stderr);
    int rc = http_send(c->http, &request, &reply, err);
    progress_clear(&s->progress);
    sha256_end(&s->hash, hex);
    if (s->failed) {
        rc = FAIL(err, ERR_IO, "%s can't be read to its end", s->name);
    }
    *file = rc == 0 && reply.body != NULL ? json_loadb(reply.body, reply.bytes, 0, NULL) : NULL;
    if (rc == 0 && cli_text(*file, "id")[0] == '\0') {
        rc = FAIL(err, ERR_IO, "the server's answer to the upload has no file id");
    }
    if (rc == 0 && cli_text(*file, "sha256")[0] != '\0' &&
        strcmp(cli_text(*file, "sha256"), hex) != 0) {
        rc = FAIL(err, ERR_IO,
                  "the server has other bytes of %s than were sent; delete %s and upload again",
                  s->name, cli_text(*file, "id"));
    }
    if (rc == 0) {
        *text = reply.body;
        reply.body = NULL;
    } else {
        json_decref(*file);
        *file = NULL;
    }
    http_reply_fini(&reply);
    return rc;
}

int cli_upload(struct cli *c, const char *path, const char *name, const char *purpose,
               json_t **file, char **text, struct err *err)
{
    struct sending s = {0};
    char address[2048];

    *file = NULL;
    *text = NULL;
    if (name == NULL && strcmp(path, "-") == 0) {
        return FAIL(err, ERR_BAD_REQUEST, "a file from standard input needs a --name");
    }
    const char *const shown = name != NULL ? name : last_part(path);
    TRY(assign_path(address, sizeof address, err, "/v1/files?filename=%&purpose=%", shown,
                    purpose != NULL ? purpose : "fine-tune"));
    TRY(cli_connect(c, true, err));
    TRY(open_source(&s, path, err));
    (void)show_safe(s.name, sizeof s.name, shown, strlen(shown));
    const int rc = send_file(c, &s, address, file, text, err);
    if (s.file != stdin) {
        (void)fclose(s.file);
    }
    return rc;
}

int verb_upload(struct cli *c, struct err *err)
{
    json_t *file = NULL;
    char *text = NULL, bytes[24];

    TRY(cli_upload(c, c->args.word[0], c->args.value[OPTION_NAME], c->args.value[OPTION_PURPOSE],
                   &file, &text, err));
    if (args_has(&c->args, OPT(JSON))) {
        (void)puts(text);
    } else {
        cli_line("id", cli_text(file, "id"));
        cli_line("name", cli_text(file, "filename"));
        cli_line("size", show_bytes(bytes, cli_integer(file, "bytes")));
        cli_line("sha256", cli_text(file, "sha256"));
    }
    free(text);
    json_decref(file);
    return 0;
}

static void file_row(struct table *t, const json_t *row)
{
    char bytes[24], time[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, show_bytes(bytes, cli_integer(row, "bytes")));
    table_add(t, show_time(time, cli_integer(row, "created_at")));
    table_add(t, cli_text(row, "purpose"));
    table_add(t, cli_text(row, "filename"));
}

int verb_files(struct cli *c, struct err *err)
{
    return cli_list(c, "/v1/files", "ID|>SIZE|CREATED|PURPOSE|NAME", file_row,
                    "no files; `hone upload FILE` sends one", err);
}

int verb_rm(struct cli *c, struct err *err)
{
    char path[512];
    json_t *gone = NULL;

    TRY(assign_path(path, sizeof path, err, "/v1/files/%", c->args.word[0]));
    TRY(cli_call(c, "DELETE", path, NULL, &gone, err));
    if (gone != NULL) {
        printf("deleted ");
        show_print(cli_text(gone, "id"), strlen(cli_text(gone, "id")), false);
        (void)putchar('\n');
    }
    json_decref(gone);
    return 0;
}

static void model_row(struct table *t, const json_t *row)
{
    char bytes[24], count[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, cli_text(row, "family"));
    table_add(t, show_count(count, cli_number(row, "parameters")));
    table_add(t, show_bytes(bytes, cli_integer(row, "bytes")));
    table_add(t, cli_text(row, "owned_by"));
}

int verb_models(struct cli *c, struct err *err)
{
    return cli_list(c, "/v1/models", "ID|FAMILY|>PARAMETERS|>SIZE|OWNER", model_row,
                    "no models: the administrator names folders with honed's setting model_roots",
                    err);
}

static void data_row(struct table *t, const json_t *row)
{
    char bytes[24], time[24];

    table_add(t, cli_text(row, "id"));
    table_add(t, show_bytes(bytes, cli_integer(row, "bytes")));
    table_add(t, show_time(time, cli_integer(row, "modified_at")));
}

int verb_data(struct cli *c, struct err *err)
{
    return cli_list(c, "/v1/data", "ID|>SIZE|MODIFIED", data_row,
                    "no data: the administrator names folders with honed's setting data_roots",
                    err);
}
