/* place.c - which devices a job gets.
 *
 * Sets are compared by these, in order: the worst link inside; the sum of the links' quality; the memory
 * nodes that it spans; the NVLinks that it cuts from free devices that stay behind (which keeps groups
 * whole); the memory of its cards (small jobs leave the large cards); the PCIe neighbours that it cuts; the
 * lowest numbers.
 *
 * The search takes devices in the order of their numbers and leaves a branch as soon as its worst link or
 * the most that its quality can still become is worse than the best set found. Of devices that nothing
 * tells apart the lower numbers are taken first, so that switches and even boxes have few branches. After
 * SEARCH_STEPS (a large machine without any symmetry) a greedy choice from each device, bettered by
 * exchanges, competes with what was found so far.
 */
#include "server/place.h"

#include <math.h>
#include <stdio.h>

#include "kernels/check.h"

enum { SEARCH_STEPS = 4096, NVLINKS_MAX = 255, EXCHANGES = 4, WORDS = 24 };

struct score {
    int kind;        /* enum link_kind, the worst; smaller is better */
    int64_t quality; /* larger is better; of all that follows smaller is */
    int nodes;
    int64_t broken;
    uint64_t memory;
    int64_t split;
};

/* What a pair of devices adds to a score. */
struct pair {
    int kind;
    int64_t quality, broken, split;
};

/* The free devices, those that fit first: one search. */
struct field {
    int count, fits, want;
    int device[MACHINE_DEVICES]; /* index in the machine */
    int twin[MACHINE_DEVICES];   /* the one before it that nothing tells from it; -1: none */
    uint64_t memory[MACHINE_DEVICES];
    uint64_t node[MACHINE_DEVICES];                          /* mask of one bit, or none */
    int64_t broken[MACHINE_DEVICES], split[MACHINE_DEVICES]; /* to all others */
    struct pair pairs[MACHINE_DEVICES][MACHINE_DEVICES];
    int64_t best_quality; /* of any pair that fits */
    int steps;
    bool found;
    struct score best;
    uint64_t best_set; /* bits are places in this field */
};

/* A set in the making. */
struct part {
    int count;
    int at[MACHINE_DEVICES];
    uint64_t set, nodes;
    struct score score;
};

static int count_bits(uint64_t set)
{
    return __builtin_popcountll(set);
}

static int lowest_bit(uint64_t set)
{
    return __builtin_ctzll(set);
}

/* Steps of a quarter of an octave: measurements of equal links differ by less, mostly. */
static int64_t speed_step(double gb_per_s)
{
    int exponent = 0;

    if (!(gb_per_s >= 1.0) || gb_per_s > 1e6) {
        return 0;
    }
    const double part = frexp(gb_per_s, &exponent);
    return (int64_t)exponent * 4 + (int64_t)((part - 0.5) * 8.0);
}

static struct pair pair_make(const struct machine *m, int a, int b)
{
    /* A description may say more about one direction: the worse one counts. */
    const struct link *to = &m->links[a][b], *back = &m->links[b][a];
    const struct link *l = back->kind > to->kind ? back : to;
    struct pair p = {.kind = (int)l->kind};
    /* Worth of a PCIe neighbour; a kind outweighs all pairs of the next, worse one. */
    const int64_t near[] = {[LINK_SELF] = 0,
                            [LINK_NVLINK] = 0,
                            [LINK_PIX] = (int64_t)1 << 36,
                            [LINK_PXB] = (int64_t)1 << 24,
                            [LINK_PHB] = (int64_t)1 << 12,
                            [LINK_NODE] = 1,
                            [LINK_SYS] = 0,
                            [LINK_NONE] = 0};

    if (l->kind == LINK_NVLINK) {
        const int links = l->count < 1 ? 1 : l->count;
        p.broken = links < NVLINKS_MAX ? links : NVLINKS_MAX;
    }
    p.quality = (p.broken << 20) + speed_step(l->gb_per_s);
    p.split = near[l->kind];
    return p;
}

static bool is_twin(const struct field *f, int a, int b)
{
    if (f->memory[a] != f->memory[b] || f->node[a] != f->node[b]) {
        return false;
    }
    for (int i = 0; i < f->count; i++) {
        const struct pair *p = &f->pairs[a][i], *q = &f->pairs[b][i];
        const bool is_other = i != a && i != b;

        if (is_other && (p->kind != q->kind || p->quality != q->quality)) {
            return false;
        }
    }
    return true;
}

/* twin[i]: the nearest before it in its class. Being twins is transitive, so one of each class is asked. */
static void find_twins(struct field *f)
{
    int last[MACHINE_DEVICES], classes = 0;

    for (int i = 0; i < f->fits; i++) {
        int c = 0;
        while (c < classes && !is_twin(f, last[c], i)) {
            c++;
        }
        f->twin[i] = c < classes ? last[c] : -1;
        classes += c == classes;
        last[c] = i;
    }
}

static uint64_t node_bit(const struct machine *m, int device)
{
    const int node = m->devices[device].node;

    return node >= 0 && node < MACHINE_NODES ? (uint64_t)1 << node : 0;
}

static void take_in(struct field *f, const struct machine *m, uint64_t set)
{
    for (; set != 0; set &= set - 1) {
        const int i = f->count++, d = lowest_bit(set);

        f->device[i] = d;
        f->memory[i] = m->devices[d].memory_bytes;
        f->node[i] = node_bit(m, d);
    }
}

static void field_make(struct field *f, const struct machine *m, uint64_t fit, uint64_t others)
{
    take_in(f, m, fit);
    f->fits = f->count;
    take_in(f, m, others);
    for (int i = 0; i < f->fits; i++) {
        f->broken[i] = f->split[i] = 0;
    }
    for (int i = 0; i < f->fits; i++) {
        for (int j = i + 1; j < f->count; j++) {
            const struct pair p = pair_make(m, f->device[i], f->device[j]);

            f->pairs[i][j] = f->pairs[j][i] = p;
            f->broken[i] += p.broken;
            f->split[i] += p.split;
            if (j < f->fits) {
                f->broken[j] += p.broken;
                f->split[j] += p.split;
                f->best_quality = p.quality > f->best_quality ? p.quality : f->best_quality;
            }
        }
    }
}

/* Is `a` with set `x` better than `b` with set `y`? */
static bool is_better(const struct score *a, uint64_t x, const struct score *b, uint64_t y)
{
    if (a->kind != b->kind) {
        return a->kind < b->kind;
    }
    if (a->quality != b->quality) {
        return a->quality > b->quality;
    }
    if (a->nodes != b->nodes) {
        return a->nodes < b->nodes;
    }
    if (a->broken != b->broken) {
        return a->broken < b->broken;
    }
    if (a->memory != b->memory) {
        return a->memory < b->memory;
    }
    if (a->split != b->split) {
        return a->split < b->split;
    }
    return x != y && (x >> lowest_bit(x ^ y) & 1) != 0;
}

static void part_add(struct part *p, const struct field *f, int i)
{
    struct score *s = &p->score;

    s->broken += f->broken[i];
    s->split += f->split[i];
    s->memory += f->memory[i];
    for (int k = 0; k < p->count; k++) {
        const struct pair *q = &f->pairs[i][p->at[k]];

        /* What was cut between the two is inside now, counted once from each side. */
        s->kind = q->kind > s->kind ? q->kind : s->kind;
        s->quality += q->quality;
        s->broken -= 2 * q->broken;
        s->split -= 2 * q->split;
    }
    p->nodes |= f->node[i];
    s->nodes = count_bits(p->nodes);
    p->set |= (uint64_t)1 << i;
    p->at[p->count++] = i;
}

static void offer(struct field *f, const struct part *p)
{
    if (!f->found || is_better(&p->score, p->set, &f->best, f->best_set)) {
        f->found = true;
        f->best = p->score;
        f->best_set = p->set;
    }
}

/* Can a set that begins with `p` be better than the best one? */
static bool may_win(const struct field *f, const struct part *p)
{
    const int64_t pairs = (int64_t)f->want * (f->want - 1) / 2;
    const int64_t have = (int64_t)p->count * (p->count - 1) / 2;

    if (!f->found || p->score.kind < f->best.kind) {
        return true;
    }
    return p->score.kind == f->best.kind &&
           p->score.quality + (pairs - have) * f->best_quality >= f->best.quality;
}

/* All sets, without recursion: parts[k] has k devices; next[k] is the one to try behind them. */
static void search(struct field *f)
{
    struct part parts[MACHINE_DEVICES + 1];
    int next[MACHINE_DEVICES + 1], k = 0;

    parts[0] = (struct part){0};
    next[0] = 0;
    while (k >= 0 && f->steps < SEARCH_STEPS) {
        const int i = next[k]++;

        if (i > f->fits - (f->want - k)) {
            k--;
            continue;
        }
        const int twin = f->twin[i];
        if (twin >= 0 && (parts[k].set >> twin & 1) == 0) {
            continue;
        }
        f->steps++;
        parts[k + 1] = parts[k];
        part_add(&parts[k + 1], f, i);
        if (k + 1 == f->want) {
            offer(f, &parts[k + 1]);
        } else if (may_win(f, &parts[k + 1])) {
            k++;
            next[k] = i + 1;
        }
    }
}

static void grow(struct field *f, struct part *p)
{
    while (p->count < f->want) {
        struct part best = {0};

        for (int i = 0; i < f->fits; i++) {
            struct part with = *p;
            if ((p->set >> i & 1) != 0) {
                continue;
            }
            part_add(&with, f, i);
            if (best.count == 0 || is_better(&with.score, with.set, &best.score, best.set)) {
                best = with;
            }
        }
        *p = best;
    }
    offer(f, p);
}

/* Give one up for the one that is best with the others, as long as that helps. */
static void exchange(struct field *f)
{
    for (int round = 0; round < EXCHANGES; round++) {
        const uint64_t set = f->best_set;

        for (uint64_t out = set; out != 0; out &= out - 1) {
            struct part p = {0};
            for (uint64_t in = set & ~(out & -out); in != 0; in &= in - 1) {
                part_add(&p, f, lowest_bit(in));
            }
            grow(f, &p);
        }
        if (f->best_set == set) {
            return;
        }
    }
}

static void choose_greedily(struct field *f)
{
    for (int i = 0; i < f->fits; i++) {
        struct part p = {0};

        if (f->twin[i] < 0) {
            part_add(&p, f, i);
            grow(f, &p);
        }
    }
    exchange(f);
}

static uint64_t best_set(const struct machine *m, uint64_t fit, uint64_t others, int want)
{
    struct field f;
    uint64_t set = 0;

    if (count_bits(fit) < want) {
        return 0;
    }
    if (count_bits(fit) == want) {
        return fit;
    }
    f.count = f.steps = 0;
    f.want = want;
    f.best_quality = 0;
    f.found = false;
    field_make(&f, m, fit, others);
    CHECK(f.fits > want, "%d of %d devices", want, f.fits);
    if (want == 1) {
        for (int i = 0; i < f.fits; i++) {
            struct part p = {0};
            part_add(&p, &f, i);
            offer(&f, &p);
        }
    } else {
        find_twins(&f);
        search(&f);
        if (f.steps >= SEARCH_STEPS) {
            choose_greedily(&f);
        }
    }
    for (int i = 0; i < f.fits; i++) {
        set |= (f.best_set >> i & 1) << f.device[i];
    }
    return set;
}

static uint64_t of_kind(const struct machine *m, enum device_kind kind)
{
    uint64_t set = 0;

    for (int i = 0; i < m->device_count; i++) {
        set |= (uint64_t)(m->devices[i].kind == kind) << i;
    }
    return set;
}

/* A job is on GPUs or on CPU slots, never on both. */
static uint64_t place(const struct machine *m, const uint64_t *measure, const struct need *n,
                      uint64_t free)
{
    const uint64_t gpus = of_kind(m, DEVICE_GPU), cpus = of_kind(m, DEVICE_CPU);
    uint64_t fit = 0;

    if (n->devices < 1 || n->devices > MACHINE_DEVICES) {
        return 0;
    }
    for (int i = 0; i < m->device_count; i++) {
        fit |= (uint64_t)((free >> i & 1) != 0 && measure[i] >= n->bytes) << i;
    }
    const uint64_t set = best_set(m, fit & gpus, free & gpus & ~fit, n->devices);
    return set != 0 ? set : best_set(m, fit & cpus, free & cpus & ~fit, n->devices);
}

uint64_t place_now(const struct view *v, const struct need *n, uint64_t from)
{
    return place(v->machine, v->room, n, from & v->good & ~v->busy);
}

bool place_ever(const struct machine *m, const uint64_t capacity[MACHINE_DEVICES],
                const struct need *n)
{
    int fits[2] = {0};

    for (int i = 0; i < m->device_count; i++) {
        fits[m->devices[i].kind == DEVICE_GPU] +=
            m->devices[i].is_usable && capacity[i] >= n->bytes;
    }
    return n->devices >= 1 && (fits[0] >= n->devices || fits[1] >= n->devices);
}

/* "GPU 0" by the number among devices of its kind; "CPU slot 1". */
static void device_word(char out[WORDS], const struct machine *m, int device)
{
    int number = 0;

    for (int i = 0; i < device; i++) {
        number += m->devices[i].kind == m->devices[device].kind;
    }
    (void)snprintf(out, WORDS, "%s %d", m->devices[device].kind == DEVICE_GPU ? "GPU" : "CPU slot",
                   number);
}

static const char *link_words(const struct link *l, char out[96])
{
    switch (l->kind) {
    case LINK_NVLINK:
        (void)snprintf(out, 96, "joined by %d NVLink%s%s", l->count, l->count == 1 ? "" : "s",
                       l->is_switch ? " through a switch" : "");
        return out;
    case LINK_PIX: return "no NVLink: at most one PCIe bridge between them (PIX)";
    case LINK_PXB: return "no NVLink: several PCIe bridges between them (PXB)";
    case LINK_PHB: return "no NVLink: a PCIe host bridge between them (PHB)";
    case LINK_NODE: return "no NVLink: host bridges of one memory node between them (NODE)";
    case LINK_SYS: return "no NVLink: different memory nodes (SYS)";
    case LINK_SELF:
    case LINK_NONE: break;
    }
    return "how they are joined is not known";
}

static int count_nodes(const struct machine *m, uint64_t set)
{
    uint64_t nodes = 0;

    for (uint64_t left = set; left != 0; left &= left - 1) {
        nodes |= node_bit(m, lowest_bit(left));
    }
    return count_bits(nodes);
}

void place_words(char *out, size_t size, const struct machine *m, uint64_t set)
{
    const struct link *worst = NULL;
    char word[WORDS], link[96];
    bool has_gpu = false;
    size_t n = 0;

    if (size > 0) {
        out[0] = '\0';
    }
    for (uint64_t left = set; left != 0 && n < size; left &= left - 1) {
        const int i = lowest_bit(left);
        device_word(word, m, i);
        const char *before = n == 0 ? "" : (left & (left - 1)) == 0 ? " and " : ", ";
        n += (size_t)snprintf(out + n, size - n, "%s%s", before, word);
        has_gpu = has_gpu || m->devices[i].kind == DEVICE_GPU;
        for (uint64_t more = left & (left - 1); more != 0; more &= more - 1) {
            const struct link *l = &m->links[i][lowest_bit(more)];
            worst = worst == NULL || l->kind > worst->kind ||
                            (l->kind == worst->kind && l->count < worst->count)
                        ? l
                        : worst;
        }
    }
    if (worst != NULL && has_gpu && n < size) {
        (void)snprintf(out + n, size - n, "%s%s", count_bits(set) > 2 ? ", at worst " : ", ",
                       link_words(worst, link));
    } else if (worst != NULL && n < size) {
        const int nodes = count_nodes(m, set);
        if (nodes > 1) {
            (void)snprintf(out + n, size - n, ", in %d memory nodes", nodes);
        }
    }
}
