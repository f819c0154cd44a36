/* forms.c - Unicode normal forms, of what they change only. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "trainer/tokenizer/rewriting.h"

static const utf8proc_option_t form_options[] = {
    [FORM_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
    [FORM_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
    [FORM_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
    [FORM_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
};

/* Does c stay as it is in this form, whatever stands before it? Every other character may combine. */
bool form_is_inert(enum form form, uint32_t c)
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
    return same ? rewriting_keep(r, from, to) : rewriting_change(r, from, to, w, n);
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
    if (!form_is_inert(form, c)) {
        rewriting_lose_seams(r, to);
    }
    int rc = put_form(form, r->p->s + from, to - from, &made, r->err);
    if (rc == 0) {
        rc = rewriting_change(r, from, to, made.at, made.n);
    }
    text_free(&made);
    return rc;
}

/* Copy what is inert; give utf8proc each stretch that is not, with the character before it, which may be
 * what it combines with. */
int form_rewrite(struct rewriting *r, enum form form)
{
    const struct piece *p = r->p;
    size_t done = 0;

    for (size_t i = 0, before = 0; i < p->n;) {
        uint32_t c;
        const size_t wide = utf8_get(p->s + i, &c);
        if (form_is_inert(form, c)) {
            before = i;
            i += wide;
            continue;
        }
        const size_t start = before > done ? before : done;
        TRY(rewriting_keep(r, done, start));
        for (i += wide; i < p->n; i += utf8_get(p->s + i, &c)) {
            (void)utf8_get(p->s + i, &c);
            if (form_is_inert(form, c)) {
                break;
            }
        }
        TRY(put_stretch(r, form, start, i));
        done = i;
        before = i;
    }
    return rewriting_keep(r, done, p->n);
}
