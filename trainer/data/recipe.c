/* recipe.c - how a file becomes a token file: by what it holds and what the request says. */
#include "trainer/data/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data/cache.h"

enum { LESSONS_FORMAT = 1 }; /* grows when the same options give other tokens */

static const char *name_of(const struct data_source *s)
{
    return s->name == NULL ? s->path : s->name;
}

static struct example_options reading(const struct data_source *s, const json_t *policy)
{
    return (struct example_options){.path = s->path,
                                    .name = s->name,
                                    .blame = s->blame,
                                    .policy = policy,
                                    .progress = s->progress,
                                    .context = s->context};
}

struct recipe recipe_make(const struct spec *s, int64_t S, const struct tokenizer *tokenizer,
                          const char *folder)
{
    return (struct recipe){.tokenizer = tokenizer,
                           .folder = folder,
                           .given = s->chat_template[0] != '\0' ? s->chat_template : NULL,
                           .method = (enum method_of_training)s->method,
                           .S = S,
                           .all_trained = s->train_on_prompt != 0,
                           .policy = s->on_problem};
}

/* Why a file without a usable example has none: where that is for want of targets, it has an error of its own. */
static int no_example(const struct report *r, int rc, struct err *err)
{
    const int64_t untaught = report_count(r, REASON_nothing_trained) +
                             report_count(r, REASON_all_masked) +
                             report_count(r, REASON_no_assistant);

    if (report_usable(r) == 0 && !report_refused(r) && untaught > 0) {
        char text[sizeof err->text];
        (void)snprintf(text, sizeof text, "%s", err->text);
        return FAIL(err, ERR_NO_TOKENS, "no trainable tokens: %s", text);
    }
    return rc;
}

int recipe_look(struct holding *out, const struct data_source *s, const json_t *policy,
                struct err *err)
{
    const struct example_options o = reading(s, policy);
    struct example_reader *r = NULL;
    const struct example *e = NULL;
    struct sniffed is;

    TRY(data_sniff(&is, s->path, name_of(s), s->blame, err));
    *out = (struct holding){.format = is.format, .kind = EXAMPLE_TEXT};
    if (is.format == FORMAT_TEXT) {
        return 0;
    }
    TRY(example_reader_open(&r, &o, err));
    int rc = example_reader_next(r, &e, err);
    if (rc == 0 && e != NULL) {
        out->kind = e->kind;
    }
    if (rc != 0) {
        rc = no_example(example_reader_report(r), rc, err);
    }
    example_reader_close(r);
    return rc;
}

int recipe_check(const struct holding *h, enum method_of_training method, const char *name,
                 struct err *err)
{
    const char *is = h->format == FORMAT_TEXT  ? "a plain text"
                     : h->kind == EXAMPLE_TEXT ? "texts ({\"text\": ...})"
                     : h->kind == EXAMPLE_CHAT ? "chats"
                                               : "prompts with completions";

    if (h->kind == EXAMPLE_PREFERENCE) {
        return FAIL_PARAM(err, ERR_WRONG_FORMAT, "training_file",
                          "%s holds preferences (chosen and rejected answers), which no method "
                          "trains on yet: wanted are texts, chats, or prompts with completions",
                          name);
    }
    if (method == TRAIN_SFT && h->kind == EXAMPLE_TEXT) {
        return FAIL_PARAM(err, ERR_WRONG_FORMAT, "training_file",
                          "%s holds %s, and method sft wants chats ({\"messages\": [...]}) or "
                          "prompts with completions; method pretrain trains on texts",
                          name, is);
    }
    if (method == TRAIN_PRETRAIN && h->kind != EXAMPLE_TEXT) {
        return FAIL_PARAM(err, ERR_WRONG_FORMAT, "training_file",
                          "%s holds %s, and method pretrain wants a plain text or {\"text\": ...}; "
                          "method sft trains on chats and on prompts with completions",
                          name, is);
    }
    return 0;
}

bool recipe_wants(struct report *report, int64_t line, const struct lesson *l, enum reason *why)
{
    const struct {
        bool is;
        enum reason why;
    } odd[] = {
        {l->spelled > 0, REASON_special_tokens},
        {l->whole > l->count, REASON_too_long},
        {l->targets == 0, REASON_nothing_trained},
    };
    enum reason last = REASON_COUNT;
    bool wanted = true;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0] && wanted; i++) {
        if (odd[i].is) {
            last = odd[i].why;
            wanted = report_add(report, last, line, NULL) == ACTION_ACCEPT;
        }
    }
    if (why != NULL) {
        *why = last;
    }
    return wanted;
}

int recipe_take(struct lessons *l, struct example_reader *reader, const struct example *e,
                struct lesson *out, bool *used, struct err *err)
{
    struct report *report = example_reader_report(reader);
    struct err why = {0};

    const int rc = lessons_make(l, e, out, &why);
    *used = false;
    if (rc == ERR_BAD_REQUEST || rc == ERR_BAD_FILE) {
        (void)report_add(report, REASON_not_rendered, e->line, why.text);
        report_take_back(report);
        return 0;
    }
    if (rc != 0) {
        *err = why;
        return rc;
    }
    *used = recipe_wants(report, e->line, out, NULL);
    if (*used) {
        report_tokens(report, out->count, out->targets);
    } else {
        report_take_back(report);
    }
    return 0;
}

/* Examples on their way into a token file. */
struct work {
    const struct data_source *source;
    const struct recipe *recipe;
    const struct chat_template *templated;
    struct token_writer *out;
    struct lessons *lessons;       /* owned */
    struct example_reader *reader; /* owned */
};

static int write_lesson(struct work *w, const struct example *e, struct err *err)
{
    struct lesson l;
    bool used = false;

    TRY(recipe_take(w->lessons, w->reader, e, &l, &used, err));
    if (!used) {
        return 0;
    }
    for (int64_t i = 0; i < l.count; i++) {
        TRY(token_writer_put(w->out, l.ids[i], l.trained[i], err));
    }
    return token_writer_end(w->out, err);
}

static int write_lessons(struct work *w, struct err *err)
{
    const struct example *e = NULL;

    do {
        const int rc = example_reader_next(w->reader, &e, err);
        if (rc != 0) {
            return no_example(example_reader_report(w->reader), rc, err);
        }
        if (e != NULL) {
            TRY(write_lesson(w, e, err));
        }
    } while (e != NULL);
    return 0;
}

static int open_work(struct work *w, struct err *err)
{
    const struct example_options from = reading(w->source, w->recipe->policy);
    const struct lesson_options o = {.tokenizer = w->recipe->tokenizer,
                                     .templated = w->templated,
                                     .longest = w->recipe->S + 1,
                                     .all_trained = w->recipe->all_trained};

    TRY(lessons_open(&w->lessons, &o, err));
    return example_reader_open(&w->reader, &from, err);
}

static int write_examples(void *context, struct token_writer *out, char **report, struct err *err)
{
    struct work *w = context;

    w->out = out;
    int rc = open_work(w, err);
    if (rc == 0) {
        rc = write_lessons(w, err);
    }
    if (rc == 0) {
        json_t *all = report_json(example_reader_report(w->reader));
        *report = json_dumps(all, JSON_COMPACT);
        json_decref(all);
        rc = *report != NULL ? 0 : FAIL(err, ERR_NO_MEMORY, "no memory for a report");
    }
    example_reader_close(w->reader);
    lessons_close(w->lessons);
    return rc;
}

/* The header of a token file of examples: all that decides about its tokens. */
static int know(struct token_file_header *h, const struct recipe *r, const struct chat_template *t,
                struct err *err)
{
    json_t *options = json_pack("{s:i, s:I, s:b, s:O?, s:s?}", "format", LESSONS_FORMAT, "S",
                                (json_int_t)r->S, "all_trained", (int)r->all_trained, "policy",
                                r->policy, "template", t != NULL ? chat_template_text(t) : NULL);
    char *text = options != NULL ? json_dumps(options, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    json_decref(options);
    if (text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the options of a file");
    }
    *h = (struct token_file_header){.vocab_size = tokenizer_size(r->tokenizer),
                                    .kind = TOKEN_FILE_EXAMPLES};
    (void)snprintf(h->tokenizer_hash, sizeof h->tokenizer_hash, "%s", tokenizer_hash(r->tokenizer));
    sha256_of(text, strlen(text), h->options_hash);
    free(text);
    return 0;
}

int recipe_prepare(struct token_file **out, struct chat_template **t, const struct data_source *s,
                   const struct recipe *r, struct err *err)
{
    struct work w = {.source = s, .recipe = r};
    struct token_file_header known;
    struct holding h;

    *out = NULL;
    *t = NULL;
    TRY(recipe_look(&h, s, r->policy, err));
    TRY(recipe_check(&h, r->method, name_of(s), err));
    if (h.format == FORMAT_TEXT) {
        return data_prepare(out, s, r->tokenizer, err);
    }
    if (h.kind == EXAMPLE_CHAT) {
        TRY(chat_template_open(t, r->folder, r->given, r->tokenizer, err));
    }
    w.templated = *t;
    int rc = know(&known, r, *t, err);
    if (rc == 0) {
        rc = cache_prepare(out, s, &known, write_examples, &w, err);
    }
    if (rc != 0) {
        chat_template_close(*t);
        *t = NULL;
    }
    return rc;
}

int recipe_find(struct token_file **out, const struct data_source *s, const struct recipe *r,
                const struct holding *h, const struct chat_template *t, struct err *err)
{
    struct token_file_header known = {.vocab_size = tokenizer_size(r->tokenizer),
                                      .kind = TOKEN_FILE_TEXT};

    (void)snprintf(known.tokenizer_hash, sizeof known.tokenizer_hash, "%s",
                   tokenizer_hash(r->tokenizer));
    if (h->format != FORMAT_TEXT) {
        TRY(know(&known, r, t, err));
    }
    return cache_find(out, s, &known, err);
}
