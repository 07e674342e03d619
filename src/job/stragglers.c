#include "job/stragglers.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED_AFTER = 20, NAMED_AGAIN = 1000 };
#define SLOWER      1.2
#define MIN_SECONDS 1e-3

typedef struct slow_rank {
    int work;
    int rank;
} slow_rank;

/* Sums over consecutive steps in which a rank was slow. */
typedef struct streak {
    int64_t steps;
    double seconds;
    double median;
    double lost[BY__OWN_PARTS]; /* relative to the median of each kind */
} streak;

struct by__job_stragglers {
    int ranks;
    slow_rank *order; /* sorted so that ranks with the same work are adjacent */
    streak *streaks;
    double *values; /* of ranks that are compared */
};

static int compare_places(const void *a, const void *b)
{
    const slow_rank *x = a;
    const slow_rank *y = b;
    return x->work != y->work ? (x->work < y->work ? -1 : 1) : x->rank - y->rank;
}

by_status by__job_stragglers_open(by__job_stragglers **out, const int *work, int ranks,
                                  by_error *error)
{
    by__job_stragglers *s;
    size_t count = (size_t)ranks;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "times of ranks", error));
    s->ranks = ranks;
    by_status status = by__alloc((void **)&s->order, count, sizeof *s->order, "ranks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s->streaks, count, sizeof *s->streaks, "ranks", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->values, count, sizeof *s->values, "ranks", error);
    }
    if (status != BY_OK) {
        by__job_stragglers_close(&s);
        return status;
    }
    for (int r = 0; r < ranks; r++) {
        s->order[r] = (slow_rank){work[r], r};
    }
    qsort(s->order, count, sizeof *s->order, compare_places);
    *out = s;
    return BY_OK;
}

void by__job_stragglers_close(by__job_stragglers **stragglers)
{
    if (stragglers != NULL && *stragglers != NULL) {
        free((*stragglers)->order);
        free((*stragglers)->streaks);
        free((*stragglers)->values);
        free(*stragglers);
        *stragglers = NULL;
    }
}

static double total(const by__job_own_time *time)
{
    double sum = 0.0;
    for (int p = 0; p < BY__OWN_PARTS; p++) {
        sum += (double)time->part[p];
    }
    return sum;
}

/* The median over `n` ranks with the same work, of a kind of time or (BY__OWN_PARTS) of the total.
 * For an even number it is the lower of the two in the middle, so that of two ranks it is the
 * faster one. */
static double median(by__job_stragglers *s, const by__job_own_time *times, const slow_rank *alike,
                     int n, int part)
{
    for (int i = 0; i < n; i++) {
        const by__job_own_time *time = &times[alike[i].rank];
        s->values[i] = part == BY__OWN_PARTS ? total(time) : (double)time->part[part];
    }
    qsort(s->values, (size_t)n, sizeof *s->values, by__compare_doubles);
    return s->values[(n - 1) / 2];
}

static by__job_straggler describe(const streak *k, int rank)
{
    static const char *const parts[] = {[BY__OWN_COMPUTE] = "computing",
                                        [BY__OWN_DATA] = "reading data",
                                        [BY__OWN_SAVING] = "saving"};
    int most = 0;
    for (int p = 1; p < BY__OWN_PARTS; p++) {
        most = k->lost[p] > k->lost[most] ? p : most;
    }
    return (by__job_straggler){.rank = rank,
                               .steps = k->steps,
                               .seconds = k->seconds / (double)k->steps,
                               .median = k->median / (double)k->steps,
                               .part = parts[most]};
}

/* Adds a step of `n` ranks with the same work. */
static int add_alike(by__job_stragglers *s, const by__job_own_time *times, const slow_rank *alike,
                     int n, by__job_straggler *named)
{
    double middle[BY__OWN_PARTS + 1];
    int count = 0;
    for (int p = 0; p <= BY__OWN_PARTS; p++) {
        middle[p] = median(s, times, alike, n, p);
    }
    for (int i = 0; i < n; i++) {
        int rank = alike[i].rank;
        streak *k = &s->streaks[rank];
        double own = total(&times[rank]);
        double whole = middle[BY__OWN_PARTS];
        if (own <= SLOWER * whole || own - whole <= MIN_SECONDS) {
            *k = (streak){0};
            continue;
        }
        k->steps++;
        k->seconds += own;
        k->median += whole;
        for (int p = 0; p < BY__OWN_PARTS; p++) {
            k->lost[p] += (double)times[rank].part[p] - middle[p];
        }
        if (k->steps == NAMED_AFTER || k->steps % NAMED_AGAIN == 0) {
            named[count++] = describe(k, rank);
        }
    }
    return count;
}

int by__job_stragglers_add(by__job_stragglers *s, const by__job_own_time *times,
                           by__job_straggler *named)
{
    int count = 0;
    for (int first = 0, end; first < s->ranks; first = end) {
        for (end = first; end < s->ranks && s->order[end].work == s->order[first].work; end++) {
        }
        count += add_alike(s, times, s->order + first, end - first, named + count);
    }
    return count;
}
