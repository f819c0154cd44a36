/* audit_file.h - DATA/audit.jsonl: the audit log as lines of JSON, mode 0600, for who ships logs elsewhere.
 *
 * The file follows the store: a line for each committed row, in order, each by one write to a file opened for
 * appending. What could not be written (a full disk) is written the next time. A file whose last line is beyond
 * the store's last row belongs to another store (honed rebuild) and is put aside as audit.TIME.jsonl.
 */
#ifndef SERVER_AUDIT_FILE_H
#define SERVER_AUDIT_FILE_H

#include "server/store.h"

struct audit_file {
    int fd;          /* -1: could not be opened; tried again */
    int64_t written; /* number of the last row in it         */
    char path[1100];
};

/* `dir`: the data folder. Errors: of the store. */
int audit_file_open(struct audit_file *f, struct store *store, const char *dir, struct err *err);
void audit_file_close(struct audit_file *f);

/* Write what the store has and the file has not. Errors: IO, DISK_FULL, of the store. */
int audit_file_follow(struct audit_file *f, struct store *store, struct err *err);

/* Compare the hashes of the lines with the rows'; *first_bad is the first row whose line says otherwise, else
 * 0. No file is as good as one without lines. Errors: IO, of the store. */
int audit_file_check(sqlite3 *db, const char *dir, int64_t *first_bad, struct err *err);

#endif
