/* signals.h - what a rank was asked to do, by signals from its launcher.
 *
 *    SIGUSR1  SIGNALS_SAVE   save and go on
 *    SIGTERM  SIGNALS_STOP   save and leave
 *    SIGINT   SIGNALS_LEAVE  leave without saving
 *
 * They are blocked and stay pending until they are taken, so nothing is ever interrupted. With several ranks
 * rank 0 takes and tells the others, so that all act at the same step.
 */
#ifndef TRAINER_SIGNALS_H
#define TRAINER_SIGNALS_H

/* The weakest first. */
enum signals_request { SIGNALS_NONE, SIGNALS_SAVE, SIGNALS_STOP, SIGNALS_LEAVE };

/* Block the three signals, and no others, in this thread and in those that it starts. */
void signals_install(void);

/* The strongest request since the last call, which is then forgotten with the weaker ones. */
enum signals_request signals_take(void);

/* The same without forgetting: for long loops that may end early. */
enum signals_request signals_peek(void);

#endif
