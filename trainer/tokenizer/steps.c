/* steps.c - the text steps of normalizers and pre-tokenizers. */
#include "trainer/tokenizer/steps.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/rewriting.h"

int step_list_add(struct step_list *l, enum step_kind kind, struct step **out, struct err *err)
{
    if (l->count == l->room) {
        const size_t room = l->room == 0 ? 8 : l->room * 2;
        struct step *at = realloc(l->at, room * sizeof *at);
        if (at == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a tokenizer");
        }
        l->at = at;
        l->room = room;
    }
    *out = &l->at[l->count++];
    **out = (struct step){.kind = kind};
    return 0;
}

void step_list_free(struct step_list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        regex_free(l->at[i].regex);
        text_free(&l->at[i].literal);
        text_free(&l->at[i].with);
        charsmap_free(l->at[i].charsmap);
    }
    free(l->at);
    *l = (struct step_list){0};
}

bool step_keeps_seams(const struct step *s)
{
    switch (s->kind) {
    case STEP_FORM:
    case STEP_PREPEND:
    case STEP_CHARS:
    case STEP_BYTES: return true;
    case STEP_STRIP:
    case STEP_CHARSMAP: return false;
    case STEP_REPLACE: {
        uint32_t c;
        return s->regex == NULL && s->literal.n > 0 && utf8_get(s->literal.at, &c) == s->literal.n;
    }
    case STEP_SPLIT: return s->regex == NULL || !regex_looks_behind(s->regex);
    }
    return false;
}

int seam_list_put(struct seam_list *l, struct seam s, struct err *err)
{
    if (l->count == l->room) {
        const size_t room = l->room == 0 ? 256 : l->room * 2;
        struct seam *at = realloc(l->at, room * sizeof *at);
        if (at == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory to cut a text");
        }
        l->at = at;
        l->room = room;
    }
    l->at[l->count++] = s;
    return 0;
}

struct piece piece_part(const struct piece *p, size_t start, size_t end)
{
    return (struct piece){.s = p->s + start,
                          .n = end - start,
                          .ends = p->ends != NULL ? p->ends + start : NULL,
                          .raw = p->raw + start,
                          .at_start = p->at_start && start == 0,
                          .continued = p->continued && start == 0};
}

size_t char_start(const char *s, size_t n, size_t at)
{
    while (at > 0 && at < n && ((unsigned char)s[at] & 0xC0U) == 0x80U) {
        at--;
    }
    return at;
}

size_t step_list_fixed(const struct step_list *l, const char *text, size_t n, size_t end)
{
    end = char_start(text, n, end);
    for (size_t i = 0; i < l->count; i++) {
        bool inert = l->at[i].kind != STEP_FORM;
        while (!inert && end > 0) {
            uint32_t c;
            end = utf8_back(text, end);
            (void)utf8_get(text + end, &c);
            inert = form_is_inert(l->at[i].form, c);
        }
    }
    return end;
}

static bool starts_with(const struct piece *p, const struct text *t)
{
    return p->n >= t->n && (t->n == 0 || memcmp(p->s, t->at, t->n) == 0);
}

/* What is put in front belongs to the first byte. */
static int rewrite_prepend(struct rewriting *r, const struct step *s)
{
    const struct piece *p = r->p;
    const bool there = s->unless_there && starts_with(p, &s->with);

    if (p->n > 0 && !p->continued && !there && (p->at_start || !s->at_start_only)) {
        TRY(rewriting_change(r, 0, 0, s->with.at, s->with.n));
    }
    return rewriting_keep(r, 0, p->n);
}

static int rewrite_replace(struct rewriting *r, const struct step *s, struct regex_work *w)
{
    size_t from = 0, last = SIZE_MAX, start, end, done = 0;
    struct piece whole = *r->p;

    whole.open = false; /* patterns that could see beyond the end are not used on open text */
    for (;;) {
        const enum regex_found f = step_find(s, w, &whole, &from, &last, &start, &end, r->err);
        if (f == REGEX_FAILED) {
            return (int)r->err->code;
        }
        if (f != REGEX_MATCH) {
            break;
        }
        TRY(rewriting_keep(r, done, start));
        TRY(rewriting_change(r, start, end, s->with.at, s->with.n));
        done = end;
    }
    return rewriting_keep(r, done, whole.n);
}

/* White space off the ends. */
static int rewrite_strip(struct rewriting *r, const struct step *s)
{
    const struct piece *p = r->p;
    size_t start = 0, end = p->n;
    uint32_t c;

    while (s->strip_start && start < end) {
        const size_t wide = utf8_get(p->s + start, &c);
        if (!char_is_space(c)) {
            break;
        }
        start += wide;
    }
    while (s->strip_end && end > start) {
        const size_t before = utf8_back(p->s, end);
        (void)utf8_get(p->s + before, &c);
        if (!char_is_space(c)) {
            break;
        }
        end = before;
    }
    return rewriting_keep(r, start, end);
}

static int rewrite_bytes(struct rewriting *r)
{
    char s[4];

    TRY(text_reserve(r->out, 2 * r->p->n, r->err));
    for (size_t i = 0; i < r->p->n; i++) {
        const size_t wide = utf8_write(s, byte_to_char((unsigned char)r->p->s[i]));
        TRY(rewriting_change(r, i, i + 1, s, wide));
    }
    return 0;
}

int step_rewrite(const struct step *s, struct regex_work *w, const struct piece *p,
                 struct text *out, struct followed follow, struct err *err)
{
    struct rewriting r = {.p = p, .out = out, .follow = follow, .err = err};
    int rc = 0;

    out->n = 0;
    if (follow.ends != NULL) {
        follow.ends->count = 0;
    }
    TRY(text_reserve(out, p->n + 1, err));
    switch (s->kind) {
    case STEP_FORM: rc = form_rewrite(&r, s->form); break;
    case STEP_PREPEND: rc = rewrite_prepend(&r, s); break;
    case STEP_REPLACE: rc = rewrite_replace(&r, s, w); break;
    case STEP_STRIP: rc = rewrite_strip(&r, s); break;
    case STEP_CHARS: rc = chars_rewrite(&r, s->chars); break;
    case STEP_CHARSMAP: rc = charsmap_rewrite(&r, s->charsmap); break;
    case STEP_BYTES: rc = rewrite_bytes(&r); break;
    case STEP_SPLIT: break;
    }
    if (follow.seams != NULL) {
        follow.seams->count = r.kept_seams;
    }
    return rc;
}

static enum regex_found find_literal(const struct step *s, const struct piece *p, size_t from,
                                     size_t *start, size_t *end)
{
    const char *at = from < p->n && s->literal.n > 0
                         ? memmem(p->s + from, p->n - from, s->literal.at, s->literal.n)
                         : NULL;
    if (at == NULL) {
        return REGEX_NONE;
    }
    *start = (size_t)(at - p->s);
    *end = *start + s->literal.n;
    return REGEX_MATCH;
}

enum regex_found step_find(const struct step *s, struct regex_work *w, const struct piece *p,
                           size_t *from, size_t *last, size_t *start, size_t *end, struct err *err)
{
    const struct regex_text text = {.s = p->s, .n = p->n, .open = p->open};

    while (*from <= p->n) {
        const enum regex_found f = s->regex == NULL
                                       ? find_literal(s, p, *from, start, end)
                                       : regex_find(s->regex, w, &text, *from, start, end, err);
        if (f != REGEX_MATCH) {
            return f;
        }
        if (*start == *end && *last == *end) {
            uint32_t c;
            *from += *from < p->n ? utf8_get(p->s + *from, &c) : 1;
            continue;
        }
        *from = *end;
        *last = *end;
        return REGEX_MATCH;
    }
    return REGEX_NONE;
}
