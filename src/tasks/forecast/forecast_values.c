/* The values of the series that are forecast: which of their rows train, by what they are
 * standardized, and what is known ahead. */
#include <stdlib.h>
#include <string.h>

#include "tasks/forecast/forecast.h"

static uint64_t count_of(uint64_t rows, double share)
{
    return share >= 1.0 ? (share < (double)rows ? (uint64_t)share : rows)
                        : by_split_count(rows, share);
}

/* The first rows of a series that are to train on, and those in front of its part to test on. */
void by__forecast_split(const by_config *config, uint64_t rows, uint64_t *train, uint64_t *valid)
{
    uint64_t test = count_of(rows, by__forecast_keys_of(config)->test_fraction);
    uint64_t held_out = count_of(rows, config->data.valid_fraction);
    *valid = rows - test;
    *train = held_out < *valid ? *valid - held_out : 0;
}

/* The rows of each series that are to train on; all rows of another table. To be freed. */
static by_status list_train_rows(uint64_t **out, const by__forecast_data *d,
                                 const by_config *config, by_error *error)
{
    BY_TRY(by__alloc((void **)out, d->set->series_count, sizeof **out, "rows", error));
    for (size_t s = 0; s < d->set->series_count; s++) {
        uint64_t valid;
        (*out)[s] = d->set->series[s].count;
        if (d->own) {
            by__forecast_split(config, d->set->series[s].count, &(*out)[s], &valid);
        }
    }
    return BY_OK;
}

/* The calendar that the config asks for. */
static by_status read_calendar(by__series_calendar *c, const by_config *config, by_error *error)
{
    const by__forecast_keys *k = by__forecast_keys_of(config);
    for (size_t i = 0; i < k->time_features.count; i++) {
        unsigned bit = by__series_feature_named(k->time_features.items[i]);
        if (bit == 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: data.time_features: there is no '%s': name minute, hour, "
                                "weekday, day, month, yearday or holiday",
                                by__config_where(config, "data.time_features", "data.table"),
                                k->time_features.items[i]);
        }
        c->features |= bit;
    }
    bool holidays = (c->features >> BY__SERIES_HOLIDAY & 1u) != 0;
    if (holidays != (k->holidays[0] != '\0')) {
        return by_error_set(error, BY_ECONFIG,
                            holidays ? "%s: data.time_features has 'holiday': name a file of dates "
                                       "in data.holidays"
                                     : "%s: data.holidays is read if data.time_features has "
                                       "'holiday'",
                            by__config_where(config, "data.time_features", "data.holidays"));
    }
    return holidays ? by__series_holidays_read(c, k->holidays, error) : BY_OK;
}

static by_status learn(by__forecast_data *d, const by_config *config, const uint64_t *train,
                       by_error *error)
{
    const by__series_columns columns = {.id = d->keys->series};
    const by__series_scaling scaling = {.counts = by__nn_series_kind_of(&config->model) ==
                                                  BY__NN_SERIES_NEGATIVE_BINOMIAL,
                                        .each = strcmp(d->keys->standardize, "series") == 0};
    by__series_calendar calendar = {0};
    by_status status = read_calendar(&calendar, config, error);
    if (status == BY_OK) {
        status = by__series_learn(&d->scales, d->set, &columns, &scaling, train, error);
    }
    if (status == BY_OK) {
        by__series_set_calendar(d->scales, &calendar);
    }
    by__series_calendar_free(&calendar);
    BY_TRY(status);
    return by__series_scales_print(d->scales, &d->learned, error);
}

/* Gives the model as many inputs as are known. */
by_status by__forecast_set_known(const by__forecast_data *d, by_config *config, by_error *error)
{
    int64_t *known = by__nn_series_known_of(&config->model);
    int64_t width =
        (int64_t)(by__series_calendar_width(&d->scales->calendar) + d->scales->known.count);
    if (known == NULL && width > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "model.kind %s does not read what is known ahead: leave out "
                            "data.time_features and data.known, or choose tide, lstm, gru or tcn",
                            config->model.kind);
    }
    if (known != NULL && *known != 0 && *known != width) {
        return by_error_set(
            error, BY_ECONFIG,
            "model.known is %lld, but %s has %lld (data.time_features, data.known); "
            "leave it out",
            (long long)*known, d->set->name, (long long)width);
    }
    if (known != NULL) {
        *known = width;
    }
    return BY_OK;
}

/* Standardizes the values, once it is known what the model forecasts. */
by_status by__forecast_standardize(by__forecast_data *d, const by_config *config, by_error *error)
{
    uint64_t *train;
    if (d->set->mean != NULL) {
        return BY_OK;
    }
    BY_TRY(list_train_rows(&train, d, config, error));
    by_status status = d->scales == NULL ? learn(d, config, train, error) : BY_OK;
    if (status == BY_OK) {
        by__hash128_hex(d->learned_hash, d->learned, strlen(d->learned));
        status = by__series_standardize(d->set, d->scales, error);
    }
    if (status == BY_OK) {
        status = by__series_make_inputs(d->set, d->scales, (uint64_t)config->model.outputs,
                                        d->purpose == BY_TASK_PREDICT, error);
    }
    if (status == BY_OK) {
        status = by__forecast_find_baselines(d, train, error);
    }
    free(train);
    return status;
}
