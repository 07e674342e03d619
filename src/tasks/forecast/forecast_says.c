/* What a model says of a number: a point, quantiles, and how well they fit. */
#include <math.h>

#include "tasks/forecast/forecast.h"
#include "tasks/forecast/forecast_distributions.h"

/* The band that coverage is of: from this level to 1 minus it. */
#define BAND 0.1
/* Deviations, means and dispersions below this count as it, as in the loss (LIKELIHOOD). */
#define LEAST 1e-5

void by__forecast_form_of(by__forecast_form *out, const by_model_config *model)
{
    *out = (by__forecast_form){.kind = by__nn_series_kind_of(model),
                               .outputs = (size_t)by__nn_series_outputs(model),
                               .level_count = by__nn_series_levels(model),
                               .low = -1,
                               .high = -1};
    for (size_t i = 0; i < out->level_count; i++) {
        double level = by__nn_series_level(model, i);
        bool nearer = fabs(level - 0.5) < fabs(out->levels[out->middle] - 0.5);
        out->levels[i] = level;
        out->normal[i] = by__forecast_normal_quantile(level);
        out->middle = nearer ? i : out->middle;
        out->low = fabs(level - BAND) < 1e-9 ? (int64_t)i : out->low;
        out->high = fabs(level - (1.0 - BAND)) < 1e-9 ? (int64_t)i : out->high;
    }
}

/* Number i of the model. */
static double number(const by__forecast_numbers *n, size_t i)
{
    return (double)n->first[i * n->stride];
}

double by__forecast_pinball(const by__forecast_form *form, const by__forecast_said *said, double y)
{
    double sum = 0.0;
    for (size_t i = 0; i < form->level_count; i++) {
        double level = form->levels[i];
        double e = y - said->quantiles[i];
        sum += e >= 0.0 ? level * e : (level - 1.0) * e;
    }
    return sum / (double)form->level_count;
}

static void say_quantiles(by__forecast_said *out, const by__forecast_numbers *n, double y)
{
    for (size_t i = 0; i < n->form->level_count; i++) {
        out->quantiles[i] = number(n, i);
    }
    out->point = out->quantiles[n->form->middle];
    out->crps = 2.0 * by__forecast_pinball(n->form, out, y);
}

static void say_normal(by__forecast_said *out, const by__forecast_numbers *n, double y)
{
    double deviation = fmax(fabs(number(n, 1)), LEAST);
    out->point = number(n, 0);
    for (size_t i = 0; i < n->form->level_count; i++) {
        out->quantiles[i] = out->point + deviation * n->form->normal[i];
    }
    double z = (y - out->point) / deviation;
    out->crps = deviation * by__forecast_normal_crps(z);
    out->nll = 0.5 * z * z + log(deviation) + 0.5 * log(2.0 * M_PI);
}

static void say_counts(by__forecast_said *out, const by__forecast_numbers *n, double y)
{
    const by__forecast_form *form = n->form;
    const by__forecast_counts c = {.mean = fmax(fabs(number(n, 0) * n->unit), LEAST),
                                   .dispersion = fmax(fabs(number(n, 1)), LEAST)};
    double count = fmax(round(y * n->unit), 0.0);
    out->point = number(n, 0);
    out->crps = by__forecast_counts_scan(&c, form->levels, form->level_count, out->quantiles,
                                         isnan(y) ? y : count) /
                n->unit;
    for (size_t i = 0; i < form->level_count; i++) {
        out->quantiles[i] /= n->unit;
    }
    out->nll = -by__forecast_counts_log(&c, count);
}

void by__forecast_say(by__forecast_said *out, const by__forecast_numbers *n, double y)
{
    out->crps = 0.0;
    out->nll = 0.0;
    switch (n->form->kind) {
    case BY__NN_SERIES_QUANTILES:
        say_quantiles(out, n, y);
        break;
    case BY__NN_SERIES_NORMAL:
        say_normal(out, n, y);
        break;
    case BY__NN_SERIES_NEGATIVE_BINOMIAL:
        say_counts(out, n, y);
        break;
    default:
        out->point = number(n, 0);
    }
}
