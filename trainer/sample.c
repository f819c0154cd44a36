/* sample.c - temperature, top-k, top-p (Holtzman et al. 2019, arXiv:1904.09751), min-p, penalties.
 *
 * What is cut is the end of the list of tokens in falling order, so only a beginning of that list is
 * sorted: the tokens within some distance of the most likely one, in steps until they are enough.
 */
#include "trainer/sample.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"

enum { DISTANCES = 5 }; /* the last step is 2^5 from the most likely, then all */

struct candidate {
    double p; /* logit over temperature, then probability over the largest */
    int32_t id;
};

struct sampler {
    struct candidate *list; /* owned [room] */
    int32_t *seen;          /* owned [room]: times that a token occurred; zero between calls */
    real *changed;          /* owned [room]: penalised logits */
    int64_t room;
};

int sampler_new(struct sampler **out, int64_t vocab, struct err *err)
{
    struct sampler *s = calloc(1, sizeof *s);

    if (s != NULL) {
        s->room = vocab;
        s->list = calloc((size_t)vocab, sizeof *s->list);
        s->seen = calloc((size_t)vocab, sizeof *s->seen);
        s->changed = calloc((size_t)vocab, sizeof *s->changed);
    }
    if (s == NULL || s->list == NULL || s->seen == NULL || s->changed == NULL) {
        sampler_free(s);
        return FAIL(err, ERR_NO_MEMORY, "no memory to sample from %lld tokens", (long long)vocab);
    }
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (s != NULL) {
        free(s->list);
        free(s->seen);
        free(s->changed);
        free(s);
    }
}

static int by_probability(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->p > y->p || x->p < y->p) {
        return x->p > y->p ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

static int32_t most_likely(const real *logits, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (int32_t)best;
}

/* splitmix64 (Steele, Lea, Flood 2014) of seed and place, as a number in [0, 1). */
static double uniform(uint64_t seed, int64_t place)
{
    uint64_t x =
        seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)place * UINT64_C(0xd1b54a32d192ed03);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* A choice on its way. */
struct draw {
    const real *logits;
    int64_t vocab;
    double temperature, most, sum; /* most: of logit / temperature; sum of exp(. - most) over all */
};

/* List the tokens within `distance` of the most likely, sorted, as probabilities over the largest; their
 * number, and their sum. */
static int64_t list_near(struct sampler *s, const struct draw *d, double distance, double *sum)
{
    int64_t n = 0;

    *sum = 0.0;
    for (int64_t i = 0; i < d->vocab; i++) {
        const double p = (double)d->logits[i] / d->temperature - d->most;
        if (p >= -distance) {
            s->list[n].id = (int32_t)i;
            s->list[n++].p = exp(p);
        }
    }
    qsort(s->list, (size_t)n, sizeof *s->list, by_probability);
    for (int64_t i = 0; i < n; i++) {
        *sum += s->list[i].p;
    }
    return n;
}

/* How many of the first n, whose whole is `sum`, top_p and min_p keep. */
static int64_t nucleus(const struct candidate *list, int64_t n, double sum,
                       const struct sampling *c)
{
    double kept = 0.0;
    int64_t count = 0;

    while (count < n && (count == 0 || (kept < c->top_p * sum && list[count].p >= c->min_p))) {
        kept += list[count++].p;
    }
    return count;
}

/* Whether a list of tokens whose probabilities are `near` is too short for the choice: top_k wants a number of them, top_p a
 * part of all. */
static bool lacks(bool cut, double near, const struct draw *d, const struct sampling *c)
{
    return cut || near < c->top_p * d->sum;
}

/* The beginning of the sorted list that the choice allows; its length. */
static int64_t list_allowed(struct sampler *s, const struct draw *d, const struct sampling *c)
{
    const bool cut = c->top_k > 0 && c->top_k < d->vocab;
    const int64_t k = cut ? c->top_k : d->vocab;
    double near = 0.0, sum = d->sum;
    int64_t n = 0;

    for (int doubled = 2; n == 0 || (doubled <= DISTANCES && n < k && lacks(cut, near, d, c));
         doubled++) {
        n = list_near(s, d, ldexp(1.0, doubled), &near);
        if (n == 0) {
            return 0; /* not a number */
        }
    }
    if (n < k && lacks(cut, near, d, c)) {
        n = list_near(s, d, (double)INFINITY, &near);
    }
    if (cut) {
        n = n < k ? n : k;
        sum = 0.0;
        for (int64_t i = 0; i < n; i++) {
            sum += s->list[i].p;
        }
    }
    return nucleus(s->list, n, sum, c);
}

static int32_t draw_from_list(const struct sampler *s, int64_t n, double where)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        sum += s->list[i].p;
    }
    double left = where * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= s->list[i].p;
        if (left < 0.0) {
            return s->list[i].id;
        }
    }
    return s->list[n - 1].id;
}

/* From all tokens, in the order of their ids. */
static int32_t draw_from_all(struct sampler *s, const struct draw *d, double where)
{
    double left = where * d->sum;
    int64_t last = 0;

    for (int64_t i = 0; i < d->vocab; i++) {
        left -= s->list[i].p;
        last = s->list[i].p > 0.0 ? i : last;
        if (left < 0.0) {
            return (int32_t)i;
        }
    }
    return (int32_t)last;
}

int32_t sampler_next(struct sampler *s, const real *logits, int64_t vocab,
                     const struct sampling *choice, int64_t place)
{
    struct draw d = {.logits = logits, .vocab = vocab, .temperature = choice->temperature};
    const bool all = (choice->top_k <= 0 || choice->top_k >= vocab) && choice->top_p >= 1.0 &&
                     choice->min_p <= 0.0;
    const int32_t best = most_likely(logits, vocab);

    CHECK(vocab <= s->room, "%lld logits for a sampler of %lld", (long long)vocab,
          (long long)s->room);
    if (!(choice->temperature > 0.0)) {
        return best;
    }
    d.most = (double)logits[best] / d.temperature;
    for (int64_t i = 0; i < vocab; i++) {
        s->list[i].p = exp((double)logits[i] / d.temperature - d.most);
        d.sum += s->list[i].p;
    }
    const double where = uniform(choice->seed, place);
    if (all) {
        return draw_from_all(s, &d, where);
    }
    const int64_t n = list_allowed(s, &d, choice);
    return n == 0 ? best : draw_from_list(s, n, where);
}

static void penalise_token(real *logit, const struct penalties *p, int32_t times)
{
    const double l = (double)*logit;
    const double repeated = l > 0.0 ? l / p->repetition : l * p->repetition;

    *logit = (real)(repeated - (times > 0 ? p->frequency * times + p->presence : 0.0));
}

static void penalise_tokens(struct sampler *s, const struct penalties *p, const int32_t *ids,
                            int64_t from, int64_t prompt, int64_t count)
{
    for (int64_t i = prompt; i < count; i++) {
        s->seen[ids[i]]++;
    }
    for (int64_t i = from; i < count; i++) {
        if (s->seen[ids[i]] >= 0) { /* each token once */
            penalise_token(&s->changed[ids[i]], p, s->seen[ids[i]]);
            s->seen[ids[i]] = -1;
        }
    }
    for (int64_t i = from; i < count; i++) {
        s->seen[ids[i]] = 0;
    }
}

const real *sampler_penalise(struct sampler *s, const real *logits, int64_t vocab,
                             const struct penalties *p, const int32_t *ids, int64_t prompt,
                             int64_t count)
{
    const bool repeats = p->repetition < 1.0 || p->repetition > 1.0;
    const bool penalises = repeats || fabs(p->frequency) > 0.0 || fabs(p->presence) > 0.0;

    if (!penalises && p->bias_count == 0) {
        return logits;
    }
    CHECK(vocab <= s->room, "%lld logits for a sampler of %lld", (long long)vocab,
          (long long)s->room);
    memcpy(s->changed, logits, (size_t)vocab * sizeof *logits);
    for (int64_t i = 0; i < p->bias_count; i++) {
        CHECK(p->bias[i].id >= 0 && p->bias[i].id < vocab, "bias of token %d", (int)p->bias[i].id);
        s->changed[p->bias[i].id] += (real)p->bias[i].bias;
    }
    if (penalises) {
        penalise_tokens(s, p, ids, repeats ? 0 : prompt, prompt, count);
    }
    return s->changed;
}

/* Enter a token into the list of the most likely if it belongs there. */
static void enter_top(struct logprobs *out, int room, int32_t id, double logit)
{
    int at = out->top_count;

    while (at > 0 && out->top[at - 1].logprob < logit) {
        at--;
    }
    if (at == room) {
        return;
    }
    out->top_count += out->top_count < room;
    for (int i = out->top_count - 1; i > at; i--) {
        out->top[i] = out->top[i - 1];
    }
    out->top[at].id = id;
    out->top[at].logprob = logit;
}

void logprobs_make(struct logprobs *out, const real *logits, int64_t vocab, int32_t id, int top)
{
    const double most = (double)logits[most_likely(logits, vocab)];
    const int room = top < LOGPROBS_MAX ? top : LOGPROBS_MAX;
    double sum = 0.0;
    int64_t i = 0;

    out->top_count = 0;
    do { /* there is one token at least */
        sum += exp((double)logits[i] - most);
        if (room > 0) {
            enter_top(out, room, (int32_t)i, (double)logits[i]);
        }
    } while (++i < vocab);
    const double whole = most + log(sum);
    out->chosen = (double)logits[id] - whole;
    for (int k = 0; k < out->top_count; k++) {
        out->top[k].logprob -= whole;
    }
}
