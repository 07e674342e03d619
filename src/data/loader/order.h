/* The order of samples: a pseudo-random permutation of [0, count) that needs no table.
 *
 * A balanced Feistel network (Luby and Rackoff, SIAM J. Comput. 17(2), 1988) permutes the smallest
 * even number of bits, at least 16, that holds count; an image outside [0, count) is permuted
 * again until it is inside (cycle walking: Black and Rogaway, CT-RSA 2002), which keeps it a
 * bijection. The round keys come from Philox under (seed, epoch), so the order depends on nothing
 * else.
 */
#ifndef BY_DATA_LOADER_ORDER_H
#define BY_DATA_LOADER_ORDER_H

#include <stdint.h>

#define BY__ORDER_ROUNDS 10

typedef struct by__loader_order {
    uint64_t count;
    uint64_t mask;      /* mask of one half's bits */
    unsigned half_bits; /* 8 to 32 */
    uint64_t keys[BY__ORDER_ROUNDS];
} by__loader_order;

/* The order of an epoch over `count` >= 1 samples. */
void by__loader_order_init(by__loader_order *order, uint64_t count, uint64_t seed, uint64_t epoch);
/* The sample at position `index` < count of the order: a bijection of [0, count). */
uint64_t by__loader_order_at(const by__loader_order *order, uint64_t index);
/* An order that stays within a part of the samples for a while, so that few files are in use at a
 * time: samples are in blocks of one size, the blocks in a random order, and so many of them after
 * each other are a window, whose samples are in a random order. What is left behind the last whole
 * block is in the last window. Still a bijection without a table. */
typedef struct by__loader_windows {
    uint64_t count;
    uint64_t block;  /* samples */
    uint64_t window; /* blocks */
    uint64_t seed;
    uint64_t epoch;
    by__loader_order blocks;
    by__loader_order inside; /* of the samples of window `at` */
    uint64_t at;
    uint64_t size; /* samples of it; 0: none is set */
} by__loader_windows;

/* The order of an epoch over `count` >= 1 samples; block and window are at least 1. */
void by__loader_windows_init(by__loader_windows *order, uint64_t count, uint64_t block,
                             uint64_t window, uint64_t seed, uint64_t epoch);
/* The sample at position `index` < count. Keeps what it computed of the window. */
uint64_t by__loader_windows_at(by__loader_windows *order, uint64_t index);
/* A pseudo-random number in [0, limit), limit >= 1, for an epoch: the offset of its first
 * window. */
uint64_t by__loader_order_phase(uint64_t limit, uint64_t seed, uint64_t epoch);
/* Derives a seed for each `part` of a combined order. */
uint64_t by__loader_order_seed(uint64_t seed, uint64_t part);

#endif
