/* Cluster files and the time of exchanges, against closed forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/cluster.h"
#include "base/base.h"
#include "runner.h"

static const char text[] = "name: pair\n"
                           "device: {name: a, from: table, f32_tflops: 10, bf16_tflops: 100,\n"
                           "         memory: 40GiB, memory_gb_s: 1500, launch_us: 4}\n"
                           "levels:\n"
                           "  - {name: host, width: 8, latency_us: 5, gb_s: 200, from: measured}\n"
                           "  - {name: rack, width: 4, latency_us: 20, gb_s: 80}\n";

static void assert_close(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b))) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

static by_cluster cluster_of(const char *yaml)
{
    by_error error = {0};
    by_cluster c;
    check_ok(by_cluster_parse(&c, "test", yaml, strlen(yaml), &error), &error);
    return c;
}

/* Units are those of the keys' names. */
static void test_file(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char *printed;
    by_cluster c = cluster_of(text);
    assert_close(c.device.bf16_flops, 1e14);
    assert_close(by_cluster_flops(&c, BY_F32), 1e13);
    assert_close(by_cluster_flops(&c, BY_BF16), 1e14);
    assert_close(c.device.memory, 40.0 * 1073741824.0);
    assert_close(c.device.bandwidth, 1.5e12);
    assert_close(c.device.launch, 4e-6);
    assert_true(isnan(c.device.price));
    assert_close(c.levels[1].bandwidth, 8e10);
    assert_close(c.levels[0].latency, 5e-6);
    assert_int_equal(c.levels[1].origin, BY_ORIGIN_GUESS);
    assert_close(by_cluster_devices(&c), 32.0);
    check_ok(by_cluster_print(&printed, &c, &error), &error);
    by_cluster again = cluster_of(printed);
    assert_close(again.device.bandwidth, c.device.bandwidth);
    assert_close(again.levels[1].latency, c.levels[1].latency);
    assert_int_equal(again.device.origin, c.device.origin);
    assert_int_equal(again.level_count, 2);
    free(printed);
}

/* Every key in its unit, read and written. */
static void test_units(void **state)
{
    BY_UNUSED(state);
    static const char all[] =
        "device: {f32_tflops: 3, bf16_tflops: 5, fp8_tflops: 7, product_share: 0.5,\n"
        "  attention_share: 0.25, memory: 1000, memory_gb_s: 11, launch_us: 13, host_us: 17,\n"
        "  step_us: 19, compute_slowdown: 0.5, exchange_slowdown: 0.75, price_per_hour: 23,\n"
        "  watts: 29}\n"
        "levels: [{name: a, width: 2, latency_us: 31, gb_s: 37, sum_gb_s: 50}]\n";
    by_error error = {0};
    by_cluster c = cluster_of(all);
    for (int pass = 0; pass < 2; pass++) {
        const by_cluster_device *d = &c.device;
        const double values[][2] = {{d->f32_flops, 3e12},
                                    {d->bf16_flops, 5e12},
                                    {d->fp8_flops, 7e12},
                                    {d->product_share, 0.5},
                                    {d->attention_share, 0.25},
                                    {d->memory, 1e3},
                                    {d->bandwidth, 11e9},
                                    {d->launch, 13e-6},
                                    {d->host, 17e-6},
                                    {d->step, 19e-6},
                                    {d->compute_slowdown, 0.5},
                                    {d->exchange_slowdown, 0.75},
                                    {d->price, 23.0},
                                    {d->watts, 29.0},
                                    {c.levels[0].latency, 31e-6},
                                    {c.levels[0].bandwidth, 37e9},
                                    {c.levels[0].sum, 1.0 / 50e9}};
        for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
            assert_close(values[i][0], values[i][1]);
        }
        char *printed;
        check_ok(by_cluster_print(&printed, &c, &error), &error);
        c = cluster_of(printed);
        free(printed);
    }
}

/* Ranks divide the memory of a host, and its processors and the memory's bandwidth if they have
 * more threads than it has cores, but not GPUs. */
static void test_machine(void **state)
{
    BY_UNUSED(state);
    by_machine m = {.device = "cpu",
                    .cores = 4,
                    .threads = 4,
                    .memory = 8e9,
                    .f32_gflops = 80.0,
                    .bf16_gflops = 40.0,
                    .read_gbps = 20.0};
    by_cluster c;
    by_cluster_of_machine(&c, &m, 2);
    assert_close(c.device.f32_flops, 40e9);
    assert_close(c.device.bf16_flops, 20e9);
    assert_close(c.device.bandwidth, 10e9);
    assert_int_equal(by_cluster_origin(&c.device, BY_FIGURE_F32 | BY_FIGURE_BF16),
                     BY_ORIGIN_MEASURED);
    assert_int_equal(by_cluster_origin(&c.device, BY_FIGURE_BANDWIDTH | BY_FIGURE_LAUNCH),
                     BY_ORIGIN_MEASURED);
    assert_int_equal(by_cluster_origin(&c.device, BY_FIGURE_F32 | BY_FIGURE_PRODUCT_SHARE),
                     BY_ORIGIN_GUESS);
    assert_close(c.device.memory, 4e9);
    assert_close(by_cluster_devices(&c), 2.0);
    m.threads = 1;
    by_cluster_of_machine(&c, &m, 4);
    assert_close(c.device.f32_flops, 80e9);
    assert_close(c.device.memory, 2e9);
    by_cluster_of_machine(&c, &m, 8);
    assert_close(c.device.f32_flops, 40e9);
    m.bf16_gflops = 0.0;
    by_cluster_of_machine(&c, &m, 8);
    assert_int_equal(by_cluster_origin(&c.device, BY_FIGURE_BF16), BY_ORIGIN_GUESS);
    (void)snprintf(m.device, sizeof m.device, "cuda");
    by_cluster_of_machine(&c, &m, 2);
    assert_close(c.device.f32_flops, 80e9);
    assert_close(c.device.memory, 8e9);
}

/* What a file leaves out is a guess, and what it calls one. */
static void test_guesses(void **state)
{
    BY_UNUSED(state);
    static const char partly[] = "device: {from: table, f32_tflops: 1, product_share: 0.7, "
                                 "memory_gb_s: 9, launch_us: 2, guesses: [launch_us]}\n"
                                 "levels: [{name: a, width: 1, gb_s: 1}]";
    by_error error = {0};
    by_cluster c = cluster_of(partly);
    const unsigned given = BY_FIGURE_F32 | BY_FIGURE_PRODUCT_SHARE | BY_FIGURE_BANDWIDTH;
    for (int i = 0; i < 2; i++) {
        char *printed;
        assert_int_equal(c.device.guessed, ((1u << BY_FIGURES) - 1u) & ~given);
        assert_int_equal(by_cluster_origin(&c.device, given | BY_FIGURE_HOST), BY_ORIGIN_TABLE);
        assert_int_equal(by_cluster_origin(&c.device, BY_FIGURE_LAUNCH), BY_ORIGIN_GUESS);
        check_ok(by_cluster_print(&printed, &c, &error), &error);
        c = cluster_of(printed);
        free(printed);
    }
}

static void test_wrong_files(void **state)
{
    BY_UNUSED(state);
    static const struct {
        const char *yaml;
        const char *says;
    } cases[] = {{"device: {memory: 1GiB}\nlevels: [{name: a, width: 1, gb_s: 1}]", "neither"},
                 {"device: {f32_tflops: 1}", "0 levels"},
                 {"device: {f32_tflop: 1}", "f32_tflops"},
                 {"device: {f32_tflops: 1}\nlevels: [{name: a, gb_s: 1}]", "width"},
                 {"device: {f32_tflops: 1, guesses: [watt]}", "guesses has 'watt'"},
                 {"device: {f32_tflops: -1}", "f32_tflops"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        by_cluster c;
        by_status status =
            by_cluster_parse(&c, "test", cases[i].yaml, strlen(cases[i].yaml), &error);
        check_error(status, BY_ECONFIG, &error, cases[i].says);
    }
}

static double seconds(const by_cluster *c, by_exchange what, double bytes, double ranks,
                      double stride)
{
    const by_exchange_group g = {.ranks = ranks, .stride = stride, .world = 32.0};
    return by_cluster_exchange(c, what, bytes, &g);
}

/* Within a host, those of a ring; between hosts, what a host has is divided by its devices. */
static void test_exchanges(void **state)
{
    BY_UNUSED(state);
    by_cluster c = cluster_of(text);
    double s = 1e8;
    double half = 7.0 * 5e-6 + 7.0 / 8.0 * s / 2e11;
    assert_close(seconds(&c, BY_EXCHANGE_ALL_GATHER, s, 8.0, 1.0), half);
    assert_close(seconds(&c, BY_EXCHANGE_REDUCE_SCATTER, s, 8.0, 1.0), half);
    assert_close(seconds(&c, BY_EXCHANGE_ALL_REDUCE, s, 8.0, 1.0), 2.0 * half);
    assert_close(seconds(&c, BY_EXCHANGE_ALL_REDUCE, s, 1.0, 1.0), 0.0);
    /* One rank of each host: its eighth of the link. */
    double across = 3.0 * 2e-5 + 3.0 / 4.0 * s / 1e10;
    assert_close(seconds(&c, BY_EXCHANGE_ALL_GATHER, s, 4.0, 8.0), across);
    /* All ranks: first within hosts, then an eighth of the bytes between them. */
    double all = half + 3.0 * 2e-5 + 3.0 / 4.0 * (s / 8.0) / 1e10;
    assert_close(seconds(&c, BY_EXCHANGE_ALL_REDUCE, s, 32.0, 1.0), 2.0 * all);
    /* To each of 31 others a 32nd part. */
    double swap = 7.0 * 5e-6 + 7.0 / 32.0 * s / 2e11 + 3.0 * 2e-5 + 24.0 / 32.0 * s / 1e10;
    assert_close(seconds(&c, BY_EXCHANGE_ALL_TO_ALL, s, 32.0, 1.0), swap);
    assert_close(seconds(&c, BY_EXCHANGE_SHIFT, s, 8.0, 1.0), 5e-6 + s / 2e11);
    assert_close(seconds(&c, BY_EXCHANGE_SHIFT, s, 4.0, 8.0), 2e-5 + s / 1e10);
}

/* A small job does not share its host's link with devices that it does not use. */
static void test_small_job(void **state)
{
    BY_UNUSED(state);
    by_cluster c = cluster_of(text);
    const by_exchange_group g = {.ranks = 2.0, .stride = 8.0, .world = 2.0};
    assert_close(by_cluster_exchange(&c, BY_EXCHANGE_SHIFT, 8e10 * 0.5, &g), 2e-5 + 1.0);
}

/* The axes of a group show at the levels whose units it joins. */
static void test_crossings(void **state)
{
    BY_UNUSED(state);
    by_cluster c = cluster_of(text);
    const by_exchange_group inner = {.ranks = 8.0, .stride = 1.0, .world = 32.0};
    const by_exchange_group outer = {.ranks = 4.0, .stride = 8.0, .world = 32.0};
    const by_exchange_group both = {.ranks = 16.0, .stride = 1.0, .world = 32.0};
    assert_true(by_cluster_crosses(&c, 0, &inner) && !by_cluster_crosses(&c, 1, &inner));
    assert_true(!by_cluster_crosses(&c, 0, &outer) && by_cluster_crosses(&c, 1, &outer));
    assert_true(by_cluster_crosses(&c, 0, &both) && by_cluster_crosses(&c, 1, &both));
}

/* Times made from figures give these back; with noise, nearly, and never below 0. */
static void test_fit(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    double difference;
    by_cluster c = {.level_count = 1,
                    .levels = {{.width = 4, .latency = 7e-6, .bandwidth = 3e9, .sum = 5e-11}}};
    by_cluster_level level = {.name = "host", .origin = BY_ORIGIN_GUESS};
    const by_exchange_group all = {.ranks = 4.0, .stride = 1.0, .world = 4.0};
    by_exchange_time times[40];
    size_t count = 0;
    for (int what = 0; what <= BY_EXCHANGE_SHIFT; what++) {
        for (int k = 0; k < 8; k++) {
            by_exchange_time *t = &times[count++];
            *t = (by_exchange_time){(by_exchange)what, ldexp(4096.0, 2 * k), 0.0};
            t->seconds = by_cluster_exchange(&c, t->what, t->bytes, &all);
        }
    }
    check_ok(by_cluster_fit_level(&level, &difference, times, count, 4, &error), &error);
    assert_true(fabs(level.latency / 7e-6 - 1.0) < 1e-6);
    assert_true(fabs(level.bandwidth / 3e9 - 1.0) < 1e-6);
    assert_true(fabs(level.sum / 5e-11 - 1.0) < 1e-6);
    assert_true(difference < 1e-6);
    assert_int_equal(level.width, 4);
    assert_int_equal(level.origin, BY_ORIGIN_MEASURED);
    assert_string_equal(level.name, "host");
    for (size_t i = 0; i < count; i++) { /* sums that take no time */
        c.levels[0].sum = 0.0;
        times[i].seconds = by_cluster_exchange(&c, times[i].what, times[i].bytes, &all) *
                           (1.0 + 0.02 * random_unit(1, 2, i));
    }
    check_ok(by_cluster_fit_level(&level, &difference, times, count, 4, &error), &error);
    if (fabs(level.latency / 7e-6 - 1.0) > 0.05 || fabs(level.bandwidth / 3e9 - 1.0) > 0.05) {
        fail_msg("%.6g s, %.6g bytes a second, %.6g s a byte", level.latency, level.bandwidth,
                 level.sum);
    }
    assert_true(level.sum >= 0.0 && level.sum < 5e-11);
    const by_exchange_time small = {BY_EXCHANGE_SHIFT, 0.0, 1e-6};
    check_error(by_cluster_fit_level(&level, &difference, &small, 1, 4, &error), BY_EARG, &error,
                "no bandwidth");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),        cmocka_unit_test(test_units),
        cmocka_unit_test(test_machine),     cmocka_unit_test(test_guesses),
        cmocka_unit_test(test_wrong_files), cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_small_job),   cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
