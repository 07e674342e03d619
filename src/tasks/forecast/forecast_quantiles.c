#include <math.h>

#include "nn/series.h"
#include "tasks/forecast/forecast.h"

/* The band that coverage is of: from this level to 1 minus it. */
#define BAND 0.1

void by__forecast_form_of(by__forecast_form *out, const by_model_config *model)
{
    *out = (by__forecast_form){.point = by__nn_series_is_point(model),
                               .outputs = (size_t)by__nn_series_outputs(model),
                               .low = -1,
                               .high = -1};
    for (size_t i = 0; !out->point && i < out->outputs; i++) {
        double level = by__nn_series_level(model, i);
        bool nearer = fabs(level - 0.5) < fabs(out->levels[out->middle] - 0.5);
        out->levels[i] = level;
        out->middle = nearer ? i : out->middle;
        out->low = fabs(level - BAND) < 1e-9 ? (int64_t)i : out->low;
        out->high = fabs(level - (1.0 - BAND)) < 1e-9 ? (int64_t)i : out->high;
    }
}

double by__forecast_number(const by__forecast_numbers *n, size_t i)
{
    return (double)n->first[i * n->stride];
}

double by__forecast_point(const by__forecast_numbers *n)
{
    return by__forecast_number(n, n->form->middle);
}

double by__forecast_pinball(const by__forecast_numbers *n, double y)
{
    double sum = 0.0;
    for (size_t i = 0; i < n->form->outputs; i++) {
        double level = n->form->levels[i];
        double e = y - by__forecast_number(n, i);
        sum += e >= 0.0 ? level * e : (level - 1.0) * e;
    }
    return sum / (double)n->form->outputs;
}
