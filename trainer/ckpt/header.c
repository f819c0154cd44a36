/* header.c - the schema of the header, and the checks of safetensors' own reader. */
#include "trainer/ckpt/header.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/ckpt/lexer.h"

enum {
    NAME_SHOWN = 120, /* bytes of a name that an error shows */
};

/* shape or data_offsets: an array of at most `most` sizes. */
static int parse_sizes(struct lexer *p, int64_t *out, int most, int *count)
{
    *count = 0;
    if (!lexer_pass(p, '[')) {
        return lexer_fail(p, "an array expected");
    }
    if (lexer_pass(p, ']')) {
        return 0;
    }
    do {
        if (*count == most) {
            return lexer_fail(p, most == 2 ? "more than two offsets" : "more than 8 dimensions");
        }
        TRY(lexer_size(p, &out[*count]));
        ++*count;
    } while (lexer_pass(p, ','));
    return lexer_pass(p, ']') ? 0 : lexer_fail(p, "] expected");
}

enum entry_key { KEY_UNKNOWN = 0, KEY_DTYPE = 1, KEY_SHAPE = 2, KEY_OFFSETS = 4, KEY_ALL = 7 };

static enum entry_key entry_key(const char *key)
{
    return strcmp(key, "dtype") == 0          ? KEY_DTYPE
           : strcmp(key, "shape") == 0        ? KEY_SHAPE
           : strcmp(key, "data_offsets") == 0 ? KEY_OFFSETS
                                              : KEY_UNKNOWN;
}

/* The value of one key of an entry. */
static int parse_entry_value(struct lexer *p, struct st_tensor *t, enum entry_key key)
{
    int64_t offsets[2] = {0, 0};
    const char *dtype = NULL;
    int n = 0;

    switch (key) {
    case KEY_DTYPE:
        TRY(lexer_string(p, &dtype));
        if (!st_dtype_from_name(dtype, &t->dtype)) {
            return FAIL(p->err, ERR_BAD_FILE, "%s: tensor %.*s has the unknown dtype %.40s",
                        p->file, NAME_SHOWN, t->name, dtype);
        }
        return 0;
    case KEY_SHAPE: return parse_sizes(p, t->shape, ST_DIMS_MAX, &t->dims);
    case KEY_OFFSETS:
        TRY(parse_sizes(p, offsets, 2, &n));
        if (n != 2) {
            return lexer_fail(p, "two offsets expected");
        }
        if (offsets[1] < offsets[0]) {
            return FAIL(p->err, ERR_BAD_FILE,
                        "%s: tensor %.*s ends at byte %lld before its begin %lld", p->file,
                        NAME_SHOWN, t->name, (long long)offsets[1], (long long)offsets[0]);
        }
        t->offset = (uint64_t)offsets[0];
        t->bytes = (uint64_t)(offsets[1] - offsets[0]);
        return 0;
    case KEY_UNKNOWN:
    case KEY_ALL: break;
    }
    return lexer_fail(p, "a key that is not dtype, shape or data_offsets");
}

/* Whether shape and dtype need just the bytes that the offsets give. */
static int check_shape(struct lexer *p, const struct st_tensor *t)
{
    int64_t count = 1;
    const int64_t size = (int64_t)st_dtype_size(t->dtype);

    for (int i = 0; i < t->dims; i++) {
        if (__builtin_mul_overflow(count, t->shape[i], &count)) {
            return FAIL(p->err, ERR_BAD_FILE, "%s: the shape of tensor %.*s overflows", p->file,
                        NAME_SHOWN, t->name);
        }
    }
    if (__builtin_mul_overflow(count, size, &count) || (uint64_t)count != t->bytes) {
        return FAIL(p->err, ERR_BAD_FILE,
                    "%s: tensor %.*s has %llu bytes, which do not hold its shape of %s", p->file,
                    NAME_SHOWN, t->name, (unsigned long long)t->bytes, st_dtype_name(t->dtype));
    }
    return 0;
}

/* A key and the colon behind it. */
static int parse_key(struct lexer *p, const char **key)
{
    TRY(lexer_string(p, key));
    return lexer_pass(p, ':') ? 0 : lexer_fail(p, ": expected");
}

/* One key of an entry and its value; `seen` has a bit for each that was there. */
static int parse_entry_member(struct lexer *p, struct st_tensor *t, unsigned *seen)
{
    const char *name = NULL;

    TRY(parse_key(p, &name));
    const enum entry_key key = entry_key(name);
    if ((*seen & key) != 0) {
        return FAIL(p->err, ERR_BAD_FILE, "%s: tensor %.*s has %s twice", p->file, NAME_SHOWN,
                    t->name, name);
    }
    *seen |= key;
    return parse_entry_value(p, t, key);
}

static int parse_entry(struct lexer *p, struct st_tensor *t)
{
    unsigned seen = 0;

    if (!lexer_pass(p, '{')) {
        return lexer_fail(p, "{ expected");
    }
    bool more = !lexer_pass(p, '}');
    while (more) {
        TRY(parse_entry_member(p, t, &seen));
        more = lexer_pass(p, ',');
        if (!more && !lexer_pass(p, '}')) {
            return lexer_fail(p, "} expected");
        }
    }
    if (seen != KEY_ALL) {
        return FAIL(p->err, ERR_BAD_FILE, "%s: tensor %.*s lacks dtype, shape or data_offsets",
                    p->file, NAME_SHOWN, t->name);
    }
    for (int i = t->dims; i < ST_DIMS_MAX; i++) {
        t->shape[i] = 1;
    }
    return check_shape(p, t);
}

/* Room for one more element of `size` bytes behind `count` of *array, which grows to the powers of
 * two. */
static int grow(struct lexer *p, void **array, int64_t count, size_t size)
{
    if (count != 0 && (count < 16 || (count & (count - 1)) != 0)) {
        return 0;
    }
    const size_t room = count == 0 ? 16 : 2 * (size_t)count;
    void *grown = reallocarray(*array, room, size);
    if (grown == NULL) {
        return FAIL(p->err, ERR_NO_MEMORY, "no memory for the header of %s", p->file);
    }
    *array = grown;
    return 0;
}

static int parse_metadata(struct lexer *p, struct st_header *h)
{
    if (!lexer_pass(p, '{')) {
        return lexer_fail(p, "__metadata__ must be an object of strings");
    }
    if (lexer_pass(p, '}')) {
        return 0;
    }
    do {
        void *array = h->metadata;
        TRY(grow(p, &array, h->metadata_count, sizeof *h->metadata));
        h->metadata = array;
        struct st_pair *pair = &h->metadata[h->metadata_count];
        TRY(parse_key(p, &pair->key));
        if (p->at == p->end || *p->at != '"') {
            return lexer_fail(p, "__metadata__ must be an object of strings");
        }
        TRY(lexer_string(p, &pair->value));
        h->metadata_count++;
    } while (lexer_pass(p, ','));
    return lexer_pass(p, '}') ? 0 : lexer_fail(p, "} expected");
}

/* One key of the header and its value: a tensor, or the metadata. */
static int parse_member(struct lexer *p, struct st_header *h, bool *has_metadata)
{
    const char *name = NULL;

    TRY(parse_key(p, &name));
    if (strcmp(name, "__metadata__") == 0) {
        if (*has_metadata) {
            return lexer_fail(p, "__metadata__ is there twice");
        }
        *has_metadata = true;
        return parse_metadata(p, h);
    }
    void *array = h->tensor;
    TRY(grow(p, &array, h->count, sizeof *h->tensor));
    h->tensor = array;
    h->tensor[h->count] = (struct st_tensor){.name = name};
    TRY(parse_entry(p, &h->tensor[h->count]));
    h->count++;
    return 0;
}

static int parse_object(struct lexer *p, struct st_header *h)
{
    bool has_metadata = false;

    if (p->at == p->end || *p->at != '{') {
        return lexer_fail(p, "it must begin with {");
    }
    (void)lexer_pass(p, '{');
    bool more = !lexer_pass(p, '}');
    while (more) {
        TRY(parse_member(p, h, &has_metadata));
        more = lexer_pass(p, ',');
        if (!more && !lexer_pass(p, '}')) {
            return lexer_fail(p, "} expected");
        }
    }
    return p->at == p->end ? 0 : lexer_fail(p, "something follows the object");
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int by_key(const void *a, const void *b)
{
    const struct st_pair *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* The data must be covered from its first to its last byte, each once; the tensors are sorted by
 * place. */
static int check_cover(struct lexer *p, struct st_header *h, uint64_t data_bytes)
{
    uint64_t end = 0;

    for (int64_t i = 0; i < h->count; i++) {
        const struct st_tensor *t = &h->tensor[i];
        if (t->offset != end) {
            return FAIL(p->err, ERR_BAD_FILE,
                        "%s: tensor %.*s begins at byte %llu of the data, where byte %llu is "
                        "next: %s",
                        p->file, NAME_SHOWN, t->name, (unsigned long long)t->offset,
                        (unsigned long long)end, t->offset < end ? "they overlap" : "a hole");
        }
        end += t->bytes; /* both below 2^63 */
        if (end > data_bytes) {
            return FAIL(p->err, ERR_BAD_FILE,
                        "%s: tensor %.*s ends at byte %llu of the data, which has %llu", p->file,
                        NAME_SHOWN, t->name, (unsigned long long)end,
                        (unsigned long long)data_bytes);
        }
    }
    if (end != data_bytes) {
        return FAIL(p->err, ERR_BAD_FILE, "%s: %llu bytes follow the last tensor", p->file,
                    (unsigned long long)(data_bytes - end));
    }
    return 0;
}

static int check_names(struct lexer *p, struct st_header *h)
{
    h->by_name = calloc((size_t)h->count + 1, sizeof(struct st_tensor *));
    if (h->by_name == NULL) {
        return FAIL(p->err, ERR_NO_MEMORY, "no memory for the header of %s", p->file);
    }
    for (int64_t i = 0; i < h->count; i++) {
        h->by_name[i] = &h->tensor[i];
    }
    qsort(h->by_name, (size_t)h->count, sizeof(struct st_tensor *), by_name);
    for (int64_t i = 1; i < h->count; i++) {
        if (strcmp(h->by_name[i - 1]->name, h->by_name[i]->name) == 0) {
            return FAIL(p->err, ERR_BAD_FILE, "%s: tensor %.*s is there twice", p->file, NAME_SHOWN,
                        h->by_name[i]->name);
        }
    }
    if (h->metadata_count > 0) {
        qsort(h->metadata, (size_t)h->metadata_count, sizeof *h->metadata, by_key);
    }
    for (int64_t i = 1; i < h->metadata_count; i++) {
        if (strcmp(h->metadata[i - 1].key, h->metadata[i].key) == 0) {
            return FAIL(p->err, ERR_BAD_FILE, "%s: __metadata__ has %.*s twice", p->file,
                        NAME_SHOWN, h->metadata[i].key);
        }
    }
    return 0;
}

int st_header_parse(struct st_header *out, char *text, size_t bytes, uint64_t data_bytes,
                    const char *file, struct err *err)
{
    struct lexer p = {.begin = text, .at = text, .end = text + bytes, .file = file, .err = err};

    *out = (struct st_header){.text = text};
    text[bytes] = '\0';
    int rc = lexer_check_utf8(&p);
    if (rc == 0) {
        rc = parse_object(&p, out);
    }
    if (rc == 0 && out->count > 0) {
        qsort(out->tensor, (size_t)out->count, sizeof *out->tensor, by_place);
    }
    if (rc == 0) {
        rc = check_names(&p, out);
    }
    if (rc == 0) {
        rc = check_cover(&p, out, data_bytes);
    }
    if (rc != 0) {
        st_header_fini(out);
    }
    return rc;
}

void st_header_fini(struct st_header *h)
{
    free(h->text);
    free(h->tensor);
    free(h->by_name);
    free(h->metadata);
    *h = (struct st_header){0};
}
