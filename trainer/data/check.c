/* check.c - examples are read to the end, texts are counted in lines. */
#include "trainer/data/check.h"

#include <string.h>

#include "trainer/tokenizer/text_file.h"

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

/* Line ends of a text, over the borders of its blocks. */
struct line_ends {
    int64_t lines;
    char last;
};

static void count_lines(struct report *report, struct line_ends *ends, const char *s, size_t n)
{
    const char *const stop = s + n;
    char before = ends->last;

    for (const char *at; (at = memchr(s, '\n', (size_t)(stop - s))) != NULL; s = at + 1) {
        ends->lines++;
        before = at > stop - n ? at[-1] : ends->last;
        if (before == '\r') {
            (void)report_add(report, REASON_crlf, ends->lines, NULL);
        }
    }
    ends->last = n > 0 ? stop[-1] : ends->last;
}

static int read_text(struct report *report, const struct example_options *o, struct err *err)
{
    struct text_file f;
    struct line_ends ends = {0, '\n'};

    TRY(text_file_open(&f, o->path, o->name, o->blame, err));
    int rc = 0;
    while (rc == 0 && !f.last) {
        rc = text_file_more(&f, err);
        if (rc == 0) {
            count_lines(report, &ends, f.text, f.n);
            text_file_use(&f, f.n);
        }
    }
    text_file_close(&f);
    report_lines(report, ends.lines + (ends.last != '\n' ? 1 : 0));
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
