#include "data/series/stamp.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DAY 86400.0

/* Days since 1970-01-01 of a date in the Gregorian calendar. Years begin in March, so that the leap
 * day is the last one; 146,097 days are 400 years. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t of_era = y - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void date_of(int64_t days, int64_t *year, int64_t *month, int64_t *day)
{
    int64_t z = days + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t of_era = z - era * 146097;
    int64_t years = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * years + years / 4 - years / 100);
    int64_t m = (5 * of_year + 2) / 153;
    *day = of_year - (153 * m + 2) / 5 + 1;
    *month = m < 10 ? m + 3 : m - 9;
    *year = years + era * 400 + (*month <= 2);
}

/* Reads a number of so many digits. */
static bool digits(int64_t *out, const char **text, int count)
{
    *out = 0;
    for (int i = 0; i < count; i++, (*text)++) {
        if (**text < '0' || **text > '9') {
            return false;
        }
        *out = *out * 10 + (**text - '0');
    }
    return true;
}

static bool read_date(double *seconds, by__series_stamp *style, const char **text)
{
    static const int64_t lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t year;
    int64_t month;
    int64_t day;
    if (!digits(&year, text, 4) || (**text != '-' && **text != '/')) {
        return false;
    }
    style->date = *(*text)++;
    if (!digits(&month, text, 2) || *(*text)++ != style->date || !digits(&day, text, 2) ||
        month < 1 || month > 12 || day < 1 || day > lengths[month - 1]) {
        return false;
    }
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    *seconds = (double)days_of(year, month, day) * DAY;
    return leap || month != 2 || day < 29;
}

/* Reads what may follow a time of day: nothing, Z, or an offset from UTC. */
static bool read_zone(double *seconds, by__series_stamp *style, const char *text)
{
    int64_t hours;
    int64_t minutes = 0;
    size_t length = strlen(text);
    if (length >= sizeof style->zone) {
        return false;
    }
    memcpy(style->zone, text, length + 1);
    if (length == 0 || strcmp(text, "Z") == 0) {
        return true;
    }
    bool behind = *text == '-';
    if (*text != '+' && !behind) {
        return false;
    }
    text++;
    if (!digits(&hours, &text, 2)) {
        return false;
    }
    text += *text == ':';
    if (*text != '\0' && (!digits(&minutes, &text, 2) || *text != '\0')) {
        return false;
    }
    double offset = (double)(hours * 3600 + minutes * 60);
    *seconds += behind ? offset : -offset;
    return hours < 24 && minutes < 60;
}

bool by__series_stamp_parse(double *seconds, by__series_stamp *style, const char *text)
{
    int64_t hour;
    int64_t minute;
    int64_t second = 0;
    *style = (by__series_stamp){0};
    if (!read_date(seconds, style, &text)) {
        return false;
    }
    if (*text == '\0') {
        return true;
    }
    style->between = *text++;
    if ((style->between != ' ' && style->between != 'T') || !digits(&hour, &text, 2) ||
        *text++ != ':' || !digits(&minute, &text, 2)) {
        return false;
    }
    style->seconds = *text == ':';
    text += style->seconds;
    if (style->seconds && !digits(&second, &text, 2)) {
        return false;
    }
    double fraction = 0.0;
    if (style->seconds && *text == '.') {
        double unit = 1.0;
        for (text++; *text >= '0' && *text <= '9'; text++) {
            unit /= 10.0;
            fraction += unit * (*text - '0');
        }
    }
    *seconds += (double)(hour * 3600 + minute * 60 + second) + fraction;
    return hour < 24 && minute < 60 && second < 61 && read_zone(seconds, style, text);
}

void by__series_stamp_print(char out[40], double seconds, const by__series_stamp *style)
{
    double offset = 0.0;
    by__series_stamp ignored = {0};
    (void)read_zone(&offset, &ignored, style->zone);
    seconds -= offset;
    int64_t year;
    int64_t month;
    int64_t day;
    double days = floor(seconds / DAY);
    int64_t of_day = (int64_t)(seconds - days * DAY);
    date_of((int64_t)days, &year, &month, &day);
    size_t length = (size_t)snprintf(out, 40, "%04d%c%02d%c%02d", (int)year, style->date,
                                     (int)month, style->date, (int)day);
    if (style->between != 0) {
        length += (size_t)snprintf(out + length, 40 - length, "%c%02d:%02d", style->between,
                                   (int)(of_day / 3600), (int)(of_day / 60 % 60));
    }
    if (style->seconds) {
        length += (size_t)snprintf(out + length, 40 - length, ":%02d", (int)(of_day % 60));
    }
    (void)snprintf(out + length, 40 - length, "%s", style->zone);
}
