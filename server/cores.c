/* cores.c - sets of cores: their text, and what is in them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "server/machine.h"

bool cores_has(const struct cores *c, int core)
{
    return core >= 0 && core < DEVICE_CORES && ((c->word[core / 64] >> (core % 64)) & 1) != 0;
}

void cores_add(struct cores *c, int core)
{
    if (core >= 0 && core < DEVICE_CORES) {
        c->word[core / 64] |= UINT64_C(1) << (core % 64);
    }
}

int cores_count(const struct cores *c)
{
    int n = 0;

    for (int i = 0; i < DEVICE_CORES / 64; i++) {
        n += __builtin_popcountll(c->word[i]);
    }
    return n;
}

void cores_keep(struct cores *c, const struct cores *only)
{
    for (int i = 0; i < DEVICE_CORES / 64; i++) {
        c->word[i] &= only->word[i];
    }
}

void cores_join(struct cores *c, const struct cores *other)
{
    for (int i = 0; i < DEVICE_CORES / 64; i++) {
        c->word[i] |= other->word[i];
    }
}

void cores_text(char *out, size_t size, const struct cores *c)
{
    size_t n = 0;
    int first = 0;

    out[0] = '\0';
    while (first < DEVICE_CORES) {
        int last = first;
        if (!cores_has(c, first)) {
            first++;
            continue;
        }
        while (cores_has(c, last + 1)) {
            last++;
        }
        char part[32];
        (void)snprintf(part, sizeof part, last > first ? "%s%d-%d" : "%s%d", n > 0 ? "," : "",
                       first, last);
        if (n + strlen(part) >= size) {
            return;
        }
        n += (size_t)snprintf(out + n, size - n, "%s", part);
        first = last + 1;
    }
}

/* A number below DEVICE_CORES; -1 for anything else. */
static int take_core(const char **at)
{
    int n = 0, digits = 0;

    while (isdigit((unsigned char)**at) && n < DEVICE_CORES) {
        n = 10 * n + (**at - '0');
        ++*at;
        digits++;
    }
    return digits > 0 && n < DEVICE_CORES ? n : -1;
}

static const char *skip_blanks(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
    }
    return at;
}

int cores_parse(struct cores *out, const char *text, struct err *err)
{
    const char *at = skip_blanks(text);
    struct cores found = {0};

    while (*at != '\0') {
        const int first = take_core(&at);
        int last = first;
        if (first >= 0 && *at == '-') {
            at++;
            last = take_core(&at);
        }
        if (first < 0 || last < first) {
            return FAIL(err, ERR_BAD_FILE,
                        "a set of cores is written like 0-3,8, with numbers below %d",
                        DEVICE_CORES);
        }
        for (int c = first; c <= last; c++) {
            cores_add(&found, c);
        }
        at = skip_blanks(at);
        if (*at == ',') {
            at++;
        } else if (*at != '\0') {
            return FAIL(err, ERR_BAD_FILE, "a set of cores is written like 0-3,8");
        }
    }
    *out = found;
    return 0;
}
