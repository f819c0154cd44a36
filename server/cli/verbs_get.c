/* verbs_get.c - hone get: a checkpoint, file by file, resumed where it stopped, every hash checked.
 *
 * The manifest comes first; its own hash is the checkpoint's. Each file that it lists is downloaded as
 * NAME.part, continued with Range and If-Range, compared with its size and hash in the manifest, and only
 * then renamed to NAME: a file without ".part" is whole and right. manifest.json is written last, so a
 * folder that has it has everything.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/cli/progress.h"
#include "server/cli/show.h"
#include "trainer/base/io.h"
#include "trainer/base/json.h"
#include "trainer/base/sha256.h"

enum { TRIES = 5 };

/* One file of the checkpoint. */
struct wanted {
    const char *name;
    int64_t bytes;
    const char *sha256;
};

/* A download under way. */
struct loading {
    int fd;
    const char *path; /* of the .part */
    int64_t have;     /* bytes in it   */
    const struct wanted *file;
    struct progress progress;
    struct err err;
};

struct getter {
    struct cli *cli;
    char address[512]; /* of the checkpoint */
    char dir[IO_PATH_MAX];
    bool force;
};

/* A name from the server becomes a file in the folder and nowhere else. */
static bool is_plain_name(const char *name)
{
    const size_t length = strlen(name);
    char safe[512];

    return length > 0 && length <= 250 && name[0] != '.' && strpbrk(name, "/\\") == NULL &&
           show_safe(safe, sizeof safe, name, length) == length && strcmp(safe, name) == 0;
}

/* The answer begins: 206 goes on where the file ends, 200 is the whole file from its start. */
static bool begin(void *self, long status)
{
    struct loading *const l = self;

    if (status != 206 && l->have > 0) {
        l->have = 0;
        if (ftruncate(l->fd, 0) != 0) {
            (void)FAIL(&l->err, ERR_IO, "%s can't be emptied: %s", l->path, strerror(errno));
            return false;
        }
    }
    return lseek(l->fd, (off_t)l->have, SEEK_SET) >= 0;
}

static bool keep(void *self, const char *bytes, size_t count)
{
    struct loading *const l = self;
    char amount[24];

    if (l->have + (int64_t)count > l->file->bytes) {
        (void)FAIL(&l->err, ERR_BAD_FILE, "%s is longer than its manifest says", l->file->name);
        return false;
    }
    if (io_write_all(l->fd, bytes, count, l->path, &l->err) != 0) {
        return false;
    }
    l->have += (int64_t)count;
    progress_draw(&l->progress, (double)l->have / (double)l->file->bytes, l->file->name,
                  show_bytes(amount, l->have), false);
    return true;
}

/* One request for what is missing; *again when another try may help. The ETag of a file is its hash in
 * quotes, so a .part of an earlier call can be continued: another file answers with all of it. */
static int fetch_rest(struct getter *g, struct loading *l, bool *again, struct err *err)
{
    char address[1024], range[64], condition[128], name[512];
    struct http_reply reply;

    *again = false;
    TRY(assign_path(name, sizeof name, err, "/%", l->file->name));
    (void)snprintf(address, sizeof address, "%s%s", g->address, name);
    (void)snprintf(range, sizeof range, "Range: bytes=%lld-", (long long)l->have);
    (void)snprintf(condition, sizeof condition, "If-Range: \"%s\"", l->file->sha256);
    const bool part = l->have > 0;
    const struct http_request request = {.method = "GET",
                                         .path = address,
                                         .header = part ? range : NULL,
                                         .header2 = part ? condition : NULL,
                                         .sink = keep,
                                         .opened = begin,
                                         .self = l,
                                         .quiet_s = 60};
    int rc = http_send(g->cli->http, &request, &reply, err);
    if (l->err.code != ERR_NONE) {
        *err = l->err;
        rc = (int)l->err.code;
    } else if (rc != 0) {
        *again = http_may_retry(&reply, rc);
    }
    http_reply_fini(&reply);
    return rc;
}

/* Compare the finished .part with what is wanted, and give it its name. */
static int finish(struct loading *l, const char *path, struct err *err)
{
    char hex[SHA256_TEXT];

    if (l->have != l->file->bytes) {
        return FAIL(err, ERR_IO, "%s has %lld bytes, its manifest says %lld", l->file->name,
                    (long long)l->have, (long long)l->file->bytes);
    }
    TRY(sha256_fd(l->fd, l->path, hex, NULL, err));
    if (strcmp(hex, l->file->sha256) != 0) {
        (void)unlink(l->path);
        return FAIL(err, ERR_BAD_FILE, "%s came damaged: its SHA-256 is %s, the manifest says %s",
                    l->file->name, hex, l->file->sha256);
    }
    if (fsync(l->fd) != 0 || rename(l->path, path) != 0) {
        return IO_FAIL(err, errno, "%s can't be written: %s", path, strerror(errno));
    }
    return 0;
}

/* Whether the file is there already, whole and right; a different one is refused unless --force. */
static int is_there(const struct getter *g, const char *path, const char *sha256, bool *there,
                    struct err *err)
{
    char hex[SHA256_TEXT];
    struct stat st;

    *there = false;
    if (lstat(path, &st) != 0) {
        return 0;
    }
    if (S_ISREG(st.st_mode)) {
        TRY(sha256_file(path, hex, NULL, err));
        *there = strcmp(hex, sha256) == 0;
    }
    if (!*there && !g->force) {
        return FAIL(err, ERR_BAD_STATE,
                    "%s is there with other content; name another folder, or use --force", path);
    }
    return 0;
}

/* Get what is missing of the .part, with a few tries on a bad line. */
static int fetch_part(struct getter *g, struct loading *l, struct err *err)
{
    bool again = true;
    int rc = 0;

    for (unsigned tries = 0; again && l->have < l->file->bytes && tries < TRIES; tries++) {
        (void)usleep(tries > 0 ? 100000U << tries : 0);
        rc = fetch_rest(g, l, &again, err);
    }
    progress_clear(&l->progress);
    return rc;
}

/* Download `file` into the folder unless it is there. */
static int fetch(struct getter *g, const struct wanted *file, bool *came, struct err *err)
{
    char path[IO_PATH_MAX], part[IO_PATH_MAX];
    struct loading l = {.file = file, .path = part, .progress = progress_make(stderr)};
    bool there = false;
    struct stat st;
    int rc = 0;

    TRY(io_join(path, sizeof path, g->dir, file->name, err));
    if (snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part) {
        return FAIL(err, ERR_IO, "the path %s is too long", path);
    }
    TRY(is_there(g, path, file->sha256, &there, err));
    *came = !there;
    if (there) {
        return 0;
    }
    l.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (l.fd < 0) {
        return IO_FAIL(err, errno, "%s can't be written: %s", part, strerror(errno));
    }
    l.have = fstat(l.fd, &st) == 0 && st.st_size <= file->bytes ? (int64_t)st.st_size : 0;
    if (l.have == 0 && ftruncate(l.fd, 0) != 0) {
        rc = IO_FAIL(err, errno, "%s can't be emptied: %s", part, strerror(errno));
    }
    rc = rc != 0 ? rc : fetch_part(g, &l, err);
    rc = rc != 0 ? rc : finish(&l, path, err);
    (void)close(l.fd);
    return rc;
}

/* All files that the manifest lists; each name and hash is checked before any is downloaded. */
static int fetch_all(struct getter *g, const json_t *manifest, struct err *err)
{
    const json_t *const files = json_object_get(manifest, "files");
    int64_t bytes = 0, came_bytes = 0;
    char size[24];
    size_t i = 0;
    const json_t *file = NULL;

    if (!json_is_array(files) || json_array_size(files) == 0) {
        return FAIL(err, ERR_BAD_FILE, "manifest.json lists no files");
    }
    json_array_foreach(files, i, file)
    {
        const char *const name = cli_text(file, "name");
        if (!is_plain_name(name) || strcmp(name, "manifest.json") == 0) {
            return FAIL(err, ERR_BAD_FILE,
                        "manifest.json lists a file with the name '%s', which is refused", name);
        }
        if (!sha256_is_text(cli_text(file, "sha256")) ||
            !json_is_integer(json_object_get(file, "bytes")) || cli_integer(file, "bytes") < 0) {
            return FAIL(err, ERR_BAD_FILE, "manifest.json has no size or no SHA-256 for %s", name);
        }
    }
    json_array_foreach(files, i, file)
    {
        const struct wanted wanted = {.name = cli_text(file, "name"),
                                      .bytes = cli_integer(file, "bytes"),
                                      .sha256 = cli_text(file, "sha256")};
        bool came = false;
        TRY(fetch(g, &wanted, &came, err));
        bytes += wanted.bytes;
        came_bytes += came ? wanted.bytes : 0;
        if (!args_has(&g->cli->args, OPT(JSON))) {
            printf("%s  %s  %s%s\n", wanted.sha256, wanted.name, show_bytes(size, wanted.bytes),
                   came ? "" : "  (was there)");
            (void)fflush(stdout);
        }
    }
    if (!args_has(&g->cli->args, OPT(JSON))) {
        char all[24];
        printf("%zu files, %s in %s, every SHA-256 checked; %s came over the network\n",
               json_array_size(files), show_bytes(size, bytes), g->dir,
               show_bytes(all, came_bytes));
    }
    return 0;
}

static int choose_dir(struct getter *g, const char *id, int64_t step, struct err *err)
{
    char safe[256];

    if (g->cli->args.words > 1) {
        (void)snprintf(g->dir, sizeof g->dir, "%s", g->cli->args.word[1]);
    } else {
        if (!is_plain_name(id)) {
            return FAIL(err, ERR_BAD_FILE, "'%s' can't name a folder; name one yourself", id);
        }
        (void)show_safe(safe, sizeof safe, id, strlen(id));
        (void)snprintf(g->dir, sizeof g->dir, "%s-step-%08lld", safe, (long long)step);
    }
    if (mkdir(g->dir, 0777) != 0 && errno != EEXIST) {
        return IO_FAIL(err, errno, "the folder %s can't be made: %s", g->dir, strerror(errno));
    }
    return 0;
}

/* The manifest's text, compared with the hash that the checkpoint is known by. */
static int fetch_manifest(struct getter *g, const char *sha256, struct http_reply *reply,
                          json_t **manifest, struct err *err)
{
    char address[600], hex[SHA256_TEXT];
    const struct http_request request = {.method = "GET", .path = address, .quiet_s = 60};

    (void)snprintf(address, sizeof address, "%s/manifest.json", g->address);
    TRY(http_send(g->cli->http, &request, reply, err));
    sha256_of(reply->body != NULL ? reply->body : "", reply->bytes, hex);
    if (strcmp(hex, sha256) != 0) {
        return FAIL(err, ERR_BAD_FILE,
                    "manifest.json came damaged: its SHA-256 is %s, the server names %s", hex,
                    sha256);
    }
    return json_parse_text(manifest, reply->body, reply->bytes, "manifest.json", err);
}

/* Everything of one checkpoint into the folder, the manifest last. */
static int get_checkpoint(struct getter *g, const char *id, const json_t *checkpoint,
                          struct err *err)
{
    const char *const sha256 = cli_text(checkpoint, "sha256");
    struct http_reply reply = {0};
    json_t *manifest = NULL;
    char path[IO_PATH_MAX];
    bool there = false;

    if (!sha256_is_text(sha256)) {
        return FAIL(err, ERR_BAD_FILE, "the server names no SHA-256 for this checkpoint of %s", id);
    }
    TRY(choose_dir(g, id, cli_integer(checkpoint, "step"), err));
    TRY(io_join(path, sizeof path, g->dir, "manifest.json", err));
    TRY(is_there(g, path, sha256, &there, err));
    int rc = fetch_manifest(g, sha256, &reply, &manifest, err);
    rc = rc != 0 ? rc : fetch_all(g, manifest, err);
    rc = rc != 0 || there ? rc : io_write_file(path, reply.body, reply.bytes, err);
    http_reply_fini(&reply);
    json_decref(manifest);
    return rc;
}

int verb_get(struct cli *c, struct err *err)
{
    struct getter g = {.cli = c, .force = args_has(&c->args, OPT(FORCE))};
    struct job_word word;
    char id[128], step[32], path[512];
    json_t *checkpoint = NULL;
    char *text = NULL;

    TRY(assign_job_word(&word, c->args.word[0], err));
    TRY(cli_connect(c, true, err));
    TRY(cli_job(c, word.job, id, err));
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%/checkpoints/%", id, word.step));
    TRY(http_call(c->http, "GET", path, NULL, &checkpoint, &text, err));
    /* From here on one step, even when `latest` moves on. */
    (void)snprintf(step, sizeof step, "%lld", (long long)cli_integer(checkpoint, "step"));
    int rc = assign_path(g.address, sizeof g.address, err, "/v1/jobs/%/checkpoints/%", id, step);
    rc = rc != 0 ? rc : get_checkpoint(&g, id, checkpoint, err);
    if (rc == 0 && args_has(&c->args, OPT(JSON))) {
        (void)puts(text);
    }
    json_decref(checkpoint);
    free(text);
    return rc;
}
