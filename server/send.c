/* send.c - replies and the headers that all of them have. */
#include "server/send.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/stream.h"
#include "server/talk.h"

enum { FILE_BLOCK = 64 << 10, STREAM_BLOCK = 16 << 10 };

static const char *const always[][2] = {
    {"Content-Security-Policy",
     "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
     "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
     "form-action 'self'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

char *error_text(const struct err *err)
{
    const int status = err_http(err->code);
    const char *type = status >= 500   ? "server_error"
                       : status == 401 ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 429 ? "rate_limit_error"
                                       : "invalid_request_error";
    json_t *body = json_pack(
        "{s:{s:s, s:s, s:o, s:s}}", "error", "message", err->text, "type", type, "param",
        err->param[0] == '\0' ? json_null() : json_string(err->param), "code", err_word(err->code));
    /* a message that holds a user's bytes may not be UTF-8; then the title must do */
    if (body == NULL) {
        body = json_pack("{s:{s:s, s:s, s:n, s:s}}", "error", "message", err_title(err->code),
                         "type", type, "param", "code", err_word(err->code));
    }
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

/* A file through a callback: GnuTLS sends what it gets at once in one record, fd responses 4 KiB. */
struct file_source {
    int fd;
    int64_t offset;
};

static ssize_t read_file(void *cls, uint64_t position, char *out, size_t size)
{
    const struct file_source *f = cls;
    const ssize_t n = pread(f->fd, out, size, f->offset + (int64_t)position);

    return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void close_file(void *cls)
{
    struct file_source *f = cls;

    (void)close(f->fd);
    free(f);
}

static struct MHD_Response *make_file_response(struct reply *rp, bool tls)
{
    struct MHD_Response *r = NULL;

    if (!tls) {
        r = MHD_create_response_from_fd_at_offset64((uint64_t)rp->file_size, rp->fd,
                                                    (uint64_t)rp->file_offset);
    } else {
        struct file_source *f = malloc(sizeof *f);
        if (f != NULL) {
            *f = (struct file_source){rp->fd, rp->file_offset};
            r = MHD_create_response_from_callback((uint64_t)rp->file_size, FILE_BLOCK, read_file, f,
                                                  close_file);
            if (r == NULL) {
                free(f);
            }
        }
    }
    rp->fd = r == NULL ? rp->fd : -1;
    return r;
}

static struct MHD_Response *make_text_response(struct reply *rp)
{
    const bool borrowed = rp->text_is_borrowed || rp->text == NULL;
    struct MHD_Response *r = MHD_create_response_from_buffer(
        rp->text_size, rp->text, borrowed ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_FREE);

    rp->text = r == NULL ? rp->text : NULL;
    return r;
}

static struct MHD_Response *make_response(struct reply *rp, bool tls)
{
    if (rp->stream != NULL) {
        struct MHD_Response *r = MHD_create_response_from_callback(
            MHD_SIZE_UNKNOWN, STREAM_BLOCK, stream_read, rp->stream, stream_end);
        rp->stream = r == NULL ? rp->stream : NULL;
        return r;
    }
    if (rp->talk != NULL) {
        struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK,
                                                                   talk_read, rp->talk, talk_end);
        rp->talk = r == NULL ? rp->talk : NULL;
        return r;
    }
    return rp->fd >= 0 ? make_file_response(rp, tls) : make_text_response(rp);
}

/* JSON becomes text, an error becomes JSON. */
static void settle_text(struct reply *rp, const struct err *err)
{
    if (err != NULL) {
        reply_fini(rp);
        rp->status = err_http(err->code);
        rp->text = error_text(err);
        if (rp->status == 409 || rp->status >= 500 || rp->status == 413) {
            reply_add(rp, "x-should-retry", "%s", err->code == ERR_BUSY ? "true" : "false");
        }
    } else if (rp->body != NULL) {
        rp->text = json_dumps(rp->body, JSON_COMPACT | JSON_REAL_PRECISION(15));
    } else {
        return;
    }
    rp->text_size = rp->text == NULL ? 0 : strlen(rp->text);
    reply_add(rp, "Content-Type", "application/json");
}

/* A header of the library refuses what it can't send; such a header is left out. */
static void add_headers(struct MHD_Response *r, const struct reply *rp, const char *id, bool close)
{
    bool has_cache = false;

    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++) {
        (void)MHD_add_response_header(r, always[i][0], always[i][1]);
    }
    for (int i = 0; i < rp->header_count; i++) {
        has_cache = has_cache || strcmp(rp->headers[i].name, "Cache-Control") == 0;
        (void)MHD_add_response_header(r, rp->headers[i].name, rp->headers[i].value);
    }
    if (!has_cache) {
        (void)MHD_add_response_header(r, "Cache-Control", "no-store");
    }
    (void)MHD_add_response_header(r, "x-request-id", id);
    if (close) {
        (void)MHD_add_response_header(r, "Connection", "close");
    }
}

void reply_fini(struct reply *rp)
{
    json_decref(rp->body);
    if (!rp->text_is_borrowed) {
        free(rp->text);
    }
    if (rp->fd >= 0) {
        (void)close(rp->fd);
    }
    if (rp->stream != NULL) {
        stream_end(rp->stream);
    }
    if (rp->talk != NULL) {
        talk_end(rp->talk);
    }
    rp->talk = NULL;
    rp->body = NULL;
    rp->text = NULL;
    rp->text_size = 0;
    rp->text_is_borrowed = false;
    rp->fd = -1;
    rp->stream = NULL;
}

int send_reply(struct MHD_Connection *c, struct reply *rp, const struct err *err, const char *id,
               bool tls, bool close)
{
    settle_text(rp, err);
    const int status = rp->status;
    struct MHD_Response *r = make_response(rp, tls);
    enum MHD_Result sent = MHD_NO;
    if (r != NULL) {
        add_headers(r, rp, id, close);
        sent = MHD_queue_response(c, (unsigned)status, r);
        MHD_destroy_response(r);
    }
    reply_fini(rp);
    return sent == MHD_YES ? status : 0;
}
