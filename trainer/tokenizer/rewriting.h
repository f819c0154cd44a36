/* rewriting.h - a text step at work, for the files that rewrite texts only. */
#ifndef TRAINER_TOKENIZER_REWRITING_H
#define TRAINER_TOKENIZER_REWRITING_H

#include "trainer/tokenizer/steps.h"

/* A text on its way from p to out, left to right; seams and ends follow. */
struct rewriting {
    const struct piece *p;
    struct text *out;
    struct followed follow;
    size_t next_seam, kept_seams;
    struct err *err;
};

/* [from, to) goes to OUT as it is. */
int rewriting_keep(struct rewriting *r, size_t from, size_t to);
/* [from, to) becomes s[0..n): a seam inside is lost, one at its start stays; all of s ends where what it
 * came from does, or begins, when it came from nothing. */
int rewriting_change(struct rewriting *r, size_t from, size_t to, const char *s, size_t n);
/* The seams before `to` that were not moved yet are lost. */
void rewriting_lose_seams(struct rewriting *r, size_t to);

/* Does c stay as it is in this form, whatever stands before it? Every other character may combine. */
bool form_is_inert(enum form form, uint32_t c);
int form_rewrite(struct rewriting *r, enum form form);

int chars_rewrite(struct rewriting *r, enum chars chars);
int charsmap_rewrite(struct rewriting *r, const struct charsmap *m);

#endif
