/* fuzz_safetensors.c - any bytes as a safetensors file: refused with a sentence, or every tensor can be read. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/ckpt/rectangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum {
    ELEMENTS_MAX = 1 << 16
}; /* of one tensor that are read: the header may speak of terabytes */

static void read_tensor(const struct st_tensor *t)
{
    static double out[ELEMENTS_MAX];
    struct st_rect rect = st_rect_all(t);
    struct err err;

    CHECK(strlen(t->name) < t->offset, "a name longer than the header");
    if (rect.cols > ELEMENTS_MAX || (rect.cols > 0 && rect.rows > ELEMENTS_MAX / rect.cols)) {
        rect.rows = rect.rows < 8 ? rect.rows : 8;
        rect.cols = rect.cols < 8 ? rect.cols : 8;
    }
    if (rect.rows > ELEMENTS_MAX) {
        return; /* without columns */
    }
    const enum dtype type = st_dtype_is_float(t->dtype) ? DTYPE_F64 : DTYPE_I64;
    (void)safetensors_read(t, rect, ST_AS_IS, out, type, rect.cols, &err);
    (void)safetensors_read(t, rect, ST_TRANSPOSED, out, type, rect.rows, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct safetensors *st = NULL;
    struct err err = {0};
    const int fd = memfd_create("input", MFD_CLOEXEC);

    CHECK(fd >= 0 && io_write_all(fd, bytes, n, "input", &err) == 0, "no memory file");
    if (safetensors_open_fd(&st, fd, "input", &err) != 0) {
        CHECK(st == NULL && err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "%s", err.text);
        return 0;
    }
    for (int64_t i = 0; i < safetensors_count(st) && i < 64; i++) {
        read_tensor(safetensors_at(st, i));
        CHECK(safetensors_find(st, safetensors_at(st, i)->name) == safetensors_at(st, i), "lost");
    }
    safetensors_close(st);
    return 0;
}
