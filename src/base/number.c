#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* printf writes the locale's decimal separator, which may have several bytes: replaces every run of
 * bytes that cannot occur in a C-locale number by one '.'. */
static void write_plain(char out[32], const char *text)
{
    size_t n = 0;
    bool in_point = false;
    for (const char *p = text; *p != '\0' && n < 31; p++) {
        bool plain = strchr("0123456789+-e", *p) != NULL;
        if (plain || !in_point) {
            out[n++] = plain ? *p : '.';
        }
        in_point = !plain;
    }
    out[n] = '\0';
}

void by__format_f64(char out[32], double value)
{
    if (!isfinite(value)) {
        (void)snprintf(out, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    /* 17 digits always suffice; most values need 15 or fewer. */
    for (int digits = 15; digits <= 17; digits++) {
        char text[64];
        double back;
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        write_plain(out, text);
        if (by__parse_f64(out, &back) && back == value) {
            break;
        }
    }
    /* "-0" would be read as an integer, which has no negative zero. */
    if (strcmp(out, "-0") == 0) {
        memcpy(out, "-0.0", 5);
    }
}

bool by__parse_f64(const char *text, double *out)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return false;
    }
    char *end;
    bool starts_well = text[0] != '\0' && strchr("0123456789+-.in", text[0]) != NULL;
    double value = starts_well ? strtod_l(text, &end, plain) : 0.0;
    freelocale(plain);
    if (!starts_well || end == text || *end != '\0') {
        return false;
    }
    *out = value;
    return true;
}

int by__compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}
