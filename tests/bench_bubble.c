/* bench_bubble.c - steps of pipelines whose kernels sleep: the part of the time that ranks wait, beside (p - 1) / (v m).
 *
 *     bench_bubble [MILLISECONDS [MICROBATCHES]]      4 for the forward pass of a block, 8 microbatches
 */
#include "tests/bubble.h"

int main(int argc, char **argv)
{
    const double unit_s = (argc > 1 ? strtod(argv[1], NULL) : 4.0) * 1e-3;
    const int micros = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 8;
    struct bubble_found *f = bubble_memory();

    if (unit_s <= 0.0 || unit_s > 1.0 || micros < BUBBLE_RANKS || micros % BUBBLE_RANKS != 0 ||
        micros > BUBBLE_MESSAGES / 4) {
        (void)fprintf(stderr,
                      "bench_bubble: 0 to 1000 milliseconds, and 4, 8, 12 or 16 microbatches\n");
        return 2;
    }
    printf("%6s %7s %13s %9s %14s %9s\n", "ranks", "stages", "microbatches", "bubble",
           "(p-1)/(v m)", "ratio");
    for (int pp = 2; pp <= BUBBLE_RANKS; pp *= 2) {
        for (int chunks = 1; chunks <= 2; chunks++) {
            const struct pipe pipe = {.pp = pp, .chunks = chunks, .micros = micros};
            const double wanted = (double)(pp - 1) / (chunks * micros);
            if (!bubble_run(pipe, unit_s, f)) {
                (void)fprintf(stderr, "bench_bubble: a rank failed\n");
                return 1;
            }
            printf("%6d %7d %13d %9.4f %14.4f %9.3f\n", pp, chunks, micros, bubble_of(f, pp),
                   wanted, bubble_of(f, pp) / wanted);
        }
    }
    (void)munmap(f, sizeof *f);
    return 0;
}
