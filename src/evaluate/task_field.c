/* The texts that a task makes of a row, by the rules of lm-evaluation-harness
 * (lm_eval/api/task.py, ConfigurableTask.doc_to_text, doc_to_target and doc_to_choice). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "evaluate/evaluate.h"
#include "evaluate/python_literal.h"

static by_status open_template(by__evaluate_field *out, const char *text, const char *where,
                               by_error *error)
{
    BY_TRY(by__template_parse_text(&out->tpl, text, strlen(text), where, error));
    out->source = BY__EVALUATE_TEMPLATE;
    return BY_OK;
}

by_status by__evaluate_field_open(by__evaluate_field *out, const json_t *value,
                                  const json_t *columns, const char *where, by_error *error)
{
    const char *tag = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)value));
    const char *text = by__json_string(value);
    if (value == NULL || json_is_null(value)) {
        return BY_OK;
    }
    if (tag != NULL && tag[0] == '!') {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %s %.60s needs Python; write it as a template of fields: "
                            "\"{{question}}\"",
                            where, tag, json_string_value(json_object_get(value, tag)));
    }
    if (text != NULL && json_object_get(columns, text) != NULL) {
        out->source = BY__EVALUATE_COLUMN;
        out->text = by__strdup(text);
        return out->text == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: %s", where)
                                 : BY_OK;
    }
    if (text != NULL) {
        return open_template(out, text, where, error);
    }
    if (json_is_object(value)) { /* names with values: only the values matter */
        json_t *list = json_array();
        const char *name;
        json_t *item;
        json_object_foreach((json_t *)(uintptr_t)value, name, item)
        {
            (void)json_array_append(list, item);
        }
        out->value = list;
    } else {
        out->value = json_incref((json_t *)(uintptr_t)value);
    }
    out->source = BY__EVALUATE_CONSTANT;
    return BY_OK;
}

void by__evaluate_field_close(by__evaluate_field *field)
{
    if (field->source == BY__EVALUATE_TEMPLATE) {
        by__template_free(&field->tpl);
    }
    free(field->text);
    json_decref(field->value);
    *field = (by__evaluate_field){0};
}

static bool is_digits(const char *text, size_t length)
{
    return length > 0 && length < 18 && strspn(text, "0123456789") == length;
}

static by_status render(json_t **out, const by__evaluate_field *field, const json_t *row,
                        bool numbers, bool lists, by_error *error)
{
    char *text;
    size_t length;
    json_t *value = NULL;
    BY_TRY(by__template_render_json(&field->tpl, row, &text, &length, error));
    if (numbers && is_digits(text, length)) {
        value = json_integer(strtoll(text, NULL, 10));
    } else if (lists && length >= 2 && (text[0] == '[' || text[0] == '(')) {
        value = by__evaluate_python_list(text, length);
    }
    value = value == NULL ? json_stringn_nocheck(text, length) : value;
    free(text);
    *out = value;
    return value == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a text") : BY_OK;
}

by_status by__evaluate_field_value(json_t **out, const by__evaluate_field *field, const json_t *row,
                                   bool numbers, bool lists, by_error *error)
{
    json_t *value;
    switch (field->source) {
    case BY__EVALUATE_TEMPLATE:
        return render(out, field, row, numbers, lists, error);
    case BY__EVALUATE_COLUMN:
        value = json_object_get(row, field->text);
        if (value == NULL) {
            return by_error_set(error, BY_EFORMAT, "a row has no column '%s'", field->text);
        }
        break;
    case BY__EVALUATE_CONSTANT:
        value = field->value;
        break;
    default:
        *out = json_string("");
        return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a text") : BY_OK;
    }
    *out = json_incref(value);
    return BY_OK;
}

void by__evaluate_text_add(by_string *out, const json_t *value)
{
    if (json_is_string(value)) {
        by_string_add(out, json_string_value(value), json_string_length(value));
    } else if (json_is_boolean(value)) {
        by__string_append(out, json_is_true(value) ? "True" : "False");
    } else if (json_is_null(value)) {
        by__string_append(out, "None");
    } else {
        by__json_write(out, value, JSON_COMPACT | JSON_ENCODE_ANY);
    }
}
