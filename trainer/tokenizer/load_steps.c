/* load_steps.c - pre-tokenizer, post-processor and decoder of a tokenizer.json. */
#include "trainer/tokenizer/load_steps.h"

#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xE2\x96\x81"; /* U+2581 */

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const char punctuation[] = "[\\p{P}$+<=>^`|~]";

/* \w of Rust's regex crate: Alphabetic, Mark, Decimal_Number, Connector_Punctuation, Join_Control. */
#define RUST_WORD                                                            \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static int load_behavior(const json_t *component, enum split_behavior preset,
                         enum split_behavior *out, struct err *err)
{
    static const char *const names[SPLIT_COUNT] = {
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *s;
    size_t n;

    if (json_object_get(component, "behavior") == NULL) {
        *out = preset;
        return 0;
    }
    TRY(load_string(component, "behavior", &s, &n, err));
    for (int i = 0; i < SPLIT_COUNT; i++) {
        if (strcmp(s, names[i]) == 0) {
            *out = (enum split_behavior)i;
            return 0;
        }
    }
    return load_unknown("behavior", s, err);
}

static int add_split(struct tokenizer *t, const char *pattern, enum split_behavior behavior,
                     bool invert, struct err *err)
{
    struct step *s;

    TRY(load_add_step(&t->split, STEP_SPLIT, &s, err));
    s->behavior = behavior;
    s->invert = invert;
    return regex_new(&s->regex, pattern, strlen(pattern), err);
}

/* `with` in front of a piece that does not start with it. */
static int add_prefix(struct tokenizer *t, const char *with, size_t n, bool at_start_only,
                      struct err *err)
{
    struct step *s;

    TRY(load_add_step(&t->split, STEP_PREPEND, &s, err));
    s->unless_there = true;
    s->at_start_only = at_start_only;
    return text_put(&s->with, with, n, err);
}

static int load_byte_level(struct tokenizer *t, const json_t *component, struct err *err)
{
    bool prefix, regex;
    struct step *s;

    TRY(load_flag(component, "add_prefix_space", true, &prefix, err));
    TRY(load_flag(component, "use_regex", true, &regex, err));
    if (prefix) {
        TRY(add_prefix(t, " ", 1, false, err));
    }
    if (regex) {
        TRY(add_split(t, gpt2_pattern, SPLIT_ISOLATED, false, err));
    }
    return load_add_step(&t->split, STEP_BYTES, &s, err);
}

/* The replacement character and the scheme, of a pre-tokenizer and of a decoder. */
static int load_metaspace_options(const json_t *component, const char **mark, size_t *n,
                                  const char **scheme, struct err *err)
{
    uint32_t c;
    size_t ignored;
    bool prefix;

    *mark = metaspace;
    *n = strlen(metaspace);
    *scheme = "always";
    if (json_object_get(component, "replacement") != NULL) {
        TRY(load_string(component, "replacement", mark, n, err));
    }
    if (*n == 0 || utf8_get(*mark, &c) != *n) {
        return FAIL(err, ERR_BAD_FILE,
                    "tokenizer.json: the replacement of Metaspace is not one character");
    }
    if (json_object_get(component, "prepend_scheme") != NULL) {
        TRY(load_string(component, "prepend_scheme", scheme, &ignored, err));
    }
    TRY(load_flag(component, "add_prefix_space", true, &prefix, err));
    if (!prefix) {
        *scheme = "never";
    }
    if (strcmp(*scheme, "always") != 0 && strcmp(*scheme, "first") != 0 &&
        strcmp(*scheme, "never") != 0) {
        return load_unknown("prepend_scheme", *scheme, err);
    }
    return 0;
}

static int load_metaspace(struct tokenizer *t, const json_t *component, struct err *err)
{
    const char *mark, *scheme;
    struct step *s;
    bool split;
    size_t n;

    TRY(load_metaspace_options(component, &mark, &n, &scheme, err));
    TRY(load_flag(component, "split", true, &split, err));
    TRY(load_add_step(&t->split, STEP_REPLACE, &s, err));
    TRY(text_put(&s->literal, " ", 1, err));
    TRY(text_put(&s->with, mark, n, err));
    if (strcmp(scheme, "never") != 0) {
        TRY(add_prefix(t, mark, n, strcmp(scheme, "first") == 0, err));
    }
    if (!split) {
        return 0;
    }
    TRY(load_add_step(&t->split, STEP_SPLIT, &s, err));
    s->behavior = SPLIT_MERGED_WITH_NEXT;
    return text_put(&s->literal, mark, n, err);
}

/* Split at a character, which goes. */
static int load_delimiter(struct tokenizer *t, const json_t *component, struct err *err)
{
    const char *delimiter;
    struct step *s;
    size_t n;

    TRY(load_string(component, "delimiter", &delimiter, &n, err));
    TRY(load_add_step(&t->split, STEP_SPLIT, &s, err));
    s->behavior = SPLIT_REMOVED;
    return text_put(&s->literal, delimiter, n, err);
}

int load_pre_tokenizer(struct tokenizer *t, const json_t *component, int depth, struct err *err)
{
    enum split_behavior behavior = SPLIT_ISOLATED;
    const char *type;
    bool flag;

    if (component == NULL || json_is_null(component)) {
        return 0;
    }
    TRY(load_type(component, "pre_tokenizer", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(component, "pretokenizers", "pre_tokenizer", depth, load_pre_tokenizer,
                             t, err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return load_byte_level(t, component, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        return load_metaspace(t, component, err);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        TRY(add_split(t, "\\s", SPLIT_REMOVED, false, err));
        return add_split(t, punctuation, SPLIT_ISOLATED, false, err);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        return load_delimiter(t, component, err);
    }
    if (strcmp(type, "Split") == 0) {
        struct step *s;
        TRY(load_add_step(&t->split, STEP_SPLIT, &s, err));
        TRY(load_behavior(component, SPLIT_COUNT, &s->behavior, err));
        if (s->behavior == SPLIT_COUNT) {
            return FAIL(err, ERR_BAD_FILE, "tokenizer.json: a Split has no behavior");
        }
        TRY(load_flag(component, "invert", false, &s->invert, err));
        return load_pattern(component, s, err);
    }
    if (strcmp(type, "Digits") == 0) {
        TRY(load_flag(component, "individual_digits", false, &flag, err));
        return add_split(t, "\\p{N}", flag ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, err);
    }
    if (strcmp(type, "Punctuation") == 0) {
        TRY(load_behavior(component, SPLIT_ISOLATED, &behavior, err));
        return add_split(t, punctuation, behavior, false, err);
    }
    if (strcmp(type, "Whitespace") == 0) {
        return add_split(t, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", SPLIT_REMOVED, true, err);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        return add_split(t, "\\s", SPLIT_REMOVED, false, err);
    }
    return load_unknown("pre_tokenizer", type, err);
}

/* A pair of a token and its id, as the processors of BERT and RoBERTa have them. */
static int put_pair(struct tokenizer *t, struct token_list *l, const json_t *component,
                    const char *key, struct err *err)
{
    const json_t *id = json_array_get(json_object_get(component, key), 1);

    if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= t->size) {
        return FAIL(err, ERR_BAD_FILE,
                    "tokenizer.json: '%s' of the post_processor is not a token and its id", key);
    }
    return token_list_put(l, (int32_t)json_integer_value(id), err);
}

/* Append the ids of a template's special token. */
static int put_special(struct tokenizer *t, struct token_list *l, const json_t *specials,
                       const char *name, struct err *err)
{
    const json_t *ids = json_object_get(json_object_get(specials, name), "ids"), *id;
    size_t i;

    if (!json_is_array(ids)) {
        return FAIL(err, ERR_BAD_FILE,
                    "tokenizer.json: the post_processor has no ids for special token '%s'",
                    text_excerpt(name, strlen(name)).at);
    }
    json_array_foreach(ids, i, id)
    {
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= t->size) {
            return FAIL(err, ERR_BAD_FILE,
                        "tokenizer.json: special token '%s' has an id outside the vocabulary",
                        text_excerpt(name, strlen(name)).at);
        }
        TRY(token_list_put(l, (int32_t)value, err));
    }
    return 0;
}

/* The template of a single text: special tokens, the text, special tokens. An outer template goes around what
 * inner ones of a Sequence made. */
static int load_template(struct tokenizer *t, const json_t *component, struct err *err)
{
    const json_t *single = json_object_get(component, "single"), *item;
    const json_t *specials = json_object_get(component, "special_tokens");
    struct token_list before = {0};
    bool text = false;
    int rc = 0;
    size_t i;

    if (!json_is_array(single)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: TemplateProcessing has no list 'single'");
    }
    json_array_foreach(single, i, item)
    {
        const json_t *sequence = json_object_get(item, "Sequence");
        const char *name =
            json_string_value(json_object_get(json_object_get(item, "SpecialToken"), "id"));
        if (sequence != NULL && !text) {
            text = true;
        } else if (sequence == NULL && name != NULL) {
            rc = put_special(t, text ? &t->after : &before, specials, name, err);
        } else {
            rc = FAIL(err, ERR_BAD_FILE,
                      "tokenizer.json: item %zu of the template is neither a special token nor "
                      "the only text",
                      i + 1);
        }
        if (rc != 0) {
            break;
        }
    }
    if (rc == 0 && !text) {
        rc = FAIL(err, ERR_BAD_FILE, "tokenizer.json: the template leaves out the text");
    }
    for (size_t k = 0; rc == 0 && k < t->before.count; k++) {
        rc = token_list_put(&before, t->before.ids[k], err);
    }
    token_list_free(rc == 0 ? &t->before : &before);
    if (rc == 0) {
        t->before = before;
    }
    return rc;
}

int load_post_processor(struct tokenizer *t, const json_t *component, int depth, struct err *err)
{
    const char *type;

    if (component == NULL || json_is_null(component)) {
        return 0;
    }
    TRY(load_type(component, "post_processor", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(component, "processors", "post_processor", depth, load_post_processor,
                             t, err);
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return load_template(t, component, err);
    }
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        TRY(put_pair(t, &t->before, component, "cls", err));
        return put_pair(t, &t->after, component, "sep", err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return 0; /* trims offsets, which nobody asks for */
    }
    return load_unknown("post_processor", type, err);
}

static int load_count(const json_t *object, const char *key, int64_t *out, struct err *err)
{
    const json_t *v = json_object_get(object, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: '%s' is not a count", key);
    }
    *out = json_integer_value(v);
    return 0;
}

static int load_strip(const json_t *component, struct unmake *u, struct err *err)
{
    const char *s;
    uint32_t c;
    size_t n;

    TRY(load_string(component, "content", &s, &n, err));
    if (n == 0 || utf8_get(s, &c) != n) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: Strip takes one character");
    }
    TRY(load_count(component, "start", &u->start, err));
    TRY(load_count(component, "stop", &u->stop, err));
    return text_put(&u->pattern.with, s, n, err);
}

/* Once tokens are one text it arrives in fragments: what could match across two is refused. */
static int check_order(const struct tokenizer *t, const struct unmake *u, const char *type,
                       struct err *err)
{
    bool fused = false;

    for (const struct unmake *p = t->unmakes; p < u; p++) {
        fused = fused || p->kind == UNMAKE_BYTES || p->kind == UNMAKE_FUSE;
    }
    const bool single = u->kind == UNMAKE_REPLACE && step_keeps_seams(&u->pattern);
    if (fused && u->kind != UNMAKE_FUSE && u->kind != UNMAKE_STRIP && !single) {
        return FAIL(err, ERR_BAD_FILE,
                    "tokenizer.json: the decoder '%s' after ByteLevel or Fuse is not supported",
                    type);
    }
    return 0;
}

static int load_unmake(struct unmake *u, const char *type, const json_t *component, struct err *err)
{
    const char *mark, *scheme;
    size_t n;

    u->pattern.kind = STEP_REPLACE;
    if (strcmp(type, "ByteLevel") == 0) {
        u->kind = UNMAKE_BYTES;
    } else if (strcmp(type, "ByteFallback") == 0) {
        u->kind = UNMAKE_FALLBACK;
    } else if (strcmp(type, "Fuse") == 0) {
        u->kind = UNMAKE_FUSE;
    } else if (strcmp(type, "Replace") == 0) {
        u->kind = UNMAKE_REPLACE;
        return load_replace(component, &u->pattern, err);
    } else if (strcmp(type, "BPEDecoder") == 0) {
        u->kind = UNMAKE_SUFFIX;
        TRY(load_string(component, "suffix", &mark, &n, err));
        return text_put(&u->pattern.literal, mark, n, err);
    } else if (strcmp(type, "Strip") == 0) {
        u->kind = UNMAKE_STRIP;
        return load_strip(component, u, err);
    } else if (strcmp(type, "Metaspace") == 0) {
        u->kind = UNMAKE_METASPACE;
        TRY(load_metaspace_options(component, &mark, &n, &scheme, err));
        u->first = strcmp(scheme, "never") != 0;
        return text_put(&u->pattern.literal, mark, n, err);
    } else {
        return load_unknown("decoder", type, err);
    }
    return 0;
}

int load_decoder(struct tokenizer *t, const json_t *component, int depth, struct err *err)
{
    const char *type;

    if (component == NULL || json_is_null(component)) {
        t->joined_by_space = depth == 0;
        return 0;
    }
    TRY(load_type(component, "decoder", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(component, "decoders", "decoder", depth, load_decoder, t, err);
    }
    if (t->unmake_count == UNMAKES_MAX) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: more than %d decoders", UNMAKES_MAX);
    }
    struct unmake *u = &t->unmakes[t->unmake_count++];
    TRY(load_unmake(u, type, component, err));
    return check_order(t, u, type, err);
}
