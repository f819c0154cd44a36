/* token_file.h - the format of a token file, for trainer/data only.
 *
 *   header              TOKEN_FILE_HEADER bytes, zero-padded
 *   tokens              u16 when the vocabulary has at most 65536 tokens, else u32; padded to 8 bytes
 *   ends of documents   i64, rising; the last is the number of tokens
 *
 * All numbers are little-endian. A file is complete when it has its name: it is renamed last.
 */
#ifndef TRAINER_DATA_TOKEN_FILE_H
#define TRAINER_DATA_TOKEN_FILE_H

#include "trainer/base/sha256.h"
#include "trainer/data/data.h"

enum { TOKEN_FILE_HEADER = 512, TOKEN_FILE_VERSION = 1 };

#define TOKEN_FILE_MAGIC "HONETOKN"

struct token_file_header {
    char magic[8];
    uint32_t version;
    uint32_t width; /* bytes of a token: 2 or 4 */
    int64_t vocab_size, tokens, documents;
    uint64_t text_bytes; /* of the source, a byte order mark included */
    int64_t text_mtime;  /* seconds since 1970 */
    char text_sha256[SHA256_TEXT], tokenizer_hash[SHA256_TEXT];
};

/* Where the ends of documents begin. */
static inline uint64_t token_file_tail(const struct token_file_header *h)
{
    return TOKEN_FILE_HEADER + (((uint64_t)h->tokens * h->width + 7) & ~(uint64_t)7);
}

struct token_file {
    struct token_file_header header;
    char *path; /* owned */
    void *map;  /* owned, read-only */
    size_t map_bytes;
    const uint16_t *u16; /* one of them; in the map */
    const uint32_t *u32;
    const int64_t *ends;
};

#endif
