/* What a model says of a number: a point, quantiles, and how well they fit. */
#include <math.h>

#include "tasks/forecast/forecast.h"

/* The band that coverage is of: from this level to 1 minus it. */
#define BAND 0.1

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

void by__forecast_say(by__forecast_said *out, const by__forecast_numbers *n, double y)
{
    out->crps = 0.0;
    if (n->form->kind == BY__NN_SERIES_QUANTILES) {
        say_quantiles(out, n, y);
    } else {
        out->point = number(n, 0);
    }
}
