/* protobuf.c - the wire format: a varint with number and type, then the value. */
#include "trainer/tokenizer/protobuf.h"

#include <string.h>

static int damaged(const char *what, struct err *err)
{
    return FAIL(err, ERR_BAD_FILE, "it is not a sentencepiece model: %s", what);
}

static int take_varint(struct proto *p, uint64_t *out, struct err *err)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (p->n == 0) {
            return damaged("it ends within a number", err);
        }
        const unsigned char byte = (unsigned char)*p->at++;
        p->n--;
        *out |= (uint64_t)(byte & 0x7FU) << shift;
        if (byte < 0x80) {
            return 0;
        }
    }
    return damaged("a number has more than 64 bits", err);
}

static int take_bits(struct proto *p, size_t bytes, uint64_t *out, struct err *err)
{
    if (p->n < bytes) {
        return damaged("it ends within a number", err);
    }
    *out = 0;
    for (size_t i = 0; i < bytes; i++) {
        *out |= (uint64_t)(unsigned char)p->at[i] << 8 * i;
    }
    p->at += bytes;
    p->n -= bytes;
    return 0;
}

int proto_next(struct proto *p, struct proto_field *f, bool *more, struct err *err)
{
    uint64_t tag;

    *f = (struct proto_field){0};
    *more = p->n > 0;
    if (!*more) {
        return 0;
    }
    TRY(take_varint(p, &tag, err));
    f->number = tag >> 3;
    switch (tag & 7U) {
    case PROTO_VARINT: return take_varint(p, &f->value, err);
    case PROTO_64_BITS: f->type = PROTO_64_BITS; return take_bits(p, 8, &f->value, err);
    case PROTO_32_BITS: f->type = PROTO_32_BITS; return take_bits(p, 4, &f->value, err);
    case PROTO_BYTES: break;
    default: return damaged("a field has an unknown type", err);
    }
    f->type = PROTO_BYTES;
    TRY(take_varint(p, &f->value, err));
    if (f->value > p->n) {
        return damaged("a field is longer than the file", err);
    }
    f->bytes = p->at;
    f->n = (size_t)f->value;
    p->at += f->n;
    p->n -= f->n;
    return 0;
}

float proto_float(const struct proto_field *f)
{
    const uint32_t bits = (uint32_t)f->value;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}
