#include "evaluate/suite_yaml.h"

#include <stdlib.h>
#include <string.h>

#include <yaml.h>

/* Levels of nesting, and values with the copies that aliases make: more are a mistake or a
 * trick. */
#define MAX_DEPTH  64
#define MAX_VALUES 1000000u

typedef struct yaml_document {
    yaml_document_t *document;
    const char *name;
    size_t values;
    by_error *error;
} yaml_document;

static by_status fail(const yaml_document *d, const yaml_node_t *node, const char *what)
{
    return by_error_set(d->error, BY_EFORMAT, "%s:%zu: %s", d->name, node->start_mark.line + 1,
                        what);
}

static by_status fail_memory(const yaml_document *d)
{
    return by_error_set(d->error, BY_EMEMORY, "out of memory: %s", d->name);
}

static bool is_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a plain scalar is a decimal number, with a point or an exponent if `real`. */
static bool is_number(const char *s, bool *real)
{
    size_t digits = 0;
    *real = false;
    s += *s == '-' || *s == '+';
    for (; (*s >= '0' && *s <= '9') || (*s == '.' && !*real); s++) {
        *real = *real || *s == '.';
        digits += *s != '.';
    }
    if (digits > 0 && (*s == 'e' || *s == 'E')) {
        *real = true;
        s++;
        s += *s == '-' || *s == '+';
        digits = strspn(s, "0123456789");
        s += digits;
    }
    return digits > 0 && *s == '\0';
}

/* The value of a scalar without quotes, by the rules of YAML 1.1. */
static json_t *plain_value(const char *text)
{
    static const char *const truths[] = {"yes",  "Yes", "YES", "true", "True",
                                         "TRUE", "on",  "On",  "ON"};
    static const char *const untruths[] = {"no",    "No",  "NO",  "false", "False",
                                           "FALSE", "off", "Off", "OFF"};
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    bool real;
    double value;
    if (is_one_of(text, truths, BY_ARRAY_LENGTH(truths))) {
        return json_true();
    }
    if (is_one_of(text, untruths, BY_ARRAY_LENGTH(untruths))) {
        return json_false();
    }
    if (is_one_of(text, nulls, BY_ARRAY_LENGTH(nulls))) {
        return json_null();
    }
    if (is_number(text, &real) && by__parse_f64(text, &value) && value - value == 0.0) {
        return !real && strlen(text) < 18 ? json_integer(strtoll(text, NULL, 10))
                                          : json_real(value);
    }
    return json_string(text);
}

static by_status scalar_value(yaml_document *d, const yaml_node_t *node, json_t **out)
{
    const char *text = (const char *)node->data.scalar.value;
    if (strlen(text) != node->data.scalar.length) {
        return fail(d, node, "a text has a NUL in it");
    }
    *out =
        node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_value(text) : json_string(text);
    return *out == NULL ? fail_memory(d) : BY_OK;
}

static by_status value_of(yaml_document *d, int index, unsigned depth, json_t **out);

static by_status list_value(yaml_document *d, const yaml_node_t *node, unsigned depth, json_t **out)
{
    by_status status = BY_OK;
    json_t *list = json_array();
    const yaml_node_item_t *item = node->data.sequence.items.start;
    for (; item < node->data.sequence.items.top && status == BY_OK; item++) {
        json_t *value = NULL;
        status = value_of(d, *item, depth, &value);
        if (status == BY_OK && json_array_append_new(list, value) != 0) {
            status = fail_memory(d);
        }
    }
    if (status != BY_OK) {
        json_decref(list);
        return status;
    }
    *out = list;
    return BY_OK;
}

static by_status add_pair(yaml_document *d, const yaml_node_pair_t *pair, unsigned depth,
                          json_t *map)
{
    const yaml_node_t *key = yaml_document_get_node(d->document, pair->key);
    json_t *value = NULL;
    if (key->type != YAML_SCALAR_NODE) {
        return fail(d, key, "a key must be a text");
    }
    const char *name = (const char *)key->data.scalar.value;
    if (strlen(name) != key->data.scalar.length) {
        return fail(d, key, "a key has a NUL in it");
    }
    if (json_object_get(map, name) != NULL) {
        return fail(d, key, "a key is given twice");
    }
    BY_TRY(value_of(d, pair->value, depth, &value));
    return json_object_set_new(map, name, value) == 0 ? BY_OK : fail_memory(d);
}

/* The key << without quotes stands for the keys of other mappings. */
static bool is_merge(const yaml_document *d, const yaml_node_pair_t *pair)
{
    const yaml_node_t *key = yaml_document_get_node(d->document, pair->key);
    return key->type == YAML_SCALAR_NODE && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)key->data.scalar.value, "<<") == 0;
}

/* Puts the keys of the value of << into a mapping: of a list of mappings the first one that has a
 * key says what it is. */
static by_status merge(yaml_document *d, const yaml_node_pair_t *pair, unsigned depth, json_t *map)
{
    const yaml_node_t *key = yaml_document_get_node(d->document, pair->key);
    json_t *value = NULL;
    BY_TRY(value_of(d, pair->value, depth, &value));
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    by_status status = BY_OK;
    for (size_t i = count; i > 0 && status == BY_OK; i--) {
        json_t *from = json_is_array(value) ? json_array_get(value, i - 1) : value;
        if (!json_is_object(from)) {
            status = fail(d, key, "the value of << must be a mapping, or a list of mappings");
        } else if (json_object_update(map, from) != 0) {
            status = fail_memory(d);
        }
    }
    json_decref(value);
    return status;
}

/* Keys of the mapping itself have the last word, wherever they stand, and come after those of other
 * mappings, as in PyYAML. */
static by_status map_value(yaml_document *d, const yaml_node_t *node, unsigned depth, json_t **out)
{
    by_status status = BY_OK;
    json_t *map = json_object();
    json_t *own = json_object();
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    for (; pair < node->data.mapping.pairs.top && status == BY_OK; pair++) {
        status = is_merge(d, pair) ? merge(d, pair, depth, map) : add_pair(d, pair, depth, own);
    }
    if (status == BY_OK && json_object_update(map, own) != 0) {
        status = fail_memory(d);
    }
    json_decref(own);
    if (status != BY_OK) {
        json_decref(map);
        return status;
    }
    *out = map;
    return BY_OK;
}

/* A value whose tag only a program can follow stays recognizable. */
static by_status tag_value(yaml_document *d, const yaml_node_t *node, json_t **out)
{
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
    *out = json_pack("{s:s}", (const char *)node->tag, text);
    return *out == NULL ? fail(d, node, "a tag is not text") : BY_OK;
}

static by_status value_of(yaml_document *d, int index, unsigned depth, json_t **out)
{
    const yaml_node_t *node = yaml_document_get_node(d->document, index);
    if (node == NULL) {
        return by_error_set(d->error, BY_EFORMAT, "%s: a value is missing", d->name);
    }
    if (depth > MAX_DEPTH || ++d->values > MAX_VALUES) {
        return fail(d, node, "values are nested too deeply, or aliases make too many of them");
    }
    if (node->tag != NULL && node->tag[0] == '!') {
        return tag_value(d, node, out);
    }
    switch (node->type) {
    case YAML_SCALAR_NODE:
        return scalar_value(d, node, out);
    case YAML_SEQUENCE_NODE:
        return list_value(d, node, depth + 1, out);
    case YAML_MAPPING_NODE:
        return map_value(d, node, depth + 1, out);
    default:
        return fail(d, node, "a value is missing");
    }
}

by_status by__evaluate_yaml(json_t **out, const char *name, const char *text, size_t length,
                            by_error *error)
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (yaml_parser_initialize(&parser) == 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: %s", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (yaml_parser_load(&parser, &document) == 0) {
        by_status status = parser.error == YAML_MEMORY_ERROR ? BY_EMEMORY : BY_EFORMAT;
        status =
            by_error_set(error, status, "%s:%zu: not YAML: %s", name, parser.problem_mark.line + 1,
                         parser.problem == NULL ? "out of memory" : parser.problem);
        yaml_parser_delete(&parser);
        return status;
    }
    yaml_document d = {.document = &document, .name = name, .error = error};
    by_status status = yaml_document_get_root_node(&document) == NULL
                           ? by_error_set(error, BY_EFORMAT, "%s: an empty file", name)
                           : value_of(&d, 1, 0, out);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}
