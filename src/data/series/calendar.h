/* Numbers that tell the time of a row: where it is in the hour, the day, the week or the year, and
 * whether its day is a holiday. */
#ifndef BY_DATA_SERIES_CALENDAR_H
#define BY_DATA_SERIES_CALENDAR_H

#include "base/base.h"

/* Features, in the order of their numbers; bits of by__series_calendar.features. */
typedef enum by__series_feature {
    BY__SERIES_MINUTE = 0, /* of the hour */
    BY__SERIES_HOUR,       /* of the day */
    BY__SERIES_WEEKDAY,
    BY__SERIES_DAY, /* of the month */
    BY__SERIES_MONTH,
    BY__SERIES_YEARDAY,
    BY__SERIES_HOLIDAY,
    BY__SERIES_FEATURES
} by__series_feature;

typedef struct by__series_calendar {
    unsigned features;
    int32_t *holidays; /* [holiday_count] days since 1970, ascending */
    size_t holiday_count;
} by__series_calendar;

/* The bit of "minute", "hour", "weekday", "day", "month", "yearday" or "holiday"; 0: there is no
 * such feature. */
unsigned by__series_feature_named(const char *name);
/* Numbers of a row: a sine and a cosine of each feature, and one number of holidays. */
size_t by__series_calendar_width(const by__series_calendar *calendar);
/* Writes those of what clocks show, in seconds since 1970. */
void by__series_calendar_row(const by__series_calendar *calendar, double clock, float *out);
/* Reads holidays: a date such as 2026-12-25 at the beginning of each line; what follows it, empty
 * lines and those that begin with # are passed over. Returns BY_EFORMAT with the line. */
by_status by__series_holidays_read(by__series_calendar *calendar, const char *path,
                                   by_error *error);
void by__series_calendar_free(by__series_calendar *calendar);

#endif
