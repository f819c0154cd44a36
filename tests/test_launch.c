/* test_launch.c - the launcher, with steps that behave well, badly, and not at all. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/launch.h"
#include "trainer/process.h"
#include "trainer/signals.h"

#define SPEC                                                                            \
    "{\"id\":\"job-1\",\"owner\":\"u\",\"created_at\":1.5,\"request\":{\"name\":\"x\"," \
    "\"training_file\":\"t.txt\",\"config\":{},\"tokenizer_vocab_size\":300}}"

static char dir[256];

static void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void mark(const struct job_folder *job, const char *name, int rank)
{
    char path[JOB_PATH_SIZE + 64], text[32];

    (void)snprintf(path, sizeof path, "%s/%s.%d", job->dir, name, rank);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    (void)!write(fd, text, strlen(text));
    (void)close(fd);
}

/* Ten steps, then done. */
static int work(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)err;
    mark(job, "rank", rank);
    printf("rank %d says hello\n", rank);
    for (int i = 1; i <= 10; i++) {
        events_metrics(events, &(struct metrics){.step = i, .loss = 1.0 / i});
    }
    return 0;
}

/* Steps until asked to end; says in a mark what it was asked. */
static int obey(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)err;
    mark(job, "rank", rank);
    for (int step = 1;; step++) {
        events_metrics(events, &(struct metrics){.step = step, .loss = 1.0 / step});
        sleep_ms(2);
        switch (signals_take()) {
        case SIGNALS_SAVE: mark(job, "saved", rank); break;
        case SIGNALS_STOP: mark(job, "stopped", rank); return LAUNCH_STOPPED;
        case SIGNALS_LEAVE: mark(job, "left", rank); return LAUNCH_LEFT;
        case SIGNALS_NONE: break;
        }
    }
}

static int ignore(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)err;
    events_set_step(events, 4);
    mark(job, "rank", rank);
    sleep_ms(60000);
    return 0;
}

static int exit_7(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    if (rank == 1) {
        events_set_step(events, 3);
        _exit(7);
    }
    return ignore(job, rank, events, err);
}

static int crash(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    if (rank == 1) {
        (void)signal(SIGSEGV,
                     SIG_DFL); /* a sanitizer's handler would turn it into an exit status */
        (void)raise(SIGSEGV);
    }
    return ignore(job, rank, events, err);
}

static int be_killed(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)job, (void)rank, (void)events, (void)err;
    return raise(SIGKILL);
}

static int fail(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    if (rank == 0) {
        return FAIL(err, ERR_DEVICE, "a peer of rank 0 was lost");
    }
    events_set_step(events, 5);
    mark(job, "rank", rank);
    sleep_ms(100);
    return FAIL(err, ERR_DIVERGED, "the loss is not finite at step %d", 6);
}

static int refuse(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)job, (void)rank, (void)events;
    return FAIL(err, ERR_NO_TOKENS, "the training file has 3 tokens");
}

/* Leaves a process in a session of its own, deaf to SIGTERM, that would live for a minute. */
static int leave_a_child(const struct job_folder *job, int rank, struct events *events,
                         struct err *err)
{
    if (fork() == 0) {
        (void)setsid();
        (void)prctl(PR_SET_PDEATHSIG, 0);
        (void)signal(SIGTERM, SIG_IGN);
        mark(job, "child", rank);
        sleep_ms(60000);
        _exit(0);
    }
    sleep_ms(100);
    return work(job, rank, events, err);
}

/* Rank 1 stays when rank 0 is done. */
static int stay(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    return rank == 0 ? 0 : ignore(job, rank, events, err);
}

/* Fills the disk after it has begun. */
static int fill(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    static char block[4096];
    char path[JOB_PATH_SIZE + 64];

    (void)rank;
    (void)snprintf(path, sizeof path, "%s/filler", job->dir);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) > 0) {
    }
    (void)close(fd);
    for (int i = 1; i <= 2000; i++) {
        events_metrics(events, &(struct metrics){.step = i, .loss = 1.0 / i});
    }
    return FAIL(err, ERR_DISK_FULL, "write model.safetensors: No space left on device");
}

static void make_job(void)
{
    fresh_make(dir);
    fresh_write(dir, "t.txt", "some text\n");
    fresh_write(dir, JOB_SPEC, SPEC);
}

/* Start a launcher as a careless parent would: signals blocked, SIGCHLD and SIGTERM ignored. */
static pid_t start(launch_step *prepare, launch_step *rank, int ranks, int grace_ms)
{
    const struct launch_steps steps = {
        .prepare = prepare, .rank = rank, .ranks = ranks, .grace_ms = grace_ms, .version = "test"};
    struct err err;
    sigset_t all;

    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)sigfillset(&all);
        (void)sigprocmask(SIG_BLOCK, &all, NULL);
        (void)signal(SIGCHLD, SIG_IGN);
        (void)signal(SIGTERM, SIG_IGN);
        const int rc = launch_run(dir, &steps, &err);
        _exit(rc == 0 ? 0 : err_exit((enum err_code)rc));
    }
    return pid;
}

static int wait_for(pid_t pid)
{
    int status = 0;

    EXPECT(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* The process that left the mark `name`; waits until it is there. */
static pid_t marked(const char *name)
{
    for (int i = 0; i < 1000; i++) {
        char *text = fresh_read(dir, name);
        const pid_t pid = (pid_t)strtol(text, NULL, 10);
        free(text);
        if (pid > 0) {
            return pid;
        }
        sleep_ms(5);
    }
    EXPECT(false);
    return 0;
}

static bool has_mark(const char *name)
{
    char *text = fresh_read(dir, name);
    const bool is_there = text[0] != '\0';

    free(text);
    return is_there;
}

static bool lives(pid_t pid)
{
    struct process p;

    return process_read(&p, pid) && p.state != 'Z';
}

static bool dies_within_ms(pid_t pid, int ms)
{
    for (int i = 0; i < ms / 5 && lives(pid); i++) {
        sleep_ms(5);
    }
    return !lives(pid);
}

static struct attempt_exit ended(int attempt)
{
    struct attempt_exit end;
    struct err err;

    if (attempt_exit_read(&end, dir, attempt, &err) != 0) {
        printf("# %s\n", err.text);
        EXPECT(false);
        end.status = ENDED_COUNT;
    }
    return end;
}

/* How many events of a type there are, and the last one's text or number `key` in *last. */
static int count_events(enum event_type type, const char *key, char last[400])
{
    struct event_reader *r;
    struct event e;
    enum event_found found;
    struct err err;
    int count = 0;

    EXPECT(event_reader_open(&r, dir, 0, &err) == 0);
    while (event_reader_next(r, &found, &e, &err) == 0 && found != EVENT_FOUND_NONE) {
        EXPECT(found == EVENT_FOUND);
        if (e.type == type) {
            const json_t *value = json_object_get(e.object, key);
            count++;
            (void)snprintf(last, 400, "%s%.0f",
                           json_is_string(value) ? json_string_value(value) : "",
                           json_number_value(value));
        }
    }
    event_reader_close(r);
    return count;
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        printf("# \"%s\" does not say \"%s\"\n", text, words);
        return false;
    }
    return true;
}

static void a_run_that_ends_well_is_recorded(void)
{
    char last[400];

    make_job();
    EXPECT(!job_is_alive(dir));
    EXPECT(wait_for(start(work, work, 2, 0)) == 0);
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_SUCCEEDED && end.step == 10 && end.error.code == ERR_NONE);
    EXPECT(end.exit == 0 && end.signal == 0 && end.rank == -1 && end.ended_at > 1.6e9);
    EXPECT(count_events(EVENT_STARTED, "version", last) == 1 && says(last, "test"));
    EXPECT(count_events(EVENT_METRICS, "step", last) == 20 && says(last, "10"));
    EXPECT(count_events(EVENT_ENDED, "status", last) == 1 && says(last, "succeeded"));
    EXPECT(!job_is_alive(dir) && job_pid_attempt(dir) == 1);
    char *log = fresh_read(dir, JOB_LOG);
    EXPECT(says(log, "rank 0 says hello") && says(log, "rank 1 says hello"));
    free(log);
    EXPECT(!has_mark("attempts/1/exit.json.part"));
    fresh_remove(dir);
}

static void the_next_run_is_the_next_attempt(void)
{
    make_job();
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(attempt_newest(dir) == 2 && ended(2).status == ENDED_SUCCEEDED);
    struct attempt_plan plan;
    struct err err;
    EXPECT(attempt_plan_read(&plan, dir, 2, &err) == 0 && says(plan.training, "/t.txt"));
    fresh_remove(dir);
}

static void a_rank_that_exits_without_a_reason_fails_the_run(void)
{
    char last[400];

    make_job();
    const int64_t begin = now_ms();
    EXPECT(wait_for(start(NULL, exit_7, 3, 0)) == err_exit(ERR_DEVICE));
    EXPECT(now_ms() - begin < 5000);
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.error.code == ERR_DEVICE && end.step == 4);
    EXPECT(end.rank == 1 && end.exit == 7 && end.signal == 0);
    EXPECT(says(end.error.text, "rank 1") && says(end.error.text, "status 7"));
    EXPECT(count_events(EVENT_ERROR, "code", last) == 1 && says(last, "worker_lost"));
    EXPECT(count_events(EVENT_ENDED, "status", last) == 1 && says(last, "failed"));
    EXPECT(!lives(marked("rank.0")) && !lives(marked("rank.2")));
    fresh_remove(dir);
}

static void a_rank_that_crashes_is_named_with_its_signal(void)
{
    make_job();
    EXPECT(wait_for(start(NULL, crash, 2, 0)) == err_exit(ERR_DEVICE));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.rank == 1 && end.signal == SIGSEGV && end.exit == -1);
    EXPECT(says(end.error.text, "rank 1") && says(end.error.text, "signal 11 (SIGSEGV)"));
    EXPECT(!lives(marked("rank.0")));
    fresh_remove(dir);
}

static void a_rank_that_is_killed_is_lost(void)
{
    make_job();
    EXPECT(wait_for(start(NULL, be_killed, 1, 0)) == err_exit(ERR_DEVICE));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.signal == SIGKILL && end.rank == 0);
    EXPECT(end.error.code == ERR_DEVICE && says(end.error.text, "signal 9"));
    fresh_remove(dir);
}

static void the_sentence_of_the_rank_that_knows_why_is_kept(void)
{
    char last[400];

    make_job();
    EXPECT(wait_for(start(NULL, fail, 2, 0)) == err_exit(ERR_DIVERGED));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.error.code == ERR_DIVERGED && end.step == 5);
    EXPECT(end.rank == 1 && end.exit == err_exit(ERR_DIVERGED));
    EXPECT(says(end.error.text, "not finite at step 6"));
    EXPECT(count_events(EVENT_ERROR, "message", last) == 1 && says(last, "not finite at step 6"));
    fresh_remove(dir);
}

static void a_failed_preparation_starts_no_rank(void)
{
    make_job();
    EXPECT(wait_for(start(refuse, work, 1, 0)) == err_exit(ERR_NO_TOKENS));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.error.code == ERR_NO_TOKENS && end.rank == -1);
    EXPECT(!has_mark("rank.0"));
    fresh_remove(dir);
}

static void signals_reach_all_ranks(void)
{
    char last[400];
    struct err err;

    make_job();
    const pid_t pid = start(NULL, obey, 2, 0);
    (void)marked("rank.0");
    (void)marked("rank.1");
    EXPECT(job_is_alive(dir));
    EXPECT(job_signal(dir, SIGUSR1, &err) == 0);
    (void)marked("saved.0");
    (void)marked("saved.1");
    EXPECT(job_is_alive(dir) && lives(marked("rank.0")));
    EXPECT(job_signal(dir, SIGTERM, &err) == 0);
    EXPECT(wait_for(pid) == 0);
    EXPECT(has_mark("stopped.0") && has_mark("stopped.1"));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_STOPPED && end.error.code == ERR_NONE && end.step > 0);
    EXPECT(count_events(EVENT_ENDED, "status", last) == 1 && says(last, "stopped"));
    EXPECT(job_signal(dir, SIGTERM, &err) == (int)ERR_NOT_FOUND);
    fresh_remove(dir);
}

static void sigint_leaves_without_saving(void)
{
    make_job();
    const pid_t pid = start(NULL, obey, 1, 0);
    (void)marked("rank.0");
    EXPECT(kill(pid, SIGINT) == 0 && wait_for(pid) == 0);
    EXPECT(has_mark("left.0") && !has_mark("stopped.0"));
    EXPECT(ended(1).status == ENDED_CANCELLED);
    fresh_remove(dir);
}

static void who_ignores_a_request_is_killed_after_the_grace_period(void)
{
    for (int i = 0; i < 2; i++) {
        make_job();
        const pid_t pid = start(NULL, ignore, 2, 300);
        (void)marked("rank.1");
        const pid_t rank = marked("rank.0");
        const int64_t begin = now_ms();
        EXPECT(kill(pid, i == 0 ? SIGTERM : SIGINT) == 0 && wait_for(pid) == 0);
        EXPECT(now_ms() - begin >= 290 && now_ms() - begin < 3000);
        const struct attempt_exit end = ended(1);
        EXPECT(end.status == (i == 0 ? ENDED_STOPPED : ENDED_CANCELLED) && end.step == 4);
        EXPECT(end.error.code == ERR_INTERRUPTED && end.signal == SIGKILL);
        EXPECT(!lives(rank));
        fresh_remove(dir);
    }
}

static void a_request_while_preparing_ends_it_at_once(void)
{
    const int requests[] = {SIGTERM, SIGINT};

    for (int i = 0; i < 2; i++) {
        make_job();
        const pid_t pid = start(ignore, work, 1, 0);
        (void)marked("rank.0");
        EXPECT(kill(pid, SIGUSR1) == 0); /* nothing to save: ignored */
        sleep_ms(50);
        EXPECT(kill(pid, requests[i]) == 0 && wait_for(pid) == 0);
        const struct attempt_exit end = ended(1);
        EXPECT(end.status == (i == 0 ? ENDED_STOPPED : ENDED_CANCELLED));
        EXPECT(end.error.code == ERR_NONE);
        fresh_remove(dir);
    }
}

static void a_rank_that_stays_when_the_others_are_done_fails_the_run(void)
{
    make_job();
    EXPECT(wait_for(start(NULL, stay, 2, 200)) == err_exit(ERR_DEVICE));
    const struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && end.rank == 1 && says(end.error.text, "rank 1"));
    fresh_remove(dir);
}

static void ranks_die_with_their_launcher_and_the_job_can_run_again(void)
{
    struct attempt_exit end;
    struct err err;

    make_job();
    const pid_t pid = start(NULL, ignore, 2, 0);
    const pid_t ranks[] = {marked("rank.0"), marked("rank.1")};
    EXPECT(kill(pid, SIGKILL) == 0 && wait_for(pid) == -SIGKILL);
    EXPECT(dies_within_ms(ranks[0], 1000) && dies_within_ms(ranks[1], 1000));
    EXPECT(!job_is_alive(dir));
    EXPECT(attempt_exit_read(&end, dir, 1, &err) == (int)ERR_NOT_FOUND); /* lost, and it shows */
    fresh_write(dir, "torn", "");
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(attempt_newest(dir) == 2 && ended(2).status == ENDED_SUCCEEDED);
    fresh_remove(dir);
}

static void what_a_rank_left_running_ends_with_the_run(void)
{
    make_job();
    EXPECT(wait_for(start(NULL, leave_a_child, 1, 0)) == 0);
    EXPECT(ended(1).status == ENDED_SUCCEEDED);
    EXPECT(!lives(marked("child.0")));
    fresh_remove(dir);
}

static void a_second_launcher_is_refused(void)
{
    make_job();
    const pid_t pid = start(NULL, obey, 1, 0);
    (void)marked("rank.0");
    EXPECT(wait_for(start(NULL, work, 1, 0)) == err_exit(ERR_BAD_STATE));
    EXPECT(job_is_alive(dir) && attempt_newest(dir) == 1);
    EXPECT(kill(pid, SIGTERM) == 0 && wait_for(pid) == 0);
    EXPECT(ended(1).status == ENDED_STOPPED);
    fresh_remove(dir);
}

/* One that was started for an attempt and came when it was over, or lost. */
static void a_late_launcher_starts_no_further_attempt(void)
{
    make_job();
    EXPECT(setenv("HONE_ATTEMPT", "1", 1) == 0);
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(wait_for(start(NULL, work, 1, 0)) == err_exit(ERR_BAD_STATE));
    EXPECT(attempt_newest(dir) == 1 && job_pid_attempt(dir) == 1);
    EXPECT(setenv("HONE_ATTEMPT", "2", 1) == 0);
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(job_pid_attempt(dir) == 2);
    EXPECT(unsetenv("HONE_ATTEMPT") == 0);
    fresh_remove(dir);
}

static void looking_at_the_lock_never_keeps_a_launcher_out(void)
{
    make_job();
    const pid_t looker = fork();
    if (looker == 0) {
        for (;;) {
            (void)job_is_alive(dir);
        }
    }
    for (int i = 0; i < 10; i++) {
        EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    }
    (void)kill(looker, SIGKILL);
    (void)wait_for(looker);
    fresh_remove(dir);
}

static void a_torn_last_line_is_gone_when_an_attempt_starts(void)
{
    char last[400];

    make_job();
    fresh_write(dir, JOB_EVENTS,
                "{\"t\":1,\"attempt\":1,\"type\":\"eval\",\"step\":1}\n{\"t\":2,\"att");
    EXPECT(wait_for(start(NULL, work, 1, 0)) == 0);
    EXPECT(count_events(EVENT_EVAL, "step", last) == 1);
    EXPECT(count_events(EVENT_STARTED, "pid", last) == 1);
    fresh_remove(dir);
}

static void a_request_that_cannot_run_is_recorded_as_failed(void)
{
    char last[400];

    make_job();
    fresh_write(dir, JOB_SPEC, "{\"request\":{\"max_stepps\":1}}");
    EXPECT(wait_for(start(NULL, work, 1, 0)) == err_exit(ERR_BAD_SPEC));
    struct attempt_exit end = ended(1);
    EXPECT(end.status == ENDED_FAILED && says(end.error.text, "max_stepps") && end.rank == -1);
    EXPECT(count_events(EVENT_ENDED, "status", last) == 1 && says(last, "failed"));
    fresh_write(dir, JOB_SPEC, "{\"request\":");
    EXPECT(wait_for(start(NULL, work, 1, 0)) == err_exit(ERR_BAD_FILE));
    end = ended(2);
    EXPECT(end.status == ENDED_FAILED && says(end.error.text, JOB_SPEC));
    EXPECT(!has_mark("rank.0"));
    fresh_remove(dir);
}

static void a_folder_without_a_job_is_left_alone(void)
{
    fresh_make(dir);
    EXPECT(wait_for(start(NULL, work, 1, 0)) == err_exit(ERR_NOT_FOUND));
    EXPECT(rmdir(dir) == 0); /* empty still */
}

static void signals_take_returns_the_strongest_once(void)
{
    make_job();
    const pid_t pid = fork();
    if (pid == 0) {
        signals_install();
        bool is_right = signals_take() == SIGNALS_NONE;
        (void)raise(SIGUSR1);
        (void)raise(SIGINT);
        (void)raise(SIGTERM);
        is_right = is_right && signals_peek() == SIGNALS_LEAVE && signals_take() == SIGNALS_LEAVE;
        is_right = is_right && signals_take() == SIGNALS_NONE;
        (void)raise(SIGUSR1);
        (void)raise(SIGTERM);
        is_right = is_right && signals_take() == SIGNALS_STOP && signals_peek() == SIGNALS_NONE;
        _exit(is_right ? 0 : 1);
    }
    EXPECT(wait_for(pid) == 0);
    fresh_remove(dir);
}

/* A handler's frame would be written below a stack register that a library has pointed elsewhere. */
static void signals_run_no_handler_in_a_rank(void)
{
    static const int heeded[] = {SIGUSR1, SIGTERM, SIGINT};

    make_job();
    const pid_t pid = fork();
    if (pid == 0) {
        bool is_right = true;
        (void)signal(SIGTERM, SIG_IGN);
        signals_install();
        for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++) {
            struct sigaction now = {0};
            sigset_t blocked;
            is_right = is_right && sigaction(heeded[i], NULL, &now) == 0 &&
                       now.sa_handler == SIG_DFL &&
                       pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 &&
                       sigismember(&blocked, heeded[i]) == 1;
        }
        (void)raise(SIGTERM);
        _exit(is_right && signals_take() == SIGNALS_STOP ? 0 : 1);
    }
    EXPECT(wait_for(pid) == 0);
    fresh_remove(dir);
}

/* In a child with a file system of its own, 512 KB large. 77: not allowed here. */
static int run_on_a_small_disk(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=512k") != 0) {
        return 77;
    }
    fresh_write(dir, "t.txt", "some text\n");
    fresh_write(dir, JOB_SPEC, SPEC);
    const int status = wait_for(start(NULL, fill, 1, 0));
    const struct attempt_exit end = ended(1);
    char last[400];
    bool is_right = status == err_exit(ERR_DISK_FULL) && end.status == ENDED_FAILED;
    is_right = is_right && end.error.code == ERR_DISK_FULL && end.step == 2000;
    /* Each line that is there is whole, though most were lost. */
    is_right = is_right && count_events(EVENT_STARTED, "pid", last) == 1;
    is_right = is_right && count_events(EVENT_METRICS, "step", last) < 2000;
    return is_right && tap_bad_here == 0 ? 0 : 1;
}

static void how_it_ended_is_told_on_a_full_disk(void)
{
    fresh_make(dir);
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        const int status = run_on_a_small_disk();
        (void)fflush(stdout);
        _exit(status);
    }
    const int status = wait_for(pid);
    EXPECT(status == 0 || status == 77);
    if (status == 77) {
        printf("# skip: a file system of one's own is not allowed here\n");
    }
    fresh_remove(dir);
}

static void a_process_with_the_jobs_mark_is_swept(void)
{
    char assignment[300];
    char name[] = "sleep", seconds[] = "60";
    char *const arguments[] = {name, seconds, NULL}, *const environment[] = {assignment, NULL};

    make_job();
    (void)snprintf(assignment, sizeof assignment, "HONE_JOB_DIR=%s", dir);
    const pid_t stray = fork();
    if (stray == 0) {
        (void)execve("/bin/sleep", arguments, environment);
        _exit(1);
    }
    for (int i = 0; i < 200 && !process_has_mark(stray, assignment); i++) {
        sleep_ms(5);
    }
    EXPECT(job_sweep("/nowhere") == 0 && lives(stray));
    EXPECT(job_sweep(dir) == 1);
    EXPECT(wait_for(stray) == -SIGKILL);
    EXPECT(job_sweep(dir) == 0);
    fresh_remove(dir);
}

static void a_number_that_was_used_again_gets_no_signal(void)
{
    struct process self;
    struct err err;
    char text[300], boot_id[BOOT_ID_SIZE];

    make_job();
    EXPECT(process_read(&self, getpid()) && self.parent == getppid() && self.state == 'R');
    process_boot_id(boot_id);
    const int64_t starts[] = {self.start_time + 1, self.start_time};
    const char *const boots[] = {boot_id, "another-boot"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text,
                       "{\"pid\":%d,\"start_time\":%lld,\"boot_id\":\"%s\",\"attempt\":1}",
                       (int)getpid(), (long long)starts[i], boots[i]);
        fresh_write(dir, JOB_PID, text);
        EXPECT(job_signal(dir, SIGKILL, &err) == (int)ERR_NOT_FOUND); /* or this test is over */
    }
    fresh_write(dir, JOB_PID, "{\"pid\":-1}");
    EXPECT(job_signal(dir, SIGKILL, &err) == (int)ERR_BAD_FILE);
    fresh_remove(dir);
}

int main(void)
{
    scratch_make();
    RUN(a_run_that_ends_well_is_recorded);
    RUN(the_next_run_is_the_next_attempt);
    RUN(a_rank_that_exits_without_a_reason_fails_the_run);
    RUN(a_rank_that_crashes_is_named_with_its_signal);
    RUN(a_rank_that_is_killed_is_lost);
    RUN(the_sentence_of_the_rank_that_knows_why_is_kept);
    RUN(a_failed_preparation_starts_no_rank);
    RUN(signals_reach_all_ranks);
    RUN(sigint_leaves_without_saving);
    RUN(who_ignores_a_request_is_killed_after_the_grace_period);
    RUN(a_request_while_preparing_ends_it_at_once);
    RUN(a_rank_that_stays_when_the_others_are_done_fails_the_run);
    RUN(ranks_die_with_their_launcher_and_the_job_can_run_again);
    RUN(what_a_rank_left_running_ends_with_the_run);
    RUN(a_second_launcher_is_refused);
    RUN(a_late_launcher_starts_no_further_attempt);
    RUN(looking_at_the_lock_never_keeps_a_launcher_out);
    RUN(a_torn_last_line_is_gone_when_an_attempt_starts);
    RUN(a_request_that_cannot_run_is_recorded_as_failed);
    RUN(a_folder_without_a_job_is_left_alone);
    RUN(signals_take_returns_the_strongest_once);
    RUN(signals_run_no_handler_in_a_rank);
    RUN(how_it_ended_is_told_on_a_full_disk);
    RUN(a_process_with_the_jobs_mark_is_swept);
    RUN(a_number_that_was_used_again_gets_no_signal);
    scratch_remove();
    return tap_done();
}
