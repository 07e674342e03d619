/* Numbers with units, as people write sizes and times. */
#include <math.h>
#include <string.h>

#include "base/base.h"

typedef struct size_unit {
    const char *name;
    double factor;
} size_unit;

/* KB to TB are powers of 1000, as the SI has them; the others powers of 1024. */
static const size_unit sizes[] = {
    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
    {"K", 1024.0},   {"M", 1048576.0},   {"G", 1073741824.0},   {"T", 1099511627776.0},
    {"B", 1.0},
};

static const size_unit times[] = {
    {"ms", 1e-3},      {"seconds", 1.0},  {"sec", 1.0},   {"s", 1.0},
    {"minutes", 60.0}, {"min", 60.0},     {"m", 60.0},    {"hours", 3600.0},
    {"h", 3600.0},     {"days", 86400.0}, {"d", 86400.0},
};

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool ends_with(const char *text, size_t length, const char *end, bool exact)
{
    size_t n = strlen(end);
    bool same = length > n;
    for (size_t i = 0; i < n && same; i++) {
        char c = text[length - n + i];
        same = exact ? c == end[i] : lower(c) == lower(end[i]);
    }
    return same;
}

/* Splits "1.5 GiB"; returns the unit's factor, 1 without a unit. */
static double split(const size_unit *units, size_t count, bool exact, const char *text,
                    size_t *digits)
{
    size_t length = strlen(text);
    double factor = 1.0;
    *digits = length;
    for (size_t i = 0; i < count; i++) {
        if (ends_with(text, length, units[i].name, exact)) {
            factor = units[i].factor;
            *digits = length - strlen(units[i].name);
            break;
        }
    }
    if (*digits<length && * digits> 1 && text[*digits - 1] == ' ') {
        --*digits;
    }
    return factor;
}

double by__size_unit(const char *text, size_t *digits)
{
    return split(sizes, BY_ARRAY_LENGTH(sizes), false, text, digits);
}

double by__time_unit(const char *text, size_t *digits)
{
    return split(times, BY_ARRAY_LENGTH(times), true, text, digits);
}

/* Parses decimal digits only: no infinity, no hexadecimal number. */
static bool parse(double *out, const char *text, size_t length)
{
    char number[40];
    if (length == 0 || length >= sizeof number) {
        return false;
    }
    memcpy(number, text, length);
    number[length] = '\0';
    return strspn(number, "0123456789.+-eE") == length && by__parse_f64(number, out) &&
           isfinite(*out);
}

bool by_parse_size(int64_t *bytes, const char *text)
{
    size_t digits;
    double value;
    double factor = by__size_unit(text, &digits);
    if (!parse(&value, text, digits) || !(fabs(value * factor) < 9e18) ||
        (text[digits] == '\0' && value != floor(value))) {
        return false;
    }
    *bytes = (int64_t)(value * factor);
    return true;
}

bool by_parse_duration(double *seconds, const char *text)
{
    size_t digits;
    double value;
    double factor = by__time_unit(text, &digits);
    if (!parse(&value, text, digits)) {
        return false;
    }
    *seconds = value * factor;
    return true;
}
