/* Numbers, sizes and times as files and overrides spell them. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

/* Maximum length of a number: enough for 1_000_000.000_001e-300. */
#define NUMBER_LIMIT 64

/* Numbers in files use a point, whatever the program's locale. */
static double real_from_text(const char *s)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = c == (locale_t)0 ? strtod(s, NULL) : strtod_l(s, NULL, c);
    if (c != (locale_t)0) {
        freelocale(c);
    }
    return value;
}

/* Copies digits, skipping the underscores between them; returns how many characters were read. */
static size_t copy_digits(char *out, size_t *length, const char *s)
{
    size_t i = 0;
    for (; (s[i] >= '0' && s[i] <= '9') ||
           (s[i] == '_' && i > 0 && s[i - 1] != '_' && s[i + 1] >= '0' && s[i + 1] <= '9');
         i++) {
        if (s[i] != '_') {
            out[(*length)++] = s[i];
        }
    }
    return i;
}

/* Copies a decimal number to `out` without underscores. *is_whole: it consists of digits only;
 * *has_exponent: it has an exponent. */
static bool scan_number(char out[NUMBER_LIMIT + 1], const char *s, bool *is_whole,
                        bool *has_exponent)
{
    size_t length = 0;
    if (strlen(s) > NUMBER_LIMIT) {
        return false;
    }
    if (*s == '-' || *s == '+') {
        out[length++] = *s++;
    }
    const char *first = s;
    size_t before = copy_digits(out, &length, s);
    size_t after = 0;
    s += before;
    *is_whole = *s == '\0';
    *has_exponent = false;
    if (*s == '.') {
        out[length++] = *s++;
        after = copy_digits(out, &length, s);
        s += after;
    }
    /* 010 is 8 to some YAML readers and 10 to others. */
    if (before + after == 0 || (before > 1 && first[0] == '0')) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        *has_exponent = true;
        out[length++] = *s++;
        if (*s == '-' || *s == '+') {
            out[length++] = *s++;
        }
        size_t exponent = copy_digits(out, &length, s);
        s += exponent;
        if (exponent == 0) {
            return false;
        }
    }
    out[length] = '\0';
    return *s == '\0';
}

bool by__config_parse_real(double *out, const char *s)
{
    char digits[NUMBER_LIMIT + 1];
    bool is_whole;
    bool has_exponent;
    if (!scan_number(digits, s, &is_whole, &has_exponent)) {
        return false;
    }
    *out = real_from_text(digits);
    return isfinite(*out);
}

bool by__config_parse_whole(uint64_t *magnitude, bool *negative, const char *s)
{
    char digits[NUMBER_LIMIT + 1];
    bool is_whole;
    bool has_exponent;
    if (!scan_number(digits, s, &is_whole, &has_exponent) || (!is_whole && !has_exponent)) {
        return false;
    }
    *negative = digits[0] == '-';
    if (has_exponent) {
        /* Up to 2^53 a double represents every whole number. */
        double value = fabs(real_from_text(digits));
        if (!(value <= 9007199254740992.0) || value != floor(value)) {
            return false;
        }
        *magnitude = (uint64_t)value;
        return true;
    }
    uint64_t sum = 0;
    for (const char *p = digits + (digits[0] == '-' || digits[0] == '+'); *p != '\0'; p++) {
        if (__builtin_mul_overflow(sum, (uint64_t)10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*p - '0'), &sum)) {
            return false;
        }
    }
    *magnitude = sum;
    return true;
}

bool by__config_parse_int(int64_t *out, const char *s)
{
    uint64_t magnitude;
    bool negative;
    if (!by__config_parse_whole(&magnitude, &negative, s) || magnitude > INT64_MAX) {
        return false;
    }
    *out = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* Copies the number before a unit. */
static bool copy_number(char out[NUMBER_LIMIT + 1], const char *s, size_t length)
{
    if (length > NUMBER_LIMIT) {
        return false;
    }
    memcpy(out, s, length);
    out[length] = '\0';
    return true;
}

bool by__config_parse_size(int64_t *out, const char *s)
{
    char digits[NUMBER_LIMIT + 1];
    size_t length;
    double value;
    double unit = by__size_unit(s, &length);
    if (s[length] == '\0') {
        return by__config_parse_int(out, s);
    }
    if (!copy_number(digits, s, length) || !by__config_parse_real(&value, digits) ||
        !(fabs(value * unit) < 9e18)) {
        return false;
    }
    *out = (int64_t)(value * unit);
    return true;
}

bool by__config_parse_time(double *out, const char *s)
{
    char digits[NUMBER_LIMIT + 1];
    size_t length;
    double unit = by__time_unit(s, &length);
    bool good = copy_number(digits, s, length) && by__config_parse_real(out, digits);
    *out = good ? *out * unit : 0.0;
    return good;
}

static const struct {
    const char *name;
    int64_t bytes;
} units[] = {{"TiB", (int64_t)1 << 40},
             {"GiB", (int64_t)1 << 30},
             {"MiB", (int64_t)1 << 20},
             {"KiB", (int64_t)1 << 10}};

void by__config_size_print(by_string *out, int64_t bytes)
{
    for (size_t unit = 0; unit < BY_ARRAY_LENGTH(units); unit++) {
        if (bytes >= units[unit].bytes && bytes % units[unit].bytes == 0) {
            by_string_format(out, "%lld%s", (long long)(bytes / units[unit].bytes),
                             units[unit].name);
            return;
        }
    }
    by_string_format(out, "%lld", (long long)bytes);
}
