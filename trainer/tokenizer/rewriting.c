/* rewriting.c - a text goes from left to right, and seams and ends with it. */
#include "trainer/tokenizer/rewriting.h"

/* Seams of [from, to), which begins in OUT at its end now. */
static void move_seams(struct rewriting *r, size_t from, size_t to, bool unchanged)
{
    struct seam_list *l = r->follow.seams;

    while (l != NULL && r->next_seam < l->count && l->at[r->next_seam].at < to) {
        struct seam s = l->at[r->next_seam++];
        if (s.at == from || (unchanged && s.at > from)) {
            s.at = s.at - from + r->out->n;
            l->at[r->kept_seams++] = s;
        }
    }
}

int rewriting_keep(struct rewriting *r, size_t from, size_t to)
{
    move_seams(r, from, to, true);
    for (size_t i = from; r->follow.ends != NULL && i < to; i++) {
        TRY(place_list_put(r->follow.ends, piece_end(r->p, i + 1), r->err));
    }
    return text_put(r->out, r->p->s + from, to - from, r->err);
}

int rewriting_change(struct rewriting *r, size_t from, size_t to, const char *s, size_t n)
{
    const size_t last = to > from ? to : from > 0 ? from : 1;

    move_seams(r, from, to, false);
    for (size_t i = 0; r->follow.ends != NULL && i < n; i++) {
        const size_t end = r->p->n == 0 ? r->p->raw : piece_end(r->p, last);
        TRY(place_list_put(r->follow.ends, end, r->err));
    }
    return text_put(r->out, s, n, r->err);
}

void rewriting_lose_seams(struct rewriting *r, size_t to)
{
    const struct seam_list *l = r->follow.seams;

    while (l != NULL && r->next_seam < l->count && l->at[r->next_seam].at < to) {
        r->next_seam++;
    }
}
