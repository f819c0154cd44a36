/* workers.c - a queue of tasks and the threads that take from it. */
#include "server/workers.h"

#include <pthread.h>
#include <stdlib.h>

struct workers {
    pthread_mutex_t lock; /* guards what follows, but for the threads */
    pthread_cond_t queued;
    struct task *first, **last;
    bool closing;
    int count;
    pthread_t threads[];
};

static void *work_for_ever(void *argument)
{
    struct workers *w = argument;

    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (w->first == NULL && !w->closing) {
            pthread_cond_wait(&w->queued, &w->lock);
        }
        struct task *task = w->first;
        if (task != NULL) {
            w->first = task->next;
            w->last = w->first == NULL ? &w->first : w->last;
        }
        pthread_mutex_unlock(&w->lock);
        if (task == NULL) {
            return NULL;
        }
        task->run(task);
    }
}

int workers_open(struct workers **out, int threads, struct err *err)
{
    struct workers *w = calloc(1, sizeof *w + (size_t)threads * sizeof w->threads[0]);

    if (w == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for %d workers", threads);
    }
    w->last = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->queued, NULL);
    while (w->count < threads &&
           pthread_create(&w->threads[w->count], NULL, work_for_ever, w) == 0) {
        w->count++;
    }
    if (w->count < threads) {
        workers_close(w);
        return FAIL(err, ERR_NO_MEMORY, "no threads for %d workers", threads);
    }
    *out = w;
    return 0;
}

bool workers_add(struct workers *w, struct task *task)
{
    task->next = NULL;
    pthread_mutex_lock(&w->lock);
    const bool open = !w->closing;
    if (open) {
        *w->last = task;
        w->last = &task->next;
        pthread_cond_signal(&w->queued);
    }
    pthread_mutex_unlock(&w->lock);
    return open;
}

void workers_stop(struct workers *w)
{
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_broadcast(&w->queued);
    pthread_mutex_unlock(&w->lock);
    while (w->count > 0) {
        pthread_join(w->threads[--w->count], NULL);
    }
}

void workers_close(struct workers *w)
{
    if (w == NULL) {
        return;
    }
    workers_stop(w);
    pthread_cond_destroy(&w->queued);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
