/* model_process.h - a `hone-train serve` process: started, found, told to leave, buried.
 *
 *   LOADING --its socket answers--> READY --told to leave, or cut off--> LEAVING --ended--> (gone)
 *
 * It leaves with honed: its standard input is a pipe that ends when honed does. Not for several threads.
 */
#ifndef SERVER_MODEL_PROCESS_H
#define SERVER_MODEL_PROCESS_H

#include <sys/types.h>

#include "server/settings.h"

enum model_stage { MODEL_LOADING, MODEL_READY, MODEL_LEAVING };

enum { MODEL_PATH = 4096 };

struct model_process {
    char dir[MODEL_PATH];    /* the model's folder                                      */
    char socket[MODEL_PATH]; /* path                                                    */
    char log[MODEL_PATH];    /* path of what it prints                                  */
    enum model_stage stage;
    pid_t pid;
    int pid_fd, lifeline;     /* -1: none                                                */
    int talks;                /* that it is asked                                        */
    int device;               /* of the machine, that it is on                           */
    int64_t bytes;            /* of memory, as planned                                   */
    int64_t used_ms, told_ms; /* when it was last asked; told to leave                   */
};

/* Start one for the folder m->dir with its socket in the folder `home`. Errors: NOT_FOUND (no trainer), IO. */
int model_start(struct model_process *m, const struct settings *s, const char *home,
                struct err *err);

/* A connection to it; -1 when it does not answer yet. */
int model_connect(struct model_process *m);

/* Tell it to leave; after 5 s it is killed. */
void model_leave(struct model_process *m, int64_t now_ms);

/* Whether it has ended; then its things are closed and removed, and err tells how in a sentence. */
bool model_reap(struct model_process *m, struct err *err);

#endif
