/* example.h - the examples of a file, one after the other, whatever shape its rows have.
 *
 *   {"text"}                                                                         TEXT
 *   {"prompt", "completion"} of strings                                              COMPLETION
 *   {"messages"}, {"conversations"}, instruction + output, question + answer, ...    CHAT
 *   {"chosen", "rejected"}, {"input", "preferred_output", "non_preferred_output"}    PREFERENCE
 *
 * The shapes are the table of shapes.c. Each row is converted by itself; the first usable one says which kind the file
 * has. What is wrong goes into the report (report.h), and its policy decides what becomes of the row.
 */
#ifndef TRAINER_DATA_EXAMPLE_H
#define TRAINER_DATA_EXAMPLE_H

#include <jansson.h>

#include "trainer/data/data.h"
#include "trainer/data/report.h"
#include "trainer/data/sniff.h"

enum example_kind {
    EXAMPLE_TEXT,
    EXAMPLE_CHAT,
    EXAMPLE_COMPLETION,
    EXAMPLE_PREFERENCE,
    EXAMPLE_KIND_COUNT
};

const char *example_kind_name(enum example_kind k); /* "chat" */

/* One usable example; all is borrowed and valid until the next call on its reader. */
struct example {
    enum example_kind kind;
    int64_t line;     /* where it begins in the unpacked file, from 1 */
    const char *text; /* TEXT; UTF-8 without NUL                      */
    size_t bytes;
    const char *prompt, *completion; /* COMPLETION */
    size_t prompt_bytes, completion_bytes;
    /* CHAT, and what PREFERENCE answers: a list of {"role": "system" | "user" | "assistant" | "tool", "content": string,
     * "weight"?: 0 | 1, "name"?, "tool_call_id"?, "reasoning_content"?: strings,
     * "tool_calls"?: [{"type": "function", "function": {"name", "arguments": object, or a string that is none}, "id"?}]} */
    const json_t *messages;
    const json_t *tools;             /* [{"type": "function", "function": {...}}], or NULL */
    const json_t *chosen, *rejected; /* PREFERENCE: messages that follow `messages`        */
};

struct example_reader;

struct example_options {
    const char *path;
    const char *name;        /* what messages call the file; path when NULL          */
    enum err_code blame;     /* ERR_BAD_TRAINING_FILE or ERR_BAD_VALIDATION_FILE     */
    const json_t *policy;    /* of report_new; NULL for the defaults                 */
    data_progress *progress; /* may be NULL; bytes of the file as it lies on the disk */
    void *context;
};

/* Path, name and context are borrowed until close. Errors: those of data_sniff; blame for a plain text (which data_prepare
 * reads); BAD_SPEC for the policy. */
int example_reader_open(struct example_reader **out, const struct example_options *o,
                        struct err *err);

/* The next usable example in *e, or NULL in *e at the end. Once something is found whose action is REFUSE (by the reader, or by
 * report_add of its caller), no example is given any more: the file is read to its end for the report, and then this
 * fails. It fails, too, at the end of a file without a usable example. Memory is bounded: one example of at most 64 MiB,
 * and 64 MiB to find duplicates. Errors: blame with all reasons in a sentence (report_verdict), IO, NO_MEMORY. */
int example_reader_next(struct example_reader *r, const struct example **e, struct err *err);

/* Of the first usable example; EXAMPLE_KIND_COUNT before. */
enum example_kind example_reader_kind(const struct example_reader *r);

/* Of what was read so far; borrowed until close. The caller may add what it finds about the last example: report_add, and where that
 * does not yield ACTION_ACCEPT, report_take_back; report_tokens for those that stay. */
struct report *example_reader_report(struct example_reader *r);

/* The report becomes the caller's to free; the reader is only closed after that. */
struct report *example_reader_take_report(struct example_reader *r);

void example_reader_close(struct example_reader *r); /* NULL is allowed */

#endif
