/* Prices of devices, and what they take. */
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"
#include "plan/cost/cost.h"

/* A month of an average year. */
static const double month_hours = 730.5;

/* A column of numbers, and where they go. */
typedef struct price_column {
    const char *name;
    size_t offset;
} price_column;

static const price_column price_columns[] = {
    {"price_per_hour", offsetof(by_price, per_hour)},
    {"spot_per_hour", offsetof(by_price, spot_per_hour)},
    {"purchase_price", offsetof(by_price, purchase)},
    {"upkeep_per_month", offsetof(by_price, upkeep_per_month)},
    {"tdp_watts", offsetof(by_price, watts)},
    {"watts", offsetof(by_price, watts)}, /* rather than what is rated */
    {"idle_watts", offsetof(by_price, idle_watts)},
    {"tflops", offsetof(by_price, tflops)},
};

static const price_column region_columns[] = {
    {"grams_co2_per_kwh", offsetof(by_region, grams_per_kwh)},
    {"pue", offsetof(by_region, pue)},
    {"price_per_kwh", offsetof(by_region, price_per_kwh)},
};

/* Finds the row whose column has this text. */
static by_status find_row(uint64_t *row, const by_table *table, const char *column,
                          const char *text, by_error *error)
{
    const by_column *c = by_table_find(table, column);
    by_string names = {0};
    if (c == NULL || c->kind != BY_COLUMN_CATEGORY) {
        return by_error_set(error, BY_EARG, "%s: no column '%s' of names", by_table_name(table),
                            column);
    }
    for (*row = 0; *row < by_table_rows(table); ++*row) {
        int32_t value = c->categories[*row];
        if (value >= 0 && strcasecmp(c->values[value], text) == 0) {
            return BY_OK;
        }
    }
    for (size_t i = 0; i < c->value_count; i++) {
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", c->values[i]);
    }
    by_status status = by_string_check(&names, error);
    if (status == BY_OK) {
        status = by_error_set(error, BY_EARG, "%s: no %s '%s'; it has: %s", by_table_name(table),
                              column, text, names.data == NULL ? "none" : names.data);
    }
    by_string_free(&names);
    return status;
}

/* Sets the numbers of a row; those that are missing stay as they are. */
static by_status read_numbers(void *out, const by_table *table, uint64_t row,
                              const price_column *columns, size_t count, by_error *error)
{
    for (size_t k = 0; k < count; k++) {
        const by_column *c = by_table_find(table, columns[k].name);
        if (c == NULL) {
            continue;
        }
        if (c->kind != BY_COLUMN_NUMBER) {
            return by_error_set(error, BY_EFORMAT, "%s: column '%s' has texts, not numbers",
                                by_table_name(table), c->name);
        }
        double value = c->numbers[row];
        if (isnan(value)) {
            continue;
        }
        if (!(value >= 0.0) || !isfinite(value)) {
            return by_error_set(error, BY_EFORMAT, "%s, row %llu: '%s' is %g; it is 0 or above",
                                by_table_name(table), (unsigned long long)row + 1, c->name, value);
        }
        memcpy((char *)out + columns[k].offset, &value, sizeof value);
    }
    return BY_OK;
}

by_status by__cost_check_price(const by_price *price, const char *file, const char *name,
                               by_error *error)
{
    if (price->idle_watts > price->watts) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' draws %g W idle, and %g W busy", file,
                            name, price->idle_watts, price->watts);
    }
    return BY_OK;
}

by_status by__cost_check_region(const by_region *region, const char *file, const char *name,
                                by_error *error)
{
    if (region->pue < 1.0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: region '%s' has a PUE of %g; it is 1 or above: a site takes at "
                            "least what its computers do",
                            file, name, region->pue);
    }
    return BY_OK;
}

by_status by_price_find(by_price *out, const by_table *table, const char *device, by_error *error)
{
    uint64_t row;
    *out = (by_price){
        .per_hour = NAN, .spot_per_hour = NAN, .purchase = NAN, .watts = NAN, .tflops = NAN};
    BY_TRY(find_row(&row, table, "device", device, error));
    BY_TRY(read_numbers(out, table, row, price_columns, BY_ARRAY_LENGTH(price_columns), error));
    (void)snprintf(out->device, sizeof out->device, "%s", device);
    return by__cost_check_price(out, by_table_name(table), device, error);
}

by_status by_region_find(by_region *out, const by_table *table, const char *region, by_error *error)
{
    uint64_t row;
    *out = (by_region){.grams_per_kwh = NAN, .pue = 1.0, .price_per_kwh = NAN};
    BY_TRY(find_row(&row, table, "region", region, error));
    BY_TRY(read_numbers(out, table, row, region_columns, BY_ARRAY_LENGTH(region_columns), error));
    return by__cost_check_region(out, by_table_name(table), region, error);
}

static double kilowatts(const by_price *price, double pue, double busy)
{
    return 1e-3 * pue * (price->idle_watts + (price->watts - price->idle_watts) * busy);
}

by_bill by_bill_of(const by_price *price, const by_region *region, double devices, double seconds,
                   double busy, bool spot)
{
    double hours = seconds / 3600.0;
    by_bill bill = {.money = devices * hours * (spot ? price->spot_per_hour : price->per_hour),
                    .kwh = devices * hours *
                           kilowatts(price, region == NULL ? 1.0 : region->pue, busy)};
    bill.kg_co2 = region == NULL ? (double)NAN : 1e-3 * region->grams_per_kwh * bill.kwh;
    return bill;
}

by_ownership by_own_or_rent(const by_price *price, const by_region *region, double devices,
                            double use, double months)
{
    double power = region == NULL
                       ? 0.0
                       : month_hours * kilowatts(price, region->pue, use) * region->price_per_kwh;
    double own = price->upkeep_per_month + power;
    double rent = month_hours * use * price->per_hour;
    double saved = rent - own; /* a month, by owning */
    return (by_ownership){.owned = devices * (price->purchase + months * own),
                          .rented = devices * months * rent,
                          .even = saved <= 0.0 ? INFINITY : price->purchase / saved};
}
