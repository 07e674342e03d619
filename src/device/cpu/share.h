/* share: the tasks of a loop, divided among a team of threads.
 *
 * Each thread begins with its own part, a run of neighbouring tasks, and only when that is done
 * takes from the others' (work stealing). So a thread meets again, from one operation to the next,
 * the rows that it wrote itself: on a processor whose cores do not share one cache (several
 * chiplets or sockets) a line that another core wrote comes five times slower than one's own. And a
 * core that is slowed down by something else still does not hold up the rest.
 *
 * A share is one word, so that taking is one atomic addition: the end above, the next task below.
 *
 * Never put here: what a task is.
 */
#ifndef BY_DEVICE_CPU_SHARE_H
#define BY_DEVICE_CPU_SHARE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

/* One for each thread, on a cache line of its own. */
typedef struct by__share {
    alignas(64) _Atomic uint64_t range;
} by__share;

/* Gives thread `me` of `team` its part of `tasks` (less than 2^31). A barrier must stand between
 * this and the first by__share_take of any thread, and between the last and the next opening. */
static inline void by__share_open(by__share *shares, int64_t tasks, int me, int team)
{
    uint64_t begin = (uint64_t)(tasks * me / team);
    uint64_t end = (uint64_t)(tasks * (me + 1) / team);
    atomic_store_explicit(&shares[me].range, end << 32 | begin, memory_order_relaxed);
}

/* The next task of thread `me`, -1 when all are taken. */
static inline int64_t by__share_take(by__share *shares, int me, int team)
{
    for (int i = 0; i < team; i++) {
        _Atomic uint64_t *range = &shares[(me + i) % team].range;
        uint64_t seen = atomic_load_explicit(range, memory_order_relaxed);
        if ((uint32_t)seen >= seen >> 32) {
            continue; /* without writing: the line stays where it is */
        }
        seen = atomic_fetch_add_explicit(range, 1, memory_order_relaxed);
        if ((uint32_t)seen < seen >> 32) {
            return (int64_t)(uint32_t)seen;
        }
    }
    return -1;
}

#endif
