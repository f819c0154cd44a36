/* routes_preview.c - POST /v1/preview: the first examples of a request, made by hone-train preview. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/references.h"
#include "server/route.h"
#include "server/text.h"
#include "server/tool.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"

enum { EXAMPLES_MOST = 20, EXAMPLES_PRESET = 3, PREVIEW_PATH = SETTING_TEXT + 64 };

/* The body is a request with one field more. */
static int take_count(json_t *body, int64_t *n, struct err *err)
{
    const struct fields f = {body, "", ERR_BAD_REQUEST};

    *n = EXAMPLES_PRESET;
    TRY(fields_integer(&f, "n", FIELD_OPTIONAL, 1, EXAMPLES_MOST, n, err));
    (void)json_object_del(body, "n");
    return 0;
}

static const char *path_of(const json_t *references, const char *field)
{
    return json_string_value(json_object_get(json_object_get(references, field), "path"));
}

static json_t *order(const struct request *rq, const json_t *request, const json_t *references)
{
    char cache[PREVIEW_PATH];

    (void)snprintf(cache, sizeof cache, "%s/cache", rq->app->settings->data);
    return json_pack("{s:O, s:{s:s*, s:s*, s:s*, s:s*, s:s}}", "request", request, "paths", "model",
                     path_of(references, "model"), "tokenizer", path_of(references, "tokenizer"),
                     "adapter", path_of(references, "adapter"), "training",
                     path_of(references, "training_file"), "cache", cache);
}

/* What the trainer found wrong is the answer's error. */
static int pass_error(const json_t *answer, struct err *err)
{
    const json_t *error = json_object_get(answer, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *param = json_string_value(json_object_get(error, "param"));

    if (error == NULL) {
        return 0;
    }
    const enum err_code as = code != NULL ? err_from_word(code) : ERR_INTERNAL;
    err_set(err, as, "%s", message != NULL ? message : "the trainer could not say why");
    if (param != NULL) {
        err_about(err, param);
    }
    return (int)as;
}

static int run(const struct request *rq, json_t **out, const json_t *order, int64_t n,
               struct err *err)
{
    char path[PREVIEW_PATH], count[32], word[16];
    const char *arguments[] = {"preview", "--n", count, path, NULL};
    struct err ignored;

    random_word(word, 14);
    (void)snprintf(path, sizeof path, "%s/cache/%s.preview", rq->app->settings->data, word);
    (void)snprintf(count, sizeof count, "%lld", (long long)n);
    int rc = json_write_file(path, order, err);
    if (rc == 0) {
        rc = tool_run(out, rq->app->tools, arguments, err);
    }
    (void)io_remove_tree(path, &ignored);
    return rc != 0 ? rc : pass_error(*out, err);
}

int handle_preview(const struct request *rq, struct reply *rp, struct err *err)
{
    struct spec *spec = calloc(1, sizeof *spec);
    json_t *references = NULL, *what = NULL;
    int64_t n = 0;

    if (spec == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
    }
    int rc = take_count(rq->body, &n, err);
    rc = rc != 0 ? rc : spec_parse(spec, rq->body, err);
    if (rc == 0) {
        rc = references_find(rq->app, rq->who, spec, &references, err);
        spec_free(spec);
    }
    if (rc == 0) {
        what = order(rq, rq->body, references);
        rc = what != NULL ? run(rq, &rp->body, what, n, err)
                          : FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
    }
    if (rc != 0) {
        json_decref(rp->body);
        rp->body = NULL;
    }
    json_decref(what);
    json_decref(references);
    free(spec);
    return rc;
}
