/* encoder_pool.c - threads that encode stretches of a text, and the seams where their ids are joined. */
#include "trainer/tokenizer/encoder_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/parts.h"

enum {
    THREADS_MAX = 16,
    STRETCH_MIN = 1 << 17, /* bytes for which a thread is started */
    WINDOW = 2048,         /* bytes in which two stretches overlap */
    STEP = 1 << 16,        /* bytes encoded at a time: ids and text stay in the caches */
};

/* What one thread encodes: the text from `start` on, up to beyond `end`, where the next one starts. */
struct stretch {
    struct encoder *e; /* owned */
    const char *text;  /* of the whole part */
    size_t n, start, end;
    bool first, last; /* it starts, ends the document */
    bool joined;      /* nothing is encoded before: the start is known to be a cut */
    struct token_list ids;
    struct cut_list cuts; /* up to WINDOW behind the start, and from `end` on */
    struct cut done;      /* the last cut */
    int rc;
    struct err err;
};

struct encoder_pool {
    const struct tokenizer *t; /* borrowed */
    int count;
    struct stretch stretches[THREADS_MAX];
};

int encoder_pool_processors(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 1;
    }
    const int count = CPU_COUNT(&set);
    return count < THREADS_MAX ? count : THREADS_MAX;
}

int encoder_pool_open(struct encoder_pool **out, const struct tokenizer *t, int threads,
                      struct err *err)
{
    struct encoder_pool *p = calloc(1, sizeof *p);
    int rc = 0;

    *out = NULL;
    if (p == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    p->t = t;
    p->count = threads < 1 ? 1 : threads < THREADS_MAX ? threads : THREADS_MAX;
    for (int i = 0; rc == 0 && i < p->count; i++) {
        rc = encoder_open(&p->stretches[i].e, t, err);
    }
    if (rc != 0) {
        encoder_pool_close(p);
        return rc;
    }
    *out = p;
    return 0;
}

void encoder_pool_close(struct encoder_pool *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < p->count; i++) {
        encoder_close(p->stretches[i].e);
        token_list_free(&p->stretches[i].ids);
        free(p->stretches[i].cuts.at);
    }
    free(p);
}

/* How far the next step goes; the last one goes beyond the end. */
static size_t step_end(const struct stretch *s, size_t at, size_t step)
{
    const size_t end = s->n - s->end > WINDOW ? s->end + WINDOW : s->n;
    return end - at <= step + WINDOW ? end : at + step;
}

/* Cuts of the step from `at` on become places of the text; those in the middle are not asked for. */
static void keep_cuts(struct stretch *s, size_t from, size_t at)
{
    size_t kept = from;

    for (size_t i = from; i < s->cuts.count; i++) {
        struct cut c = s->cuts.at[i];
        c.at += at;
        if (c.at >= s->end || c.at - s->start <= WINDOW) {
            s->cuts.at[kept++] = c;
        }
    }
    s->cuts.count = kept;
}

static int encode_stretch(struct stretch *s)
{
    size_t at = s->start, step = s->joined ? STEP : WINDOW;

    s->ids.count = 0;
    s->cuts.count = 0;
    s->done = (struct cut){.at = s->start};
    for (bool ended = false; !ended;) {
        const size_t from = s->cuts.count, end = step_end(s, at, step);
        const struct text_part part = {.text = s->text + at,
                                       .n = end - at,
                                       .first = s->first && at == s->start,
                                       .last = s->last && end == s->n};
        size_t used;
        ended = end == s->n || end > s->end;
        TRY(encoder_encode_cuts(s->e, &s->ids, &part, &used, &s->cuts, &s->err));
        keep_cuts(s, from, at);
        at += used;
        if (used > 0) {
            s->done = (struct cut){.at = at, .ids = s->ids.count};
        }
        step = used > 0 ? STEP : 2 * (end - at); /* no place to cut: more text */
    }
    return 0;
}

static void *run_stretch(void *stretch)
{
    struct stretch *s = stretch;

    s->rc = encode_stretch(s);
    return NULL;
}

/* The first cut that both came by; false when there is none. */
static bool find_join(const struct stretch *a, const struct stretch *b, struct cut *in_a,
                      struct cut *in_b)
{
    size_t i = 0, k = 0;

    while (i < a->cuts.count && k < b->cuts.count) {
        const size_t x = a->cuts.at[i].at, y = b->cuts.at[k].at;
        if (x == y && x >= a->end) {
            *in_a = a->cuts.at[i];
            *in_b = b->cuts.at[k];
            return true;
        }
        i += x <= y;
        k += y <= x;
    }
    return false;
}

/* Put the ids of all stretches one behind the other. */
static int join(struct encoder_pool *p, int count, struct token_list *out, size_t *used,
                struct err *err)
{
    size_t from = 0;

    for (int i = 0; i < count; i++) {
        struct stretch *s = &p->stretches[i], *next = i + 1 < count ? s + 1 : NULL;
        struct cut here, there = {0};
        if (s->rc != 0) {
            *err = s->err;
            return s->rc;
        }
        if (next == NULL) {
            *used = s->last ? s->n : s->done.at;
            const size_t to = s->last ? s->ids.count : s->done.ids;
            return token_list_append(out, s->ids.ids + from, to - from, err);
        }
        if (next->rc != 0 || !find_join(s, next, &here, &there)) {
            here = s->done;
            next->start = here.at;
            next->first = s->first && here.at == s->start;
            next->joined = true;
            next->rc = encode_stretch(next);
            there = (struct cut){.at = here.at};
        }
        TRY(token_list_append(out, s->ids.ids + from, here.ids - from, err));
        from = there.ids;
    }
    return 0;
}

/* Lay the text out; *count is how many stretches it is. */
static void lay_out(struct encoder_pool *p, const struct text_part *part, int *count)
{
    const size_t most = part->n / STRETCH_MIN;

    *count = most < 1 ? 1 : most < (size_t)p->count ? (int)most : p->count;
    for (int i = 0; i < *count; i++) {
        struct stretch *s = &p->stretches[i];
        const size_t n = part->n, share = n / (size_t)*count;
        s->text = part->text;
        s->n = n;
        s->start = char_start(part->text, n, share * (size_t)i);
        s->end = i + 1 == *count ? n : char_start(part->text, n, share * (size_t)(i + 1));
        s->first = part->first && i == 0;
        s->last = part->last;
        s->joined = i == 0;
        s->rc = 0;
    }
}

int encoder_pool_encode_part(struct encoder_pool *p, struct token_list *out, const char *text,
                             size_t bytes, bool first, bool last, size_t *used, struct err *err)
{
    const struct text_part part = {.text = text, .n = bytes, .first = first, .last = last};
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    const size_t before = out->count;
    int count;

    if (!p->t->can_cut || p->count == 1 || bytes < 2 * (size_t)STRETCH_MIN ||
        utf8_prefix(text, bytes, NULL) < bytes) {
        return encoder_encode_part(p->stretches[0].e, out, text, bytes, first, last, used, err);
    }
    lay_out(p, &part, &count);
    for (int i = 1; i < count; i++) {
        started[i] = pthread_create(&threads[i], NULL, run_stretch, &p->stretches[i]) == 0;
    }
    (void)run_stretch(&p->stretches[0]);
    for (int i = 1; i < count; i++) {
        if (started[i]) {
            (void)pthread_join(threads[i], NULL);
        } else {
            (void)run_stretch(&p->stretches[i]);
        }
    }
    *used = 0;
    const int rc = join(p, count, out, used, err);
    if (rc != 0) {
        out->count = before;
    }
    return rc;
}
