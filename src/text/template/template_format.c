/* The filters round and format, which print numbers as Python's round() and operator %. */
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/template/template.h"

#define MAX_DIGITS    22 /* of round: powers of ten up to it are exact */
#define MAX_WIDTH     1000
#define MAX_PRECISION 300
#define NUMBER_BYTES  2048 /* enough for a number of that width or precision */

/* Prints one number with a decimal point, independent of the locale. Returns false when memory is
 * exhausted. */
static bool print_real(char out[NUMBER_BYTES], const char *format, int precision, double value)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0) {
        return false;
    }
    locale_t kept = uselocale(plain);
    (void)snprintf(out, NUMBER_BYTES, format, precision, value);
    (void)uselocale(kept);
    freelocale(plain);
    return true;
}

/* ---- round ---- */

/* Rounds to a multiple of 10^digits, ties to even. */
static by_status round_whole(by__template_render *r, int64_t value, int64_t digits,
                             by__template_value *out)
{
    int64_t unit = 1;
    if (digits > 18) {
        *out = by__template_value_integer(0);
        return BY_OK;
    }
    for (int64_t i = 0; i < digits; i++) {
        unit *= 10;
    }
    int64_t rest = value % unit;
    int64_t low = value - rest;
    int64_t size = rest < 0 ? -rest : rest;
    if (size > unit - size || (size == unit - size && low / unit % 2 != 0)) {
        if (__builtin_add_overflow(low, rest < 0 ? -unit : unit, &low)) {
            return by__template_render_fail(r, "round: the number is too large");
        }
    }
    *out = by__template_value_integer(low);
    return BY_OK;
}

static by_status round_real(by__template_render *r, double value, int64_t digits,
                            by__template_value *out)
{
    char text[NUMBER_BYTES];
    double rounded = value;
    if (!isfinite(value)) {
        rounded = value;
    } else if (digits < 0) {
        rounded = copysign(value - remainder(value, pow(10.0, (double)-digits)), value);
    } else if (!print_real(text, "%.*f", (int)digits, value) || !by__parse_f64(text, &rounded)) {
        return by__template_render_fail(r, "out of memory: round");
    }
    *out = (by__template_value){.kind = BY__REAL, .as.real = rounded};
    return BY_OK;
}

by_status by__template_filter_round(by__template_render *r, const by__template_value *v,
                                    const by__template_arguments *a, by__template_value *out)
{
    static const char *const names[] = {"precision", "method", NULL};
    const by__template_value *precision = by__template_argument(a, 0, "precision");
    const by__template_value *method = by__template_argument(a, 1, "method");
    BY_TRY(by__template_arguments_check(r, a, "round", 2, names));
    if (!by__template_value_is_number(v) || (precision != NULL && precision->kind != BY__INTEGER)) {
        return by__template_render_fail(
            r, "round takes a number and a whole precision, not %s",
            by__template_value_word(by__template_value_is_number(v) ? precision : v));
    }
    int64_t digits = precision == NULL ? 0 : precision->as.integer;
    if (digits < -MAX_DIGITS || digits > MAX_DIGITS) {
        return by__template_render_fail(r, "round: the precision is -%d to %d", MAX_DIGITS,
                                        MAX_DIGITS);
    }
    if (method == NULL || by__template_value_is(method, "common")) {
        return by__template_value_is_real(v)
                   ? round_real(r, by__template_value_real(v), digits, out)
                   : round_whole(r, by__template_value_whole(v), digits < 0 ? -digits : 0, out);
    }
    bool up = by__template_value_is(method, "ceil");
    double scale = pow(10.0, (double)digits);
    double value = by__template_value_real(v) * scale;
    if ((!up && !by__template_value_is(method, "floor")) || !isfinite(value)) {
        return by__template_render_fail(r, isfinite(value)
                                               ? "round: the method is common, ceil or floor"
                                               : "round: the number is not finite");
    }
    *out = (by__template_value){.kind = BY__REAL,
                                .as.real = (up ? ceil(value) : floor(value)) / scale + 0.0};
    return BY_OK;
}

/* ---- format ---- */

/* "%(name)-8.3f" */
typedef struct directive {
    char name[64]; /* "": the next argument */
    char flags[8];
    bool left;
    int width;
    int precision; /* -1: none */
    char type;
} directive;

static bool read_number(const char **at, const char *end, int most, int *out)
{
    *out = 0;
    while (*at < end && **at >= '0' && **at <= '9') {
        *out = 10 * *out + (*(*at)++ - '0');
        if (*out > most) {
            return false;
        }
    }
    return true;
}

/* Parses what follows a '%', and advances *at past it. Returns false if it is malformed or not
 * supported. */
static bool read_directive(directive *d, const char **at, const char *end)
{
    const char *s = *at;
    size_t flags = 0;
    *d = (directive){.precision = -1};
    if (s < end && *s == '(') {
        const char *close = memchr(s, ')', (size_t)(end - s));
        size_t length = close == NULL ? 0 : (size_t)(close - s) - 1;
        if (length == 0 || length >= sizeof d->name) {
            return false;
        }
        memcpy(d->name, s + 1, length);
        s = close + 1;
    }
    while (s < end && strchr("-+ 0", *s) != NULL && flags + 1 < sizeof d->flags) {
        d->left = d->left || *s == '-';
        d->flags[flags++] = *s++;
    }
    if (!read_number(&s, end, MAX_WIDTH, &d->width)) {
        return false;
    }
    if (s < end && *s == '.') {
        s++;
        if (!read_number(&s, end, MAX_PRECISION, &d->precision)) {
            return false;
        }
    }
    d->type = s < end ? *s++ : '\0';
    *at = s;
    return d->type != '\0' && strchr("srdiufFeEgGxXo", d->type) != NULL;
}

/* Appends at most `precision` characters of text in a field of `width`. */
static by_status add_text(by__template_render *r, by_string *out, const directive *d,
                          const by__template_value *v)
{
    by__template_value text;
    BY_TRY(by__template_value_text(r, v, &text));
    const char *s = text.as.string.data;
    size_t length = text.as.string.length;
    if (d->type == 'r') { /* values in a list are printed in this way */
        by__template_value list;
        BY_TRY(by__template_value_list(r, 1, false, &list));
        list.as.list->items[0] = *v;
        BY_TRY(by__template_value_text(r, &list, &text));
        s = text.as.string.data + 1;
        length = text.as.string.length - 2;
    }
    size_t characters = by__utf8_count(s, length);
    while (d->precision >= 0 && characters > (size_t)d->precision) {
        do {
            length--;
        } while (((unsigned char)s[length] & 0xc0) == 0x80);
        characters--;
    }
    size_t blanks = (size_t)d->width > characters ? (size_t)d->width - characters : 0;
    for (size_t i = 0; i < blanks && !d->left; i++) {
        by__string_append(out, " ");
    }
    by_string_add(out, s, length);
    for (size_t i = 0; i < blanks && d->left; i++) {
        by__string_append(out, " ");
    }
    return by__template_render_steps(r, length / 8);
}

static by_status add_number(by__template_render *r, by_string *out, const directive *d,
                            const by__template_value *v)
{
    char format[32];
    char width[12];
    char text[NUMBER_BYTES];
    bool whole = strchr("diu", d->type) != NULL;
    bool bits = strchr("xXo", d->type) != NULL;
    double real = by__template_value_is_number(v) ? by__template_value_real(v) : (double)NAN;
    if (!by__template_value_is_number(v) ||
        (bits && (by__template_value_is_real(v) || real < 0.0)) ||
        (whole && by__template_value_is_real(v) && !(real > -9e18 && real < 9e18))) {
        return by__template_render_fail(r, "format: %%%c takes a number%s, not %s", d->type,
                                        bits ? " that is whole and not negative" : "",
                                        by__template_value_word(v));
    }
    width[0] = '\0';
    if (d->width > 0) {
        (void)snprintf(width, sizeof width, "%d", d->width);
    }
    (void)snprintf(format, sizeof format, "%%%s%s.*%s%c", d->flags, width,
                   whole || bits ? "ll" : "", d->type);
    if (whole || bits) {
        long long value = by__template_value_is_real(v) ? (long long)real
                                                        : (long long)by__template_value_whole(v);
        (void)snprintf(text, sizeof text, format, d->precision, value);
    } else if (!print_real(text, format, d->precision < 0 ? 6 : d->precision, real)) {
        return by__template_render_fail(r, "out of memory: format");
    }
    by__string_append(out, text);
    return BY_OK;
}

static by_status add_directive(by__template_render *r, by_string *out, const directive *d,
                               const by__template_arguments *a, size_t *next)
{
    bool named = d->name[0] != '\0';
    const by__template_value *v = named              ? by__template_argument(a, SIZE_MAX, d->name)
                                  : *next < a->count ? &a->values[*next]
                                                     : NULL;
    *next += named ? 0 : 1;
    if (v == NULL) {
        return by__template_render_fail(r,
                                        named
                                            ? "format: there is no argument '%s'"
                                            : "format: there are fewer arguments than directives%s",
                                        d->name);
    }
    return d->type == 's' || d->type == 'r' ? add_text(r, out, d, v) : add_number(r, out, d, v);
}

static by_status format_text(by__template_render *r, by_string *out, const by__template_value *text,
                             const by__template_arguments *a)
{
    const char *at = text->as.string.data;
    const char *end = at + text->as.string.length;
    size_t next = 0;
    while (at < end) {
        const char *percent = memchr(at, '%', (size_t)(end - at));
        by_string_add(out, at, (size_t)((percent == NULL ? end : percent) - at));
        at = percent == NULL ? end : percent + 1;
        if (percent != NULL && at < end && *at == '%') {
            by__string_append(out, "%");
            at++;
        } else if (percent != NULL) {
            directive d;
            if (!read_directive(&d, &at, end)) {
                return by__template_render_fail(r, "format: '%.*s' is not supported",
                                                (int)(end - percent < 20 ? end - percent : 20),
                                                percent);
            }
            BY_TRY(add_directive(r, out, &d, a, &next));
        }
        if (out->length > r->arena.left) {
            return by__template_render_fail(r, "the template needs more memory than it may have");
        }
    }
    return next < a->count
               ? by__template_render_fail(r, "format: there are more arguments than directives")
               : BY_OK;
}

by_status by__template_filter_format(by__template_render *r, const by__template_value *v,
                                     const by__template_arguments *a, by__template_value *out)
{
    by__template_value text;
    by_string made = {0};
    if (a->count > 0 && a->keyword_count > 0) {
        return by__template_render_fail(r, "format takes arguments with names or without");
    }
    BY_TRY(by__template_value_text(r, v, &text));
    BY_TRY(by__template_render_steps(r, text.as.string.length / 8));
    by_status status = format_text(r, &made, &text, a);
    if (status != BY_OK) {
        by_string_free(&made);
        return status;
    }
    return by__template_value_move_text(r, &made, out);
}
