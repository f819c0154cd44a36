/* check.c - examples are read to the end, texts are counted in lines. */
#include "trainer/data/check.h"

#include <string.h>
#include <strings.h>

#include "trainer/tokenizer/text_file.h"

enum { TABLE_HEAD = 1000 };

static int check_examples(struct report **report, const struct example_options *o, struct err *err)
{
    struct example_reader *r = NULL;
    const struct example *e = NULL;

    TRY(example_reader_open(&r, o, err));
    int rc = example_reader_next(r, &e, err);
    while (rc == 0 && e != NULL) {
        rc = example_reader_next(r, &e, err);
    }
    *report = example_reader_take_report(r);
    example_reader_close(r);
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

static int read_text(struct report *report, const struct example_options *o, struct err *err)
{
    struct text_file f;
    struct line_ends ends = {.after_newline = true};

    TRY(text_file_open(&f, o->path, o->name, o->blame, err));
    int rc = 0;
    while (rc == 0 && !f.last) {
        rc = text_file_more(&f, err);
        if (rc == 0) {
            if (f.first && is_table(f.text, f.n)) {
                (void)report_add(report, REASON_table, 1, NULL);
            }
            count_lines(report, &ends, f.text, f.n);
            text_file_use(&f, f.n);
        }
    }
    text_file_close(&f);
    report_lines(report, ends.lines + (ends.after_newline ? 0 : 1));
    return rc;
}

int data_check(struct report **report, const struct example_options *o, struct err *err)
{
    struct sniffed what;

    *report = NULL;
    TRY(data_sniff(&what, o->path, o->name, o->blame, err));
    if (what.format != FORMAT_TEXT) {
        return check_examples(report, o, err);
    }
    TRY(report_new(report, o->policy, err));
    report_file(*report, format_name(what.format), packing_name(what.packing));
    report_kind(*report, example_kind_name(EXAMPLE_TEXT), NULL);
    TRY(read_text(*report, o, err));
    report_use(*report);
    return report_verdict(*report, o->name != NULL ? o->name : o->path, o->blame, err);
}
