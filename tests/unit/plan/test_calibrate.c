/* Calibration: steps that a cluster explains exactly are fitted, and what a program does otherwise
 * than banyan has the effect that it must have. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/calibrate.h"
#include "runner.h"

static const by_cluster truth = {.device = {.f32_flops = 1e13,
                                            .bf16_flops = 2e13,
                                            .product_share = 0.6,
                                            .attention_share = 0.3,
                                            .bandwidth = 8e11,
                                            .launch = 4e-6,
                                            .host = 1e-5,
                                            .step = 2e-3,
                                            .compute_slowdown = 0.1,
                                            .exchange_slowdown = 0.2},
                                 .levels = {{.width = 4, .latency = 5e-6, .bandwidth = 1e11},
                                            {.width = 64, .latency = 1e-5, .bandwidth = 2e10}},
                                 .level_count = 2};

#define COLUMNS                                                                                    \
    "layers,width,heads,context,vocabulary,batch,micro_batch,devices,tensor,pipeline,"             \
    "virtual_stages,overlap,gradient_bytes,split_sends,step_s\n"

static by_calibration *opened(const char *rows)
{
    by_calibration *c = NULL;
    by_table *table = NULL;
    by_error error = {0};
    char text[4096];
    (void)snprintf(text, sizeof text, "%s%s", COLUMNS, rows);
    check_ok(by_table_parse(&table, "steps.csv", text, strlen(text), NULL, &error), &error);
    check_ok(by_calibration_open(&c, table, &truth, &error), &error);
    by_table_close(&table);
    return c;
}

static void plan(double *seconds, const char *rows, const by_cluster *cluster)
{
    by_error error = {0};
    by_calibration *c = opened(rows);
    check_ok(by_calibration_plan(seconds, c, cluster, &error), &error);
    by_calibration_close(&c);
}

static const char *const layouts[] = {
    "4,256,4,128,512,64,8,1,1,1,1,gradients,4,0",  "4,256,4,128,512,64,16,1,1,1,1,gradients,4,0",
    "4,256,4,128,512,64,2,4,1,1,1,gradients,4,0",  "4,256,4,128,512,64,4,8,2,1,1,gradients,4,0",
    "4,256,4,128,512,64,8,4,4,1,1,gradients,4,0",  "4,256,4,128,512,64,2,8,1,4,1,gradients,4,0",
    "4,256,4,128,512,64,4,16,1,2,2,gradients,4,0",
};

/* The figures from which the steps are made explain them, and a fit from others comes near. */
static void test_fit(void **state)
{
    BY_UNUSED(state);
    double seconds[BY_ARRAY_LENGTH(layouts)];
    char rows[4096] = "";
    by_error error = {0};
    by_cluster start = truth;
    int fitted;
    double worst = 0.0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        (void)snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%s,1\n", layouts[i]);
    }
    plan(seconds, rows, &truth);
    rows[0] = '\0';
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        (void)snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "%s,%.9g\n", layouts[i],
                       seconds[i]);
    }
    start.device.product_share = 0.9;
    start.device.host = 3e-6;
    start.levels[1].bandwidth = 6e10;
    by_calibration *c = opened(rows);
    check_ok(by_calibration_fit(&start, &fitted, c, &error), &error);
    check_ok(by_calibration_plan(seconds, c, &start, &error), &error);
    size_t count;
    const by_measured_step *steps = by_calibration_steps(c, &count);
    for (size_t i = 0; i < count; i++) {
        worst = fmax(worst, fabs(seconds[i] / steps[i].seconds - 1.0));
    }
    assert_int_equal(fitted, 12);
    if (!(worst < 0.05)) {
        fail_msg("off by %.1f %%", 100.0 * worst);
    }
    by_calibration_close(&c);
}

/* Two rows differ in a column: the first takes at least `more` seconds longer. */
static void check_longer(const char *first, const char *second, double least, double most)
{
    char rows[1024];
    double seconds[2];
    (void)snprintf(rows, sizeof rows, "%s,1\n%s,1\n", first, second);
    plan(seconds, rows, &truth);
    double more = seconds[0] - seconds[1];
    if (!(more >= least && more <= most)) {
        fail_msg("%s: %g s, %s: %g s", first, seconds[0], second, seconds[1]);
    }
}

static void test_programs(void **state)
{
    BY_UNUSED(state);
    /* A block has 12 width^2 and some, four of them and a table of 512 + 128 rows. */
    double elements = 4.0 * 12.0 * 256.0 * 256.0 + 640.0 * 256.0;
    const by_exchange_group four = {.ranks = 4.0, .stride = 1.0, .world = 4.0};
    /* In eight buckets. */
    double all = by_cluster_exchange(&truth, BY_EXCHANGE_ALL_REDUCE, 4.0 * elements, &four);
    double none = by_cluster_exchange(&truth, BY_EXCHANGE_ALL_REDUCE, 0.0, &four);
    check_longer("4,256,4,128,512,64,16,4,1,1,1,none,4,0",
                 "4,256,4,128,512,64,16,4,1,1,1,gradients,4,0", 0.3 * (all + 7.0 * none),
                 all + 7.0 * none);
    check_longer("4,256,4,128,512,64,16,4,1,1,1,none,4,0", "4,256,4,128,512,64,16,4,1,1,1,none,2,0",
                 0.45 * (all - none), 0.55 * (all - none));
    /* 8 micro-batches there and back, and what fills and empties the pipeline: half is saved. */
    const by_exchange_group two = {.ranks = 2.0, .stride = 2.0, .world = 4.0};
    double bytes = 8.0 * 128.0 * 256.0 * 2.0;
    double whole = by_cluster_exchange(&truth, BY_EXCHANGE_SHIFT, bytes, &two);
    double half = by_cluster_exchange(&truth, BY_EXCHANGE_SHIFT, 0.5 * bytes, &two);
    double sends = 2.0 * 8.0 + 2.0;
    check_longer("4,256,4,128,512,64,8,4,2,2,1,none,4,0", "4,256,4,128,512,64,8,4,2,2,1,none,4,1",
                 0.999 * sends * (whole - half), 1.001 * sends * (whole - half));
    check_longer("4,256,4,128,512,64,8,4,2,2,1,none,4,0", "4,256,4,128,512,64,8,4,2,2,1,sends,4,0",
                 0.5 * 16.0 * whole, 16.0 * whole);
    check_longer("4,256,4,128,512,64,8,2,2,1,1,none,4,0", "4,256,4,128,512,64,8,2,2,1,1,tensor,4,0",
                 1e-5, 1.0);
}

static void test_refused(void **state)
{
    BY_UNUSED(state);
    by_calibration *c;
    by_table *table;
    by_error error = {0};
    const char *text = COLUMNS "4,256,4,128,512,64,8,1,1,1,1,gradients+weights,4,0,1\n";
    check_ok(by_table_parse(&table, "steps.csv", text, strlen(text), NULL, &error), &error);
    check_error(by_calibration_open(&c, table, &truth, &error), BY_EFORMAT, &error,
                "neither none nor of gradients+sends+tensor");
    by_table_close(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fit), cmocka_unit_test(test_programs),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
