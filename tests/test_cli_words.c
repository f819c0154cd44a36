/* test_cli_words.c - hone's reading: the command line, field=value, job names, addresses. */
#include <stdlib.h>
#include <string.h>

#include "server/cli/args.h"
#include "server/cli/assign.h"
#include "server/cli/config.h"
#include "tests/tap.h"

enum { MOST = 16 };

/* args_parse of "hone a b c", words separated by single spaces. */
static int parse(struct args *out, const char *line, struct err *err)
{
    static char copy[512];
    static char *argv[MOST];
    int argc = 0;

    (void)snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL && argc < MOST; word = strtok(NULL, " ")) {
        argv[argc++] = word;
    }
    return args_parse(out, argc, argv, err);
}

static void options_stand_anywhere(void)
{
    struct args a;
    struct err err;

    EXPECT(parse(&a, "hone --json show job-1", &err) == 0);
    EXPECT(a.verb == args_find_verb("show") && args_has(&a, OPT(JSON)) && a.words == 1);
    EXPECT(parse(&a, "hone show job-1 --json", &err) == 0 && args_has(&a, OPT(JSON)));
    EXPECT(parse(&a, "hone ls -n 5 --state=running", &err) == 0);
    EXPECT(strcmp(a.value[OPTION_LIMIT], "5") == 0);
    EXPECT(strcmp(a.value[OPTION_STATE], "running") == 0);
    EXPECT(parse(&a, "hone upload -- --odd-name", &err) == 0 &&
           strcmp(a.word[0], "--odd-name") == 0);
    EXPECT(parse(&a, "hone submit --upload a=1 --upload b=2 c=3", &err) == 0);
    EXPECT(a.uploads == 2 && strcmp(a.upload[1], "b=2") == 0 && a.words == 1);
}

static void wrong_command_lines_are_refused_with_a_hint(void)
{
    struct args a;
    struct err err;

    EXPECT(parse(&a, "hone fly", &err) == ERR_BAD_REQUEST && strstr(err.text, "fly") != NULL);
    EXPECT(parse(&a, "hone ls --no-save", &err) == ERR_BAD_REQUEST &&
           strstr(err.text, "--no-save") != NULL);
    EXPECT(parse(&a, "hone ls --wat", &err) == ERR_BAD_REQUEST &&
           strstr(err.text, "--wat") != NULL);
    EXPECT(parse(&a, "hone show", &err) == ERR_BAD_REQUEST &&
           strstr(err.text, "usage: hone show JOB") != NULL);
    EXPECT(parse(&a, "hone show a b", &err) == ERR_BAD_REQUEST);
    EXPECT(parse(&a, "hone ls --limit", &err) == ERR_BAD_REQUEST &&
           strstr(err.text, "needs a value") != NULL);
    EXPECT(parse(&a, "hone ls --json=1", &err) == ERR_BAD_REQUEST &&
           strstr(err.text, "takes no value") != NULL);
    EXPECT(parse(&a, "hone ls --", &err) == 0);
}

static void help_and_version_have_their_usual_names(void)
{
    struct args a;
    struct err err;

    EXPECT(parse(&a, "hone", &err) == 0 && a.verb == args_find_verb("help") && a.words == 0);
    EXPECT(parse(&a, "hone --help", &err) == 0 && a.verb == args_find_verb("help"));
    EXPECT(parse(&a, "hone get -h", &err) == 0 && a.verb == args_find_verb("help") &&
           strcmp(a.word[0], "get") == 0);
    EXPECT(parse(&a, "hone --version", &err) == 0 && a.verb == args_find_verb("version"));
}

/* assign_swept of one word; request and grid as one text. */
static bool swept(const char *word, const char *expected)
{
    json_t *const fields =
        json_pack("{s:{s:s}, s:{s:s}, s:{s:s}, s:{s:s}}", "rate", "type", "number", "seed", "type",
                  "integer", "name", "type", "string", "parts", "type", "array");
    json_t *const request = json_object(), *const grid = json_object();
    struct err err;
    char *text = NULL;

    const int rc = assign_swept(request, grid, word, fields, &err);
    json_t *const both = json_pack("[O,O]", request, grid);
    text = assign_dump(both);
    const bool same = rc == 0 && text != NULL && strcmp(text, expected) == 0;
    if (!same) {
        printf("# %s: %d %s\n", word, rc, text);
    }
    free(text);
    json_decref(both);
    json_decref(request);
    json_decref(grid);
    json_decref(fields);
    return same;
}

static void a_field_with_several_values_is_swept(void)
{
    EXPECT(swept("rate=[1e-3,3e-4]", "[{},{\"rate\":[0.001,0.0003]}]"));
    EXPECT(swept("rate=1e-3", "[{\"rate\":0.001},{}]"));
    EXPECT(swept("seed=[1e3,2]", "[{},{\"seed\":[1000,2]}]"));
    EXPECT(swept("name=[\"a\",\"b\"]", "[{},{\"name\":[\"a\",\"b\"]}]"));
    EXPECT(swept("name=[draft] one", "[{\"name\":\"[draft] one\"},{}]"));
    EXPECT(swept("parts=[1,2]", "[{\"parts\":[1,2]},{}]"));
    EXPECT(swept("parts=[[1,2],[3]]", "[{},{\"parts\":[[1,2],[3]]}]"));
}

static void a_sweep_of_nothing_or_twice_is_refused(void)
{
    json_t *const request = json_object(), *const grid = json_object();
    struct err err;

    EXPECT(assign_swept(request, grid, "seed=[]", NULL, &err) == ERR_BAD_REQUEST);
    EXPECT(strcmp(err.text, "seed lists no value") == 0);
    EXPECT(assign_swept(request, grid, "seed=[1,2]", NULL, &err) == 0);
    EXPECT(assign_swept(request, grid, "seed=3", NULL, &err) == ERR_BAD_REQUEST);
    EXPECT(strcmp(err.text, "seed is given twice") == 0);
    EXPECT(assign_swept(request, grid, "rate=[1,", NULL, &err) == ERR_BAD_REQUEST);
    EXPECT(assign_swept(request, grid, "=[1]", NULL, &err) == ERR_BAD_REQUEST);
    json_decref(request);
    json_decref(grid);
}

static void numbers_have_bounds(void)
{
    struct err err;
    int64_t n = 0;

    EXPECT(args_number(&n, "--limit", "17", 1, 100, &err) == 0 && n == 17);
    EXPECT(args_number(&n, "--limit", "0", 1, 100, &err) == ERR_BAD_REQUEST);
    EXPECT(args_number(&n, "--limit", "101", 1, 100, &err) == ERR_BAD_REQUEST);
    EXPECT(args_number(&n, "--limit", "1x", 1, 100, &err) == ERR_BAD_REQUEST);
    EXPECT(args_number(&n, "--limit", "", 1, 100, &err) == ERR_BAD_REQUEST);
    EXPECT(args_number(&n, "--limit", "99999999999999999999", 1, INT64_MAX, &err) ==
           ERR_BAD_REQUEST);
}

/* The JSON of {field: value} that `word` makes; "" when refused. */
static const char *assigned(const char *word, const json_t *properties)
{
    static char out[512];
    struct err err;
    json_t *const request = json_object();

    out[0] = '\0';
    if (assign_field(request, word, properties, &err) == 0) {
        char *const text = assign_dump(request);
        (void)snprintf(out, sizeof out, "%s", text);
        free(text);
    }
    json_decref(request);
    return out;
}

static void values_are_json_where_they_read_as_json(void)
{
    EXPECT(strcmp(assigned("max_steps=100", NULL), "{\"max_steps\":100}") == 0);
    EXPECT(strcmp(assigned("learning_rate=3e-4", NULL), "{\"learning_rate\":0.0003}") == 0);
    EXPECT(strcmp(assigned("x=true", NULL), "{\"x\":true}") == 0);
    EXPECT(strcmp(assigned("x=null", NULL), "{\"x\":null}") == 0);
    EXPECT(strcmp(assigned("x=", NULL), "{\"x\":\"\"}") == 0);
    EXPECT(strcmp(assigned("x=a=b", NULL), "{\"x\":\"a=b\"}") == 0);
    EXPECT(strcmp(assigned("model=root:llama", NULL), "{\"model\":\"root:llama\"}") == 0);
    EXPECT(strcmp(assigned("config={\"a\":[1,2]}", NULL), "{\"config\":{\"a\":[1,2]}}") == 0);
    EXPECT(strcmp(assigned("x=\"7\"", NULL), "{\"x\":\"7\"}") == 0);
    EXPECT(strcmp(assigned("x=0.1234567890123456", NULL), "{\"x\":0.1234567890123456}") == 0);
}

static void values_that_are_broken_json_are_refused(void)
{
    EXPECT(strcmp(assigned("config={\"a\":1", NULL), "") == 0);
    EXPECT(strcmp(assigned("config={\"a\":1,\"a\":2}", NULL), "") == 0);
    EXPECT(strcmp(assigned("x=[1,", NULL), "") == 0);
    EXPECT(strcmp(assigned("no equals sign", NULL), "") == 0);
    EXPECT(strcmp(assigned("=1", NULL), "") == 0);
    EXPECT(strcmp(assigned("x=\xFF", NULL), "") == 0);
    EXPECT(strcmp(assigned("config=@/nonexistent/file.json", NULL), "") == 0);
}

static void the_schema_decides_what_a_value_is(void)
{
    json_t *const properties =
        json_pack("{s:{s:s}, s:{s:s}, s:{s:s}}", "name", "type", "string", "max_steps", "type",
                  "integer", "learning_rate", "type", "number");

    EXPECT(strcmp(assigned("name=2024", properties), "{\"name\":\"2024\"}") == 0);
    EXPECT(strcmp(assigned("name=@handle", properties), "{\"name\":\"@handle\"}") == 0);
    EXPECT(strcmp(assigned("name={draft", properties), "{\"name\":\"{draft\"}") == 0);
    EXPECT(strcmp(assigned("max_steps=1e3", properties), "{\"max_steps\":1000}") == 0);
    EXPECT(strcmp(assigned("max_steps=1.5", properties), "{\"max_steps\":1.5}") == 0);
    EXPECT(strcmp(assigned("learning_rate=1", properties), "{\"learning_rate\":1}") == 0);
    json_decref(properties);
}

static void a_field_is_given_once(void)
{
    json_t *const request = json_object();
    struct err err;

    EXPECT(assign_field(request, "seed=1", NULL, &err) == 0);
    EXPECT(assign_field(request, "seed=2", NULL, &err) == ERR_BAD_REQUEST);
    EXPECT(strcmp(err.param, "seed") == 0 && strstr(err.text, "twice") != NULL);
    json_decref(request);
}

static void job_words_name_a_checkpoint(void)
{
    struct job_word w;
    struct err err;

    EXPECT(assign_job_word(&w, "job-abc", &err) == 0 && strcmp(w.job, "job-abc") == 0 &&
           strcmp(w.step, "latest") == 0);
    EXPECT(assign_job_word(&w, "job-abc:120", &err) == 0 && strcmp(w.step, "120") == 0);
    EXPECT(assign_job_word(&w, "latest:latest", &err) == 0 && strcmp(w.job, "latest") == 0);
    EXPECT(assign_job_word(&w, "job:", &err) == ERR_BAD_REQUEST);
    EXPECT(assign_job_word(&w, ":5", &err) == ERR_BAD_REQUEST);
    EXPECT(assign_job_word(&w, "job:five", &err) == ERR_BAD_REQUEST);
    EXPECT(assign_job_word(&w, "job:-5", &err) == ERR_BAD_REQUEST);
    EXPECT(assign_job_word(&w, "job:1:2", &err) == ERR_BAD_REQUEST);
}

static void addresses_encode_what_they_are_given(void)
{
    char path[64];
    struct err err;

    EXPECT(assign_path(path, sizeof path, &err, "/v1/jobs/%/save", "job-1") == 0);
    EXPECT(strcmp(path, "/v1/jobs/job-1/save") == 0);
    EXPECT(assign_path(path, sizeof path, &err, "/f?n=%&p=%", "a b/c?&", "\xC3\xA9") == 0);
    EXPECT(strcmp(path, "/f?n=a%20b%2Fc%3F%26&p=%C3%A9") == 0);
    EXPECT(assign_path(path, sizeof path, &err, "/x/%", "..") == ERR_BAD_REQUEST);
    EXPECT(assign_path(path, sizeof path, &err, "/x/%", "") == ERR_BAD_REQUEST);
    EXPECT(assign_path(path, 12, &err, "/x/%", "0123456789") == ERR_BAD_REQUEST);
    EXPECT(assign_path(path, 14, &err, "/x/%", "0123456789") == 0);
}

static void server_addresses_are_checked(void)
{
    struct config c;
    struct err err;

    EXPECT(config_set_url(&c, "http://127.0.0.1:8642/", &err) == 0 &&
           strcmp(c.url, "http://127.0.0.1:8642") == 0);
    EXPECT(config_set_url(&c, "workstation:8642", &err) == 0 &&
           strcmp(c.url, "http://workstation:8642") == 0);
    EXPECT(config_set_url(&c, "https://lab/hone//", &err) == 0 &&
           strcmp(c.url, "https://lab/hone") == 0);
    EXPECT(config_set_url(&c, "ftp://host", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "file:///etc/passwd", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "http://", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "http://user:secret@host", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "http://host/?q", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_url(&c, "http://ho st", &err) == ERR_BAD_REQUEST);
}

static void tokens_lose_white_space_around_them_only(void)
{
    struct config c;
    struct err err;

    EXPECT(config_set_token(&c, "  hone_a_b\n", &err) == 0 && strcmp(c.token, "hone_a_b") == 0);
    EXPECT(config_set_token(&c, "two words", &err) == ERR_BAD_REQUEST);
    EXPECT(strstr(err.text, "words") == NULL); /* never the token itself */
    EXPECT(config_set_token(&c, "line\r\nInjected: 1", &err) == ERR_BAD_REQUEST);
    EXPECT(config_set_token(&c, " \n", &err) == ERR_BAD_REQUEST);
}

int main(void)
{
    RUN(options_stand_anywhere);
    RUN(wrong_command_lines_are_refused_with_a_hint);
    RUN(help_and_version_have_their_usual_names);
    RUN(a_field_with_several_values_is_swept);
    RUN(a_sweep_of_nothing_or_twice_is_refused);
    RUN(numbers_have_bounds);
    RUN(values_are_json_where_they_read_as_json);
    RUN(values_that_are_broken_json_are_refused);
    RUN(the_schema_decides_what_a_value_is);
    RUN(a_field_is_given_once);
    RUN(job_words_name_a_checkpoint);
    RUN(addresses_encode_what_they_are_given);
    RUN(server_addresses_are_checked);
    RUN(tokens_lose_white_space_around_them_only);
    return tap_done();
}
