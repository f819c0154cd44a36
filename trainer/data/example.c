/* example.c - from records to examples, with a report of all that was met on the way. */
#include "trainer/data/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"
#include "trainer/data/broken.h"
#include "trainer/data/records.h"
#include "trainer/data/seen.h"
#include "trainer/data/shapes.h"
#include "trainer/tokenizer/utf8.h"

enum { LONG_BYTES = 1 << 20, PROGRESS_BYTES = 1 << 22 };

struct example_reader {
    struct example_options o;
    const char *name;
    struct report *report;     /* owned */
    struct records *records;   /* owned */
    struct seen *seen;         /* owned */
    struct record record;      /* that is read               */
    json_t *row;               /* owned; of the last example */
    struct converted last;     /* of the row */
    const struct shape *shape; /* of the first usable example */
    enum example_kind kind;
    uint64_t told; /* bytes, to progress */
    bool done;
};

const char *example_kind_name(enum example_kind k)
{
    static const char *const names[EXAMPLE_KIND_COUNT] = {"text", "chat", "completion",
                                                          "preference"};
    return names[k];
}

static int open_reader(struct example_reader *r, struct err *err)
{
    struct sniffed what;

    TRY(report_new(&r->report, r->o.policy, err));
    r->o.policy = NULL;
    TRY(data_sniff(&what, r->o.path, r->name, r->o.blame, err));
    report_file(r->report, format_name(what.format), packing_name(what.packing));
    if (what.format == FORMAT_TEXT) {
        return FAIL(err, r->o.blame, "%s is a plain text, not a file of examples", r->name);
    }
    return records_open(&r->records, r->o.path, r->name, r->o.blame, what.format, r->report, err);
}

int example_reader_open(struct example_reader **out, const struct example_options *o,
                        struct err *err)
{
    struct example_reader *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read examples");
    }
    *r = (struct example_reader){
        .o = *o, .name = o->name != NULL ? o->name : o->path, .kind = EXAMPLE_KIND_COUNT};
    const int rc = open_reader(r, err);
    if (rc != 0) {
        example_reader_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void example_reader_close(struct example_reader *r)
{
    if (r == NULL) {
        return;
    }
    converted_fini(&r->last);
    json_decref(r->row);
    seen_free(r->seen);
    records_close(r->records);
    report_free(r->report);
    free(r);
}

enum example_kind example_reader_kind(const struct example_reader *r)
{
    return r->kind;
}

struct report *example_reader_report(struct example_reader *r)
{
    return r->report;
}

struct report *example_reader_take_report(struct example_reader *r)
{
    struct report *report = r->report;

    r->report = NULL;
    return report;
}

/* Report something about the record at hand; where it is an element of an array, that one is counted. */
static enum action add_at(struct example_reader *r, enum reason why, int64_t line,
                          const char *where)
{
    char text[200];

    where = where != NULL ? where : "";
    if (r->record.element == 0) {
        return report_add(r->report, why, line, where);
    }
    (void)snprintf(text, sizeof text, "element %lld%s%s", (long long)r->record.element,
                   where[0] != '\0' ? ", " : "", where);
    return report_add(r->report, why, line, text);
}

static enum action add(struct example_reader *r, enum reason why, const char *where)
{
    return add_at(r, why, r->record.line, where);
}

/* Report what is wrong at a byte of the record, as an editor counts: "column 12: why"; bytes that are not UTF-8 as
 * bytes of their line. */
static enum action add_broken(struct example_reader *r, const json_error_t *e)
{
    const struct record *rec = &r->record;
    const struct broken b = broken_find(rec->text, rec->bytes, e);
    int64_t line = rec->line, column = rec->column, byte = rec->byte;
    char where[160];

    for (size_t i = 0; i < b.at && i < rec->bytes; i++) {
        if (rec->text[i] == '\n') {
            line++;
            column = byte = 1;
        } else {
            column += ((unsigned char)rec->text[i] & 0xC0U) != 0x80U ? 1 : 0;
            byte++;
        }
    }
    if (b.reason == REASON_not_utf8) {
        (void)snprintf(where, sizeof where, "byte %lld", (long long)byte);
    } else {
        (void)snprintf(where, sizeof where, "column %lld%s%s", (long long)column,
                       b.why[0] != '\0' ? ": " : "", b.why);
    }
    return add_at(r, b.reason, line, where);
}

/* Parse the record; r->row stays NULL where it is not used. */
static int parse(struct example_reader *r, struct err *err)
{
    const struct record *rec = &r->record;
    json_error_t why;

    if (rec->bytes > LONG_BYTES) {
        if (add(r, REASON_long_example, NULL) != ACTION_ACCEPT) {
            return 0;
        }
        if (!json_has_at_most(rec->text, rec->bytes, JSON_VALUES_MAX)) {
            (void)add(r, REASON_too_many_values, NULL);
            return 0;
        }
    }
    r->row =
        json_parse_in_place(rec->text, rec->bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (r->row != NULL) {
        return 0;
    }
    if (json_error_code(&why) == json_error_out_of_memory) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an example of %zu bytes", rec->bytes);
    }
    if (add_broken(r, &why) == ACTION_ACCEPT) {
        r->row = json_parse_in_place(rec->text, rec->bytes, JSON_DECODE_ANY, &why);
        if (r->row == NULL) { /* more is wrong than keys given twice */
            (void)add_broken(r, &why);
        }
    }
    return 0;
}

/* Whether the kind and the columns are those of the file. */
static bool fits(struct example_reader *r)
{
    const struct converted *v = &r->last;
    char where[80];

    if (r->shape == NULL) {
        r->shape = v->shape;
        r->kind = v->example.kind;
        report_kind(r->report, example_kind_name(r->kind), shape_name(r->shape));
        return true;
    }
    if (v->example.kind != r->kind) {
        (void)snprintf(where, sizeof where, "%s after %s", example_kind_name(v->example.kind),
                       example_kind_name(r->kind));
        (void)add(r, REASON_mixed_kinds, where);
        return false;
    }
    if (v->shape != r->shape) {
        (void)snprintf(where, sizeof where, "%s after %s", shape_name(v->shape),
                       shape_name(r->shape));
        return add(r, REASON_mixed_columns, where) == ACTION_ACCEPT;
    }
    return true;
}

static uint64_t hash_example(const struct example *e)
{
    uint64_t hash = (uint64_t)e->kind;

    switch (e->kind) {
    case EXAMPLE_TEXT: return seen_hash(hash, e->text, e->bytes);
    case EXAMPLE_COMPLETION:
        hash = seen_hash(hash, e->prompt, e->prompt_bytes);
        return seen_hash(hash, e->completion, e->completion_bytes);
    case EXAMPLE_CHAT: return seen_hash_json(seen_hash_json(hash, e->messages), e->tools);
    case EXAMPLE_PREFERENCE:
        hash = seen_hash_json(seen_hash_json(hash, e->messages), e->chosen);
        return seen_hash_json(hash, e->rejected);
    case EXAMPLE_KIND_COUNT: break;
    }
    return hash;
}

static bool has_placeholder(const struct converted *v)
{
    const struct example *e = &v->example;

    return v->turns.placeholder || holds_placeholder(e->text) || holds_placeholder(e->prompt) ||
           holds_placeholder(e->completion);
}

/* What is odd about an example that can be used; false when the policy leaves it out for that. */
static bool notice(struct example_reader *r)
{
    const struct converted *v = &r->last;
    const bool chat = v->example.kind == EXAMPLE_CHAT;
    const struct {
        bool is_so;
        enum reason reason;
    } odd[] = {
        {v->turns.empty > 0, REASON_empty_turns},
        {v->extra, REASON_extra_columns},
        {chat && v->turns.user == 0, REASON_no_user},
        {chat && v->turns.user > 0 && v->turns.assistant_first, REASON_assistant_first},
        {chat && v->turns.repeated, REASON_same_role_twice},
        {has_placeholder(v), REASON_placeholders},
    };
    bool good = true;

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        good = (!odd[i].is_so || add(r, odd[i].reason, NULL) == ACTION_ACCEPT) && good;
    }
    return good;
}

/* Convert the row, and judge it. */
static int judge(struct example_reader *r, bool *use, struct err *err)
{
    struct complaint c;
    bool good = true;

    *use = false;
    if (!shape_convert(&r->last, r->row, r->shape, &c)) {
        if (c.reason == REASON_COUNT) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for an example");
        }
        (void)add(r, c.reason, c.where);
        return 0;
    }
    r->last.example.line = r->record.line;
    const enum reason lesson = shape_lesson(&r->last);
    if (lesson != REASON_COUNT) {
        (void)add(r, lesson, NULL);
        return 0;
    }
    if (!fits(r)) {
        return 0;
    }
    good = notice(r);
    if (good && seen_before(&r->seen, hash_example(&r->last.example))) {
        good = add(r, REASON_duplicates, NULL) == ACTION_ACCEPT;
    }
    *use = good;
    return 0;
}

static void tell(struct example_reader *r, bool at_end)
{
    uint64_t done, total;

    records_progress(r->records, &done, &total);
    if (r->o.progress != NULL && (at_end || done >= r->told + PROGRESS_BYTES)) {
        r->o.progress(r->o.context, done, total);
        r->told = done;
    }
}

/* Read one record; *use says whether r->last is an example to hand out, *end that there was none. */
static int read_one(struct example_reader *r, bool *use, bool *end, struct err *err)
{
    *use = false;
    converted_fini(&r->last);
    json_decref(r->row);
    r->row = NULL;
    TRY(records_next(r->records, &r->record, err));
    *end = r->record.text == NULL;
    tell(r, *end);
    if (*end) {
        return 0;
    }
    TRY(parse(r, err));
    if (r->row != NULL) {
        TRY(judge(r, use, err));
    }
    if (!*use) {
        report_skip(r->report);
    }
    return 0;
}

int example_reader_next(struct example_reader *r, const struct example **e, struct err *err)
{
    bool use = false, end = r->done;

    *e = NULL;
    while (!end) {
        TRY(read_one(r, &use, &end, err));
        if (use && !report_refused(r->report)) {
            report_use(r->report);
            *e = &r->last.example;
            return 0;
        }
        if (use) {
            report_use(r->report); /* it would be used, were it not for another one */
        }
    }
    r->done = true;
    return report_verdict(r->report, r->name, r->o.blame, err);
}
