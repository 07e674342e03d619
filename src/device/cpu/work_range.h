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
#ifndef BY_DEVICE_CPU_WORK_RANGE_H
#define BY_DEVICE_CPU_WORK_RANGE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

/* One for each thread, on a cache line of its own. */
typedef struct by__work_range {
    alignas(64) _Atomic uint64_t range;
} by__work_range;

/* Gives thread `me` of `team` its part of `tasks` (less than 2^31). A barrier must stand between
 * this and the first by__work_range_take of any thread, and between the last and the next
 * opening. */
static inline void by__work_range_open(by__work_range *ranges, int64_t tasks, int me, int team)
{
    uint64_t begin = (uint64_t)(tasks * me / team);
    uint64_t end = (uint64_t)(tasks * (me + 1) / team);
    atomic_store_explicit(&ranges[me].range, end << 32 | begin, memory_order_relaxed);
}

/* The next tasks of thread `me`, -1 when all are taken: the first of `*count` that follow one
 * another. They are half of what is left of a part, at most `most`: large as long as nobody waits,
 * because each taking waits for all that the processor has begun, and small at the end, so that all
 * are done at the same time (guided self-scheduling: Polychronopoulos and Kuck 1987). */
static inline int64_t by__work_range_take_some(by__work_range *ranges, int me, int team,
                                               int64_t most, int64_t *count)
{
    for (int i = 0; i < team; i++) {
        _Atomic uint64_t *range = &ranges[(me + i) % team].range;
        uint64_t seen = atomic_load_explicit(range, memory_order_relaxed);
        int64_t end = (int64_t)(seen >> 32);
        int64_t begin = (int64_t)(uint32_t)seen;
        if (begin >= end) {
            continue; /* without writing: the line stays where it is */
        }
        int64_t taken = (end - begin + 1) / 2 < most ? (end - begin + 1) / 2 : most;
        seen = atomic_fetch_add_explicit(range, (uint64_t)taken, memory_order_relaxed);
        begin = (int64_t)(uint32_t)seen;
        if (begin < end) {
            *count = taken < end - begin ? taken : end - begin;
            return begin;
        }
    }
    return -1;
}

/* The next one. */
static inline int64_t by__work_range_take(by__work_range *ranges, int me, int team)
{
    int64_t one;
    return by__work_range_take_some(ranges, me, team, 1, &one);
}

#endif
