/* err.c - readers of err.def. */
#include "trainer/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *word, *title;
    int http, exit;
} table[ERR_COUNT] = {
    [ERR_NONE] = {"NONE", "", "no error", 200, 0},
#define ERR(code, http, exit, word, title) [ERR_##code] = {#code, word, title, http, exit},
#include "trainer/base/err.def"
};

/* Cut a text that filled its buffer before the first byte of a character that does not fit. */
static void trim_utf8(char *text)
{
    size_t n = strlen(text), back = 0;

    while (back < n && back < 4 && ((unsigned char)text[n - 1 - back] & 0xC0U) == 0x80U) {
        back++;
    }
    if (back == n) {
        return;
    }
    const unsigned char lead = (unsigned char)text[n - 1 - back];
    const size_t want = lead >= 0xF0U ? 3 : lead >= 0xE0U ? 2 : lead >= 0xC0U ? 1 : 0;
    if (back < want) {
        text[n - 1 - back] = '\0';
    }
}

void err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    e->code = code;
    e->param[0] = '\0';
    va_start(ap, fmt);
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    trim_utf8(e->text);
}

void err_about(struct err *e, const char *field)
{
    (void)snprintf(e->param, sizeof e->param, "%s", field);
}

const char *err_name(enum err_code code)
{
    return table[code].name;
}

const char *err_word(enum err_code code)
{
    return table[code].word;
}

const char *err_title(enum err_code code)
{
    return table[code].title;
}

int err_http(enum err_code code)
{
    return table[code].http;
}

int err_exit(enum err_code code)
{
    return table[code].exit;
}

enum err_code err_from_exit(int status)
{
    for (int i = 1; i < ERR_COUNT; i++) {
        if (table[i].exit == status) {
            return (enum err_code)i;
        }
    }
    return ERR_INTERNAL;
}

enum err_code err_from_word(const char *word)
{
    for (int i = 1; i < ERR_COUNT; i++) {
        if (strcmp(table[i].word, word) == 0) {
            return (enum err_code)i;
        }
    }
    return ERR_INTERNAL;
}
