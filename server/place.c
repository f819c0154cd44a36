/* place.c - the best set of devices, by the table of links.
 *
 * Sets are compared by, in this order: the worst link inside, the sum of the links inside, how many strong
 * links to devices outside are cut (a pair that is left whole serves the next job), how much memory stays
 * unused, the lowest numbers. Few sets are all looked at; of many, those that grow from each device by its best
 * neighbour, improved by exchanges.
 */
#include "server/place.h"

#include <stdio.h>
#include <string.h>

#include "kernels/check.h"

enum { SETS_MAX = 5000, WORDS = 24 };

/* A candidate and what it is compared by; larger is better until `waste`. */
struct choice {
    uint64_t set;
    int worst;
    double sum;
    int cut;
    double waste;
};

static int64_t bits(uint64_t set)
{
    return __builtin_popcountll(set);
}

static int first_of(uint64_t set)
{
    return __builtin_ctzll(set);
}

/* 0 for not known, then SYS 1 up to PIX 5; an NVLink 10 and more by their number, through a switch most. */
static int strength(const struct link *l)
{
    switch (l->kind) {
    case LINK_NVLINK: return 10 + (l->is_switch ? 64 : 0) + (l->count < 64 ? l->count : 64);
    case LINK_PIX: return 5;
    case LINK_PXB: return 4;
    case LINK_PHB: return 3;
    case LINK_NODE: return 2;
    case LINK_SYS: return 1;
    case LINK_SELF:
    case LINK_NONE: break;
    }
    return 0;
}

/* Measured rates count where they are known: a link is worth its class and a little for its speed. */
static double worth(const struct link *l)
{
    return strength(l) + (l->gb_per_s > 0.0 ? l->gb_per_s / 1e4 : 0.0);
}

static struct choice judge(const struct machine *m, const uint64_t *bytes, uint64_t set,
                           uint64_t others)
{
    struct choice c = {.set = set, .worst = INT32_MAX};

    for (uint64_t left = set; left != 0; left &= left - 1) {
        const int i = first_of(left);
        c.waste += (double)bytes[i];
        for (uint64_t more = left & (left - 1); more != 0; more &= more - 1) {
            const struct link *l = &m->links[i][first_of(more)];
            const int s = strength(l);
            c.worst = s < c.worst ? s : c.worst;
            c.sum += worth(l);
        }
        for (uint64_t out = others & ~set; out != 0; out &= out - 1) {
            c.cut += m->links[i][first_of(out)].kind == LINK_NVLINK;
        }
    }
    return c;
}

static bool is_better(const struct choice *a, const struct choice *b)
{
    if (b->set == 0 || a->worst != b->worst) {
        return b->set == 0 || a->worst > b->worst;
    }
    if (a->sum < b->sum || a->sum > b->sum) {
        return a->sum > b->sum;
    }
    if (a->cut != b->cut) {
        return a->cut < b->cut;
    }
    if (a->waste < b->waste || a->waste > b->waste) {
        return a->waste < b->waste;
    }
    /* the lowest device in which they differ decides */
    return (a->set & ~b->set) != 0 && first_of(a->set & ~b->set) < first_of(b->set & ~a->set);
}

/* Every set of `count` out of `from`, whose lowest is above those in `set`. */
static void look_at_all(const struct machine *m, const uint64_t *bytes, uint64_t whole,
                        uint64_t from, int count, struct choice *best)
{
    uint64_t members[MACHINE_DEVICES], set = 0;
    int n = 0, at[MACHINE_DEVICES];

    for (uint64_t left = from; left != 0; left &= left - 1) {
        members[n++] = left & -left;
    }
    for (int i = 0; i < count; i++) {
        at[i] = i;
    }
    for (;;) {
        set = 0;
        for (int i = 0; i < count; i++) {
            set |= members[at[i]];
        }
        const struct choice c = judge(m, bytes, set, whole);
        *best = is_better(&c, best) ? c : *best;
        int i = count - 1;
        while (i >= 0 && at[i] == n - count + i) {
            i--;
        }
        if (i < 0) {
            return;
        }
        at[i]++;
        for (int k = i + 1; k < count; k++) {
            at[k] = at[k - 1] + 1;
        }
    }
}

/* From one device on, always the neighbour that makes the best set; then exchanges as long as they help. */
static struct choice grow(const struct machine *m, const uint64_t *bytes, uint64_t whole,
                          uint64_t from, int count, int seed)
{
    struct choice c = judge(m, bytes, UINT64_C(1) << seed, whole);

    while (bits(c.set) < count) {
        struct choice best = {0};
        for (uint64_t left = from & ~c.set; left != 0; left &= left - 1) {
            const struct choice one = judge(m, bytes, c.set | (left & -left), whole);
            best = is_better(&one, &best) ? one : best;
        }
        c = best;
    }
    for (bool helped = true; helped;) {
        helped = false;
        for (uint64_t in = c.set; in != 0 && !helped; in &= in - 1) {
            for (uint64_t out = from & ~c.set; out != 0 && !helped; out &= out - 1) {
                const struct choice one =
                    judge(m, bytes, (c.set & ~(in & -in)) | (out & -out), whole);
                helped = is_better(&one, &c);
                c = helped ? one : c;
            }
        }
    }
    return c;
}

static bool are_few(int64_t n, int count)
{
    double sets = 1.0;

    for (int i = 0; i < count; i++) {
        sets = sets * (double)(n - i) / (i + 1);
    }
    return sets <= SETS_MAX;
}

/* Do all have one link to each other and one size? Then the lowest are as good as any. */
static bool are_alike(const struct machine *m, const uint64_t *bytes, uint64_t whole, uint64_t from)
{
    const int first = first_of(from);
    const struct link *link = NULL;

    for (uint64_t a = from; a != 0; a &= a - 1) {
        const int i = first_of(a);
        if (bytes[i] != bytes[first]) {
            return false;
        }
        for (uint64_t b = whole & ~(a & -a); b != 0; b &= b - 1) {
            const struct link *l = &m->links[i][first_of(b)];
            link = link == NULL ? l : link;
            if (worth(l) < worth(link) || worth(l) > worth(link)) {
                return false;
            }
        }
    }
    return true;
}

static uint64_t lowest(uint64_t from, int count)
{
    uint64_t set = 0;

    for (int i = 0; i < count; i++) {
        set |= from & -from;
        from &= from - 1;
    }
    return set;
}

static uint64_t choose(const struct machine *m, const uint64_t *bytes, const struct need *n,
                       uint64_t good, uint64_t from)
{
    struct choice best = {0};
    uint64_t fits = 0;

    CHECK(n->devices >= 1, "%d devices", n->devices);
    for (uint64_t left = from & good; left != 0; left &= left - 1) {
        fits |= bytes[first_of(left)] >= n->bytes ? left & -left : 0;
    }
    if (bits(fits) < n->devices) {
        return 0;
    }
    if (bits(fits) == n->devices) {
        return fits;
    }
    if (are_alike(m, bytes, good | fits, fits)) {
        return lowest(fits, n->devices);
    }
    if (are_few(bits(fits), n->devices)) {
        look_at_all(m, bytes, good, fits, n->devices, &best);
        return best.set;
    }
    for (uint64_t left = fits; left != 0; left &= left - 1) {
        const struct choice one = grow(m, bytes, good, fits, n->devices, first_of(left));
        best = is_better(&one, &best) ? one : best;
    }
    return best.set;
}

uint64_t place_now(const struct view *v, const struct need *n, uint64_t from)
{
    return choose(v->machine, v->room, n, v->good & ~v->busy, from);
}

uint64_t place_later(const struct view *v, const struct need *n, uint64_t from)
{
    return choose(v->machine, v->capacity, n, v->good & ~v->busy, from);
}

bool place_ever(const struct machine *m, const uint64_t capacity[MACHINE_DEVICES],
                const struct need *n)
{
    int fit = 0;

    for (int i = 0; i < m->device_count; i++) {
        fit += m->devices[i].is_usable && capacity[i] >= n->bytes;
    }
    return fit >= n->devices;
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
        const int i = first_of(left);
        device_word(word, m, i);
        const char *before = n == 0 ? "" : (left & (left - 1)) == 0 ? " and " : ", ";
        n += (size_t)snprintf(out + n, size - n, "%s%s", before, word);
        has_gpu = has_gpu || m->devices[i].kind == DEVICE_GPU;
        for (uint64_t more = left & (left - 1); more != 0; more &= more - 1) {
            const struct link *l = &m->links[i][first_of(more)];
            worst = worst == NULL || strength(l) < strength(worst) ? l : worst;
        }
    }
    if (worst != NULL && has_gpu && n < size) {
        (void)snprintf(out + n, size - n, "%s%s", bits(set) > 2 ? ", at worst " : ", ",
                       link_words(worst, link));
    }
}
