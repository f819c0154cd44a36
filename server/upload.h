/* upload.h - a file on its way in: written aside, hashed, counted against the limits as it arrives.
 *
 * DATA/files/ID.part becomes DATA/files/ID once the store has the row; what has no row when honed
 * starts is removed. A raw body and a multipart form end in the same object.
 */
#ifndef SERVER_UPLOAD_H
#define SERVER_UPLOAD_H

#include "server/authorise.h"
#include "server/random.h"
#include "server/settings.h"
#include "server/store.h"
#include "trainer/base/sha256.h"

enum { UPLOAD_NAME = 256, UPLOAD_PURPOSE = 32, UPLOADS_OF_USER = 8 };

struct MHD_Connection;
struct uploads; /* all that are under way, for the limits */
struct upload;

struct uploaded {
    char id[RANDOM_ID]; /* "file-..." */
    int64_t user_id;
    char filename[UPLOAD_NAME]; /* "" when none was given */
    char purpose[UPLOAD_PURPOSE];
    int64_t bytes;
    char sha256[SHA256_TEXT];
    bool has_file; /* false for a form without the part "file" */
};

/* `settings` and `store` are borrowed. Also settles what an earlier honed left in DATA/files. */
int uploads_open(struct uploads **out, const struct settings *settings, struct store *store,
                 struct err *err);
void uploads_close(struct uploads *u);

/* Begin with a body of `length` bytes (-1: not told). `form`: a connection whose body is a multipart
 * form, NULL for a raw body. Errors: TOO_LARGE, DISK_FULL, TOO_MANY, BAD_REQUEST, IO, NO_MEMORY. */
int upload_begin(struct upload **out, struct uploads *all, int64_t user_id, int64_t length,
                 struct MHD_Connection *form, struct err *err);

/* More of the body. Errors: as upload_begin. */
int upload_take(struct upload *up, const char *bytes, size_t size, struct err *err);

/* The body is complete: flush to the disk and describe. Waits for the disk. */
int upload_finish(struct upload *up, struct uploaded *out, struct err *err);

/* The store has the row: give the file its name. */
int upload_publish(struct upload *up, struct err *err);

/* Forget it; unless published, the file is removed. NULL is allowed. */
void upload_free(struct upload *up);

/* Path of a file that was published. */
void upload_path(char *out, size_t size, const struct settings *settings, const char *id);

/* Whether `who` may do the deed to the file of that id. Errors: NOT_FOUND for one that is not there or hidden
 * from `who`, FORBIDDEN. */
int upload_allow(sqlite3 *db, const char *id, const struct identity *who, enum deed deed,
                 struct err *err);

#endif
