/* token_file.h - the format of a token file, for trainer/data only.
 *
 *   header              TOKEN_FILE_HEADER bytes, zero-padded
 *   tokens              u16 when the vocabulary has at most 65536 tokens, else u32; padded to 8 bytes
 *   trained             examples only: one bit per token, lowest bit first, 1: a target; padded to 8 bytes
 *   ends of documents   i64, rising; the last is the number of tokens
 *   report              JSON about how the file was made; may be empty
 *
 * A document of a text ends with EOS; a document of examples is one example, and its tokens never are
 * targets of another one's. All numbers are little-endian. A file is complete when it has its name: it is
 * renamed last.
 */
#ifndef TRAINER_DATA_TOKEN_FILE_H
#define TRAINER_DATA_TOKEN_FILE_H

#include "trainer/base/sha256.h"
#include "trainer/data/data.h"

enum { TOKEN_FILE_HEADER = 512, TOKEN_FILE_VERSION = 2 };

#define TOKEN_FILE_MAGIC "HONETOKN"

struct token_file_header {
    char magic[8];
    uint32_t version;
    uint32_t width; /* bytes of a token: 2 or 4 */
    int64_t vocab_size, tokens, documents;
    uint64_t text_bytes; /* of the source, a byte order mark included */
    int64_t text_mtime;  /* seconds since 1970 */
    uint32_t kind;       /* enum token_file_kind */
    uint32_t report_bytes;
    int64_t trained; /* bits that are 1 */
    char text_sha256[SHA256_TEXT], tokenizer_hash[SHA256_TEXT];
    char options_hash[SHA256_TEXT]; /* of template and options; "" for a text */
};

static inline uint64_t token_file_padded(uint64_t bytes)
{
    return (bytes + 7) & ~(uint64_t)7;
}

/* Where the trained bits begin, where the ends of documents do. */
static inline uint64_t token_file_bits(const struct token_file_header *h)
{
    return TOKEN_FILE_HEADER + token_file_padded((uint64_t)h->tokens * h->width);
}

static inline uint64_t token_file_tail(const struct token_file_header *h)
{
    const uint64_t bits = h->kind == TOKEN_FILE_EXAMPLES ? ((uint64_t)h->tokens + 7) / 8 : 0;

    return token_file_bits(h) + token_file_padded(bits);
}

struct token_file {
    struct token_file_header header;
    char *path; /* owned */
    void *map;  /* owned, read-only */
    size_t map_bytes;
    const uint16_t *u16; /* one of them; in the map */
    const uint32_t *u32;
    const unsigned char *bits; /* in the map; NULL for a text */
    const int64_t *ends;
};

/* Where document i begins. */
static inline int64_t token_file_begin(const struct token_file *f, int64_t i)
{
    return i == 0 ? 0 : f->ends[i - 1];
}

#endif
