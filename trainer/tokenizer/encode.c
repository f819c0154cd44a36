/* encode.c - text to ids: added tokens, normalizer, pre-tokenizer, model. */
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/parts.h"

enum {
    SEAM_EVERY = 64,   /* bytes between seams that are tried in a long text, */
    SEAM_DENSE = 4096, /* and near its end at every character                 */
};

/* What a step makes of a piece. */
struct rewritten {
    struct text text;
    struct place_list ends;
};

struct encoder {
    const struct tokenizer *t; /* borrowed */
    struct regex_work *regex;  /* owned, likewise the others */
    struct token_model_work *model;
    struct rewritten normal[2]; /* the normalizer's steps write to one and read from the other */
    struct rewritten *split;    /* one for each step of the pre-tokenizer */
    struct seam_list seams, piece_seams;
    struct token_list word_ids; /* of a word, when their ends are asked for */
    struct place_list word_ends;
};

struct spans {
    const struct text_span *at;
    size_t count;
};

/* One call of the encoder. */
struct run {
    struct encoder *e;
    struct token_list *out;
    struct err *err;
    bool as_text;              /* special tokens are text everywhere, */
    const struct spans *plain; /* or where they touch these; may be NULL */
    struct encoded *encoded;   /* its ids are `out`; NULL: nobody asks for ends */
    bool cutting;              /* look for the last seam where the ids so far are final */
    size_t next_seam;          /* in piece_seams */
    size_t seam_raw;           /* the best so far; 0 is none */
    size_t seam_count;         /* ids up to there */
    struct cut_list *cuts;     /* all of them; may be NULL */
};

int encoder_open(struct encoder **out, const struct tokenizer *t, struct err *err)
{
    struct encoder *e = calloc(1, sizeof *e);
    int rc = 0;

    *out = NULL;
    if (e != NULL) {
        e->t = t;
        e->split = calloc(t->split.count + 1, sizeof *e->split);
    }
    if (e == NULL || e->split == NULL) {
        rc = FAIL(err, ERR_NO_MEMORY, "no memory for an encoder");
    }
    if (rc == 0) {
        rc = regex_work_new(&e->regex, err);
    }
    if (rc == 0) {
        rc = token_model_work_new(&e->model, &t->model, err);
    }
    if (rc != 0) {
        encoder_close(e);
        return rc;
    }
    *out = e;
    return 0;
}

static void rewritten_free(struct rewritten *x)
{
    text_free(&x->text);
    place_list_free(&x->ends);
}

void encoder_close(struct encoder *e)
{
    if (e == NULL) {
        return;
    }
    for (size_t i = 0; e->split != NULL && i < e->t->split.count; i++) {
        rewritten_free(&e->split[i]);
    }
    free(e->split);
    rewritten_free(&e->normal[0]);
    rewritten_free(&e->normal[1]);
    token_list_free(&e->word_ids);
    place_list_free(&e->word_ends);
    free(e->seams.at);
    free(e->piece_seams.at);
    regex_work_free(e->regex);
    token_model_work_free(e->model);
    free(e);
}

/* NO_MEMORY only makes fewer cuts. */
static void cut_list_put(struct cut_list *l, struct cut c)
{
    if (l->count == l->room) {
        const size_t room = l->room == 0 ? 256 : l->room * 2;
        struct cut *at = realloc(l->at, room * sizeof *at);
        if (at == NULL) {
            return;
        }
        l->at = at;
        l->room = room;
    }
    l->at[l->count++] = c;
}

/* The ids so far are those of the text up to place `at` of the piece, whatever follows. */
static void note_boundary(struct run *r, size_t at)
{
    const struct seam_list *l = &r->e->piece_seams;

    while (r->next_seam < l->count && l->at[r->next_seam].at < at) {
        r->next_seam++;
    }
    if (r->next_seam < l->count && l->at[r->next_seam].at == at) {
        r->seam_raw = l->at[r->next_seam].raw;
        r->seam_count = r->out->count;
        if (r->cuts != NULL) {
            cut_list_put(r->cuts, (struct cut){.at = r->seam_raw, .ids = r->seam_count});
        }
    }
}

static void note_cut(void *context, size_t at)
{
    note_boundary(context, at);
}

static int run_steps(struct run *r, size_t step, const struct piece *p);

/* A split step as it walks over a piece. */
struct split {
    struct run *r;
    size_t step;
    const struct piece *p;
    bool held; /* [held_start, held_end) waits for what comes next */
    bool held_matched;
    size_t held_start, held_end;
    bool before_matched; /* the span before the one at hand */
};

static int emit(struct split *s, size_t start, size_t end)
{
    if (start < end) {
        struct piece part = piece_part(s->p, start, end);
        part.continued = false; /* it is a word by itself */
        TRY(run_steps(s->r, s->step + 1, &part));
    }
    if (s->r->cutting && s->step == s->r->e->t->first_split) {
        note_boundary(s->r, end);
    }
    return 0;
}

static int flush(struct split *s)
{
    if (!s->held) {
        return 0;
    }
    s->held = false;
    return emit(s, s->held_start, s->held_end);
}

static int hold(struct split *s, size_t start, size_t end, bool matched)
{
    TRY(flush(s));
    s->held = true;
    s->held_start = start;
    s->held_end = end;
    s->held_matched = matched;
    return 0;
}

/* The next span, matched or between matches: what becomes a piece depends on the behavior. */
static int put_span(struct split *s, size_t start, size_t end, bool matched)
{
    const struct step *step = &s->r->e->t->split.at[s->step];
    const bool before = s->before_matched;

    matched = matched != step->invert;
    s->before_matched = matched;
    switch (step->behavior) {
    case SPLIT_REMOVED: return matched ? 0 : emit(s, start, end);
    case SPLIT_ISOLATED: return emit(s, start, end);
    case SPLIT_CONTIGUOUS:
        if (s->held && matched == before) {
            s->held_end = end;
            return 0;
        }
        return hold(s, start, end, matched);
    case SPLIT_MERGED_WITH_PREVIOUS:
        if (s->held && matched && !before) {
            s->held_end = end;
            return 0;
        }
        return hold(s, start, end, matched);
    case SPLIT_MERGED_WITH_NEXT:
        if (s->held && s->held_matched && !matched) {
            s->held = false;
            return emit(s, s->held_start, end);
        }
        return hold(s, start, end, matched);
    case SPLIT_COUNT: break;
    }
    return 0;
}

static int run_split(struct run *r, size_t step, const struct piece *p)
{
    struct split s = {.r = r, .step = step, .p = p};
    size_t from = 0, last = SIZE_MAX, start, end, done = 0;

    for (;;) {
        const enum regex_found f =
            step_find(&r->e->t->split.at[step], r->e->regex, p, &from, &last, &start, &end, r->err);
        if (f == REGEX_FAILED) {
            return (int)r->err->code;
        }
        if (f != REGEX_MATCH) {
            break;
        }
        if (done != start) {
            TRY(put_span(&s, done, start, false));
        }
        TRY(put_span(&s, start, end, true));
        done = end;
    }
    if (p->open) {
        return 0; /* what is left depends on what follows */
    }
    if (done != p->n) {
        TRY(put_span(&s, done, p->n, false));
    }
    return flush(&s);
}

static int rewrite(struct run *r, const struct step *s, struct piece *p, struct rewritten *to,
                   struct seam_list *seams)
{
    const struct followed follow = {.seams = seams, .ends = r->encoded != NULL ? &to->ends : NULL};

    TRY(step_rewrite(s, r->e->regex, p, &to->text, follow, r->err));
    p->s = to->text.at;
    p->n = to->text.n;
    p->ends = follow.ends != NULL ? follow.ends->at : NULL;
    return 0;
}

/* An id whose bytes end at `end` of the text as given. */
static int put_id(struct run *r, int32_t id, size_t end)
{
    struct encoded *x = r->encoded;

    TRY(token_list_put(r->out, id, r->err));
    if (x == NULL) {
        return 0;
    }
    if (x->room < x->ids.room) {
        size_t *ends = realloc(x->ends, x->ids.room * sizeof *ends);
        if (ends == NULL) {
            return FAIL(r->err, ERR_NO_MEMORY, "no memory for %zu tokens", x->ids.room);
        }
        x->ends = ends;
        x->room = x->ids.room;
    }
    const size_t i = x->ids.count - 1, before = i > 0 ? x->ends[i - 1] : 0;
    x->ends[i] = end > before ? end : before;
    return 0;
}

static int run_model(struct run *r, const struct piece *p)
{
    struct encoder *e = r->e;
    const bool cutting = r->cutting && e->t->first_split == e->t->split.count;

    if (r->encoded == NULL) {
        const struct word_ids out = {.ids = r->out, .cut = cutting ? note_cut : NULL, .context = r};
        return token_model_encode(&e->t->model, e->model, &out, p->s, p->n, r->err);
    }
    e->word_ids.count = 0;
    e->word_ends.count = 0;
    const struct word_ids out = {.ids = &e->word_ids, .ends = &e->word_ends};
    TRY(token_model_encode(&e->t->model, e->model, &out, p->s, p->n, r->err));
    for (size_t i = 0; i < e->word_ids.count; i++) {
        const size_t end = e->word_ends.at[i];
        TRY(put_id(r, e->word_ids.ids[i], end > 0 ? piece_end(p, end) : 0));
    }
    return 0;
}

/* A piece through the steps of the pre-tokenizer from `step` on, then through the model. */
static int run_steps(struct run *r, size_t step, const struct piece *p)
{
    struct encoder *e = r->e;
    const struct step_list *l = &e->t->split;

    if (p->n == 0) {
        return 0;
    }
    if (step == l->count) {
        return run_model(r, p);
    }
    const struct step *s = &l->at[step];
    if (s->kind == STEP_SPLIT) {
        return run_split(r, step, p);
    }
    if (s->kind == STEP_BYTES && step + 1 == l->count && token_model_takes_bytes(&e->t->model)) {
        return run_steps(r, step + 1, p); /* the model takes raw bytes */
    }
    struct piece now = *p;
    struct seam_list *seams = r->cutting && step < e->t->first_split ? &e->piece_seams : NULL;
    TRY(rewrite(r, s, &now, &e->split[step], seams));
    return run_steps(r, step + 1, &now);
}

/* Part [start, end) of a normalized text; its seams become the piece's. */
static int run_piece(struct run *r, const struct piece *whole, size_t start, size_t end, bool open)
{
    struct piece p = piece_part(whole, start, end);
    const struct seam_list *all = &r->e->seams;

    p.open = open;

    if (r->cutting) {
        r->e->piece_seams.count = 0;
        r->next_seam = 0;
        for (size_t i = 0; i < all->count; i++) {
            if (all->at[i].at > start && all->at[i].at < end) {
                const struct seam s = {.raw = all->at[i].raw, .at = all->at[i].at - start};
                TRY(seam_list_put(&r->e->piece_seams, s, r->err));
            }
        }
    }
    return run_steps(r, 0, &p);
}

/* Where added tokens are looked for. */
struct added_place {
    struct run *r;
    const struct piece *p;
};

static bool is_text(void *context, size_t start, size_t end)
{
    const struct added_place *a = context;
    const struct spans *plain = a->r->plain;

    if (plain == NULL) {
        return a->r->as_text;
    }
    const size_t first = start > 0 ? piece_end(a->p, start) : a->p->raw;
    const size_t last = piece_end(a->p, end);
    size_t low = 0, high = plain->count; /* the first span that ends behind the start */
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (plain->at[mid].end <= first) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    while (low < plain->count && plain->at[low].begin == plain->at[low].end) {
        low++;
    }
    if (low == plain->count || plain->at[low].begin >= last) {
        return false;
    }
    a->r->encoded->spelled++;
    return true;
}

/* A stretch without raw added tokens: normalize it, find the added tokens of normalized text in it. */
static int run_stretch(struct run *r, const struct piece *p)
{
    const struct tokenizer *t = r->e->t;
    struct piece now = *p;
    struct added_match m;

    for (size_t i = 0; i < t->normal.count; i++) {
        TRY(rewrite(r, &t->normal.at[i], &now, &r->e->normal[i % 2],
                    r->cutting ? &r->e->seams : NULL));
    }
    const size_t hold = t->normalized.longest > 0 ? t->normalized.longest - 1 : 0;
    struct added_place where = {.r = r, .p = &now};
    struct added_search a = {
        .trie = &t->normalized, .tokens = t->tokens, .is_text = is_text, .context = &where};
    a.certain = !p->open ? now.n : now.n > hold ? now.n - hold : 0;
    size_t done = 0;
    while (added_next(&a, now.s, now.n, &m)) {
        TRY(run_piece(r, &now, done, m.start > done ? m.start : done, false));
        TRY(put_id(r, m.token->id, piece_end(&now, m.end)));
        done = m.end;
    }
    const size_t end = p->open ? char_start(now.s, now.n, a.certain) : now.n;
    return done < end ? run_piece(r, &now, done, end, p->open) : 0;
}

/* Places of text[start, end) where it might be cut: sparse, dense near the end. */
static int find_seams(struct run *r, const char *text, size_t start, size_t end)
{
    const struct tokenizer *t = r->e->t;
    const size_t dense = end - start > SEAM_DENSE ? end - SEAM_DENSE : start;
    size_t last = start;

    r->e->seams.count = 0;
    for (size_t i = start, wide; i < end; i += wide) {
        uint32_t here, before;
        wide = utf8_get(text + i, &here);
        if (i == start || (i < dense && (i - last < SEAM_EVERY || !char_is_space(here)))) {
            continue;
        }
        (void)utf8_get(text + utf8_back(text, i), &before);
        if ((i < dense || t->any_lstrip) && char_is_space(before)) {
            continue;
        }
        if (t->any_single_word && (char_is_word(here) || char_is_word(before))) {
            continue;
        }
        const struct seam s = {.raw = i, .at = i - start};
        TRY(seam_list_put(&r->e->seams, s, r->err));
        last = i;
    }
    return 0;
}

/* Encode text[0..n). With r->cutting only the last stretch is open, and seams are looked for in it. */
static int run_text(struct run *r, const char *text, size_t n, bool continued)
{
    const struct tokenizer *t = r->e->t;
    const struct piece whole = {.s = text, .n = n, .at_start = !continued, .continued = continued};
    struct added_place where = {.r = r, .p = &whole};
    struct added_search a = {
        .trie = &t->raw, .tokens = t->tokens, .is_text = is_text, .context = &where};
    struct added_match m;
    const bool open = r->cutting;
    const size_t hold = open && t->raw.longest > 0 ? t->raw.longest - 1 : 0;
    size_t done = 0;

    a.certain = n > hold ? n - hold : 0;
    r->cutting = false;
    while (added_next(&a, text, n, &m)) {
        if (m.start > done) {
            const struct piece p = piece_part(&whole, done, m.start);
            TRY(run_stretch(r, &p));
        }
        TRY(put_id(r, m.token->id, m.end));
        done = m.end;
    }
    const size_t end = open ? step_list_fixed(&t->normal, text, n, a.certain) : n;
    if (done >= end) {
        return 0;
    }
    struct piece p = piece_part(&whole, done, end);
    p.open = open;
    if (open) {
        r->cutting = true;
        TRY(find_seams(r, text, done, end));
    }
    return run_stretch(r, &p);
}

static int not_utf8(const char *text, size_t n, size_t good, struct err *err)
{
    return FAIL(err, ERR_BAD_FILE, "byte %zu of %zu is not UTF-8 (0x%02X)", good + 1, n,
                (unsigned)(unsigned char)text[good]);
}

int encoder_encode(struct encoder *e, struct token_list *out, const char *text, size_t bytes,
                   int flags, struct err *err)
{
    const struct tokenizer *t = e->t;
    const size_t count = out->count, good = utf8_prefix(text, bytes, NULL);
    struct run r = {.e = e, .out = out, .err = err, .as_text = (flags & TOKENIZER_AS_TEXT) != 0};
    const bool special = (flags & TOKENIZER_ADD_SPECIAL) != 0;
    int rc = 0;

    if (good < bytes) {
        return not_utf8(text, bytes, good, err);
    }
    for (size_t i = 0; rc == 0 && special && i < t->before.count; i++) {
        rc = token_list_put(out, t->before.ids[i], err);
    }
    if (rc == 0) {
        rc = run_text(&r, text, bytes, false);
    }
    for (size_t i = 0; rc == 0 && special && i < t->after.count; i++) {
        rc = token_list_put(out, t->after.ids[i], err);
    }
    if (rc != 0) {
        out->count = count;
    }
    return rc;
}

int encoder_encode_spans(struct encoder *e, struct encoded *out, const char *text, size_t bytes,
                         const struct text_span *plain, size_t plain_count, struct err *err)
{
    const struct spans spans = {.at = plain, .count = plain_count};
    const size_t good = utf8_prefix(text, bytes, NULL);
    struct run r = {.e = e, .out = &out->ids, .err = err, .plain = &spans, .encoded = out};

    out->ids.count = 0;
    out->spelled = 0;
    if (good < bytes) {
        return not_utf8(text, bytes, good, err);
    }
    const int rc = run_text(&r, text, bytes, false);
    if (rc != 0) {
        out->ids.count = 0;
    }
    return rc;
}

void encoded_free(struct encoded *x)
{
    token_list_free(&x->ids);
    free(x->ends);
    *x = (struct encoded){0};
}

int encoder_encode_cuts(struct encoder *e, struct token_list *out, const struct text_part *part,
                        size_t *used, struct cut_list *cuts, struct err *err)
{
    const char *text = part->text;
    const size_t bytes = part->n, count = out->count;
    const bool last = part->last;
    struct run r = {.e = e, .out = out, .err = err, .cutting = !last, .cuts = cuts};
    bool cut;
    const size_t good = utf8_prefix(text, bytes, &cut);

    *used = 0;
    if (good < bytes && (last || !cut)) {
        return not_utf8(text, bytes, good, err);
    }
    if (!last && !e->t->can_cut) {
        return 0;
    }
    const int rc = run_text(&r, text, good, !part->first);
    if (rc != 0) {
        out->count = count;
        return rc;
    }
    if (last) {
        *used = bytes;
        return 0;
    }
    *used = r.seam_raw;
    out->count = r.seam_raw > 0 ? r.seam_count : count;
    return 0;
}

int encoder_encode_part(struct encoder *e, struct token_list *out, const char *text, size_t bytes,
                        bool first, bool last, size_t *used, struct err *err)
{
    const struct text_part part = {.text = text, .n = bytes, .first = first, .last = last};
    return encoder_encode_cuts(e, out, &part, used, NULL, err);
}
