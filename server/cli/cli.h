/* cli.h - what the verbs of `hone` share: the command line, the server, printing. */
#ifndef SERVER_CLI_CLI_H
#define SERVER_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/cli/args.h"
#include "server/cli/assign.h"
#include "server/cli/config.h"
#include "server/cli/http.h"
#include "server/cli/table.h"

struct cli {
    struct args args;
    struct config config;
    struct http *http; /* owned; NULL until cli_connect */
    int exit;          /* status of a verb that succeeded in telling that a job did not */
};

/* Every row of verbs.def has its function: return 0 or fail. */
#define VERB(name, function, fewest, most, options, arguments, summary) \
    int verb_##function(struct cli *c, struct err *err);
#include "server/cli/verbs.def"

/* Read settings and make the connection. Errors: as config_load; UNAUTHORIZED when a token is wanted
 * and there is none. */
int cli_connect(struct cli *c, bool needs_token, struct err *err);

/* Call the server. With --json print the answer as it came and set *json to NULL; otherwise *json is a new
 * reference. Connects first. */
int cli_call(struct cli *c, const char *method, const char *path, json_t *body, json_t **json,
             struct err *err);

/* All rows of a list, page by page: `row` is called for each. --limit and --after bound it; with --json one page is
 * printed as it came. `path` may have a query. */
typedef void (*cli_row)(struct table *t, const json_t *row);
int cli_list(struct cli *c, const char *path, const char *columns, cli_row row, const char *nothing,
             struct err *err);

/* The job id that `word` means: itself, or the newest of your own for "latest". */
int cli_job(struct cli *c, const char *word, char id[128], struct err *err);

/* Print "name: value" for a person, the value made safe. */
void cli_line(const char *name, const char *value);

/* Print `text` made safe, without an end of line. */
void cli_print(const char *text);

/* Call the server without the answer being printed; with --json it is. Prints `done` for a person, which may be NULL. */
int cli_do(struct cli *c, const char *method, const char *path, json_t *body, const char *done,
           struct err *err);

/* Fields of an answer; what is missing or of another type is "", 0 or NaN. */
const char *cli_text(const json_t *object, const char *key);
int64_t cli_integer(const json_t *object, const char *key);
double cli_number(const json_t *object, const char *key);

/* Send the file at `path` ("-": standard input) under `name` (NULL: its own) and check the hash that
 * comes back. Shows a bar on a terminal. *file is a new reference, *text the answer as it came (freed by the caller). */
int cli_upload(struct cli *c, const char *path, const char *name, const char *purpose,
               json_t **file, char **text, struct err *err);

/* The request that words, --spec and --upload make together; *request is a new reference. Words with several values go
 * into `grid` (assign_swept), which may be NULL. */
int cli_request(struct cli *c, json_t *grid, json_t **request, struct err *err);

/* POST `body` to `path`, which makes something with an id: a second try after a lost connection finds what the first
 * one made. *made is a new reference, *text the answer as it came (freed by the caller). Connect first. */
int cli_create(struct cli *c, const char *path, json_t *body, json_t **made, char **text,
               struct err *err);

/* The object that the words from number `first` on make, as {field: value}; "null" is null, which stands for the
 * default, and begin_at may be any word for a time (when.h). *changes is a new reference. */
int cli_changes(struct cli *c, int first, json_t **changes, struct err *err);

/* Follow the job to its end. Sets c->exit when it did not succeed. */
int cli_watch(struct cli *c, const char *id, struct err *err);

/* The object {field: {type, description, ...}} of a job's fields, a new reference; NULL when the server's description
 * lacks it. Errors: as http_call. */
int cli_fields(struct cli *c, json_t **properties, struct err *err);

#endif
