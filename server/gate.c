/* gate.c - the strict look at a request's head. Cases: tests/test_gate.c. */
#include "server/gate.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/text.h"

static const char *const methods[METHOD_COUNT] = {
    [METHOD_GET] = "GET", [METHOD_HEAD] = "HEAD",   [METHOD_POST] = "POST",
    [METHOD_PUT] = "PUT", [METHOD_PATCH] = "PATCH", [METHOD_DELETE] = "DELETE",
};

const char *method_word(enum method m)
{
    return methods[m];
}

static bool is_token(const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const char c = s[i];
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (c == '\0' || (!letter && strchr("!#$%&'*+-.^_`|~", c) == NULL)) {
            return false;
        }
    }
    return size > 0;
}

static bool is_clean_value(const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool is_named(const struct gate_header *h, const char *name)
{
    return strlen(name) == h->name_size && strncasecmp(h->name, name, h->name_size) == 0;
}

/* Count the headers of a name; *value is the first one's. */
static int count_headers(const struct gate_head *in, const char *name, const char **value)
{
    int n = 0;

    *value = NULL;
    for (int i = 0; i < in->header_count; i++) {
        if (is_named(&in->headers[i], name)) {
            *value = n++ == 0 ? in->headers[i].value : *value;
        }
    }
    return n;
}

const char *gate_header(const struct gate_header *headers, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (is_named(&headers[i], name)) {
            return headers[i].value;
        }
    }
    return NULL;
}

const char *gate_query(const struct gate_request *r, const char *key)
{
    for (int i = 0; i < r->query_count; i++) {
        if (strcmp(r->query_keys[i], key) == 0) {
            return r->query_values[i];
        }
    }
    return NULL;
}

static int check_line(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    int m = 0;

    if (strcmp(in->version, "HTTP/1.1") != 0 && strcmp(in->version, "HTTP/1.0") != 0) {
        return FAIL(err, ERR_BAD_VERSION, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    }
    while (m < METHOD_COUNT && strcmp(methods[m], in->method) != 0) {
        m++;
    }
    if (m == METHOD_COUNT) {
        if (strcmp(in->method, "OPTIONS") == 0) {
            return FAIL(err, ERR_NO_METHOD, "%s is not used by this interface", in->method);
        }
        return FAIL(err, ERR_NEW_METHOD, "the method is not one of GET HEAD POST PUT PATCH DELETE");
    }
    out->method = (enum method)m;
    return 0;
}

static int check_characters(const struct gate_head *in, struct err *err)
{
    if (in->too_many_headers || in->header_count > GATE_HEADERS) {
        return FAIL(err, ERR_BAD_REQUEST, "more than %d headers", GATE_HEADERS);
    }
    for (int i = 0; i < in->header_count; i++) {
        const struct gate_header *h = &in->headers[i];
        if (!is_token(h->name, h->name_size)) {
            return FAIL(err, ERR_BAD_REQUEST, "header %d has a name with forbidden characters",
                        i + 1);
        }
        if (!is_clean_value(h->value, h->value_size)) {
            return FAIL(err, ERR_BAD_REQUEST, "the header %.*s has a control character",
                        (int)(h->name_size < 64 ? h->name_size : 64), h->name);
        }
    }
    return 0;
}

/* A name of the list, then nothing or ":" and 1 to 5 digits. */
static bool is_our_host(const char *value, const char *const *hosts)
{
    const char *colon = strrchr(value, ':');
    const char *bracket = strrchr(value, ']');
    size_t size = strlen(value);

    if (colon != NULL && (bracket == NULL || colon > bracket)) {
        const size_t digits = strspn(colon + 1, "0123456789");
        if (digits < 1 || digits > 5 || colon[1 + digits] != '\0') {
            return false;
        }
        size = (size_t)(colon - value);
    }
    for (; *hosts != NULL; hosts++) {
        if (strlen(*hosts) == size && strncasecmp(*hosts, value, size) == 0) {
            return true;
        }
    }
    return false;
}

/* One Host, ours. An absolute target must say the same; *path is what follows the authority. */
static int check_host(const struct gate_head *in, const char *const *hosts, const char **path,
                      struct err *err)
{
    const char *host = NULL;

    if (count_headers(in, "Host", &host) != 1) {
        return FAIL(err, ERR_BAD_REQUEST, "a request has exactly one Host header");
    }
    if (!is_our_host(host, hosts)) {
        return FAIL(err, ERR_WRONG_HOST,
                    "this server is not called \"%.100s\"; an admin can add the name with "
                    "--allowed-host",
                    host);
    }
    *path = in->target;
    if (strncasecmp(*path, "http://", 7) == 0 || strncasecmp(*path, "https://", 8) == 0) {
        *path = strstr(*path, "//") + 2;
        const size_t size = strcspn(*path, "/?");
        if (size != strlen(host) || strncasecmp(*path, host, size) != 0) {
            return FAIL(err, ERR_BAD_REQUEST, "the address names another server than Host");
        }
        *path += size;
    }
    if (**path != '/') {
        return FAIL(err, ERR_BAD_REQUEST, "the address must begin with \"/\"");
    }
    return 0;
}

static int check_length(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    const char *length = NULL, *coding = NULL, *encoding = NULL, *expect = NULL;
    const int lengths = count_headers(in, "Content-Length", &length);
    const int codings = count_headers(in, "Transfer-Encoding", &coding);

    out->length = -1;
    if (lengths > 1 || codings > 1 || (lengths == 1 && codings == 1)) {
        return FAIL(err, ERR_BAD_REQUEST, "the length of the body is told more than once");
    }
    if (codings == 1 &&
        (strcasecmp(coding, "chunked") != 0 || strcmp(in->version, "HTTP/1.1") != 0)) {
        return FAIL(err, ERR_BAD_REQUEST, "the only Transfer-Encoding is \"chunked\"");
    }
    if (lengths == 1) {
        const size_t digits = strspn(length, "0123456789");
        if (digits < 1 || digits > 18 || length[digits] != '\0') {
            return FAIL(err, ERR_BAD_REQUEST, "Content-Length is not a number of bytes");
        }
        out->length = strtoll(length, NULL, 10);
    }
    out->has_body = codings == 1 || out->length > 0;
    if (out->has_body && count_headers(in, "Content-Encoding", &encoding) > 0 &&
        strcasecmp(encoding, "identity") != 0) {
        return FAIL(err, ERR_WRONG_TYPE, "send the body as it is, without Content-Encoding");
    }
    if (count_headers(in, "Expect", &expect) > 0 && strcasecmp(expect, "100-continue") != 0) {
        return FAIL(err, ERR_BAD_EXPECT, "the only expectation is \"100-continue\"");
    }
    return 0;
}

static int read_content_type(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    const char *type = NULL;

    if (count_headers(in, "Content-Type", &type) > 1) {
        return FAIL(err, ERR_BAD_REQUEST, "there are two Content-Type headers");
    }
    if (type == NULL) {
        out->content = CONTENT_NONE;
        return 0;
    }
    size_t size = strcspn(type, ";");
    while (size > 0 && (type[size - 1] == ' ' || type[size - 1] == '\t')) {
        size--;
    }
    const bool plus = size > 5 && strncasecmp(type + size - 5, "+json", 5) == 0;
    if (plus || (size == 16 && strncasecmp(type, "application/json", size) == 0)) {
        out->content = CONTENT_JSON;
    } else if (size == 19 && strncasecmp(type, "multipart/form-data", size) == 0) {
        out->content = CONTENT_FORM;
    } else {
        out->content = CONTENT_OTHER;
    }
    return 0;
}

/* The session cookie out of one Cookie header. */
static int read_cookie_header(struct gate_request *out, const char *header, int *found,
                              struct err *err)
{
    static const char name[] = "hone_session=";

    for (const char *p = header + strspn(header, "; \t"); *p != '\0'; p += strspn(p, "; \t")) {
        const size_t size = strcspn(p, ";");
        const size_t length = size < sizeof name ? 0 : size - (sizeof name - 1);
        if (size >= sizeof name - 1 && strncmp(p, name, sizeof name - 1) == 0) {
            if (++*found > 1) {
                return FAIL(err, ERR_BAD_REQUEST, "the session cookie is there twice");
            }
            if (length < sizeof out->session) { /* a longer one is no session of ours */
                memcpy(out->session, p + sizeof name - 1, length);
                out->session[length] = '\0';
            }
        }
        p += size;
    }
    return 0;
}

static int read_cookies(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    int found = 0;

    for (int i = 0; i < in->header_count; i++) {
        if (is_named(&in->headers[i], "Cookie")) {
            TRY(read_cookie_header(out, in->headers[i].value, &found, err));
        }
    }
    return 0;
}

static int read_credentials(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    const char *value = NULL;
    const int n = count_headers(in, "Authorization", &value);

    if (n > 1) {
        return FAIL(err, ERR_BAD_REQUEST, "there are two Authorization headers");
    }
    out->has_authorization = n == 1;
    if (n == 1 && strncasecmp(value, "Bearer ", 7) == 0) {
        value += 7 + strspn(value + 7, " ");
        const size_t size = strlen(value);
        if (size < sizeof out->token) { /* a longer one is no token of ours */
            memcpy(out->token, value, size + 1);
        }
    }
    return read_cookies(out, in, err);
}

/* Origin must be our own; so must what Sec-Fetch-Site says. Node's fetch sends neither. */
static int read_origin(struct gate_request *out, const struct gate_head *in, struct err *err)
{
    const char *origin = NULL, *site = NULL, *host = NULL;

    (void)count_headers(in, "Host", &host);
    if (count_headers(in, "Origin", &origin) > 1) {
        return FAIL(err, ERR_BAD_REQUEST, "there are two Origin headers");
    }
    if (origin != NULL) {
        const char *name = strncmp(origin, "http://", 7) == 0    ? origin + 7
                           : strncmp(origin, "https://", 8) == 0 ? origin + 8
                                                                 : "";
        out->foreign = strcasecmp(name, host) != 0;
    }
    if (count_headers(in, "Sec-Fetch-Site", &site) > 0 && strcmp(site, "same-origin") != 0 &&
        strcmp(site, "none") != 0) {
        out->foreign = true;
    }
    return 0;
}

/* Decode a piece of the target that ends at `end` in place; *next is behind its NUL. */
static int decode_piece(char *piece, const char *end, bool plus_is_space, struct err *err)
{
    char *out = piece;

    for (const char *p = piece; p < end; p++) {
        int c = (unsigned char)*p;
        if (c == '%') {
            c = end - p > 2 ? text_hex_byte(p + 1) : -1;
            p += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c < 0x20 || c == 0x7f) {
            return FAIL(err, ERR_BAD_REQUEST, "the address has a %%-escape that is not allowed");
        }
        *out++ = (char)c;
    }
    *out = '\0';
    if (!text_is_plain(piece)) {
        return FAIL(err, ERR_BAD_REQUEST, "the address is not plain UTF-8");
    }
    return 0;
}

static int split_path(struct gate_request *out, char *path, struct err *err)
{
    if (strcmp(path, "/") == 0) {
        return 0;
    }
    for (char *p = path; p != NULL;) {
        char *segment = p + 1;
        char *end = segment + strcspn(segment, "/");
        p = *end == '/' ? end : NULL;
        if (out->segment_count == GATE_SEGMENTS) {
            return FAIL(err, ERR_NOT_FOUND, "there is no such address");
        }
        TRY(decode_piece(segment, end, false, err));
        if (strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0 ||
            strpbrk(segment, "/\\") != NULL) {
            return FAIL(err, ERR_BAD_REQUEST,
                        "the address has a part that is \".\" or \"..\" or holds a slash");
        }
        out->segments[out->segment_count++] = segment;
    }
    return 0;
}

/* "key=value" that ends at `end`. */
static int add_query(struct gate_request *out, char *key, char *end, struct err *err)
{
    char *equals = memchr(key, '=', (size_t)(end - key));
    char *value = equals == NULL ? end : equals + 1;

    if (out->query_count == GATE_QUERIES) {
        return FAIL(err, ERR_BAD_REQUEST, "more than %d query parameters", GATE_QUERIES);
    }
    TRY(decode_piece(value, end, true, err));
    TRY(decode_piece(key, equals == NULL ? end : equals, true, err));
    if (gate_query(out, key) != NULL) {
        return FAIL_PARAM(err, ERR_BAD_REQUEST, key, "the query has \"%.40s\" twice", key);
    }
    out->query_keys[out->query_count] = key;
    out->query_values[out->query_count++] = value;
    return 0;
}

static int split_query(struct gate_request *out, char *query, struct err *err)
{
    for (char *p = query; p != NULL && *p != '\0';) {
        char *end = p + strcspn(p, "&");
        char *next = *end == '&' ? end + 1 : NULL;
        TRY(add_query(out, p, end, err));
        p = next;
    }
    return 0;
}

static int split_target(struct gate_request *out, const char *target, struct err *err)
{
    for (const char *p = target; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c < 0x21 || c > 0x7e || c == '#' || c == '\\') {
            return FAIL(err, ERR_BAD_REQUEST, "the address has a character that must be escaped");
        }
    }
    out->text = strdup(target);
    if (out->text == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a request");
    }
    char *query = strchr(out->text, '?');
    if (query != NULL) {
        *query++ = '\0';
    }
    TRY(split_path(out, out->text, err));
    return split_query(out, query, err);
}

int gate_check(struct gate_request *out, const struct gate_head *in, const char *const *hosts,
               struct err *err)
{
    const char *path = NULL;

    memset(out, 0, sizeof *out);
    TRY(check_line(out, in, err));
    TRY(check_characters(in, err));
    TRY(check_host(in, hosts, &path, err));
    TRY(check_length(out, in, err));
    TRY(read_content_type(out, in, err));
    TRY(read_credentials(out, in, err));
    TRY(read_origin(out, in, err));
    const int rc = split_target(out, path, err);
    if (rc != 0) {
        gate_free(out);
    }
    return rc;
}

void gate_free(struct gate_request *r)
{
    free(r->text);
    r->text = NULL;
}
