/* http.c - requests to one server: JSON calls, streamed uploads, downloads and event streams. */
#include "server/cli/http.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/cli/assign.h"

enum { LONGEST_BODY = 64 * 1024 * 1024, CONNECT_MS = 10000 };

struct http {
    CURL *curl;          /* owned */
    char *url;           /* owned */
    char *authorization; /* owned header line; NULL when there is no token */
    char why[CURL_ERROR_SIZE];
};

/* One request under way. */
struct transfer {
    struct http *http;
    const struct http_request *request;
    struct http_reply *reply;
    size_t room;
    bool is_open, stopped, too_large, out_of_memory;
};

int http_new(struct http **out, const char *url, const char *token, struct err *err)
{
    struct http *const h = calloc(1, sizeof *h);

    *out = NULL;
    if (h == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(h);
        return FAIL(err, ERR_NO_MEMORY, "the HTTP library can't start");
    }
    h->curl = curl_easy_init();
    h->url = strdup(url);
    if (token[0] != '\0' && asprintf(&h->authorization, "Authorization: Bearer %s", token) < 0) {
        h->authorization = NULL;
    }
    if (h->curl == NULL || h->url == NULL || (token[0] != '\0' && h->authorization == NULL)) {
        http_free(h);
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    *out = h;
    return 0;
}

void http_free(struct http *h)
{
    if (h == NULL) {
        return;
    }
    curl_easy_cleanup(h->curl);
    free(h->url);
    free(h->authorization);
    free(h);
}

void http_reply_fini(struct http_reply *r)
{
    free(r->body);
    r->body = NULL;
    r->bytes = 0;
}

static bool is_good(const struct http_reply *r)
{
    return r->status >= 200 && r->status < 300;
}

/* Status and `opened`, once, at the end of the headers (a stream may send its first byte much later). */
static bool open_answer(struct transfer *t)
{
    if (t->is_open) {
        return true;
    }
    t->is_open = true;
    (void)curl_easy_getinfo(t->http->curl, CURLINFO_RESPONSE_CODE, &t->reply->status);
    if (is_good(t->reply) && t->request->opened != NULL &&
        !t->request->opened(t->request->self, t->reply->status)) {
        t->stopped = true;
        return false;
    }
    return true;
}

static size_t take_header(char *line, size_t size, size_t count, void *self)
{
    struct transfer *const t = self;
    const size_t bytes = size * count;

    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0) {
        t->reply->etag[0] = '\0';
        t->reply->length = -1;
    } else if (bytes > 5 && strncasecmp(line, "ETag:", 5) == 0) {
        size_t from = 5, to = bytes;
        while (from < to && (line[from] == ' ' || line[from] == '\t')) {
            from++;
        }
        while (to > from && (unsigned char)line[to - 1] <= ' ') {
            to--;
        }
        (void)snprintf(t->reply->etag, sizeof t->reply->etag, "%.*s", (int)(to - from),
                       line + from);
    } else if (bytes > 15 && strncasecmp(line, "Content-Length:", 15) == 0) {
        t->reply->length = strtoll(line + 15, NULL, 10);
    } else if (bytes > 0 && (line[0] == '\r' || line[0] == '\n')) {
        long status = 0;
        (void)curl_easy_getinfo(t->http->curl, CURLINFO_RESPONSE_CODE, &status);
        return status >= 200 && !open_answer(t) ? 0 : bytes;
    }
    return bytes;
}

static bool keep_body(struct transfer *t, const char *bytes, size_t count)
{
    struct http_reply *const r = t->reply;

    if (r->bytes + count > LONGEST_BODY) {
        t->too_large = true;
        return false;
    }
    if (r->bytes + count + 1 > t->room) {
        const size_t room = (r->bytes + count + 1) * 2;
        char *const grown = realloc(r->body, room);
        if (grown == NULL) {
            t->out_of_memory = true;
            return false;
        }
        r->body = grown;
        t->room = room;
    }
    memcpy(r->body + r->bytes, bytes, count);
    r->bytes += count;
    r->body[r->bytes] = '\0';
    return true;
}

static size_t take_body(char *bytes, size_t size, size_t count, void *self)
{
    struct transfer *const t = self;
    const size_t all = size * count;

    if (t->request->sink == NULL || !is_good(t->reply)) {
        return keep_body(t, bytes, all) ? all : 0;
    }
    if (!t->request->sink(t->request->self, bytes, all)) {
        t->stopped = true;
        return 0;
    }
    return all;
}

static size_t give_body(char *out, size_t size, size_t count, void *self)
{
    struct transfer *const t = self;
    const size_t got = t->request->read(t->request->self, out, size * count);

    if (got == SIZE_MAX) {
        t->stopped = true;
        return CURL_READFUNC_ABORT;
    }
    return got;
}

static int on_progress(void *self, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                       curl_off_t up)
{
    struct transfer *const t = self;

    (void)down_all;
    (void)down;
    (void)up_all;
    if (t->request->tick != NULL && !t->request->tick(t->request->self, (int64_t)up)) {
        t->stopped = true;
        return 1;
    }
    return 0;
}

/* The sentence for a request that got no answer, or lost it. */
static int fail_transport(const struct transfer *t, CURLcode code, struct err *err)
{
    const char *const url = t->http->url;

    if (t->stopped) {
        return FAIL(err, ERR_INTERRUPTED, "the request was interrupted");
    }
    if (t->out_of_memory || code == CURLE_OUT_OF_MEMORY) {
        return FAIL(err, ERR_NO_MEMORY, "there is no memory left");
    }
    if (t->too_large) {
        return FAIL(err, ERR_TOO_LARGE, "the answer of %s is longer than %d MiB", url,
                    LONGEST_BODY >> 20);
    }
    if (code == CURLE_COULDNT_CONNECT) {
        return FAIL(err, ERR_IO,
                    "no server answers at %s; start one there with `honed`, or name another with "
                    "`hone login URL` or HONE_URL",
                    url);
    }
    if (code == CURLE_COULDNT_RESOLVE_HOST) {
        return FAIL(err, ERR_IO, "the host of %s is not known", url);
    }
    if (code == CURLE_OPERATION_TIMEDOUT) {
        return FAIL(err, ERR_TIMED_OUT, "%s does not answer in time", url);
    }
    return FAIL(err, ERR_IO, "the connection to %s failed: %s", url,
                t->http->why[0] != '\0' ? t->http->why : curl_easy_strerror(code));
}

/* A code for a status that came without a word of ours: the first row of err.def with it. */
static enum err_code code_of_status(long status)
{
    for (int i = 1; i < ERR_COUNT; i++) {
        if (err_http((enum err_code)i) == status) {
            return (enum err_code)i;
        }
    }
    return status >= 400 && status < 500 ? ERR_BAD_REQUEST : ERR_INTERNAL;
}

/* The server's sentence, or one of ours when it sent none. */
static int fail_answer(const struct http *h, const struct http_reply *r, struct err *err)
{
    json_t *const json =
        r->body != NULL ? json_loadb(r->body, r->bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *const error = json_object_get(json, "error");
    const char *const message = json_string_value(json_object_get(error, "message"));
    const char *const word = json_string_value(json_object_get(error, "code"));
    const char *const param = json_string_value(json_object_get(error, "param"));
    enum err_code code = code_of_status(r->status);

    for (int i = 1; word != NULL && i < ERR_COUNT; i++) {
        code = strcmp(err_word((enum err_code)i), word) == 0 ? (enum err_code)i : code;
    }
    if (message != NULL) {
        err_set(err, code, "%s", message);
        err_about(err, param != NULL ? param : "");
    } else {
        err_set(err, code, "%s answered with status %ld (%s)", h->url, r->status,
                json == NULL ? "is that a Hone server?" : err_title(code));
    }
    json_decref(json);
    return (int)code;
}

static bool add_header(struct curl_slist **list, const char *line)
{
    struct curl_slist *const longer = line != NULL ? curl_slist_append(*list, line) : *list;

    if (line != NULL && longer == NULL) {
        return false;
    }
    *list = longer;
    return true;
}

bool http_is_loopback(const char *url)
{
    const char *const host = strstr(url, "://") + 3;
    const size_t length = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/");

    return (length == 9 && strncmp(host, "localhost", 9) == 0) || strncmp(host, "127.", 4) == 0 ||
           (length == 5 && strncmp(host, "[::1]", 5) == 0);
}

static void set_options(struct transfer *t, const char *url, struct curl_slist *headers,
                        const char *body)
{
    CURL *const curl = t->http->curl;
    const struct http_request *const q = t->request;

    curl_easy_reset(curl);
    t->http->why[0] = '\0';
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "hone");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, t->http->why);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    if (http_is_loopback(t->http->url)) {
        (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    }
    if (q->quiet_s > 0) {
        (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)q->quiet_s);
    }
    if (q->read != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_READFUNCTION, give_body);
        (void)curl_easy_setopt(curl, CURLOPT_READDATA, t);
        (void)curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->bytes);
    } else if (body != NULL || strcmp(q->method, "POST") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body != NULL ? body : "");
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE,
                               (curl_off_t)(body != NULL ? strlen(body) : 0));
    }
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, q->method);
}

int http_send(struct http *h, const struct http_request *request, struct http_reply *out,
              struct err *err)
{
    struct transfer t = {.http = h, .request = request, .reply = out};
    struct curl_slist *headers = NULL;
    char *url = NULL, *body = NULL;
    int rc = 0;

    *out = (struct http_reply){.length = -1};
    if (request->json != NULL) {
        body = assign_dump(request->json);
    }
    /* "Name:" without a value takes a header away: libcurl's form type does not belong to an empty POST. */
    const char *const type = body != NULL            ? "Content-Type: application/json"
                             : request->read != NULL ? "Content-Type: application/octet-stream"
                                                     : "Content-Type:";
    if ((request->json != NULL && body == NULL) ||
        asprintf(&url, "%s%s", h->url, request->path) < 0 || !add_header(&headers, type) ||
        !add_header(&headers, h->authorization) || !add_header(&headers, request->header) ||
        !add_header(&headers, request->header2)) {
        rc = FAIL(err, ERR_NO_MEMORY, "there is no memory left");
        goto out;
    }
    set_options(&t, url, headers, body);
    const CURLcode code = curl_easy_perform(h->curl);
    (void)curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &out->status);
    /* A server that refuses an upload answers and closes; the answer counts, not the broken pipe. */
    if (out->status >= 300 && !t.stopped) {
        rc = fail_answer(h, out, err);
    } else if (code != CURLE_OK) {
        rc = fail_transport(&t, code, err);
    }
out:
    curl_slist_free_all(headers);
    free(url);
    free(body);
    return rc;
}

bool http_may_retry(const struct http_reply *r, int rc)
{
    return r->status == 0 ? rc == ERR_IO || rc == ERR_TIMED_OUT : r->status < 300 && rc == ERR_IO;
}

int http_call(struct http *h, const char *method, const char *path, json_t *body, json_t **json,
              char **text, struct err *err)
{
    const struct http_request request = {
        .method = method, .path = path, .json = body, .quiet_s = 120};
    struct http_reply reply;
    json_error_t why;
    int rc = http_send(h, &request, &reply, err);

    *json = NULL;
    if (rc == 0) {
        *json = reply.body != NULL ? json_loadb(reply.body, reply.bytes, 0, &why) : NULL;
        if (!json_is_object(*json)) {
            json_decref(*json);
            *json = NULL;
            rc = FAIL(err, ERR_IO,
                      "%s answered with something else than JSON; is that a Hone server?", h->url);
        }
    }
    if (rc == 0 && text != NULL) {
        *text = reply.body;
        reply.body = NULL;
    }
    http_reply_fini(&reply);
    return rc;
}
