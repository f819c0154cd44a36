/* chars.c - what becomes of a character by itself. */
#include <utf8proc.h>

#include "trainer/tokenizer/rewriting.h"

enum { MADE_MAX = 8 }; /* bytes that a character becomes */

static bool is_mark(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
}

static bool is_nonspacing(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN;
}

/* Control, format, private and surrogate characters. */
static bool is_other(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO ||
           k == UTF8PROC_CATEGORY_CS;
}

static bool is_ideograph(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* The sets of the Nmt normalizer. */
static bool nmt_drops(uint32_t c)
{
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
}

static bool nmt_blanks(uint32_t c)
{
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
           (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
           c == 0xFEFF || c == 0xFFFD;
}

static size_t lower(uint32_t c, char made[MADE_MAX])
{
    if (c == 0x130) { /* the one character whose lower case is two */
        const size_t n = utf8_write(made, 'i');
        return n + utf8_write(made + n, 0x307);
    }
    return utf8_write(made, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static size_t clean(uint32_t c, char made[MADE_MAX])
{
    const bool blank = c == '\t' || c == '\n' || c == '\r';

    if (c == 0 || c == 0xFFFD || (!blank && is_other(c))) {
        return 0;
    }
    return utf8_write(made, blank || char_is_space(c) ? ' ' : c);
}

static size_t set_apart(uint32_t c, char made[MADE_MAX])
{
    if (!is_ideograph(c)) {
        return utf8_write(made, c);
    }
    made[0] = ' ';
    const size_t n = 1 + utf8_write(made + 1, c);
    made[n] = ' ';
    return n + 1;
}

/* The bytes that c becomes; 0: it goes. */
static size_t char_made(enum chars chars, uint32_t c, char made[MADE_MAX])
{
    switch (chars) {
    case CHARS_LOWER: return lower(c, made);
    case CHARS_NO_MARKS: return is_mark(c) ? 0 : utf8_write(made, c);
    case CHARS_NO_NONSPACING: return is_nonspacing(c) ? 0 : utf8_write(made, c);
    case CHARS_NMT: return nmt_drops(c) ? 0 : utf8_write(made, nmt_blanks(c) ? ' ' : c);
    case CHARS_CLEAN: return clean(c, made);
    case CHARS_IDEOGRAPHS: return set_apart(c, made);
    }
    return 0;
}

int chars_rewrite(struct rewriting *r, enum chars chars)
{
    const struct piece *p = r->p;
    char made[MADE_MAX];

    for (size_t i = 0; i < p->n;) {
        uint32_t c;
        const size_t wide = utf8_get(p->s + i, &c);
        TRY(rewriting_change(r, i, i + wide, made, char_made(chars, c, made)));
        i += wide;
    }
    return 0;
}
