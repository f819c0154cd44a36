/* test_events.c - events.jsonl: what is written, what a reader makes of it, torn lines and full
 * disks. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/events.h"

static char dir[256];

static struct events *writer(int attempt)
{
    struct events *events = NULL;
    struct err err;

    EXPECT(events_open(&events, dir, attempt, false, &err) == 0);
    return events;
}

static struct event_reader *reader(int64_t offset)
{
    struct event_reader *r = NULL;
    struct err err;

    EXPECT(event_reader_open(&r, dir, offset, &err) == 0);
    return r;
}

static enum event_found next(struct event_reader *r, struct event *event)
{
    enum event_found found = EVENT_FOUND_NONE;
    struct err err;

    if (event_reader_next(r, &found, event, &err) != 0) {
        printf("# %s\n", err.text);
        EXPECT(false);
    }
    return found;
}

static double number(const struct event *event, const char *key)
{
    return json_number_value(json_object_get(event->object, key));
}

static const char *text(const struct event *event, const char *key)
{
    const char *value = json_string_value(json_object_get(event->object, key));

    return value == NULL ? "" : value;
}

static int64_t file_size(void)
{
    char path[300];
    struct stat s = {0};

    (void)snprintf(path, sizeof path, "%s/" JOB_EVENTS, dir);
    return stat(path, &s) == 0 ? s.st_size : -1;
}

static void what_is_written_is_read(void)
{
    struct event e;
    int64_t step = 0;

    fresh_make(dir);
    struct event_reader *r = reader(0);
    EXPECT(next(r, &e) == EVENT_FOUND_NONE); /* there is no file yet */
    struct events *w = writer(3);
    events_keep_step(w, &step);
    events_stage(w, STAGE_TOKENIZING);
    events_metrics(w, &(struct metrics){.step = 7,
                                        .loss = (double)0.1F,
                                        .lr = 3e-4,
                                        .grad_norm = 1e-30,
                                        .tokens = 1LL << 40,
                                        .tokens_per_s = 12345.678,
                                        .seconds = 1.5});
    events_eval(w, 7, 2.5, 0.25, 100);
    events_send(w, EVENT_CHECKPOINT_GONE, json_pack("{s:i}", "step", 5));
    events_send(w, EVENT_STARTED, json_object());

    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_STAGE && e.attempt == 3);
    EXPECT(e.t > 1.6e9 && strcmp(text(&e, "stage"), "tokenizing") == 0);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_METRICS && step == 7);
    EXPECT((float)number(&e, "loss") == 0.1F && number(&e, "tokens") == 1099511627776.0);
    EXPECT_NEAR(number(&e, "lr"), 3e-4, 1e-12);
    EXPECT((float)number(&e, "grad_norm") == 1e-30F);
    EXPECT(json_object_get(e.object, "finite") == NULL &&
           json_object_get(e.object, "lost") == NULL);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_EVAL && number(&e, "loss") == 2.5);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_CHECKPOINT_GONE &&
           number(&e, "step") == 5);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_STARTED && e.end == file_size());
    EXPECT(next(r, &e) == EVENT_FOUND_NONE);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void every_float_comes_back_as_it_was(void)
{
    struct event e;
    uint32_t bits = 1;

    fresh_make(dir);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    for (int i = 0; i < 2000; i++) {
        float value;
        bits = bits * 1664525U + 1013904223U;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) {
            continue;
        }
        events_eval(w, i, (double)value, 0.25, 1);
        EXPECT(next(r, &e) == EVENT_FOUND && (float)number(&e, "loss") == value);
    }
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void numbers_that_are_not_finite_are_null(void)
{
    struct event e;

    fresh_make(dir);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    events_metrics(
        w, &(struct metrics){.step = 1, .loss = (double)NAN, .grad_norm = (double)INFINITY});
    events_eval(w, 1, -(double)INFINITY, 0.25, 0);
    events_eval(w, 2, 1.0, 0.25, 0);
    EXPECT(next(r, &e) == EVENT_FOUND && json_is_null(json_object_get(e.object, "loss")));
    EXPECT(json_is_null(json_object_get(e.object, "grad_norm")) && number(&e, "lr") == 0.0);
    EXPECT(json_is_false(json_object_get(e.object, "finite")));
    EXPECT(next(r, &e) == EVENT_FOUND && json_is_false(json_object_get(e.object, "finite")));
    EXPECT(next(r, &e) == EVENT_FOUND && json_object_get(e.object, "finite") == NULL);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void a_silent_writer_keeps_the_step_and_writes_nothing(void)
{
    struct events *w = NULL;
    struct err err;
    int64_t step = 0;

    fresh_make(dir);
    EXPECT(events_open(&w, dir, 1, true, &err) == 0);
    events_keep_step(w, &step);
    events_metrics(w, &(struct metrics){.step = 9});
    events_warning(w, "%d", 1);
    EXPECT(step == 9 && file_size() == -1 && events_lost(w) == 0);
    events_close(w);
    fresh_remove(dir);
}

static void progress_is_told_four_times_a_second_and_at_its_end(void)
{
    struct event e;
    int count = 0;

    fresh_make(dir);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    for (int i = 0; i <= 10000; i++) {
        events_progress(w, STAGE_TOKENIZING, i, 10000, "bytes");
    }
    double done = 0.0;
    while (next(r, &e) == EVENT_FOUND) {
        count++;
        done = number(&e, "done");
    }
    EXPECT(count >= 2 && count < 20 && done == 10000.0);
    events_progress(w, STAGE_EVALUATING, 1, 2, "sequences"); /* another stage is not held back */
    EXPECT(next(r, &e) == EVENT_FOUND && strcmp(text(&e, "stage"), "evaluating") == 0);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void messages_with_damaged_bytes_arrive(void)
{
    struct event e;
    struct err err;
    char large[2000];

    fresh_make(dir);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    err_set(&err, ERR_BAD_TRAINING_FILE, "caf\xe9 \"a\\b\"\n.txt");
    events_error(w, &err);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_ERROR);
    EXPECT(strcmp(text(&e, "message"), "caf? \"a\\b\"?.txt") == 0);
    EXPECT(strcmp(text(&e, "code"), "invalid_training_file") == 0);
    memset(large, 'x', sizeof large);
    large[sizeof large - 1] = '\0';
    events_warning(w, "%s", large);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_WARNING && events_lost(w) == 0);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void an_event_that_is_too_long_or_broken_is_counted_as_lost(void)
{
    struct event e;
    char *large = malloc(70000);

    fresh_make(dir);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    memset(large, 'x', 70000);
    events_send(w, EVENT_WARNING, json_pack("{s:s#}", "message", large, 69999));
    events_send(w, EVENT_WARNING, NULL);
    EXPECT(file_size() == 0 && events_lost(w) == 2);
    /* The longest that fits. */
    events_send(w, EVENT_WARNING, json_pack("{s:s#}", "message", large, EVENT_LINE_MAX - 120));
    events_eval(w, 1, 1.0, 0.25, 1);
    EXPECT(next(r, &e) == EVENT_FOUND && number(&e, "lost") == 2.0);
    EXPECT(e.length > EVENT_LINE_MAX - 120 && e.length < EVENT_LINE_MAX);
    EXPECT(next(r, &e) == EVENT_FOUND && json_object_get(e.object, "lost") == NULL);
    free(large);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

/* The size limit of files stands in for a full disk: a write stops in the middle of a line in
 * the same way. */
static void limit_files_to(int64_t bytes)
{
    struct rlimit limit;

    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void a_full_disk_loses_events_but_tears_no_line(void)
{
    struct event e;

    fresh_make(dir);
    (void)signal(SIGXFSZ, SIG_IGN);
    struct events *w = writer(1);
    struct event_reader *r = reader(0);
    events_eval(w, 1, 1.0, 0.25, 1);
    const int64_t whole = file_size();
    for (int64_t room = 0; room <= 90; room += 15) {
        limit_files_to(whole + room);
        events_metrics(w, &(struct metrics){.step = 2});
        EXPECT(file_size() == whole);
    }
    EXPECT(events_lost(w) == 7);
    limit_files_to(-1);
    events_eval(w, 3, 3.0, 0.25, 1);
    events_eval(w, 4, 4.0, 0.25, 1);
    EXPECT(next(r, &e) == EVENT_FOUND && number(&e, "step") == 1.0);
    EXPECT(next(r, &e) == EVENT_FOUND && number(&e, "step") == 3.0 && number(&e, "lost") == 7.0);
    EXPECT(next(r, &e) == EVENT_FOUND && number(&e, "step") == 4.0);
    EXPECT(json_object_get(e.object, "lost") == NULL && events_lost(w) == 0);
    EXPECT(next(r, &e) == EVENT_FOUND_NONE);
    events_close(w);
    event_reader_close(r);
    fresh_remove(dir);
}

static void a_torn_last_line_is_cut(void)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        {"", ""},       {"{\"a\":1}\n", "{\"a\":1}\n"}, {"{\"a\":1}\n{\"b\"", "{\"a\":1}\n"},
        {"{\"b\"", ""}, {"a\nb\nc", "a\nb\n"},          {"\n", "\n"}};
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fresh_make(dir);
        fresh_write(dir, JOB_EVENTS, cases[i].before);
        EXPECT(events_cut_torn_line(dir, &err) == 0);
        char *left = fresh_read(dir, JOB_EVENTS);
        EXPECT(strcmp(left, cases[i].after) == 0);
        free(left);
        fresh_remove(dir);
    }
    fresh_make(dir);
    EXPECT(events_cut_torn_line(dir, &err) == 0 && file_size() == -1); /* no file: nothing to cut */
    char *large = malloc(20001);
    memset(large, 'x', 20000);
    large[20000] = '\0';
    large[4095] = '\n';
    fresh_write(dir, JOB_EVENTS, large);
    EXPECT(events_cut_torn_line(dir, &err) == 0 && file_size() == 4096);
    free(large);
    fresh_remove(dir);
}

static void a_reader_waits_for_the_end_of_a_line(void)
{
    struct event e;
    char path[300];
    const char *line = "{\"t\":1.5,\"attempt\":2,\"type\":\"eval\",\"step\":1}\n";

    fresh_make(dir);
    (void)snprintf(path, sizeof path, "%s/" JOB_EVENTS, dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    struct event_reader *r = reader(0);
    for (size_t i = 0; i < strlen(line); i++) {
        EXPECT(next(r, &e) == EVENT_FOUND_NONE);
        EXPECT(write(fd, line + i, 1) == 1);
    }
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_EVAL && e.attempt == 2);
    EXPECT(e.length == strlen(line) - 1 && e.end == (int64_t)strlen(line));
    (void)close(fd);
    event_reader_close(r);
    fresh_remove(dir);
}

static void a_torn_line_that_is_replaced_is_not_mixed_with_the_next(void)
{
    struct event e;
    char path[300];
    const char *good = "{\"t\":1,\"attempt\":1,\"type\":\"eval\"}\n";

    fresh_make(dir);
    (void)snprintf(path, sizeof path, "%s/" JOB_EVENTS, dir);
    fresh_write(dir, JOB_EVENTS, "{\"t\":1,\"attempt\":1,\"type\":\"metrics\",\"loss");
    struct event_reader *r = reader(0);
    EXPECT(next(r, &e) == EVENT_FOUND_NONE);
    EXPECT(truncate(path, 0) == 0);
    fresh_write(dir, JOB_EVENTS, good);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_EVAL);
    event_reader_close(r);
    fresh_remove(dir);
}

static void a_bad_line_is_reported_and_passed(void)
{
    static const char *const bad[] = {"not json",
                                      "[]",
                                      "5",
                                      "",
                                      "{\"t\":1,\"attempt\":1}",
                                      "{\"t\":1,\"type\":\"eval\"}",
                                      "{\"attempt\":1,\"type\":\"eval\"}",
                                      "{\"t\":1,\"attempt\":0,\"type\":\"eval\"}",
                                      "{\"t\":\"x\",\"attempt\":1,\"type\":\"eval\"}",
                                      "{\"t\":1,\"attempt\":1,\"type\":7}",
                                      "{\"t\":1,\"attempt\":1,\"type\":\"eval\"}{}",
                                      "{\"t\":1,\"t\":1,\"attempt\":1,\"type\":\"eval\"}",
                                      "{\"t\":1,\"attempt\":1,\"type\":\"ev\xff\"}"};
    const char *good = "{\"t\":1,\"attempt\":1,\"type\":\"eval\"}";
    struct event e;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char lines[300];
        fresh_make(dir);
        (void)snprintf(lines, sizeof lines, "%s\n%s\n%s\n", good, bad[i], good);
        fresh_write(dir, JOB_EVENTS, lines);
        struct event_reader *r = reader(0);
        EXPECT(next(r, &e) == EVENT_FOUND);
        EXPECT(next(r, &e) == EVENT_FOUND_BAD && e.length == strlen(bad[i]) && e.why[0] != '\0');
        EXPECT(next(r, &e) == EVENT_FOUND && e.end == (int64_t)strlen(lines));
        EXPECT(next(r, &e) == EVENT_FOUND_NONE);
        event_reader_close(r);
        fresh_remove(dir);
    }
}

static void an_unknown_type_is_an_event_without_a_name(void)
{
    struct event e;

    fresh_make(dir);
    fresh_write(dir, JOB_EVENTS, "{\"t\":1,\"attempt\":1,\"type\":\"from_the_future\"}\n");
    struct event_reader *r = reader(0);
    EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_COUNT && e.object != NULL);
    event_reader_close(r);
    fresh_remove(dir);
}

static void a_line_that_is_too_long_is_passed_whatever_its_length(void)
{
    const size_t lengths[] = {EVENT_LINE_MAX - 1,       EVENT_LINE_MAX,
                              2UL * EVENT_LINE_MAX - 1, 2UL * EVENT_LINE_MAX,
                              2UL * EVENT_LINE_MAX + 1, 5UL * EVENT_LINE_MAX};
    const char *good = "{\"t\":1,\"attempt\":1,\"type\":\"eval\"}\n";
    char *lines = calloc(6, EVENT_LINE_MAX);
    struct event e;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        fresh_make(dir);
        memset(lines, 'x', lengths[i]);
        lines[lengths[i]] = '\0';
        fresh_write(dir, JOB_EVENTS, lines);
        struct event_reader *r = reader(0);
        EXPECT(next(r, &e) == EVENT_FOUND_NONE); /* not ended yet */
        lines[lengths[i]] = '\n';
        memcpy(lines + lengths[i] + 1, good, strlen(good) + 1);
        fresh_write(dir, JOB_EVENTS, lines);
        EXPECT(next(r, &e) == EVENT_FOUND_BAD && e.end == (int64_t)lengths[i] + 1);
        EXPECT((e.line == NULL) == (lengths[i] >= EVENT_LINE_MAX));
        EXPECT(next(r, &e) == EVENT_FOUND && e.type == EVENT_EVAL);
        EXPECT(next(r, &e) == EVENT_FOUND_NONE);
        event_reader_close(r);
        fresh_remove(dir);
    }
    free(lines);
}

static void a_reader_goes_on_where_another_stopped(void)
{
    struct event e;
    int64_t end = 0;

    fresh_make(dir);
    struct events *w = writer(1);
    for (int i = 0; i < 5000; i++) {
        events_eval(w, i, i * 0.5, 0.25, i);
    }
    /* Every event once, by many readers. */
    for (int i = 0; i < 5000;) {
        struct event_reader *r = reader(end);
        for (int k = 0; k < 97 && i < 5000; k++, i++) {
            EXPECT(next(r, &e) == EVENT_FOUND && number(&e, "step") == (double)i);
            end = e.end;
        }
        event_reader_close(r);
    }
    EXPECT(end == file_size());
    events_close(w);
    fresh_remove(dir);
}

static void a_file_that_shrank_is_an_error(void)
{
    struct event e;
    struct err err;
    enum event_found found;

    fresh_make(dir);
    struct events *w = writer(1);
    events_eval(w, 1, 1.0, 0.25, 1);
    events_close(w);
    struct event_reader *r = reader(0);
    EXPECT(next(r, &e) == EVENT_FOUND);
    fresh_write(dir, JOB_EVENTS, "");
    EXPECT(event_reader_next(r, &found, &e, &err) == (int)ERR_IO && strstr(err.text, "shrunk"));
    event_reader_close(r);
    fresh_remove(dir);
}

static void *write_many(void *stop)
{
    struct events *w = writer(1);

    for (int i = 0; i < 20000; i++) {
        events_metrics(w, &(struct metrics){.step = i, .loss = i * 0.25});
    }
    events_close(w);
    atomic_store((atomic_bool *)stop, true);
    return NULL;
}

static void a_reader_keeps_up_with_a_writer(void)
{
    struct event e;
    pthread_t thread;
    atomic_bool stop = false;
    int64_t expected = 0;

    fresh_make(dir);
    struct event_reader *r = reader(0);
    EXPECT(pthread_create(&thread, NULL, write_many, &stop) == 0);
    for (;;) {
        const bool is_over = atomic_load(&stop);
        while (next(r, &e) == EVENT_FOUND) {
            EXPECT(number(&e, "step") == (double)expected);
            expected++;
        }
        if (is_over) {
            break;
        }
    }
    EXPECT(expected == 20000);
    (void)pthread_join(thread, NULL);
    event_reader_close(r);
    fresh_remove(dir);
}

static void words_and_numbers_name_each_other(void)
{
    for (int i = 0; i < EVENT_COUNT; i++) {
        EXPECT(event_from_word(event_word((enum event_type)i)) == (enum event_type)i);
    }
    for (int i = 0; i < STAGE_COUNT; i++) {
        EXPECT(stage_from_word(stage_word((enum stage)i)) == (enum stage)i);
    }
    for (int i = 0; i < ENDED_COUNT; i++) {
        EXPECT(ended_from_word(ended_word((enum ended)i)) == (enum ended)i);
    }
    EXPECT(event_from_word("none") == EVENT_COUNT && stage_from_word("") == STAGE_COUNT);
}

int main(void)
{
    scratch_make();
    RUN(what_is_written_is_read);
    RUN(every_float_comes_back_as_it_was);
    RUN(numbers_that_are_not_finite_are_null);
    RUN(a_silent_writer_keeps_the_step_and_writes_nothing);
    RUN(progress_is_told_four_times_a_second_and_at_its_end);
    RUN(messages_with_damaged_bytes_arrive);
    RUN(an_event_that_is_too_long_or_broken_is_counted_as_lost);
    RUN(a_full_disk_loses_events_but_tears_no_line);
    RUN(a_torn_last_line_is_cut);
    RUN(a_reader_waits_for_the_end_of_a_line);
    RUN(a_torn_line_that_is_replaced_is_not_mixed_with_the_next);
    RUN(a_bad_line_is_reported_and_passed);
    RUN(an_unknown_type_is_an_event_without_a_name);
    RUN(a_line_that_is_too_long_is_passed_whatever_its_length);
    RUN(a_reader_goes_on_where_another_stopped);
    RUN(a_file_that_shrank_is_an_error);
    RUN(a_reader_keeps_up_with_a_writer);
    RUN(words_and_numbers_name_each_other);
    scratch_remove();
    return tap_done();
}
