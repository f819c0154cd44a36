/* steps.h - what happens to a text before the model sees its words: normalizers and pre-tokenizers as a flat
 * list of steps.
 *
 * A text step rewrites a piece; a split step cuts it into pieces, and each goes through the rest of
 * the list by itself.
 *
 * Seams are places where the text might be cut for good (encoder_encode_part). A text step moves
 * them along with the text and drops those where the two sides are not rewritten independently.
 */
#ifndef TRAINER_TOKENIZER_STEPS_H
#define TRAINER_TOKENIZER_STEPS_H

#include <stdbool.h>
#include <stddef.h>

#include "trainer/tokenizer/charsmap.h"
#include "trainer/tokenizer/regex.h"
#include "trainer/tokenizer/utf8.h"

enum step_kind {
    STEP_FORM,     /* a Unicode normal form                                                       */
    STEP_PREPEND,  /* `with` in front of a text that is not empty                                 */
    STEP_REPLACE,  /* the pattern by `with`                                                       */
    STEP_BYTES,    /* every byte by its printable character                                       */
    STEP_STRIP,    /* white space off the start, the end                                          */
    STEP_CHARS,    /* each character by what becomes of it alone                                  */
    STEP_CHARSMAP, /* stretches of characters by those of a table                                */
    STEP_SPLIT,
};

enum form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };

enum chars {
    CHARS_LOWER,         /* lower case                                                           */
    CHARS_NO_MARKS,      /* combining marks go                                                   */
    CHARS_NO_NONSPACING, /* those of category Mn go                                              */
    CHARS_NMT,           /* control characters go, and all kinds of white space become a space   */
    CHARS_CLEAN,         /* the same as BERT has it                                              */
    CHARS_IDEOGRAPHS,    /* spaces around ideographs                                             */
};

enum split_behavior {
    SPLIT_REMOVED,
    SPLIT_ISOLATED,
    SPLIT_MERGED_WITH_PREVIOUS,
    SPLIT_MERGED_WITH_NEXT,
    SPLIT_CONTIGUOUS,
    SPLIT_COUNT
};

struct step {
    enum step_kind kind;
    enum form form;
    enum chars chars;
    bool strip_start, strip_end;
    struct charsmap *charsmap; /* owned */
    struct regex *regex;       /* owned; the pattern, or when NULL: */
    struct text literal;
    struct text with;
    bool unless_there;  /* PREPEND: not when the text starts with it         */
    bool at_start_only; /* PREPEND: only to the piece that starts the input  */
    enum split_behavior behavior;
    bool invert; /* SPLIT: what the pattern does not match counts as matched */
};

struct step_list {
    struct step *at; /* owned */
    size_t count, room;
};

struct seam {
    size_t raw, at; /* the same place in the text as given and as rewritten so far */
};

struct seam_list {
    struct seam *at; /* owned */
    size_t count, room;
};

/* What is known of a piece. */
struct piece {
    const char *s;
    size_t n;
    const size_t *ends; /* of each byte, where in the text as given what it came from ends, or */
    size_t raw;         /* when NULL: it is that text from here on */
    bool at_start;      /* it begins where the input begins                            */
    bool continued;     /* it is the rest of a piece whose beginning was encoded before */
    bool open;          /* more text follows it                                        */
};

/* Part [start, end) of a piece; its end is not open. */
struct piece piece_part(const struct piece *p, size_t start, size_t end);
/* Where in the text as given the first `at` > 0 bytes of a piece end. */
static inline size_t piece_end(const struct piece *p, size_t at)
{
    return p->ends != NULL ? p->ends[at - 1] : p->raw + at;
}

/* A new last step; its members are 0. Errors: NO_MEMORY. */
int step_list_add(struct step_list *l, enum step_kind kind, struct step **out, struct err *err);
void step_list_free(struct step_list *l); /* leaves {0} */

/* May a text be cut at seams that survive this step? Not where a pattern can span one or look behind it. */
bool step_keeps_seams(const struct step *s);

/* The start of the character at or before `at` in s[0..n). */
size_t char_start(const char *s, size_t n, size_t at);
/* How much of text[0..end), at a character's start at most, is rewritten the same whatever follows. */
size_t step_list_fixed(const struct step_list *l, const char *text, size_t n, size_t end);

int seam_list_put(struct seam_list *l, struct seam s, struct err *err);

/* What follows a text while it is rewritten. */
struct followed {
    struct seam_list *seams; /* moved along; may be NULL */
    struct place_list
        *ends; /* becomes `ends` of the piece as rewritten; may be NULL; not with seams */
};

/* Rewrite piece p with a text step into OUT (its old contents are lost). Errors: BAD_FILE (limit of steps),
 * NO_MEMORY. */
int step_rewrite(const struct step *s, struct regex_work *w, const struct piece *p,
                 struct text *out, struct followed follow, struct err *err);

/* The next match of a step's pattern at or after *from, Oniguruma's iteration: an empty match right after the
 * last match is passed over. *last is SIZE_MAX before the first. */
enum regex_found step_find(const struct step *s, struct regex_work *w, const struct piece *p,
                           size_t *from, size_t *last, size_t *start, size_t *end, struct err *err);

#endif
