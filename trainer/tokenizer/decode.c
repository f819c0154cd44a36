/* decode.c - ids to text: the decoder's steps as a chain that tokens are pushed through.
 *
 * What comes in is tokens, each with a beginning and an end. After ByteLevel or Fuse there is one long
 * token, which arrives in fragments. The last stage puts text out as soon as it is certain and whole.
 */
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/parts.h"

/* What a step remembers. */
struct unmake_state {
    struct text kept; /* owned: bytes, a run of bytes of fallback, or text held back at the end */
    struct text made; /* owned: what the step rewrote */
    int64_t stripped; /* characters that STRIP took off the start of the fused text */
    bool started;     /* STRIP: the start of the fused text is behind us */
    size_t whole;     /* FALLBACK: bytes of the run put out already */
    size_t tokens;    /* METASPACE, SUFFIX: tokens seen */
};

struct decoder {
    const struct tokenizer *t; /* borrowed */
    bool skip_special;
    bool eager; /* put out the characters of a run of bytes before it ends */
    struct unmake_state states[UNMAKES_MAX];
    struct regex_work *regex; /* owned */
    struct text out;          /* certain text that was not yet asked for */
    size_t tokens;            /* for joined_by_space */
};

static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */

int decoder_open(struct decoder **out, const struct tokenizer *t, bool skip_special,
                 struct err *err)
{
    struct decoder *d = calloc(1, sizeof *d);

    *out = NULL;
    if (d == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a decoder");
    }
    d->t = t;
    d->skip_special = skip_special;
    d->eager = true;
    const int rc = regex_work_new(&d->regex, err);
    if (rc != 0) {
        decoder_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void decoder_close(struct decoder *d)
{
    if (d == NULL) {
        return;
    }
    for (int i = 0; i < UNMAKES_MAX; i++) {
        text_free(&d->states[i].kept);
        text_free(&d->states[i].made);
    }
    text_free(&d->out);
    regex_work_free(d->regex);
    free(d);
}

/* Text on its way through the steps. */
struct fragment {
    const char *s;
    size_t n;
    bool fused; /* a part of one long token */
};

static int push(struct decoder *d, size_t step, struct fragment f, struct err *err);

/* Put out what of the kept bytes is certain: characters, U+FFFD for what cannot become one. */
static int put_bytes(struct decoder *d, size_t step, bool end, struct err *err)
{
    struct unmake_state *s = &d->states[step];
    size_t done = 0;

    while (done < s->kept.n) {
        bool cut;
        const char *at = s->kept.at + done;
        const size_t left = s->kept.n - done, good = utf8_prefix(at, left, &cut);
        if (good > 0) {
            TRY(push(d, step + 1, (struct fragment){.s = at, .n = good, .fused = true}, err));
            done += good;
            continue;
        }
        if (cut && !end) {
            break;
        }
        TRY(push(d, step + 1, (struct fragment){.s = replacement, .n = 3, .fused = true}, err));
        done += utf8_bad(at, left);
    }
    s->kept.n -= done;
    if (s->kept.n > 0) {
        memmove(s->kept.at, s->kept.at + done, s->kept.n);
    }
    return 0;
}

/* The bytes of a token whose characters all stand for bytes; else the token itself. */
static int unmake_bytes(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    struct text *kept = &d->states[step].kept;
    const size_t before = kept->n;

    TRY(text_reserve(kept, f.n, err));
    for (size_t i = 0; i < f.n;) {
        uint32_t c;
        i += utf8_get(f.s + i, &c);
        const int b = char_to_byte(c);
        if (b < 0) {
            kept->n = before;
            TRY(text_put(kept, f.s, f.n, err));
            break;
        }
        kept->at[kept->n++] = (char)b;
    }
    return put_bytes(d, step, false, err);
}

static int unmake_replace(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    const struct piece p = {.s = f.s, .n = f.n};
    struct text *made = &d->states[step].made;

    TRY(step_rewrite(&d->t->unmakes[step].pattern, d->regex, &p, made, (struct followed){0}, err));
    return push(d, step + 1, (struct fragment){.s = made->at, .n = made->n, .fused = f.fused}, err);
}

/* A run of bytes ended: its characters if it is UTF-8, else one U+FFFD for each byte. */
static int end_run(struct decoder *d, size_t step, struct err *err)
{
    struct unmake_state *s = &d->states[step];
    int rc = 0;

    if (s->kept.n == 0) {
        return 0;
    }
    const char *rest = s->kept.at + s->whole;
    const size_t left = s->kept.n - s->whole;
    if (left > 0 && utf8_prefix(rest, left, NULL) == left) {
        rc = push(d, step + 1, (struct fragment){.s = rest, .n = left}, err);
    } else {
        for (size_t i = 0; rc == 0 && i < left; i++) {
            rc = push(d, step + 1, (struct fragment){.s = replacement, .n = 3}, err);
        }
    }
    s->kept.n = 0;
    s->whole = 0;
    return rc;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static int unmake_fallback(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    struct unmake_state *s = &d->states[step];

    const bool spelled = f.n == 6 && memcmp(f.s, "<0x", 3) == 0 && f.s[5] == '>';
    if (!spelled || hex(f.s[4]) < 0 || (hex(f.s[3]) < 0 && f.s[3] != '+')) {
        TRY(end_run(d, step, err));
        return push(d, step + 1, f, err);
    }
    /* "+A" is a number too for Rust, which reads these. */
    const char b = (char)((f.s[3] == '+' ? 0 : hex(f.s[3])) * 16 + hex(f.s[4]));
    TRY(text_put(&s->kept, &b, 1, err));
    if (d->eager) {
        const char *rest = s->kept.at + s->whole;
        const size_t good = utf8_prefix(rest, s->kept.n - s->whole, NULL);
        if (good > 0) {
            TRY(push(d, step + 1, (struct fragment){.s = rest, .n = good}, err));
            s->whole += good;
        }
    }
    return 0;
}

/* Characters `with` off the start, counted on in `taken`; how many bytes that are. */
static size_t strip_start(const struct unmake *u, struct fragment f, int64_t *taken, bool *started)
{
    const struct text *c = &u->pattern.with;
    size_t at = 0;

    while (!*started && *taken < u->start && f.n - at >= c->n &&
           memcmp(f.s + at, c->at, c->n) == 0) {
        at += c->n;
        (*taken)++;
    }
    *started = *started || at < f.n || *taken == u->start;
    return at;
}

static size_t strip_stop(const struct unmake *u, const char *s, size_t n)
{
    const struct text *c = &u->pattern.with;

    for (int64_t i = 0; i < u->stop && n >= c->n && memcmp(s + n - c->n, c->at, c->n) == 0; i++) {
        n -= c->n;
    }
    return n;
}

/* Each token by itself; of a fused text the start at once, the end when it is known to be the end. */
static int unmake_strip(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    const struct unmake *u = &d->t->unmakes[step];
    struct unmake_state *s = &d->states[step];
    struct fragment part = f;

    if (!f.fused) {
        int64_t taken = 0;
        bool started = false;
        const size_t cut = strip_start(u, f, &taken, &started);
        part.s += cut;
        part.n = strip_stop(u, part.s, f.n - cut);
        return push(d, step + 1, part, err);
    }
    const size_t cut = strip_start(u, f, &s->stripped, &s->started);
    TRY(text_put(&s->kept, f.s + cut, f.n - cut, err));
    const size_t certain = strip_stop(u, s->kept.at, s->kept.n);
    if (certain > 0) {
        part = (struct fragment){.s = s->kept.at, .n = certain, .fused = true};
        TRY(push(d, step + 1, part, err));
        s->kept.n -= certain;
        memmove(s->kept.at, s->kept.at + certain, s->kept.n);
    }
    return 0;
}

static int unmake_metaspace(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    const struct unmake *u = &d->t->unmakes[step];
    struct unmake_state *s = &d->states[step];
    const bool drop = u->first && s->tokens++ == 0;
    const struct text *c = &u->pattern.literal;

    s->made.n = 0;
    for (size_t i = 0; i < f.n;) {
        uint32_t ignored;
        const size_t wide = utf8_get(f.s + i, &ignored);
        if (wide != c->n || memcmp(f.s + i, c->at, wide) != 0) {
            TRY(text_put(&s->made, f.s + i, wide, err));
        } else if (!drop) {
            TRY(text_put(&s->made, " ", 1, err));
        }
        i += wide;
    }
    return push(d, step + 1, (struct fragment){.s = s->made.at, .n = s->made.n, .fused = f.fused},
                err);
}

/* The token that was held, its suffix made `with`. */
static int put_held(struct decoder *d, size_t step, const char *with, struct err *err)
{
    const struct text *suffix = &d->t->unmakes[step].pattern.literal;
    struct unmake_state *s = &d->states[step];

    s->made.n = 0;
    for (size_t i = 0; i < s->kept.n;) {
        const bool here = suffix->n > 0 && s->kept.n - i >= suffix->n &&
                          memcmp(s->kept.at + i, suffix->at, suffix->n) == 0;
        TRY(text_put(&s->made, here ? with : s->kept.at + i, here ? strlen(with) : 1, err));
        i += here ? suffix->n : 1;
    }
    return push(d, step + 1, (struct fragment){.s = s->made.at, .n = s->made.n}, err);
}

/* Whether a token is the last one is known when the next one comes. */
static int unmake_suffix(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    struct unmake_state *s = &d->states[step];

    TRY(s->tokens++ > 0 ? put_held(d, step, " ", err) : 0);
    s->kept.n = 0;
    return text_put(&s->kept, f.s, f.n, err);
}

static int push(struct decoder *d, size_t step, struct fragment f, struct err *err)
{
    if (step == d->t->unmake_count) {
        return text_put(&d->out, f.s, f.n, err);
    }
    switch (d->t->unmakes[step].kind) {
    case UNMAKE_BYTES: return unmake_bytes(d, step, f, err);
    case UNMAKE_REPLACE: return unmake_replace(d, step, f, err);
    case UNMAKE_FALLBACK: return unmake_fallback(d, step, f, err);
    case UNMAKE_FUSE: f.fused = true; return push(d, step + 1, f, err);
    case UNMAKE_STRIP: return unmake_strip(d, step, f, err);
    case UNMAKE_METASPACE: return unmake_metaspace(d, step, f, err);
    case UNMAKE_SUFFIX: return unmake_suffix(d, step, f, err);
    }
    return 0;
}

static int put_token(struct decoder *d, int32_t id, struct err *err)
{
    const struct added_token *a = tokenizer_added(d->t, id);
    struct fragment f = {0};

    if (a != NULL) {
        f.s = d->t->shown.at + a->shown_at;
        f.n = a->shown_n;
    } else {
        f.s = vocab_token(&d->t->model.vocab, id, &f.n);
    }
    if (f.s == NULL || (d->skip_special && a != NULL && a->special)) {
        return 0;
    }
    if (d->t->joined_by_space && d->tokens++ > 0) {
        TRY(text_put(&d->out, " ", 1, err));
    }
    return push(d, 0, f, err);
}

/* Everything held back, step by step. */
static int put_rest(struct decoder *d, struct err *err)
{
    for (size_t i = 0; i < d->t->unmake_count; i++) {
        struct unmake_state *s = &d->states[i];
        switch (d->t->unmakes[i].kind) {
        case UNMAKE_BYTES: TRY(put_bytes(d, i, true, err)); break;
        case UNMAKE_FALLBACK: TRY(end_run(d, i, err)); break;
        case UNMAKE_SUFFIX: TRY(put_held(d, i, "", err)); break;
        case UNMAKE_STRIP:
        case UNMAKE_REPLACE:
        case UNMAKE_FUSE:
        case UNMAKE_METASPACE: break;
        }
        s->kept.n = 0;
        s->whole = 0;
        s->stripped = 0;
        s->started = false;
        s->tokens = 0;
    }
    d->tokens = 0;
    return 0;
}

static int give(struct decoder *d, const char **text, size_t *bytes, struct err *err)
{
    TRY(text_put(&d->out, "", 1, err));
    d->out.n--;
    *text = d->out.at;
    *bytes = d->out.n;
    return 0;
}

int decoder_put(struct decoder *d, int32_t id, const char **text, size_t *bytes, struct err *err)
{
    d->out.n = 0;
    TRY(put_token(d, id, err));
    return give(d, text, bytes, err);
}

int decoder_end(struct decoder *d, const char **text, size_t *bytes, struct err *err)
{
    d->out.n = 0;
    TRY(put_rest(d, err));
    return give(d, text, bytes, err);
}

int tokenizer_decode(const struct tokenizer *t, char **text, size_t *bytes, const int32_t *ids,
                     size_t count, bool skip_special, struct err *err)
{
    struct decoder *d;
    const char *ignored;
    int rc = 0;

    *text = NULL;
    TRY(decoder_open(&d, t, skip_special, err));
    d->eager = false;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = put_token(d, ids[i], err);
    }
    if (rc == 0) {
        rc = put_rest(d, err);
    }
    if (rc == 0) {
        rc = give(d, &ignored, bytes, err);
    }
    if (rc == 0) {
        *text = d->out.at;
        d->out = (struct text){0};
    }
    decoder_close(d);
    return rc;
}
