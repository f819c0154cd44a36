/* report.h - what was found in a file of examples: reasons with counts and first lines, totals, lengths.
 *
 *     {"format": "jsonl", "compression": "none", "kind": "chat", "columns": "messages", "lines", "examples", "usable",
 *      "skipped", "refused": false, "tokens"?, "trained_tokens"?,
 *      "reasons": [{"reason", "count", "first_lines": [at most 5], "message", "where", "action", "allowed": [actions]}],
 *      "lengths"?: {"edges": [e0 .. ek], "counts": [c0 .. ck-1]}}
 *
 * lengths.counts[i] is the number of examples of edges[i] <= tokens < edges[i + 1]. Nothing of the file's texts is in it.
 */
#ifndef TRAINER_DATA_REPORT_H
#define TRAINER_DATA_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum reason {
#define REASON(name, action, allowed, message) REASON_##name,
#include "trainer/data/reasons.def"
    REASON_COUNT
};

enum action { ACTION_REFUSE, ACTION_SKIP, ACTION_ACCEPT, ACTION_COUNT };

const char *reason_name(enum reason r);    /* "broken_json"                     */
const char *reason_message(enum reason r); /* "the JSON is broken"              */
enum action reason_default(enum reason r);
bool reason_allows(enum reason r, enum action a);
const char *action_name(enum action a); /* "refuse"                          */

struct report;

/* policy: {"reason": "refuse" | "skip" | "accept"}, NULL or JSON null for the defaults; read at once.
 * Errors: BAD_SPEC (param "on_problem": no such reason, an action that the reason does not allow), NO_MEMORY. */
int report_new(struct report **out, const json_t *policy, struct err *err);
void report_free(struct report *r); /* NULL is allowed */

/* Whether report_new would take the policy. */
int report_check_policy(const json_t *policy, struct err *err);

/* Count one more of `why` at a line (from 1; 0 for the whole file), and say what is to be done. `where` (or NULL) is a
 * detail for a person, "messages[2].role"; the first one is kept. It must not hold text of the file. */
enum action report_add(struct report *r, enum reason why, int64_t line, const char *where);

/* What would be done with one, without counting it. */
enum action report_action(const struct report *r, enum reason why);
int64_t report_count(const struct report *r, enum reason why);

/* The file's format, packing, kind and columns; words that live as long as the program. NULL leaves one as it is. */
void report_file(struct report *r, const char *format, const char *packing);
void report_kind(struct report *r, const char *kind, const char *columns);

/* One more example that is handed out, or left out; take_back: the last one that was handed out is left out after all. */
void report_use(struct report *r);
void report_skip(struct report *r);
void report_take_back(struct report *r);
void report_lines(struct report *r, int64_t lines);

/* The tokens of an example, and how many of them are trained: sums and the histogram. */
void report_tokens(struct report *r, int64_t tokens, int64_t trained);

int64_t report_usable(const struct report *r);
int64_t report_examples(const struct report *r);
bool report_refused(const struct report *r); /* something was found whose action is REFUSE */

/* 0 when the file can be used: nothing refused, an example at least. Else FAIL with `blame` and a sentence that lists the
 * reasons: "data.jsonl can't be used: the JSON is broken (line 37, column 12: ..., 3 times); ..." */
int report_verdict(const struct report *r, const char *name, enum err_code blame, struct err *err);

/* A new reference, or NULL for no memory. */
json_t *report_json(const struct report *r);

#endif
