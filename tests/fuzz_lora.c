/* fuzz_lora.c - adapter_config.json, names of layers, patterns of frozen parts and sample prompts, from any bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "trainer/base/json.h"
#include "trainer/lora.h"
#include "trainer/prompt_fields.h"
#include "trainer/trained.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct arch arch_of(bool gpt2)
{
    struct arch a = {.family = gpt2 ? FAMILY_GPT2 : FAMILY_LLAMA,
                     .D = 8,
                     .F = 16,
                     .L = 2,
                     .H = 2,
                     .G = 2,
                     .K = 4,
                     .V = 32,
                     .positions = 16,
                     .norm = gpt2 ? NORM_LAYER : NORM_RMS,
                     .gated = !gpt2,
                     .learned_positions = gpt2};
    return a;
}

static void read_config(const struct arch *a, const char *text, size_t bytes)
{
    struct lora_choice l;
    struct err err = {0};
    json_t *config = NULL;

    if (json_parse_text(&config, text, bytes, "config", &err) == 0) {
        if (lora_parse(&l, a, config, &err) == 0) {
            struct arch with = *a;
            with.lora = l;
            CHECK(l.r >= 1 && l.r <= LORA_RANK_MAX && l.targets != 0, "a choice of nothing");
            json_t *again = lora_config(&with, "base");
            struct lora_choice back;
            CHECK(lora_parse(&back, a, again, &err) == 0 && back.targets == l.targets, "%s",
                  err.text);
            json_decref(again);
        }
        (void)prompt_fields_check(config, &err);
        json_decref(config);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spec s;
    struct lora_choice l;
    struct err err = {0};

    if (size < 1 || size > 4000) {
        return 0;
    }
    const struct arch a = arch_of((data[0] & 1) != 0);
    char *text = calloc(1, size);
    CHECK(text != NULL, "out of memory");
    memcpy(text, data + 1, size - 1);
    memset(&s, 0, sizeof s);
    s.lora_dropout = -1.0;
    switch (data[0] / 2 % 3) {
    case 0: read_config(&a, text, size - 1); break;
    case 1:
        (void)snprintf(s.freeze, sizeof s.freeze, "%s", text);
        (void)trained_check(&a, &s, &err);
        break;
    default:
        s.lora_rank = 1;
        (void)snprintf(s.lora_targets, sizeof s.lora_targets, "%s", text);
        (void)lora_choose(&l, &a, &s, NULL, &err);
        break;
    }
    free(text);
    return 0;
}
