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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_wrong_files),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_small_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
