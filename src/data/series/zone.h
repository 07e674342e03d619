/* Time zones: how far a place's clocks are ahead of UTC, from the tables of the system
 * (/usr/share/zoneinfo; RFC 9636). */
#ifndef BY_DATA_SERIES_ZONE_H
#define BY_DATA_SERIES_ZONE_H

#include "base/base.h"

typedef struct by__series_zone by__series_zone;

/* Opens "UTC", an offset such as "+01:00", or a name such as "Europe/Berlin". Returns BY_ECONFIG if
 * there is no such zone, BY_EFORMAT if its table is damaged. */
by_status by__series_zone_open(by__series_zone **out, const char *name, by_error *error);
/* Reads a table; `name` is used in messages. */
by_status by__series_zone_read(by__series_zone **out, const char *name, const void *data,
                               size_t size, by_error *error);
by_status by__series_zone_copy(by__series_zone **out, const by__series_zone *zone, by_error *error);
void by__series_zone_close(by__series_zone **zone);
/* Seconds that clocks are ahead of UTC at a time in seconds since 1970. NULL: 0. */
double by__series_zone_offset(const by__series_zone *zone, double utc);
/* The time at which clocks show a local time, in seconds as if it were UTC. Of two, when clocks are
 * put back, the first one that is after `after`, or else the second; a local time that is left out,
 * when they are put forward, is read by the clock as it was before. */
double by__series_zone_time(const by__series_zone *zone, double local, double after);

#endif
