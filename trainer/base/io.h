/* io.h - files and folders: whole reads, durable writes, opening beneath a root, removal.
 *
 * A full disk (ENOSPC, EDQUOT, and EFBIG from a file size limit) is always ERR_DISK_FULL, every
 * other failure of the system ERR_IO. New files have mode 0600, new folders 0700.
 */
#ifndef TRAINER_BASE_IO_H
#define TRAINER_BASE_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trainer/base/err.h"

enum { IO_PATH_MAX = 4096 }; /* bytes of the longest path, its NUL included */

/* FAIL for a failed system call whose errno is `number`: DISK_FULL or IO. */
#define IO_FAIL(err, number, ...)                                      \
    (io_disk_is_full(number) ? FAIL((err), ERR_DISK_FULL, __VA_ARGS__) \
                             : FAIL((err), ERR_IO, __VA_ARGS__))

bool io_disk_is_full(int number);

/* out = dir/name. Errors: IO (longer than size - 1 bytes). */
int io_join(char *out, size_t size, const char *dir, const char *name, struct err *err);

/* The whole file, followed by a NUL that *bytes does not count; the caller frees *out.
 * Only regular files. Errors: NOT_FOUND (no such file), TOO_LARGE (more than max_bytes), IO,
 * NO_MEMORY. On failure *out is NULL. io_read_fd reads from the start and leaves fd open. */
int io_read_file(char **out, size_t *bytes, const char *path, size_t max_bytes, struct err *err);
int io_read_fd(char **out, size_t *bytes, int fd, const char *path, size_t max_bytes,
               struct err *err);

/* Exactly n bytes at `offset`; `path` is for the error. Errors: IO, BAD_FILE (the file ends
 * before). */
int io_read_at(int fd, void *out, size_t n, uint64_t offset, const char *path, struct err *err);

/* All n bytes, at the file's position. Errors: DISK_FULL, IO. */
int io_write_all(int fd, const void *bytes, size_t n, const char *path, struct err *err);

/* Replace the file at `path`: written aside as path~, fsynced, renamed, the folder fsynced.
 * Whoever reads sees the old file or the new one; on failure the old one. Errors: DISK_FULL, IO. */
int io_write_file(const char *path, const void *bytes, size_t n, struct err *err);

/* Open the regular file `relative` of the folder root_fd for reading; *fd is the caller's to close.
 * Symbolic links, absolute paths and ".." are refused wherever they lead, and so is everything
 * that is not a regular file; a FIFO or a device can't block the call. One kind of link is followed, that of a
 * Hugging Face cache: a plain name whose target is ../../blobs/BLOB, a regular file there. Errors: NOT_FOUND, BAD_FILE
 * (refused), IO. The second form is what the first falls back to on kernels without openat2(2). */
int io_open_beneath(int *fd, int root_fd, const char *relative, struct err *err);
int io_open_beneath_walking(int *fd, int root_fd, const char *relative, struct err *err);

/* Open the folder `path` itself. Errors: NOT_FOUND, BAD_FILE (not a folder), IO. */
int io_open_dir(int *fd, const char *path, struct err *err);

/* Make a folder if it is not there. Errors: DISK_FULL, IO (also: something else has that name). */
int io_make_dir(const char *path, struct err *err);

/* Make what was created, renamed or removed in the folder survive a power cut. Errors: DISK_FULL,
 * IO. */
int io_sync_dir(const char *path, struct err *err);

/* The names in a folder but "." and "..", sorted; a folder that is not there is empty. On failure
 * *out is empty. Errors: IO, NO_MEMORY. */
struct io_names {
    struct dirent **at; /* owned; at[i]->d_name */
    int count;
};

int io_list_dir(struct io_names *out, const char *path, struct err *err);
void io_names_fini(struct io_names *names);

/* Remove a file or a folder with all that it holds; links are removed, never followed. Something
 * that is not there is no error. Errors: IO. */
int io_remove_tree(const char *path, struct err *err);

/* Bytes that an ordinary user may still write to the file system of `path`. Errors: IO. */
int io_free_bytes(const char *path, uint64_t *bytes, struct err *err);

/* Sum of the sizes of the regular files below `path`; links are not followed. Errors: IO. */
int io_tree_bytes(const char *path, uint64_t *bytes, struct err *err);

#endif
