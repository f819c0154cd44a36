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

struct piece piece_part(const struct piece *p, size_t start, size_t end)
{
    return (struct piece){.s = p->s + start,
                          .n = end - start,
                          .ends = p->ends != NULL ? p->ends + start : NULL,
                          .raw = p->raw + start,
                          .at_start = p->at_start && start == 0,
                          .continued = p->continued && start == 0};
}

/* A text on its way from p to out, left to right; seams and ends follow. */
struct rewriting {
    const struct piece *p;
    struct text *out;
    struct followed follow;
    size_t next_seam, kept_seams;
    struct err *err;
};

/* Seams of [from, to), which begins in OUT at its end now. */
static void move_seams(struct rewriting *r, size_t from, size_t to, bool unchanged)
{
    struct seam_list *l = r->follow.seams;

    while (l != NULL && r->next_seam < l->count && l->at[r->next_seam].at < to) {
        struct seam s = l->at[r->next_seam++];
        if (s.at == from || (unchanged && s.at > from)) {
            s.at = s.at - from + r->out->n;
            l->at[r->kept_seams++] = s;
        }
    }
}

/* [from, to) goes to OUT as it is. */
static int keep(struct rewriting *r, size_t from, size_t to)
{
    move_seams(r, from, to, true);
    for (size_t i = from; r->follow.ends != NULL && i < to; i++) {
        TRY(place_list_put(r->follow.ends, piece_end(r->p, i + 1), r->err));
    }
    return text_put(r->out, r->p->s + from, to - from, r->err);
}

/* [from, to) becomes s[0..n): a seam inside is lost, one at its start stays; all of s ends where what it
 * came from does, or begins, when it came from nothing. */
static int change(struct rewriting *r, size_t from, size_t to, const char *s, size_t n)
{
    const size_t last = to > from ? to : from > 0 ? from : 1;

    move_seams(r, from, to, false);
    for (size_t i = 0; r->follow.ends != NULL && i < n; i++) {
        const size_t end = r->p->n == 0 ? r->p->raw : piece_end(r->p, last);
        TRY(place_list_put(r->follow.ends, end, r->err));
    }
    return text_put(r->out, s, n, r->err);
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

/* [from, to) has the form w[0..n). */
static int put_formed(struct rewriting *r, size_t from, size_t to, const char *w, size_t n)
{
    const bool same = n == to - from && memcmp(w, r->p->s + from, n) == 0;
    return same ? keep(r, from, to) : change(r, from, to, w, n);
}

/* Where the part that starts at `from` ends: before a character that starts anew (combining class 0). */
static size_t part_end(const char *s, size_t from, size_t to)
{
    uint32_t c;

    for (from += utf8_get(s + from, &c); from < to; from += utf8_get(s + from, &c)) {
        (void)utf8_get(s + from, &c);
        if (utf8proc_get_property((utf8proc_int32_t)c)->combining_class == 0) {
            break;
        }
    }
    return from;
}

/* The form of [from, to) part by part, so that the ends are those of characters: parts are joined while
 * they combine, which shows in that the form of both is not both forms. */
static int put_parts(struct rewriting *r, enum form form, size_t from, size_t to)
{
    const char *s = r->p->s;
    struct text made = {0}, both = {0};
    size_t end = part_end(s, from, to);
    int rc = put_form(form, s + from, end - from, &made, r->err);

    while (rc == 0 && end < to) {
        const size_t next = part_end(s, end, to), n = made.n;
        both.n = 0;
        rc = put_form(form, s + from, next - from, &both, r->err);
        if (rc == 0) {
            rc = put_form(form, s + end, next - end, &made, r->err);
        }
        if (rc == 0 && both.n == made.n && memcmp(both.at, made.at, made.n) == 0) {
            rc = put_formed(r, from, end, made.at, n);
            made.n -= n;
            memmove(made.at, made.at + n, made.n);
            from = end;
        } else if (rc == 0) {
            made.n = 0;
            rc = text_put(&made, both.at, both.n, r->err);
        }
        end = next;
    }
    if (rc == 0) {
        rc = put_formed(r, from, end, made.at, made.n);
    }
    text_free(&made);
    text_free(&both);
    return rc;
}

/* The form of the stretch [from, to). A seam at its start stays if an inert character is there: nothing
 * before it takes part. */
static int put_stretch(struct rewriting *r, enum form form, size_t from, size_t to)
{
    struct text made = {0};
    uint32_t c;

    if (r->follow.ends != NULL) {
        return put_parts(r, form, from, to);
    }
    (void)utf8_get(r->p->s + from, &c);
    if (!is_inert(form, c)) {
        move_seams(r, SIZE_MAX, to, false);
    }
    int rc = put_form(form, r->p->s + from, to - from, &made, r->err);
    if (rc == 0) {
        rc = change(r, from, to, made.at, made.n);
    }
    text_free(&made);
    return rc;
}

/* Copy what is inert; give utf8proc each stretch that is not, with the character before it, which may be
 * what it combines with. */
static int rewrite_form(struct rewriting *r, enum form form)
{
    const struct piece *p = r->p;
    size_t done = 0;

    for (size_t i = 0, before = 0; i < p->n;) {
        uint32_t c;
        const size_t wide = utf8_get(p->s + i, &c);
        if (is_inert(form, c)) {
            before = i;
            i += wide;
            continue;
        }
        const size_t start = before > done ? before : done;
        TRY(keep(r, done, start));
        for (i += wide; i < p->n; i += utf8_get(p->s + i, &c)) {
            (void)utf8_get(p->s + i, &c);
            if (is_inert(form, c)) {
                break;
            }
        }
        TRY(put_stretch(r, form, start, i));
        done = i;
        before = i;
    }
    return keep(r, done, p->n);
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
        TRY(change(r, 0, 0, s->with.at, s->with.n));
    }
    return keep(r, 0, p->n);
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
        TRY(keep(r, done, start));
        TRY(change(r, start, end, s->with.at, s->with.n));
        done = end;
    }
    return keep(r, done, whole.n);
}

static int rewrite_bytes(struct rewriting *r)
{
    char s[4];

    TRY(text_reserve(r->out, 2 * r->p->n, r->err));
    for (size_t i = 0; i < r->p->n; i++) {
        const size_t wide = utf8_write(s, byte_to_char((unsigned char)r->p->s[i]));
        TRY(change(r, i, i + 1, s, wide));
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
    case STEP_FORM: rc = rewrite_form(&r, s->form); break;
    case STEP_PREPEND: rc = rewrite_prepend(&r, s); break;
    case STEP_REPLACE: rc = rewrite_replace(&r, s, w); break;
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
