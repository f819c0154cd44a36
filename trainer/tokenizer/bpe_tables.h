/* bpe_tables.h - look-ups in the tables of a BPE model, for bpe*.c only. */
#ifndef TRAINER_TOKENIZER_BPE_TABLES_H
#define TRAINER_TOKENIZER_BPE_TABLES_H

#include "trainer/tokenizer/bpe.h"

enum { LOW_CHARS = 0x3000, JOINT_NONE = 0x7FFFFFFF };

static inline uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline size_t table_slot(const uint64_t *keys, size_t slots, uint64_t seed, uint64_t key)
{
    size_t i = hash_mix(key ^ seed) & (slots - 1);

    while (keys[i] != UINT64_MAX && keys[i] != key) {
        i = (i + 1) & (slots - 1);
    }
    return i;
}

static inline size_t pair_slot(const struct bpe *m, uint64_t key)
{
    return table_slot(m->pair_keys, m->pair_slots, m->vocab->seed, key);
}

static inline size_t joint_slot(const struct bpe *m, uint64_t key)
{
    return table_slot(m->joints, m->joint_slots, m->vocab->seed, key);
}

enum { NO_RANK = INT32_MAX };

/* The rank of a pair, NO_RANK when it has none. */
static inline uint32_t pair_rank(const struct bpe *m, int32_t left, int32_t right)
{
    const uint64_t key = pair_key(left, right);
    const size_t i = pair_slot(m, key);
    return m->pair_keys[i] == key ? m->pair_ranks[i] : NO_RANK;
}

#endif
