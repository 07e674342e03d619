#include "data/series/stamp.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Of a fraction of a second that are written: a double holds today's times to 2.4e-7 s. */
#define MOST_DIGITS 6

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

/* A day that no month has, such as February 30, becomes another one by timegm. */
static bool read_date(double *seconds, by__series_stamp *style, const char **text)
{
    int64_t year;
    int64_t month;
    int64_t day;
    if (!digits(&year, text, 4) || (**text != '-' && **text != '/')) {
        return false;
    }
    style->date = *(*text)++;
    if (!digits(&month, text, 2) || *(*text)++ != style->date || !digits(&day, text, 2)) {
        return false;
    }
    struct tm utc = {.tm_year = (int)year - 1900, .tm_mon = (int)month - 1, .tm_mday = (int)day};
    *seconds = (double)timegm(&utc);
    return utc.tm_mon == month - 1 && utc.tm_mday == day;
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
            style->digits++;
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
    int digits = !style->seconds ? 0 : style->digits < MOST_DIGITS ? style->digits : MOST_DIGITS;
    double scale = pow(10.0, digits);
    double units = round((seconds - offset) * scale);
    time_t whole = by__series_whole(floor(units / scale));
    struct tm utc = {0};
    char format[24] = "%Y-%m-%d %H:%M:%S";
    format[2] = format[5] = style->date;
    format[8] = style->between; /* 0: the text ends here, */
    if (!style->seconds) {
        format[14] = '\0'; /* or behind the minute */
    }
    (void)gmtime_r(&whole, &utc);
    size_t length = strftime(out, 32, format, &utc);
    if (digits > 0) {
        length += (size_t)snprintf(out + length, 8, ".%0*d", digits,
                                   (int)(units - scale * floor(units / scale)));
    }
    memcpy(out + length, style->zone, sizeof style->zone);
}
