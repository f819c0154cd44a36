/* test_agree.c - what goes wrong in one rank is what all return. */
#include "tests/layouts.h"
#include "trainer/agree.h"

enum { RANKS = 4 };

struct seen {
    int code[RANKS];
    struct err err[RANKS];
};

/* Rank r fails when bit r is set. */
static struct seen *agree_on(unsigned failing)
{
    const struct shm_sizes room = {.ranks = RANKS, .kinds = 1, .slab = 1024};
    struct seen *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shm *shm = NULL;
    struct err err = {0};

    CHECK(s != MAP_FAILED && shm_make(&shm, &room, &err) == 0, "%s", err.text);
    (void)fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        if (fork() == 0) {
            static const int all[RANKS] = {0, 1, 2, 3};
            struct shm_rank *r = NULL;
            struct queue q = {0};
            struct comm c;
            int rc = 0;
            (void)alarm(60);
            CHECK(shm_join(&r, shm, rank, kernels_cpu(), 30000, lose, NULL, &err) == 0, "%s",
                  err.text);
            CHECK(shm_group(&c, r, 0, "all", all, RANKS, false, &err) == 0, "%s", err.text);
            if ((failing >> rank & 1U) != 0) {
                rc = FAIL_PARAM(&err, rank == 2 ? ERR_DISK_FULL : ERR_IO, "seed", "rank %d", rank);
            }
            s->code[rank] = agree(&c, &q, rc, &err);
            s->err[rank] = err;
            comm_close(&c);
            shm_leave(r);
            _exit(0);
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 1;
        (void)wait(&status);
        EXPECT(status == 0);
    }
    shm_free(shm);
    return s;
}

static void nothing_wrong_is_nothing(void)
{
    struct seen *s = agree_on(0);

    for (int rank = 0; rank < RANKS; rank++) {
        EXPECT(s->code[rank] == 0 && s->err[rank].text[0] == '\0');
    }
    (void)munmap(s, sizeof *s);
}

static void one_failure_is_everybodys(void)
{
    struct seen *s = agree_on(1U << 2);

    for (int rank = 0; rank < RANKS; rank++) {
        EXPECT(s->code[rank] == ERR_DISK_FULL && s->err[rank].code == ERR_DISK_FULL);
        EXPECT(strcmp(s->err[rank].text, "rank 2") == 0 && strcmp(s->err[rank].param, "seed") == 0);
    }
    (void)munmap(s, sizeof *s);
}

static void of_several_the_lowest_rank_is_told(void)
{
    struct seen *s = agree_on(1U << 1 | 1U << 2 | 1U << 3);

    for (int rank = 0; rank < RANKS; rank++) {
        EXPECT(s->code[rank] == ERR_IO && strcmp(s->err[rank].text, "rank 1") == 0);
    }
    (void)munmap(s, sizeof *s);
}

int main(void)
{
    RUN(nothing_wrong_is_nothing);
    RUN(one_failure_is_everybodys);
    RUN(of_several_the_lowest_rank_is_told);
    return tap_done();
}
