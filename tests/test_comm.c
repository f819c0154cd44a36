/* test_comm.c - ranks that are processes: what they exchange, in which order, and what happens when one is
 * lost. Every rank is a fork that ends with status 0 when all of its own checks held. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/check.h"
#include "tests/tap.h"
#include "trainer/comm/shm.h"

enum { RANKS_MAX = 8, TIMEOUT_MS = 30000, LOST = 42, MANY = 70001 };

/* What a rank's program gets. */
struct self {
    struct shm_rank *shm;
    const struct kernels *k;
    int rank, size;
    struct comm all;  /* every rank; sends messages */
    struct comm half; /* ranks of the same parity   */
    struct queue q;
    int bad;
};

/* In a rank: TAP belongs to the parent. */
#define HOLDS(s, cond)                                                      \
    do {                                                                    \
        if (!(cond)) {                                                      \
            (s)->bad++;                                                     \
            printf("# rank %d, line %d: %s\n", (s)->rank, __LINE__, #cond); \
        }                                                                   \
    } while (0)

typedef void rank_program(struct self *s);

static char *last_words; /* shared: what the rank that ended early said */

static void end_rank(void *context, const char *why)
{
    (void)context;
    (void)snprintf(last_words, 400, "%s", why);
    (void)fflush(NULL);
    _exit(LOST);
}

static int be_rank(struct shm *shm, int rank, int size, int timeout_ms, rank_program *program)
{
    struct self s = {.rank = rank, .size = size, .k = kernels_cpu()};
    int all[RANKS_MAX], half[RANKS_MAX], n = 0;
    struct err err = {0};

    CHECK(shm_join(&s.shm, shm, rank, s.k, timeout_ms, end_rank, NULL, &err) == 0, "%s", err.text);
    for (int i = 0; i < size; i++) {
        all[i] = i;
        if (i % 2 == rank % 2) {
            half[n++] = i;
        }
    }
    CHECK(shm_group(&s.all, s.shm, 0, "whole", all, size, true, &err) == 0, "%s", err.text);
    CHECK(shm_group(&s.half, s.shm, 1, "half", half, n, false, &err) == 0, "%s", err.text);
    program(&s);
    comm_close(&s.half);
    comm_close(&s.all);
    shm_leave(s.shm);
    (void)fflush(NULL);
    return s.bad > 0;
}

/* Run the program on `size` ranks; the exit status of each goes to `status`. */
static void run_ranks(int size, size_t slab, int timeout_ms, rank_program *program,
                      int status[RANKS_MAX])
{
    const struct shm_sizes sizes = {.ranks = size, .kinds = 2, .peers = size, .slab = slab};
    struct shm *shm = NULL;
    struct err err = {0};
    pid_t pids[RANKS_MAX] = {0};

    (void)fflush(NULL);
    CHECK(shm_make(&shm, &sizes, &err) == 0, "%s", err.text);
    for (int i = 0; i < size; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            (void)alarm(120);
            _exit(be_rank(shm, i, size, timeout_ms, program));
        }
    }
    for (int left = size; left > 0; left--) {
        int how = 0, rank = 0;
        const pid_t pid = wait(&how);
        while (rank < size - 1 && pids[rank] != pid) {
            rank++;
        }
        status[rank] = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        if (status[rank] != 0) {
            shm_mark_lost(shm, rank);
        }
    }
    shm_free(shm);
}

static void expect_all_well(int size, size_t slab, rank_program *program)
{
    int status[RANKS_MAX] = {0};

    run_ranks(size, slab, TIMEOUT_MS, program, status);
    for (int i = 0; i < size; i++) {
        EXPECT(status[i] == 0);
    }
}

/* Element i of what `rank` gives: not exact in sums, so that their order shows. */
static float given(int rank, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761U ^ ((uint32_t)rank + 1) * 2246822519U;

    x ^= x >> 15;
    x *= 2246822519U;
    x ^= x >> 13;
    return (float)(int32_t)x * 0x1p-20F;
}

static float *make_given(int rank, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + 1);

    CHECK(x != NULL, "no memory");
    for (int64_t i = 0; i < n; i++) {
        x[i] = given(rank, i);
    }
    return x;
}

/* In rank order. */
static float sum_of(const struct comm *c, const int *members, int64_t i)
{
    float sum = given(members == NULL ? 0 : members[0], i);

    for (int r = 1; r < c->size; r++) {
        sum += given(members == NULL ? r : members[r], i);
    }
    return sum;
}

static struct tensor vector(void *x, int64_t n)
{
    return tensor_make(x, DTYPE_F32, 1, n);
}

static void check_sums(struct self *s, int64_t n)
{
    float *x = make_given(s->rank, n), *part = malloc((size_t)(n / s->size + 1) * sizeof *part);
    const int64_t share = n / s->size;

    comm_all_reduce(&s->all, &s->q, vector(x, n));
    for (int64_t i = 0; i < n; i++) {
        HOLDS(s, x[i] == sum_of(&s->all, NULL, i));
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = given(s->rank, i);
    }
    comm_wait(
        &s->all, &s->q,
        comm_start_reduce_scatter(&s->all, &s->q, vector(part, share), vector(x, share * s->size)));
    for (int64_t i = 0; i < share; i++) {
        HOLDS(s, part[i] == sum_of(&s->all, NULL, s->rank * share + i));
    }
    comm_wait(&s->all, &s->q, comm_start_all_reduce(&s->all, &s->q, vector(x, n), COMM_MAX));
    for (int64_t i = 0; i < n; i++) {
        float most = given(0, i);
        for (int r = 1; r < s->size; r++) {
            most = given(r, i) > most ? given(r, i) : most;
        }
        HOLDS(s, x[i] == most);
    }
    free(x);
    free(part);
}

static void check_moves(struct self *s, int64_t n)
{
    float *x = make_given(s->rank, n), *all = malloc((size_t)(n * s->size) * sizeof *all + 1);

    comm_wait(&s->all, &s->q,
              comm_start_all_gather(&s->all, &s->q, vector(all, n * s->size), vector(x, n)));
    for (int64_t i = 0; i < n * s->size; i++) {
        HOLDS(s, all[i] == given((int)(i / n), i % n));
    }
    for (int root = 0; root < s->size; root++) {
        for (int64_t i = 0; i < n; i++) {
            x[i] = given(s->rank, i + root);
        }
        comm_wait(&s->all, &s->q, comm_start_broadcast(&s->all, &s->q, vector(x, n), root));
        for (int64_t i = 0; i < n; i++) {
            HOLDS(s, x[i] == given(root, i + root));
        }
    }
    free(x);
    free(all);
}

/* Rows that rank a gives to rank b. */
static int64_t rows_between(int a, int b)
{
    return (a * 7 + b * 5 + a * b) % 11 == 0 ? 0 : (a * 7 + b * 5 + a * b) % 11 * 40 + a;
}

static void check_all_to_all(struct self *s, int64_t cols)
{
    int64_t in_rows[RANKS_MAX] = {0}, out_rows[RANKS_MAX] = {0}, ins = 0, outs = 0, at = 0;

    for (int r = 0; r < s->size; r++) {
        in_rows[r] = rows_between(s->rank, r);
        out_rows[r] = rows_between(r, s->rank);
        ins += in_rows[r];
        outs += out_rows[r];
    }
    float *in = malloc((size_t)(ins * cols) * sizeof *in + 1);
    float *out = malloc((size_t)(outs * cols) * sizeof *out + 1);
    for (int r = 0; r < s->size; r++) {
        for (int64_t i = 0; i < in_rows[r] * cols; i++) {
            in[at++] = given(s->rank * 100 + r, i);
        }
    }
    comm_wait(&s->all, &s->q,
              comm_start_all_to_all(&s->all, &s->q, tensor_make(out, DTYPE_F32, outs, cols),
                                    out_rows, tensor_make(in, DTYPE_F32, ins, cols), in_rows));
    at = 0;
    for (int r = 0; r < s->size; r++) {
        for (int64_t i = 0; i < out_rows[r] * cols; i++) {
            HOLDS(s, out[at++] == given(r * 100 + s->rank, i));
        }
    }
    free(in);
    free(out);
}

static void exchange_everything(struct self *s)
{
    static const int64_t sizes[] = {0, 1, 5, 16, 17, 1024, 4099, MANY};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_sums(s, sizes[i]);
        check_moves(s, sizes[i]);
        comm_barrier(&s->all, &s->q);
    }
    check_all_to_all(s, 1);
    check_all_to_all(s, 13);
    HOLDS(s, s->all.count[COMM_ALL_REDUCE] == 16 && s->all.count[COMM_BARRIER] == 8);
    HOLDS(s, s->all.bytes[COMM_REDUCE_SCATTER] > 0);
}

static void every_operation_gives_what_it_says(void)
{
    for (int size = 1; size <= RANKS_MAX; size += size < 4 ? 1 : 4) {
        expect_all_well(size, 4096, exchange_everything);
    }
    expect_all_well(3, 1 << 16, exchange_everything);
    expect_all_well(8, 512, exchange_everything);
}

/* Sums of 16-bit elements: in f32, rounded once. */
static void reduce_halves(struct self *s)
{
    static const enum dtype types[] = {DTYPE_BF16, DTYPE_F16};
    enum { N = 3001 };
    float *x = calloc(N, sizeof *x), *sum = calloc(N, sizeof *sum);
    uint16_t *half = malloc(N * sizeof *half), *want = malloc(N * sizeof *want);

    for (int t = 0; t < 2; t++) {
        for (int r = 0; r < s->size; r++) {
            for (int i = 0; i < N; i++) {
                x[i] = given(r, i) * 0x1p-6F;
            }
            s->k->cast(&s->q, tensor_make(half, types[t], 1, N), vector(x, N));
            s->k->cast(&s->q, vector(x, N), tensor_make(half, types[t], 1, N));
            for (int i = 0; i < N; i++) {
                sum[i] = r == 0 ? x[i] : sum[i] + x[i];
            }
        }
        s->k->cast(&s->q, tensor_make(want, types[t], 1, N), vector(sum, N));
        for (int i = 0; i < N; i++) {
            x[i] = given(s->rank, i) * 0x1p-6F;
        }
        s->k->cast(&s->q, tensor_make(half, types[t], 1, N), vector(x, N));
        comm_all_reduce(&s->all, &s->q, tensor_make(half, types[t], 1, N));
        HOLDS(s, memcmp(half, want, N * sizeof *half) == 0);
    }
    free(x);
    free(sum);
    free(half);
    free(want);
}

static void halves_are_summed_in_f32_and_rounded_once(void)
{
    expect_all_well(4, 2048, reduce_halves);
}

/* Two groups at a time, awaited in an order that differs between ranks. */
static void mix_groups(struct self *s)
{
    enum { N = 9001, TIMES = 20 };
    int members[RANKS_MAX], n = 0;
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);

    for (int i = 0; i < s->size; i++) {
        if (i % 2 == s->rank % 2) {
            members[n++] = i;
        }
    }
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < N; i++) {
            a[i] = b[i] = given(s->rank, i);
        }
        comm_ticket of_all = 0, of_half = 0;
        if ((s->rank + time) % 3 == 0) {
            of_half = comm_start_all_reduce(&s->half, &s->q, vector(b, N), COMM_SUM);
            of_all = comm_start_all_reduce(&s->all, &s->q, vector(a, N), COMM_SUM);
            comm_wait(&s->half, &s->q, of_half);
            comm_wait(&s->all, &s->q, of_all);
        } else {
            of_all = comm_start_all_reduce(&s->all, &s->q, vector(a, N), COMM_SUM);
            of_half = comm_start_all_reduce(&s->half, &s->q, vector(b, N), COMM_SUM);
            comm_wait(&s->all, &s->q, of_all);
            comm_wait(&s->half, &s->q, of_half);
        }
        for (int i = 0; i < N; i++) {
            HOLDS(s, a[i] == sum_of(&s->all, NULL, i));
            HOLDS(s, b[i] == sum_of(&s->half, members, i));
        }
    }
    free(a);
    free(b);
}

static void groups_may_be_awaited_in_any_order(void)
{
    expect_all_well(4, 1024, mix_groups);
    expect_all_well(7, 1024, mix_groups);
}

/* Everybody sends to everybody, all at once, before anybody takes. */
static void send_around(struct self *s)
{
    enum { N = 2500 };
    float *out = make_given(s->rank, N);
    float *in = malloc((size_t)s->size * 2 * N * sizeof *in);
    comm_ticket sent[RANKS_MAX][2] = {{0}}, got[RANKS_MAX][2] = {{0}};

    for (int r = 0; r < s->size; r++) {
        for (int k = 0; k < 2 && r != s->rank; k++) {
            sent[r][k] = comm_start_send(&s->all, &s->q, vector(out + k, N - 1 - k), r);
        }
    }
    for (int r = s->size - 1; r >= 0; r--) {
        for (int k = 0; k < 2 && r != s->rank; k++) {
            got[r][k] = comm_start_recv(&s->all, &s->q, vector(in + (r * 2 + k) * N, N - 1 - k), r);
        }
    }
    for (int r = 0; r < s->size; r++) {
        for (int k = 1; k >= 0 && r != s->rank; k--) {
            comm_wait(&s->all, &s->q, got[r][k]);
            for (int i = 0; i < N - 1 - k; i++) {
                HOLDS(s, in[(r * 2 + k) * N + i] == given(r, i + k));
            }
        }
    }
    for (int r = 0; r < s->size; r++) {
        for (int k = 0; k < 2 && r != s->rank; k++) {
            comm_wait(&s->all, &s->q, sent[r][k]);
        }
    }
    free(in);
    free(out);
}

static void messages_pass_in_order_whoever_waits_first(void)
{
    expect_all_well(2, 512, send_around);
    expect_all_well(5, 1024, send_around);
}

static void lose_rank_1(struct self *s)
{
    float x[100] = {0};

    for (int i = 0; i < 1000; i++) {
        if (s->rank == 1 && i == 500) {
            (void)raise(SIGKILL);
        }
        comm_all_reduce(&s->all, &s->q, vector(x, 100));
    }
}

static void a_lost_rank_is_named_by_all_others(void)
{
    int status[RANKS_MAX] = {0};

    run_ranks(4, 1024, TIMEOUT_MS, lose_rank_1, status);
    EXPECT(status[1] == 128 + SIGKILL);
    EXPECT(status[0] == LOST && status[2] == LOST && status[3] == LOST);
    EXPECT(strstr(last_words, "1 (lost)") != NULL);
    EXPECT(strstr(last_words, "all-reduce of its whole group") != NULL);
}

static void hold_rank_2_up(struct self *s)
{
    float x[100] = {0};

    if (s->rank == 2) {
        (void)usleep(4000000);
    }
    comm_all_reduce(&s->all, &s->q, vector(x, 100));
}

static void a_stuck_rank_is_named_after_the_timeout(void)
{
    int status[RANKS_MAX] = {0};

    run_ranks(3, 1024, 300, hold_rank_2_up, status);
    EXPECT(status[0] == LOST || status[1] == LOST);
    EXPECT(strstr(last_words, "for rank") != NULL);
}

static void do_different_things(struct self *s)
{
    float x[64] = {0};

    comm_all_reduce(&s->all, &s->q, vector(x, s->rank == 0 ? 64 : 63));
}

static void ranks_that_do_different_things_are_our_fault(void)
{
    int status[RANKS_MAX] = {0};

    run_ranks(2, 1024, TIMEOUT_MS, do_different_things, status);
    EXPECT(status[0] == 128 + SIGABRT || status[1] == 128 + SIGABRT);
}

int main(void)
{
    last_words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(last_words != MAP_FAILED, "no memory");
    RUN(every_operation_gives_what_it_says);
    RUN(halves_are_summed_in_f32_and_rounded_once);
    RUN(groups_may_be_awaited_in_any_order);
    RUN(messages_pass_in_order_whoever_waits_first);
    RUN(a_lost_rank_is_named_by_all_others);
    RUN(a_stuck_rank_is_named_after_the_timeout);
    RUN(ranks_that_do_different_things_are_our_fault);
    return tap_done();
}
