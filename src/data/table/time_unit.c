#include "data/table/time_unit.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    double nanoseconds;
} units[] = {[BY_UNIT_NONE] = {"", 1.0},          [BY_UNIT_DAY] = {"day", 86400e9},
             [BY_UNIT_SECOND] = {"s", 1e9},       [BY_UNIT_MILLISECOND] = {"ms", 1e6},
             [BY_UNIT_MICROSECOND] = {"us", 1e3}, [BY_UNIT_NANOSECOND] = {"ns", 1.0}};
static const char *const origins[] = {[BY_ORIGIN_ANY] = "",
                                      [BY_ORIGIN_UTC] = " utc",
                                      [BY_ORIGIN_LOCAL] = " local",
                                      [BY_ORIGIN_MIDNIGHT] = " of day"};

bool by__table_time_fits(by_time to, by_time from)
{
    if (to.unit == BY_UNIT_NONE || from.unit == BY_UNIT_NONE || to.origin == from.origin) {
        return true;
    }
    return to.origin != BY_ORIGIN_MIDNIGHT && from.origin != BY_ORIGIN_MIDNIGHT &&
           (to.origin == BY_ORIGIN_ANY || from.origin == BY_ORIGIN_ANY);
}

double by__table_time_convert(double value, by_time to, by_time from)
{
    double a = units[from.unit].nanoseconds;
    double b = units[to.unit].nanoseconds;
    if (to.unit == BY_UNIT_NONE || from.unit == BY_UNIT_NONE || a == b) {
        return value;
    }
    return a > b ? value * (a / b) : value / (b / a); /* a whole number either way */
}

const char *by__table_time_print(char out[32], by_time time)
{
    (void)snprintf(out, 32, "%s%s", units[time.unit].name, origins[time.origin]);
    return out;
}

bool by__table_time_parse(by_time *out, const char *text)
{
    for (int unit = BY_UNIT_DAY; unit <= BY_UNIT_NANOSECOND; unit++) {
        for (int origin = BY_ORIGIN_ANY; origin <= BY_ORIGIN_MIDNIGHT; origin++) {
            char name[32];
            const by_time time = {(by_time_unit)unit, (by_time_origin)origin};
            if (strcmp(by__table_time_print(name, time), text) == 0) {
                *out = time;
                return true;
            }
        }
    }
    return false;
}
