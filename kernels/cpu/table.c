/* table.c - chooses the instruction set, once, and counts threads. */
#include <cpuid.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/onednn.h"

#ifdef _OPENMP
    #include <omp.h>
#endif

/* What the levels need beyond vectors: all of them have it in practice, but the compiler counts on
 * it, so it is looked up. cpuid 1: ecx; cpuid 0x80000001: ecx. */
static bool has_small_instructions(void)
{
    unsigned a, b, c, d, c2;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !__get_cpuid(0x80000001U, &a, &b, &c2, &d)) {
        return false;
    }
    return (c & bit_MOVBE) != 0 && (c & bit_F16C) != 0 && (c2 & bit_ABM) != 0;
}

static bool has_v2(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
           __builtin_cpu_supports("popcnt");
}

static bool has_v3(void)
{
    return has_v2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           has_small_instructions();
}

#ifndef HONE_DOUBLE
static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool has_v4bf16(void)
{
    unsigned a, b, c, d;

    return has_v4() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1U << 5)) != 0;
}
#endif

/* Best first. The double build has the first two levels only. */
static const struct choice {
    const char *name;
    bool (*present)(void);
    const struct cpu_isa *isa;
} choices[] = {
#ifndef HONE_DOUBLE
    {"v4bf16", has_v4bf16, &cpu_isa_v4bf16},
    {"v4", has_v4, &cpu_isa_v4},
#endif
    {"v3", has_v3, &cpu_isa_v3},
    {"v2", has_v2, &cpu_isa_v2},
};

enum { CHOICES = sizeof(choices) / sizeof(choices[0]) };

/* The process-wide choice: written once by the first kernels_cpu(), before any other thread. */
static struct {
    bool made;
    const struct cpu_isa *isa;
    char why[160];
    int threads;
} cpu = {.threads = 1};

static void choose(const char *wanted)
{
    for (int i = 0; i < CHOICES; i++) {
        const struct choice *c = &choices[i];
        if (wanted != NULL && strcmp(wanted, c->name) != 0) {
            continue;
        }
        if (c->present()) {
            cpu.isa = c->isa;
            onednn_hold(c->name);
            return;
        }
        if (wanted != NULL) {
            (void)snprintf(cpu.why, sizeof(cpu.why),
                           "HONE_ISA=%s asks for instructions that this processor does not have",
                           wanted);
            return;
        }
    }
    if (wanted != NULL) {
        (void)snprintf(cpu.why, sizeof(cpu.why),
                       "HONE_ISA=%.32s is none of the instruction sets v2, v3, v4, v4bf16", wanted);
    } else {
        (void)snprintf(cpu.why, sizeof(cpu.why),
                       "this processor lacks the instructions of x86-64-v2");
    }
}

const struct kernels *kernels_cpu(void)
{
    if (!cpu.made) {
        const char *wanted = getenv("HONE_ISA");
        __builtin_cpu_init();
        choose(wanted != NULL && wanted[0] != '\0' ? wanted : NULL);
        cpu.made = true;
    }
    return cpu.isa != NULL ? &cpu.isa->kernels : NULL;
}

const char *kernels_cpu_why(void)
{
    return cpu.why;
}

const struct cpu_isa *cpu_chosen(void)
{
    return cpu.isa;
}

void kernels_cpu_threads(int threads)
{
    CHECK(threads >= 1, "%d threads", threads);
    cpu.threads = threads;
}

int cpu_threads(void)
{
    return cpu.threads;
}

int cpu_thread(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

double kernels_cpu_probe(int threads, int ms)
{
    const struct kernels *k = kernels_cpu();
    double rate = 0;

    CHECK(k != NULL && threads >= 1 && ms >= 1, "probe of %d threads for %d ms", threads, ms);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : rate)
    for (int i = 0; i < threads; i++) {
        rate += cpu.isa->probe(ms);
    }
    return rate;
}
