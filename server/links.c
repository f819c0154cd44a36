/* links.c - how devices reach each other: the words of `nvidia-smi topo -m`. */
#include <stdio.h>
#include <string.h>

#include "server/machine.h"
#include "server/text.h"

enum { NVLINKS_MAX = 18 }; /* that a card of today has */

static const struct {
    enum link_kind kind;
    const char *word;
} words[] = {{LINK_SELF, "X"},  {LINK_PIX, "PIX"},   {LINK_PXB, "PXB"},
             {LINK_PHB, "PHB"}, {LINK_NODE, "NODE"}, {LINK_SYS, "SYS"}};

void link_word(char out[8], const struct link *l)
{
    out[0] = '\0';
    if (l->kind == LINK_NVLINK) {
        (void)snprintf(out, 8, "NV%d", l->count % 1000);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].kind == l->kind) {
            (void)snprintf(out, 8, "%s", words[i].word);
        }
    }
}

bool link_parse(struct link *out, const char *word)
{
    int64_t count = 0;

    *out = (struct link){.kind = LINK_NONE};
    if (strncmp(word, "NV", 2) == 0 && strlen(word) <= 5 && text_number(word + 2, 999, &count) &&
        count > 0) {
        out->kind = LINK_NVLINK;
        out->count = (int)count;
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(words[i].word, word) == 0) {
            out->kind = words[i].kind;
            return true;
        }
    }
    return false;
}

void links_mark_switches(struct machine *m)
{
    for (int i = 0; i < m->device_count; i++) {
        int sum = 0;
        for (int j = 0; j < m->device_count; j++) {
            sum += m->links[i][j].count;
        }
        for (int j = 0; j < m->device_count && sum > NVLINKS_MAX; j++) {
            m->links[i][j].is_switch = m->links[i][j].count > 0;
        }
    }
}
