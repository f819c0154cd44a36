/* preview.c - the first examples of a request as the trainer will see them. */
#include "trainer/preview.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/data/recipe.h"
#include "trainer/plan.h"
#include "trainer/tokenizer/text_file.h"

/* A preview while it is made. */
struct preview {
    struct spec spec;
    const char *model, *folder, *training, *cache; /* borrowed; folder: of the tokenizer */
    struct tokenizer *tokenizer;                   /* owned */
    struct chat_template *templated;               /* owned; NULL: no chats */
    struct recipe recipe;
    struct data_source source;
    struct holding holding;
    json_t *examples;   /* owned */
    json_t *report;     /* owned; NULL for a text */
    struct err problem; /* why the file can't be used, where examples can be shown all the same */
};

static const char *path_or(const json_t *paths, const char *name, const char *otherwise)
{
    const char *path = json_string_value(json_object_get(paths, name));

    return path != NULL && path[0] != '\0' ? path : otherwise;
}

static int open_request(struct preview *p, const json_t *paths, struct err *err)
{
    const struct spec *s = &p->spec;
    const char *tokenizer = path_or(paths, "tokenizer", s->tokenizer);
    struct run_sizes sizes;
    struct arch a;

    if (s->tokenizer_vocab_size != 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "tokenizer_vocab_size",
                          "there is no preview with a tokenizer that is still to be learned");
    }
    p->model = s->config == NULL ? path_or(paths, "model", s->model) : NULL;
    p->folder = tokenizer[0] != '\0' ? tokenizer : p->model;
    p->training = path_or(paths, "training", s->training_file);
    p->cache = path_or(paths, "cache", NULL);
    if (p->folder == NULL) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "tokenizer", "tokenizer is missing");
    }
    const struct plan_folders folders = {.model = p->model,
                                         .tokenizer = tokenizer[0] != '\0' ? tokenizer : NULL,
                                         .adapter = path_or(paths, "adapter", NULL)};
    TRY(plan_request_arch(&a, s, &folders, err));
    TRY(run_sizes_make(&sizes, &a, s, err));
    TRY(tokenizer_open(&p->tokenizer, p->folder, err));
    p->recipe = recipe_make(s, sizes.sequence, p->tokenizer, p->folder);
    p->source = (struct data_source){.path = p->training,
                                     .name = s->training_file,
                                     .cache_dir = p->cache,
                                     .blame = ERR_BAD_TRAINING_FILE};
    TRY(recipe_look(&p->holding, &p->source, p->recipe.policy, err));
    TRY(recipe_check(&p->holding, p->recipe.method, s->training_file, err));
    if (p->holding.kind == EXAMPLE_CHAT) {
        TRY(chat_template_open(&p->templated, p->folder, p->recipe.given, p->tokenizer, err));
    }
    return 0;
}

/* Tokens as three lists; a piece of a character is shown with the token that completes it. */
static int show_tokens(const struct preview *p, json_t *to, const struct lesson *l, struct err *err)
{
    json_t *ids = json_array(), *texts = json_array(), *labels = json_array(),
           *special = json_array();
    struct decoder *d = NULL;
    const char *text = NULL;
    size_t bytes = 0;

    int rc = decoder_open(&d, p->tokenizer, false, err);
    for (int64_t i = 0; rc == 0 && i < l->count && i < PREVIEW_TOKENS; i++) {
        const bool target = i > 0 && l->trained[i];
        rc = decoder_put(d, l->ids[i], &text, &bytes, err);
        (void)json_array_append_new(ids, json_integer((json_int_t)l->ids[i]));
        (void)json_array_append_new(texts,
                                    rc == 0 ? json_stringn_nocheck(text, bytes) : json_null());
        (void)json_array_append_new(
            labels, json_integer(target ? (json_int_t)l->ids[i] : (json_int_t)-100));
        (void)json_array_append_new(special,
                                    json_boolean(tokenizer_is_special(p->tokenizer, l->ids[i])));
    }
    decoder_close(d);
    (void)json_object_set_new(to, "ids", ids);
    (void)json_object_set_new(to, "texts", texts);
    (void)json_object_set_new(to, "labels", labels);
    (void)json_object_set_new(to, "special", special);
    return rc;
}

static int show_lesson(struct preview *p, int64_t line, const struct lesson *l, const char *reason,
                       bool skipped, struct err *err)
{
    json_t *one = json_pack("{s:I, s:I, s:I, s:I, s:b, s:b, s:s*}", "line", (json_int_t)line,
                            "tokens", (json_int_t)l->whole, "kept", (json_int_t)l->count, "trained",
                            (json_int_t)l->targets, "cut", (int)(l->whole > l->count), "skipped",
                            (int)skipped, "reason", reason);

    if (json_array_append_new(p->examples, one) != 0) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
    }
    return show_tokens(p, one, l, err);
}

static int show_example(struct preview *p, struct lessons *lessons, struct report *report,
                        const struct example *e, struct err *err)
{
    struct lesson l;
    struct err why = {0};
    enum reason reason = REASON_COUNT;

    const int rc = lessons_make(lessons, e, &l, &why);
    if (rc == ERR_BAD_REQUEST || rc == ERR_BAD_FILE) {
        (void)report_add(report, REASON_not_rendered, e->line, NULL);
        report_take_back(report);
        (void)json_array_append_new(p->examples,
                                    json_pack("{s:I, s:b, s:s, s:s, s:[], s:[], s:[], s:[]}",
                                              "line", (json_int_t)e->line, "skipped", 1, "reason",
                                              reason_name(REASON_not_rendered), "error", why.text,
                                              "ids", "texts", "labels", "special"));
        return 0;
    }
    if (rc != 0) {
        *err = why;
        return rc;
    }
    const bool wanted = recipe_wants(report, e->line, &l, &reason);
    if (wanted) {
        report_tokens(report, l.count, l.targets);
    } else {
        report_take_back(report);
    }
    return show_lesson(p, e->line, &l, reason != REASON_COUNT ? reason_name(reason) : NULL, !wanted,
                       err);
}

static int show_all(struct preview *p, struct lessons *lessons, struct example_reader *r, int64_t n,
                    struct err *err)
{
    struct report *report = example_reader_report(r);
    const struct example *e = NULL;
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < n && !report_refused(report); i++) {
        rc = example_reader_next(r, &e, err);
        if (rc != 0 || e == NULL) {
            break;
        }
        rc = show_example(p, lessons, report, e, err);
    }
    p->report = report_json(report);
    if (rc != 0 && json_array_size(p->examples) > 0) {
        p->problem = *err;
        return 0;
    }
    return rc;
}

static int show_examples(struct preview *p, int64_t n, struct err *err)
{
    const struct lesson_options o = {.tokenizer = p->tokenizer,
                                     .templated = p->templated,
                                     .longest = p->recipe.S + 1,
                                     .all_trained = p->recipe.all_trained};
    const struct example_options from = {.path = p->training,
                                         .name = p->spec.training_file,
                                         .blame = ERR_BAD_TRAINING_FILE,
                                         .policy = p->recipe.policy};
    struct lessons *lessons = NULL;
    struct example_reader *r = NULL;

    TRY(lessons_open(&lessons, &o, err));
    int rc = example_reader_open(&r, &from, err);
    if (rc == 0) {
        rc = show_all(p, lessons, r, n, err);
    }
    example_reader_close(r);
    lessons_close(lessons);
    return rc;
}

/* The first tokens of a text, n samples of them at most. */
static int encode_head(const struct preview *p, struct token_list *ids, int64_t n, struct err *err)
{
    const size_t enough = (size_t)(n * p->recipe.S + 1);
    struct encoder *e = NULL;
    struct text_file f;

    TRY(text_file_open(&f, p->training, p->spec.training_file, ERR_BAD_TRAINING_FILE, err));
    int rc = encoder_open(&e, p->tokenizer, err);
    while (rc == 0 && !f.last && ids->count < enough) {
        size_t used = 0;
        rc = text_file_more(&f, err);
        if (rc == 0) {
            rc = encoder_encode_part(e, ids, f.text, f.n, f.first, f.last, &used, err);
            text_file_use(&f, used);
        }
    }
    if (rc == 0 && f.last && ids->count < enough && tokenizer_eos(p->tokenizer) >= 0) {
        rc = token_list_put(ids, tokenizer_eos(p->tokenizer), err);
    }
    encoder_close(e);
    text_file_close(&f);
    return rc;
}

static int show_text(struct preview *p, int64_t n, struct err *err)
{
    struct token_list ids = {0};
    const int64_t S = p->recipe.S;
    bool *trained = malloc((size_t)S + 1);

    int rc = trained != NULL ? encode_head(p, &ids, n, err)
                             : FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
    for (int64_t at = 0; rc == 0 && at + 1 < (int64_t)ids.count && at < n * S; at += S) {
        const int64_t left = (int64_t)ids.count - at, count = left < S + 1 ? left : S + 1;
        memset(trained, 1, (size_t)S + 1);
        const struct lesson l = {.ids = ids.ids + at,
                                 .trained = trained,
                                 .count = count,
                                 .whole = count,
                                 .targets = count - 1};
        rc = show_lesson(p, 0, &l, NULL, false, err);
    }
    free(trained);
    token_list_free(&ids);
    return rc;
}

/* What an earlier job with the same recipe has found in the whole file; null when there was none. */
static json_t *totals(const struct preview *p)
{
    struct token_file *f = NULL;
    struct err none = {0};
    size_t bytes = 0;

    if (p->cache == NULL ||
        recipe_find(&f, &p->source, &p->recipe, &p->holding, p->templated, &none) != 0) {
        return json_null();
    }
    const char *text = token_file_report(f, &bytes);
    json_t *report = bytes > 0 ? json_loadb(text, bytes, 0, NULL) : json_null();
    json_t *out =
        json_pack("{s:I, s:I, s:I, s:o?}", "documents", (json_int_t)token_file_documents(f),
                  "tokens", (json_int_t)token_file_count(f), "trained_tokens",
                  (json_int_t)token_file_targets(f), "report", report);
    token_file_close(f);
    return out;
}

static int show(json_t **out, struct preview *p, int64_t n, struct err *err)
{
    const bool learns_all = p->holding.kind == EXAMPLE_TEXT;

    TRY(p->holding.format == FORMAT_TEXT ? show_text(p, n, err) : show_examples(p, n, err));
    *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:I, s:O, s:O?, s:o, s:s?}", "object", "preview", "format",
        format_name(p->holding.format), "kind", example_kind_name(p->holding.kind), "method",
        learns_all ? "pretrain" : "sft", "chat_template",
        p->templated != NULL ? chat_template_source(p->templated) : NULL, "sequence_length",
        (json_int_t)p->recipe.S, "examples", p->examples, "report", p->report, "totals", totals(p),
        "problem", p->problem.code != ERR_NONE ? p->problem.text : NULL);
    return *out != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
}

int preview_make(json_t **out, const json_t *file, int64_t n, struct err *err)
{
    const json_t *request = json_object_get(file, "request");
    struct preview *p = calloc(1, sizeof *p);

    *out = NULL;
    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a preview");
    }
    int rc = spec_parse(&p->spec, request != NULL ? request : file, err);
    if (rc == 0) {
        p->examples = json_array();
        rc = open_request(p, json_object_get(file, "paths"), err);
        if (rc == 0) {
            rc = show(out, p, n < PREVIEW_MOST ? n : PREVIEW_MOST, err);
        }
        json_decref(p->examples);
        json_decref(p->report);
        chat_template_close(p->templated);
        tokenizer_close(p->tokenizer);
        spec_free(&p->spec);
    }
    free(p);
    return rc;
}
