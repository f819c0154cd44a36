/* jinja_split.c - the methods that take strings apart, as Python has them. */
#include "trainer/chat/jinja_eval.h"
#include "trainer/tokenizer/utf8.h"

/* Append bytes [begin, end) of a text to a list. */
static int add_cut(struct jinja *j, struct jinja_list *l, struct jinja_value text, size_t begin,
                   size_t end)
{
    struct jinja_value part;

    TRY(jinja_step(j, 1));
    TRY(jinja_cut(j, text, begin, end, &part));
    return jinja_append(j, l, part);
}

static void reverse(struct jinja_list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jinja_value v = l->at[i];
        l->at[i] = l->at[l->n - 1 - i];
        l->at[l->n - 1 - i] = v;
    }
}

static size_t skip(const struct jinja_text *t, size_t at, bool spaces)
{
    uint32_t c;

    while (at < t->n) {
        const size_t n = utf8_get(t->at + at, &c);
        if (jinja_is_space(c) != spaces) {
            break;
        }
        at += n;
    }
    return at;
}

static size_t skip_back(const struct jinja_text *t, size_t end, bool spaces)
{
    uint32_t c;

    while (end > 0) {
        const size_t at = utf8_back(t->at, end);
        (void)utf8_get(t->at + at, &c);
        if (jinja_is_space(c) != spaces) {
            break;
        }
        end = at;
    }
    return end;
}

static int split_at_spaces(struct jinja *j, struct jinja_value v, int64_t most,
                           struct jinja_list *l)
{
    const struct jinja_text *t = v.as.text;
    size_t at = skip(t, 0, true);

    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    for (; at < t->n && most != 0; most--) {
        const size_t end = skip(t, at, false);
        TRY(add_cut(j, l, v, at, end));
        at = skip(t, end, true);
    }
    return at < t->n ? add_cut(j, l, v, at, t->n) : 0;
}

static int rsplit_at_spaces(struct jinja *j, struct jinja_value v, int64_t most,
                            struct jinja_list *l)
{
    const struct jinja_text *t = v.as.text;
    size_t end = skip_back(t, t->n, true);

    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    for (; end > 0 && most != 0; most--) {
        const size_t at = skip_back(t, end, false);
        TRY(add_cut(j, l, v, at, end));
        end = skip_back(t, at, true);
    }
    TRY(end > 0 ? add_cut(j, l, v, 0, end) : 0);
    reverse(l);
    return 0;
}

static int split_at(struct jinja *j, struct jinja_value v, const struct jinja_text *between,
                    int64_t most, struct jinja_list *l)
{
    const struct jinja_text *t = v.as.text;
    size_t begin = 0, at;

    TRY(jinja_step(j, (int64_t)(t->n / 64)));
    for (; most != 0 && (at = jinja_search(t, between, begin)) != SIZE_MAX; most--) {
        TRY(add_cut(j, l, v, begin, at));
        begin = at + between->n;
    }
    return add_cut(j, l, v, begin, t->n);
}

static int rsplit_at(struct jinja *j, struct jinja_value v, const struct jinja_text *between,
                     int64_t most, struct jinja_list *l)
{
    const struct jinja_text *t = v.as.text;
    size_t end = t->n, at;

    TRY(jinja_search_steps(j, t, between));
    for (; most != 0 && (at = jinja_search_back(t, between, end)) != SIZE_MAX; most--) {
        TRY(add_cut(j, l, v, at + between->n, end));
        end = at;
    }
    TRY(add_cut(j, l, v, 0, end));
    reverse(l);
    return 0;
}

static int split(struct jinja *j, const struct jinja_call *c, bool from_right,
                 struct jinja_value *out)
{
    int64_t most = -1;

    TRY(jinja_new_list(j, out, JINJA_LIST, 0));
    if (jinja_is_given(c->a[1])) {
        TRY(jinja_to_int(j, c->a[1], "the most of split", &most));
    }
    if (c->a[0].kind == JINJA_UNDEFINED || c->a[0].kind == JINJA_NONE) {
        return from_right ? rsplit_at_spaces(j, c->in, most, out->as.list)
                          : split_at_spaces(j, c->in, most, out->as.list);
    }
    TRY(jinja_want_text(j, c->a[0], "a separator"));
    if (c->a[0].as.text->n == 0) {
        return JINJA_FAIL(j, "a separator is empty");
    }
    return from_right ? rsplit_at(j, c->in, c->a[0].as.text, most, out->as.list)
                      : split_at(j, c->in, c->a[0].as.text, most, out->as.list);
}

int jinja_str_split(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return split(j, c, false, out);
}

int jinja_str_rsplit(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return split(j, c, true, out);
}

/* Bytes of the line end at `at`, 0 when there is none. */
static size_t line_end(const struct jinja_text *t, size_t at)
{
    uint32_t c;
    const size_t n = utf8_get(t->at + at, &c);

    if (c == '\r' && at + 1 < t->n && t->at[at + 1] == '\n') {
        return 2;
    }
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    return ends ? n : 0;
}

int jinja_str_splitlines(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;
    const bool keeps = jinja_truth(c->a[0]);
    size_t begin = 0;

    TRY(jinja_new_list(j, out, JINJA_LIST, 0));
    TRY(jinja_step(j, (int64_t)(t->n / 16)));
    for (size_t at = 0; at < t->n;) {
        const size_t n = line_end(t, at);
        if (n > 0) {
            TRY(add_cut(j, out->as.list, c->in, begin, keeps ? at + n : at));
            begin = at + n;
        }
        uint32_t ignored;
        at += n > 0 ? n : utf8_get(t->at + at, &ignored);
    }
    return begin < t->n ? add_cut(j, out->as.list, c->in, begin, t->n) : 0;
}

static int partition(struct jinja *j, const struct jinja_call *c, bool last,
                     struct jinja_value *out)
{
    const struct jinja_text *t = c->in.as.text;

    TRY(jinja_want_text(j, c->a[0], "a separator"));
    const struct jinja_text *between = c->a[0].as.text;
    if (between->n == 0) {
        return JINJA_FAIL(j, "a separator is empty");
    }
    TRY(jinja_search_steps(j, t, between));
    const size_t at = last ? jinja_search_back(t, between, t->n) : jinja_search(t, between, 0);
    const size_t none = last ? 0 : t->n;
    const size_t begin = at == SIZE_MAX ? none : at, end = at == SIZE_MAX ? none : at + between->n;
    TRY(jinja_new_list(j, out, JINJA_TUPLE, 3));
    TRY(add_cut(j, out->as.list, c->in, 0, begin));
    TRY(add_cut(j, out->as.list, c->in, begin, end));
    return add_cut(j, out->as.list, c->in, end, t->n);
}

int jinja_str_partition(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return partition(j, c, false, out);
}

int jinja_str_rpartition(struct jinja *j, const struct jinja_call *c, struct jinja_value *out)
{
    return partition(j, c, true, out);
}
