/* Metrics of forecasts, in double from sums over all targets. Errors are of standardized values;
 * those relative to the values themselves are of these. */
#include <math.h>

#include "tasks/forecast/forecast.h"

enum {
    SUM_COUNT,
    SUM_SQUARE,
    SUM_ABSOLUTE,
    SUM_RELATIVE,
    SUM_SCALED,
    SUM_SCALED_COUNT,
    SUM_PINBALL,
    SUM_CRPS,
    SUM_NLL,
    SUM_INSIDE,
    SUM_LAST,
    SUM_SEASON,
    SUM_SMOOTHED,
    SUM_SMOOTHED_COUNT
};
const by_task_sum by__forecast_sums[BY__FORECAST_SUMS] = {
    [SUM_COUNT] = {.name = "count"},
    [SUM_SQUARE] = {.name = "square"},
    [SUM_ABSOLUTE] = {.name = "absolute"},
    [SUM_RELATIVE] = {.name = "relative"},
    [SUM_SCALED] = {.name = "scaled"},
    [SUM_SCALED_COUNT] = {.name = "scaled_count"},
    [SUM_PINBALL] = {.name = "pinball"},
    [SUM_CRPS] = {.name = "crps"},
    [SUM_NLL] = {.name = "nll"},
    [SUM_INSIDE] = {.name = "inside"},
    [SUM_LAST] = {.name = "last_square"},
    [SUM_SEASON] = {.name = "season_square"},
    [SUM_SMOOTHED] = {.name = "smoothed_square"},
    [SUM_SMOOTHED_COUNT] = {.name = "smoothed_count"}};

/* ---- sums ---- */

/* A window of a batch. */
typedef struct measured_window {
    const float *series; /* [context, channels] */
    const float *targets;
    const float *weights;
    const float *values; /* [horizon, P, channels] */
    int64_t context;
    size_t horizon;
    size_t of;       /* the series */
    uint64_t origin; /* its row behind what is read */
} measured_window;

static void measure_baselines(const by__forecast_data *d, double *const *sums,
                              const measured_window *w, size_t step, size_t channel, double y,
                              double weight)
{
    size_t channels = d->set->channels.count;
    int64_t season = d->keys->season;
    const by__series_smoothing *smoothed = &d->smoothed[w->of * channels + channel];
    double last = (double)w->series[(size_t)(w->context - 1) * channels + channel] - y;
    *sums[SUM_LAST] += weight * last * last;
    if (season > 0 && season <= w->context) {
        size_t row = (size_t)(w->context - season + (int64_t)step % season);
        double e = (double)w->series[row * channels + channel] - y;
        *sums[SUM_SEASON] += weight * e * e;
    }
    if (smoothed->levels != NULL) {
        double e = by__series_smoothing_at(smoothed, w->origin, step) - y;
        *sums[SUM_SMOOTHED] += weight * e * e;
        *sums[SUM_SMOOTHED_COUNT] += weight;
    }
}

static void measure_quantiles(double *const *sums, const by__forecast_form *form,
                              const by__forecast_said *said, double y, double weight)
{
    if (form->level_count == 0) {
        return;
    }
    *sums[SUM_PINBALL] += weight * by__forecast_pinball(form, said, y);
    *sums[SUM_CRPS] += weight * said->crps;
    *sums[SUM_NLL] += weight * said->nll;
    if (form->low >= 0 && form->high >= 0) {
        /* Rounded as y is: a count may be the very end of the band. */
        float number = (float)y;
        bool inside = number >= (float)said->quantiles[form->low] &&
                      number <= (float)said->quantiles[form->high];
        *sums[SUM_INSIDE] += inside ? weight : 0.0;
    }
}

/* Adds |error| / (|y| + |point|), 0 / 0 being 0, and |error| by the naive error of the series. */
static void measure_relative(const by__forecast_data *d, double *const *sums, size_t series,
                             size_t channel, double point, double y, double weight)
{
    size_t at = series * d->set->channels.count + channel;
    double mean = d->set->mean[at];
    double deviation = d->set->deviation[at];
    double error = fabs(point - y);
    double size = fabs(mean + deviation * y) + fabs(mean + deviation * point);
    double naive = d->naive[at];
    *sums[SUM_RELATIVE] += size > 0.0 ? weight * deviation * error / size : 0.0;
    if (naive > 0.0) {
        *sums[SUM_SCALED] += weight * error / naive;
        *sums[SUM_SCALED_COUNT] += weight;
    }
}

static void measure_window(const by__forecast_data *d, double *const *sums,
                           const measured_window *w)
{
    size_t channels = d->set->channels.count;
    size_t count = d->form.outputs;
    for (size_t i = 0; i < w->horizon * channels; i++) {
        size_t channel = i % channels;
        double weight = (double)w->weights[i];
        double y = (double)w->targets[i];
        if (!(weight > 0.0)) {
            continue;
        }
        const by__forecast_numbers n = {.form = &d->form,
                                        .first =
                                            w->values + i / channels * count * channels + channel,
                                        .stride = channels,
                                        .unit = d->set->deviation[w->of * channels + channel]};
        by__forecast_said said;
        by__forecast_say(&said, &n, y);
        double error = said.point - y;
        *sums[SUM_COUNT] += weight;
        *sums[SUM_SQUARE] += weight * error * error;
        *sums[SUM_ABSOLUTE] += weight * fabs(error);
        measure_relative(d, sums, w->of, channel, said.point, y, weight);
        measure_quantiles(sums, &d->form, &said, y, weight);
        measure_baselines(d, sums, w, i / channels, channel, y, weight);
    }
}

void by__forecast_measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                          const float *values, size_t width)
{
    const by__forecast_data *d = (const by__forecast_data *)data;
    const by_array *series = by_batch_array(batch, "series");
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *weight = by_batch_array(batch, "weight");
    size_t channels = d->set->channels.count;
    for (size_t i = 0; series != NULL && targets != NULL && weight != NULL && i < batch->batch;
         i++) {
        size_t horizon = (size_t)targets->shape.dim[1];
        uint64_t origin;
        size_t of = by__forecast_place(d, batch->first_sample + i, &origin);
        const measured_window w = {.series = (const float *)series->data +
                                             i * (size_t)series->shape.dim[1] * channels,
                                   .targets = (const float *)targets->data + i * horizon * channels,
                                   .weights = (const float *)weight->data + i * horizon * channels,
                                   .values = values + i * width,
                                   .context = series->shape.dim[1],
                                   .horizon = horizon,
                                   .of = of,
                                   .origin = origin};
        measure_window(d, sums, &w);
    }
}

/* ---- metrics ---- */

static double mean_of(const double *const *sums, size_t sum)
{
    return *sums[sum] / *sums[SUM_COUNT];
}

static double mse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_SQUARE);
}

static double mae(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_ABSOLUTE);
}

/* Hyndman and Koehler 2006: the mean error in units of that of repeating the last row, or the last
 * period, over the part to train on. */
static double mase(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_SCALED] / *sums[SUM_SCALED_COUNT];
}

/* In percent, from 0 to 200 (Makridakis et al. 2020). */
static double smape(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return 200.0 * mean_of(sums, SUM_RELATIVE);
}

static const by__forecast_form *form_of(const by_task_data *data)
{
    return &((const by__forecast_data *)data)->form;
}

static double pinball(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return form_of(data)->level_count == 0 ? (double)NAN : mean_of(sums, SUM_PINBALL);
}

/* Gneiting and Raftery 2007. The score is twice the pinball loss over all levels, of which the mean
 * over those that there are is an estimate. */
static double crps(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(e);
    return form_of(data)->level_count == 0 ? (double)NAN : mean_of(sums, SUM_CRPS);
}

static double nll(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    by__nn_series_kind kind = form_of(data)->kind;
    bool known = kind == BY__NN_SERIES_NORMAL || kind == BY__NN_SERIES_NEGATIVE_BINOMIAL;
    BY_UNUSED(e);
    return known ? mean_of(sums, SUM_NLL) : (double)NAN;
}

static double coverage(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    const by__forecast_form *form = form_of(data);
    BY_UNUSED(e);
    return form->low >= 0 && form->high >= 0 ? mean_of(sums, SUM_INSIDE) : (double)NAN;
}

static double last_mse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return mean_of(sums, SUM_LAST);
}

static double season_mse(const by_task_data *data, const double *const *sums,
                         const by_evaluation *e)
{
    const by__forecast_data *d = (const by__forecast_data *)data;
    bool known = d->keys->season > 0 && d->keys->season <= d->context;
    BY_UNUSED(e);
    return known ? mean_of(sums, SUM_SEASON) : (double)NAN;
}

static double ets_mse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_SMOOTHED] / *sums[SUM_SMOOTHED_COUNT];
}

const by_metric by__forecast_metrics[BY__FORECAST_METRICS] = {
    {"mse", false, 4, mse},           {"mae", false, 4, mae},
    {"mase", false, 4, mase},         {"smape", false, 2, smape},
    {"pinball", false, 4, pinball},   {"crps", false, 4, crps},
    {"nll", false, 4, nll},           {"coverage_80", false, 4, coverage},
    {"last_mse", false, 4, last_mse}, {"season_mse", false, 4, season_mse},
    {"ets_mse", false, 4, ets_mse}};
