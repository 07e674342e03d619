/* The tables that plans read: runs, traces and prices are read with numbers in their ranges, or
 * refused; a law fitted to what is read is finite, and a replay divides the time that was paid. */
#include <math.h>
#include <stdlib.h>

#include "banyan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { most_runs = 24, most_points = 1000 };

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void check_runs(const by_table *table)
{
    by_law_run *runs;
    size_t count;
    by_law_fit fit;
    if (by_law_read_runs(&runs, &count, table, NULL, NULL) != BY_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        require(runs[i].parameters > 0.0 && runs[i].tokens > 0.0 && runs[i].loss > 0.0);
    }
    if (count <= most_runs && by_law_fit_runs(&fit, runs, count, NULL, NULL) == BY_OK) {
        require(isfinite(fit.objective) && fit.law.e >= 0.0 && fit.law.a >= 0.0 &&
                fit.law.b >= 0.0 && fit.law.alpha >= BY_LAW_LEAST * 0.99 &&
                fit.law.beta <= BY_LAW_MOST * 1.01);
    }
    free(runs);
}

static void check_trace(const by_table *table)
{
    by_spot_point *points;
    size_t count;
    if (by_spot_read(&points, &count, table, NULL) != BY_OK) {
        return;
    }
    double whole = points[count - 1].seconds - points[0].seconds;
    const by_spot_options options = {
        .job = {.save = 0.01 * whole, .restart = 0.02 * whole}, .every = 0.05 * whole, .least = 2};
    if (count <= most_points && isfinite(whole)) {
        by_spot_replay r = by_spot_run(points, count, &options);
        double parts = r.useful + r.undone + r.saving + r.restarting + r.idle;
        require(r.goodput >= 0.0 && r.goodput <= 1.0 + 1e-9);
        require(fabs(parts - r.held) <= 1e-6 * r.held);
    }
    free(points);
}

static void check_prices(const by_table *table)
{
    by_price price;
    by_region region;
    if (by_price_find(&price, table, "a", NULL) == BY_OK) {
        require(price.per_hour >= 0.0 && price.watts >= price.idle_watts);
    }
    if (by_region_find(&region, table, "a", NULL) == BY_OK) {
        require(region.pue >= 1.0 && region.grams_per_kwh >= 0.0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_table *table;
    if (by_table_parse(&table, "f.csv", (const char *)data, size, NULL, NULL) != BY_OK) {
        return 0;
    }
    check_runs(table);
    check_trace(table);
    check_prices(table);
    by_table_close(&table);
    return 0;
}
