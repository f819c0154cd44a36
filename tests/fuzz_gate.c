/* fuzz_gate.c - any bytes as the head of a request: refused, or every part of it is what the gate promises.
 *
 * The input's lines are: method, target, version, then headers "name:value". A NUL in a value stays.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "server/gate.h"
#include "server/range.h"
#include "server/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* The next line of the text, NUL-terminated in place; *size is its length. */
static char *next_line(char **rest, const char *end, size_t *size)
{
    char *line = *rest;
    char *newline = memchr(line, '\n', (size_t)(end - line));

    newline = newline == NULL ? line + (end - line) : newline;
    *size = (size_t)(newline - line);
    *newline = '\0';
    *rest = newline < end ? newline + 1 : newline;
    return line;
}

static void check_request(const struct gate_request *rq)
{
    for (int i = 0; i < rq->segment_count; i++) {
        const char *s = rq->segments[i];
        CHECK(strpbrk(s, "/\\") == NULL && strcmp(s, "..") != 0 && text_is_plain(s), "segment %d",
              i);
    }
    for (int i = 0; i < rq->query_count; i++) {
        CHECK(text_is_plain(rq->query_keys[i]) && text_is_plain(rq->query_values[i]), "query %d",
              i);
        CHECK(gate_query(rq, rq->query_keys[i]) == rq->query_values[i], "query %d twice", i);
    }
    CHECK(rq->length >= -1 && strlen(rq->token) < GATE_SECRET, "length and token");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static const char *const hosts[] = {"localhost", NULL};
    char *text = malloc(n + 1), *rest = text;
    struct gate_header headers[GATE_HEADERS];
    struct gate_request rq;
    struct gate_head head = {.headers = headers};
    struct err err = {0};
    int64_t first = 0, count = 0;
    size_t size = 0;

    CHECK(text != NULL, "no memory");
    memcpy(text, bytes, n);
    text[n] = '\0';
    const char *end = text + n;
    head.method = next_line(&rest, end, &size);
    head.target = next_line(&rest, end, &size);
    head.version = next_line(&rest, end, &size);
    while (rest < end && head.header_count < GATE_HEADERS) {
        char *line = next_line(&rest, end, &size);
        char *colon = memchr(line, ':', size);
        char *value = colon == NULL ? line + size : colon + 1;
        headers[head.header_count++] =
            (struct gate_header){.name = line,
                                 .name_size = colon == NULL ? size : (size_t)(colon - line),
                                 .value = value,
                                 .value_size = size - (size_t)(value - line)};
    }
    if (gate_check(&rq, &head, hosts, &err) == 0) {
        check_request(&rq);
        gate_free(&rq);
    } else {
        CHECK(err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "%s", err.text);
    }
    if (range_parse(head.target, (int64_t)n, &first, &count) == RANGE_PART) {
        CHECK(first >= 0 && count > 0 && first + count <= (int64_t)n, "range %s", head.target);
    }
    free(text);
    return 0;
}
