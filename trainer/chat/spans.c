/* spans.c - what the assistant has to write, from the origin of every byte of a rendered conversation.
 *
 * A piece of the output that was written in an assistant's turn of the loop is
 *
 *     PROMPT content END rest        trained: content and END
 *
 * PROMPT is what add_generation_prompt would write, which may be another text behind a tool's answer: the model does not
 * write it. When the piece begins otherwise,
 * what is trained starts with the content, or at once where the piece before ends with PROMPT. END is the special
 * token that ends the turn: EOS, else the first that the template spells after the content; without one everything
 * to the end of the piece is trained, and an EOS that follows all turns.
 *
 * Elsewhere - a template without a loop over messages, one that gathers turns and writes them later - each stretch
 * of an assistant's data counts for itself, with the special token behind it. */
#include "trainer/chat/spans.h"

#include <stdlib.h>
#include <string.h>

/* A growing list of spans in which neighbours become one. */
struct spans {
    struct chat_span *at; /* owned */
    size_t n, room;
};

static int add(struct spans *s, size_t begin, size_t end, struct err *err)
{
    if (begin >= end) {
        return 0;
    }
    if (s->n > 0 && s->at[s->n - 1].end >= begin) {
        if (s->at[s->n - 1].end < end) {
            s->at[s->n - 1].end = end;
        }
        return 0;
    }
    if (s->n == s->room) {
        const size_t room = s->room == 0 ? 8 : 2 * s->room;
        struct chat_span *at = realloc(s->at, room * sizeof *at);
        if (at == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "there is no memory for %zu parts of a conversation",
                        room);
        }
        s->at = at;
        s->room = room;
    }
    s->at[s->n++] = (struct chat_span){begin, end};
    return 0;
}

static size_t begin_of(const struct jinja_output *o, size_t run)
{
    return run == 0 ? 0 : o->runs[run - 1].end;
}

/* The first run that ends behind `at`. */
static size_t run_at(const struct jinja_output *o, size_t at)
{
    size_t low = 0, high = o->run_count;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (o->runs[middle].end <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Did the template itself write all of [begin, end)? */
static bool is_own(const struct jinja_output *o, size_t begin, size_t end)
{
    for (size_t i = run_at(o, begin); i < o->run_count && begin_of(o, i) < end; i++) {
        if (o->runs[i].tag.from != JINJA_FROM_TEMPLATE) {
            return false;
        }
    }
    return true;
}

static bool is_message(const struct chat_marking *m, int32_t from)
{
    return from >= 0 && (size_t)from < m->turn_count;
}

static bool is_assistant(const struct chat_marking *m, int32_t from)
{
    return is_message(m, from) && m->turns[from].is_assistant;
}

static bool is_trained(const struct chat_marking *m, int32_t from)
{
    return is_assistant(m, from) && m->turns[from].is_trained;
}

/* Does the template write `text` at `at`, within [.., end)? */
static bool writes(const struct jinja_output *o, size_t at, size_t end, const char *text, size_t n)
{
    return n <= end - at && memcmp(o->text + at, text, n) == 0 && is_own(o, at, at + n);
}

const struct chat_special *chat_find_special(const struct chat_marking *m, size_t begin, size_t end,
                                             size_t *at)
{
    const struct chat_special *found = NULL;

    for (size_t i = 0; i < m->special_count; i++) {
        const struct chat_special *s = &m->specials[i];
        size_t from = begin;
        const char *place;
        while (s->bytes <= end - from &&
               (place = memmem(m->output->text + from, end - from, s->text, s->bytes)) != NULL) {
            from = (size_t)(place - m->output->text);
            if (is_own(m->output, from, from + s->bytes)) {
                const bool wins = found == NULL || from < *at ||
                                  (from == *at && s->bytes > found->bytes) || s->id == m->eos;
                if (wins && (found == NULL || found->id != m->eos)) {
                    found = s;
                    *at = from;
                }
                break;
            }
            from++;
        }
    }
    return found;
}

/* The end of what is trained after content that ends at `from`, in a piece that ends at `end`; `otherwise` when no
 * special token is there. */
static size_t end_of_turn(const struct chat_marking *m, size_t from, size_t end, size_t otherwise)
{
    size_t at = 0;
    const struct chat_special *s = chat_find_special(m, from, end, &at);

    return s == NULL ? otherwise : at + s->bytes;
}

/* [begin, end) without what no trained turn says: data of turns with weight 0, and the template's text of one. */
static int add_trained(const struct chat_marking *m, struct spans *out, size_t begin, size_t end,
                       int32_t turn, struct err *err)
{
    const struct jinja_output *o = m->output;

    for (size_t i = run_at(o, begin); i < o->run_count && begin_of(o, i) < end; i++) {
        const int32_t from = o->runs[i].tag.from;
        const size_t a = begin_of(o, i) > begin ? begin_of(o, i) : begin;
        const size_t b = o->runs[i].end < end ? o->runs[i].end : end;
        if (is_trained(m, is_assistant(m, from) ? from : turn)) {
            TRY(add(out, a, b, err));
        }
    }
    return 0;
}

/* A piece written in one turn: runs [first, last), bytes [begin, end). */
struct piece {
    size_t first, last, begin, end;
    int32_t turn;
};

/* The assistant's data in a piece; without any, where it would stand. false: nowhere. */
static bool find_content(const struct chat_marking *m, const struct piece *p, size_t *begin,
                         size_t *end)
{
    const struct jinja_output *o = m->output;
    const struct chat_habits *h = m->habits;
    bool found = false;

    for (size_t i = p->first; i < p->last; i++) {
        if (is_assistant(m, o->runs[i].tag.from)) {
            *begin = found ? *begin : begin_of(o, i);
            *end = o->runs[i].end;
            found = true;
        }
    }
    if (!found && h->head != NULL && writes(o, p->begin, p->end, h->head, h->head_bytes)) {
        *begin = *end = p->begin + h->head_bytes;
        found = true;
    }
    return found;
}

/* The end of a piece that no special token ends; with the EOS that the template writes behind its loop. */
static size_t eos_behind(const struct chat_marking *m, const struct piece *p)
{
    const struct jinja_output *o = m->output;
    size_t last = p->last, at = 0;

    while (last < o->run_count && o->runs[last].tag.turn == JINJA_NO_TURN &&
           o->runs[last].tag.from == JINJA_FROM_TEMPLATE) {
        last++;
    }
    const struct chat_special *s =
        last == p->last ? NULL : chat_find_special(m, p->end, o->runs[last - 1].end, &at);
    return s != NULL && s->id == m->eos ? at + s->bytes : p->end;
}

static int mark_assistant(const struct chat_marking *m, struct spans *out, const struct piece *p,
                          struct err *err)
{
    const struct chat_habits *h = m->habits;
    size_t begin = 0, end = 0;
    const bool has_content = find_content(m, p, &begin, &end);

    if (h->after_tool != NULL && is_message(m, p->turn - 1) && m->turns[p->turn - 1].is_tool &&
        writes(m->output, p->begin, p->end, h->after_tool, h->after_tool_bytes)) {
        begin = p->begin + h->after_tool_bytes;
    } else if (h->knows_prompt && writes(m->output, p->begin, p->end, h->prompt, h->prompt_bytes)) {
        begin = p->begin + h->prompt_bytes;
    } else if (h->knows_prompt && h->prompt_bytes <= p->begin &&
               writes(m->output, p->begin - h->prompt_bytes, p->begin, h->prompt,
                      h->prompt_bytes)) {
        begin = p->begin;
    } else if (!has_content) {
        return 0;
    }
    const size_t written = has_content && end > begin ? end : begin;
    end = end_of_turn(m, written, p->end, SIZE_MAX);
    return add_trained(m, out, begin, end != SIZE_MAX ? end : eos_behind(m, p), p->turn, err);
}

/* Each stretch of one assistant's data with the special token behind it; between two of them that nothing parts,
 * the template's text too. */
static int mark_stretches(const struct chat_marking *m, struct spans *out, const struct piece *p,
                          struct err *err)
{
    const struct jinja_output *o = m->output;

    for (size_t i = p->first; i < p->last; i++) {
        const int32_t from = o->runs[i].tag.from;
        size_t next = i + 1;
        if (!is_assistant(m, from)) {
            continue;
        }
        while (next < p->last && o->runs[next].tag.from == JINJA_FROM_TEMPLATE) {
            next++;
        }
        const size_t begin = begin_of(o, i), end = o->runs[i].end;
        const bool is_last = next == p->last;
        const size_t limit = is_last ? p->end : begin_of(o, next);
        const bool joins = !is_last && is_assistant(m, o->runs[next].tag.from);
        const size_t otherwise = joins || is_last ? limit : end;
        const bool same = joins && o->runs[next].tag.from == from;
        const size_t stop = same ? limit : end_of_turn(m, end, limit, otherwise);
        TRY(add_trained(m, out, begin, stop, from, err));
    }
    return 0;
}

static int mark_piece(const struct chat_marking *m, struct spans *out, const struct piece *p,
                      struct err *err)
{
    int32_t first = JINJA_FROM_TEMPLATE;

    for (size_t i = p->first; i < p->last && !is_message(m, first); i++) {
        first = m->output->runs[i].tag.from;
    }
    if (is_assistant(m, p->turn) && (!is_message(m, first) || is_assistant(m, first))) {
        return mark_assistant(m, out, p, err);
    }
    return mark_stretches(m, out, p, err);
}

static int mark_trained(const struct chat_marking *m, struct spans *out, struct err *err)
{
    const struct jinja_output *o = m->output;
    struct piece p = {0};

    for (size_t i = 0; i < o->run_count; i = p.last) {
        p = (struct piece){
            .first = i, .last = i, .begin = begin_of(o, i), .turn = o->runs[i].tag.turn};
        while (p.last < o->run_count && o->runs[p.last].tag.turn == p.turn) {
            p.end = o->runs[p.last++].end;
        }
        TRY(mark_piece(m, out, &p, err));
    }
    return 0;
}

/* What the template marks itself, but for turns with weight 0. */
static int mark_generation(const struct chat_marking *m, struct spans *out, struct err *err)
{
    const struct jinja_output *o = m->output;

    for (size_t i = 0; i < o->run_count; i++) {
        const struct jinja_tag tag = o->runs[i].tag;
        const int32_t of = is_message(m, tag.turn) ? tag.turn : tag.from;
        if (tag.generation && (!is_message(m, of) || m->turns[of].is_trained)) {
            TRY(add(out, begin_of(o, i), o->runs[i].end, err));
        }
    }
    return 0;
}

static int mark_plain(const struct chat_marking *m, struct spans *out, struct err *err)
{
    const struct jinja_output *o = m->output;

    for (size_t i = 0; i < o->run_count; i++) {
        if (o->runs[i].tag.from != JINJA_FROM_TEMPLATE) {
            TRY(add(out, begin_of(o, i), o->runs[i].end, err));
        }
    }
    return 0;
}

int chat_mark(struct rendered *out, const struct chat_marking *m, bool trained, struct err *err)
{
    struct spans plain = {0}, marked = {0};

    int rc = mark_plain(m, &plain, err);
    if (rc == 0 && trained) {
        rc = m->by_generation ? mark_generation(m, &marked, err) : mark_trained(m, &marked, err);
    }
    if (rc != 0) {
        free(plain.at);
        free(marked.at);
        return rc;
    }
    out->plain = plain.at;
    out->plain_count = plain.n;
    out->trained = marked.at;
    out->trained_count = marked.n;
    return 0;
}
