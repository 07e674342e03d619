/* Where windows are in their series, and what forecasts are compared with, from the rows of the
 * series alone. */
#include <math.h>
#include <stdlib.h>

#include "tasks/forecast/forecast.h"

/* The mean of |y(t) - y(t - season)| over rows whose numbers are both there. */
static double naive_error(const by__series_set *set, size_t s, size_t channel, uint64_t rows,
                          uint64_t season)
{
    size_t channels = set->channels.count;
    uint64_t first = set->series[s].first;
    double sum = 0.0;
    uint64_t count = 0;
    for (uint64_t i = season; i < rows; i++) {
        uint64_t now = (first + i) * channels + channel;
        uint64_t then = now - season * channels;
        if (set->present[now] != 0 && set->present[then] != 0) {
            sum += fabs((double)set->values[now] - (double)set->values[then]);
            count++;
        }
    }
    return count > 0 ? sum / (double)count : 0.0;
}

/* Few rows have no rates. */
#define FEWEST 10

static by_status smooth(by__forecast_data *d, size_t s, size_t channel, uint64_t rows,
                        by_error *error)
{
    size_t channels = d->set->channels.count;
    const by__series_rows *series = &d->set->series[s];
    const by__series_channel y = {.y = d->set->values + series->first * channels + channel,
                                  .stride = channels,
                                  .rows = series->count};
    uint64_t season = d->keys->season > 0 ? (uint64_t)d->keys->season : 0;
    return rows < FEWEST ? BY_OK
                         : by__series_smoothing_fit(&d->smoothed[s * channels + channel], &y,
                                                    season, rows, error);
}

by_status by__forecast_find_baselines(by__forecast_data *d, const uint64_t *train, by_error *error)
{
    size_t channels = d->set->channels.count;
    uint64_t season = d->keys->season > 0 ? (uint64_t)d->keys->season : 1;
    BY_TRY(by__alloc((void **)&d->naive, d->set->series_count * channels, sizeof *d->naive,
                     "errors", error));
    BY_TRY(by__alloc((void **)&d->smoothed, d->set->series_count * channels, sizeof *d->smoothed,
                     "states", error));
    for (size_t s = 0; s < d->set->series_count; s++) {
        for (size_t c = 0; c < channels; c++) {
            d->naive[s * channels + c] = naive_error(d->set, s, c, train[s], season);
            if (d->purpose == BY_TASK_EVALUATE) {
                BY_TRY(smooth(d, s, c, train[s], error));
            }
        }
    }
    return BY_OK;
}

size_t by__forecast_place(const by__forecast_data *d, uint64_t sample, uint64_t *origin)
{
    size_t s = 0;
    while (s + 1 < d->set->series_count && sample >= d->valid[s].count) {
        sample -= d->valid[s++].count;
    }
    *origin = d->valid[s].first + sample + (uint64_t)d->context;
    return s;
}

void by__forecast_free_baselines(by__forecast_data *d)
{
    for (size_t i = 0; d->smoothed != NULL && i < d->set->series_count * d->set->channels.count;
         i++) {
        by__series_smoothing_free(&d->smoothed[i]);
    }
    free(d->smoothed);
    free(d->naive);
}
