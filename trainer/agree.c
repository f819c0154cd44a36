/* agree.c - one reduction, and one message where something went wrong; one message from the first rank. */
#include "trainer/agree.h"

#include <string.h>

#include "kernels/check.h"

enum { WORDS = (sizeof(struct err) + 3) / 4 };

int agree(struct comm *c, struct queue *q, int rc, struct err *err)
{
    int32_t words[WORDS] = {0};
    double worst = rc != 0 ? c->size - c->rank : 0;
    const struct tensor t = tensor_make(&worst, DTYPE_F64, 1, 1);

    CHECK(rc == 0 || (int)err->code == rc, "code %d of %d", rc, (int)err->code);
    if (c->size == 1) {
        return rc;
    }
    comm_wait(c, q, comm_start_all_reduce(c, q, t, COMM_MAX));
    if (!(worst > 0)) {
        return 0;
    }
    const int root = c->size - (int)worst;
    if (root == c->rank) {
        memcpy(words, err, sizeof *err);
    }
    comm_wait(c, q, comm_start_broadcast(c, q, tensor_make(words, DTYPE_I32, WORDS, 1), root));
    memcpy(err, words, sizeof *err);
    return (int)err->code;
}

void agree_copy(struct comm *c, struct queue *q, void *value, size_t bytes)
{
    const struct tensor words = tensor_make(value, DTYPE_I32, (int64_t)(bytes / 4), 1);

    CHECK(bytes % 4 == 0, "%zu bytes", bytes);
    comm_wait(c, q, comm_start_broadcast(c, q, words, 0));
}
