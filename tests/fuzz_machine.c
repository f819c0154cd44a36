/* fuzz_machine.c - any bytes as the description of a machine: refused, or written and read again it is the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/check.h"
#include "server/machine.h"
#include "trainer/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct machine one, two;
    static struct device_now now_one[MACHINE_DEVICES], now_two[MACHINE_DEVICES];
    json_t *text = NULL;
    struct err err = {0};

    if (json_parse_text(&text, (const char *)bytes, n, "input", &err) != 0) {
        return 0;
    }
    if (machine_parse(&one, now_one, text, &err) != 0) {
        CHECK(err.text[0] != '\0' && strchr(err.text, '\n') == NULL, "%s", err.text);
    } else {
        json_t *written = machine_json(&one, now_one);
        CHECK(written != NULL && machine_parse(&two, now_two, written, &err) == 0, "%s", err.text);
        CHECK(one.device_count == two.device_count, "devices");
        CHECK(memcmp(one.links, two.links, sizeof one.links) == 0, "links");
        CHECK(memcmp(one.devices, two.devices, sizeof one.devices) == 0, "devices");
        json_decref(written);
    }
    json_decref(text);
    return 0;
}
