/* fuzz_topo.c - any bytes as the text of `nvidia-smi topo -m`: refused, or links that agree with each other. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "server/topo.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct topo t;
    char *text = malloc(n + 1);
    struct err err = {0};

    CHECK(text != NULL, "no memory");
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (topo_parse(&t, text, &err) != 0) {
        CHECK(err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "%s", err.text);
    } else {
        CHECK(t.gpu_count >= 1 && t.gpu_count <= MACHINE_DEVICES, "%d GPUs", t.gpu_count);
        for (int i = 0; i < t.gpu_count; i++) {
            CHECK(t.links[i][i].kind == LINK_SELF, "GPU%d", i);
            CHECK(t.node[i] >= -1 && t.node[i] < MACHINE_NODES, "node %d", t.node[i]);
            for (int j = 0; j < t.gpu_count; j++) {
                CHECK((t.links[i][j].kind == LINK_SELF) == (i == j), "GPU%d GPU%d", i, j);
                CHECK(t.links[i][j].kind == t.links[j][i].kind, "GPU%d GPU%d", i, j);
                CHECK(t.links[i][j].count == t.links[j][i].count, "GPU%d GPU%d", i, j);
            }
        }
    }
    free(text);
    return 0;
}
