/* bind.c - sched_setaffinity and set_mempolicy. */
#include "trainer/bind.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREFERRED = 1, NODES = 1024, WORD_BITS = 8 * (int)sizeof(unsigned long) };

static void bind_cores(const int *cores, int count)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (int i = 0; i < count; i++) {
        if (cores[i] < CPU_SETSIZE) {
            CPU_SET((size_t)cores[i], &set);
        }
    }
    /* Cores of the plan that the machine lacks are skipped by the system; none at all is an error. */
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        (void)fprintf(stderr, "hone: not bound to its %d cores: %s\n", count, strerror(errno));
    }
}

static void bind_memory(int node)
{
    unsigned long mask[NODES / WORD_BITS] = {0};

    if (node >= NODES) {
        return;
    }
    mask[node / WORD_BITS] = 1UL << (node % WORD_BITS);
    /* The kernel reads one bit less than it is told. */
    if (syscall(SYS_set_mempolicy, PREFERRED, mask, (unsigned long)NODES + 1) != 0) {
        (void)fprintf(stderr, "hone: not bound to memory node %d: %s\n", node, strerror(errno));
    }
}

void bind_process(const struct attempt_plan *plan, int rank)
{
    struct rank_place at = {0, plan->core_count, plan->memory_node};

    if (rank >= 0 && rank < plan->place_count) {
        at = plan->places[rank].count > 0 ? plan->places[rank] : at;
        at.node = plan->places[rank].node >= 0 ? plan->places[rank].node : plan->memory_node;
    }
    if (at.count > 0) {
        bind_cores(plan->cores + at.first, at.count);
    }
    if (at.node >= 0) {
        bind_memory(at.node);
    }
}
