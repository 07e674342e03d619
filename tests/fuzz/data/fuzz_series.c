/* Tables of series: the first byte chooses how rows are read, the rest is CSV with the columns t, s
 * and others; or, if it is 255, a table of a time zone. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "data/series/series_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void read_zone(const uint8_t *data, size_t size)
{
    by__series_zone *zone = NULL;
    if (by__series_zone_read(&zone, "zone", data, size, NULL) != BY_OK) {
        require(zone == NULL);
        return;
    }
    static const double times[] = {-1e300, -1e10, 0.0, 1.7e9, 1e300};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(times); i++) {
        (void)by__series_zone_offset(zone, times[i]);
        (void)by__series_zone_time(zone, times[i], 0.0);
    }
    by__series_zone_close(&zone);
}

/* Times ascend, numbers are finite, and what is learned survives JSON. */
static void check(by__series_set *set, const by__series_columns *columns)
{
    by__series_scales *scales = NULL;
    by__series_scales *read = NULL;
    by__series_calendar calendar = {.features = 0x3f};
    char *text = NULL;
    uint64_t *train = calloc(set->series_count, sizeof *train);
    require(train != NULL);
    for (size_t s = 0; s < set->series_count; s++) {
        train[s] = set->series[s].count;
    }
    for (uint64_t i = 0; i < set->rows * set->channels.count; i++) {
        require(isfinite(set->values[i]));
    }
    if (by__series_learn(&scales, set, columns,
                         &(by__series_scaling){.each = set->series_count % 2 == 0}, train,
                         NULL) == BY_OK) {
        by__series_set_calendar(scales, &calendar);
        if (by__series_scales_print(scales, &text, NULL) == BY_OK) {
            (void)by__series_scales_parse(&read, "scales", text, NULL);
        }
        require(by__series_standardize(set, scales, NULL) == BY_OK);
        (void)by__series_make_inputs(set, scales, 3, true, NULL);
    }
    by__series_scales_close(&scales);
    by__series_scales_close(&read);
    free(text);
    free(train);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const twice[] = {"fail", "first", "last", "mean"};
    static const double steps[] = {0.0, 900.0, 86400.0, 604800.0};
    by_table *table = NULL;
    by__series_set *set = NULL;
    if (size < 1) {
        return 0;
    }
    uint8_t how = data[0];
    if (how == 255) {
        read_zone(data + 1, size - 1);
        return 0;
    }
    const by__series_reading reading = {.zone = (how & 1) != 0 ? "Europe/Berlin" : "",
                                        .step = steps[how >> 1 & 3],
                                        .rule = twice[how >> 3 & 3],
                                        .duplicates = twice[how >> 3 & 3],
                                        .sort = (how & 32) != 0,
                                        .skip = (how & 64) != 0,
                                        .ahead = (how & 128) != 0};
    if (by_table_parse(&table, "rows.csv", (const char *)data + 1, size - 1, NULL, NULL) != BY_OK) {
        return 0;
    }
    const by__series_columns columns = {
        .time = by_table_find(table, "t") != NULL ? "t" : "",
        .id = by_table_find(table, "s") != NULL ? "s" : "",
        .known = {(char *[]){"k"}, by_table_find(table, "k") != NULL}};
    if (by__series_set_read(&set, table, &columns, &reading, NULL) == BY_OK) {
        check(set, &columns);
    }
    by__series_set_close(&set);
    by_table_close(&table);
    return 0;
}
