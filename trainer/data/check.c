/* check.c - examples are read to the end, texts are counted in lines and tokens. */
#include "trainer/data/check.h"

#include <string.h>
#include <strings.h>

#include "trainer/data/recipe.h"
#include "trainer/tokenizer/text_file.h"

enum { TABLE_HEAD = 1000 };

/* All examples; their lessons, where there are to be some. */
static int read_examples(struct example_reader *r, struct lessons *lessons, struct err *err)
{
    const struct example *e = NULL;

    TRY(example_reader_next(r, &e, err));
    while (e != NULL) {
        if (lessons != NULL && e->kind != EXAMPLE_PREFERENCE) {
            struct lesson lesson;
            bool used = false;
            TRY(recipe_take(lessons, r, e, &lesson, &used, err));
        }
        TRY(example_reader_next(r, &e, err));
    }
    return 0;
}

static int check_examples(struct report **report, const struct example_options *o,
                          const struct lesson_options *tokens, struct err *err)
{
    struct example_reader *r = NULL;
    struct lessons *lessons = NULL;

    int rc = tokens != NULL ? lessons_open(&lessons, tokens, err) : 0;
    if (rc == 0) {
        rc = example_reader_open(&r, o, err);
    }
    if (rc == 0) {
        rc = read_examples(r, lessons, err);
        *report = example_reader_take_report(r);
    }
    example_reader_close(r);
    lessons_close(lessons);
    return rc;
}

/* Whether a text begins with names of columns, apart by commas, semicolons or tabs: two that examples have, at least. */
static bool is_table(const char *s, size_t n)
{
    static const char *const names[] = {"text",          "instruction", "input",    "output",
                                        "prompt",        "completion",  "response", "question",
                                        "answer",        "messages",    "chosen",   "rejected",
                                        "conversations", "label",       "id"};
    const size_t end = n < TABLE_HEAD ? n : TABLE_HEAD;
    int known = 0;

    for (size_t at = 0; at < end && s[at] != '\n';) {
        size_t cell = at;
        while (cell < end && s[cell] != '\0' && strchr(",;\t\r\n", s[cell]) == NULL) {
            cell++;
        }
        const bool quoted = cell - at > 2 && s[at] == '"' && s[cell - 1] == '"';
        const char *word = s + at + (quoted ? 1 : 0);
        const size_t length = cell - at - (quoted ? 2 : 0);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            known += strlen(names[i]) == length && strncasecmp(word, names[i], length) == 0 ? 1 : 0;
        }
        at = cell < end && s[cell] != '\n' ? cell + 1 : cell == at ? end : cell;
    }
    return known >= 2;
}

/* Line ends of a text, over the borders of its blocks. */
struct line_ends {
    int64_t lines;
    bool after_return, after_newline; /* what the text so far ends with */
};

static void count_lines(struct report *report, struct line_ends *ends, const char *s, size_t n)
{
    const char *const start = s, *const stop = s + n;

    for (const char *at; (at = memchr(s, '\n', (size_t)(stop - s))) != NULL; s = at + 1) {
        ends->lines++;
        if (at > start ? at[-1] == '\r' : ends->after_return) {
            (void)report_add(report, REASON_crlf, ends->lines, NULL);
        }
    }
    if (n > 0) {
        ends->after_return = stop[-1] == '\r';
        ends->after_newline = stop[-1] == '\n';
    }
}

/* A text in pieces: lines are counted, and tokens where there is an encoder. */
static int read_pieces(struct report *report, struct text_file *f, struct encoder *e,
                       struct err *err)
{
    struct line_ends ends = {.after_newline = true};
    struct token_list ids = {0};
    int64_t tokens = 0;
    size_t counted = 0; /* bytes of f->text whose lines are counted */
    int rc = 0;

    while (rc == 0 && !f->last) {
        size_t used = 0;
        rc = text_file_more(f, err);
        if (rc != 0) {
            break;
        }
        if (f->first && counted == 0 && is_table(f->text, f->n)) {
            (void)report_add(report, REASON_table, 1, NULL);
        }
        count_lines(report, &ends, f->text + counted, f->n - counted);
        used = f->n;
        ids.count = 0;
        rc = e != NULL ? encoder_encode_part(e, &ids, f->text, f->n, f->first, f->last, &used, err)
                       : 0;
        tokens += (int64_t)ids.count;
        counted = f->n - used;
        text_file_use(f, used);
    }
    token_list_free(&ids);
    report_lines(report, ends.lines + (ends.after_newline ? 0 : 1));
    if (rc == 0 && e != NULL) {
        report_tokens(report, tokens, tokens);
    }
    return rc;
}

static int read_text(struct report *report, const struct example_options *o,
                     const struct lesson_options *tokens, struct err *err)
{
    struct text_file f;
    struct encoder *e = NULL;

    TRY(text_file_open(&f, o->path, o->name, o->blame, err));
    int rc = tokens != NULL ? encoder_open(&e, tokens->tokenizer, err) : 0;
    if (rc == 0) {
        rc = read_pieces(report, &f, e, err);
    }
    encoder_close(e);
    text_file_close(&f);
    return rc;
}

int data_check(struct report **report, const struct example_options *o,
               const struct lesson_options *tokens, struct err *err)
{
    struct sniffed what;

    *report = NULL;
    TRY(data_sniff(&what, o->path, o->name, o->blame, err));
    if (what.format != FORMAT_TEXT) {
        return check_examples(report, o, tokens, err);
    }
    TRY(report_new(report, o->policy, err));
    report_file(*report, format_name(what.format), packing_name(what.packing));
    report_kind(*report, example_kind_name(EXAMPLE_TEXT), NULL);
    TRY(read_text(*report, o, tokens, err));
    report_use(*report);
    return report_verdict(*report, o->name != NULL ? o->name : o->path, o->blame, err);
}
