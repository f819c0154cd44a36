/* fuzz_main.c - runs a fuzz target over the files given as arguments, where libFuzzer is not linked. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/check.h"
#include "trainer/base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *bytes = NULL;
        size_t n = 0;
        struct err err = {0};
        CHECK(io_read_file(&bytes, &n, argv[i], SIZE_MAX / 2, &err) == 0, "%s", err.text);
        (void)LLVMFuzzerTestOneInput((const uint8_t *)bytes, n);
        free(bytes);
        printf("%s: survived\n", argv[i]);
    }
    return 0;
}
