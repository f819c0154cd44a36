/* sniff.c - telling texts, JSONL and JSON arrays apart. */
#include "trainer/data/sniff.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 1 << 16, LINES_LOOKED_AT = 50 };

const char *format_name(enum format f)
{
    static const char *const names[FORMAT_COUNT] = {"text", "jsonl", "json", "json"};
    return names[f];
}

static size_t pass_blanks(const char *s, size_t n, size_t i)
{
    while (i < n && (s[i] == ' ' || s[i] == '\t' || s[i] == '\r' || s[i] == '\n')) {
        i++;
    }
    return i;
}

/* Whether s[i..n) begins like an object: { and then a key in whatever quotes, or nothing. */
static bool is_object(const char *s, size_t n, size_t i)
{
    if (i >= n || s[i] != '{') {
        return false;
    }
    i = pass_blanks(s, n, i + 1);
    return i >= n || s[i] == '"' || s[i] == '\'' || s[i] == '}';
}

/* [ and then an object, a string, another list of them, or nothing. */
static bool is_array(const char *s, size_t n, size_t i)
{
    for (int depth = 0; depth < 3 && i < n && s[i] == '['; depth++) {
        i = pass_blanks(s, n, i + 1);
        if (i >= n || is_object(s, n, i) || s[i] == '"') {
            return true;
        }
        if (s[i] == ']' && depth == 0) {
            return pass_blanks(s, n, i + 1) == n;
        }
    }
    return false;
}

/* Whether at least half of the first lines begin an object: a JSONL file whose first line is something else. */
static bool mostly_objects(const char *s, size_t n)
{
    int lines = 0, objects = 0;

    for (size_t i = pass_blanks(s, n, 0); i < n && lines < LINES_LOOKED_AT;) {
        const char *end = memchr(s + i, '\n', n - i);
        lines++;
        objects += is_object(s, n, i) ? 1 : 0;
        i = end == NULL ? n : pass_blanks(s, n, (size_t)(end - s) + 1);
    }
    return objects >= 2 && 2 * objects >= lines;
}

/* Whether the first line is a whole array and the next one begins another: lists of messages, one a line. */
static bool is_lists(const char *s, size_t n, size_t i)
{
    const char *end = i < n ? memchr(s + i, '\n', n - i) : NULL;

    if (end == NULL) {
        return false;
    }
    size_t last = (size_t)(end - s);
    while (last > i && (s[last] == '\n' || s[last] == '\r' || s[last] == ' ')) {
        last--;
    }
    const size_t next = pass_blanks(s, n, (size_t)(end - s));
    return s[last] == ']' && next < n && s[next] == '[';
}

/* Whether the first line is { and nothing else: objects that somebody indented. */
static bool is_indented(const char *s, size_t n, size_t i)
{
    const size_t next = pass_blanks(s, n, i + 1);

    return next < n && memchr(s + i, '\n', next - i) != NULL;
}

static enum format tell(const char *s, size_t n)
{
    const size_t i = pass_blanks(s, n, 0);

    if (is_object(s, n, i)) {
        return is_indented(s, n, i) ? FORMAT_JSON_OBJECTS : FORMAT_JSONL;
    }
    if (is_array(s, n, i)) {
        return is_lists(s, n, i) ? FORMAT_JSONL : FORMAT_JSON_ARRAY;
    }
    return mostly_objects(s, n) ? FORMAT_JSONL : FORMAT_TEXT;
}

static int look(struct sniffed *out, struct source *s, char *head, const char *name,
                enum err_code blame, struct err *err)
{
    size_t n = 0, got = 1;

    out->packing = source_packing(s);
    while (n < HEAD_BYTES && got > 0) {
        TRY(source_read(s, head + n, HEAD_BYTES - n, &got, err));
        n += got;
    }
    const char *foreign = source_foreign(head, n);
    if (foreign != NULL) {
        return FAIL(err, blame, "%s is %s", name, foreign);
    }
    if (n >= 3 && memcmp(head, "\xEF\xBB\xBF", 3) == 0) {
        head += 3;
        n -= 3;
    }
    if (pass_blanks(head, n, 0) == n && n < HEAD_BYTES - 3) {
        return FAIL(err, blame, "%s is empty%s", name,
                    n > 0 ? ": it has nothing but white space" : "");
    }
    out->format = tell(head, n);
    return 0;
}

int data_sniff(struct sniffed *out, const char *path, const char *name, enum err_code blame,
               struct err *err)
{
    struct source *s = NULL;
    char *head = malloc(HEAD_BYTES);

    *out = (struct sniffed){0};
    name = name == NULL ? path : name;
    if (head == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory to read %s", name);
    }
    int rc = source_open(&s, path, name, blame, err);
    if (rc == 0) {
        rc = look(out, s, head, name, blame, err);
    }
    source_close(s);
    free(head);
    return rc;
}
