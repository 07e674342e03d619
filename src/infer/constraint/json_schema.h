/* Shared by json_schema.c (objects, arrays, schemas as a whole) and json_schema_values.c (strings,
 * numbers, rules that any schema may call). */
#ifndef BY_INFER_CONSTRAINT_JSON_SCHEMA_H
#define BY_INFER_CONSTRAINT_JSON_SCHEMA_H

#include "base/hash_table.h"
#include "base/json.h"
#include "infer/constraint/byte_language.h"

/* Rules that any schema may call. */
typedef enum by__constraint_shared_rule {
    BY__RULE_SPACE = 0,
    BY__RULE_CHARACTER, /* inside a string */
    BY__RULE_STRING,
    BY__RULE_NUMBER,
    BY__RULE_INTEGER,
    BY__RULE_VALUE,
    BY__RULE_OBJECT,
    BY__RULE_ARRAY,
    BY__SHARED_RULES
} by__constraint_shared_rule;

/* A schema with its own rule, still to be parsed. */
typedef struct by__constraint_pending_schema {
    const json_t *schema;
    uint32_t rule;
    char place[120];
} by__constraint_pending_schema;

typedef struct by__constraint_schema_parser {
    by__constraint_language *language;
    const json_t *root;
    uint32_t shared[BY__SHARED_RULES]; /* BY__UNBOUNDED: not defined yet */
    by__constraint_pending_schema *list;
    size_t count;
    size_t capacity;
    by__base_table table; /* of the list */
    by_error *error;
} by__constraint_schema_parser;

/* Reports BY_EARG, prefixed by the place. */
by_status by__constraint_schema_refuse(const by__constraint_schema_parser *p, const char *place,
                                       const char *format, ...) BY_PRINTF(3, 4);
/* Returns a call of a shared rule, which is defined when it is first called. */
const by__constraint_expression *by__constraint_schema_shared(by__constraint_schema_parser *p,
                                                              by__constraint_shared_rule which);
/* Concatenates the parts. Returns NULL if any of them is NULL. */
const by__constraint_expression *
by__constraint_schema_chain(by__constraint_schema_parser *p, size_t count,
                            const by__constraint_expression *const *parts);
#define BY__CHAIN(p, ...)                                                                          \
    by__constraint_schema_chain(p,                                                                 \
                                sizeof((const by__constraint_expression *[]){__VA_ARGS__}) /       \
                                    sizeof(const by__constraint_expression *),                     \
                                (const by__constraint_expression *[]){__VA_ARGS__})
const by__constraint_expression *by__constraint_schema_text(by__constraint_schema_parser *p,
                                                            const char *text);
/* Parses a built-in pattern, which must match a whole text. */
const by__constraint_expression *by__constraint_schema_pattern(by__constraint_schema_parser *p,
                                                               const char *pattern,
                                                               by__constraint_writing writing);
/* Returns `least` to `most` items between brackets, with commas and space. */
const by__constraint_expression *by__constraint_schema_list(by__constraint_schema_parser *p,
                                                            const char *open,
                                                            const by__constraint_expression *item,
                                                            uint32_t least, uint32_t most,
                                                            const char *close);
/* Reads an integer keyword from 0 to BY__MAX_REPEAT; `fallback` if it is missing. */
by_status by__constraint_schema_count(const by__constraint_schema_parser *p, const json_t *schema,
                                      const char *key, const char *place, uint32_t fallback,
                                      uint32_t *out);
/* Make expressions for numbers and strings with the limits in the schema's keywords. */
by_status by__constraint_schema_number(by__constraint_schema_parser *p, const json_t *schema,
                                       const char *place, bool integer,
                                       const by__constraint_expression **out);
by_status by__constraint_schema_string(by__constraint_schema_parser *p, const json_t *schema,
                                       const char *place, const by__constraint_expression **out);

#endif
