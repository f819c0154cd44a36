/* cpu.h - what the files of the CPU backend share; only kernels/cpu/ includes this. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H

#include "kernels/kernels.h"

/* One instruction set's build of kernels/cpu/vec. */
struct cpu_isa {
    struct kernels kernels;

    /* The plain blocked GEMM: any types that kernels.h allows, read through real while packing.
     * It is the GEMM of the double build and that of bf16 where the machine has no bf16 products. */
    void (*gemm_plain)(struct queue *q, struct tensor c, struct tensor a, enum trans ta,
                       struct tensor b, enum trans tb, float beta);

    /* Runs independent multiply-adds for about `ms` milliseconds; flops done per second. */
    double (*probe)(int ms);
};

extern const struct cpu_isa cpu_isa_v2, cpu_isa_v3, cpu_isa_v4, cpu_isa_v4bf16;

/* The instruction set that kernels_cpu() chose; NULL before its first call, or when it has none. */
const struct cpu_isa *cpu_chosen(void);

/* Threads that a kernel may use, and the calling thread's number among them. */
int cpu_threads(void);
int cpu_thread(void);

/* GEMM by oneDNN, see gemm.c. */
void cpu_gemm(struct queue *q, struct tensor c, struct tensor a, enum trans ta, struct tensor b,
              enum trans tb, float beta);

#endif
