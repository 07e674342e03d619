/* work_range: divides the tasks of a loop among a team of threads.
 *
 * Each thread starts with its own part, a run of neighbouring tasks, and takes tasks from the
 * others only when its part is done (work stealing). From one operation to the next a thread
 * therefore reads mostly rows that it wrote itself: on a processor whose cores do not share one
 * cache (several chiplets or sockets) a line that another core wrote takes five times as long as
 * one's own. A core that is slowed down by other work still does not delay the rest.
 *
 * A part is one 64-bit word, so that taking a task is one atomic addition: the upper half is its
 * end, the lower half the next task.
 *
 * Never put here: the meaning of a task.
 */
#ifndef BY_DEVICE_CPU_WORK_RANGE_H
#define BY_DEVICE_CPU_WORK_RANGE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

/* One for each thread, on a cache line of its own. */
typedef struct by__cpu_work_range {
    alignas(64) _Atomic uint64_t range;
} by__cpu_work_range;

/* Gives thread `me` of `team` its part of `tasks` (less than 2^31). A barrier is required between
 * this and the first by__work_range_claim of any thread, and between the last take and the next
 * opening. */
static inline void by__work_range_open(by__cpu_work_range *ranges, int64_t tasks, int me, int team)
{
    uint64_t begin = (uint64_t)(tasks * me / team);
    uint64_t end = (uint64_t)(tasks * (me + 1) / team);
    atomic_store_explicit(&ranges[me].range, end << 32 | begin, memory_order_relaxed);
}

/* Takes the next tasks of thread `me`: returns the first of `*count` consecutive ones, or -1 when
 * all are taken. A take is half of what is left of a part, at most `most`: large in the beginning,
 * because each take waits for the processor's pending stores, and small at the end, so that all
 * threads finish together (guided self-scheduling: Polychronopoulos and Kuck 1987). */
static inline int64_t by__work_range_claim_some(by__cpu_work_range *ranges, int me, int team,
                                                int64_t most, int64_t *count)
{
    for (int i = 0; i < team; i++) {
        _Atomic uint64_t *range = &ranges[(me + i) % team].range;
        uint64_t seen = atomic_load_explicit(range, memory_order_relaxed);
        int64_t end = (int64_t)(seen >> 32);
        int64_t begin = (int64_t)(uint32_t)seen;
        if (begin >= end) {
            continue; /* checked without writing: the line stays where it is */
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

/* Takes the next task. */
static inline int64_t by__work_range_claim(by__cpu_work_range *ranges, int me, int team)
{
    int64_t one;
    return by__work_range_claim_some(ranges, me, team, 1, &one);
}

#endif
