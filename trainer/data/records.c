/* records.c - cutting a stream of bytes into lines or into elements of an array. */
#include "trainer/data/records.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/utf8.h"

enum { BLOCK_BYTES = 1 << 18 };

/* Where in an array we are. */
enum place { PLACE_BEFORE, PLACE_FIRST, PLACE_AFTER_COMMA, PLACE_AFTER_ELEMENT, PLACE_CLOSED };

struct records {
    struct source *source;
    enum err_code blame;
    enum format format;
    struct report *report;
    struct text buffer; /* buffer.at[at..n) is not handed out yet */
    size_t at;
    int64_t line, column, byte; /* of buffer.at[at], from 1 */
    int64_t elements;
    bool begun, ended;
    bool after_newline; /* the last byte that was read */
    enum place place;
};

int records_open(struct records **out, const char *path, const char *name, enum err_code blame,
                 enum format format, struct report *report, struct err *err)
{
    struct records *r = calloc(1, sizeof *r);

    *out = NULL;
    if (r == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", name);
    }
    *r =
        (struct records){.format = format, .report = report, .blame = blame, .after_newline = true};
    r->line = r->column = r->byte = 1;
    const int rc = source_open(&r->source, path, name, blame, err);
    if (rc != 0) {
        records_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void records_close(struct records *r)
{
    if (r == NULL) {
        return;
    }
    source_close(r->source);
    text_free(&r->buffer);
    free(r);
}

void records_progress(const struct records *r, uint64_t *done, uint64_t *total)
{
    *done = source_done(r->source);
    *total = source_total(r->source);
}

/* One block more behind what is there; what was handed out makes room. Sets ended when there is none. */
static int more(struct records *r, struct err *err)
{
    size_t got = 0;

    if (r->at > 0) {
        r->buffer.n -= r->at;
        memmove(r->buffer.at, r->buffer.at + r->at, r->buffer.n);
        r->at = 0;
    }
    TRY(text_reserve(&r->buffer, BLOCK_BYTES, err));
    const int rc = source_read(r->source, r->buffer.at + r->buffer.n, BLOCK_BYTES, &got, err);
    if (rc == (int)r->blame) {
        (void)report_add(r->report, REASON_damaged, 0, err->text);
        r->ended = true;
        return 0;
    }
    TRY(rc);
    r->buffer.n += got;
    r->ended = got == 0;
    if (got > 0) {
        r->after_newline = r->buffer.at[r->buffer.n - 1] == '\n';
    }
    return 0;
}

static int begin(struct records *r, struct err *err)
{
    while (r->buffer.n < 3 && !r->ended) {
        TRY(more(r, err));
    }
    if (r->buffer.n >= 3 && memcmp(r->buffer.at, "\xEF\xBB\xBF", 3) == 0) {
        r->at = 3;
        (void)report_add(r->report, REASON_byte_order_mark, 1, NULL);
    }
    r->begun = true;
    return 0;
}

/* Nothing is left: the number of lines is known. */
static void end(struct records *r)
{
    report_lines(r->report, r->line - (r->column == 1 ? 1 : 0));
}

/* Pass over the next n bytes, counting lines and columns. */
static void advance(struct records *r, size_t n)
{
    const char *s = r->buffer.at + r->at, *const stop = s + n;

    for (const char *at; (at = memchr(s, '\n', (size_t)(stop - s))) != NULL; s = at + 1) {
        if (at > r->buffer.at && at[-1] == '\r') {
            (void)report_add(r->report, REASON_crlf, r->line, NULL);
        }
        r->line++;
        r->column = r->byte = 1;
    }
    r->byte += stop - s;
    for (; s < stop; s++) {
        r->column += ((unsigned char)*s & 0xC0U) != 0x80U ? 1 : 0;
    }
    r->at += n;
}

static bool is_blank(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r')) {
        i++;
    }
    return i == n;
}

/* Find the end of the line that begins at r->at; *n is its length without the line end, *taken with it. A line that is too long
 * is dropped from the buffer while it is read. */
static int find_line(struct records *r, size_t *n, size_t *taken, bool *too_long, struct err *err)
{
    size_t looked = 0;
    const char *found = NULL;

    *too_long = false;
    for (;;) {
        const char *s = r->buffer.at + r->at;
        const size_t there = r->buffer.n - r->at;
        found = there > looked ? memchr(s + looked, '\n', there - looked) : NULL;
        *n = found != NULL ? (size_t)(found - s) : there;
        if (*n > RECORD_BYTES_MAX) {
            *too_long = true;
        }
        if (found != NULL || r->ended) {
            break;
        }
        looked = there;
        if (*too_long) {
            r->at = r->buffer.n;
            r->column = 2; /* the line is not empty, whatever follows */
            looked = 0;
        }
        TRY(more(r, err));
    }
    *taken = *n + (found != NULL ? 1 : 0);
    return 0;
}

static int next_line(struct records *r, struct record *out, struct err *err)
{
    size_t n, taken;
    bool too_long;

    for (;;) {
        const int64_t line = r->line;
        TRY(find_line(r, &n, &taken, &too_long, err));
        if (taken == 0 && !too_long) {
            if (!r->after_newline) {
                (void)report_add(r->report, REASON_no_final_newline, line, NULL);
            }
            end(r);
            return 0;
        }
        char *s = r->buffer.at + r->at;
        const int64_t column = r->column;
        advance(r, taken);
        if (too_long) {
            (void)report_add(r->report, REASON_too_many_bytes, line, NULL);
            report_skip(r->report);
        } else if (is_blank(s, n)) {
            (void)report_add(r->report, REASON_blank_lines, line, NULL);
        } else {
            n -= s[n - 1] == '\r' ? 1 : 0;
            *out = (struct record){
                .text = s, .bytes = n, .line = line, .column = column, .byte = column};
            return 0;
        }
    }
}

/* The next character that is no white space, which stays; -1 at the end. */
static int peek(struct records *r, int *c, struct err *err)
{
    for (;;) {
        const char *s = r->buffer.at + r->at;
        const size_t there = r->buffer.n - r->at;
        size_t n = 0;
        while (n < there && (s[n] == ' ' || s[n] == '\t' || s[n] == '\r' || s[n] == '\n')) {
            n++;
        }
        if (n > 0) {
            advance(r, n);
        }
        if (n < there || r->ended) {
            *c = n < there ? (unsigned char)r->buffer.at[r->at] : -1;
            return 0;
        }
        TRY(more(r, err));
    }
}

/* How far the search for the end of an element has come. */
struct scan {
    size_t i; /* bytes from its beginning */
    int64_t depth;
    bool in_string, escaped;
};

/* Go on until the element ends or the bytes do. A string ends with its line, closed or not: so that one quote too few spoils
 * one element of an array that is written over many lines. */
static bool scan_element(struct scan *p, const char *s, size_t n)
{
    for (; p->i < n; p->i++) {
        const char c = s[p->i];
        if (p->in_string && c != '\n') {
            p->in_string = p->escaped || c != '"';
            p->escaped = !p->escaped && c == '\\';
            if (!p->in_string && p->depth == 0) {
                p->i++;
                return true;
            }
            continue;
        }
        p->in_string = p->escaped = false;
        if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if (c == '}' || c == ']') {
            p->depth--;
            if (p->depth <= 0) {
                p->i += p->depth == 0 || p->i == 0 ? 1 : 0;
                return true;
            }
        } else if (p->depth == 0 && p->i > 0 &&
                   (c == ',' || c == '\n' || c == ' ' || c == '\r' || c == '\t')) {
            return true;
        }
    }
    return false;
}

/* The element that begins at r->at; *n bytes. One that the file cuts off ends with the file. */
static int find_element(struct records *r, size_t *n, bool *too_long, struct err *err)
{
    struct scan p = {0};

    *too_long = false;
    while (!scan_element(&p, r->buffer.at + r->at, r->buffer.n - r->at)) {
        if (r->ended) {
            r->place = PLACE_CLOSED; /* the parser says what is missing */
            break;
        }
        if (p.i > RECORD_BYTES_MAX) {
            *too_long = true;
            advance(r, p.i);
            p.i = 0;
        }
        TRY(more(r, err));
    }
    *n = p.i;
    *too_long = *too_long || p.i > RECORD_BYTES_MAX;
    return 0;
}

static int take_element(struct records *r, struct record *out, struct err *err)
{
    const struct record at = {
        .line = r->line, .column = r->column, .byte = r->byte, .element = ++r->elements};
    size_t n;
    bool too_long;

    if (r->place == PLACE_AFTER_ELEMENT && r->format == FORMAT_JSON_ARRAY) {
        (void)report_add(r->report, REASON_broken_json, r->line,
                         "a comma is missing between two elements");
    }
    r->place = PLACE_AFTER_ELEMENT;
    TRY(find_element(r, &n, &too_long, err));
    if (too_long) {
        (void)report_add(r->report, REASON_too_many_bytes, at.line, NULL);
        report_skip(r->report);
    } else {
        *out = at;
        out->text = r->buffer.at + r->at;
        out->bytes = n;
    }
    advance(r, n);
    return 0;
}

/* A comma, a bracket or the end between elements. */
static void take_sign(struct records *r, int c)
{
    const char *wrong = NULL;

    if (c == -1 && r->format == FORMAT_JSON_OBJECTS) {
        r->place = PLACE_CLOSED;
    } else if (c == -1 && r->place != PLACE_CLOSED) {
        wrong = "the array is not closed; is the end of the file missing?";
        r->place = PLACE_CLOSED;
    } else if (c == '[' && r->place == PLACE_BEFORE) {
        r->place = PLACE_FIRST;
    } else if (c == ']') {
        wrong =
            r->place == PLACE_AFTER_COMMA ? "there is a comma before the end of the array" : NULL;
        r->place = PLACE_CLOSED;
    } else if (c == ',') {
        wrong = r->place != PLACE_AFTER_ELEMENT ? "there is a comma too many" : NULL;
        r->place = PLACE_AFTER_COMMA;
    }
    if (wrong != NULL) {
        (void)report_add(r->report, REASON_broken_json, r->line, wrong);
    }
    if (c != -1) {
        advance(r, 1);
    }
}

/* What follows the array is read to its end, for the number of lines. */
static int pass_rest(struct records *r, struct err *err)
{
    (void)report_add(r->report, REASON_broken_json, r->line,
                     "there is more after the end of the array");
    while (!r->ended || r->at < r->buffer.n) {
        advance(r, r->buffer.n - r->at);
        if (!r->ended) {
            TRY(more(r, err));
        }
    }
    return 0;
}

/* A bracket of the array itself. */
static bool is_bracket(const struct records *r, int c)
{
    return c == ']' || (c == '[' && r->place == PLACE_BEFORE);
}

static int next_element(struct records *r, struct record *out, struct err *err)
{
    while (out->text == NULL) {
        int c = 0;
        TRY(peek(r, &c, err));
        if (c == -1 && r->place == PLACE_CLOSED) {
            end(r);
            return 0;
        }
        if (r->place == PLACE_CLOSED) {
            TRY(pass_rest(r, err));
        } else if (c == -1 || c == ',' || (r->format == FORMAT_JSON_ARRAY && is_bracket(r, c))) {
            take_sign(r, c);
        } else {
            TRY(take_element(r, out, err));
        }
    }
    return 0;
}

int records_next(struct records *r, struct record *out, struct err *err)
{
    *out = (struct record){0};
    if (!r->begun) {
        TRY(begin(r, err));
    }
    return r->format == FORMAT_JSONL ? next_line(r, out, err) : next_element(r, out, err);
}
