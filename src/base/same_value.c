#include "base/same_value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/name_table.h"

/* Most digits of a whole number that is spelled out: identifiers are not rounded to doubles. */
#define MAX_DIGITS 40

/* A decimal number: 0.DIGITS times ten to the power `point`. */
typedef struct decimal {
    bool negative;
    char digits[BY__SPELLING]; /* without zeros at either end */
    int count;
    int point;
} decimal;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads [eE][+-]digits up to `end`. */
static bool read_exponent(const char *at, const char *end, int *out)
{
    bool negative = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+');
    if (at == end || end - at > 4) {
        return false;
    }
    *out = 0;
    for (; at < end; at++) {
        if (!is_digit(*at)) {
            return false;
        }
        *out = 10 * *out + (*at - '0');
    }
    *out = negative ? -*out : *out;
    return true;
}

/* Reads the digits and the point from `at` on; returns where they end, or NULL. */
static const char *read_digits(decimal *d, const char *at, const char *end)
{
    const char *begin = at;
    bool any = false;
    bool fraction = false;
    for (; at < end && (is_digit(*at) || (*at == '.' && !fraction)); at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        any = true;
        d->point += fraction ? 0 : 1;
        if (*at == '0' && d->count == 0) {
            d->point--; /* a zero in front of the first digit */
        } else {
            d->digits[d->count++] = *at;
        }
    }
    /* "01" is a code of digits. */
    bool code = end - begin > 1 && begin[0] == '0' && is_digit(begin[1]);
    while (d->count > 0 && d->digits[d->count - 1] == '0') {
        d->count--;
    }
    return any && !code ? at : NULL;
}

static bool read_decimal(decimal *d, const char *text, size_t length)
{
    const char *end = text + length;
    int exponent = 0;
    *d = (decimal){0};
    d->negative = *text == '-';
    text += *text == '-' || *text == '+';
    text = read_digits(d, text, end);
    if (text == NULL) {
        return false;
    }
    if (text < end && (*text != 'e' && *text != 'E')) {
        return false;
    }
    if (text < end && !read_exponent(text + 1, end, &exponent)) {
        return false;
    }
    d->point += exponent;
    return true;
}

/* Writes a whole number of up to MAX_DIGITS digits; false: it is another number. */
static bool print_whole(char out[BY__SPELLING], const decimal *d)
{
    char *at = out;
    if (d->count > d->point || d->point > MAX_DIGITS) {
        return false;
    }
    if (d->negative) {
        *at++ = '-';
    }
    for (int i = 0; i < d->point; i++) {
        *at++ = i < d->count ? d->digits[i] : '0';
    }
    *at = '\0';
    return true;
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* The words that pandas reads as truth values. */
static bool spell_truth(char out[BY__SPELLING], const char *text, size_t length)
{
    static const char *const words[2][3] = {{"true", "True", "TRUE"}, {"false", "False", "FALSE"}};
    for (size_t i = 0; i < 6; i++) {
        if (is_word(text, length, words[i / 3][i % 3])) {
            memcpy(out, words[i / 3][0], strlen(words[i / 3][0]) + 1);
            return true;
        }
    }
    return false;
}

bool by__spell_value(char out[BY__SPELLING], const char *text, size_t length)
{
    decimal d;
    double value;
    char copy[BY__SPELLING];
    by__trim(&text, &length, BY__BLANKS);
    if (spell_truth(out, text, length)) {
        return true;
    }
    if (length == 0 || length >= sizeof copy || !read_decimal(&d, text, length)) {
        return false;
    }
    if (d.count == 0) {
        memcpy(out, "0", 2);
        return true;
    }
    if (print_whole(out, &d)) {
        return true;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (!by__parse_f64(copy, &value) || !isfinite(value) || value == 0.0) {
        return false;
    }
    by__format_f64(out, value);
    return true;
}

/* ---- groups ---- */

void by__value_groups_close(by__value_groups *groups)
{
    for (size_t i = 0; i < groups->count; i++) {
        free(groups->names[i]);
    }
    free(groups->names);
    free(groups->group_of);
    *groups = (by__value_groups){0};
}

/* What a new group is called: a number by its spelling, a truth value as it was written. */
static by_status name_group(char **out, const char *text, const char *spelling, by_error *error)
{
    bool is_number = spelling != NULL && spelling[0] != 't' && spelling[0] != 'f';
    size_t length = strlen(text);
    if (spelling != NULL) {
        by__trim(&text, &length, BY__BLANKS);
    }
    *out = is_number ? by__strdup(spelling) : by__strndup(text, length);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a value") : BY_OK;
}

/* The groups that are found so far: their keys, which the table borrows. */
typedef struct grouping {
    by__value_groups *out;
    by__name_table table;
    char **keys;
    size_t key_capacity;
    size_t name_capacity;
} grouping;

static by_status add_group(grouping *g, const char *text, const char *spelling, by_error *error)
{
    by__value_groups *out = g->out;
    size_t at = out->count;
    char *key;
    BY_TRY(by__reserve((void **)&out->names, &g->name_capacity, at + 1, sizeof *out->names, error));
    BY_TRY(by__reserve((void **)&g->keys, &g->key_capacity, at + 1, sizeof *g->keys, error));
    key = by__strdup(spelling == NULL ? text : spelling);
    if (key == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a value");
    }
    by_status status = name_group(&out->names[at], text, spelling, error);
    if (status != BY_OK) {
        free(key);
        return status;
    }
    g->keys[at] = key;
    out->count++;
    return by__name_table_add(&g->table, key, (int32_t)at, error);
}

static by_status count_value(grouping *g, size_t index, const char *text, by_error *error)
{
    char buffer[BY__SPELLING];
    const char *spelling = by__spell_value(buffer, text, strlen(text)) ? buffer : NULL;
    int32_t at = by__name_table_find(&g->table, spelling == NULL ? text : spelling);
    if (at < 0) {
        at = (int32_t)g->out->count;
        BY_TRY(add_group(g, text, spelling, error));
    } else if (spelling != NULL && strcmp(text, g->out->names[at]) != 0) {
        /* Of two spellings of a truth value the first in the order of bytes is kept, so that the
         * order of rows does not matter; those of a number give the same name. */
        char *name;
        BY_TRY(name_group(&name, text, spelling, error));
        if (strcmp(name, g->out->names[at]) < 0) {
            char *other = g->out->names[at];
            g->out->names[at] = name;
            name = other;
        }
        free(name);
    }
    g->out->group_of[index] = at;
    return BY_OK;
}

by_status by__value_groups_open(by__value_groups *out, const char *const *values,
                                const uint64_t *counts, size_t count, by_error *error)
{
    by__value_groups made = {0};
    grouping g = {.out = &made};
    by_status status =
        by__alloc((void **)&made.group_of, count + 1, sizeof *made.group_of, "values", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        made.group_of[i] = -1;
        if (counts == NULL || counts[i] > 0) {
            status = count_value(&g, i, values[i], error);
        }
    }
    by__name_table_free(&g.table);
    for (size_t i = 0; i < made.count; i++) {
        free(g.keys[i]);
    }
    free(g.keys);
    if (status != BY_OK) {
        by__value_groups_close(&made);
        return status;
    }
    *out = made;
    return BY_OK;
}

/* ---- aliases ---- */

static int by_spelling(const void *a, const void *b)
{
    const struct by__alias *x = a;
    const struct by__alias *y = b;
    int order = strcmp(x->spelling, y->spelling);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

by_status by__aliases_open(by__aliases *out, const char *const *names, size_t count,
                           by_error *error)
{
    by__aliases made = {0};
    for (size_t i = 0; i < count; i++) {
        struct by__alias alias = {.index = (int32_t)i};
        if (!by__spell_value(alias.spelling, names[i], strlen(names[i])) ||
            strcmp(alias.spelling, names[i]) == 0) {
            continue;
        }
        by_status status = by__reserve((void **)&made.items, &made.capacity, made.count + 1,
                                       sizeof *made.items, error);
        if (status != BY_OK) {
            by__aliases_close(&made);
            return status;
        }
        made.items[made.count++] = alias;
    }
    if (made.count > 1) {
        qsort(made.items, made.count, sizeof *made.items, by_spelling);
    }
    *out = made;
    return BY_OK;
}

void by__aliases_close(by__aliases *aliases)
{
    free(aliases->items);
    *aliases = (by__aliases){0};
}

static int32_t find_name(const char *const *names, size_t count, const char *text)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(names[middle], text);
        if (order == 0) {
            return (int32_t)middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}

/* The name with this spelling, or the first of its aliases. */
static int32_t find_spelling(const char *const *names, size_t count, const by__aliases *aliases,
                             const char *spelling)
{
    size_t low = 0;
    size_t high = aliases->count;
    int32_t found = find_name(names, count, spelling);
    while (found < 0 && low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(aliases->items[middle].spelling, spelling) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_alias =
        found < 0 && low < aliases->count && strcmp(aliases->items[low].spelling, spelling) == 0;
    return is_alias ? aliases->items[low].index : found;
}

int32_t by__same_value(const char *const *names, size_t count, const by__aliases *aliases,
                       const char *text)
{
    static const char *const truth[][2] = {
        {"true", "1"}, {"1", "true"}, {"false", "0"}, {"0", "false"}};
    char spelling[BY__SPELLING];
    int32_t found = find_name(names, count, text);
    if (found >= 0 || !by__spell_value(spelling, text, strlen(text))) {
        return found;
    }
    found = find_spelling(names, count, aliases, spelling);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(truth) && found < 0; i++) {
        if (strcmp(spelling, truth[i][0]) == 0) {
            return find_spelling(names, count, aliases, truth[i][1]);
        }
    }
    return found;
}
