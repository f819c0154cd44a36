/* jinja_case.c - upper, lower and title case of whole strings, as Python has them. */
#include <utf8proc.h>

#include "trainer/chat/jinja_text.h"
#include "trainer/tokenizer/utf8.h"

enum { BYTES_MAX = 16 }; /* of what one character becomes */

struct case_row {
    uint32_t c;
    const char *upper, *title;
};

static const struct case_row rows[] = {
#define CASE(c, upper, title) {c, upper, title},
#include "trainer/chat/jinja_case.def"
};

static const struct case_row *special(uint32_t c)
{
    for (size_t i = 0; c >= rows[0].c && i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].c == c) {
            return &rows[i];
        }
    }
    return NULL;
}

static bool is_cased(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

/* Characters that do not count when what stands beside a letter is looked for. */
static bool is_ignored(uint32_t c)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
           category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
           category == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7;
}

/* Does the capital sigma that ends at `end` end a word? Then its small form is another. */
static bool ends_word(const struct jinja_text *t, size_t begin, size_t end)
{
    bool before = false;
    uint32_t c;

    while (begin > 0) {
        begin = utf8_back(t->at, begin);
        (void)utf8_get(t->at + begin, &c);
        if (!is_ignored(c)) {
            before = is_cased(c);
            break;
        }
    }
    while (before && end < t->n) {
        end += utf8_get(t->at + end, &c);
        if (!is_ignored(c)) {
            return !is_cased(c);
        }
    }
    return before;
}

enum form { FORM_UPPER, FORM_LOWER, FORM_TITLE };

/* The character at [begin, end) in another case; returns the bytes written. */
static size_t write_case(char to[BYTES_MAX], const struct jinja_text *t, size_t begin, size_t end,
                         enum form form)
{
    uint32_t c;
    (void)utf8_get(t->at + begin, &c);
    const struct case_row *row = form == FORM_LOWER ? NULL : special(c);
    const utf8proc_int32_t x = (utf8proc_int32_t)c;

    if (row != NULL) {
        const char *text = form == FORM_UPPER ? row->upper : row->title;
        size_t n = 0;
        for (; text[n] != '\0'; n++) {
            to[n] = text[n];
        }
        return n;
    }
    if (form == FORM_LOWER && c == 0x130) { /* I with a dot: i and the dot */
        return utf8_write(to, 'i') + utf8_write(to + 1, 0x307);
    }
    if (form == FORM_LOWER && c == 0x3A3) {
        return utf8_write(to, ends_word(t, begin, end) ? 0x3C2 : 0x3C3);
    }
    return utf8_write(to, (uint32_t)(form == FORM_UPPER   ? utf8proc_toupper(x)
                                     : form == FORM_LOWER ? utf8proc_tolower(x)
                                                          : utf8proc_totitle(x)));
}

int jinja_change_case(struct jinja *j, struct jinja_value v, enum jinja_case to,
                      struct jinja_value *out)
{
    const struct jinja_text *t = v.as.text;
    const struct jinja_tag tag = jinja_text_tag(v);
    struct jinja_out o = {0};
    bool in_word = false;
    char bytes[BYTES_MAX];
    uint32_t c;

    TRY(jinja_step(j, (int64_t)(t->n / 4)));
    for (size_t at = 0, n; at < t->n; at += n) {
        n = utf8_get(t->at + at, &c);
        const enum form form = to == JINJA_UPPER              ? FORM_UPPER
                               : to == JINJA_LOWER || in_word ? FORM_LOWER
                                                              : FORM_TITLE;
        in_word = to == JINJA_TITLE ? is_cased(c) : true;
        TRY(jinja_out_put(j, &o, bytes, write_case(bytes, t, at, at + n, form), tag));
    }
    return jinja_out_value(j, &o, out);
}
