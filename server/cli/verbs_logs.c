/* verbs_logs.c - hone logs: the text that a job's processes printed, whole or as it grows. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/cli/cli.h"
#include "server/cli/show.h"

/* The log's text may be cut anywhere by the network: what may be the start of a longer character
 * waits for the rest. */
struct printer {
    char kept[4];
    size_t count;
    int64_t bytes; /* received so far */
};

/* How many bytes at the end may belong to a character that goes on. */
static size_t unfinished(const char *bytes, size_t count)
{
    for (size_t back = 1; back <= 3 && back <= count; back++) {
        const unsigned char c = (unsigned char)bytes[count - back];
        if (c >= 0xC0U) {
            const size_t length = c >= 0xF0U ? 4 : c >= 0xE0U ? 3 : 2;
            return length > back ? back : 0;
        }
        if (c < 0x80U) {
            return 0;
        }
    }
    return 0;
}

static bool print_some(void *self, const char *bytes, size_t count)
{
    struct printer *const p = self;
    char joined[8];

    p->bytes += (int64_t)count;
    /* A few bytes complete what was kept; the rest is printed in place. */
    while (p->count > 0 && count > 0) {
        memcpy(joined, p->kept, p->count);
        joined[p->count++] = *bytes++;
        count--;
        const size_t open = unfinished(joined, p->count);
        if (open < p->count || p->count >= sizeof p->kept) {
            show_print(joined, p->count, true);
            p->count = 0;
        } else {
            memcpy(p->kept, joined, p->count);
        }
    }
    const size_t open = unfinished(bytes, count);
    show_print(bytes, count - open, true);
    memcpy(p->kept, bytes + count - open, open);
    p->count += open;
    return fflush(stdout) == 0;
}

static int is_final(struct cli *c, const char *id, bool *final, struct err *err)
{
    static const char *const ends[] = {"succeeded", "failed", "cancelled", "paused"};
    char path[512];
    json_t *job = NULL;

    *final = false;
    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%", id));
    TRY(http_call(c->http, "GET", path, NULL, &job, NULL, err));
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        *final = *final || strcmp(cli_text(job, "state"), ends[i]) == 0;
    }
    json_decref(job);
    return 0;
}

/* Print what the log has beyond what was printed. */
static int print_rest(struct cli *c, const char *id, struct printer *printer, struct err *err)
{
    char path[512], range[64];
    struct http_request request = {
        .method = "GET", .path = path, .sink = print_some, .self = printer, .quiet_s = 60};
    struct http_reply reply;

    TRY(assign_path(path, sizeof path, err, "/v1/jobs/%/log", id));
    (void)snprintf(range, sizeof range, "Range: bytes=%lld-", (long long)printer->bytes);
    request.header = printer->bytes > 0 ? range : NULL;
    const int rc = http_send(c->http, &request, &reply, err);
    http_reply_fini(&reply);
    /* Nothing new: the range begins where the file ends. */
    return rc == ERR_BAD_RANGE ? 0 : rc;
}

int verb_logs(struct cli *c, struct err *err)
{
    const struct timespec wait = {.tv_nsec = 500000000L};
    struct printer printer = {0};
    char id[128];
    bool is_over = true;

    TRY(cli_connect(c, true, err));
    TRY(cli_job(c, c->args.word[0], id, err));
    do {
        /* The state is read before the text, so that the text of an ended job is all of it. */
        int rc = args_has(&c->args, OPT(FOLLOW)) ? is_final(c, id, &is_over, err) : 0;

        rc = rc != 0 ? rc : print_rest(c, id, &printer, err);
        TRY(rc);
    } while (!is_over && nanosleep(&wait, NULL) == 0);
    show_print(printer.kept, printer.count, true);
    return 0;
}
