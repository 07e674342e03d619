#include "data/series/calendar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/series/stamp.h"

#define LIMIT ((size_t)16 << 20)

static const char *const names[BY__SERIES_FEATURES] = {"minute", "hour",    "weekday", "day",
                                                       "month",  "yearday", "holiday"};

unsigned by__series_feature_named(const char *name)
{
    for (int i = 0; i < BY__SERIES_FEATURES; i++) {
        if (strcmp(name, names[i]) == 0) {
            return 1u << i;
        }
    }
    return 0;
}

size_t by__series_calendar_width(const by__series_calendar *c)
{
    size_t width = 0;
    for (int i = 0; i < BY__SERIES_FEATURES; i++) {
        width += (c->features >> i & 1u) == 0 ? 0u : i == BY__SERIES_HOLIDAY ? 1u : 2u;
    }
    return width;
}

static int compare_days(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* How far a feature is in its period, from 0 to 1. */
static double phase_of(by__series_feature feature, const struct tm *date)
{
    double hours = date->tm_hour + date->tm_min / 60.0;
    switch (feature) {
    case BY__SERIES_MINUTE:
        return (date->tm_min + date->tm_sec / 60.0) / 60.0;
    case BY__SERIES_HOUR:
        return hours / 24.0;
    case BY__SERIES_WEEKDAY:
        return date->tm_wday / 7.0;
    case BY__SERIES_DAY:
        return (date->tm_mday - 1) / 31.0;
    case BY__SERIES_MONTH:
        return date->tm_mon / 12.0;
    default:
        return (date->tm_yday + hours / 24.0) / 365.25;
    }
}

void by__series_calendar_row(const by__series_calendar *c, double clock, float *out)
{
    time_t whole = by__series_whole(clock);
    struct tm date = {0};
    (void)gmtime_r(&whole, &date);
    for (int i = 0; i < BY__SERIES_HOLIDAY; i++) {
        if ((c->features >> i & 1u) != 0) {
            double angle = 2.0 * M_PI * phase_of((by__series_feature)i, &date);
            *out++ = (float)sin(angle);
            *out++ = (float)cos(angle);
        }
    }
    if ((c->features >> BY__SERIES_HOLIDAY & 1u) != 0) {
        int32_t day = (int32_t)floor((double)whole / 86400.0);
        bool found = c->holiday_count > 0 &&
                     bsearch(&day, c->holidays, c->holiday_count, sizeof day, compare_days) != NULL;
        *out = found ? 1.0f : 0.0f;
    }
}

by_status by__series_holidays_read(by__series_calendar *c, const char *path, by_error *error)
{
    char *text;
    size_t length;
    size_t capacity = 0;
    by_status status = BY_OK;
    BY_TRY(by__file_read(&text, &length, path, LIMIT, error));
    size_t number = 1;
    char *next;
    for (char *line = text; line != NULL && status == BY_OK; line = next, number++) {
        double seconds;
        by__series_stamp style;
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        line[strcspn(line, "\r")] = '\0';
        if (line[0] == '\0' || line[0] == '#') {
            continue;
        }
        char date[11];
        (void)snprintf(date, sizeof date, "%.10s", line);
        if (!by__series_stamp_parse(&seconds, &style, date)) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s:%zu: '%.40s' does not begin with a date such as 2026-12-25",
                                  path, number, line);
            break;
        }
        status = by__reserve((void **)&c->holidays, &capacity, c->holiday_count + 1,
                             sizeof *c->holidays, error);
        if (status == BY_OK) {
            c->holidays[c->holiday_count++] = (int32_t)(seconds / 86400.0);
        }
    }
    free(text);
    if (c->holiday_count > 0) {
        qsort(c->holidays, c->holiday_count, sizeof *c->holidays, compare_days);
    }
    return status;
}

void by__series_calendar_free(by__series_calendar *c)
{
    free(c->holidays);
    *c = (by__series_calendar){0};
}
