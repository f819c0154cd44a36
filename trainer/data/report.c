/* report.c - counting reasons, and saying them as JSON or in one sentence. */
#include "trainer/data/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/base/json.h"

enum { FIRST_LINES = 5, WHERE_BYTES = 160, LENGTHS = 24 };

struct finding {
    int64_t count;
    int64_t lines[FIRST_LINES];
    int lines_count;
    char where[WHERE_BYTES]; /* of the first */
    enum action action;
};

struct report {
    const char *format, *packing, *kind, *columns;
    int64_t lines, examples, usable, skipped;
    bool refused;
    int64_t with_tokens, tokens, trained; /* examples that were counted in tokens */
    int64_t lengths[LENGTHS];             /* [i]: 2^i <= tokens < 2^(i+1); [0] has 0 too */
    struct finding found[REASON_COUNT];
};

static const struct {
    const char *name;
    enum action action;
    const char *allowed, *message;
} reasons[] = {
#define REASON(name, action, allowed, message) {#name, ACTION_##action, allowed, message},
#include "trainer/data/reasons.def"
};

const char *reason_name(enum reason r)
{
    return reasons[r].name;
}

const char *reason_message(enum reason r)
{
    return reasons[r].message;
}

enum action reason_default(enum reason r)
{
    return reasons[r].action;
}

bool reason_allows(enum reason r, enum action a)
{
    return strchr(reasons[r].allowed, "RSA"[a]) != NULL;
}

const char *action_name(enum action a)
{
    static const char *const names[ACTION_COUNT] = {"refuse", "skip", "accept"};
    return names[a];
}

static int find_reason(const char *name, struct err *err)
{
    for (int i = 0; i < REASON_COUNT; i++) {
        if (strcmp(name, reasons[i].name) == 0) {
            return i;
        }
    }
    (void)FAIL_PARAM(err, ERR_BAD_SPEC, "on_problem", "on_problem: there is no reason \"%.40s\"",
                     name);
    return -1;
}

/* The action of that name, if the reason allows it; -1 otherwise. */
static int find_action(enum reason r, const json_t *value, struct err *err)
{
    const char *word = json_string_value(value);

    for (int a = 0; word != NULL && a < ACTION_COUNT; a++) {
        if (strcmp(word, action_name((enum action)a)) == 0 && reason_allows(r, (enum action)a)) {
            return a;
        }
    }
    (void)FAIL_PARAM(err, ERR_BAD_SPEC, "on_problem", "on_problem: %s must be%s%s%s",
                     reasons[r].name, strchr(reasons[r].allowed, 'R') != NULL ? " refuse" : "",
                     strchr(reasons[r].allowed, 'S') != NULL ? " or skip" : "",
                     strchr(reasons[r].allowed, 'A') != NULL ? " or accept" : "");
    return -1;
}

static int read_policy(struct report *r, const json_t *policy, struct err *err)
{
    const char *name;
    json_t *value;

    if (policy == NULL || json_is_null(policy)) {
        return 0;
    }
    if (!json_is_object(policy)) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "on_problem", "on_problem must be an object");
    }
    json_object_foreach(json_unconst(policy), name, value)
    {
        const int i = find_reason(name, err);
        if (i < 0) {
            return (int)err->code;
        }
        const int action = find_action((enum reason)i, value, err);
        if (action < 0) {
            return (int)err->code;
        }
        r->found[i].action = (enum action)action;
    }
    return 0;
}

int report_new(struct report **out, const json_t *policy, struct err *err)
{
    struct report *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a report");
    }
    for (int i = 0; i < REASON_COUNT; i++) {
        r->found[i].action = reasons[i].action;
    }
    const int rc = read_policy(r, policy, err);
    if (rc != 0) {
        report_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void report_free(struct report *r)
{
    free(r);
}

int report_check_policy(const json_t *policy, struct err *err)
{
    struct report *r = NULL;

    const int rc = report_new(&r, policy, err);
    report_free(r);
    return rc;
}

enum action report_add(struct report *r, enum reason why, int64_t line, const char *where)
{
    struct finding *f = &r->found[why];

    if (f->count == 0 && where != NULL) {
        (void)snprintf(f->where, sizeof f->where, "%s", where);
    }
    f->count++;
    if (line > 0 && f->lines_count < FIRST_LINES &&
        (f->lines_count == 0 || f->lines[f->lines_count - 1] != line)) {
        f->lines[f->lines_count++] = line;
    }
    r->refused = r->refused || f->action == ACTION_REFUSE;
    return f->action;
}

enum action report_action(const struct report *r, enum reason why)
{
    return r->found[why].action;
}

int64_t report_count(const struct report *r, enum reason why)
{
    return r->found[why].count;
}

void report_file(struct report *r, const char *format, const char *packing)
{
    r->format = format != NULL ? format : r->format;
    r->packing = packing != NULL ? packing : r->packing;
}

void report_kind(struct report *r, const char *kind, const char *columns)
{
    r->kind = kind != NULL ? kind : r->kind;
    r->columns = columns != NULL ? columns : r->columns;
}

void report_use(struct report *r)
{
    r->examples++;
    r->usable++;
}

void report_skip(struct report *r)
{
    r->examples++;
    r->skipped++;
}

void report_take_back(struct report *r)
{
    r->usable--;
    r->skipped++;
}

void report_lines(struct report *r, int64_t lines)
{
    r->lines = lines;
}

void report_tokens(struct report *r, int64_t tokens, int64_t trained)
{
    int i = 0;

    while (i < LENGTHS - 1 && tokens >> (i + 1) > 0) {
        i++;
    }
    r->lengths[i]++;
    r->with_tokens++;
    r->tokens += tokens;
    r->trained += trained;
}

int64_t report_usable(const struct report *r)
{
    return r->usable;
}

int64_t report_examples(const struct report *r)
{
    return r->examples;
}

bool report_refused(const struct report *r)
{
    return r->refused;
}

/* "the JSON is broken (line 37, column 12: ..., 3 times)"; returns the bytes that it takes. In brief, what explains is left
 * out: the place in the line, and what follows a semicolon. */
static size_t say_finding(char *out, size_t size, enum reason why, const struct finding *f,
                          bool brief)
{
    const char *message = reasons[why].message;
    const int length = (int)(brief ? strcspn(message, ";") : strlen(message));
    const char *where = brief ? "" : f->where;
    char times[40] = "", line[32] = "";

    if (f->lines_count > 0) {
        (void)snprintf(line, sizeof line, "line %lld%s", (long long)f->lines[0],
                       where[0] != '\0' ? ", " : "");
    }
    if (f->count > 1) {
        (void)snprintf(times, sizeof times, "%s%lld times",
                       line[0] != '\0' || where[0] != '\0' ? ", " : "", (long long)f->count);
    }
    const bool nothing = line[0] == '\0' && where[0] == '\0' && times[0] == '\0';
    const int n = snprintf(out, size, "%.*s%s%s%s%s%s", length, message, nothing ? "" : " (", line,
                           where, times, nothing ? "" : ")");
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

/* Whether a finding belongs into the verdict: what is refused; where nothing is, what was skipped. */
static bool is_named(const struct report *r, const struct finding *f)
{
    return f->count > 0 && f->action == (r->refused ? ACTION_REFUSE : ACTION_SKIP);
}

int report_verdict(const struct report *r, const char *name, enum err_code blame, struct err *err)
{
    char text[sizeof err->text] = "";
    size_t n = 0;
    int named = 0;

    if (!r->refused && r->usable > 0) {
        return 0;
    }
    for (int i = 0; i < REASON_COUNT; i++) {
        named += is_named(r, &r->found[i]) ? 1 : 0;
    }
    for (int i = 0; i < REASON_COUNT && n + 3 < sizeof text; i++) {
        if (is_named(r, &r->found[i])) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", n == 0 ? "" : "; ");
            n += say_finding(text + n, sizeof text - n, (enum reason)i, &r->found[i], named > 2);
        }
    }
    if (r->refused) {
        return FAIL(err, blame, "%s can't be used: %s", name, text);
    }
    return FAIL(err, blame, "%s has no usable example of %lld%s%s", name, (long long)r->examples,
                n > 0 ? ": " : "", text);
}

static json_t *finding_json(enum reason why, const struct finding *f)
{
    json_t *lines = json_array(), *allowed = json_array();

    for (int i = 0; i < f->lines_count; i++) {
        (void)json_array_append_new(lines, json_integer((json_int_t)f->lines[i]));
    }
    for (int a = 0; a < ACTION_COUNT; a++) {
        if (reason_allows(why, (enum action)a)) {
            (void)json_array_append_new(allowed, json_string(action_name((enum action)a)));
        }
    }
    return json_pack("{s:s, s:I, s:o, s:s, s:s*, s:s, s:o}", "reason", reasons[why].name, "count",
                     (json_int_t)f->count, "first_lines", lines, "message", reasons[why].message,
                     "where", f->where[0] != '\0' ? f->where : NULL, "action",
                     action_name(f->action), "allowed", allowed);
}

static json_t *lengths_json(const struct report *r)
{
    json_t *edges = json_array(), *counts = json_array();
    int first = 0, last = LENGTHS - 1;

    while (first < LENGTHS - 1 && r->lengths[first] == 0) {
        first++;
    }
    while (last > first && r->lengths[last] == 0) {
        last--;
    }
    for (int i = first; i <= last; i++) {
        (void)json_array_append_new(edges, json_integer(i == 0 ? 0 : 1LL << i));
        (void)json_array_append_new(counts, json_integer((json_int_t)r->lengths[i]));
    }
    (void)json_array_append_new(edges, json_integer(1LL << (last + 1)));
    return json_pack("{s:o, s:o}", "edges", edges, "counts", counts);
}

json_t *report_json(const struct report *r)
{
    json_t *found = json_array();

    for (int i = 0; i < REASON_COUNT; i++) {
        if (r->found[i].count > 0) {
            (void)json_array_append_new(found, finding_json((enum reason)i, &r->found[i]));
        }
    }
    json_t *all = json_pack("{s:s?, s:s?, s:s?, s:s?, s:I, s:I, s:I, s:I, s:b, s:o}", "format",
                            r->format, "compression", r->packing, "kind", r->kind, "columns",
                            r->columns, "lines", (json_int_t)r->lines, "examples",
                            (json_int_t)r->examples, "usable", (json_int_t)r->usable, "skipped",
                            (json_int_t)r->skipped, "refused", (int)r->refused, "reasons", found);
    if (all != NULL && r->with_tokens > 0) {
        (void)json_object_set_new(all, "tokens", json_integer((json_int_t)r->tokens));
        (void)json_object_set_new(all, "trained_tokens", json_integer((json_int_t)r->trained));
        (void)json_object_set_new(all, "lengths", lengths_json(r));
    }
    return all;
}
