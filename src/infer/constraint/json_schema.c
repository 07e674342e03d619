/* JSON Schema (draft 2020-12) as a grammar: objects, arrays and referenced schemas become rules,
 * everything else is expanded in place. What a keyword allows is never widened: it is kept,
 * narrowed (an object without `additionalProperties` is closed), or refused by name. */
#include <stdlib.h>
#include <string.h>

#include "base/name_table.h"
#include "infer/constraint/json_schema.h"

/* Types, as bits. */
enum {
    TYPE_OBJECT = 1 << 0,
    TYPE_ARRAY = 1 << 1,
    TYPE_STRING = 1 << 2,
    TYPE_NUMBER = 1 << 3,
    TYPE_INTEGER = 1 << 4,
    TYPE_BOOLEAN = 1 << 5,
    TYPE_NULL = 1 << 6,
};

typedef struct type_name {
    const char *name;
    unsigned type;
} type_name;

static const type_name type_names[] = {
    {"object", TYPE_OBJECT}, {"array", TYPE_ARRAY},     {"string", TYPE_STRING},
    {"number", TYPE_NUMBER}, {"integer", TYPE_INTEGER}, {"boolean", TYPE_BOOLEAN},
    {"null", TYPE_NULL},
};

/* Keywords that apply to certain types. Those without a type are annotations, hold definitions, or
 * replace a whole schema. */
static const type_name keywords[] = {
    {"properties", TYPE_OBJECT},
    {"required", TYPE_OBJECT},
    {"additionalProperties", TYPE_OBJECT},
    {"items", TYPE_ARRAY},
    {"minItems", TYPE_ARRAY},
    {"maxItems", TYPE_ARRAY},
    {"pattern", TYPE_STRING},
    {"format", TYPE_STRING},
    {"minLength", TYPE_STRING},
    {"maxLength", TYPE_STRING},
    {"minimum", TYPE_NUMBER},
    {"maximum", TYPE_NUMBER},
    {"exclusiveMinimum", TYPE_NUMBER},
    {"exclusiveMaximum", TYPE_NUMBER},
    {"multipleOf", TYPE_NUMBER},
    {"type", 0},
    {"enum", 0},
    {"const", 0},
    {"anyOf", 0},
    {"allOf", 0},
    {"$ref", 0},
    {"$defs", 0},
    {"definitions", 0},
    {"title", 0},
    {"description", 0},
    {"default", 0},
    {"examples", 0},
    {"deprecated", 0},
    {"readOnly", 0},
    {"writeOnly", 0},
    {"$schema", 0},
    {"$id", 0},
    {"$comment", 0},
};

/* Calls the rule of a schema; if it has none yet, adds one that is parsed later. */
static by_status call_schema(by__constraint_schema_parser *p, const json_t *schema,
                             const char *place, const by__constraint_expression **out)
{
    uint64_t hash = by__hash64(&schema, sizeof schema);
    for (by__base_probe probe = by__base_probe_begin(&p->table, hash);
         by__base_probe_next(&p->table, &probe);) {
        if (p->list[probe.number].schema == schema) {
            *out = by__constraint_expr_call(p->language, p->list[probe.number].rule);
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&p->list, &p->capacity, p->count + 1, sizeof *p->list, p->error));
    BY_TRY(by__base_table_add(&p->table, hash, p->count, "a schema", p->error));
    by__constraint_pending_schema *item = &p->list[p->count++];
    *item = (by__constraint_pending_schema){.schema = schema,
                                            .rule = by__constraint_language_rule(p->language)};
    (void)snprintf(item->place, sizeof item->place, "%s", place);
    *out = by__constraint_expr_call(p->language, item->rule);
    return by__constraint_language_status(p->language, p->error);
}

/* ---- objects and arrays ---- */

/* A property to write: its name and schema (NULL: any value). */
typedef struct property {
    const char *name;
    const json_t *schema;
    bool required;
} property;

static by_status value_of(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                          int depth, const by__constraint_expression **out);

static by_status property_of(by__constraint_schema_parser *p, const property *q, const char *place,
                             int depth, const by__constraint_expression **out)
{
    char below[120];
    by_string name = {0};
    const by__constraint_expression *value = NULL;
    (void)snprintf(below, sizeof below, "%s/properties/%s", place, q->name);
    if (q->schema == NULL) {
        value = by__constraint_schema_shared(p, BY__RULE_VALUE);
    } else {
        BY_TRY(value_of(p, q->schema, below, depth + 1, &value));
    }
    by_string_json(&name, q->name, strlen(q->name));
    by__string_append(&name, ":");
    if (name.failed) {
        p->language->failed = p->language->exhausted = true;
    } else {
        *out = BY__CHAIN(p, by__constraint_expr_text(p->language, name.data, name.length),
                         by__constraint_schema_shared(p, BY__RULE_SPACE), value);
    }
    by_string_free(&name);
    return BY_OK;
}

/* Members in the order of the schema. Built from the last to the first: `some` is what follows if a
 * member was already written, `none` what follows if not. */
static by_status members_of(by__constraint_schema_parser *p, const property *list, size_t count,
                            const char *place, int depth, const by__constraint_expression **out)
{
    const by__constraint_expression *some = by__constraint_expr_empty(p->language);
    const by__constraint_expression *none = by__constraint_expr_empty(p->language);
    size_t first = 0; /* up to the first required member, any member may be the first one written */
    while (first < count && !list[first].required) {
        first++;
    }
    for (size_t i = count; i-- > 0;) {
        const by__constraint_expression *member = NULL;
        BY_TRY(property_of(p, &list[i], place, depth, &member));
        const by__constraint_expression *begins = member;
        const by__constraint_expression *follows =
            BY__CHAIN(p, by__constraint_schema_text(p, ","),
                      by__constraint_schema_shared(p, BY__RULE_SPACE), member);
        if (i <= first) { /* `some` is used twice: a rule avoids a copy each time */
            uint32_t rule = by__constraint_language_rule(p->language);
            by__constraint_language_define(p->language, rule, some);
            some = by__constraint_expr_call(p->language, rule);
            begins = by__constraint_expr_concat(p->language, begins, some);
            none =
                list[i].required ? begins : by__constraint_expr_either(p->language, begins, none);
        }
        follows = list[i].required ? follows : by__constraint_expr_optional(p->language, follows);
        some = by__constraint_expr_concat(p->language, follows, some);
        BY_TRY(by__constraint_language_status(p->language, p->error));
    }
    *out = none;
    return BY_OK;
}

/* Lists the required properties that `properties` does not have, and marks all required ones;
 * `names` has the places of those in the list. */
static by_status list_required(const by__constraint_schema_parser *p, const json_t *schema,
                               const char *place, property *list, size_t *count,
                               by__name_table *names)
{
    const json_t *required = json_object_get(schema, "required");
    const json_t *more = json_object_get(schema, "additionalProperties");
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *wanted = json_string_value(json_array_get(required, i));
        if (wanted == NULL) {
            return by__constraint_schema_refuse(p, place, "required must be a list of names");
        }
        int32_t k = by__name_table_find(names, wanted);
        if (k < 0) {
            if (json_is_false(more)) {
                return by__constraint_schema_refuse(
                    p, place, "\"%s\" is required, but not among the properties", wanted);
            }
            k = (int32_t)*count;
            BY_TRY(by__name_table_add(names, wanted, k, p->error));
            list[(*count)++] = (property){wanted, json_is_object(more) ? more : NULL, false};
        }
        list[k].required = true;
    }
    return BY_OK;
}

static by_status list_properties(const by__constraint_schema_parser *p, const json_t *schema,
                                 const char *place, property *list, size_t *count)
{
    json_t *properties = json_object_get(schema, "properties");
    by__name_table names = {0};
    by_status status = BY_OK;
    const char *name;
    json_t *value;
    json_object_foreach(properties, name, value)
    {
        if (status == BY_OK) {
            status = by__name_table_add(&names, name, (int32_t)*count, p->error);
        }
        list[(*count)++] = (property){name, value, false};
    }
    if (status == BY_OK) {
        status = list_required(p, schema, place, list, count, &names);
    }
    by__name_table_free(&names);
    return status;
}

static by_status object_of(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                           int depth, const by__constraint_expression **out)
{
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *required = json_object_get(schema, "required");
    const json_t *more = json_object_get(schema, "additionalProperties");
    const by__constraint_expression *members = NULL;
    property *list = NULL;
    size_t count = 0;
    if ((properties != NULL && !json_is_object(properties)) ||
        (required != NULL && !json_is_array(required)) ||
        (more != NULL && !json_is_boolean(more) && !json_is_object(more))) {
        return by__constraint_schema_refuse(p, place,
                                            "properties must be an object, required a list, "
                                            "additionalProperties true, false or a schema");
    }
    size_t most = json_object_size(properties) + json_array_size(required);
    if (most > BY__MAX_REPEAT) {
        return by__constraint_schema_refuse(p, place, "an object has over %d properties",
                                            BY__MAX_REPEAT);
    }
    if (most == 0 && !json_is_false(more)) {
        char below[120];
        if (!json_is_object(more)) {
            *out = by__constraint_schema_shared(p, BY__RULE_OBJECT);
            return BY_OK;
        }
        (void)snprintf(below, sizeof below, "%s/additionalProperties", place);
        BY_TRY(call_schema(p, more, below, &members));
        members = BY__CHAIN(p, by__constraint_schema_shared(p, BY__RULE_STRING),
                            by__constraint_schema_text(p, ":"),
                            by__constraint_schema_shared(p, BY__RULE_SPACE), members);
        *out = by__constraint_schema_list(p, "{", members, 0, BY__UNBOUNDED, "}");
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&list, most + 1, sizeof *list, "a schema", p->error));
    by_status status = list_properties(p, schema, place, list, &count);
    if (status == BY_OK) {
        status = members_of(p, list, count, place, depth, &members);
    }
    free(list);
    *out = BY__CHAIN(p, by__constraint_schema_text(p, "{"),
                     by__constraint_schema_shared(p, BY__RULE_SPACE), members,
                     by__constraint_schema_shared(p, BY__RULE_SPACE),
                     by__constraint_schema_text(p, "}"));
    return status;
}

static by_status array_of(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                          const by__constraint_expression **out)
{
    const json_t *items = json_object_get(schema, "items");
    const by__constraint_expression *item = NULL;
    char below[120];
    uint32_t least;
    uint32_t most;
    BY_TRY(by__constraint_schema_count(p, schema, "minItems", place, 0, &least));
    BY_TRY(by__constraint_schema_count(p, schema, "maxItems", place, BY__UNBOUNDED, &most));
    if (least > most) {
        return by__constraint_schema_refuse(p, place, "minItems %u is over maxItems %u", least,
                                            most);
    }
    (void)snprintf(below, sizeof below, "%s/items", place);
    if (items == NULL) {
        item = by__constraint_schema_shared(p, BY__RULE_VALUE);
    } else {
        BY_TRY(call_schema(p, items, below, &item));
    }
    *out = by__constraint_schema_list(p, "[", item, least, most, "]");
    return BY_OK;
}

/* ---- schemas ---- */

static unsigned type_of_name(const char *name)
{
    for (size_t i = 0; name != NULL && i < BY_ARRAY_LENGTH(type_names); i++) {
        if (strcmp(name, type_names[i].name) == 0) {
            return type_names[i].type;
        }
    }
    return 0;
}

static unsigned type_of_value(const json_t *value)
{
    const char *spelled = by__json_spelled(value);
    if (spelled != NULL) {
        return TYPE_NUMBER | (strpbrk(spelled, ".eE") == NULL ? TYPE_INTEGER : 0);
    }
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return TYPE_OBJECT;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_INTEGER:
        return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL:
        return TYPE_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    default:
        return TYPE_NULL;
    }
}

/* Returns the types that a schema allows: those stated, or those that its keywords apply to; 0:
 * any. Unknown keywords are refused. */
static by_status read_types(const by__constraint_schema_parser *p, const json_t *schema,
                            const char *place, unsigned *types)
{
    json_t *type = json_object_get(schema, "type");
    unsigned implied = 0;
    const char *key;
    json_t *value;
    *types = 0;
    json_object_foreach((json_t *)schema, key, value)
    {
        size_t i = 0;
        while (i < BY_ARRAY_LENGTH(keywords) && strcmp(keywords[i].name, key) != 0) {
            i++;
        }
        if (i == BY_ARRAY_LENGTH(keywords)) {
            return by__constraint_schema_refuse(p, place, "the keyword \"%s\" is not supported",
                                                key);
        }
        implied |= keywords[i].type;
    }
    for (size_t i = 0; i < (json_is_array(type) ? json_array_size(type) : type != NULL); i++) {
        const char *name = json_string_value(json_is_array(type) ? json_array_get(type, i) : type);
        unsigned bit = type_of_name(name);
        if (bit == 0) {
            return by__constraint_schema_refuse(
                p, place,
                "type \"%s\" is none of object, array, string, number, "
                "integer, boolean, null",
                name == NULL ? "" : name);
        }
        *types |= bit;
    }
    *types = type == NULL ? implied : *types;
    return type != NULL && *types == 0
               ? by__constraint_schema_refuse(p, place, "type is an empty list")
               : BY_OK;
}

static by_status literal(by__constraint_schema_parser *p, const json_t *value,
                         const by__constraint_expression **out)
{
    char *text = by__json_dump(value, JSON_COMPACT);
    if (text == NULL) {
        return by_error_set(p->error, BY_EMEMORY, "out of memory: a schema");
    }
    *out = by__constraint_schema_text(p, text);
    free(text);
    return BY_OK;
}

static by_status enum_of(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                         unsigned types, const by__constraint_expression **out)
{
    const json_t *one = json_object_get(schema, "const");
    const json_t *list = json_object_get(schema, "enum");
    if (list != NULL && !json_is_array(list)) {
        return by__constraint_schema_refuse(p, place, "enum must be a list");
    }
    for (size_t i = 0; i < (one != NULL ? 1 : json_array_size(list)); i++) {
        const json_t *value = one != NULL ? one : json_array_get(list, i);
        const by__constraint_expression *e = NULL;
        if (types == 0 || (type_of_value(value) & types) != 0) {
            BY_TRY(literal(p, value, &e));
            *out = by__constraint_expr_either(p->language, *out, e);
        }
    }
    return BY_OK;
}

/* Finds the schema that a JSON pointer (RFC 6901) refers to within this document. */
static by_status find_reference(const by__constraint_schema_parser *p, const json_t *ref,
                                const char *place, const json_t **out)
{
    const char *at = json_string_value(ref);
    const json_t *found = p->root;
    if (at == NULL || at[0] != '#') {
        return by__constraint_schema_refuse(
            p, place, "$ref must be \"#\" or a path within the schema, \"#/$defs/...\"");
    }
    at++;
    while (*at == '/' && found != NULL) {
        char name[256];
        size_t n = 0;
        for (at++; *at != '\0' && *at != '/' && n + 1 < sizeof name; at++) {
            bool escape = at[0] == '~' && (at[1] == '0' || at[1] == '1');
            name[n++] = escape ? (at[1] == '0' ? '~' : '/') : *at;
            at += escape ? 1 : 0;
        }
        name[n] = '\0';
        found = json_is_array(found) ? json_array_get(found, strtoul(name, NULL, 10))
                                     : json_object_get(found, name);
    }
    if (found == NULL || *at != '\0') {
        return by__constraint_schema_refuse(p, place, "$ref \"%s\" leads nowhere",
                                            json_string_value(ref));
    }
    *out = found;
    return BY_OK;
}

/* Keywords that replace a whole schema must not be combined with others that narrow it. */
static by_status check_alone(const by__constraint_schema_parser *p, const json_t *schema,
                             const char *key, const char *place, unsigned types)
{
    static const char *const whole[] = {"$ref", "anyOf", "allOf", "enum", "const"};
    bool mixed = types != 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(whole); i++) {
        mixed = mixed || (strcmp(whole[i], key) != 0 && json_object_get(schema, whole[i]) != NULL);
    }
    return mixed ? by__constraint_schema_refuse(
                       p, place,
                       "%s cannot be combined with other keywords; put them into the "
                       "schemas that it names",
                       key)
                 : BY_OK;
}

/* Listed values are checked only against the type, not against other keywords. */
static by_status check_values_alone(const by__constraint_schema_parser *p, const json_t *schema,
                                    const char *place)
{
    bool mixed =
        json_object_get(schema, "enum") != NULL && json_object_get(schema, "const") != NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(keywords); i++) {
        mixed =
            mixed || (keywords[i].type != 0 && json_object_get(schema, keywords[i].name) != NULL);
    }
    return mixed ? by__constraint_schema_refuse(p, place,
                                                "enum and const can be combined with type alone")
                 : BY_OK;
}

static by_status any_of(by__constraint_schema_parser *p, const json_t *list, const char *place,
                        int depth, const by__constraint_expression **out)
{
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return by__constraint_schema_refuse(p, place, "anyOf must be a list of schemas");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char below[120];
        const by__constraint_expression *e = NULL;
        (void)snprintf(below, sizeof below, "%s/anyOf/%zu", place, i);
        BY_TRY(value_of(p, json_array_get(list, i), below, depth + 1, &e));
        *out = by__constraint_expr_either(p->language, *out, e);
    }
    return BY_OK;
}

/* Accepts a single schema, as generators use it to attach a description to a reference. */
static by_status all_of(by__constraint_schema_parser *p, const json_t *list, const char *place,
                        int depth, const by__constraint_expression **out)
{
    char below[120];
    if (!json_is_array(list) || json_array_size(list) != 1) {
        return by__constraint_schema_refuse(
            p, place,
            "allOf must be a list of one schema; write what several say as "
            "one");
    }
    (void)snprintf(below, sizeof below, "%s/allOf/0", place);
    return value_of(p, json_array_get(list, 0), below, depth + 1, out);
}

static by_status one_type(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                          int depth, unsigned type, const by__constraint_expression **out)
{
    switch (type) {
    case TYPE_OBJECT:
        return object_of(p, schema, place, depth, out);
    case TYPE_ARRAY:
        return array_of(p, schema, place, out);
    case TYPE_STRING:
        return by__constraint_schema_string(p, schema, place, out);
    case TYPE_NUMBER:
    case TYPE_INTEGER:
        return by__constraint_schema_number(p, schema, place, type == TYPE_INTEGER, out);
    default:
        *out =
            by__constraint_schema_pattern(p, type == TYPE_NULL ? "null" : "true|false", BY__PLAIN);
        return BY_OK;
    }
}

/* Parses a schema into an expression. */
static by_status parse_schema(by__constraint_schema_parser *p, const json_t *schema,
                              const char *place, int depth, const by__constraint_expression **out)
{
    const json_t *ref = json_object_get(schema, "$ref");
    const json_t *any = json_object_get(schema, "anyOf");
    const json_t *all = json_object_get(schema, "allOf");
    const json_t *target = NULL;
    unsigned types;
    *out = NULL;
    if (json_is_true(schema)) {
        *out = by__constraint_schema_shared(p, BY__RULE_VALUE);
        return BY_OK;
    }
    if (json_is_false(schema)) {
        return BY_OK;
    }
    if (!json_is_object(schema)) {
        return by__constraint_schema_refuse(p, place, "a schema must be an object, true or false");
    }
    if (depth > BY__MAX_NESTING) {
        return by__constraint_schema_refuse(p, place, "schemas are nested over %d deep",
                                            BY__MAX_NESTING);
    }
    BY_TRY(read_types(p, schema, place, &types));
    if (ref != NULL) {
        BY_TRY(check_alone(p, schema, "$ref", place, types));
        BY_TRY(find_reference(p, ref, place, &target));
        return call_schema(p, target, json_string_value(ref), out);
    }
    if (any != NULL) {
        BY_TRY(check_alone(p, schema, "anyOf", place, types));
        return any_of(p, any, place, depth, out);
    }
    if (all != NULL) {
        BY_TRY(check_alone(p, schema, "allOf", place, types));
        return all_of(p, all, place, depth, out);
    }
    if (json_object_get(schema, "enum") != NULL || json_object_get(schema, "const") != NULL) {
        BY_TRY(check_values_alone(p, schema, place));
        return enum_of(p, schema, place, types, out);
    }
    if (types == 0) {
        *out = by__constraint_schema_shared(p, BY__RULE_VALUE);
    }
    types &= (types & TYPE_NUMBER) != 0 ? ~(unsigned)TYPE_INTEGER : ~0u;
    for (unsigned bit = 1; bit <= TYPE_NULL; bit <<= 1) {
        const by__constraint_expression *e = NULL;
        if ((types & bit) != 0) {
            BY_TRY(one_type(p, schema, place, depth, bit, &e));
            *out = by__constraint_expr_either(p->language, *out, e);
        }
    }
    return by__constraint_language_status(p->language, p->error);
}

/* Gives objects and arrays their own rules, so that alternatives with a common prefix are followed
 * in parallel instead of being multiplied. */
static by_status value_of(by__constraint_schema_parser *p, const json_t *schema, const char *place,
                          int depth, const by__constraint_expression **out)
{
    bool nests =
        json_object_get(schema, "properties") != NULL || json_object_get(schema, "items") != NULL;
    return nests ? call_schema(p, schema, place, out) : parse_schema(p, schema, place, depth, out);
}

static void set_up(by__constraint_schema_parser *p)
{
    for (int i = 0; i < BY__SHARED_RULES; i++) {
        p->shared[i] = BY__UNBOUNDED;
    }
}

by_status by__constraint_schema_parse(uint32_t *root, by__constraint_language *language,
                                      const char *text, size_t length, by_error *error)
{
    json_error_t where;
    json_t *schema = by_json_load(
        text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    const by__constraint_expression *call = NULL;
    by__constraint_schema_parser p = {.language = language, .root = schema, .error = error};
    if (schema == NULL) {
        return by_error_set(error, BY_EARG, "schema, line %d, column %d: %s", where.line,
                            where.column, where.text);
    }
    set_up(&p);
    by_status status = call_schema(&p, schema, "#", &call);
    for (size_t i = 0; i < p.count && status == BY_OK; i++) {
        const by__constraint_expression *e = NULL;
        by__constraint_pending_schema item = p.list[i];
        status = parse_schema(&p, item.schema, item.place, 0, &e);
        by__constraint_language_define(language, item.rule, e);
    }
    if (status == BY_OK) {
        *root = p.list[0].rule;
        status = by__constraint_language_status(language, error);
    }
    free(p.list);
    by__base_table_free(&p.table);
    json_decref(schema);
    return status;
}

by_status by__constraint_schema_any(uint32_t *root, by__constraint_language *language, bool object,
                                    by_error *error)
{
    by__constraint_schema_parser p = {.language = language, .error = error};
    set_up(&p);
    const by__constraint_expression *call =
        by__constraint_schema_shared(&p, object ? BY__RULE_OBJECT : BY__RULE_VALUE);
    BY_TRY(by__constraint_language_status(language, error));
    *root = call->first;
    return BY_OK;
}
