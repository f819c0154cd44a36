/* log.h - lines on stderr, where systemd or a terminal reads them. */
#ifndef SERVER_LOG_H
#define SERVER_LOG_H

/* One line with the time before it, written at once. Bytes below 0x20, 0x7f and everything from 0x80
 * are written as \xNN: what a user sent cannot forge a line or drive a terminal. */
void log_line(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
