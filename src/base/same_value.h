/* Which spellings of a category are the same value: 1, 1.0 and 1e0; true, True and TRUE.
 *
 * A category that was learned from one format is asked for in another one, which may spell it
 * otherwise: CSV has the text that was typed, JSON and Parquet have numbers. So categories are
 * compared by value, and kept in the shortest spelling. */
#ifndef BY_BASE_SAME_VALUE_H
#define BY_BASE_SAME_VALUE_H

#include "base/base.h"

/* Bytes of a spelling with its NUL. */
#define BY__SPELLING 64

/* Writes the shortest spelling of the number or truth value that a text is: "1" for " 1.0 ", "0.1"
 * for "0.10000000000000001", "true" for "True". Returns false for any other text, which is the same
 * as nothing but itself; so are codes of digits: "01" is not "1". */
bool by__spell_value(char out[BY__SPELLING], const char *text, size_t length);

/* Distinct values, each with all values of a list that are the same. */
typedef struct by__value_groups {
    char **names;      /* [count] their spellings: the shortest of a number */
    size_t count;      /* in order of first appearance */
    int32_t *group_of; /* [values] -1: left out */
} by__value_groups;

/* Groups values; `counts` not NULL: those with a count of 0 are left out. */
by_status by__value_groups_open(by__value_groups *out, const char *const *values,
                                const uint64_t *counts, size_t count, by_error *error);
void by__value_groups_close(by__value_groups *groups);

/* Names that are not the shortest spelling of their value, found by that. {0}: none. */
typedef struct by__aliases {
    struct by__alias {
        char spelling[BY__SPELLING];
        int32_t index;
    } * items; /* sorted by spelling */
    size_t count;
    size_t capacity;
} by__aliases;

/* Collects the aliases of `count` names in the order of their bytes. */
by_status by__aliases_open(by__aliases *out, const char *const *names, size_t count,
                           by_error *error);
void by__aliases_close(by__aliases *aliases);
/* Index of the name that is the same value as a text: the name itself, else one of the same value.
 * A truth value is also the number 1 or 0, as which some formats store it. -1: there is none. */
int32_t by__same_value(const char *const *names, size_t count, const by__aliases *aliases,
                       const char *text);

#endif
