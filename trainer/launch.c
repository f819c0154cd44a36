/* launch.c - forks, watches, ends and buries the processes of one attempt.
 *
 * Each child has a row in memory shared with the launcher, where it leaves its last step while
 * it works and its outcome when it returns. So a child that dies of anything has said how far it
 * came, and nothing has to be read from a pipe that a crash may have left half full. */
#include "trainer/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "trainer/base/io.h"
#include "trainer/bind.h"
#include "trainer/exhaustion.h"
#include "trainer/group.h"
#include "trainer/plan.h"
#include "trainer/process.h"
#include "trainer/ranks.h"
#include "trainer/signals.h"

enum {
    GRACE_MS = 120000,    /* from a request to SIGKILL                                       */
    PEERS_MS = 2000,      /* what the others get when a rank has failed                      */
    PEER_MS = 1800000,    /* how long ranks wait for one that hangs                          */
    BURIAL_TRIES = 100,   /* looks at descendants that do not die                            */
    BURIAL_PAUSE_MS = 20, /* between them                                                    */
    OUT_OF_MEMORY = 128 + SIGKILL, /* how a shell reports a child that was killed              */
};
static const int64_t NEVER = INT64_MAX;

/* What a child tells, in shared memory. */
struct report {
    int64_t step;
    bool has_returned;
    int outcome; /* of its launch_step */
    struct err err;
};

struct launcher {
    const struct launch_steps *steps;
    struct job_folder job;
    struct events *events;    /* owned                                               */
    struct report *reports;   /* owned; shared with the children, one for each rank  */
    pid_t *pids;              /* owned; one for each rank, 0 when it does not run    */
    pid_t self, group;        /* group: process group of the children                */
    char control[GROUP_PATH]; /* control group of the children; "": none           */
    struct exhaustion memory;
    int64_t peak, end_peak; /* bytes that the child that ended last held at most, and any of them */
    int lock, log, signals; /* descriptors                                         */
    int ranks;
    int alive; /* children that run                                   */
    bool is_preparing;
    enum signals_request asked; /* STOP or LEAVE, else NONE                          */
    bool was_killed;            /* SIGKILL was sent                                  */
    int64_t kill_at_ms;         /* when it is to be sent                             */
    int outcome;                /* lowest of those that returned well                */
    bool has_failed;            /* then `end` says how                               */
    struct attempt_exit end;
};

static int64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void set_kill(struct launcher *l, int64_t after_ms)
{
    const int64_t at = now_ms() + after_ms;

    l->kill_at_ms = at < l->kill_at_ms ? at : l->kill_at_ms;
}

static int grace_ms(const struct launcher *l)
{
    return l->steps->grace_ms > 0 ? l->steps->grace_ms : GRACE_MS;
}

/* The process becomes a launcher. Signals that it heeds are blocked and come through *fd. */
static int become_launcher(int *fd, struct err *err)
{
    static const int heeded[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD};
    static const int ignored[] = {SIGPIPE, SIGHUP, SIGXFSZ};
    const struct rlimit none = {0, 0};
    sigset_t set;

    (void)close_range(3, ~0U, 0);
    (void)setsid(); /* fails for a leader, who has what it wants already or sits at a terminal */
    (void)umask(077);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof heeded / sizeof heeded[0]; i++) {
        (void)sigaddset(&set, heeded[i]);
    }
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    for (size_t i = 0; i < sizeof heeded / sizeof heeded[0]; i++) {
        (void)signal(heeded[i], SIG_DFL);
    }
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        (void)signal(ignored[i], SIG_IGN);
    }
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        return FAIL(err, ERR_IO, "become a subreaper: %s", strerror(errno));
    }
    *fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd >= 0 ? 0 : FAIL(err, ERR_IO, "signalfd: %s", strerror(errno));
}

/* stdin from nowhere, stdout and stderr to log.txt, line by line. */
static void redirect(int log)
{
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

    (void)dup2(nothing, STDIN_FILENO);
    (void)dup2(log, STDOUT_FILENO);
    (void)dup2(log, STDERR_FILENO);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
}

/* When memory runs out, a rank goes before the launcher and the server. */
static void offer_to_oom_killer(void)
{
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!write(fd, "500", 3);
        (void)close(fd);
    }
}

static void heed_signals(bool is_preparing)
{
    sigset_t none;

    if (!is_preparing) {
        signals_install();
        return;
    }
    (void)signal(SIGUSR1, SIG_IGN);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The child's life. The lock stays open in it: as long as a rank lives, nobody else may start. */
static _Noreturn void be_child(struct launcher *l, launch_step *step, int rank)
{
    struct report *report = &l->reports[rank];
    struct events *events = NULL;
    char name[16];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != l->self) {
        _exit(err_exit(ERR_INTERRUPTED)); /* the launcher died before it could be told about */
    }
    (void)setpgid(0, l->group);
    (void)snprintf(name, sizeof name, l->is_preparing ? "hone prepare" : "hone rank %d", rank);
    (void)prctl(PR_SET_NAME, name);
    (void)group_join(l->control);
    redirect(l->log);
    bind_process(&l->job.plan, l->is_preparing ? -1 : rank);
    offer_to_oom_killer();
    heed_signals(l->is_preparing);

    int outcome = events_open(&events, l->job.dir, l->job.attempt, rank != 0, &report->err);
    if (outcome == 0) {
        events_keep_step(events, &report->step);
        outcome = step(&l->job, rank, events, &report->err);
    }
    CHECK(outcome >= LAUNCH_LEFT && outcome < ERR_COUNT, "a step returned %d", outcome);
    if (outcome > 0) {
        report->err.code = (enum err_code)outcome;
    }
    events_close(events);
    (void)fflush(NULL);
    report->outcome = outcome;
    report->has_returned = true;
    _exit(outcome > 0 ? err_exit((enum err_code)outcome) : 0);
}

/* SIGKILL reaches their whole group, what they started included; other signals only the ranks,
 * since others would not know what they mean. */
static void signal_children(struct launcher *l, int signal)
{
    for (int i = 0; i < l->ranks; i++) {
        if (l->pids[i] > 0) {
            (void)kill(l->pids[i], signal);
        }
    }
    if (signal == SIGKILL) {
        if (l->group > 0) {
            (void)kill(-l->group, SIGKILL);
        }
        (void)group_kill(l->control);
        l->was_killed = true;
        l->kill_at_ms = NEVER;
    }
}

static int fork_children(struct launcher *l, launch_step *step, int count, struct err *err)
{
    l->group = 0;
    for (int i = 0; i < count; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            be_child(l, step, i);
        }
        if (pid < 0) {
            const int number = errno;
            signal_children(l, SIGKILL);
            return FAIL(err, ERR_NO_MEMORY, "start rank %d: %s", i, strerror(number));
        }
        l->group = l->group > 0 ? l->group : pid;
        (void)setpgid(pid, l->group); /* here too: whoever is first */
        l->pids[i] = pid;
        l->alive++;
    }
    return 0;
}

/* A request to end: told to the children, with a time by which they are gone. */
static void ask(struct launcher *l, enum signals_request request)
{
    if (request == SIGNALS_SAVE) {
        signal_children(l, SIGUSR1);
        return;
    }
    l->asked = request > l->asked ? request : l->asked;
    signal_children(l, request == SIGNALS_STOP ? SIGTERM : SIGINT);
    set_kill(l, grace_ms(l));
}

static void read_signals(struct launcher *l)
{
    struct signalfd_siginfo got;

    while (read(l->signals, &got, sizeof got) == (ssize_t)sizeof got) {
        switch (got.ssi_signo) {
        case SIGUSR1: ask(l, SIGNALS_SAVE); break;
        case SIGTERM: ask(l, SIGNALS_STOP); break;
        case SIGINT: ask(l, SIGNALS_LEAVE); break;
        default: break; /* SIGCHLD: the caller looks anyway */
        }
    }
}

/* Of each rank. */
static int64_t planned_bytes(const struct launcher *l)
{
    return l->job.plan.memory_bytes / l->ranks;
}

/* What was planned and what was seen, as the end of a sentence. */
static void memory_text(char *out, size_t size, const struct launcher *l)
{
    const int64_t left = exhaustion_free(&l->memory), planned = planned_bytes(l);
    const double gib = 0x1p30;
    int n = 0;

    out[0] = '\0';
    if (planned > 0) {
        n = snprintf(out, size, "; %.2f GiB were planned", (double)planned / gib);
    }
    n += snprintf(out + n, size - (size_t)n, "; it held %.2f GiB at most", (double)l->peak / gib);
    if (left >= 0) {
        (void)snprintf(out + n, size - (size_t)n, " and %.2f GiB of the machine were free",
                       (double)left / gib);
    }
}

static void explain_kill(struct launcher *l, const char *who, struct err *out)
{
    char memory[160];

    if (!exhaustion_found(&l->memory)) {
        err_set(out, ERR_DEVICE,
                "%s was killed (signal %d, SIGKILL) by somebody outside Hone: the machine had not "
                "run out of memory",
                who, SIGKILL);
        return;
    }
    memory_text(memory, sizeof memory, l);
    err_set(out, ERR_NO_MEMORY,
            "%s was killed (signal %d, SIGKILL) because the machine ran out of memory%s", who,
            SIGKILL, memory);
}

/* What a rank said itself, and which one where that is not the first. */
static void quote(struct launcher *l, int rank, struct err *out)
{
    const struct err *said = &l->reports[rank].err;
    char memory[160] = "", who[32] = "";

    if (said->code == ERR_NO_MEMORY) {
        memory_text(memory, sizeof memory, l);
    }
    if (!l->is_preparing && rank > 0 && said->code != ERR_DEVICE) {
        (void)snprintf(who, sizeof who, "rank %d: ", rank);
    }
    err_set(out, said->code, "%s%.*s%s", who, memory[0] != '\0' ? 240 : 400, said->text, memory);
    err_about(out, said->param);
}

/* Why a child ended that did not return well. */
static void explain(struct launcher *l, int rank, int status, struct attempt_exit *end)
{
    const struct report *report = &l->reports[rank];
    char who[32];

    (void)snprintf(who, sizeof who, l->is_preparing ? "the preparation" : "rank %d", rank);
    end->rank = l->is_preparing ? -1 : rank;
    end->exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (end->signal == SIGKILL || end->exit == OUT_OF_MEMORY) {
        explain_kill(l, who, &end->error);
    } else if (end->signal != 0) {
        const char *name = sigabbrev_np(end->signal);
        err_set(&end->error, ERR_DEVICE, "%s was ended by signal %d (SIG%s); see log.txt", who,
                end->signal, name == NULL ? "?" : name);
    } else if (report->err.code != ERR_NONE) {
        quote(l, rank, &end->error);
    } else {
        err_set(&end->error, ERR_DEVICE, "%s ended with status %d without a reason; see log.txt",
                who, end->exit);
    }
}

/* Of several failures the first counts, but "a peer was lost" gives way to what the peer says itself, and of ranks that fail
 * together the lowest speaks. */
static void note_failure(struct launcher *l, int rank, int status)
{
    struct attempt_exit end = {0};

    explain(l, rank, status, &end);
    const bool is_echo = l->has_failed && l->end.signal == 0 && l->end.error.code == ERR_DEVICE &&
                         end.signal == 0 && end.error.code != ERR_DEVICE;
    const bool is_same = l->has_failed && end.error.code == l->end.error.code &&
                         end.error.code != ERR_DEVICE && rank < l->end.rank;
    if (!l->has_failed || is_echo || is_same) {
        l->end = end;
    }
    l->has_failed = true;
    if (l->job.ranks.shm != NULL && !l->is_preparing) {
        shm_mark_lost(l->job.ranks.shm, rank);
    }
    if (l->alive > 0) {
        set_kill(l, PEERS_MS);
    }
}

static void note_end(struct launcher *l, int rank, int status)
{
    const struct report *report = &l->reports[rank];
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    l->pids[rank] = 0;
    l->alive--;
    if (l->was_killed && signal == SIGKILL) {
        if (!l->has_failed && l->end.signal == 0) {
            l->end.signal = SIGKILL;
            l->end.rank = l->is_preparing ? -1 : rank;
            l->end.exit = -1;
        }
    } else if (l->is_preparing && l->asked != SIGNALS_NONE &&
               (signal == SIGTERM || signal == SIGINT)) {
        l->outcome = LAUNCH_STOPPED;
    } else if (signal == 0 && report->has_returned && report->outcome <= 0) {
        l->outcome = report->outcome < l->outcome ? report->outcome : l->outcome;
        if (l->alive > 0) {
            set_kill(l, grace_ms(l));
        }
    } else {
        note_failure(l, rank, status);
    }
}

static void reap(struct launcher *l)
{
    struct rusage used;
    int status;

    for (pid_t pid = wait4(-1, &status, WNOHANG, &used); pid > 0;
         pid = wait4(-1, &status, WNOHANG, &used)) {
        l->peak = (int64_t)used.ru_maxrss << 10;
        for (int i = 0; i < l->ranks; i++) {
            if (l->pids[i] == pid) {
                l->end_peak = l->peak > l->end_peak ? l->peak : l->end_peak;
                note_end(l, i, status);
                break;
            }
        }
    }
}

/* Until all children have ended. */
static void watch(struct launcher *l)
{
    while (l->alive > 0) {
        struct pollfd wait = {.fd = l->signals, .events = POLLIN};
        const int64_t left = l->kill_at_ms == NEVER ? -1 : l->kill_at_ms - now_ms();
        const int64_t timeout = left < 0 && l->kill_at_ms != NEVER ? 0 : left;

        (void)poll(&wait, 1,
                   timeout < 0 || timeout > EXHAUSTION_PAUSE_MS ? EXHAUSTION_PAUSE_MS
                                                                : (int)timeout);
        exhaustion_look(&l->memory);
        read_signals(l);
        reap(l);
        if (l->alive > 0 && l->kill_at_ms <= now_ms()) {
            signal_children(l, SIGKILL);
        }
    }
}

static int kill_child_of(const struct process *p, void *context)
{
    const pid_t *parent = context;

    if (p->parent == *parent && p->state != 'Z') {
        (void)kill(p->pid, SIGKILL);
        return 1;
    }
    return 0;
}

/* What ranks started and left behind has come to the launcher, their subreaper: it ends with the
 * ranks. */
static void bury(struct launcher *l)
{
    const struct timespec pause = {.tv_nsec = BURIAL_PAUSE_MS * 1000000L};
    int status;

    for (int i = 0; i < BURIAL_TRIES; i++) {
        pid_t pid;
        (void)group_kill(l->control);
        do {
            pid = waitpid(-1, &status, WNOHANG);
        } while (pid > 0);
        if (pid < 0) {
            return; /* ECHILD: nobody is left */
        }
        (void)process_each(kill_child_of, &l->self);
        (void)nanosleep(&pause, NULL);
    }
    (void)dprintf(l->log, "hone: a process that a rank started does not die\n");
}

/* Run one step in `count` children. Whether to go on is in l->has_failed, outcome, asked and
 * was_killed. */
static void run_children(struct launcher *l, launch_step *step, int count)
{
    struct err err;

    read_signals(l);
    if (l->asked != SIGNALS_NONE) {
        l->outcome = LAUNCH_STOPPED;
        return;
    }
    l->kill_at_ms = NEVER;
    (void)fflush(NULL);
    const int rc = fork_children(l, step, count, &err);
    watch(l);
    bury(l);
    if (rc != 0) {
        l->has_failed = true;
        l->end = (struct attempt_exit){.error = err, .exit = -1, .rank = -1};
    }
}

/* The verdict. Whoever was told to leave is cancelled, however clumsily it left. */
static void decide(struct launcher *l)
{
    struct attempt_exit *end = &l->end;

    end->ended_at = now();
    end->planned_bytes = planned_bytes(l);
    end->peak_bytes = l->end_peak;
    for (int i = 0; i < l->ranks; i++) {
        end->step = l->reports[i].step > end->step ? l->reports[i].step : end->step;
    }
    if (l->has_failed) {
        end->status = l->asked == SIGNALS_LEAVE ? ENDED_CANCELLED : ENDED_FAILED;
    } else if (l->was_killed && l->asked != SIGNALS_NONE) {
        end->status = l->asked == SIGNALS_LEAVE ? ENDED_CANCELLED : ENDED_STOPPED;
        err_set(&end->error, ERR_INTERRUPTED,
                "the run was asked to %s, did not within %g s, and was killed",
                l->asked == SIGNALS_LEAVE ? "leave" : "save and leave", grace_ms(l) / 1000.0);
    } else if (l->was_killed) {
        end->status = ENDED_FAILED;
        err_set(&end->error, ERR_DEVICE, "rank %d did not end when the others had, and was killed",
                end->rank);
    } else if (l->asked == SIGNALS_LEAVE && l->outcome != 0) {
        end->status = ENDED_CANCELLED;
    } else {
        end->status = l->outcome == 0             ? ENDED_SUCCEEDED
                      : l->outcome == LAUNCH_LEFT ? ENDED_CANCELLED
                                                  : ENDED_STOPPED;
    }
}

/* Tell the end to all who read: the log, the events, and last of all exit.json. */
static int record(struct launcher *l, struct err *err)
{
    const struct attempt_exit *end = &l->end;

    if (end->error.code != ERR_NONE) {
        (void)dprintf(l->log, "hone: %s\n", end->error.text);
    }
    if (l->events != NULL) {
        if (end->error.code != ERR_NONE) {
            events_error(l->events, &end->error);
        }
        events_send(l->events, EVENT_ENDED,
                    json_pack("{s:s, s:I}", "status", ended_word(end->status), "step",
                              (json_int_t)end->step));
    }
    TRY(attempt_exit_write(l->job.dir, l->job.attempt, end, err));
    if (end->status == ENDED_FAILED) {
        *err = end->error;
        return (int)end->error.code;
    }
    return 0;
}

static void run_attempt(struct launcher *l)
{
    const struct attempt_plan *plan = &l->job.plan;

    events_send(l->events, EVENT_STARTED,
                json_pack("{s:i, s:s, s:s, s:i}", "pid", (int)l->self, "version", l->steps->version,
                          "isa", plan->isa, "threads", plan->threads));
    l->reports[0].step = job_latest_step(l->job.dir);
    if (l->steps->prepare != NULL) {
        l->is_preparing = true;
        run_children(l, l->steps->prepare, 1);
        l->is_preparing = false;
    }
    if (l->has_failed || l->was_killed || l->outcome != 0) {
        return;
    }
    l->reports[0].has_returned = false;
    run_children(l, l->steps->rank, l->ranks);
}

/* Through which ranks exchange tensors; the launcher tells there who was lost. */
static int share_memory(struct launcher *l, struct err *err)
{
    if (l->steps->ranks > 0 || l->ranks == 1) {
        return 0;
    }
    const struct mesh_sizes mesh = plan_mesh(&l->job.spec);
    const struct shm_sizes sizes = ranks_shm(&mesh);
    return shm_make(&l->job.ranks.shm, &sizes, err);
}

/* Everything that an attempt needs before its first process. Errors are its end. */
static int prepare_attempt(struct launcher *l, struct err *err)
{
    char path[JOB_PATH_SIZE];

    l->reports[0].step = job_latest_step(l->job.dir);
    TRY(io_join(path, sizeof path, l->job.dir, JOB_LOG, err));
    l->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->log < 0) {
        const int number = errno;
        return IO_FAIL(err, number, "open %s: %s", path, strerror(number));
    }
    TRY(events_cut_torn_line(l->job.dir, err));
    TRY(events_open(&l->events, l->job.dir, l->job.attempt, false, err));
    TRY(attempt_exit_reserve(l->job.dir, l->job.attempt, err));
    TRY(share_memory(l, err));
    group_make(l->control, l->job.id, l->job.attempt);
    exhaustion_begin(&l->memory, l->steps->root == NULL ? "" : l->steps->root, l->control);
    return job_pid_write(l->job.dir, l->job.attempt, l->control, err);
}

static int ranks_of(const struct spec *s)
{
    const struct mesh_sizes mesh = plan_mesh(s);

    return ranks_shm(&mesh).ranks;
}

/* How many ranks there are, and where they report. */
static int seat_ranks(struct launcher *l, bool has_spec, struct err *err)
{
    l->ranks = l->steps->ranks;
    if (l->ranks == 0) {
        l->ranks = has_spec ? ranks_of(&l->job.spec) : 1;
    }
    l->job.ranks.count = l->ranks;
    l->job.ranks.timeout_ms = l->steps->peer_ms > 0 ? l->steps->peer_ms : PEER_MS;
    l->pids = calloc((size_t)l->ranks, sizeof *l->pids);
    l->reports = mmap(NULL, (size_t)l->ranks * sizeof *l->reports, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l->pids == NULL || l->reports == MAP_FAILED) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a launcher of %d ranks", l->ranks);
    }
    return 0;
}

static int launch(struct launcher *l, const char *dir, struct err *err)
{
    const char *number = getenv("HONE_ATTEMPT");
    const long wanted = number == NULL ? 0 : strtol(number, NULL, 10);

    TRY(job_lock(&l->lock, dir, err));
    if (wanted > 0 && job_pid_attempt(dir) >= wanted) {
        return FAIL(err, ERR_BAD_STATE, "attempt %ld of %s was run already", wanted, dir);
    }
    int rc = job_folder_open(&l->job, dir, err);
    if (l->job.attempt == 0) {
        return rc;
    }
    TRY(seat_ranks(l, rc == 0, err));
    /* From here on the attempt has begun, and its end is recorded whatever happens. */
    struct err late;
    const int late_rc = prepare_attempt(l, &late);
    if (rc == 0 && late_rc == 0) {
        run_attempt(l);
    } else {
        l->has_failed = true;
        l->end.error = rc != 0 ? *err : late;
    }
    decide(l);
    return record(l, err);
}

static void close_open(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

int launch_run(const char *dir, const struct launch_steps *steps, struct err *err)
{
    struct launcher *l = calloc(1, sizeof *l);

    if (l == NULL) {
        return FAIL(err, ERR_NO_MEMORY, "no memory for a launcher");
    }
    CHECK(steps->ranks >= 0 && steps->rank != NULL, "%d ranks", steps->ranks);
    l->steps = steps;
    l->self = getpid();
    l->lock = l->log = l->signals = -1;
    l->kill_at_ms = NEVER;
    l->end.rank = -1;
    int rc = become_launcher(&l->signals, err);
    if (rc == 0) {
        rc = launch(l, dir, err);
    }
    if (!group_remove(l->control)) {
        (void)dprintf(l->log, "hone: the control group %s can't be removed\n", l->control);
    }
    events_close(l->events);
    shm_free(l->job.ranks.shm);
    job_folder_close(&l->job);
    if (l->reports != NULL && l->reports != MAP_FAILED) {
        (void)munmap(l->reports, (size_t)l->ranks * sizeof *l->reports);
    }
    close_open(l->log);
    close_open(l->signals);
    close_open(l->lock); /* behind exit.json: a free lock means that all is said */
    free(l->pids);
    free(l);
    return rc;
}
