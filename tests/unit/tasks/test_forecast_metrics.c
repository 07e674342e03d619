/* Metrics of forecasts, and exponential smoothing, compared with numbers that
 * numpy and the formulas of the papers gave in float64. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tasks/forecast/forecast.h"
#include "tasks/forecast/forecast_distributions.h"

enum { CHANNELS = 2, QUANTILES = 3, HORIZON = 3, ROWS = 12, TRAIN = 6, CONTEXT = 4, SEASON = 2 };
enum { WINDOWS = ROWS - HORIZON - TRAIN + 1 };

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1.0 + fabs(want)))) {
        fail_msg("%.17g instead of %.17g", got, want);
    }
}

static float value(int64_t i)
{
    return (float)(2.0 * sin(0.7 * (double)i));
}

/* ---- metrics ---- */

typedef struct problem {
    by__forecast_data data;
    by__forecast_keys keys;
    by__series_set set;
    by__series_rows rows;
    by__series_windows windows;
    float values[ROWS * CHANNELS];
    uint8_t present[ROWS * CHANNELS];
    double mean[CHANNELS];
    double deviation[CHANNELS];
} problem;

static void open_problem(problem *p)
{
    static const uint64_t train = TRAIN;
    by_error error = {0};
    *p = (problem){.keys = {.season = SEASON},
                   .rows = {.count = ROWS},
                   .windows = {TRAIN - CONTEXT, WINDOWS},
                   .mean = {3.0, -1.0},
                   .deviation = {0.5, 4.0}};
    for (int64_t i = 0; i < ROWS * CHANNELS; i++) {
        p->values[i] = value(i);
        p->present[i] = 1;
    }
    p->set = (by__series_set){.channels = {NULL, CHANNELS},
                              .mean = p->mean,
                              .deviation = p->deviation,
                              .series = &p->rows,
                              .series_count = 1,
                              .rows = ROWS,
                              .values = p->values,
                              .present = p->present};
    p->data = (by__forecast_data){.keys = &p->keys,
                                  .form = {.kind = BY__NN_SERIES_QUANTILES,
                                           .outputs = QUANTILES,
                                           .level_count = QUANTILES,
                                           .levels = {0.1, 0.5, 0.9},
                                           .normal = {-1.2815515655446004, 0.0, 1.2815515655446004},
                                           .middle = 1,
                                           .low = 0,
                                           .high = 2},
                                  .set = &p->set,
                                  .valid = &p->windows,
                                  .context = CONTEXT};
    assert_int_equal(by__forecast_find_baselines(&p->data, &train, &error), BY_OK);
}

/* Quantile `number`, as the script that made the numbers below has it. */
static float said(int64_t at, int64_t number)
{
    return (float)(0.5 * (double)value(at + 5) + 0.8 * (double)(number - 1));
}

/* Checks the metrics of windows whose numbers are `said`; `count` numbers of each. */
static void check_metrics(problem *p, const double *want, size_t count)
{
    double sums[BY__FORECAST_SUMS] = {0};
    double *into[BY__FORECAST_SUMS];
    float series[CONTEXT * CHANNELS];
    float targets[HORIZON * CHANNELS];
    float weights[HORIZON * CHANNELS];
    float values[HORIZON * QUANTILES * CHANNELS];
    int64_t each = (int64_t)p->data.form.outputs;
    int64_t width = HORIZON * each * CHANNELS;
    by_array arrays[3] = {
        {.name = "series", .shape = BY_SHAPE(1, CONTEXT, CHANNELS), .data = series},
        {.name = "targets", .shape = BY_SHAPE(1, HORIZON, CHANNELS), .data = targets},
        {.name = "weight", .shape = BY_SHAPE(1, HORIZON, CHANNELS), .data = weights}};
    for (size_t i = 0; i < BY__FORECAST_SUMS; i++) {
        into[i] = &sums[i];
    }
    for (int64_t w = 0; w < WINDOWS; w++) {
        const by_batch batch = {
            .arrays = arrays, .array_count = 3, .batch = 1, .first_sample = (uint64_t)w};
        memcpy(series, p->values + (TRAIN - CONTEXT + w) * CHANNELS, sizeof series);
        memcpy(targets, p->values + (TRAIN + w) * CHANNELS, sizeof targets);
        for (int64_t i = 0; i < HORIZON * CHANNELS; i++) {
            weights[i] = 1.0f;
        }
        for (int64_t i = 0; i < width; i++) {
            values[i] = said(w * width + i, i / CHANNELS % each);
        }
        by__forecast_measure(&p->data.base, into, &batch, values, (size_t)width);
    }
    for (size_t i = 0; i < count; i++) {
        double got =
            by__forecast_metrics[i].value(&p->data.base, (const double *const *)into, NULL);
        if (isnan(want[i])) {
            assert_true(isnan(got));
        } else {
            near(got, want[i]);
        }
    }
}

static void test_metrics(void **state)
{
    /* mse, mae, mase, smape, pinball, crps, nll, coverage, last_mse, season_mse */
    static const double want[10] = {2.2305868371214257, 1.291543406744798,  0.5238559160332349,
                                    78.25375732488818,  0.4908260838429366, 0.9816521676858732,
                                    (double)NAN,        7.0 / 24.0,         6.079399865422801,
                                    5.500670418239725};
    problem p;
    BY_UNUSED(state);
    open_problem(&p);
    check_metrics(&p, want, 10);
    by__forecast_free_baselines(&p.data);
}

/* Means and deviations. */
static void test_metrics_of_normal_distributions(void **state)
{
    static const double want[8] = {3.4910200675120238, 1.6538953927035134, 0.6725775452389623,
                                   83.94101263974694,  0.6458611649326464, 1.3690527225029934,
                                   77.6221142736494,   0.2916666666666667};
    problem p;
    BY_UNUSED(state);
    open_problem(&p);
    p.data.form.kind = BY__NN_SERIES_NORMAL;
    p.data.form.outputs = 2;
    check_metrics(&p, want, 8);
    by__forecast_free_baselines(&p.data);
}

/* A count at the end of the band is in it, although its f32 is beyond the double of the end. */
static void test_coverage_of_counts(void **state)
{
    static const double unit = 0.3;
    float series[CONTEXT * CHANNELS] = {0};
    float targets[HORIZON * CHANNELS];
    float weights[HORIZON * CHANNELS];
    float values[HORIZON * 2 * CHANNELS];
    double sums[BY__FORECAST_SUMS] = {0};
    double *into[BY__FORECAST_SUMS];
    problem p;
    BY_UNUSED(state);
    open_problem(&p);
    p.data.form.kind = BY__NN_SERIES_NEGATIVE_BINOMIAL;
    p.data.form.outputs = 2;
    for (size_t i = 0; i < BY__FORECAST_SUMS; i++) {
        into[i] = &sums[i];
    }
    for (size_t i = 0; i < CHANNELS; i++) {
        p.deviation[i] = unit;
    }
    for (size_t i = 0; i < HORIZON * CHANNELS; i++) { /* 7: the quantile 0.9 */
        targets[i] = (float)(7.0 / unit);
        weights[i] = 1.0f;
    }
    assert_true((double)targets[0] > 7.0 / unit);
    for (size_t i = 0; i < HORIZON * 2 * CHANNELS; i++) {
        values[i] = i / CHANNELS % 2 == 0 ? (float)(3.5 / unit) : 0.4f;
    }
    const by_array arrays[3] = {
        {.name = "series", .shape = BY_SHAPE(1, CONTEXT, CHANNELS), .data = series},
        {.name = "targets", .shape = BY_SHAPE(1, HORIZON, CHANNELS), .data = targets},
        {.name = "weight", .shape = BY_SHAPE(1, HORIZON, CHANNELS), .data = weights}};
    const by_batch batch = {.arrays = arrays, .array_count = 3, .batch = 1};
    by__forecast_measure(&p.data.base, into, &batch, values, BY_ARRAY_LENGTH(values));
    near(by__forecast_metrics[7].value(&p.data.base, (const double *const *)into, NULL), 1.0);
    by__forecast_free_baselines(&p.data);
}

/* Numbers that scipy.stats and sums over all counts gave. */
static void test_distributions(void **state)
{
    BY_UNUSED(state);
    static const double levels[3] = {0.1, 0.5, 0.9};
    static const struct {
        by__forecast_counts c;
        double y, log, quantiles[3], crps;
    } cases[] = {
        {{3.5, 0.4}, 2.0, -1.7907583250405454, {0.0, 3.0, 7.0}, 0.7341142426855477},
        {{0.2, 3.0}, 0.0, -0.15666787641524518, {0.0, 0.0, 1.0}, 0.022628215211117176},
        {{120.0, 1e-05}, 90.0, -7.274337512678244, {106.0, 120.0, 134.0}, 23.831808924098617},
        {{40.0, 0.25}, 400.0, -31.518062404279313, {16.0, 37.0, 68.0}, 348.53051609083303},
        {{900.0, 0.5}, 100.0, -7.829789835995394, {239.0, 755.0, 1751.0}, 463.63979126685945},
        {{30000.0, 0.3},
         20000.0,
         -10.485858212033722,
         {11789.0, 27059.0, 52035.0},
         4983.901195710826}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        /* Above 2048 counts a cell stands for several. */
        double share = cases[i].quantiles[2] > 2048.0 ? 1e-3 : 1e-9;
        double got[3];
        double crps = by__forecast_counts_scan(&cases[i].c, levels, 3, got, cases[i].y);
        near(by__forecast_counts_log(&cases[i].c, cases[i].y), cases[i].log);
        assert_true(fabs(crps - cases[i].crps) <= share * cases[i].crps);
        for (size_t k = 0; k < 3; k++) {
            assert_true(fabs(got[k] - cases[i].quantiles[k]) <= share * cases[i].quantiles[k]);
        }
    }
    near(by__forecast_normal_quantile(0.025), -1.9599639845400538);
    near(by__forecast_normal_quantile(0.5), 0.0);
    near(by__forecast_normal_quantile(0.9999999), 5.199337582290662);
    near(by__forecast_normal_crps(-1.5), 0.9944240039774529);
}

/* ---- exponential smoothing ---- */

enum { SMOOTHED = 24 };

static by__series_channel wave(float y[SMOOTHED])
{
    for (int i = 0; i < SMOOTHED; i++) {
        y[i] = (float)(10.0 + 0.1 * i + 3.0 * sin(i * M_PI / 2.0) + sin((double)(i * i)));
    }
    return (by__series_channel){.y = y, .stride = 1, .rows = SMOOTHED};
}

static void test_smoothing(void **state)
{
    BY_UNUSED(state);
    static const double ahead[6] = {12.415811314279216, 16.248410854105288, 12.831315862949277,
                                    10.40399101600996,  12.922892692596877, 16.755492232422945};
    float y[SMOOTHED];
    const by__series_channel channel = wave(y);
    by__series_smoothing s;
    by_error error = {0};
    const by__series_smoothing_rates season = {0.3, 0.1, 0.2};
    const by__series_smoothing_rates trend = {0.4, 0.15, 0.0};
    const by__series_smoothing_rates level = {0.35, 0.0, 0.0};
    assert_int_equal(by__series_smoothing_run(&s, &channel, BY__SERIES_HOLT_WINTERS, 4, &season,
                                              SMOOTHED, &error),
                     BY_OK);
    near(s.error, 19.96449125994634);
    for (uint64_t h = 0; h < 6; h++) {
        near(by__series_smoothing_at(&s, SMOOTHED, h), ahead[h]);
    }
    by__series_smoothing_free(&s);
    assert_int_equal(
        by__series_smoothing_run(&s, &channel, BY__SERIES_HOLT, 4, &trend, SMOOTHED, &error),
        BY_OK);
    near(s.error, 513.1049105289496);
    near(by__series_smoothing_at(&s, SMOOTHED, 2), 12.212642473815944);
    by__series_smoothing_free(&s);
    assert_int_equal(
        by__series_smoothing_run(&s, &channel, BY__SERIES_SIMPLE, 4, &level, SMOOTHED, &error),
        BY_OK);
    near(s.error, 163.9304624746144);
    near(by__series_smoothing_at(&s, SMOOTHED, 5), 11.77874485482919);
    by__series_smoothing_free(&s);
}

/* A grid of 51 x 51 x 51 rates has 17.4212 at (0.06, 0.9, 0.2) as its least error. */
static void test_smoothing_is_fitted(void **state)
{
    BY_UNUSED(state);
    float y[SMOOTHED];
    const by__series_channel channel = wave(y);
    by__series_smoothing s;
    by_error error = {0};
    assert_int_equal(by__series_smoothing_fit(&s, &channel, 4, SMOOTHED, &error), BY_OK);
    assert_int_equal(s.kind, BY__SERIES_HOLT_WINTERS);
    assert_true(s.error < 17.4213);
    by__series_smoothing_free(&s);
    for (int i = 0; i < SMOOTHED; i++) {
        y[i] = 7.0f;
    }
    assert_int_equal(by__series_smoothing_fit(&s, &channel, 4, SMOOTHED, &error), BY_OK);
    near(by__series_smoothing_at(&s, 5, 3), 7.0);
    by__series_smoothing_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_metrics_of_normal_distributions),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_coverage_of_counts),
        cmocka_unit_test(test_smoothing),
        cmocka_unit_test(test_smoothing_is_fitted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
