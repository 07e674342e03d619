/* Fits the figures of a level of the network to exchanges that were measured on it. */
#include <math.h>
#include <string.h>

#include "banyan/cluster.h"
#include "base/base.h"

enum { FIGURES = 3 }; /* latency, 1 / bandwidth, sum: times are linear in them */

static by_cluster_level level_of(const double x[FIGURES])
{
    return (by_cluster_level){
        .latency = x[0], .bandwidth = x[1] > 0.0 ? 1.0 / x[1] : (double)INFINITY, .sum = x[2]};
}

static double seconds_with(const double x[FIGURES], const by_exchange_time *t, int ranks)
{
    by_cluster one = {.level_count = 1, .levels = {level_of(x)}};
    const by_exchange_group all = {.ranks = ranks, .stride = 1.0, .world = ranks};
    one.levels[0].width = ranks;
    return by_cluster_exchange(&one, t->what, t->bytes, &all);
}

/* Solves a symmetric system of the chosen figures by elimination; false: it is singular. */
static bool solve(double x[FIGURES], const double a[FIGURES][FIGURES], const double b[FIGURES],
                  unsigned chosen)
{
    double m[FIGURES][FIGURES + 1] = {{0.0}};
    for (int i = 0; i < FIGURES; i++) {
        bool is = (chosen >> i & 1u) != 0;
        for (int k = 0; k < FIGURES; k++) {
            m[i][k] = is && (chosen >> k & 1u) != 0 ? a[i][k] : i == k ? 1.0 : 0.0;
        }
        m[i][FIGURES] = is ? b[i] : 0.0;
    }
    for (int i = 0; i < FIGURES; i++) {
        double pivot = m[i][i];
        double scale = (chosen >> i & 1u) != 0 ? a[i][i] : 1.0;
        if (!(fabs(pivot) > 1e-12 * scale)) {
            return false;
        }
        for (int row = i + 1; row < FIGURES; row++) {
            double times = m[row][i] / pivot;
            for (int k = i; k <= FIGURES; k++) {
                m[row][k] -= times * m[i][k];
            }
        }
    }
    for (int i = FIGURES; i-- > 0;) {
        x[i] = m[i][FIGURES];
        for (int k = i + 1; k < FIGURES; k++) {
            x[i] -= m[i][k] * x[k];
        }
        x[i] /= m[i][i];
    }
    return true;
}

/* Sum of squares of relative differences. */
static double squares_of(const double x[FIGURES], const by_exchange_time *times, size_t count,
                         int ranks)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        double difference = seconds_with(x, &times[i], ranks) / times[i].seconds - 1.0;
        sum += difference * difference;
    }
    return sum;
}

by_status by_cluster_fit_level(by_cluster_level *level, double *difference,
                               const by_exchange_time *times, size_t count, int ranks,
                               by_error *error)
{
    double a[FIGURES][FIGURES] = {{0.0}};
    double b[FIGURES] = {0.0};
    double best[FIGURES] = {0.0};
    double least = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double row[FIGURES];
        for (int k = 0; k < FIGURES; k++) {
            double x[FIGURES] = {0.0};
            x[k] = 1.0;
            row[k] = seconds_with(x, &times[i], ranks) / times[i].seconds;
        }
        for (int k = 0; k < FIGURES; k++) {
            b[k] += row[k];
            for (int j = 0; j < FIGURES; j++) {
                a[k][j] += row[k] * row[j];
            }
        }
    }
    /* No figure is below 0: of all choices of those that are above it, the best. */
    for (unsigned chosen = 1; chosen < 1u << FIGURES; chosen++) {
        double x[FIGURES];
        bool allowed = (chosen & 2u) != 0 && solve(x, a, b, chosen);
        for (int k = 0; k < FIGURES && allowed; k++) {
            allowed = x[k] >= 0.0;
        }
        double squares = allowed ? squares_of(x, times, count, ranks) : (double)INFINITY;
        if (squares < least) {
            least = squares;
            memcpy(best, x, sizeof best);
        }
    }
    if (!(best[1] > 0.0)) {
        return by_error_set(error, BY_EARG,
                            "%zu exchanges between %d ranks tell no bandwidth: measure larger ones",
                            count, ranks);
    }
    const by_cluster_level fitted = level_of(best);
    level->latency = fitted.latency;
    level->bandwidth = fitted.bandwidth;
    level->sum = fitted.sum;
    level->width = ranks;
    level->origin = BY_ORIGIN_MEASURED;
    *difference = sqrt(least / (double)count);
    return BY_OK;
}
