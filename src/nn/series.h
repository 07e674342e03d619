/* series: what a model of series gives for each row that it forecasts: a point or quantiles. The
 * layers that all of them share are in nn.h. */
#ifndef BY_NN_SERIES_H
#define BY_NN_SERIES_H

#include "nn/nn.h"

/* Values of the keys below: the first member of the struct of a kind that has them. */
typedef struct by__nn_series_forecast {
    char *loss; /* "mse", "mae" or "smooth_l1" of a point; "quantile" */
    by_string_list quantiles;
} by__nn_series_forecast;

/* task.loss and task.quantiles, which determine how many numbers a model gives. A family without
 * them forecasts points by squared error. */
extern const by__config_key_list by__nn_series_forecast_keys;
/* Checks them. */
by_status by__nn_series_forecast_check(const by_config *config,
                                       const by__nn_series_forecast *forecast, by_error *error);

/* The loss that a model is trained by. */
const char *by__nn_series_loss(const by_model_config *config);
/* Whether it gives one number, a point, for each row and channel. */
bool by__nn_series_is_point(const by_model_config *config);
/* How many numbers it gives, P. */
int64_t by__nn_series_outputs(const by_model_config *config);
/* Level i of its P quantiles. */
double by__nn_series_level(const by_model_config *config, size_t i);
/* The level as it was given. */
const char *by__nn_series_level_name(const by_model_config *config, size_t i);

/* Ends a model of series: x [B, C, P outputs], of each channel the rows of the first number, then
 * those of the next one, becomes b->model.output: points [B, outputs, C], or quantiles
 * [B, outputs, P, C]. scales: those that x was standardized by; NULL: it was not. */
void by__nn_series_end(by__nn_build *b, by_value x, const by__nn_window_scales *scales);

/* The members "loss" and "quantiles" of config.json. */
void by__nn_series_write_forecast(json_t *out, const by_model_config *config);
by_status by__nn_series_read_forecast(by_model_config *config, const char *name, const json_t *in,
                                      by_error *error);

#endif
