/* What a model is told of the rows of series and of those that it forecasts. */
#include <math.h>
#include <stdlib.h>

#include "data/series/series_set.h"

/* What clocks show at a row, which may be behind the last one. */
static double clock_of(const by__series_set *set, const by__series_rows *series, uint64_t row)
{
    if (row < series->count) {
        return set->times[series->first + row];
    }
    double time = series->last + (double)(row + 1 - series->count) * series->step;
    return series->by_clock ? time : time + by__series_zone_offset(set->zone, time);
}

static by_status check_ahead(const by__series_set *set, const by__series_rows *series,
                             const by__series_scales *scales, uint64_t horizon, by_error *error)
{
    const char *name = series->name == NULL ? "" : series->name;
    if (scales->calendar.features != 0 && !(series->step > 0.0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: series '%s': the times of its rows are not evenly spaced, so that "
                            "those of the next ones are not known: set data.resample",
                            set->name, name);
    }
    return set->known.count == 0 || series->known_count >= series->count + horizon
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: series '%s': the columns that are known ahead (data.known) need "
                              "%llu rows behind its last number, and there are %llu",
                              set->name, name, (unsigned long long)horizon,
                              (unsigned long long)(series->known_count - series->count));
}

static void fill_row(const by__series_set *set, const by__series_rows *series,
                     const by__series_scales *scales, uint64_t row, float *out)
{
    size_t width = set->known.count;
    size_t calendar = by__series_calendar_width(&scales->calendar);
    if (calendar > 0) {
        by__series_calendar_row(&scales->calendar, clock_of(set, series, row), out);
    }
    for (size_t k = 0; k < width; k++) {
        double number = row < series->known_count
                            ? (double)set->known_values[(series->known_first + row) * width + k]
                            : (double)NAN;
        out[calendar + k] =
            isnan(number) ? 0.0f
                          : (float)((number - scales->known_mean[k]) / scales->known_deviation[k]);
    }
}

by_status by__series_make_inputs(by__series_set *set, const by__series_scales *scales,
                                 uint64_t horizon, bool ahead, by_error *error)
{
    size_t cells;
    set->input_width = by__series_calendar_width(&scales->calendar) + set->known.count;
    if (set->input_width == 0) {
        return BY_OK;
    }
    if (scales->calendar.features != 0 && set->times == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.time_features needs a column of times: name it in data.time",
                            set->name);
    }
    if (!by__size_mul(set->rows + set->series_count * horizon, set->input_width, &cells)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: series");
    }
    BY_TRY(by__alloc((void **)&set->inputs, cells, sizeof *set->inputs, "series", error));
    for (size_t s = 0; s < set->series_count; s++) {
        by__series_rows *series = &set->series[s];
        series->inputs_first = series->first + s * horizon;
        if (ahead && series->count > 0) {
            BY_TRY(check_ahead(set, series, scales, horizon, error));
        }
        for (uint64_t row = 0; series->count > 0 && row < series->count + horizon; row++) {
            fill_row(set, series, scales, row,
                     set->inputs + (series->inputs_first + row) * set->input_width);
        }
    }
    return BY_OK;
}
