/* protobuf.h - the fields of a protocol buffer message, one after the other; the bytes are hostile. */
#ifndef TRAINER_TOKENIZER_PROTOBUF_H
#define TRAINER_TOKENIZER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum proto_type { PROTO_VARINT = 0, PROTO_64_BITS = 1, PROTO_BYTES = 2, PROTO_32_BITS = 5 };

struct proto_field {
    uint64_t number;
    enum proto_type type;
    uint64_t value;    /* of a varint or of bits */
    const char *bytes; /* of PROTO_BYTES: text or a message; borrowed */
    size_t n;
};

/* What is left of a message. */
struct proto {
    const char *at;
    size_t n;
};

/* Take the next field; *more is false at the end. Errors: BAD_FILE for what is cut short or no field. */
int proto_next(struct proto *p, struct proto_field *f, bool *more, struct err *err);

/* The number that a field of 32 bits holds. */
float proto_float(const struct proto_field *f);

#endif
