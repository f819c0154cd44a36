/* load_normalizer.c - normalizers of a tokenizer.json. */
#include <string.h>

#include "trainer/tokenizer/load_steps.h"

enum { STEPS_MAX = 64 };

int load_add_step(struct step_list *l, enum step_kind kind, struct step **s, struct err *err)
{
    if (l->count == STEPS_MAX) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: more than %d steps in a Sequence",
                    STEPS_MAX);
    }
    return step_list_add(l, kind, s, err);
}

int load_pattern(const json_t *object, struct step *s, struct err *err)
{
    const json_t *pattern = json_object_get(object, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *string = json_is_string(pattern) ? pattern : json_object_get(pattern, "String");

    if (json_is_string(regex)) {
        return regex_new(&s->regex, json_string_value(regex), json_string_length(regex), err);
    }
    if (!json_is_string(string)) {
        return FAIL(err, ERR_BAD_FILE, "tokenizer.json: a pattern is neither String nor Regex");
    }
    return text_put(&s->literal, json_string_value(string), json_string_length(string), err);
}

int load_replace(const json_t *object, struct step *s, struct err *err)
{
    const char *content;
    size_t n;

    TRY(load_pattern(object, s, err));
    TRY(load_string(object, "content", &content, &n, err));
    return text_put(&s->with, content, n, err);
}

static int add_form(struct tokenizer *t, enum form form, struct err *err)
{
    struct step *s;

    TRY(load_add_step(&t->normal, STEP_FORM, &s, err));
    s->form = form;
    return 0;
}

static int add_chars(struct tokenizer *t, enum chars chars, struct err *err)
{
    struct step *s;

    TRY(load_add_step(&t->normal, STEP_CHARS, &s, err));
    s->chars = chars;
    return 0;
}

static int load_strip(struct tokenizer *t, const json_t *component, struct err *err)
{
    struct step *s;

    TRY(load_add_step(&t->normal, STEP_STRIP, &s, err));
    TRY(load_flag(component, "strip_left", true, &s->strip_start, err));
    return load_flag(component, "strip_right", true, &s->strip_end, err);
}

static int load_charsmap(struct tokenizer *t, const json_t *component, struct err *err)
{
    struct text bytes = {0};
    const char *base64;
    struct step *s;
    size_t n;
    bool longest;

    TRY(load_string(component, "precompiled_charsmap", &base64, &n, err));
    TRY(load_flag(component, "longest", false, &longest, err));
    TRY(load_add_step(&t->normal, STEP_CHARSMAP, &s, err));
    int rc = text_put_base64(&bytes, base64, n, err);
    if (rc == 0) {
        rc = charsmap_new(&s->charsmap, bytes.at, bytes.n,
                          longest ? CHARSMAP_LONGEST : CHARSMAP_GRAPHEMES, err);
    }
    text_free(&bytes);
    return rc;
}

/* Accents go when they are told to, or with lower case when nothing is said. */
static int load_bert(struct tokenizer *t, const json_t *component, struct err *err)
{
    bool clean, ideographs, lower, accents;

    TRY(load_flag(component, "clean_text", true, &clean, err));
    TRY(load_flag(component, "handle_chinese_chars", true, &ideographs, err));
    TRY(load_flag(component, "lowercase", true, &lower, err));
    TRY(load_flag(component, "strip_accents", lower, &accents, err));
    TRY(clean ? add_chars(t, CHARS_CLEAN, err) : 0);
    TRY(ideographs ? add_chars(t, CHARS_IDEOGRAPHS, err) : 0);
    if (accents) {
        TRY(add_form(t, FORM_NFD, err));
        TRY(add_chars(t, CHARS_NO_NONSPACING, err));
    }
    return lower ? add_chars(t, CHARS_LOWER, err) : 0;
}

static int load_prepend(struct tokenizer *t, const json_t *component, struct err *err)
{
    const char *s;
    struct step *step;
    size_t n;

    TRY(load_string(component, "prepend", &s, &n, err));
    TRY(load_add_step(&t->normal, STEP_PREPEND, &step, err));
    return text_put(&step->with, s, n, err);
}

int load_normalizer(struct tokenizer *t, const json_t *component, int depth, struct err *err)
{
    static const char *const forms[] = {
        [FORM_NFC] = "NFC", [FORM_NFD] = "NFD", [FORM_NFKC] = "NFKC", [FORM_NFKD] = "NFKD"};
    static const struct {
        const char *type;
        enum chars chars;
    } chars[] = {{"Lowercase", CHARS_LOWER}, {"StripAccents", CHARS_NO_MARKS}, {"Nmt", CHARS_NMT}};
    const char *type;
    struct step *step;

    if (component == NULL || json_is_null(component)) {
        return 0;
    }
    TRY(load_type(component, "normalizer", &type, err));
    if (strcmp(type, "Sequence") == 0) {
        return load_sequence(component, "normalizers", "normalizer", depth, load_normalizer, t,
                             err);
    }
    for (int form = FORM_NFC; form <= FORM_NFKD; form++) {
        if (strcmp(type, forms[form]) == 0) {
            return add_form(t, (enum form)form, err);
        }
    }
    for (size_t i = 0; i < sizeof chars / sizeof chars[0]; i++) {
        if (strcmp(type, chars[i].type) == 0) {
            return add_chars(t, chars[i].chars, err);
        }
    }
    if (strcmp(type, "Prepend") == 0) {
        return load_prepend(t, component, err);
    }
    if (strcmp(type, "Replace") == 0) {
        TRY(load_add_step(&t->normal, STEP_REPLACE, &step, err));
        return load_replace(component, step, err);
    }
    if (strcmp(type, "Strip") == 0) {
        return load_strip(t, component, err);
    }
    if (strcmp(type, "Precompiled") == 0) {
        return load_charsmap(t, component, err);
    }
    if (strcmp(type, "BertNormalizer") == 0) {
        return load_bert(t, component, err);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        return load_add_step(&t->normal, STEP_BYTES, &step, err);
    }
    return load_unknown("normalizer", type, err);
}
