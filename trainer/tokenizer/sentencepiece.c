/* sentencepiece.c - a sentencepiece model to the JSON of a tokenizer. */
#include <math.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/foreign.h"
#include "trainer/tokenizer/protobuf.h"
#include "trainer/tokenizer/utf8.h"

/* Numbers of fields in sentencepiece_model.proto. */
enum { MODEL_PIECES = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum { TRAINER_KIND = 3, TRAINER_SUFFIX = 24, TRAINER_FALLBACK = 35 };
enum { TRAINER_UNK = 40, TRAINER_BOS = 41, TRAINER_EOS = 42, TRAINER_PAD = 43 };
enum {
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_PREFIX = 3,
    NORMALIZER_SPACES = 4,
    NORMALIZER_ESCAPE = 5
};

enum { KIND_UNIGRAM = 1, KIND_BPE = 2 };
enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER_DEFINED = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

static const char mark[] = "\xE2\x96\x81"; /* U+2581 */

struct sp_piece {
    const char *s; /* borrowed from the file */
    size_t n;
    float score;
    uint64_t type;
};

struct sentencepiece {
    struct sp_piece *pieces; /* owned */
    size_t count, room;
    uint64_t kind, bos, eos, pad;
    bool suffix, fallback, prefix, spaces, escape;
    const char *charsmap; /* borrowed */
    size_t charsmap_n;
};

static int read_piece(struct sentencepiece *m, struct proto p, struct err *err)
{
    struct sp_piece piece = {.s = "", .type = TYPE_NORMAL};
    struct proto_field f;
    bool more;

    TRY(proto_next(&p, &f, &more, err));
    while (more) {
        if (f.number == PIECE_TEXT && f.type == PROTO_BYTES) {
            piece.s = f.bytes;
            piece.n = f.n;
        } else if (f.number == PIECE_SCORE && f.type == PROTO_32_BITS) {
            piece.score = proto_float(&f);
        } else if (f.number == PIECE_TYPE && f.type == PROTO_VARINT) {
            piece.type = f.value;
        }
        TRY(proto_next(&p, &f, &more, err));
    }
    if (piece.n == 0 || utf8_prefix(piece.s, piece.n, NULL) < piece.n || !isfinite(piece.score)) {
        return FAIL(err, ERR_BAD_FILE,
                    "piece %zu of the sentencepiece model is no text with a score", m->count);
    }
    if (m->count == m->room) {
        const size_t room = m->room == 0 ? 1024 : m->room * 2;
        struct sp_piece *pieces = realloc(m->pieces, room * sizeof *pieces);
        if (pieces == NULL) {
            return FAIL(err, ERR_NO_MEMORY, "no memory for a vocabulary");
        }
        m->pieces = pieces;
        m->room = room;
    }
    m->pieces[m->count++] = piece;
    return 0;
}

static int read_trainer(struct sentencepiece *m, struct proto p, struct err *err)
{
    struct proto_field f;
    bool more;

    TRY(proto_next(&p, &f, &more, err));
    while (more) {
        if (f.type == PROTO_VARINT) {
            switch (f.number) {
            case TRAINER_KIND: m->kind = f.value; break;
            case TRAINER_SUFFIX: m->suffix = f.value != 0; break;
            case TRAINER_FALLBACK: m->fallback = f.value != 0; break;
            case TRAINER_BOS: m->bos = f.value; break;
            case TRAINER_EOS: m->eos = f.value; break;
            case TRAINER_PAD: m->pad = f.value; break;
            default: break;
            }
        }
        TRY(proto_next(&p, &f, &more, err));
    }
    return 0;
}

static int read_normalizer(struct sentencepiece *m, struct proto p, struct err *err)
{
    struct proto_field f;
    bool more;

    TRY(proto_next(&p, &f, &more, err));
    while (more) {
        if (f.number == NORMALIZER_CHARSMAP && f.type == PROTO_BYTES) {
            m->charsmap = f.bytes;
            m->charsmap_n = f.n;
        } else if (f.type == PROTO_VARINT) {
            m->prefix = f.number == NORMALIZER_PREFIX ? f.value != 0 : m->prefix;
            m->spaces = f.number == NORMALIZER_SPACES ? f.value != 0 : m->spaces;
            m->escape = f.number == NORMALIZER_ESCAPE ? f.value != 0 : m->escape;
        }
        TRY(proto_next(&p, &f, &more, err));
    }
    return 0;
}

static int read_model(struct sentencepiece *m, const char *bytes, size_t n, struct err *err)
{
    struct proto p = {.at = bytes, .n = n};
    struct proto_field f;
    bool more;

    *m = (struct sentencepiece){.kind = KIND_UNIGRAM,
                                .bos = 1,
                                .eos = 2,
                                .pad = UINT64_MAX,
                                .prefix = true,
                                .spaces = true,
                                .escape = true};
    TRY(proto_next(&p, &f, &more, err));
    while (more) {
        const struct proto inner = {.at = f.bytes, .n = f.n};
        if (f.type == PROTO_BYTES && f.number == MODEL_PIECES) {
            TRY(read_piece(m, inner, err));
        } else if (f.type == PROTO_BYTES && f.number == MODEL_TRAINER) {
            TRY(read_trainer(m, inner, err));
        } else if (f.type == PROTO_BYTES && f.number == MODEL_NORMALIZER) {
            TRY(read_normalizer(m, inner, err));
        }
        TRY(proto_next(&p, &f, &more, err));
    }
    if (m->count == 0) {
        return FAIL(err, ERR_BAD_FILE, "it is not a sentencepiece model: it has no pieces");
    }
    if (m->kind != KIND_UNIGRAM && m->kind != KIND_BPE) {
        return FAIL(
            err, ERR_BAD_FILE,
            "the sentencepiece model is of kind %llu; unigram (1) and bpe (2) are supported",
            (unsigned long long)m->kind);
    }
    if (m->suffix) {
        return FAIL(err, ERR_BAD_FILE,
                    "the sentencepiece model has white space behind words, which is not supported");
    }
    return 0;
}

static json_t *string_step(const char *pattern_kind, const char *pattern, const char *content)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", pattern_kind, pattern,
                     "content", content);
}

static json_t *charsmap_step(const struct sentencepiece *m)
{
    const size_t length = BASE64_ENCODE_RAW_LENGTH(m->charsmap_n);
    char *base64 = malloc(length + 1);
    json_t *step = NULL;

    if (base64 != NULL) {
        base64_encode_raw(base64, m->charsmap_n, (const uint8_t *)m->charsmap);
        step = json_pack("{s:s, s:s%, s:b}", "type", "Precompiled", "precompiled_charsmap", base64,
                         length, "longest", 1);
    }
    free(base64);
    return step;
}

/* Spaces are looked at once the characters are mapped: those at the ends go, more than one are one. */
static json_t *normalizer_json(const struct sentencepiece *m, bool prefix)
{
    json_t *list = json_array();

    if (m->charsmap_n > 0) {
        (void)json_array_append_new(list, charsmap_step(m));
    }
    if (m->spaces) {
        (void)json_array_append_new(list, string_step("Regex", "\\A +|[ \xE2\x96\x81]+\\z", ""));
        (void)json_array_append_new(list, string_step("Regex", " {2,}", " "));
    }
    if (prefix) {
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", m->escape ? mark : " "));
    }
    if (m->escape) {
        (void)json_array_append_new(list, string_step("String", " ", mark));
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", list);
}

/* Has a piece a mark that does not begin it? Then words are not cut at marks. */
static bool spans_words(const struct sentencepiece *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct sp_piece *p = &m->pieces[i];
        if (p->n > 3 && memmem(p->s + 3, p->n - 3, mark, 3) != NULL) {
            return true;
        }
    }
    return false;
}

/* What transformers does: unless "legacy" is false each stretch between added tokens has a space in front;
 * if it is, only the start of the text, when none is there. */
static json_t *pre_tokenizer_json(const struct sentencepiece *m, bool legacy)
{
    const bool split = m->kind == KIND_UNIGRAM && m->escape && !spans_words(m);

    if (!legacy && m->prefix) {
        return json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", mark,
                         "prepend_scheme", "first", "split", split);
    }
    return split ? json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "String", mark,
                             "behavior", "MergedWithNext")
                 : json_null();
}

static json_t *decoder_json(const struct sentencepiece *m)
{
    json_t *list = json_array();

    (void)json_array_append_new(list, string_step("String", mark, " "));
    (void)json_array_append_new(list, json_pack("{s:s}", "type", "ByteFallback"));
    (void)json_array_append_new(list, json_pack("{s:s}", "type", "Fuse"));
    if (m->prefix) {
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip",
                                                    "content", " ", "start", 1, "stop", 0));
    }
    return json_pack("{s:s, s:o}", "type", "Sequence", "decoders", list);
}

static size_t unknown_of(const struct sentencepiece *m)
{
    size_t i = 0;
    while (i < m->count && m->pieces[i].type != TYPE_UNKNOWN) {
        i++;
    }
    return i;
}

static json_t *unigram_json(const struct sentencepiece *m)
{
    const size_t unk = unknown_of(m);
    json_t *vocab = json_array();

    for (size_t i = 0; i < m->count; i++) {
        const struct sp_piece *p = &m->pieces[i];
        json_t *score = p->type == TYPE_NORMAL ? json_real((double)p->score) : json_null();
        (void)json_array_append_new(vocab, json_pack("[s%, o]", p->s, p->n, score));
    }
    return json_pack("{s:s, s:o, s:b, s:o}", "type", "Unigram", "vocab", vocab, "byte_fallback",
                     m->fallback, "unk_id",
                     unk < m->count ? json_integer((json_int_t)unk) : json_null());
}

static int by_score(const void *a, const void *b, void *context)
{
    const struct sp_piece *pieces = context;
    const size_t i = *(const size_t *)a, k = *(const size_t *)b;
    const float x = pieces[i].score, y = pieces[k].score;
    return x != y ? (x < y) - (x > y) : (i > k) - (i < k);
}

/* The pieces that merging makes, the best score first. */
static json_t *merge_order(const struct sentencepiece *m)
{
    size_t *order = malloc((m->count + 1) * sizeof *order), count = 0;
    json_t *list = order != NULL ? json_array() : NULL;

    for (size_t i = 0; order != NULL && i < m->count; i++) {
        const uint64_t type = m->pieces[i].type;
        if (type == TYPE_NORMAL || type == TYPE_USER_DEFINED || type == TYPE_UNUSED) {
            order[count++] = i;
        }
    }
    if (count > 0) {
        qsort_r(order, count, sizeof *order, by_score, m->pieces);
    }
    for (size_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_integer((json_int_t)order[i]));
    }
    free(order);
    return list;
}

static json_t *bpe_json(const struct sentencepiece *m)
{
    const size_t unk = unknown_of(m);
    json_t *vocab = json_array();

    for (size_t i = 0; i < m->count; i++) {
        (void)json_array_append_new(vocab, json_stringn(m->pieces[i].s, m->pieces[i].n));
    }
    return json_pack("{s:s, s:o, s:o, s:b, s:b, s:o}", "type", "BPE", "vocab", vocab, "merge_order",
                     merge_order(m), "byte_fallback", m->fallback, "fuse_unk", 1, "unk_token",
                     unk < m->count ? json_stringn(m->pieces[unk].s, m->pieces[unk].n)
                                    : json_null());
}

static json_t *tokens_json(const struct sentencepiece *m)
{
    json_t *tokens = json_object();

    for (size_t i = 0; i < m->count; i++) {
        const struct sp_piece *p = &m->pieces[i];
        const bool special = p->type == TYPE_CONTROL || p->type == TYPE_UNKNOWN;
        const bool marked = memmem(p->s, p->n, mark, 3) != NULL; /* a BPE merges these */
        if (special || (p->type == TYPE_USER_DEFINED && !marked)) {
            foreign_put_token(tokens, (int64_t)i, p->s, p->n, special);
        }
    }
    return tokens;
}

static int32_t control_id(const struct sentencepiece *m, uint64_t id)
{
    return id < m->count && m->pieces[id].type == TYPE_CONTROL ? (int32_t)id : -1;
}

/* BOS in front and EOS behind, as tokenizer_config.json says or as tokenizers of this kind have it. */
static json_t *post_processor_json(const struct sentencepiece *m, const struct foreign *f,
                                   const json_t *config)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    const bool t5 = class != NULL && strncmp(class, "T5", 2) == 0;
    const bool bos = foreign_flag(config, "add_bos_token", m->kind == KIND_BPE);

    return foreign_template(bos ? f->bos : -1,
                            foreign_flag(config, "add_eos_token", t5) ? f->eos : -1);
}

int sentencepiece_read(struct foreign *out, const char *bytes, size_t n, const json_t *config,
                       struct err *err)
{
    struct sentencepiece m;
    const bool legacy = foreign_flag(config, "legacy", true);

    *out = (struct foreign){.bos = -1, .eos = -1, .pad = -1};
    const int rc = read_model(&m, bytes, n, err);
    if (rc == 0) {
        out->bos = control_id(&m, m.bos);
        out->eos = control_id(&m, m.eos);
        out->pad = control_id(&m, m.pad);
        out->root = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "normalizer",
                              normalizer_json(&m, m.prefix && legacy), "pre_tokenizer",
                              pre_tokenizer_json(&m, legacy), "post_processor",
                              post_processor_json(&m, out, config), "decoder", decoder_json(&m),
                              "added_tokens", foreign_tokens(tokens_json(&m), config), "model",
                              m.kind == KIND_BPE ? bpe_json(&m) : unigram_json(&m));
    }
    free(m.pieces);
    if (rc == 0 && out->root == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a tokenizer");
    }
    return rc;
}
