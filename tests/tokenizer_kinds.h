/* tokenizer_kinds.h - small tokenizers of every kind, made from tokenizer_kinds.def. */
#ifndef TESTS_TOKENIZER_KINDS_H
#define TESTS_TOKENIZER_KINDS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/tokenizer.h"

enum vocabulary { BYTES, PIECES };

enum { TEXTS_MAX = 12 };

static const struct kind {
    const char *name;
    enum vocabulary vocabulary;
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added, *model;
    struct {
        const char *text, *ids, *special, *decoded;
    } texts[TEXTS_MAX];
} kinds[] = {
#include "tests/tokenizer_kinds.def"
};

enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

/* Merges of the two vocabularies; what they make gets the ids behind the characters. */
static const char *const merges[][20] = {
    [BYTES] = {"h e", "l l", "he ll", "hell o", "\xC4\xA0 hello", "\xC4\xA0 w", "o r",
               "\xC4\xA0w or", "l d", "\xC4\xA0wor ld", "1 2", "12 3", "\xC4\xA0 \xC4\xA0",
               "\xC4\xA0\xC4\xA0 \xC4\xA0\xC4\xA0", "\xC4\x8A \xC4\x8A", "\xC3\x83 \xC2\xA9",
               "\xC4\xA0 a", "' s"},
    [PIECES] = {"\xE2\x96\x81 h", "e l", "el l", "ell o", "\xE2\x96\x81h ello",
                "\xE2\x96\x81 \xE2\x96\x81", "t h", "th e", "\xE2\x96\x81 the", "a b", "ab ab",
                "\xC3\xA9 a"},
};

static inline void put_token(FILE *f, const char *token, size_t n, int *id)
{
    (void)fprintf(f, "%s\"", *id == 0 ? "" : ",");
    for (size_t i = 0; i < n; i++) {
        (void)fprintf(f, token[i] == '"' || token[i] == '\\' ? "\\%c" : "%c", token[i]);
    }
    (void)fprintf(f, "\":%d", (*id)++);
}

static inline void put_vocabulary(FILE *f, enum vocabulary v)
{
    int id = 0;
    char s[8];

    for (uint32_t c = 0; v == BYTES && c < 0x144; c++) {
        if (char_to_byte(c) >= 0) {
            put_token(f, s, utf8_write(s, c), &id);
        }
    }
    if (v == PIECES) {
        put_token(f, "<unk>", 5, &id);
        put_token(f, "<s>", 3, &id);
        put_token(f, "</s>", 4, &id);
        for (unsigned b = 0; b < 256; b++) {
            (void)snprintf(s, sizeof s, "<0x%02X>", b);
            put_token(f, s, 6, &id);
        }
        put_token(f, "\xE2\x96\x81", 3, &id);
        for (const char *c = "abcdefghijklmnopqrstuvwxyz.,'"; *c != '\0'; c++) {
            put_token(f, c, 1, &id);
        }
        put_token(f, "\xC3\xA9", 2, &id);
    }
    for (int i = 0; merges[v][i] != NULL; i++) {
        char made[32];
        const char *space = strchr(merges[v][i], ' ');
        (void)snprintf(made, sizeof made, "%.*s%s", (int)(space - merges[v][i]), merges[v][i],
                       space + 1);
        put_token(f, made, strlen(made), &id);
    }
}

/* NULL, and a note, when it is refused. */
static inline struct tokenizer *make_kind(const struct kind *k)
{
    char *json = NULL;
    size_t n;
    FILE *f = open_memstream(&json, &n);
    struct tokenizer *t;
    struct err err = {0};

    CHECK(f != NULL, "no memory");
    (void)fprintf(f,
                  "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
                  "\"added_tokens\":%s,\"model\":{\"type\":\"BPE\"%s,\"vocab\":{",
                  k->normalizer, k->pre_tokenizer, k->post_processor, k->decoder, k->added,
                  k->model);
    put_vocabulary(f, k->vocabulary);
    (void)fprintf(f, "},\"merges\":[");
    for (int i = 0; merges[k->vocabulary][i] != NULL; i++) {
        (void)fprintf(f, "%s\"%s\"", i == 0 ? "" : ",", merges[k->vocabulary][i]);
    }
    (void)fprintf(f, "]}}");
    CHECK(fclose(f) == 0, "no memory");
    if (tokenizer_parse(&t, json, n, &err) != 0) {
        printf("# %s: %s\n", k->name, err.text);
    }
    free(json);
    return t;
}

static inline const struct kind *kind_named(const char *name)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            return &kinds[i];
        }
    }
    CHECK(false, "no kind %s", name);
}

#endif
