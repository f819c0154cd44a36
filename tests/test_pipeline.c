/* test_pipeline.c - ranks that only sleep, some longer than others: every message arrives where it belongs, though it goes
 * through a slab that is smaller than it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/comm/shm.h"
#include "trainer/pipeline.h"

enum { RANKS = 4, COLS = 96, ROWS = 8, NAP_US = 200, SLAB = 256 };

/* In shared memory. */
struct found {
    int wrong[RANKS], sends[RANKS];
};

/* What a rank's stages do: check what comes, sleep, fill in what goes. */
struct sleeper {
    const struct pipe *pipe;
    int wrong;
};

static int stage_of(const struct sleeper *s, const struct action *a)
{
    return a->chunk * s->pipe->pp + s->pipe->rank;
}

/* The number in every place of the message that leaves a stage. */
static float mark_of(int stage, int micro, bool forward)
{
    return (float)((forward ? 1 : -1) * (stage * 1000 + micro + 1));
}

static void look_at(struct sleeper *s, struct tensor in, float wanted)
{
    const float *x = in.data;

    for (int64_t i = 0; i < tensor_count(in); i++) {
        s->wrong += x[i] < wanted || x[i] > wanted;
    }
}

static void fill(struct tensor out, float mark)
{
    float *x = out.data;

    for (int64_t i = 0; i < tensor_count(out); i++) {
        x[i] = mark;
    }
}

static void nap(int us)
{
    const struct timespec t = {.tv_nsec = us * 1000L};

    (void)nanosleep(&t, NULL);
}

static int64_t rows_of(void *context, int micro)
{
    (void)context;
    return micro % 3 == 0 ? ROWS : ROWS / 2;
}

static void work(struct sleeper *s, const struct action *a, struct tensor in, struct tensor out)
{
    const int stage = stage_of(s, a), stages = s->pipe->pp * s->pipe->chunks;
    const int before = a->forward ? stage - 1 : stage + 1;
    const bool gets = before >= 0 && before < stages;

    s->wrong += gets != (tensor_count(in) > 0);
    s->wrong += tensor_count(in) > 0 && tensor_rows(in) != rows_of(s, a->micro);
    look_at(s, in, mark_of(before, a->micro, a->forward));
    nap((stage * 7 + a->micro * 3) % 5 * NAP_US);
    fill(out, mark_of(stage, a->micro, a->forward));
}

static void forward(void *context, const struct action *a, const struct errand *e, struct tensor in,
                    struct tensor out)
{
    (void)e;
    work(context, a, in, out);
}

static void lose(void *context, const char *why)
{
    (void)context;
    (void)fprintf(stderr, "%s\n", why);
    _exit(9);
}

/* Traffic of a rank whose stages are all trained. */
static void list(struct traffic *t, const struct pipe *pipe)
{
    struct err err = {0};

    CHECK(traffic_new(t, pipe, &err) == 0, "%s", err.text);
    for (int c = 0; c < pipe->chunks; c++) {
        t->gets[c] = true;
        t->gives[c] = true;
    }
    traffic_train(t);
}

static void be_rank(const struct pipe *pipe, struct shm *shm, struct found *f)
{
    static const int members[RANKS] = {0, 1, 2, 3};
    struct sleeper s = {.pipe = pipe};
    const struct work does = {&s, rows_of, forward, forward};
    struct traffic t;
    struct mailbox mail;
    struct layout lo = {0};
    struct queue q = {0};
    struct shm_rank *r = NULL;
    struct comm group;
    struct err err = {0};
    void *base[LIFE_COUNT] = {NULL};

    list(&t, pipe);
    pipeline_plan(&mail, &lo, &t, DTYPE_F32, ROWS, COLS);
    const size_t bytes = lo.region[LIFE_COMM].peak;
    base[LIFE_COMM] = calloc(1, bytes);
    CHECK(base[LIFE_COMM] != NULL, "no memory");
    layout_bind(&lo, base);
    pipeline_plan(&mail, &lo, &t, DTYPE_F32, ROWS, COLS);
    CHECK(lo.region[LIFE_COMM].peak == bytes, "%zu bytes planned", bytes);
    CHECK(shm_join(&r, shm, pipe->rank, kernels_cpu(), 20000, lose, NULL, &err) == 0, "%s",
          err.text);
    CHECK(shm_group(&group, r, 0, "pipeline", members, pipe->pp, true, &err) == 0, "%s", err.text);
    struct pipeline p = {
        .comm = &group, .q = &q, .traffic = &t, .mail = &mail, .work = &does, .cols = COLS};
    comm_barrier(&group, &q);
    pipeline_run(&p);
    comm_barrier(&group, &q);
    f->wrong[pipe->rank] = s.wrong;
    f->sends[pipe->rank] = (int)group.count[COMM_SEND];
    comm_close(&group);
    shm_leave(r);
    free(base[LIFE_COMM]);
    traffic_free(&t);
}

static bool run_ranks(struct pipe pipe, struct found *f)
{
    const struct shm_sizes room = {.ranks = pipe.pp, .kinds = 1, .peers = pipe.pp, .slab = SLAB};
    struct shm *shm = NULL;
    struct err err = {0};
    bool well = true;

    CHECK(shm_make(&shm, &room, &err) == 0, "%s", err.text);
    (void)fflush(NULL);
    for (pipe.rank = 0; pipe.rank < pipe.pp; pipe.rank++) {
        if (fork() == 0) {
            (void)alarm(60);
            be_rank(&pipe, shm, f);
            _exit(0);
        }
    }
    for (int i = 0; i < pipe.pp; i++) {
        int status = 0;
        (void)wait(&status);
        well = well && status == 0;
    }
    shm_free(shm);
    return well;
}

static void messages_arrive_where_they_belong(void)
{
    struct found *f =
        mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(f != MAP_FAILED, "no memory");
    for (int pp = 2; pp <= RANKS; pp *= 2) {
        for (int chunks = 1; chunks <= 2; chunks++) {
            const struct pipe pipe = {.pp = pp, .chunks = chunks, .micros = 8};
            int sends = 0;
            memset(f, 0, sizeof *f);
            EXPECT(run_ranks(pipe, f));
            for (int r = 0; r < pp; r++) {
                EXPECT(f->wrong[r] == 0);
                sends += f->sends[r];
            }
            EXPECT(sends == 2 * (pp * chunks - 1) * pipe.micros);
        }
    }
    (void)munmap(f, sizeof *f);
}

int main(void)
{
    RUN(messages_arrive_where_they_belong);
    return tap_done();
}
