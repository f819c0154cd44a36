/* signals.c - one atomic flag between signal handlers and the training loop. */
#include "trainer/signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static const struct {
    int signal;
    enum signals_request request;
} table[] = {{SIGUSR1, SIGNALS_SAVE}, {SIGTERM, SIGNALS_STOP}, {SIGINT, SIGNALS_LEAVE}};

enum { SIGNALS = sizeof table / sizeof table[0] };

/* Bit r is set when request r was made. Lock-free, hence allowed in a handler. */
static atomic_uint requests;

static void on_signal(int signal)
{
    for (int i = 0; i < SIGNALS; i++) {
        if (table[i].signal == signal) {
            atomic_fetch_or(&requests, 1U << table[i].request);
        }
    }
}

void signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigset_t let_through;

    (void)sigemptyset(&action.sa_mask);
    (void)sigemptyset(&let_through);
    for (int i = 0; i < SIGNALS; i++) {
        (void)sigaction(table[i].signal, &action, NULL);
        (void)sigaddset(&let_through, table[i].signal);
    }
    (void)sigprocmask(SIG_UNBLOCK, &let_through, NULL);
}

static enum signals_request strongest(unsigned bits)
{
    if ((bits & 1U << SIGNALS_LEAVE) != 0) {
        return SIGNALS_LEAVE;
    }
    if ((bits & 1U << SIGNALS_STOP) != 0) {
        return SIGNALS_STOP;
    }
    return (bits & 1U << SIGNALS_SAVE) != 0 ? SIGNALS_SAVE : SIGNALS_NONE;
}

enum signals_request signals_take(void)
{
    return strongest(atomic_exchange(&requests, 0));
}

enum signals_request signals_peek(void)
{
    return strongest(atomic_load(&requests));
}
