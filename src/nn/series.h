/* series: what a model of series gives for each row that it forecasts: a point, quantiles, or the
 * parameters of a distribution. The layers that all of them share are in nn.h. */
#ifndef BY_NN_SERIES_H
#define BY_NN_SERIES_H

#include "nn/nn.h"

/* Values of the keys below: the first member of the struct of a kind that has them. */
typedef struct by__nn_series_forecast {
    char *loss; /* "mse", "mae" or "smooth_l1" of a point; "quantile"; "gaussian" or
                   "negative_binomial" */
    by_string_list quantiles;
    char *head;     /* "forecast" or "window"; NULL: the family only forecasts */
    int64_t affine; /* channels of a standardized window have a learned gain and shift */
} by__nn_series_forecast;

/* task.loss and task.quantiles, which determine how many numbers a model gives, and model.affine. A
 * family without them forecasts points by squared error. */
extern const by__config_key_list by__nn_series_forecast_keys;
/* Checks them, and derives the rows that are forecast. */
by_status by__nn_series_forecast_resolve(by_config *config, const by__nn_series_forecast *forecast,
                                         by_error *error);
/* model.head, of families that also tell something of a window as a whole. */
extern const by__config_key_list by__nn_series_head_keys;
/* A task that needs a head has it, whichever the weights have that it starts from. */
by_status by__nn_series_choose_head(const by_config *config, by__nn_series_forecast *forecast,
                                    by_error *error);
/* Whether the model gives model.outputs numbers for a window, as to classify it. */
bool by__nn_series_is_whole(const by_model_config *config);

/* What the numbers are that a model gives for each row and channel. */
typedef enum by__nn_series_kind {
    BY__NN_SERIES_POINT = 0,
    BY__NN_SERIES_QUANTILES,
    BY__NN_SERIES_NORMAL,           /* mean and deviation */
    BY__NN_SERIES_NEGATIVE_BINOMIAL /* mean m and dispersion d; the variance is m + d m^2 */
} by__nn_series_kind;

/* The loss that a model is trained by. */
const char *by__nn_series_loss(const by_model_config *config);
by__nn_series_kind by__nn_series_kind_of(const by_model_config *config);
/* How many numbers it gives for each row and channel, P. */
int64_t by__nn_series_outputs(const by_model_config *config);
/* The levels of its quantiles, or of those that are told of its distribution: how many, ... */
size_t by__nn_series_levels(const by_model_config *config);
/* ... and level i. */
double by__nn_series_level(const by_model_config *config, size_t i);
/* The level as it was given. */
const char *by__nn_series_level_name(const by_model_config *config, size_t i);

/* The key model.known of a family that reads what is known ahead; NULL: it reads none of that. */
int64_t *by__nn_series_known_of(by_model_config *config);

/* Ends a model of series: x [B, C, P outputs], of each channel the rows of the first number, then
 * those of the next one, becomes b->model.output: points [B, outputs, C], or P numbers [B, outputs,
 * P, C]. Deviations, dispersions and the means of counts are softplus of what the network says.
 * scales: those that x was standardized by; NULL: it was not. */
void by__nn_series_end(by__nn_build *b, by_value x, const by__nn_window_scales *scales);

/* Reads a list of texts of config.json, to be freed with by__nn_free_texts; `name` is used in
 * messages. What is no text is "". */
by_status by__nn_json_texts(by_string_list *out, const char *name, const json_t *in,
                            by_error *error);
void by__nn_free_texts(by_string_list *list);

/* BY_ECONFIG: model.affine, but windows are not standardized. */
by_status by__nn_series_check_affine(const by_config *config,
                                     const by__nn_series_forecast *forecast, bool standardize,
                                     by_error *error);
/* "standardize" of config.json, and "affine", if it is true. usual: if config.json does not say. */
void by__nn_series_write_standardize(json_t *out, const by__nn_series_forecast *forecast,
                                     bool standardize);
by_status by__nn_series_read_standardize(int64_t *standardize, by__nn_series_forecast *forecast,
                                         const char *name, const json_t *in, bool usual,
                                         by_error *error);
/* The members of config.json that tell what the model gives: "loss" and "quantiles" of forecasts,
 * with their rows, or "head" and the classes. */
void by__nn_series_write_forecast(json_t *out, const by_model_config *config);
/* rows: those that are forecast if config.json does not say it, or BY__REQUIRED. */
by_status by__nn_series_read_forecast(by_model_config *config, const char *name, const json_t *in,
                                      int64_t rows, by_error *error);

#endif
