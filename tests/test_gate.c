/* test_gate.c - every row of the table of what libmicrohttpd lets through, and what must pass. */
#include "server/gate.h"

#include <string.h>

#include "tests/tap.h"

static const char *const hosts[] = {"localhost", "127.0.0.1", "[::1]", "lab.example", NULL};

enum { MANY = GATE_HEADERS + 6 };

/* A request's head: method, target, version, then "Name: value" lines. */
struct sample {
    const char *method, *target, *version;
    const char *lines[8];
    enum err_code want;
};

/* Run the gate on a sample. */
static int check(struct gate_request *out, const struct sample *s, struct err *err)
{
    struct gate_header headers[8];
    int n = 0;

    for (; n < 8 && s->lines[n] != NULL; n++) {
        const char *colon = strchr(s->lines[n], ':');
        headers[n] = (struct gate_header){.name = s->lines[n],
                                          .name_size = (size_t)(colon - s->lines[n]),
                                          .value = colon + 2,
                                          .value_size = strlen(colon + 2)};
    }
    const struct gate_head head = {.method = s->method,
                                   .target = s->target,
                                   .version = s->version,
                                   .headers = headers,
                                   .header_count = n};
    return gate_check(out, &head, hosts, err);
}

#define HOST "Host: 127.0.0.1:8642"

static void run_table(const struct sample *table, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct gate_request rq;
        struct err err = {0};
        const int rc = check(&rq, &table[i], &err);
        if (rc != (int)table[i].want) {
            printf("# row %zu (%s %s): %d %s\n", i, table[i].method, table[i].target, rc, err.text);
        }
        EXPECT(rc == (int)table[i].want);
        EXPECT(rc == 0 || (err.code == table[i].want && err.text[0] != '\0'));
        if (rc == 0) {
            gate_free(&rq);
        }
    }
}

static void refuses_targets_that_others_read_differently(void)
{
    static const struct sample table[] = {
        {"GET", "/a%2fb", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a%5cb", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a%00b/x", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/..", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/v1/../etc", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%2e%2e/etc", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%2E/x", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/..%5c", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a\\b", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%zz", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%4", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a b", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a#b", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/\xc3\xa4", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a\x7f", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%ff", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%c0%af", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%ed%a0%80", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/a%0d%0ab", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/%e2%80%aeevil", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "*", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "http://evil/a", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "http://127.0.0.1:86421/a", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "http://127.0.0.1:8642", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/?a=1&a=2", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/?a=%00", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/?a=%g0", "HTTP/1.1", {HOST}, ERR_BAD_REQUEST},
        {"GET", "/1/2/3/4/5/6/7/8/9", "HTTP/1.1", {HOST}, ERR_NOT_FOUND},
    };

    run_table(table, sizeof table / sizeof table[0]);
}

static void refuses_hosts_that_are_not_ours(void)
{
    static const struct sample table[] = {
        {"GET", "/", "HTTP/1.1", {NULL}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.0", {NULL}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, HOST}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {"Host: evil.example"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: 127.0.0.1.evil.example"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: localhost:1@evil"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: localhost:"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: localhost:123456"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: "}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: [::1"}, ERR_WRONG_HOST},
        {"GET", "/", "HTTP/1.1", {"Host: localhost"}, ERR_NONE},
        {"GET", "/", "HTTP/1.1", {"Host: LOCALHOST:80"}, ERR_NONE},
        {"GET", "/", "HTTP/1.1", {"Host: [::1]:8642"}, ERR_NONE},
        {"GET", "/", "HTTP/1.1", {"Host: [::1]"}, ERR_NONE},
        {"GET", "/", "HTTP/1.1", {"Host: lab.example"}, ERR_NONE},
        {"GET", "http://127.0.0.1:8642/a", "HTTP/1.1", {HOST}, ERR_NONE},
    };

    run_table(table, sizeof table / sizeof table[0]);
}

static void refuses_bodies_of_doubtful_length(void)
{
    static const struct sample table[] = {
        {"POST",
         "/",
         "HTTP/1.1",
         {HOST, "Content-Length: 3", "Content-Length: 3"},
         ERR_BAD_REQUEST},
        {"POST",
         "/",
         "HTTP/1.1",
         {HOST, "Content-Length: 3", "content-length: 9"},
         ERR_BAD_REQUEST},
        {"POST",
         "/",
         "HTTP/1.1",
         {HOST, "Content-Length: 3", "Transfer-Encoding: chunked"},
         ERR_BAD_REQUEST},
        {"POST",
         "/",
         "HTTP/1.1",
         {HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"},
         ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Transfer-Encoding: gzip"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Transfer-Encoding: xchunked"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Transfer-Encoding: gzip, chunked"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.0", {HOST, "Transfer-Encoding: chunked"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: -1"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: +3"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: 0x3"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: 3, 3"}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: "}, ERR_BAD_REQUEST},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: 18446744073709551615"}, ERR_BAD_REQUEST},
        {"POST",
         "/",
         "HTTP/1.1",
         {HOST, "Content-Length: 3", "Content-Encoding: gzip"},
         ERR_WRONG_TYPE},
        {"POST", "/", "HTTP/1.1", {HOST, "Expect: foo"}, ERR_BAD_EXPECT},
        {"POST", "/", "HTTP/1.1", {HOST, "Expect: 100-Continue"}, ERR_NONE},
        {"POST", "/", "HTTP/1.1", {HOST, "Transfer-Encoding: Chunked"}, ERR_NONE},
        {"POST", "/", "HTTP/1.1", {HOST, "Content-Length: 999999999999999999"}, ERR_NONE},
    };

    run_table(table, sizeof table / sizeof table[0]);
}

static void refuses_methods_versions_and_headers_out_of_the_ordinary(void)
{
    static const struct sample table[] = {
        {"get", "/", "HTTP/1.1", {HOST}, ERR_NEW_METHOD},
        {"BREW", "/", "HTTP/1.1", {HOST}, ERR_NEW_METHOD},
        {"G\x01T", "/", "HTTP/1.1", {HOST}, ERR_NEW_METHOD},
        {"TRACE", "/", "HTTP/1.1", {HOST}, ERR_NEW_METHOD},
        {"CONNECT", "/", "HTTP/1.1", {HOST}, ERR_NEW_METHOD},
        {"OPTIONS", "/", "HTTP/1.1", {HOST}, ERR_NO_METHOD},
        {"GET", "/", "HTTP/1.2", {HOST}, ERR_BAD_VERSION},
        {"GET", "/", "HTTP/2.0", {HOST}, ERR_BAD_VERSION},
        {"GET", "/", "HTTP/0.9", {HOST}, ERR_BAD_VERSION},
        {"GET", "/", "HTTP/1.1", {HOST, "Transfer-Encoding : chunked"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {" Host: x"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, ": empty"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, "X-A: one\rtwo"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, "X-A: \x1b[31m"}, ERR_BAD_REQUEST},
        {"GET",
         "/",
         "HTTP/1.1",
         {HOST, "Authorization: Bearer a", "Authorization: Bearer b"},
         ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, "Cookie: hone_session=a; hone_session=b"}, ERR_BAD_REQUEST},
        {"GET",
         "/",
         "HTTP/1.1",
         {HOST, "Cookie: hone_session=a", "Cookie: hone_session=a"},
         ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, "Origin: http://a", "Origin: http://b"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.1", {HOST, "Content-Type: a/b", "Content-Type: a/b"}, ERR_BAD_REQUEST},
        {"GET", "/", "HTTP/1.0", {HOST, "X-A: tab\there \xc3\xa4"}, ERR_NONE},
    };

    run_table(table, sizeof table / sizeof table[0]);
}

static void sees_a_nul_inside_a_value(void)
{
    const struct gate_header headers[] = {{"Host", "localhost", 4, 9}, {"X-A", "a\0b", 3, 3}};
    const struct gate_head head = {.method = "GET",
                                   .target = "/",
                                   .version = "HTTP/1.1",
                                   .headers = headers,
                                   .header_count = 2};
    struct gate_request rq;
    struct err err = {0};

    EXPECT(gate_check(&rq, &head, hosts, &err) == ERR_BAD_REQUEST);
}

static void refuses_more_headers_than_it_holds(void)
{
    struct gate_header headers[MANY];
    struct gate_head head = {
        .method = "GET", .target = "/", .version = "HTTP/1.1", .headers = headers};
    struct gate_request rq;
    struct err err = {0};

    for (int i = 0; i < MANY; i++) {
        headers[i] = (struct gate_header){"X-A", "1", 3, 1};
    }
    headers[0] = (struct gate_header){"Host", "localhost", 4, 9};
    head.header_count = GATE_HEADERS;
    EXPECT(gate_check(&rq, &head, hosts, &err) == 0);
    gate_free(&rq);
    head.too_many_headers = true;
    EXPECT(gate_check(&rq, &head, hosts, &err) == ERR_BAD_REQUEST);
    head.too_many_headers = false;
    head.header_count = MANY;
    EXPECT(gate_check(&rq, &head, hosts, &err) == ERR_BAD_REQUEST);
}

static void splits_before_it_decodes(void)
{
    static const struct sample s = {"PUT",
                                    "/v1/a%20b%25/%E6%96%87?filename=a+b%26c%3D%252e&x&=&y=1%3d2",
                                    "HTTP/1.1",
                                    {HOST},
                                    0};
    struct gate_request rq;
    struct err err = {0};

    EXPECT(check(&rq, &s, &err) == 0);
    EXPECT(rq.method == METHOD_PUT && rq.segment_count == 3);
    EXPECT(strcmp(rq.segments[0], "v1") == 0);
    EXPECT(strcmp(rq.segments[1], "a b%") == 0);
    EXPECT(strcmp(rq.segments[2], "\xe6\x96\x87") == 0);
    EXPECT(strcmp(gate_query(&rq, "filename"), "a b&c=%2e") == 0); /* decoded once */
    EXPECT(strcmp(gate_query(&rq, "x"), "") == 0);
    EXPECT(strcmp(gate_query(&rq, "y"), "1=2") == 0);
    EXPECT(gate_query(&rq, "z") == NULL);
    gate_free(&rq);
}

static void reads_credentials_and_content(void)
{
    static const struct sample s = {
        "POST",
        "/v1/jobs",
        "HTTP/1.1",
        {HOST, "authorization: bearer  tok", "Cookie: a=1;hone_session=s3cret; b=2",
         "Content-Type: application/json; charset=utf-8", "Content-Length: 12",
         "Origin: http://127.0.0.1:8642", "Sec-Fetch-Site: same-origin"},
        0};
    struct gate_request rq;
    struct err err = {0};

    EXPECT(check(&rq, &s, &err) == 0);
    EXPECT(strcmp(rq.token, "tok") == 0 && rq.has_authorization);
    EXPECT(strcmp(rq.session, "s3cret") == 0);
    EXPECT(rq.content == CONTENT_JSON && rq.length == 12 && rq.has_body && !rq.foreign);
    gate_free(&rq);
}

static void tells_other_sites(void)
{
    static const struct sample table[] = {
        {"POST", "/", "HTTP/1.1", {HOST, "Origin: https://evil.example"}, 0},
        {"POST", "/", "HTTP/1.1", {HOST, "Origin: null"}, 0},
        {"POST", "/", "HTTP/1.1", {HOST, "Origin: http://127.0.0.1:8643"}, 0},
        {"POST", "/", "HTTP/1.1", {HOST, "Sec-Fetch-Site: cross-site"}, 0},
        {"POST", "/", "HTTP/1.1", {HOST, "Sec-Fetch-Site: same-site"}, 0},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct gate_request rq;
        struct err err = {0};
        EXPECT(check(&rq, &table[i], &err) == 0 && rq.foreign);
        gate_free(&rq);
    }
}

static void tells_content_types(void)
{
    static const struct {
        const char *line;
        enum content want;
    } table[] = {
        {"Content-Type: application/json", CONTENT_JSON},
        {"Content-Type: APPLICATION/JSON ;x=y", CONTENT_JSON},
        {"Content-Type: application/problem+json", CONTENT_JSON},
        {"Content-Type: text/plain", CONTENT_OTHER},
        {"Content-Type: application/jsonx", CONTENT_OTHER},
        {"Content-Type: multipart/form-data; boundary=x", CONTENT_FORM},
        {"Content-Type: application/x-www-form-urlencoded", CONTENT_OTHER},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct sample s = {"POST", "/", "HTTP/1.1", {HOST, table[i].line}, 0};
        struct gate_request rq;
        struct err err = {0};
        EXPECT(check(&rq, &s, &err) == 0 && rq.content == table[i].want);
        gate_free(&rq);
    }
}

int main(void)
{
    RUN(refuses_targets_that_others_read_differently);
    RUN(refuses_hosts_that_are_not_ours);
    RUN(refuses_bodies_of_doubtful_length);
    RUN(refuses_methods_versions_and_headers_out_of_the_ordinary);
    RUN(sees_a_nul_inside_a_value);
    RUN(refuses_more_headers_than_it_holds);
    RUN(splits_before_it_decodes);
    RUN(reads_credentials_and_content);
    RUN(tells_other_sites);
    RUN(tells_content_types);
    return tap_done();
}
