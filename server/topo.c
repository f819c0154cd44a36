/* topo.c - reads the text of `nvidia-smi topo -m`.
 *
 *            GPU0   GPU1   NIC0   CPU Affinity   NUMA Affinity   GPU NUMA ID
 *    GPU0     X     NV4    PXB    0-15           0               N/A
 *    GPU1    NV4     X     PXB    0-15           0               N/A
 *    NIC0    PXB    PXB     X
 *
 * Names of columns and links are words without blanks, so any blanks part them; behind the links, columns may be empty, and there only
 * tabs tell.
 */
#include "server/topo.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ESCAPE = 0x1b, WORD = 24, CORES_TEXT = DEVICE_CORES * 5 };

/* A line that is being read. */
struct cursor {
    const char *at, *end;
};

/* What was found of the table. */
struct table {
    struct topo *out;
    int columns; /* of links; 0: no header was seen */
    bool seen[MACHINE_DEVICES];
};

/* A copy without escapes of a terminal; also those that lost their first byte on the way. Blanks that pages keep
 * lines together with are plain ones in it. */
static char *clean_copy(const char *text)
{
    char *copy = malloc(strlen(text) + 1), *out = copy;

    if (copy == NULL) {
        return NULL;
    }
    while (*text != '\0') {
        const char *p = text + (*text == ESCAPE ? 1 : 0);
        if (*p == '[') {
            p++;
            p += strspn(p, "0123456789;");
            if (*p == 'm' || (*text == ESCAPE && isalpha((unsigned char)*p))) {
                text = p + 1;
                continue;
            }
        }
        const bool is_wide = strncmp(text, "\xc2\xa0", 2) == 0;
        *out = *text;
        if (is_wide) {
            *out = ' ';
        }
        out++;
        text += is_wide ? 2 : 1;
    }
    *out = '\0';
    return copy;
}

/* The next word; false at the end of the line. One that is too long is cut: it is none of those looked for. */
static bool next_word(struct cursor *c, char word[WORD])
{
    size_t n = 0;

    while (c->at < c->end && isspace((unsigned char)*c->at)) {
        c->at++;
    }
    while (c->at < c->end && !isspace((unsigned char)*c->at)) {
        if (n + 1 < WORD) {
            word[n++] = *c->at;
        }
        c->at++;
    }
    word[n] = '\0';
    return n > 0;
}

/* N of "GPUN"; -1 for another word. */
static int gpu_number(const char *word)
{
    int n = 0;

    if (strncmp(word, "GPU", 3) != 0 || word[3] == '\0' || strlen(word) > 6) {
        return -1;
    }
    for (const char *p = word + 3; *p != '\0'; p++) {
        if (!isdigit((unsigned char)*p)) {
            return -1;
        }
        n = 10 * n + (*p - '0');
    }
    return n;
}

static bool read_link(struct link *out, const char *word)
{
    return link_parse(out, strcmp(word, "SOC") == 0 ? "SYS" : word); /* SOC: drivers before 2016 */
}

/* Names of columns: GPU0, GPU1, ... and others, up to "CPU Affinity". */
static int read_header(struct table *t, struct cursor c, struct err *err)
{
    char word[WORD];
    int gpus = 1, columns = 1;

    while (next_word(&c, word) && strcmp(word, "CPU") != 0) {
        gpus += gpu_number(word) == gpus && gpus == columns ? 1 : 0;
        columns++;
    }
    if (gpus > MACHINE_DEVICES) {
        return FAIL(err, ERR_BAD_FILE, "the text of topo -m names more than %d GPUs",
                    MACHINE_DEVICES);
    }
    t->out->gpu_count = gpus;
    t->columns = columns;
    return 0;
}

/* Columns behind the links: cores and memory node. */
static void read_affinity(struct table *t, int gpu, struct cursor c)
{
    const char *tab = memchr(c.at, '\t', (size_t)(c.end - c.at));
    char cores[CORES_TEXT] = "", node[WORD] = "";

    if (tab != NULL) {
        const char *at = tab + 1;
        const char *next = memchr(at, '\t', (size_t)(c.end - at));
        const size_t n = (size_t)((next != NULL ? next : c.end) - at);
        (void)snprintf(cores, sizeof cores, "%.*s", (int)(n < sizeof cores ? n : 0), at);
        if (next != NULL) {
            const char *last = memchr(next + 1, '\t', (size_t)(c.end - next - 1));
            struct cursor rest = {next + 1, last != NULL ? last : c.end};
            (void)next_word(&rest, node);
        }
    } else {
        while (c.at < c.end && isspace((unsigned char)*c.at)) {
            c.at++;
        }
        const char *begin = c.at;
        while (c.at < c.end && !isspace((unsigned char)*c.at)) {
            c.at++;
        }
        const size_t n = (size_t)(c.at - begin);
        (void)snprintf(cores, sizeof cores, "%.*s", (int)(n < sizeof cores ? n : 0), begin);
        (void)next_word(&c, node);
    }
    struct err ignored = {0};
    if (cores_parse(&t->out->cores[gpu], cores, &ignored) != 0) {
        t->out->cores[gpu] = (struct cores){0}; /* N/A */
    }
    /* "0,2-17": the first is the node of the processor, the others are memory of cards */
    const size_t digits = strspn(node, "0123456789");
    if (digits > 0 && digits < 4 && strspn(node, "0123456789,-") == strlen(node)) {
        const int number = (int)strtol(node, NULL, 10);
        t->out->node[gpu] = number < MACHINE_NODES ? number : -1;
    }
}

/* The row of a GPU. */
static int read_row(struct table *t, int gpu, struct cursor c, struct err *err)
{
    struct topo *o = t->out;
    char word[WORD];
    struct link l;
    int column = 0;

    if (gpu >= MACHINE_DEVICES || (t->columns > 0 && gpu >= o->gpu_count)) {
        return FAIL(err, ERR_BAD_FILE,
                    "the text of topo -m has a row GPU%d and no column of that name", gpu);
    }
    if (t->seen[gpu]) {
        return 0; /* pasted twice */
    }
    t->seen[gpu] = true;
    if (t->columns == 0 && gpu >= o->gpu_count) {
        o->gpu_count = gpu + 1;
    }
    struct cursor ahead = c;
    while ((t->columns == 0 || column < t->columns) && next_word(&ahead, word)) {
        const bool known = read_link(&l, word);
        if (t->columns == 0 && !known) {
            break;
        }
        if ((known && l.kind == LINK_SELF) != (column == gpu) && column < MACHINE_DEVICES &&
            (t->columns == 0 || column < o->gpu_count)) {
            return FAIL(err, ERR_BAD_FILE,
                        "the text of topo -m: row GPU%d must have its X in column GPU%d", gpu, gpu);
        }
        if (column < MACHINE_DEVICES && known) {
            o->links[gpu][column] = l;
        }
        c = ahead;
        column++;
    }
    if (t->columns == 0 || column == t->columns) {
        read_affinity(t, gpu, c);
    }
    return 0;
}

/* Is the word in the row's own column its X? So it is in rows whose first words are none that are known. */
static bool has_own_x(const struct table *t, int gpu, struct cursor c)
{
    char word[WORD] = "";

    for (int column = 0; column <= gpu && gpu < t->out->gpu_count; column++) {
        (void)next_word(&c, word);
    }
    return t->columns > 0 && strcmp(word, "X") == 0;
}

/* A line: the header, the row of a GPU, or something else. */
static int read_line(struct table *t, struct cursor c, struct err *err)
{
    char word[WORD], next[WORD];
    struct link l;
    int gpu = -1;

    while (gpu < 0 && next_word(&c, word)) {
        gpu = gpu_number(word);
    }
    struct cursor ahead = c;
    if (gpu < 0) {
        return 0;
    }
    const bool more = next_word(&ahead, next);
    if (more && (read_link(&l, next) || has_own_x(t, gpu, c))) {
        return read_row(t, gpu, c, err);
    }
    const bool is_header = gpu == 0 && t->columns == 0 && t->out->gpu_count == 0 &&
                           (!more || gpu_number(next) == 1 || strncmp(next, "NIC", 3) == 0 ||
                            strncmp(next, "mlx", 3) == 0 || strcmp(next, "CPU") == 0);
    return is_header ? read_header(t, c, err) : 0;
}

/* Rows that are missing are as their columns say; those that are there must agree. */
static int settle(struct topo *o, struct err *err)
{
    for (int i = 0; i < o->gpu_count; i++) {
        o->links[i][i] = (struct link){.kind = LINK_SELF};
        for (int j = 0; j < i; j++) {
            struct link *a = &o->links[i][j], *b = &o->links[j][i];
            if (a->kind == LINK_NONE) {
                *a = *b;
            } else if (b->kind == LINK_NONE) {
                *b = *a;
            } else if (a->kind != b->kind || a->count != b->count) {
                return FAIL(
                    err, ERR_BAD_FILE,
                    "the text of topo -m says two things of the way between GPU%d and GPU%d", j, i);
            }
        }
    }
    return 0;
}

int topo_parse(struct topo *out, const char *text, struct err *err)
{
    struct table t = {.out = out};
    int rc = 0;

    memset(out, 0, sizeof *out);
    for (int i = 0; i < MACHINE_DEVICES; i++) {
        out->node[i] = -1;
        for (int j = 0; j < MACHINE_DEVICES; j++) {
            out->links[i][j].kind = LINK_NONE;
        }
    }
    if (strlen(text) > TOPO_BYTES) {
        return FAIL(err, ERR_BAD_FILE, "the text of topo -m is longer than %d bytes", TOPO_BYTES);
    }
    char *copy = clean_copy(text);
    if (copy == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for the text of topo -m");
    }
    for (const char *at = copy; rc == 0 && *at != '\0';) {
        const char *end = at + strcspn(at, "\r\n");
        rc = read_line(&t, (struct cursor){at, end}, err);
        at = *end != '\0' ? end + 1 : end;
    }
    free(copy);
    if (rc == 0 && out->gpu_count == 0) {
        rc = FAIL(err, ERR_BAD_FILE, "the text of topo -m has no row of a GPU");
    }
    return rc != 0 ? rc : settle(out, err);
}

int topo_apply(struct machine *m, const struct topo *t, struct err *err)
{
    int at[MACHINE_DEVICES], gpus = 0;

    for (int i = 0; i < m->device_count; i++) {
        if (m->devices[i].kind == DEVICE_GPU) {
            at[gpus++] = i;
        }
    }
    if (gpus != t->gpu_count) {
        return FAIL(err, ERR_BAD_FILE, "the text of topo -m has %d GPUs and the machine has %d",
                    t->gpu_count, gpus);
    }
    for (int i = 0; i < gpus; i++) {
        struct device *d = &m->devices[at[i]];
        d->node = d->node < 0 && t->node[i] < m->node_count ? t->node[i] : d->node;
        if (cores_count(&d->cores) == 0) {
            d->cores = t->cores[i];
            d->core_count = cores_count(&d->cores);
        }
        for (int j = 0; j < gpus; j++) {
            struct link *l = &m->links[at[i]][at[j]];
            l->kind = t->links[i][j].kind;
            l->count = t->links[i][j].count;
        }
    }
    return 0;
}
