/* The losses of forecasts. */
#include <string.h>

#include "banyan/ops.h"
#include "nn/series.h"
#include "tasks/forecast/forecast.h"

/* x, targets and weight have `all` elements each. */
static by_value point_loss(const char *loss, by_graph *graph, by_value x, by_value targets,
                           by_value weight, int64_t all)
{
    x = by_reshape(graph, x, BY_SHAPE(all, 1));
    targets = by_reshape(graph, targets, BY_SHAPE(all, 1));
    weight = by_reshape(graph, weight, BY_SHAPE(all));
    return strcmp(loss, "mae") == 0         ? by_smooth_l1(graph, x, targets, weight, 0.0f)
           : strcmp(loss, "smooth_l1") == 0 ? by_smooth_l1(graph, x, targets, weight, 1.0f)
                                            : by_squared_error(graph, x, targets, weight);
}

/* The quantile that a model says, [B, horizon, 1, C], of level q: with e = y - x, the pinball loss
 * max(q e, (q - 1) e) is |e| / 2 + (q - 1/2) e. What x is multiplied by in the second part is the
 * same in every step, so that its gradient is exact. */
static by_value level_loss(by_graph *graph, by_value x, by_value targets, by_value weight,
                           double level, int64_t all)
{
    static const int both[2] = {0, 1};
    by_value half = by_fill(graph, BY_F32, BY_SHAPE(1), 0.5f);
    by_value slope = by_fill(graph, BY_F32, BY_SHAPE(1), (float)(level - 0.5));
    by_value size = point_loss("mae", graph, x, targets, weight, all);
    x = by_cast(graph, by_reshape(graph, x, BY_SHAPE(all, 1)), BY_F32);
    by_value e = by_sub(graph, by_reshape(graph, targets, BY_SHAPE(all, 1)), x);
    e = by_mul(graph, e, by_reshape(graph, weight, BY_SHAPE(all, 1)));
    by_value sum = by_reshape(graph, by_sum(graph, e, both, 2, false), BY_SHAPE(1));
    return by_add(graph, by_scale(graph, size, half), by_scale(graph, sum, slope));
}

/* The mean over all quantiles x [B, horizon, P, C]. */
static by_value quantile_loss(const by_model_config *m, by_graph *graph, by_value x,
                              by_value targets, by_value weight, int64_t all)
{
    int64_t count = by__nn_series_outputs(m);
    by_value sum = BY_NONE;
    for (int64_t i = 0; i < count; i++) {
        by_value loss = level_loss(graph, by_slice(graph, x, 2, i, 1), targets, weight,
                                   by__nn_series_level(m, (size_t)i), all);
        sum = i == 0 ? loss : by_add(graph, sum, loss);
    }
    return by_scale(graph, sum, by_fill(graph, BY_F32, BY_SHAPE(1), (float)(1.0 / (double)count)));
}

/* x times the units of the channels, [B, horizon, C], f32. */
static by_value in_units(by_graph *graph, by_value x, by_value units, by_shape shape)
{
    x = by_mul(graph, by_cast(graph, by_reshape(graph, x, shape), BY_F32), units);
    return by_reshape(graph, x, BY_SHAPE(by_shape_count(&shape)));
}

/* Distributions with parameters x [B, horizon, 2, C]; counts are in their own unit. */
static by_value distribution_loss(const by_model_config *m, by_graph *graph, by_value x,
                                  by_value targets, by_value weight, by_shape shape)
{
    int64_t all = by_shape_count(&shape);
    by_value a = by_slice(graph, x, 2, 0, 1);
    by_value b = by_reshape(graph, by_slice(graph, x, 2, 1, 1), BY_SHAPE(all));
    weight = by_reshape(graph, weight, BY_SHAPE(all));
    if (by__nn_series_kind_of(m) == BY__NN_SERIES_NORMAL) {
        a = by_reshape(graph, a, BY_SHAPE(all));
        targets = by_reshape(graph, targets, BY_SHAPE(all));
        return by_likelihood(graph, a, b, targets, weight, BY_DENSITY_NORMAL);
    }
    by_value units =
        by_graph_input(graph, "deviation", BY_F32, BY_SHAPE(shape.dim[0], shape.dim[2]));
    units = by_reshape(graph, units, BY_SHAPE(shape.dim[0], 1, shape.dim[2]));
    return by_likelihood(graph, in_units(graph, a, units, shape), by_cast(graph, b, BY_F32),
                         in_units(graph, targets, units, shape), weight,
                         BY_DENSITY_NEGATIVE_BINOMIAL);
}

by_status by__forecast_loss(const by_config *config, const by_model_request *request,
                            by_graph *graph, by_model *model, by_error *error)
{
    const by_model_config *m = &config->model;
    by_shape shape = BY_SHAPE(request->batch, m->outputs, m->channels);
    int64_t all = request->batch * m->outputs * m->channels;
    if (model->output == BY_NONE || strcmp(by_model_reads(m), "series") != 0) {
        return by_error_set(error, BY_ECONFIG, "task.kind forecast needs a model of series");
    }
    by_value targets = by_graph_input(graph, "targets", BY_F32, shape);
    by_value weight = by_graph_input(graph, "weight", BY_F32, shape);
    by_value x = model->output;
    by__nn_series_kind kind = by__nn_series_kind_of(m);
    model->loss = kind == BY__NN_SERIES_POINT
                      ? point_loss(by__nn_series_loss(m), graph, x, targets, weight, all)
                  : kind == BY__NN_SERIES_QUANTILES
                      ? quantile_loss(m, graph, x, targets, weight, all)
                      : distribution_loss(m, graph, x, targets, weight, shape);
    int64_t width = m->outputs * by__nn_series_outputs(m) * m->channels;
    model->evaluated = request->mode == BY_MODEL_TRAIN
                           ? BY_NONE
                           : by_reshape(graph, x, BY_SHAPE(request->batch, width));
    return BY_OK;
}

const char *by__forecast_loss_label(const by_config *config)
{
    const char *loss = by__nn_series_loss(&config->model);
    return strcmp(loss, "mae") == 0         ? "absolute error (standardized values)"
           : strcmp(loss, "smooth_l1") == 0 ? "smooth L1 error (standardized values)"
           : strcmp(loss, "quantile") == 0  ? "pinball loss (standardized values)"
           : strcmp(loss, "gaussian") == 0  ? "negative log-likelihood (standardized values)"
           : strcmp(loss, "negative_binomial") == 0 ? "negative log-likelihood"
                                                    : "squared error (standardized values)";
}
