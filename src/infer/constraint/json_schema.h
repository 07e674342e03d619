/* What json_schema.c (objects, arrays, what a schema is) and json_schema_values.c (strings,
 * numbers, the rules that any schema may call) share. */
#ifndef BY_INFER_CONSTRAINT_JSON_SCHEMA_H
#define BY_INFER_CONSTRAINT_JSON_SCHEMA_H

#include <jansson.h>

#include "infer/constraint/byte_language.h"

/* Rules that any schema may call. */
typedef enum by__shared_rule {
    BY__RULE_SPACE = 0,
    BY__RULE_CHARACTER, /* within a string */
    BY__RULE_STRING,
    BY__RULE_NUMBER,
    BY__RULE_INTEGER,
    BY__RULE_VALUE,
    BY__RULE_OBJECT,
    BY__RULE_ARRAY,
    BY__SHARED_RULES
} by__shared_rule;

/* A schema that has a rule of its own, to be parsed when its turn comes. */
typedef struct by__pending_schema {
    const json_t *schema;
    uint32_t rule;
    char place[120];
} by__pending_schema;

typedef struct by__schema_parser {
    by__language *language;
    const json_t *root;
    uint32_t shared[BY__SHARED_RULES]; /* BY__UNBOUNDED: not made yet */
    by__pending_schema *list;
    size_t count;
    size_t capacity;
    by_error *error;
} by__schema_parser;

/* BY_EARG with the place in front. */
by_status by__schema_refuse(const by__schema_parser *p, const char *place, const char *format, ...)
    BY_PRINTF(3, 4);
/* A call of a shared rule, which is made when it is first called. */
const by__expression *by__schema_shared(by__schema_parser *p, by__shared_rule which);
/* One after another; none of them NULL, or the whole is NULL. */
const by__expression *by__schema_chain(by__schema_parser *p, size_t count,
                                       const by__expression *const *parts);
#define BY__CHAIN(p, ...)                                                                          \
    by__schema_chain(                                                                              \
        p, sizeof((const by__expression *[]){__VA_ARGS__}) / sizeof(const by__expression *),       \
        (const by__expression *[]){__VA_ARGS__})
const by__expression *by__schema_text(by__schema_parser *p, const char *text);
/* A pattern of the program's own, the whole of a text. */
const by__expression *by__schema_pattern(by__schema_parser *p, const char *pattern,
                                         by__writing writing);
/* Items between brackets, `least` to `most` of them, with commas and space. */
const by__expression *by__schema_list(by__schema_parser *p, const char *open,
                                      const by__expression *item, uint32_t least, uint32_t most,
                                      const char *close);
/* The integer that a keyword says, 0 to BY__MAX_REPEAT; `fallback` where it is not there. */
by_status by__schema_count(const by__schema_parser *p, const json_t *schema, const char *key,
                           const char *place, uint32_t fallback, uint32_t *out);
/* Numbers and strings as the schema's keywords limit them. */
by_status by__schema_number(by__schema_parser *p, const json_t *schema, const char *place,
                            bool integer, const by__expression **out);
by_status by__schema_string(by__schema_parser *p, const json_t *schema, const char *place,
                            const by__expression **out);

#endif
