/* test_launch_machine.c - the launcher and the machine: memory that ran out, cores, nodes, control groups, and
 * children that do what they can to stay. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/fresh.h"
#include "tests/tap.h"
#include "trainer/base/json.h"
#include "trainer/exhaustion.h"
#include "trainer/group.h"
#include "trainer/launch.h"
#include "trainer/process.h"
#include "trainer/signals.h"

#define SPEC                                                                            \
    "{\"id\":\"job-1\",\"owner\":\"u\",\"created_at\":1.5,\"request\":{\"name\":\"x\"," \
    "\"training_file\":\"t.txt\",\"config\":{},\"tokenizer_vocab_size\":300}}"
#define PLENTY "MemTotal: 1000000 kB\nMemAvailable:  524288 kB\n"

static char dir[256];
static struct attempt_plan plan;

static void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static void make_job(void)
{
    fresh_make(dir);
    fresh_write(dir, "t.txt", "some text\n");
    fresh_write(dir, JOB_SPEC, SPEC);
    char path[300];
    (void)snprintf(path, sizeof path, "%s/proc", dir);
    EXPECT(mkdir(path, 0700) == 0);
    fresh_write(dir, "proc/meminfo", PLENTY);
    fresh_write(dir, "proc/vmstat", "pgfault 8\noom_kill 3\n");
    plan = (struct attempt_plan){.attempt = 1, .memory_node = -1, .memory_bytes = 3LL << 29};
    (void)snprintf(plan.training, sizeof plan.training, "%s/t.txt", dir);
}

static pid_t start(launch_step *rank, int grace_ms)
{
    const struct launch_steps steps = {
        .rank = rank, .ranks = 1, .grace_ms = grace_ms, .version = "test", .root = dir};
    struct err err = {0};

    EXPECT(attempt_plan_write(dir, &plan, &err) == 0);
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
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

static struct attempt_exit ended(void)
{
    struct attempt_exit end = {.status = ENDED_COUNT};
    struct err err = {0};

    EXPECT(attempt_exit_read(&end, dir, 1, &err) == 0);
    return end;
}

static bool says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        printf("# \"%s\" does not say \"%s\"\n", text, words);
        return false;
    }
    return true;
}

static void mark(const struct job_folder *job, const char *name)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%d", (int)getpid());
    fresh_write(job->dir, name, text);
}

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
    EXPECT_UNREACHED("a mark");
    return 0;
}

static bool lives(pid_t pid)
{
    struct process p;

    return process_read(&p, pid) && p.state != 'Z';
}

/* Holds 40 MB and is killed. */
static int be_killed(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    const size_t bytes = (size_t)40 << 20;
    volatile char *memory = malloc(bytes);

    (void)job, (void)rank, (void)events, (void)err;
    for (size_t i = 0; memory != NULL && i < bytes; i += 4096) {
        memory[i] = 1;
    }
    return raise(SIGKILL);
}

static int be_killed_for_memory(const struct job_folder *job, int rank, struct events *events,
                                struct err *err)
{
    fresh_write(job->dir, "proc/vmstat", "pgfault 9\noom_kill 4\n");
    return be_killed(job, rank, events, err);
}

static int be_killed_without_memory(const struct job_folder *job, int rank, struct events *events,
                                    struct err *err)
{
    fresh_write(job->dir, "proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 52428 kB\n");
    return be_killed(job, rank, events, err);
}

static int find_no_memory(const struct job_folder *job, int rank, struct events *events,
                          struct err *err)
{
    (void)job, (void)rank, (void)events;
    return FAIL(err, ERR_NO_MEMORY, "no memory for the model");
}

static void a_kill_without_evidence_is_a_lost_worker(void)
{
    make_job();
    EXPECT(wait_for(start(be_killed, 0)) == err_exit(ERR_DEVICE));
    const struct attempt_exit end = ended();
    EXPECT(end.status == ENDED_FAILED && end.error.code == ERR_DEVICE && end.signal == SIGKILL);
    EXPECT(says(end.error.text, "rank 0 was killed (signal 9, SIGKILL) by somebody outside Hone"));
    EXPECT(end.planned_bytes == 3LL << 29 && end.peak_bytes > 40LL << 20);
    fresh_remove(dir);
}

static void a_kill_for_memory_says_both_numbers(void)
{
    launch_step *const ways[] = {be_killed_for_memory, be_killed_without_memory};

    for (int i = 0; i < 2; i++) {
        make_job();
        EXPECT(wait_for(start(ways[i], 0)) == err_exit(ERR_NO_MEMORY));
        const struct attempt_exit end = ended();
        EXPECT(end.error.code == ERR_NO_MEMORY && end.signal == SIGKILL && end.rank == 0);
        EXPECT(says(end.error.text, "because the machine ran out of memory; 1.50 GiB were planned; "
                                    "it held 0."));
        EXPECT(says(end.error.text, i == 0 ? "and 0.50 GiB of the machine were free"
                                           : "and 0.05 GiB of the machine were free"));
        fresh_remove(dir);
    }
}

static void a_rank_that_finds_no_memory_says_both_numbers_too(void)
{
    make_job();
    EXPECT(wait_for(start(find_no_memory, 0)) == err_exit(ERR_NO_MEMORY));
    EXPECT(says(ended().error.text, "no memory for the model; 1.50 GiB were planned; it held 0."));
    fresh_remove(dir);
}

/* The counters of ten looks: what was killed before does not count. */
static void old_kills_are_no_evidence(void)
{
    struct exhaustion x;

    make_job();
    exhaustion_begin(&x, dir, "");
    EXPECT(!exhaustion_found(&x) && exhaustion_free(&x) == 512LL << 20);
    fresh_write(dir, "proc/vmstat", "oom_kill 4\n");
    EXPECT(exhaustion_found(&x));
    for (int i = 0; i < EXHAUSTION_LOOKS; i++) {
        exhaustion_look(&x);
    }
    EXPECT(!exhaustion_found(&x));
    for (int i = 0; i < EXHAUSTION_LOOKS; i++) {
        char text[40];
        (void)snprintf(text, sizeof text, "oom_kill %d\n", 5 + i);
        fresh_write(dir, "proc/vmstat", text);
        EXPECT(exhaustion_found(&x));
    }
    for (int i = 0; i < EXHAUSTION_LOOKS; i++) {
        exhaustion_look(&x);
    }
    EXPECT(!exhaustion_found(&x));
    fresh_write(dir, "proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 70000 kB\n");
    EXPECT(exhaustion_found(&x) == (70000 < 65536) && exhaustion_free(&x) == 70000LL << 10);
    fresh_write(dir, "proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 60000 kB\n");
    exhaustion_look(&x);
    fresh_write(dir, "proc/meminfo", PLENTY);
    EXPECT(exhaustion_found(&x) && exhaustion_free(&x) == 60000LL << 10);
    for (int i = 0; i < 25; i++) {
        exhaustion_look(&x);
    }
    EXPECT(!exhaustion_found(&x) && x.looks < 2 * EXHAUSTION_LOOKS);
    fresh_write(dir, "proc/vmstat", "oom_killer 9\n");
    fresh_write(dir, "proc/meminfo", "");
    for (int i = 0; i < EXHAUSTION_LOOKS; i++) {
        exhaustion_look(&x);
    }
    EXPECT(!exhaustion_found(&x) && exhaustion_free(&x) == -1);
    fresh_remove(dir);
}

/* 2 when it runs on core plan->cores[0] alone and, where that may be, prefers memory node 0. */
static int look_around(const struct job_folder *job, int rank, struct events *events,
                       struct err *err)
{
    cpu_set_t set;
    int mode = -1;

    (void)rank, (void)err;
    CPU_ZERO(&set);
    const bool is_bound = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
                          CPU_ISSET((size_t)job->plan.cores[0], &set);
    char *log = fresh_read(job->dir, JOB_LOG);
    const bool may_prefer = strstr(log, "memory node 0") == NULL;
    free(log);
    if (may_prefer && syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) == 0) {
        events_set_step(events, is_bound && mode == 1 ? 2 : 1);
    } else {
        events_set_step(events, is_bound ? 2 : 1);
    }
    return 0;
}

static void a_rank_runs_on_the_cores_and_the_node_of_its_plan(void)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    EXPECT(sched_getaffinity(0, sizeof set, &set) == 0);
    make_job();
    while (plan.cores[0] < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)plan.cores[0], &set)) {
        plan.cores[0]++;
    }
    plan.cores[1] = 1000; /* which this machine lacks, most likely */
    plan.core_count = 2;
    plan.memory_node = 0;
    EXPECT(wait_for(start(look_around, 0)) == 0);
    EXPECT(ended().step == 2);
    fresh_remove(dir);
}

static void cores_that_are_not_there_leave_the_rank_unbound(void)
{
    make_job();
    plan.cores[0] = 1000;
    plan.core_count = 1;
    EXPECT(wait_for(start(look_around, 0)) == 0);
    char *log = fresh_read(dir, JOB_LOG);
    EXPECT(ended().step == 1 && says(log, "hone: not bound to its 1 cores"));
    free(log);
    fresh_remove(dir);
}

/* A child of a child in a session of its own, deaf, without descriptors: tells its number and stays. */
static void hide(const struct job_folder *job, const char *name)
{
    if (fork() != 0) {
        return;
    }
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, 0);
    if (fork() != 0) {
        _exit(0);
    }
    for (int s = 1; s < 32; s++) {
        (void)signal(s, SIG_IGN);
    }
    mark(job, name);
    (void)close_range(0, ~0U, 0);
    sleep_ms(60000);
    _exit(0);
}

static int hide_many(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)rank, (void)events, (void)err;
    hide(job, "first");
    hide(job, "second");
    hide(job, "third");
    (void)signal(SIGINT, SIG_IGN);
    mark(job, "rank");
    sleep_ms(60000);
    return 0;
}

static void nothing_survives_a_cancel(void)
{
    const char *const names[] = {"first", "second", "third", "rank"};
    pid_t pids[4];

    make_job();
    const pid_t pid = start(hide_many, 200);
    for (int i = 0; i < 4; i++) {
        pids[i] = marked(names[i]);
    }
    EXPECT(kill(pid, SIGINT) == 0 && wait_for(pid) == 0);
    EXPECT(ended().status == ENDED_CANCELLED && !job_is_alive(dir));
    for (int i = 0; i < 4; i++) {
        EXPECT(!lives(pids[i]));
    }
    fresh_remove(dir);
}

/* The group that the pid file names; "" for none. */
static void read_group(char out[GROUP_PATH])
{
    char *text = fresh_read(dir, JOB_PID);
    json_t *file = json_loads(text, 0, NULL);
    const char *group = json_string_value(json_object_get(file, "group"));

    (void)snprintf(out, GROUP_PATH, "%s", group == NULL ? "" : group);
    json_decref(file);
    free(text);
}

static void what_a_killed_launcher_left_is_swept_by_its_group(void)
{
    char group[GROUP_PATH];

    make_job();
    const pid_t pid = start(hide_many, 200);
    (void)marked("rank");
    const pid_t hidden[] = {marked("first"), marked("second"), marked("third")};
    read_group(group);
    EXPECT(kill(pid, SIGKILL) == 0 && wait_for(pid) == -SIGKILL);
    if (group[0] != '\0') {
        EXPECT(access(group, F_OK) == 0 && lives(hidden[0]));
        EXPECT(job_sweep(dir) >= 3);
        EXPECT(access(group, F_OK) != 0 && job_sweep(dir) == 0);
    } else {
        printf("# skip: no control groups here\n");
    }
    for (int i = 0; i < 3; i++) {
        EXPECT(group[0] == '\0' || !lives(hidden[i]));
        (void)kill(hidden[i], SIGKILL);
    }
    fresh_remove(dir);
}

static int leave(const struct job_folder *job, int rank, struct events *events, struct err *err)
{
    (void)rank, (void)events, (void)err;
    hide(job, "first");
    return 0;
}

static void the_group_goes_with_the_run(void)
{
    char group[GROUP_PATH];

    make_job();
    EXPECT(wait_for(start(leave, 0)) == 0);
    read_group(group);
    EXPECT(group[0] == '\0' || access(group, F_OK) != 0);
    fresh_remove(dir);
}

/* A pid file may be anything: only groups of this module are killed or removed. */
static void other_groups_are_left_alone(void)
{
    EXPECT(group_kill("") == 0 && group_kill("/") == 0 && group_remove("/sys/fs/cgroup"));
    EXPECT(group_kill("/tmp/hone-x-1-1") == 0);
    EXPECT(group_kill("/sys/fs/cgroup/../../tmp/hone-x-1-1") == 0);
    EXPECT(group_memory_kills("") == -1 && !group_join(""));
    make_job();
    char path[300];
    (void)snprintf(path, sizeof path, "%s/hone-x-1-1", dir);
    EXPECT(mkdir(path, 0700) == 0 && group_remove(path) && access(path, F_OK) == 0);
    fresh_remove(dir);
}

int main(void)
{
    scratch_make();
    RUN(a_kill_without_evidence_is_a_lost_worker);
    RUN(a_kill_for_memory_says_both_numbers);
    RUN(a_rank_that_finds_no_memory_says_both_numbers_too);
    RUN(old_kills_are_no_evidence);
    RUN(a_rank_runs_on_the_cores_and_the_node_of_its_plan);
    RUN(cores_that_are_not_there_leave_the_rank_unbound);
    RUN(nothing_survives_a_cancel);
    RUN(what_a_killed_launcher_left_is_swept_by_its_group);
    RUN(the_group_goes_with_the_run);
    RUN(other_groups_are_left_alone);
    scratch_remove();
    return tap_done();
}
