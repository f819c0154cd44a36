/* signals.c - the training loop asks which of its three signals are pending.
 *
 * There is no handler, on purpose: oneDNN's sgemm kernels point the stack register into a buffer on the heap
 * while they run, and the frame of a handler would be written over what lies below that buffer.
 */
#include "trainer/signals.h"

#include <signal.h>
#include <stddef.h>
#include <time.h>

static const struct {
    int signal;
    enum signals_request request;
} table[] = {/* the strongest first */
             {SIGINT, SIGNALS_LEAVE},
             {SIGTERM, SIGNALS_STOP},
             {SIGUSR1, SIGNALS_SAVE}};

enum { SIGNALS = sizeof table / sizeof table[0] };

static sigset_t all_of_them(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    for (int i = 0; i < SIGNALS; i++) {
        (void)sigaddset(&set, table[i].signal);
    }
    return set;
}

void signals_install(void)
{
    const sigset_t set = all_of_them();

    /* A signal that is ignored never becomes pending. */
    for (int i = 0; i < SIGNALS; i++) {
        (void)signal(table[i].signal, SIG_DFL);
    }
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
}

enum signals_request signals_take(void)
{
    const sigset_t set = all_of_them();
    const struct timespec at_once = {0};
    enum signals_request strongest = SIGNALS_NONE;

    for (int taken = sigtimedwait(&set, NULL, &at_once); taken > 0;
         taken = sigtimedwait(&set, NULL, &at_once)) {
        for (int i = 0; i < SIGNALS; i++) {
            if (table[i].signal == taken && table[i].request > strongest) {
                strongest = table[i].request;
            }
        }
    }
    return strongest;
}

enum signals_request signals_peek(void)
{
    sigset_t pending;

    (void)sigemptyset(&pending);
    (void)sigpending(&pending);
    for (int i = 0; i < SIGNALS; i++) {
        if (sigismember(&pending, table[i].signal) == 1) {
            return table[i].request;
        }
    }
    return SIGNALS_NONE;
}
