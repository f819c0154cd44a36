/* pack.h - examples as rows of S tokens, and which of them are held out for validation.
 *
 * An example of n tokens takes n - 1 places: each but the last is an input, each but the first a label where
 * it is a target. One of more than S places (a text: lessons are no longer) is cut into pieces of S that share a token, like
 * the samples of a text. Positions restart and nothing is seen across a border, so that the loss is that of the
 * examples one by one.
 *
 *   together   first-fit decreasing (Johnson 1973) in windows of the file, by length then place: the same rows
 *              for the same file, whatever the number of workers
 *   alone      one example in a row, rows sorted by length: neighbours make a batch with little padding
 */
#ifndef TRAINER_DATA_PACK_H
#define TRAINER_DATA_PACK_H

#include "trainer/data/data.h"

enum pack_way { PACK_TOGETHER, PACK_ALONE };

/* A part of an example: its places from part * S on. */
struct piece {
    uint32_t document; /* of the file */
    uint32_t part;
};

/* Rows of examples; a value that others only read. */
struct pack {
    const struct token_file *file; /* borrowed                                       */
    int64_t S, rows, examples, pieces;
    int64_t tokens, trained; /* of the examples: all, and those that are targets     */
    int64_t group;           /* alone: rows of a batch, which stay together; else 0  */
    struct piece *piece;     /* owned [pieces], row by row                           */
    uint32_t *row;           /* owned [rows + 1]: where in `piece` each row begins   */
};

/* Which examples train and which validate; a plain value. */
struct pack_split {
    uint32_t *example; /* owned [training + held]: those that train, then those that are held out */
    int64_t training, held;
};

/* Hold out about `fraction` of the examples of f, chosen by a hash of their tokens and `seed`: none when
 * that rounds to none. Examples with the same tokens stay on one side; the fraction gives way. Errors:
 * TOO_LARGE (more than 2^32 - 1 examples), NO_MEMORY. On failure *out needs no pack_split_fini. */
int pack_split(struct pack_split *out, const struct token_file *f, double fraction, uint64_t seed,
               struct err *err);
void pack_split_fini(struct pack_split *s);

/* Rows of `count` examples of f. `group`: rows of a batch, for PACK_ALONE. Errors: BAD_FILE (an example of a single
 * token), TOO_LARGE (more than 2^32 - 1 pieces), NO_MEMORY. */
int pack_make(struct pack **out, const struct token_file *f, const uint32_t *examples,
              int64_t count, int64_t S, enum pack_way way, int64_t group, struct err *err);
void pack_free(struct pack *p); /* NULL is allowed */

/* The set that reads these rows, in an order that `seed` decides. Borrows p. */
struct data_set pack_set(const struct pack *p, uint64_t seed);

/* Where in the file a piece begins, and how many places it takes. */
int64_t pack_begin(const struct pack *p, struct piece piece);
int64_t pack_places(const struct pack *p, struct piece piece);

#endif
