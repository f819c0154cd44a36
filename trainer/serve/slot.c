/* slot.c - one of the texts side by side. */
#include "trainer/serve/slot.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/serve/stops.h"

int slot_init(struct slot *s, int number, int64_t positions, const struct tokenizer *t,
              struct err *err)
{
    *s = (struct slot){.number = number, .ids = calloc((size_t)positions, sizeof *s->ids)};
    if (s->ids == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %lld tokens", (long long)positions);
    }
    return decoder_open(&s->decoder, t, true, err);
}

void slot_fini(struct slot *s)
{
    free(s->ids);
    free(s->held);
    decoder_close(s->decoder);
}

static int keep_text(struct slot *s, const char *text, size_t bytes, struct err *err)
{
    while (bytes > 0 && *s->lead != '\0') {
        const bool goes_on = *text == *s->lead;
        s->lead = goes_on ? s->lead + 1 : "";
        text += goes_on;
        bytes -= goes_on;
    }
    const size_t need = s->held_bytes + bytes + 1;

    if (need > s->held_room) {
        char *more = realloc(s->held, 2 * need);
        if (more == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a text");
        }
        s->held = more;
        s->held_room = 2 * need;
    }
    memcpy(s->held + s->held_bytes, text, bytes);
    s->held_bytes += bytes;
    for (size_t i = 0; i < bytes; i++) {
        s->characters += ((unsigned char)text[i] & 0xC0U) != 0x80U;
    }
    return 0;
}

static void keep_token(struct slot *s, int32_t id, const struct logprobs *p)
{
    struct made *m = &s->made[s->made_count];

    s->made_at[s->made_count++] = s->held_bytes;
    m->id = id;
    m->start = s->characters;
    m->has_logprobs = p != NULL;
    if (p != NULL) {
        m->logprobs = *p;
    }
}

/* Give the first `bytes` of the held text away, with the first `tokens` tokens. */
static void give(struct slot *s, size_t bytes, int tokens, enum finish finish, const char *stop)
{
    struct job *j = s->job;
    const struct piece p = {.index = s->index,
                            .text = s->held,
                            .bytes = bytes,
                            .tokens = s->made,
                            .count = tokens,
                            .finish = finish,
                            .stop = stop};

    j->ended += finish != FINISH_NONE;
    j->listener->put(j->listener, j, &p);
    s->held_bytes -= bytes;
    memmove(s->held, s->held + bytes, s->held_bytes);
    s->made_count -= tokens;
    for (int i = 0; i < s->made_count; i++) {
        const size_t at = s->made_at[i + tokens];
        s->made[i] = s->made[i + tokens];
        s->made_at[i] = at > bytes ? at - bytes : 0;
    }
}

static int tokens_before(const struct slot *s, size_t bytes)
{
    int n = 0;

    while (n < s->made_count && s->made_at[n] < bytes) {
        n++;
    }
    return n;
}

/* Give away what is certain; whether a stop string was found, which ends the text. */
static bool give_certain(struct slot *s)
{
    const struct serve_request *r = &s->job->request;
    const char *strings[REQUEST_STOPS + 1];
    int found = -1;

    memcpy(strings, r->stop, sizeof r->stop);
    strings[r->stops] = r->end_text;
    size_t certain =
        stops_certain(strings, r->stops + (r->end_text != NULL), s->held, s->held_bytes, &found);
    if (found >= 0) {
        give(s, certain, tokens_before(s, certain), FINISH_STOP,
             found < r->stops ? r->stop[found] : NULL);
        return true;
    }
    const size_t sure = s->held_bytes - stops_overlap(r->tail, s->held, s->held_bytes);
    certain = sure < certain ? sure : certain;
    if (certain > 0 || s->made_count == SLOT_TOKENS) {
        const bool full = s->made_count == SLOT_TOKENS;
        give(s, certain, full ? s->made_count : tokens_before(s, certain), FINISH_NONE, NULL);
    }
    return false;
}

/* Nothing comes any more: what the decoder and we held back, unless a stop string is in it. */
static int end_text(struct slot *s, enum finish *finish, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    TRY(decoder_end(s->decoder, &text, &bytes, err));
    TRY(keep_text(s, text, bytes, err));
    if (give_certain(s)) {
        *finish = FINISH_STOP;
    } else {
        const char *tail = s->job->request.tail;
        if (*finish == FINISH_STOP && stops_overlap(tail, s->held, s->held_bytes) == strlen(tail)) {
            s->held_bytes -= strlen(tail);
        }
        give(s, s->held_bytes, s->made_count, *finish, NULL);
    }
    return 0;
}

/* The text of an echoed prompt is given away whole: stop strings are not looked for in it. */
static int echo_text(struct slot *s, struct err *err)
{
    for (int64_t i = 0; i < s->prompt; i++) {
        TRY(slot_echo(s, i, NULL, err));
    }
    return 0;
}

static int pass_prompt(struct slot *s, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    /* Whether a space begins the next word depends on what stood before. */
    for (int64_t i = 0; i < s->prompt; i++) {
        TRY(decoder_put(s->decoder, s->ids[i], &text, &bytes, err));
    }
    return 0;
}

int slot_begin(struct slot *s, struct job *j, int64_t positions, struct err *err)
{
    const struct serve_request *r = &j->request;
    const int64_t prompt = (int64_t)j->prompt.count;
    const char *text = NULL;
    size_t bytes = 0;

    s->job = j;
    s->index = (int)j->started++;
    memcpy(s->ids, j->prompt.ids, j->prompt.count * sizeof *s->ids);
    s->prompt = s->count = prompt;
    s->fed = 0;
    s->limit = r->max_tokens < 0 || r->max_tokens > positions - prompt ? positions
                                                                       : prompt + r->max_tokens;
    s->sampling = r->sampling;
    s->sampling.seed += (uint64_t)s->index * UINT64_C(0x9e3779b97f4a7c15);
    s->held_bytes = 0;
    s->lead = r->lead;
    s->characters = 0;
    s->made_count = 0;
    TRY(decoder_end(s->decoder, &text, &bytes, err));
    if (!r->echo) {
        return pass_prompt(s, err);
    }
    return r->logprobs < 0 ? echo_text(s, err) : slot_echo(s, 0, NULL, err);
}

bool slot_wants(const struct slot *s, int64_t place)
{
    return place == s->count - 1 || (s->job->request.echo && s->job->request.logprobs >= 0);
}

int slot_echo(struct slot *s, int64_t place, const struct logprobs *p, struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    TRY(decoder_put(s->decoder, s->ids[place], &text, &bytes, err));
    keep_token(s, s->ids[place], p);
    TRY(keep_text(s, text, bytes, err));
    if (s->held_bytes > 0 || s->made_count == SLOT_TOKENS || place == s->prompt - 1) {
        give(s, s->held_bytes, s->made_count, FINISH_NONE, NULL);
    }
    return 0;
}

int slot_take(struct slot *s, int32_t id, bool ends, const struct logprobs *p, enum finish *finish,
              struct err *err)
{
    const char *text = NULL;
    size_t bytes = 0;

    *finish = FINISH_NONE;
    if (ends && !s->job->request.ignore_eos) {
        *finish = FINISH_STOP;
        return end_text(s, finish, err);
    }
    s->ids[s->count++] = id;
    s->job->tokens++;
    TRY(decoder_put(s->decoder, id, &text, &bytes, err));
    keep_token(s, id, p);
    TRY(keep_text(s, text, bytes, err));
    if (s->count == s->limit) {
        *finish = FINISH_LENGTH;
        return end_text(s, finish, err);
    }
    if (give_certain(s)) {
        *finish = FINISH_STOP;
    }
    return 0;
}

int slot_end(struct slot *s, struct err *err)
{
    enum finish finish = FINISH_LENGTH;

    return end_text(s, &finish, err);
}
