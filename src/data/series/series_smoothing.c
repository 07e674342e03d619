/* The recursions are those of Hyndman and Athanasopoulos 2021, 8.1 to 8.3, in the form of
 * statsmodels. */
#include "data/series/series_smoothing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double at(const by__series_channel *channel, uint64_t row)
{
    return (double)channel->y[row * channel->stride];
}

static by_status allocate(by__series_smoothing *s, uint64_t rows, uint64_t season, by_error *error)
{
    *s = (by__series_smoothing){.rows = rows, .season = season};
    by_status status = by__alloc((void **)&s->levels, rows + 1, sizeof(double), "states", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s->trends, rows + 1, sizeof(double), "states", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s->seasons, rows + season + 1, sizeof(double), "states", error);
    }
    if (status != BY_OK) {
        by__series_smoothing_free(s);
    }
    return status;
}

void by__series_smoothing_free(by__series_smoothing *s)
{
    free(s->levels);
    free(s->trends);
    free(s->seasons);
    *s = (by__series_smoothing){0};
}

/* Sets the initial seasons, and returns the initial level and trend. */
static double begin(by__series_smoothing *s, const by__series_channel *channel, double *trend)
{
    uint64_t m = s->season;
    double level = at(channel, 0);
    *trend = s->kind == BY__SERIES_SIMPLE ? 0.0 : at(channel, 1) - level;
    if (s->kind == BY__SERIES_HOLT_WINTERS) {
        double first = 0.0;
        double second = 0.0;
        for (uint64_t i = 0; i < m; i++) {
            first += at(channel, i);
            second += at(channel, m + i);
        }
        level = first / (double)m;
        *trend = (second - first) / (double)m / (double)m;
        for (uint64_t i = 0; i < m; i++) {
            s->seasons[i] = at(channel, i) - level;
        }
    }
    return level;
}

static void run(by__series_smoothing *s, const by__series_channel *channel, uint64_t rows,
                uint64_t fitted)
{
    const by__series_smoothing_rates r = s->rates;
    bool seasonal = s->kind == BY__SERIES_HOLT_WINTERS;
    double trend;
    double level = begin(s, channel, &trend);
    s->error = 0.0;
    for (uint64_t i = 0; i < rows; i++) {
        double y = at(channel, i);
        double season = seasonal ? s->seasons[i] : 0.0;
        double expected = level + trend;
        double miss = y - expected - season;
        s->error += i < fitted ? miss * miss : 0.0;
        double next = r.level * (y - season) + (1.0 - r.level) * expected;
        trend =
            s->kind == BY__SERIES_SIMPLE ? 0.0 : r.trend * (next - level) + (1.0 - r.trend) * trend;
        if (seasonal) {
            s->seasons[s->season + i] = r.season * (y - expected) + (1.0 - r.season) * season;
        }
        level = next;
        s->levels[i] = level;
        s->trends[i] = trend;
    }
}

by_status by__series_smoothing_run(by__series_smoothing *out, const by__series_channel *channel,
                                   by__series_smoothing_kind kind, uint64_t season,
                                   const by__series_smoothing_rates *rates, uint64_t fitted,
                                   by_error *error)
{
    by__series_smoothing s;
    season = kind == BY__SERIES_HOLT_WINTERS ? season : 0;
    if (channel->rows < 2 || channel->rows / 2 < season) {
        return by_error_set(error, BY_EARG, "%llu rows are too few for exponential smoothing",
                            (unsigned long long)channel->rows);
    }
    BY_TRY(allocate(&s, channel->rows, season, error));
    s.kind = kind;
    s.rates = *rates;
    run(&s, channel, channel->rows, fitted);
    *out = s;
    return BY_OK;
}

double by__series_smoothing_at(const by__series_smoothing *s, uint64_t origin, uint64_t ahead)
{
    double value = s->levels[origin - 1] + (double)(ahead + 1) * s->trends[origin - 1];
    return s->kind == BY__SERIES_HOLT_WINTERS ? value + s->seasons[origin + ahead % s->season]
                                              : value;
}

/* ---- fitting ---- */

static double error_of(by__series_smoothing *s, const by__series_channel *channel, uint64_t fitted,
                       const double rates[3])
{
    s->rates = (by__series_smoothing_rates){rates[0], rates[1], rates[2]};
    run(s, channel, fitted, fitted);
    return isfinite(s->error) ? s->error : HUGE_VAL;
}

/* Pattern search (Hooke and Jeeves 1961) in the cube of the rates. */
static void search(by__series_smoothing *s, const by__series_channel *channel, uint64_t fitted)
{
    int count = (int)s->kind + 1;
    double best[3] = {0.3, s->kind == BY__SERIES_SIMPLE ? 0.0 : 0.05,
                      s->kind == BY__SERIES_HOLT_WINTERS ? 0.1 : 0.0};
    double least = error_of(s, channel, fitted, best);
    for (double step = 0.2; step > 1e-4;) {
        bool better = false;
        for (int i = 0; i < 2 * count; i++) {
            double trial[3] = {best[0], best[1], best[2]};
            double moved = trial[i / 2] + (i % 2 == 0 ? step : -step);
            trial[i / 2] = moved < 0.0 ? 0.0 : moved > 1.0 ? 1.0 : moved;
            double error = error_of(s, channel, fitted, trial);
            if (error < least) {
                least = error;
                memcpy(best, trial, sizeof best);
                better = true;
            }
        }
        step = better ? step : step / 2.0;
    }
    (void)error_of(s, channel, fitted, best);
}

/* Akaike's criterion, of the rates and the initial states. */
static double criterion(const by__series_smoothing *s, uint64_t fitted)
{
    double states = 2.0 * ((double)s->kind + 1.0) + (double)s->season -
                    (s->kind == BY__SERIES_HOLT_WINTERS ? 1.0 : 0.0);
    double mean = s->error / (double)fitted;
    return (double)fitted * log(mean > 1e-300 ? mean : 1e-300) + 2.0 * states;
}

by_status by__series_smoothing_fit(by__series_smoothing *out, const by__series_channel *channel,
                                   uint64_t season, uint64_t fitted, by_error *error)
{
    static const by__series_smoothing_rates none = {0};
    by__series_smoothing best = {0};
    by_status status = BY_OK;
    double least = HUGE_VAL;
    for (int k = 0; k <= BY__SERIES_HOLT_WINTERS && status == BY_OK; k++) {
        by__series_smoothing s;
        bool seasonal = k == BY__SERIES_HOLT_WINTERS;
        if (seasonal && (season < 2 || fitted / 2 < season)) {
            break;
        }
        status = by__series_smoothing_run(&s, channel, (by__series_smoothing_kind)k, season, &none,
                                          fitted, error);
        if (status != BY_OK) {
            break;
        }
        search(&s, channel, fitted);
        double of = criterion(&s, fitted);
        if (of < least) {
            least = of;
            by__series_smoothing_free(&best);
            best = s;
        } else {
            by__series_smoothing_free(&s);
        }
    }
    if (status == BY_OK && best.levels == NULL) {
        status = by_error_set(error, BY_EARG, "exponential smoothing has no finite error");
    }
    if (status != BY_OK) {
        by__series_smoothing_free(&best);
        return status;
    }
    run(&best, channel, channel->rows, fitted);
    *out = best;
    return BY_OK;
}
