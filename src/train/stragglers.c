#include "train/stragglers.h"

#include <stdlib.h>
#include <string.h>

enum { NAMED_AFTER = 20, NAMED_AGAIN = 1000 };
#define SLOWER 1.2
#define LEAST  1e-3

/* Sums over the steps in which a rank was slow, one behind the other. */
typedef struct streak {
    int64_t steps;
    double seconds;
    double median;
    double lost[BY__OWN_PARTS]; /* against the median of each part */
} streak;

struct by__stragglers {
    int ranks;
    int *work;
    streak *streaks;
    double *values; /* of ranks that are compared */
};

by_status by__stragglers_open(by__stragglers **out, const int *work, int ranks, by_error *error)
{
    by__stragglers *s;
    size_t count = (size_t)ranks;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "times of ranks", error));
    s->ranks = ranks;
    by_status status = by__alloc((void **)&s->work, count, sizeof *s->work, "ranks", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s->streaks, count, sizeof *s->streaks, "ranks", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s->values, count, sizeof *s->values, "ranks", error);
    }
    if (status != BY_OK) {
        by__stragglers_close(&s);
        return status;
    }
    memcpy(s->work, work, count * sizeof *work);
    *out = s;
    return BY_OK;
}

void by__stragglers_close(by__stragglers **stragglers)
{
    if (stragglers != NULL && *stragglers != NULL) {
        free((*stragglers)->work);
        free((*stragglers)->streaks);
        free((*stragglers)->values);
        free(*stragglers);
        *stragglers = NULL;
    }
}

static double total(const by__own_time *time)
{
    double sum = 0.0;
    for (int p = 0; p < BY__OWN_PARTS; p++) {
        sum += (double)time->part[p];
    }
    return sum;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Over the ranks with that work: of a part, or (BY__OWN_PARTS) of their whole time. Of an even
 * number the smaller one of the middle, which of two ranks is the faster. */
static double median(by__stragglers *s, const by__own_time *times, int work, int part, int *count)
{
    int n = 0;
    for (int r = 0; r < s->ranks; r++) {
        if (s->work[r] == work) {
            s->values[n++] = part == BY__OWN_PARTS ? total(&times[r]) : (double)times[r].part[part];
        }
    }
    qsort(s->values, (size_t)n, sizeof *s->values, compare);
    *count = n;
    return s->values[(n - 1) / 2];
}

static by__straggler describe(const streak *k, int rank)
{
    static const char *const parts[] = {[BY__OWN_COMPUTE] = "computing",
                                        [BY__OWN_DATA] = "reading data",
                                        [BY__OWN_SAVING] = "saving"};
    int most = 0;
    for (int p = 1; p < BY__OWN_PARTS; p++) {
        most = k->lost[p] > k->lost[most] ? p : most;
    }
    return (by__straggler){.rank = rank,
                           .steps = k->steps,
                           .seconds = k->seconds / (double)k->steps,
                           .median = k->median / (double)k->steps,
                           .part = parts[most]};
}

int by__stragglers_add(by__stragglers *s, const by__own_time *times, by__straggler *named)
{
    int count = 0;
    for (int r = 0; r < s->ranks; r++) {
        streak *k = &s->streaks[r];
        int alike;
        double middle = median(s, times, s->work[r], BY__OWN_PARTS, &alike);
        double own = total(&times[r]);
        if (alike < 2 || own <= SLOWER * middle || own - middle <= LEAST) {
            *k = (streak){0};
            continue;
        }
        k->steps++;
        k->seconds += own;
        k->median += middle;
        for (int p = 0; p < BY__OWN_PARTS; p++) {
            k->lost[p] += (double)times[r].part[p] - median(s, times, s->work[r], p, &alike);
        }
        if (k->steps == NAMED_AFTER || k->steps % NAMED_AGAIN == 0) {
            named[count++] = describe(k, r);
        }
    }
    return count;
}
