/* steps.c - the text steps of normalizers and pre-tokenizers. */
#include "trainer/tokenizer/steps.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "trainer/tokenizer/bpe.h"

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
    }
    free(l->at);
    *l = (struct step_list){0};
}

bool step_keeps_seams(const struct step *s)
{
    switch (s->kind) {
    case STEP_FORM:
    case STEP_PREPEND:
    case STEP_BYTES: return true;
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

/* Walks the seams once while a text is rewritten from left to right. */
struct mover {
    struct seam_list *l; /* NULL: nothing to do */
    size_t next, kept;
};

/* Unchanged text [from, to) went to OUT at `out`. */
static void move_along(struct mover *m, size_t from, size_t to, size_t out)
{
    while (m->l != NULL && m->next < m->l->count && m->l->at[m->next].at < to) {
        struct seam s = m->l->at[m->next++];
        if (s.at >= from) {
            s.at = s.at - from + out;
            m->l->at[m->kept++] = s;
        }
    }
}

/* What is rewritten ends before `to`: a seam inside is lost, one at its start stays. */
static void move_over(struct mover *m, size_t from, size_t to, size_t out)
{
    while (m->l != NULL && m->next < m->l->count && m->l->at[m->next].at < to) {
        struct seam s = m->l->at[m->next++];
        if (s.at == from) {
            s.at = out;
            m->l->at[m->kept++] = s;
        }
    }
}

static void move_end(struct mover *m)
{
    if (m->l != NULL) {
        m->l->count = m->kept;
    }
}

static const utf8proc_option_t form_options[] = {
    [FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

/* Does c stay as it is in this form, whatever stands before it? Every other character may combine. */
static bool is_inert(enum form form, uint32_t c)
{
    if (c < 0x80 || (form == FORM_NFC && c < 0x300)) {
        return true;
    }
    if ((c >= 0x4E00 && c <= 0x9FFF) || c == 0x3001 || c == 0x3002) {
        return true; /* ideographs and their stops */
    }
    if (c >= 0xAC00 && c <= 0xD7A3) {
        return form == FORM_NFC || form == FORM_NFKC; /* Hangul syllables */
    }
    if ((c >= 0x1100 && c <= 0x11FF) || (c >= 0xD7B0 && c <= 0xD7FF)) {
        return false; /* Hangul letters compose by rule */
    }
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    if (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME) {
        return false;
    }
    utf8proc_int32_t parts[4];
    return utf8proc_decompose_char((utf8proc_int32_t)c, parts, 4, form_options[form], NULL) == 1 &&
           parts[0] == (utf8proc_int32_t)c;
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
            inert = is_inert(l->at[i].form, c);
        }
    }
    return end;
}

static int put_form(enum form form, const char *s, size_t n, struct text *out, struct err *err)
{
    utf8proc_uint8_t *formed = NULL;

    const utf8proc_ssize_t got =
        utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &formed, form_options[form]);
    if (got < 0) {
        return FAIL(err, ERR_NO_MEMORY, "normalizing a text failed: %s", utf8proc_errmsg(got));
    }
    const int rc = text_put(out, (const char *)formed, (size_t)got, err);
    free(formed);
    return rc;
}

/* Copy what is inert; give utf8proc each stretch that is not, with the character before it, which may be
 * what it combines with. */
static int rewrite_form(const struct step *s, const struct piece *p, struct text *out,
                        struct mover *m, struct err *err)
{
    size_t done = 0;

    for (size_t i = 0, before = 0; i < p->n;) {
        uint32_t c;
        const size_t wide = utf8_get(p->s + i, &c);
        if (is_inert(s->form, c)) {
            before = i;
            i += wide;
            continue;
        }
        const size_t start = before > done ? before : done;
        move_along(m, done, start, out->n);
        TRY(text_put(out, p->s + done, start - done, err));
        for (i += wide; i < p->n; i += utf8_get(p->s + i, &c)) {
            (void)utf8_get(p->s + i, &c);
            if (is_inert(s->form, c)) {
                break;
            }
        }
        /* A seam at `start` stays if an inert character is there: nothing before it takes part. */
        (void)utf8_get(p->s + start, &c);
        move_over(m, is_inert(s->form, c) ? start : SIZE_MAX, i, out->n);
        TRY(put_form(s->form, p->s + start, i - start, out, err));
        done = i;
        before = i;
    }
    move_along(m, done, p->n, out->n);
    return text_put(out, p->s + done, p->n - done, err);
}

static bool starts_with(const struct piece *p, const struct text *t)
{
    return p->n >= t->n && (t->n == 0 || memcmp(p->s, t->at, t->n) == 0);
}

static int rewrite_prepend(const struct step *s, const struct piece *p, struct text *out,
                           struct mover *m, struct err *err)
{
    const bool there = s->unless_there && starts_with(p, &s->with);

    if (p->n > 0 && !p->continued && !there && (p->at_start || !s->at_start_only)) {
        TRY(text_put(out, s->with.at, s->with.n, err));
    }
    move_along(m, 0, p->n, out->n);
    return text_put(out, p->s, p->n, err);
}

static int rewrite_replace(const struct step *s, struct regex_work *w, const struct piece *p,
                           struct text *out, struct mover *m, struct err *err)
{
    size_t from = 0, last = SIZE_MAX, start, end, done = 0;
    struct piece whole = *p;

    whole.open = false; /* patterns that could see beyond the end are not used on open text */
    for (;;) {
        const enum regex_found f = step_find(s, w, &whole, &from, &last, &start, &end, err);
        if (f == REGEX_FAILED) {
            return (int)err->code;
        }
        if (f != REGEX_MATCH) {
            break;
        }
        move_along(m, done, start, out->n);
        TRY(text_put(out, p->s + done, start - done, err));
        move_over(m, start, end, out->n);
        TRY(text_put(out, s->with.at, s->with.n, err));
        done = end;
    }
    move_along(m, done, p->n, out->n);
    return text_put(out, p->s + done, p->n - done, err);
}

static int rewrite_bytes(const struct piece *p, struct text *out, struct mover *m, struct err *err)
{
    TRY(text_reserve(out, 2 * p->n, err));
    for (size_t i = 0; i < p->n; i++) {
        move_along(m, i, i + 1, out->n);
        out->n += utf8_write(out->at + out->n, byte_to_char((unsigned char)p->s[i]));
    }
    return 0;
}

int step_rewrite(const struct step *s, struct regex_work *w, const struct piece *p,
                 struct text *out, struct seam_list *seams, struct err *err)
{
    struct mover m = {.l = seams};
    int rc = 0;

    out->n = 0;
    TRY(text_reserve(out, p->n + 1, err));
    switch (s->kind) {
    case STEP_FORM: rc = rewrite_form(s, p, out, &m, err); break;
    case STEP_PREPEND: rc = rewrite_prepend(s, p, out, &m, err); break;
    case STEP_REPLACE: rc = rewrite_replace(s, w, p, out, &m, err); break;
    case STEP_BYTES: rc = rewrite_bytes(p, out, &m, err); break;
    case STEP_SPLIT: break;
    }
    move_end(&m);
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
