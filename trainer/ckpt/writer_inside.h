/* writer_inside.h - what writer.c and writer_share.c know of a writer. */
#ifndef TRAINER_CKPT_WRITER_INSIDE_H
#define TRAINER_CKPT_WRITER_INSIDE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "trainer/base/io.h"
#include "trainer/base/sha256.h"
#include "trainer/ckpt/writer.h"

enum { WRITER_STAGE = 1 << 20 /* bytes converted, or gathered, at a time */ };

/* A declared tensor. */
struct declared {
    char *name; /* owned */
    enum st_dtype dtype;
    int dims;
    int64_t shape[ST_DIMS_MAX];
    int64_t number; /* of the declaration */
    uint64_t bytes;
    uint64_t begin; /* of its values in the file; shared writers only */
    int shard;
};

struct writer {
    char dir[IO_PATH_MAX], stem[128];
    uint64_t shard_bytes;
    json_t *metadata;        /* owned */
    struct declared *tensor; /* owned; in the order of declaration until start, then of writing */
    int64_t count, room, at; /* `at` is being written */
    uint64_t done;           /* bytes of it that are written */
    int shards, shard;       /* how many, and the one that is open; -1 before start */
    int fd;                  /* of the open shard, -1 when none is */
    char path[IO_PATH_MAX];  /* of the open shard */
    struct sha256 hash;      /* of the open shard so far */
    struct manifest_file *file; /* owned; shards and index */
    int files;                  /* that are begun */
    char *stage;                /* owned; WRITER_STAGE bytes */
    bool finished;
    /* Of a writer that several processes share (writer_share). */
    bool shared, creates;
    int *fds;          /* owned [shards]; -1: not open here                           */
    int64_t *where;    /* owned [count]: place in `tensor` of a declaration's number  */
    uint64_t written;  /* bytes of values by this process                            */
    int stage_shard;   /* what the stage holds goes to this file ..                  */
    uint64_t stage_at; /* .. from this byte on                                       */
    size_t staged;
};

/* Deal the declared tensors to shards, sort them as they are written and name the files. Errors: NO_MEMORY. */
int writer_deal(struct writer *w, struct err *err);

/* Header of the shard whose tensors begin with number `first` of the sorted ones, as text padded with spaces so that the data
 * begins aligned; the caller frees. NULL: no memory. */
char *writer_header(const struct writer *w, int shard, int64_t first, size_t *bytes);

/* The 8 bytes before it. */
void writer_prefix(unsigned char out[8], size_t header_bytes);

/* STEM.safetensors.index.json, as transformers writes it: one more file. Errors: DISK_FULL, IO, NO_MEMORY. */
int writer_index(struct writer *w, struct err *err);

#endif
