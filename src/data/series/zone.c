#include "data/series/zone.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "data/series/stamp.h"

#define FOLDER "/usr/share/zoneinfo/"
#define LIMIT  ((size_t)1 << 20)

/* From `at` on clocks are `offset` seconds ahead. */
typedef struct zone_change {
    double at;
    double offset;
} zone_change;

/* A day on which clocks change every year: the `week`-th `day` of the week in `month`, 5 being the
 * last one, at `time` seconds of it. */
typedef struct zone_day {
    int month, week, day;
    double time;
} zone_day;

/* What holds behind the last change: the rule of POSIX's TZ. */
typedef struct zone_rule {
    bool known;
    bool summer; /* clocks are put forward and back */
    double standard, ahead;
    zone_day begin, end;
} zone_rule;

struct by__series_zone {
    double first; /* offset before the first change */
    zone_change *changes;
    size_t count;
    zone_rule rule;
};

/* ---- tables ---- */

typedef struct zone_reader {
    const unsigned char *at;
    size_t left;
} zone_reader;

static bool take(zone_reader *r, size_t size, const unsigned char **out)
{
    if (r->left < size) {
        return false;
    }
    *out = r->at;
    r->at += size;
    r->left -= size;
    return true;
}

/* A big-endian integer with a sign. */
static int64_t integer(const unsigned char *p, size_t bytes)
{
    uint64_t value = p[0] >= 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < bytes; i++) {
        value = value << 8 | p[i];
    }
    return (int64_t)value;
}

/* Counts of a header. */
typedef struct zone_counts {
    size_t utc, standard, leaps, times, types, letters;
} zone_counts;

static bool read_header(zone_reader *r, zone_counts *counts, int *version)
{
    const unsigned char *p;
    if (!take(r, 44, &p) || memcmp(p, "TZif", 4) != 0) {
        return false;
    }
    *version = p[4] == 0 ? 1 : p[4] - '0';
    size_t numbers[6];
    for (size_t i = 0; i < 6; i++) {
        numbers[i] = (size_t)(uint32_t)integer(p + 20 + 4 * i, 4);
        if (numbers[i] > LIMIT) {
            return false;
        }
    }
    *counts = (zone_counts){numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    return true;
}

/* The part behind a header whose times have `bytes` bytes. zone NULL: it is passed over. */
static by_status read_part(by__series_zone *zone, zone_reader *r, const zone_counts *c,
                           size_t bytes, bool *fine, by_error *error)
{
    const unsigned char *times;
    const unsigned char *kinds;
    const unsigned char *types;
    const unsigned char *rest;
    size_t behind = c->letters + c->leaps * (bytes + 4) + c->standard + c->utc;
    *fine = take(r, c->times * bytes, &times) && take(r, c->times, &kinds) &&
            take(r, c->types * 6, &types) && take(r, behind, &rest) && c->types > 0;
    if (!*fine || zone == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&zone->changes, c->times + 1, sizeof *zone->changes, "a time zone",
                     error));
    zone->first = (double)integer(types, 4);
    for (size_t i = 0; i < c->times && *fine; i++) {
        *fine = kinds[i] < c->types;
        if (*fine) {
            zone->changes[zone->count++] =
                (zone_change){(double)integer(times + i * bytes, bytes),
                              (double)integer(types + (size_t)kinds[i] * 6, 4)};
        }
    }
    return BY_OK;
}

/* ---- the rule behind the last change: "CET-1CEST,M3.5.0,M10.5.0/3" ---- */

static bool skip_letters(const char **text)
{
    const char *begin = *text;
    if (**text == '<') {
        const char *end = strchr(*text, '>');
        *text = end == NULL ? *text : end + 1;
        return end != NULL;
    }
    while ((**text >= 'a' && **text <= 'z') || (**text >= 'A' && **text <= 'Z')) {
        (*text)++;
    }
    return *text > begin;
}

static bool whole(const char **text, int *out)
{
    const char *begin = *text;
    *out = 0;
    for (; **text >= '0' && **text <= '9' && *text - begin < 4; (*text)++) {
        *out = *out * 10 + (**text - '0');
    }
    return *text > begin;
}

/* [+-]h[:m[:s]] */
static bool read_time(const char **text, double *seconds)
{
    bool minus = **text == '-';
    int part;
    double unit = 3600.0;
    *text += minus || **text == '+';
    *seconds = 0.0;
    if (!whole(text, &part)) {
        return false;
    }
    *seconds = part * unit;
    while (**text == ':' && unit > 1.0) {
        (*text)++;
        unit /= 60.0;
        if (!whole(text, &part)) {
            return false;
        }
        *seconds += part * unit;
    }
    *seconds = minus ? -*seconds : *seconds;
    return true;
}

static bool read_day(const char **text, zone_day *day)
{
    if ((*text)[0] != ',' || (*text)[1] != 'M') {
        return false;
    }
    *text += 2;
    if (!whole(text, &day->month) || *(*text)++ != '.' || !whole(text, &day->week) ||
        *(*text)++ != '.' || !whole(text, &day->day)) {
        return false;
    }
    day->time = 7200.0;
    if (**text == '/') {
        (*text)++;
        if (!read_time(text, &day->time)) {
            return false;
        }
    }
    return day->month >= 1 && day->month <= 12 && day->week >= 1 && day->week <= 5 && day->day <= 6;
}

/* A rule that is not understood is none. */
static void read_rule(zone_rule *rule, const char *text)
{
    zone_rule r = {.known = true};
    double behind;
    if (!skip_letters(&text) || !read_time(&text, &behind)) {
        return;
    }
    r.standard = -behind;
    if (*text != '\0') {
        r.summer = true;
        r.ahead = r.standard + 3600.0;
        if (!skip_letters(&text)) {
            return;
        }
        if (*text != ',') {
            if (!read_time(&text, &behind)) {
                return;
            }
            r.ahead = -behind;
        }
        if (!read_day(&text, &r.begin) || !read_day(&text, &r.end) || *text != '\0') {
            return;
        }
    }
    *rule = r;
}

/* The local time of a day in a year, in seconds as if it were UTC. */
static double day_in(const zone_day *day, int year)
{
    struct tm first = {.tm_year = year - 1900, .tm_mon = day->month - 1, .tm_mday = 1};
    double begin = (double)timegm(&first);
    int offset = (day->day - first.tm_wday + 7) % 7 + 7 * (day->week - 1);
    struct tm next = {.tm_year = year - 1900, .tm_mon = day->month, .tm_mday = 1};
    int length = (int)(((double)timegm(&next) - begin) / 86400.0);
    while (offset >= length) {
        offset -= 7;
    }
    return begin + offset * 86400.0 + day->time;
}

static double rule_offset(const zone_rule *rule, double utc)
{
    time_t whole_time = by__series_whole(utc);
    struct tm date = {0};
    if (!rule->summer || gmtime_r(&whole_time, &date) == NULL) {
        return rule->standard;
    }
    double begin = day_in(&rule->begin, date.tm_year + 1900) - rule->standard;
    double end = day_in(&rule->end, date.tm_year + 1900) - rule->ahead;
    bool summer = begin < end ? utc >= begin && utc < end : utc >= begin || utc < end;
    return summer ? rule->ahead : rule->standard;
}

/* ---- zones ---- */

by_status by__series_zone_read(by__series_zone **out, const char *name, const void *data,
                               size_t size, by_error *error)
{
    zone_reader r = {data, size};
    zone_counts counts;
    by__series_zone *zone;
    int version = 1;
    BY_TRY(by__alloc((void **)&zone, 1, sizeof *zone, "a time zone", error));
    bool fine = read_header(&r, &counts, &version);
    by_status status = BY_OK;
    if (fine) {
        status = read_part(version > 1 ? NULL : zone, &r, &counts, 4, &fine, error);
    }
    if (status == BY_OK && fine && version > 1) {
        fine = read_header(&r, &counts, &version);
        if (fine) {
            status = read_part(zone, &r, &counts, 8, &fine, error);
        }
        if (status == BY_OK && fine && r.left > 2 && r.left < 200 && r.at[0] == '\n' &&
            r.at[r.left - 1] == '\n') {
            char text[200];
            memcpy(text, r.at + 1, r.left - 2);
            text[r.left - 2] = '\0';
            read_rule(&zone->rule, text);
        }
    }
    if (status == BY_OK && !fine) {
        status = by_error_set(error, BY_EFORMAT, "%s is no table of a time zone", name);
    }
    if (status != BY_OK) {
        by__series_zone_close(&zone);
        return status;
    }
    *out = zone;
    return BY_OK;
}

/* "+01:00": seconds ahead. */
static bool fixed_offset(const char *name, double *offset)
{
    const char *text = name;
    return (*text == '+' || *text == '-') && read_time(&text, offset) && *text == '\0' &&
           fabs(*offset) < 86400.0;
}

by_status by__series_zone_open(by__series_zone **out, const char *name, by_error *error)
{
    double offset = 0.0;
    if (strcmp(name, "UTC") == 0 || strcmp(name, "Z") == 0 || fixed_offset(name, &offset)) {
        by__series_zone *zone;
        BY_TRY(by__alloc((void **)&zone, 1, sizeof *zone, "a time zone", error));
        zone->first = offset;
        *out = zone;
        return BY_OK;
    }
    char path[256];
    char *data;
    size_t size;
    bool odd = name[0] == '/' || strstr(name, "..") != NULL || strlen(name) > 200;
    (void)snprintf(path, sizeof path, FOLDER "%.200s", name);
    if (odd || by__file_read(&data, &size, path, LIMIT, NULL) != BY_OK) {
        return by_error_set(error, BY_ECONFIG,
                            "there is no time zone '%.60s': name one of " FOLDER
                            ", such as Europe/Berlin, UTC, or an offset such as +01:00",
                            name);
    }
    by_status status = by__series_zone_read(out, path, data, size, error);
    free(data);
    return status;
}

by_status by__series_zone_copy(by__series_zone **out, const by__series_zone *zone, by_error *error)
{
    by__series_zone *copy;
    BY_TRY(by__alloc((void **)&copy, 1, sizeof *copy, "a time zone", error));
    *copy = *zone;
    by_status status = by__alloc((void **)&copy->changes, zone->count + 1, sizeof *copy->changes,
                                 "a time zone", error);
    if (status != BY_OK) {
        free(copy);
        return status;
    }
    if (zone->count > 0) {
        memcpy(copy->changes, zone->changes, zone->count * sizeof *copy->changes);
    }
    *out = copy;
    return BY_OK;
}

void by__series_zone_close(by__series_zone **zone)
{
    if (*zone != NULL) {
        free((*zone)->changes);
        free(*zone);
        *zone = NULL;
    }
}

double by__series_zone_offset(const by__series_zone *zone, double utc)
{
    if (zone == NULL) {
        return 0.0;
    }
    size_t low = 0;
    size_t high = zone->count;
    while (low < high) { /* the first change that is later */
        size_t middle = low + (high - low) / 2;
        if (zone->changes[middle].at <= utc) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == zone->count && zone->rule.known && zone->count > 0) {
        return rule_offset(&zone->rule, utc);
    }
    return low == 0 ? zone->first : zone->changes[low - 1].offset;
}

double by__series_zone_time(const by__series_zone *zone, double local, double after)
{
    /* No zone changes twice within two days. */
    double before = by__series_zone_offset(zone, local - 86400.0);
    double behind = by__series_zone_offset(zone, local + 86400.0);
    double early = local - fmax(before, behind);
    double late = local - fmin(before, behind);
    bool early_fits = by__series_zone_offset(zone, early) == local - early;
    bool late_fits = by__series_zone_offset(zone, late) == local - late;
    if (early_fits && late_fits && early != late) {
        return early > after ? early : late;
    }
    return early_fits ? early : late_fits ? late : local - before;
}
