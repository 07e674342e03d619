/* Times of rows as text: 2026-11-29, 2026/11/29, 2026-11-29 07:45, 2026-11-29T07:45:30.5Z,
 * 2026-11-29 07:45:30+01:00. */
#ifndef BY_DATA_SERIES_STAMP_H
#define BY_DATA_SERIES_STAMP_H

#include <math.h>
#include <stdbool.h>
#include <time.h>

/* What is read, for messages. */
#define BY__SERIES_STAMPS                                                                          \
    "2026-11-29 or 2026/11/29, with 07:45 or 07:45:30.5 behind a blank or T, and Z or +01:00 "     \
    "behind that"

/* How a time is written. */
typedef struct by__series_stamp {
    char date;    /* between the parts of the date: '-' or '/' */
    char between; /* between date and time of day: ' ' or 'T'; 0: there is a date alone */
    bool seconds; /* the time of day has seconds, */
    int digits;   /* with so many digits behind them */
    char zone[8]; /* what follows it: "Z", "+01:00", or "" */
} by__series_stamp;

/* Whole seconds of a time in the years that dates have, from 1 to 9999, or the nearest of them. */
static inline time_t by__series_whole(double seconds)
{
    double bounded = fmin(fmax(seconds, -62135596800.0), 253402300799.0);
    return isnan(seconds) ? 0 : (time_t)floor(bounded);
}

/* Reads a time as seconds since 1970 (in UTC if it has a zone, else as if it were). */
bool by__series_stamp_parse(double *seconds, by__series_stamp *style, const char *text);
/* Writes a time in that style, rounded to its digits, at most to microseconds. */
void by__series_stamp_print(char out[40], double seconds, const by__series_stamp *style);

#endif
