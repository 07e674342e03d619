/* What a run costs: intervals and goodput against failures drawn at random and against other ways
 * of finding them, replays by hand, and bills in their units. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "banyan/plan.h"
#include "base/base.h"

static void assert_close(double a, double b, double share)
{
    if (!(fabs(a - b) <= share * fabs(b))) {
        fail_msg("%.12g is not %.12g", a, b);
    }
}

/* Seconds to the next failure, at random. */
static double draw(uint64_t n, double mean)
{
    uint32_t key[2];
    uint32_t bits[4];
    by__philox_key(key, 11, 12);
    by__philox(bits, key, (const uint32_t[4]){(uint32_t)n, 0, 0, 0});
    return -mean * log(((double)bits[0] + 0.5) / 4294967296.0);
}

/* The goodput of a job that fails at random so often. */
static double drawn_goodput(const by_failures *f, double every, uint64_t failures)
{
    double useful = 0.0;
    double time = 0.0;
    for (uint64_t n = 0; n < failures; n++) {
        double left = draw(n, f->mean);
        time += left;
        /* Every failure is followed by a restart, and failures do not wait for its end. */
        left -= f->restart + f->written;
        while (left >= every + f->save) {
            useful += every;
            left -= every + f->save;
        }
    }
    return useful / time;
}

static void test_goodput(void **state)
{
    (void)state;
    static const by_failures cases[] = {{10.0, 0.0, 100.0, 3000.0},
                                        {60.0, 0.0, 120.0, 2500.0},
                                        {5.0, 3.0, 20.0, 40.0},
                                        {300.0, 200.0, 600.0, 1e5}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        double part = 0.3;
        while (part < 4.0) {
            double every = part * by_interval_young(&cases[i]);
            assert_close(by_goodput(&cases[i], every), drawn_goodput(&cases[i], every, 200000),
                         5e-3);
            part *= 2.0;
        }
    }
    const by_failures none = {10.0, 0.0, 100.0, INFINITY};
    assert_close(by_goodput(&none, 90.0), 0.9, 1e-12);
    assert_true(by_goodput(&none, INFINITY) == 1.0);
}

static void test_intervals(void **state)
{
    (void)state;
    double save = 0.1;
    while (save < 2000.0) {
        const by_failures f = {save, 0.0, 60.0, 3600.0};
        double best = by_interval_best(&f);
        double goodput = by_goodput(&f, best);
        double part = 0.5;
        while (part < 2.0) {
            assert_true(by_goodput(&f, part * best) <= goodput * (1.0 + 1e-12));
            part += 0.01;
        }
        assert_close(by_interval_young(&f), sqrt(2.0 * save * 3600.0), 1e-12);
        /* Daly's expansion is good while a save is short beside the mean. */
        if (save < 360.0) {
            assert_close(by_interval_daly(&f), best, 2e-3);
        }
        save *= 3.0;
    }
    const by_failures often = {100.0, 0.0, 0.0, 40.0};
    assert_true(by_interval_daly(&often) == 40.0);
    const by_failures none = {10.0, 0.0, 100.0, INFINITY};
    assert_true(isinf(by_interval_best(&none)) && isinf(by_interval_daly(&none)));
}

/* A trace whose replay is worked out by hand: 4 instances, 2 lost at 1000 s, 1 gained at 2000 s. */
static void test_replay_by_hand(void **state)
{
    (void)state;
    const by_spot_point points[] = {{0, 4}, {1000, 2}, {2000, 3}, {3000, 0}, {3500, 0}};
    by_spot_options o = {.job = {.save = 10.0, .restart = 50.0}, .every = 300.0};
    by_spot_replay r = by_spot_run(points, BY_ARRAY_LENGTH(points), &o);
    /* To 50: restart; to 350, 360: 300 s saved; to 660, 670; to 970, 980; 20 s undone at 1000.
     * To 1050 restart; 1350, 1360; 1660, 1670; 1970, 1980; 20 s, which the gain saves to 2010.
     * To 2060 restart; 2360, 2370; 2670, 2680; 2980, 2990; 10 s undone at 3000, then none. */
    assert_close(r.held, 4000.0 + 2000.0 + 3000.0, 1e-12);
    assert_close(r.useful, 4 * 900.0 + 2 * 920.0 + 3 * 900.0, 1e-12);
    assert_close(r.undone, 4 * 20.0 + 3 * 10.0, 1e-12);
    assert_close(r.saving, 4 * 30.0 + 2 * 30.0 + 3 * (10.0 + 30.0), 1e-12);
    assert_close(r.restarting, 4 * 50.0 + 2 * 50.0 + 3 * 50.0, 1e-12);
    assert_close(r.held, r.useful + r.undone + r.saving + r.restarting + r.idle, 1e-12);
    assert_int_equal(r.losses, 2);
    assert_int_equal(r.gains, 2);
    assert_int_equal(r.saves, 10);
    assert_close(by_spot_mean(points, BY_ARRAY_LENGTH(points), &o), 1500.0, 1e-12);
    /* Written in 15 s, the gain waits for that, and the save from 2995 s on comes too late. */
    o.job.written = 15.0;
    r = by_spot_run(points, BY_ARRAY_LENGTH(points), &o);
    assert_close(r.useful, 4 * 900.0 + 2 * 920.0 + 3 * 600.0, 1e-12);
    assert_close(r.undone, 4 * 20.0 + 3 * 300.0, 1e-12);
    assert_close(r.held, r.useful + r.undone + r.saving + r.restarting + r.idle, 1e-12);
    /* In 25 s, so is what was saved at 980 s; the gain also waits for the save at 1980 s. */
    o.job.written = 25.0;
    r = by_spot_run(points, BY_ARRAY_LENGTH(points), &o);
    assert_close(r.useful, 4 * 600.0 + 2 * 920.0 + 3 * 600.0, 1e-12);
    assert_close(r.undone, 4 * 320.0 + 3 * 290.0, 1e-12);
    assert_close(r.held, r.useful + r.undone + r.saving + r.restarting + r.idle, 1e-12);
    o.job.written = 0.0;
    /* At least 3 instances, and no more than 3 are paid. */
    o.least = 3;
    o.most = 3;
    r = by_spot_run(points, BY_ARRAY_LENGTH(points), &o);
    assert_close(r.held, 3000.0 + 2000.0 + 3000.0, 1e-12);
    assert_close(r.useful, 3 * 1800.0, 1e-12);
    assert_close(r.idle, 2000.0, 1e-12);
    /* Without failures it is all useful but the saves and the first restart. */
    const by_spot_point still[] = {{0, 7}, {3150, 7}};
    o = (by_spot_options){.job = {.save = 10.0, .restart = 50.0}, .every = 300.0};
    r = by_spot_run(still, 2, &o);
    assert_close(r.goodput, 3000.0 / 3150.0, 1e-12);
}

/* On a trace of one instance that is lost and regained at random, replays agree with the formula,
 * and so does the best interval. */
static void test_replay_at_random(void **state)
{
    (void)state;
    enum { failures = 20000 };
    const by_failures f = {10.0, 0.0, 0.0, 3000.0};
    by_spot_point *points = calloc(2 * failures + 1, sizeof *points);
    double seconds = 0.0;
    for (uint64_t n = 0; n < failures; n++) {
        /* The instance that is lost is replaced in no time. */
        points[2 * n] = (by_spot_point){seconds, 2.0};
        seconds += draw(n, f.mean);
        points[2 * n + 1] = (by_spot_point){seconds, 1.0};
        seconds += 1e-6;
    }
    points[2 * failures] = (by_spot_point){seconds, 0.0};
    by_spot_options o = {.job = f};
    double best = by_spot_best_interval(points, 2 * failures + 1, &o);
    o.every = best;
    double goodput = by_spot_run(points, 2 * failures + 1, &o).goodput;
    /* A gain saves too. */
    assert_close(goodput, by_goodput(&f, by_interval_best(&f)), 8e-3);
    assert_close(by_goodput(&f, best), by_goodput(&f, by_interval_best(&f)), 5e-3);
    double every = 50.0;
    while (every < 2000.0) {
        o.every = every;
        assert_true(by_spot_run(points, 2 * failures + 1, &o).goodput <= goodput + 1e-4);
        every *= 1.3;
    }
    free(points);
}

static by_table *parsed(const char *text)
{
    by_table *table;
    by_error error;
    if (by_table_parse(&table, "t.csv", text, strlen(text), NULL, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return table;
}

static void refuse_trace(const char *text, const char *message)
{
    by_spot_point *points;
    size_t count;
    by_error error = {0};
    by_table *table = parsed(text);
    assert_int_not_equal(by_spot_read(&points, &count, table, &error), BY_OK);
    assert_non_null(strstr(error.message, message));
    by_table_close(&table);
}

static void test_trace(void **state)
{
    (void)state;
    by_spot_point *points;
    size_t count;
    by_table *table = parsed("seconds,instances\n0,3\n1.5,0\n20,0\n");
    assert_int_equal(by_spot_read(&points, &count, table, NULL), BY_OK);
    assert_int_equal(count, 3);
    assert_true(points[1].seconds == 1.5 && points[0].instances == 3.0);
    free(points);
    by_table_close(&table);
    refuse_trace("seconds,held\n0,3\n1,2\n", "no column 'instances'");
    refuse_trace("seconds,instances\n0,3\n", "1 rows");
    refuse_trace("seconds,instances\n0,3\n2,4\n2,3\n", "row 3");
    refuse_trace("seconds,instances\n0,3\n2,-1\n", "row 2");
    refuse_trace("seconds,instances\n0,3\n2,1.5\n", "row 2");
    refuse_trace("seconds,instances\n0,3\n2,\n", "row 2");
}

/* Devices, hours, watts and grams in a bill of round numbers. */
static void test_bills(void **state)
{
    (void)state;
    by_price price;
    by_region region;
    by_error error = {0};
    by_table *table = parsed("device,price_per_hour,spot_per_hour,purchase_price,upkeep_per_month,"
                             "tdp_watts,watts,idle_watts,tflops\n"
                             "A,2,0.5,10000,50,800,500,100,300\nB,1,,,,300,,,\n");
    assert_int_equal(by_price_find(&price, table, "b", &error), BY_OK);
    assert_true(price.watts == 300.0 && isnan(price.spot_per_hour) && isnan(price.tflops));
    assert_int_equal(by_price_find(&price, table, "c", &error), BY_EARG);
    assert_non_null(strstr(error.message, "no device 'c'; it has: A, B"));
    assert_int_equal(by_price_find(&price, table, "A", &error), BY_OK);
    by_table_close(&table);
    table = parsed("region,grams_co2_per_kwh,pue,price_per_kwh\nx,400,1.5,0.2\ny,1,0.5,\n");
    assert_int_equal(by_region_find(&region, table, "y", &error), BY_EFORMAT);
    assert_int_equal(by_region_find(&region, table, "X", &error), BY_OK);
    by_table_close(&table);
    by_bill bill = by_bill_of(&price, &region, 10.0, 7200.0, 1.0, false);
    assert_close(bill.money, 40.0, 1e-12);
    assert_close(bill.kwh, 15.0, 1e-12);
    assert_close(bill.kg_co2, 6.0, 1e-12);
    bill = by_bill_of(&price, NULL, 10.0, 7200.0, 0.5, true);
    assert_close(bill.money, 10.0, 1e-12);
    assert_close(bill.kwh, 6.0, 1e-12);
    assert_true(isnan(bill.kg_co2));
    /* Half of the time in use: 0.3 kW x 1.5 x 730.5 h x 0.2 = 65.745 a month, rent 730.5. */
    by_ownership own = by_own_or_rent(&price, &region, 2.0, 0.5, 12.0);
    assert_close(own.owned, 2.0 * (10000.0 + 12.0 * (50.0 + 65.745)), 1e-12);
    assert_close(own.rented, 2.0 * 12.0 * 730.5, 1e-12);
    assert_close(own.even, 10000.0 / (730.5 - 115.745), 1e-12);
    price.per_hour = 0.1;
    assert_true(isinf(by_own_or_rent(&price, &region, 2.0, 0.5, 12.0).even));
    price.per_hour = NAN;
    assert_true(isnan(by_bill_of(&price, &region, 2.0, 60.0, 1.0, false).money));
    own = by_own_or_rent(&price, &region, 2.0, 0.5, 12.0);
    assert_true(isnan(own.rented) && isnan(own.even) && isfinite(own.owned));
}

/* The same of YAML as of tables; what is no number is refused with its line. */
static void test_price_files(void **state)
{
    (void)state;
    static const char text[] =
        "prices:\n  - {device: a, price_per_hour: 2, tdp_watts: 800, watts: 500, idle_watts: 100}\n"
        "  - {device: b, tdp_watts: 300, spot_per_hour: 0}\n"
        "regions: [{region: x, grams_co2_per_kwh: 400, pue: 1.5}, {region: y, pue: 0.5}]\n";
    static const char *const wrong[] = {
        "prices: [{device: a, price_per_hour: .nan}]", "prices: [{device: a, price_per_hour: nan}]",
        "prices: [{device: a, watts: -3}]", "prices: [{price_per_hour: 1}]"};
    by_price price;
    by_region region;
    by_error error = {0};
    const size_t length = sizeof text - 1;
    assert_int_equal(by_price_parse(&price, "p.yaml", text, length, "A", &error), BY_OK);
    assert_true(price.per_hour == 2.0 && price.watts == 500.0 && price.idle_watts == 100.0);
    assert_true(isnan(price.purchase) && price.upkeep_per_month == 0.0);
    assert_int_equal(by_price_parse(&price, "p.yaml", text, length, "b", &error), BY_OK);
    assert_true(price.watts == 300.0 && isnan(price.per_hour) && price.spot_per_hour == 0.0);
    assert_int_equal(by_price_parse(&price, "p.yaml", text, length, "c", &error), BY_EARG);
    assert_non_null(strstr(error.message, "no device 'c'; it has: a, b"));
    assert_int_equal(by_region_parse(&region, "p.yaml", text, length, "x", &error), BY_OK);
    assert_true(region.pue == 1.5 && isnan(region.price_per_kwh));
    assert_int_equal(by_region_parse(&region, "p.yaml", text, length, "y", &error), BY_EFORMAT);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        assert_int_equal(by_price_parse(&price, "p.yaml", wrong[i], strlen(wrong[i]), "a", &error),
                         BY_ECONFIG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_price_files),
        cmocka_unit_test(test_goodput),
        cmocka_unit_test(test_intervals),
        cmocka_unit_test(test_replay_by_hand),
        cmocka_unit_test(test_replay_at_random),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_bills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
