/* trained.c - the choice of parameters, by name. */
#include "trainer/trained.h"

#include <string.h>

#include "trainer/base/text.h"
#include "trainer/patterns.h"

static bool pattern_has(const char *pattern, size_t length, const struct param *p, int place)
{
    char name[PARAM_NAME];

    param_name(name, p, place);
    return length > 0 && pattern_matches(pattern, length, name);
}

static bool is_frozen(const struct dims *d, const struct param *p, int place)
{
    size_t length = 0;
    int i = 0;

    for (const char *at = pattern_at(d->freeze, i, &length); at != NULL;
         at = pattern_at(d->freeze, ++i, &length)) {
        if (pattern_has(at, length, p, place)) {
            return true;
        }
    }
    return false;
}

bool trained_has(const struct dims *d, enum param_id id, int place)
{
    const struct param p = param_get(id, &d->arch);
    const bool chosen = d->arch.lora.r == 0 || param_is_adapter(id) || param_is_also(&d->arch, id);

    return d->training && p.exists && chosen && (d->freeze == NULL || !is_frozen(d, &p, place));
}

/* Call `visit` for every parameter there is, layer by layer, until it returns false. */
static void each(const struct arch *a, bool (*visit)(void *context, enum param_id id, int place),
                 void *context)
{
    for (int i = 0; i < PARAM_COUNT; i++) {
        const enum param_id id = (enum param_id)i;
        for (int place = 0; place < param_places(id, a); place++) {
            if (param_is_at(id, a, place) && !visit(context, id, place)) {
                return;
            }
        }
    }
}

/* What visits add up. */
struct tally {
    const struct dims *d;
    int lowest;
    int64_t count;
};

static bool add_up(void *context, enum param_id id, int place)
{
    struct tally *t = context;
    const struct param p = param_get(id, &t->d->arch);

    if (trained_has(t->d, id, place)) {
        const bool below = id == PARAM_EMBED || id == PARAM_POSITION;
        const int at = below ? -1 : p.in_layer ? param_layer(&t->d->arch, place) : (int)t->d->L;
        t->lowest = at < t->lowest ? at : t->lowest;
        t->count += p.rows * p.cols;
    }
    return true;
}

static struct tally tally_of(const struct dims *d)
{
    struct tally t = {.d = d, .lowest = (int)d->L};

    each(&d->arch, add_up, &t);
    return t;
}

int trained_lowest(const struct dims *d)
{
    return tally_of(d).lowest;
}

int64_t trained_count(const struct dims *d)
{
    return tally_of(d).count;
}

struct search {
    const struct arch *a;
    const char *pattern;
    size_t length;
    bool found;
};

static bool look(void *context, enum param_id id, int place)
{
    struct search *s = context;
    const struct param p = param_get(id, s->a);

    s->found = pattern_has(s->pattern, s->length, &p, place);
    return !s->found;
}

int trained_check(const struct arch *a, const struct spec *s, struct err *err)
{
    const struct dims d = {.arch = *a, .L = a->L, .training = true, .freeze = s->freeze};
    struct search search = {.a = a};
    char shown[81];
    int i = 0;

    if (s->freeze[0] == '\0') {
        return 0;
    }
    for (search.pattern = pattern_at(s->freeze, i, &search.length); search.pattern != NULL;
         search.pattern = pattern_at(s->freeze, ++i, &search.length)) {
        each(a, look, &search);
        if (!search.found) {
            text_clean(shown, sizeof shown, search.pattern);
            shown[strcspn(shown, ",")] = '\0';
            return FAIL_PARAM(err, ERR_BAD_SPEC, "freeze",
                              "freeze: pattern %d, \"%s\", is the name of no parameter of this "
                              "model",
                              i + 1, shown);
        }
    }
    if (trained_count(&d) == 0) {
        return FAIL_PARAM(err, ERR_BAD_SPEC, "freeze", "freeze leaves nothing to train");
    }
    return 0;
}
