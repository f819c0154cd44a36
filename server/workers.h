/* workers.h - a few threads for what may wait: the store, the disk, a directory. */
#ifndef SERVER_WORKERS_H
#define SERVER_WORKERS_H

#include <stdbool.h>

#include "trainer/base/err.h"

struct workers;

/* A piece of work, embedded in what it works on; borrowed until `run` is called. */
struct task {
    struct task *next;
    void (*run)(struct task *task);
};

/* Errors: NO_MEMORY. */
int workers_open(struct workers **out, int threads, struct err *err);

/* Queue a task; they start in order. False when the workers are closing. Any thread. */
bool workers_add(struct workers *w, struct task *task);

/* Take no more tasks, finish the queued ones, end the threads. */
void workers_stop(struct workers *w);

/* Stop, and free. NULL is allowed. */
void workers_close(struct workers *w);

#endif
