#include "tasks/graph/scored.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    double x = ((const by__task_scored *)a)->score;
    double y = ((const by__task_scored *)b)->score;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Counts are whole, so that the sums are exact. */
double by__task_area(by__task_scored *all, size_t count)
{
    double positive = 0.0;
    double below = 0.0; /* negatives so far */
    double pairs = 0.0; /* in the right order, times 2 */
    qsort(all, count, sizeof *all, compare);
    for (size_t i = 0; i < count;) {
        double same[2] = {0.0, 0.0};
        size_t end = i;
        while (end < count && all[end].score == all[i].score) {
            same[all[end++].is_positive] += 1.0;
        }
        pairs += same[1] * (2.0 * below + same[0]);
        positive += same[1];
        below += same[0];
        i = end > i ? end : i + 1;
    }
    return positive > 0.0 && below > 0.0 ? pairs / 2.0 / (positive * below) : (double)NAN;
}
