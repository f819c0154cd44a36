/* header.h - the JSON header of a safetensors file, parsed in place.
 *
 * A parser of its own: it needs memory in proportion to the header (a JSON tree needs twenty times
  * as much),
 * recursion nowhere, and knows every rule of the format.
 */
#ifndef TRAINER_CKPT_HEADER_H
#define TRAINER_CKPT_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"
#include "trainer/ckpt/safetensors.h"

struct st_pair {
    const char *key, *value;
};

struct st_header {
    char *text;                 /* owned; strings below point into it          */
    struct st_tensor *tensor;   /* owned; in the order of the data, offsets relative to its begin */
    struct st_tensor **by_name; /* owned; sorted by name                       */
    int64_t count;
    struct st_pair *metadata; /* owned; sorted by key */
    int64_t metadata_count;
};

/* Parse and check the `bytes` bytes at `text` (taken over, and changed; text[bytes] is writable)
 * against `data_bytes` of data. `file` is what errors call the file. On failure *out needs no fini.
 * Errors: BAD_FILE, NO_MEMORY. */
int st_header_parse(struct st_header *out, char *text, size_t bytes, uint64_t data_bytes,
                    const char *file, struct err *err);
void st_header_fini(struct st_header *h);

#endif
