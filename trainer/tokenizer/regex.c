/* regex.c - the patterns of a tokenizer.json, on PCRE2. */
#include "trainer/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "trainer/tokenizer/regex_ruby.h"

enum {
    PATTERN_BYTES_MAX = 1 << 16,
    STEPS_MIN = 1 << 20, /* of a match; more for a long text, linearly */
    STEPS_PER_BYTE = 16,
    HEAP_KIB = 1 << 18, /* of PCRE2's interpreter */
    JIT_STACK_MIN = 1 << 15,
    JIT_STACK_MAX = 1 << 23,
};

struct regex {
    pcre2_code *code; /* owned */
    bool looks_behind;
    struct excerpt shown; /* for messages */
};

struct regex_work {
    pcre2_match_data *found; /* owned, likewise the others */
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

static int compile(struct regex *r, const struct text *t, struct err *err)
{
    int code;
    PCRE2_SIZE where;
    uint32_t behind = 0;

    pcre2_compile_context *c = pcre2_compile_context_create(NULL);
    if (c == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a pattern");
    }
    (void)pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)t->at, t->n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C |
                                PCRE2_NO_AUTO_CAPTURE,
                            &code, &where, c);
    pcre2_compile_context_free(c);
    if (r->code == NULL) {
        PCRE2_UCHAR why[120];
        (void)pcre2_get_error_message(code, why, sizeof why);
        return FAIL(err, ERR_BAD_FILE, "the pattern '%s' is not a regular expression: %s",
                    r->shown.at, (const char *)why);
    }
    (void)pcre2_pattern_info(r->code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    r->looks_behind = r->looks_behind || behind > 0;
    /* Without JIT the interpreter does the same, slower. */
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return 0;
}

int regex_new(struct regex **out, const char *pattern, size_t bytes, struct err *err)
{
    struct text rewritten = {0};
    int rc;

    *out = NULL;
    if (bytes > PATTERN_BYTES_MAX) {
        return FAIL(err, ERR_BAD_FILE, "a pattern of %zu bytes is longer than %d bytes", bytes,
                    PATTERN_BYTES_MAX);
    }
    struct regex *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a pattern");
    }
    r->shown = text_excerpt(pattern, bytes);
    rc = text_reserve(&rewritten, 1, err); /* an empty pattern needs an address too */
    if (rc == 0) {
        rc = regex_from_ruby(&rewritten, &r->looks_behind, pattern, bytes, err);
    }
    if (rc == 0) {
        rc = compile(r, &rewritten, err);
    }
    text_free(&rewritten);
    if (rc != 0) {
        regex_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void regex_free(struct regex *r)
{
    if (r != NULL) {
        pcre2_code_free(r->code);
        free(r);
    }
}

bool regex_looks_behind(const struct regex *r)
{
    return r->looks_behind;
}

int regex_work_new(struct regex_work **out, struct err *err)
{
    struct regex_work *w = calloc(1, sizeof *w);

    *out = NULL;
    if (w != NULL) {
        w->found = pcre2_match_data_create(1, NULL);
        w->limits = pcre2_match_context_create(NULL);
        w->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    }
    if (w == NULL || w->found == NULL || w->limits == NULL) {
        regex_work_free(w);
        return FAIL(err, ERR_NO_MEMORY, "no memory for matching");
    }
    if (w->stack != NULL) { /* NULL: a library without JIT */
        pcre2_jit_stack_assign(w->limits, NULL, w->stack);
    }
    (void)pcre2_set_heap_limit(w->limits, HEAP_KIB);
    *out = w;
    return 0;
}

void regex_work_free(struct regex_work *w)
{
    if (w != NULL) {
        pcre2_match_data_free(w->found);
        pcre2_match_context_free(w->limits);
        pcre2_jit_stack_free(w->stack);
        free(w);
    }
}

enum regex_found regex_find(const struct regex *r, struct regex_work *w,
                            const struct regex_text *text, size_t from, size_t *start, size_t *end,
                            struct err *err)
{
    const size_t steps = STEPS_MIN + STEPS_PER_BYTE * (text->n - from);
    const uint32_t options = PCRE2_NO_UTF_CHECK | (text->open ? PCRE2_PARTIAL_HARD : 0U);
    const PCRE2_SPTR subject = (PCRE2_SPTR)text->s;

    (void)pcre2_set_match_limit(w->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    int rc = pcre2_match(r->code, subject, text->n, from, options, w->found, w->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(r->code, subject, text->n, from, options | PCRE2_NO_JIT, w->found,
                         w->limits);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
        return REGEX_NONE;
    }
    if (rc >= 0 || rc == PCRE2_ERROR_PARTIAL) {
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->found);
        *start = span[0];
        *end = span[1];
        return rc >= 0 ? REGEX_MATCH : REGEX_PARTIAL;
    }
    err_set(err, ERR_BAD_FILE,
            "the pattern '%s' of the tokenizer takes too many steps to match this text",
            r->shown.at);
    return REGEX_FAILED;
}
