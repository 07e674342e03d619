/* Decimal numbers of a range, digit by digit. A state knows whether the digits so far equal the
 * beginning of the lowest or of the highest number (which then bounds the next digit), and the
 * remainder modulo the multiple. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "infer/constraint/byte_language.h"

/* The largest integer up to which doubles are exact, and the maximum number of digits of numbers
 * without a limit. */
#define LARGEST_EXACT 9007199254740992.0
#define DIGITS_FREE   15
/* Digits after the point if the limits need fewer, and the most that limits may need. */
#define FRACTION_FREE 6
#define FRACTION_MOST 9
#define MULTIPLE_MOST 1000

static const uint64_t power_of_ten[BY__MAX_DIGITS + 1] = {1u,
                                                          10u,
                                                          100u,
                                                          1000u,
                                                          10000u,
                                                          100000u,
                                                          1000000u,
                                                          10000000u,
                                                          100000000u,
                                                          1000000000u,
                                                          10000000000u,
                                                          100000000000u,
                                                          1000000000000u,
                                                          10000000000000u,
                                                          100000000000000u,
                                                          1000000000000000u,
                                                          10000000000000000u,
                                                          100000000000000000u,
                                                          1000000000000000000u,
                                                          10000000000000000000u};

/* ---- states ---- */

typedef struct range_builder {
    by__constraint_nfa *nfa;
    const by__constraint_number_spec *spec;
    int32_t to;      /* where accepted numbers continue */
    int32_t *loose;  /* [digits left, remainder]: states without active bounds, -1: none */
    uint64_t modulo; /* 1: any multiple */
    uint64_t low;    /* bounds of the numbers with `digits` digits before the point */
    uint64_t high;
    by_error *error;
} range_builder;

/* A partly read number: the digits left, and what is known about those before. */
typedef struct number_prefix {
    int left; /* digits to come, including those after the point */
    bool at_low;
    bool at_high;
    bool pointed; /* the point was read, so a digit must follow */
    bool first;   /* no digit was read, and several are to come before the point */
    uint64_t remainder;
} number_prefix;

static int digit_of(uint64_t value, int place)
{
    return (int)(value / power_of_ten[place] % 10);
}

/* Returns true if the number may end here, with all remaining digits zero. */
static bool may_end(const range_builder *b, const number_prefix *r)
{
    if (r->left > b->spec->fraction || r->pointed) {
        return false;
    }
    uint64_t unit = power_of_ten[r->left];
    return (!r->at_low || b->low % unit == 0) && r->remainder * (unit % b->modulo) % b->modulo == 0;
}

static by_status visit(range_builder *b, number_prefix r, int32_t *out);

static by_status add_digits(range_builder *b, const number_prefix *r, int32_t state)
{
    int place = r->left - 1;
    int lowest = r->at_low ? digit_of(b->low, place) : 0;
    int highest = r->at_high ? digit_of(b->high, place) : 9;
    lowest = r->first && lowest == 0 ? 1 : lowest;
    for (int digit = lowest; digit <= highest; digit++) {
        number_prefix next = {.left = place,
                              .at_low = r->at_low && digit == digit_of(b->low, place),
                              .at_high = r->at_high && digit == digit_of(b->high, place),
                              .remainder = (r->remainder * 10 + (uint64_t)digit) % b->modulo};
        int32_t to;
        BY_TRY(visit(b, next, &to));
        BY_TRY(by__constraint_nfa_edge(b->nfa, state, (uint8_t)('0' + digit),
                                       (uint8_t)('0' + digit), to, b->error));
    }
    return BY_OK;
}

/* Adds the state of a reading. The recursion depth is at most the number of digits. */
static by_status visit(range_builder *b, number_prefix r, int32_t *out)
{
    bool loose = !r.at_low && !r.at_high && !r.pointed && !r.first;
    int32_t *known = &b->loose[(uint64_t)r.left * b->modulo + r.remainder];
    if (loose && *known >= 0) {
        *out = *known;
        return BY_OK;
    }
    BY_TRY(by__constraint_nfa_state_add(b->nfa, out, b->error));
    if (loose) {
        *known = *out;
    }
    if (may_end(b, &r)) {
        BY_TRY(by__constraint_nfa_free_jump(b->nfa, *out, b->to, b->error));
    }
    if (r.left == b->spec->fraction && b->spec->fraction > 0 && !r.pointed) {
        number_prefix next = r;
        int32_t to;
        next.pointed = true;
        BY_TRY(visit(b, next, &to));
        return by__constraint_nfa_edge(b->nfa, *out, '.', '.', to, b->error);
    }
    return r.left > 0 ? add_digits(b, &r, *out) : BY_OK;
}

by_status by__constraint_nfa_number(by__constraint_nfa *nfa, const by__constraint_number_spec *spec,
                                    int32_t from, int32_t to, by_error *error)
{
    range_builder b = {.nfa = nfa,
                       .spec = spec,
                       .to = to,
                       .modulo = spec->multiple == 0 ? 1 : spec->multiple,
                       .error = error};
    size_t cells = (size_t)(BY__MAX_DIGITS + 1) * b.modulo;
    BY_TRY(by__alloc((void **)&b.loose, cells, sizeof *b.loose, "a number's states", error));
    memset(b.loose, 0xff, cells * sizeof *b.loose);
    by_status status = BY_OK;
    for (int digits = 1; digits + spec->fraction < BY__MAX_DIGITS && status == BY_OK; digits++) {
        uint64_t least = digits == 1 ? 0 : power_of_ten[digits - 1 + spec->fraction];
        uint64_t most = power_of_ten[digits + spec->fraction] - 1;
        b.low = spec->low > least ? spec->low : least;
        b.high = spec->high < most ? spec->high : most;
        if (b.low <= b.high) {
            number_prefix r = {.left = digits + spec->fraction,
                               .at_low = b.low > least,
                               .at_high = b.high<most, .first = digits> 1};
            int32_t state;
            status = visit(&b, r, &state);
            if (status == BY_OK) {
                status = by__constraint_nfa_free_jump(nfa, from, state, error);
            }
        }
    }
    free(b.loose);
    return status;
}

/* ---- limits ---- */

/* Returns the digits after the point that a number needs, or -1 if there are too many. */
static int fraction_digits(double value)
{
    for (int digits = 0; digits <= FRACTION_MOST; digits++) {
        double scaled = value * (double)power_of_ten[digits];
        if (fabs(scaled - nearbyint(scaled)) <= 4.0 * DBL_EPSILON * fabs(scaled) &&
            fabs(scaled) >= 1.0) {
            return digits;
        }
        if (scaled == 0.0) {
            return 0;
        }
    }
    return -1;
}

static by_status units(double value, int fraction, const char *where, int64_t *out, by_error *error)
{
    double scaled = nearbyint(value * (double)power_of_ten[fraction]);
    if (!(fabs(scaled) <= LARGEST_EXACT)) {
        return by_error_set(error, BY_EARG, "schema, at %s: %g has more digits than can be checked",
                            where, value);
    }
    *out = (int64_t)scaled;
    return BY_OK;
}

/* Finds the digits after the point that all limits need. */
static by_status choose_fraction(const by__constraint_number_limits *l, const char *where, int *out,
                                 by_error *error)
{
    const double values[] = {l->has_low ? l->low : 0.0, l->has_high ? l->high : 0.0, l->multiple};
    int most = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values); i++) {
        int digits = fraction_digits(values[i]);
        if (digits < 0 || !isfinite(values[i])) {
            return by_error_set(error, BY_EARG,
                                "schema, at %s: %g has over %d digits behind the point", where,
                                values[i], FRACTION_MOST);
        }
        most = digits > most ? digits : most;
    }
    *out = l->integer || l->multiple != 0.0 || most >= FRACTION_FREE ? most : FRACTION_FREE;
    return BY_OK;
}

static int64_t rounded_up(int64_t value, int64_t unit)
{
    int64_t rest = value % unit;
    return rest > 0 ? value + unit - rest : value - rest;
}

static const by__constraint_expression *numbers(by__constraint_language *language, int fraction,
                                                int64_t low, int64_t high, int64_t multiple)
{
    by__constraint_number_spec *spec = by__constraint_language_alloc(language, sizeof *spec);
    by__constraint_expression *e = by__constraint_language_alloc(language, sizeof *e);
    if (spec == NULL || e == NULL) {
        return NULL;
    }
    *spec =
        (by__constraint_number_spec){fraction, (uint64_t)low, (uint64_t)high, (uint64_t)multiple};
    *e = (by__constraint_expression){.kind = BY__EXPR_NUMBER, .number = spec};
    return e;
}

by_status by__constraint_number_expression(const by__constraint_expression **out,
                                           by__constraint_language *language,
                                           const by__constraint_number_limits *l, const char *where,
                                           by_error *error)
{
    int fraction = 0;
    int64_t low = 0;
    int64_t high = 0;
    int64_t multiple = 0;
    BY_TRY(choose_fraction(l, where, &fraction, error));
    BY_TRY(units(l->low, fraction, where, &low, error));
    BY_TRY(units(l->high, fraction, where, &high, error));
    BY_TRY(units(l->multiple, fraction, where, &multiple, error));
    int64_t bound = (int64_t)power_of_ten[DIGITS_FREE] - 1;
    low = l->has_low ? low + (l->low_open ? 1 : 0) : -bound;
    high = l->has_high ? high - (l->high_open ? 1 : 0) : bound;
    if (l->integer && fraction > 0) { /* an integer between bounds that are not */
        int64_t unit = (int64_t)power_of_ten[fraction];
        if (multiple != 0 && multiple % unit != 0) {
            return by_error_set(error, BY_EARG,
                                "schema, at %s: multipleOf %g of an integer is no integer", where,
                                l->multiple);
        }
        low = rounded_up(low, unit) / unit;
        high = -(rounded_up(-high, unit) / unit);
        multiple /= unit;
        fraction = 0;
    }
    if (multiple > MULTIPLE_MOST) {
        return by_error_set(error, BY_EARG,
                            "schema, at %s: multipleOf %g has over %d remainders to follow", where,
                            l->multiple, MULTIPLE_MOST);
    }
    const by__constraint_expression *e = NULL;
    if (low <= high && high >= 0) {
        e = numbers(language, fraction, low > 0 ? low : 0, high, multiple);
    }
    if (low <= high && low < 0) { /* -0 is left out */
        const by__constraint_expression *below =
            numbers(language, fraction, high < 0 ? -high : 1, -low, multiple);
        below = by__constraint_expr_concat(language, by__constraint_expr_bytes(language, '-', '-'),
                                           below);
        e = by__constraint_expr_either(language, e, below);
    }
    if (e == NULL && !language->failed) {
        return by_error_set(error, BY_EARG, "schema, at %s: no number is within the limits", where);
    }
    *out = e;
    return BY_OK;
}
