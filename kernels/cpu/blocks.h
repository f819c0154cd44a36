/* blocks.h - block sizes that the CPU kernels and the workspace arithmetic must agree on. */
#ifndef KERNELS_CPU_BLOCKS_H
#define KERNELS_CPU_BLOCKS_H

enum {
    CPU_LANES_MAX = 16, /* reals in the widest vector of any build: padding of widths */

    ATTENTION_QUERIES = 64, /* query rows of one block, side by side in vector lanes    */
    ATTENTION_KEYS = 32,    /* key rows of one block: fewer waste less at the diagonal  */
    ATTENTION_VECTORS = 8,  /* per-query vectors that a pass keeps: maxima, sums, ...   */

    GEMM_ROWS = 1152, /* rows, columns and depth of the blocks of the plain GEMM:       */
    GEMM_COLS = 1152, /* multiples of every register tile's height and width            */
    GEMM_DEPTH = 384,
    GEMM_SMALL = 1 << 18,        /* a product of at most so many multiplications is small: */
    GEMM_SMALL_DEPTH = 16,       /* short sums of short sums, which rounds less            */
    GEMM_ROWS_THREAD = 144,      /* rows that one thread packs at a time                */
    GEMM_LIBRARY_KIB_F32 = 1024, /* what oneDNN may have for each thread                */
    GEMM_LIBRARY_KIB_BF16 = 3328,

    COLUMN_BLOCKS = 64, /* groups of rows whose column sums are added up at the end     */
};

#endif
