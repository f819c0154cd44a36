/* probe.c - the machine's multiply-add rate with this instruction set's vectors. */
#include <time.h>

#include "kernels/cpu/vec/micro.h"
#include "kernels/cpu/vec/ops.h"

enum { CHAINS = 12, TURNS = 20000 };

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Chains of x = x a + b that do not wait for each other; enough to fill the pipes, few enough to
 * stay in registers. */
static __attribute__((noinline)) real run_chains(real a, real b)
{
    vreal x[CHAINS], va = (vreal){0} + a, vb = (vreal){0} + b, sum = {0};

    UNROLL
    for (int i = 0; i < CHAINS; i++) {
        x[i] = (vreal){0} + (real)i;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        UNROLL
        for (int i = 0; i < CHAINS; i++) {
            x[i] = x[i] * va + vb;
        }
    }
    UNROLL
    for (int i = 0; i < CHAINS; i++) {
        sum += x[i];
    }
    return sum[0];
}

double VEC(probe)(int ms)
{
    const double flops = 2.0 * CHAINS * LANES * TURNS, start = now();
    volatile real factor = REAL(0.999), kept = 0; /* volatile: the chains must run each time */
    double done = 0, seconds;

    do {
        kept = run_chains(factor, REAL(0.001));
        done += flops;
        seconds = now() - start;
    } while (seconds * 1e3 < (double)ms);
    (void)kept;
    return done / seconds;
}
