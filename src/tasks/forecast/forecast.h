/* forecast: the task of predicting the rows that follow a window of rows of time series.
 *
 * forecast.c opens the data; the other files have the keys, the loss, the metrics and what
 * `predict` reports. Never put here: models (nn), the rows themselves (data/series). */
#ifndef BY_TASKS_FORECAST_FORECAST_H
#define BY_TASKS_FORECAST_FORECAST_H

#include "banyan/array_set.h"
#include "data/series/series_smoothing.h"
#include "data/series/series_source.h"
#include "nn/series.h"
#include "tasks/tasks.h"

/* Keys of the task alone; task.loss and task.quantiles are the model's (nn/series.h). */
typedef struct by__forecast_keys {
    char *table;
    char *time;
    char *series;
    by_string_list channels;
    by_string_list ignore;
    by_string_list known;
    by_string_list time_features;
    char *holidays;
    int64_t rows;
    int64_t skip_last;
    char *zone;
    char *step; /* data.resample */
    char *rule;
    char *empty; /* "missing" or "zero" */
    char *duplicates;
    int64_t sort;
    char *standardize; /* "all" or "series" */
    char *missing;     /* "last" or "refuse" */
    double test_fraction;
    int64_t anomaly;
    int64_t season;
} by__forecast_keys;

extern const by__config_key_list by__forecast_key_list;
/* The values of a config; NULL if it does not know the task. */
const by__forecast_keys *by__forecast_keys_of(const by_config *config);

/* ---- what a model says (forecast_says.c) ---- */

#define BY__FORECAST_LEVELS 100

/* What the numbers of a model are, for each row and channel. */
typedef struct by__forecast_form {
    by__nn_series_kind kind;
    size_t outputs;                     /* numbers of the model */
    size_t level_count;                 /* quantiles that are told; 0 of a point */
    double levels[BY__FORECAST_LEVELS]; /* of these */
    double normal[BY__FORECAST_LEVELS]; /* the standard normal distribution's quantiles of these */
    size_t middle;                      /* the level nearest to 1/2 */
    int64_t low, high; /* the levels of the band that coverage is of; -1: there is none */
} by__forecast_form;

void by__forecast_form_of(by__forecast_form *out, const by_model_config *model);

/* What a model says of one channel of one row, in standardized units: its numbers, `stride`
 * apart. */
typedef struct by__forecast_numbers {
    const by__forecast_form *form;
    const float *first;
    size_t stride;
    double unit; /* what 1 stands for; read of counts alone */
} by__forecast_numbers;

/* What is derived of these, in standardized units. */
typedef struct by__forecast_said {
    double point; /* the number itself, the quantile whose level is nearest to 1/2,
                                      or the mean of a distribution */
    double quantiles[BY__FORECAST_LEVELS]; /* [level_count] */
    double crps; /* continuous ranked probability score of target y (Gneiting and Raftery 2007):
                    that of a distribution, or twice the mean pinball loss of the quantiles */
    double nll;  /* -log p(y), of counts in their own unit; 0 without a distribution */
} by__forecast_said;

/* Derives it. y: NaN: no target is known, and there are no scores. */
void by__forecast_say(by__forecast_said *out, const by__forecast_numbers *n, double y);
/* The mean over the levels q of the pinball loss max(q (y - x), (q - 1) (y - x)) of target y
 * (Koenker and Bassett 1978). */
double by__forecast_pinball(const by__forecast_form *form, const by__forecast_said *said, double y);

typedef struct by__forecast_data {
    by_task_data base;
    const by__forecast_keys *keys; /* of the config that was opened, which must outlive it */
    by__forecast_form form;        /* once the config is complete, */
    const by_model_config *model;  /* whose names of levels these are */
    by__series_set *set;
    by__series_scales *scales;
    by__series_windows *train; /* [series] */
    by__series_windows *valid; /* [series] held out, or to predict */
    by_task_purpose purpose;
    bool own;              /* the config's data, not another table */
    bool served;           /* rows in memory are predicted: there is no set */
    by__series_zone *zone; /* of their times, which requests must not open; NULL: as written */
    const by_config *config;
    bool test;       /* the part that is kept for a test is evaluated */
    int64_t context; /* rows that the model reads */
    /* [series, channels], of the part to train on: the mean error of repeating the last row, or the
     * last period (0: there is none), and exponential smoothing (without levels: there is none). */
    double *naive;
    by__series_smoothing *smoothed;
    char *learned; /* the scales, as JSON */
    char learned_hash[33];
    char *summary;
} by__forecast_data;

/* by_task.loss and loss_label (forecast_loss.c). */
by_status by__forecast_loss(const by_config *config, const by_model_request *request,
                            by_graph *graph, by_model *model, by_error *error);
const char *by__forecast_loss_label(const by_config *config);

/* The first rows of a series that are to train on, and those in front of its part to test on
 * (forecast_values.c). */
void by__forecast_split(const by_config *config, uint64_t rows, uint64_t *train, uint64_t *valid);
/* Standardizes the values, once it is known what the model forecasts; only the first time. */
by_status by__forecast_standardize(by__forecast_data *data, const by_config *config,
                                   by_error *error);
/* Gives the model as many inputs as are known ahead. */
by_status by__forecast_set_known(const by__forecast_data *data, by_config *config, by_error *error);

/* Finds out about naive errors and, to evaluate, exponential smoothing. train: the rows of each
 * series that are to train on. */
by_status by__forecast_find_baselines(by__forecast_data *data, const uint64_t *train,
                                      by_error *error);
void by__forecast_free_baselines(by__forecast_data *data);
/* The series that a sample of a pass is a window of; *origin: its row behind what is read. */
size_t by__forecast_place(const by__forecast_data *data, uint64_t sample, uint64_t *origin);

#define BY__FORECAST_FAULT 256
/* Whether series s of `set` cannot be continued from its last window: it has fewer rows, or none
 * has a number of a channel, or by data.missing any has none (forecast_missing.c). text: "it has"
 * goes in front of it. */
bool by__forecast_window_fault(const by__forecast_data *data, const by__series_set *set, size_t s,
                               char text[BY__FORECAST_FAULT]);
/* Returns BY_ECONFIG if windows to test on forecast rows that request->trained trains on; notes
 * those that it validates on (forecast_unseen.c). */
by_status by__forecast_check_unseen(const by__forecast_data *data, const by_task_request *request,
                                    by_error *error);

/* by_task.sums, metrics and measure (forecast_metrics.c). */
#define BY__FORECAST_SUMS    14
#define BY__FORECAST_METRICS 11
extern const by_task_sum by__forecast_sums[BY__FORECAST_SUMS];
extern const by_metric by__forecast_metrics[BY__FORECAST_METRICS];
void by__forecast_measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                          const float *values, size_t width);

/* How rows of a table are read by a config. Returns BY_ECONFIG if data.resample is no step. */
by_status by__forecast_reading(by__series_reading *out, const by_config *config, by_error *error);

/* Rows in memory: by_task.open_examples and column (forecast_served.c). */
by_status by__forecast_open_rows(const by_task_data *data, const by_task_examples *examples,
                                 by_array_set **set, by_source **source, by_error *error);
bool by__forecast_column(const by_task_data *data, size_t i, by_column_type *out);
/* Reports one prediction a window: "index", and for each channel the list of what is forecast, and
 * one for each quantile. */
by_status by__forecast_predict_rows(const by__forecast_data *data, const by_batch *batch,
                                    const float *values, size_t width, by_predicted *report,
                                    void *user, by_error *error);

/* by_task.predict (forecast_report.c). */
by_status by__forecast_predict(by_task_data *data, const by_batch *batch, double sum,
                               const float *values, size_t width, by_predicted *report, void *user,
                               by_error *error);

#endif
