/* fuzz_depends_on.c - any text as depends_on: refused with a sentence, or ids of jobs, each once. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "server/dependencies.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct dependencies d;
    struct err err = {0};
    char *text = malloc(n + 1);

    CHECK(text != NULL, "no memory for %zu bytes", n);
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (dependencies_parse(&d, text, &err) == 0) {
        CHECK(d.count >= 0 && d.count <= DEPENDENCIES_MAX, "%d entries", d.count);
        for (int i = 0; i < d.count; i++) {
            CHECK(strlen(d.at[i].job) == 18 && strstr(text, d.at[i].job) != NULL, "%s",
                  d.at[i].job);
            CHECK(d.at[i].kind < DEPENDENCY_KIND_COUNT, "kind %d", (int)d.at[i].kind);
        }
    } else {
        CHECK(err.code == ERR_BAD_SPEC && strcmp(err.param, "depends_on") == 0, "%s", err.text);
        CHECK(strpbrk(err.text, "\n\r\t") == NULL, "%s", err.text);
    }
    free(text);
    return 0;
}
