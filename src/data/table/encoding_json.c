/* Encodings of tables as JSON, the format stored in checkpoints. */
#include <string.h>

#include "base/json.h"
#include "data/table/encoding.h"

static void print_feature(by_string *text, const by__table_encoded *f)
{
    char number[32];
    by__string_append(text, "{\"name\": ");
    by_string_json(text, f->name, strlen(f->name));
    if (!f->is_category) {
        by__format_f64(number, f->mean);
        by_string_format(text, ", \"mean\": %s", number);
        by__format_f64(number, f->deviation);
        by_string_format(text, ", \"deviation\": %s", number);
        if (f->time.unit != BY_UNIT_NONE) {
            by_string_format(text, ", \"time\": \"%s\"", by__table_time_print(number, f->time));
        }
        by__string_append(text, f->is_truth ? ", \"truth\": true}" : "}");
        return;
    }
    by__string_append(text, ", \"values\": [");
    for (size_t i = 0; i < f->count; i++) {
        by__string_append(text, i == 0 ? "" : ", ");
        by_string_json(text, f->values[i], strlen(f->values[i]));
    }
    by__string_append(text, "]}");
}

static void print_features(by_string *text, const char *key, const by__table_encoded *features,
                           size_t count)
{
    by_string_format(text, "  \"%s\": [", key);
    for (size_t i = 0; i < count; i++) {
        by__string_append(text, i == 0 ? "\n    " : ",\n    ");
        print_feature(text, &features[i]);
    }
    by__string_append(text, count == 0 ? "]" : "\n  ]");
}

by_status by_encoding_print(const by_encoding *encoding, char **out, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "{\n  \"format\": 1,\n");
    if (encoding->text != NULL) {
        by__string_append(&text, "  \"text\": ");
        by_string_json(&text, encoding->text, strlen(encoding->text));
        by__string_append(&text, ",\n");
    }
    if (encoding->pair != NULL) {
        by__string_append(&text, "  \"pair\": ");
        by_string_json(&text, encoding->pair, strlen(encoding->pair));
        by__string_append(&text, ",\n");
    }
    print_features(&text, "numbers", encoding->numbers, encoding->number_count);
    by__string_append(&text, ",\n");
    print_features(&text, "categories", encoding->categories, encoding->category_count);
    if (encoding->target_count == 1) {
        by__string_append(&text, ",\n  \"target\": ");
        print_feature(&text, &encoding->targets[0]);
    } else if (encoding->target_count > 1) {
        by__string_append(&text, ",\n");
        print_features(&text, "targets", encoding->targets, encoding->target_count);
    }
    by__string_append(&text, "\n}\n");
    return by__string_release(&text, out, error);
}

static by_status bad_json(const char *name, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: %s", name, what);
}

static by_status parse_values(by__table_encoded *f, const json_t *values, const char *name,
                              by_error *error)
{
    size_t count = json_array_size(values);
    f->is_category = true;
    BY_TRY(by__alloc((void **)&f->values, count + 1, sizeof *f->values, "values", error));
    for (size_t i = 0; i < count; i++) {
        const char *value = json_string_value(json_array_get(values, i));
        if (value == NULL || (i > 0 && strcmp(f->values[i - 1], value) >= 0)) {
            return bad_json(name, "values are not sorted strings, each once", error);
        }
        BY_TRY(by__table_encoding_copy(&f->values[i], value, error));
        f->count++;
    }
    return by__table_encoded_index(f, error);
}

static by_status parse_feature(by__table_encoded *f, const json_t *json, const char *name,
                               by_error *error)
{
    const json_t *values = json_object_get(json, "values");
    const json_t *mean = json_object_get(json, "mean");
    const json_t *deviation = json_object_get(json, "deviation");
    const json_t *time = json_object_get(json, "time");
    const json_t *truth = json_object_get(json, "truth");
    const char *column = json_string_value(json_object_get(json, "name"));
    if (column == NULL) {
        return bad_json(name, "a column has no name", error);
    }
    BY_TRY(by__table_encoding_copy(&f->name, column, error));
    if (json_is_array(values) && json_object_size(json) == 2) {
        return parse_values(f, values, name, error);
    }
    if (!json_is_number(mean) || !json_is_number(deviation) ||
        json_object_size(json) != 3u + (time != NULL) + (truth != NULL)) {
        return bad_json(name, "a column has neither values nor mean and deviation", error);
    }
    if (time != NULL &&
        (!json_is_string(time) || !by__table_time_parse(&f->time, json_string_value(time)))) {
        return bad_json(name, "the unit of a time is not known", error);
    }
    f->is_truth = json_is_true(truth);
    f->mean = json_number_value(mean);
    f->deviation = json_number_value(deviation);
    return f->deviation > 0.0 ? BY_OK : bad_json(name, "a deviation is not more than 0", error);
}

static by_status parse_features(by__table_encoded *features, size_t *count, const json_t *json,
                                bool categories, const char *name, by_error *error)
{
    for (size_t i = 0; i < json_array_size(json); i++) {
        by__table_encoded *f = &features[(*count)++];
        BY_TRY(parse_feature(f, json_array_get(json, i), name, error));
        if (f->is_category != categories) {
            return bad_json(name, "a column is of the other kind", error);
        }
    }
    return BY_OK;
}

/* Reads "target", or "targets" where there are several numbers. */
static by_status parse_targets(by_encoding *e, const json_t *target, const json_t *targets,
                               const char *name, by_error *error)
{
    if (target == NULL) {
        return parse_features(e->targets, &e->target_count, targets, false, name, error);
    }
    e->target_count = 1;
    BY_TRY(parse_feature(&e->targets[0], target, name, error));
    return !e->targets[0].is_category || e->targets[0].count > 0
               ? BY_OK
               : bad_json(name, "the target has no classes", error);
}

static by_status parse_root(by_encoding **out, const json_t *root, const char *name,
                            by_error *error)
{
    const json_t *numbers = json_object_get(root, "numbers");
    const json_t *categories = json_object_get(root, "categories");
    const json_t *target = json_object_get(root, "target");
    const json_t *targets = json_object_get(root, "targets");
    const json_t *text = json_object_get(root, "text");
    const json_t *pair = json_object_get(root, "pair");
    by_encoding *e;
    if (json_integer_value(json_object_get(root, "format")) != 1 || !json_is_array(numbers) ||
        !json_is_array(categories) ||
        json_object_size(root) !=
            3u + (target != NULL) + (targets != NULL) + (text != NULL) + (pair != NULL) ||
        (text != NULL && !json_is_string(text)) ||
        (pair != NULL && (text == NULL || !json_is_string(pair))) ||
        (targets != NULL && (target != NULL || json_array_size(targets) < 2))) {
        return bad_json(name, "not an encoding of format 1: numbers, categories, target or targets",
                        error);
    }
    if ((json_array_size(numbers) + json_array_size(categories) == 0) != (text != NULL)) {
        return bad_json(name, "the encoding needs columns, or a text instead of them", error);
    }
    BY_TRY(by__table_encoding_allocate(&e, json_array_size(numbers), json_array_size(categories),
                                       1 + json_array_size(targets), error));
    by_status status = parse_features(e->numbers, &e->number_count, numbers, false, name, error);
    if (status == BY_OK) {
        status = parse_features(e->categories, &e->category_count, categories, true, name, error);
    }
    if (status == BY_OK) {
        status = parse_targets(e, target, targets, name, error);
    }
    if (status == BY_OK && text != NULL) {
        status = by__table_encoding_copy(&e->text, json_string_value(text), error);
    }
    if (status == BY_OK && pair != NULL) {
        status = by__table_encoding_copy(&e->pair, json_string_value(pair), error);
    }
    if (status != BY_OK) {
        by_encoding_close(&e);
        return status;
    }
    *out = e;
    return BY_OK;
}

by_status by_encoding_parse(by_encoding **out, const char *name, const char *text, size_t length,
                            by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = parse_root(out, root, name, error);
    json_decref(root);
    return status;
}
