/* ramp.c - batch size schedules. */
#include "trainer/ramp.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char field[] = "batch_size_schedule";

/* Digits, with a suffix where `suffixed`; false when it is not, or not below 2^53. */
static bool read_number(const char **at, bool suffixed, int64_t *out)
{
    static const char letters[] = "KMBT";
    const int64_t most = INT64_C(1) << 53;
    int64_t n = 0;

    if (!isdigit((unsigned char)**at)) {
        return false;
    }
    for (; isdigit((unsigned char)**at) && n <= most; (*at)++) {
        n = 10 * n + (**at - '0');
    }
    const char *letter =
        suffixed && **at != '\0' ? strchr(letters, toupper((unsigned char)**at)) : NULL;
    for (long i = letter == NULL ? 0 : letter - letters + 1; i > 0 && n <= most; i--) {
        n *= 1000;
    }
    *at += letter != NULL ? 1 : 0;
    *out = n;
    return n <= most;
}

static int read_entry(struct ramp *r, const char **at, struct err *err)
{
    int64_t *tokens = &r->tokens[r->count], *size = &r->size[r->count];

    if (!read_number(at, true, tokens) || *(*at)++ != ':' || !read_number(at, false, size) ||
        (**at != '\0' && **at != ' ')) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "entry %d of batch_size_schedule is not TOKENS:SAMPLES, like 0:16 or "
                          "10M:64, with spaces between them",
                          r->count + 1);
    }
    if (*size < 1 || *size > RAMP_BATCH) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "batch_size_schedule has steps of %lld samples: 1 to %d are possible",
                          (long long)*size, RAMP_BATCH);
    }
    if (r->count == 0 && *tokens != 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "batch_size_schedule begins at %lld tokens, it must begin at 0",
                          (long long)*tokens);
    }
    if (r->count > 0 && *tokens <= tokens[-1]) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                          "batch_size_schedule goes from %lld tokens to %lld: each must be more "
                          "than the one before",
                          (long long)tokens[-1], (long long)*tokens);
    }
    r->count++;
    return 0;
}

int ramp_read(struct ramp *out, const char *text, int64_t size, int64_t sequence, struct err *err)
{
    *out = (struct ramp){.sequence = sequence};
    if (text[0] == '\0') {
        out->count = 1;
        out->size[0] = size;
        return 0;
    }
    for (const char *at = text; *at != '\0';) {
        if (*at == ' ') {
            at++;
            continue;
        }
        if (out->count == RAMP_MOST) {
            return FAIL_PARAM(err, ERR_BAD_SPEC, field,
                              "batch_size_schedule has more than %d entries", RAMP_MOST);
        }
        TRY(read_entry(out, &at, err));
    }
    if (out->count == 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, field, "batch_size_schedule is empty");
    }
    return 0;
}

/* The sample on which a threshold falls: the first that begins at or behind it. */
static int64_t begin_of(const struct ramp *r, int i)
{
    return r->tokens[i] / r->sequence + (r->tokens[i] % r->sequence != 0);
}

static int entry_at(const struct ramp *r, int64_t consumed)
{
    int i = 0;

    while (i + 1 < r->count && begin_of(r, i + 1) <= consumed) {
        i++;
    }
    return i;
}

int64_t ramp_at(const struct ramp *r, int64_t consumed)
{
    return r->size[entry_at(r, consumed)];
}

int64_t ramp_largest(const struct ramp *r)
{
    int64_t most = 0;

    for (int i = 0; i < r->count; i++) {
        most = r->size[i] > most ? r->size[i] : most;
    }
    return most;
}

int64_t ramp_divisor(const struct ramp *r)
{
    int64_t a = 0;

    for (int i = 0; i < r->count; i++) {
        for (int64_t b = r->size[i]; b != 0;) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
    }
    return a;
}

/* From *samples on, steps of one size up to the next threshold or as far as the two limits let it go. Returns how many. */
static int64_t walk(const struct ramp *r, int64_t *samples, int64_t most_steps,
                    int64_t most_samples)
{
    const int i = entry_at(r, *samples);
    int64_t end = most_samples;

    if (i + 1 < r->count && begin_of(r, i + 1) < end) {
        end = begin_of(r, i + 1);
    }
    int64_t steps = (end - *samples) / r->size[i] + ((end - *samples) % r->size[i] != 0);
    steps = steps < most_steps ? steps : most_steps;
    *samples += steps * r->size[i];
    return steps;
}

int64_t ramp_samples(const struct ramp *r, int64_t steps)
{
    const int64_t most = INT64_MAX / 4;
    int64_t samples = 0;

    while (steps > 0 && samples < most) {
        steps -= walk(r, &samples, steps, most);
    }
    return samples;
}

int64_t ramp_steps(const struct ramp *r, int64_t samples)
{
    int64_t at = 0, steps = 0;

    while (at < samples) {
        steps += walk(r, &at, INT64_MAX, samples);
    }
    return steps;
}
