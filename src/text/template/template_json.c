/* JSON as the values of templates, and templates of texts with the fields of a JSON object. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "text/template/template.h"

#define MIB ((size_t)1 << 20)
/* What a rendering may do: a prompt of fields is small, however large the object is. */
#define MAX_STEPS  1000000u
#define MAX_MEMORY (64 * MIB)
#define MAX_OUTPUT (8 * MIB)

static by_status convert_object(by__template_render *r, const json_t *json, by__template_value *out)
{
    const char *key;
    json_t *item;
    size_t count = json_object_size(json);
    const char *spelled = by__json_spelled(json);
    if (spelled != NULL) {
        BY_TRY(by__template_value_copy_string(r, spelled, strlen(spelled), out));
        out->kind = BY__SPELLED;
        return BY_OK;
    }
    BY_TRY(by__template_value_map(r, out));
    BY_TRY(by__template_render_allocate(r, (void **)&out->as.table->pairs, count,
                                        sizeof(by__template_pair)));
    out->as.table->capacity = count;
    json_object_foreach((json_t *)(uintptr_t)json, key, item)
    {
        by__template_pair *pair = &out->as.table->pairs[out->as.table->count];
        BY_TRY(by__template_value_copy_string(r, key, strlen(key), &pair->key));
        BY_TRY(by__template_value_of_json(r, item, &pair->value));
        out->as.table->count++;
    }
    return BY_OK;
}

static by_status convert_inner(by__template_render *r, const json_t *json, by__template_value *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return convert_object(r, json, out);
    case JSON_ARRAY:
        BY_TRY(by__template_value_list(r, json_array_size(json), false, out));
        for (size_t i = 0; i < out->as.list->count; i++) {
            BY_TRY(by__template_value_of_json(r, json_array_get(json, i), &out->as.list->items[i]));
        }
        return BY_OK;
    case JSON_STRING:
        return by__template_value_copy_string(r, json_string_value(json), json_string_length(json),
                                              out);
    case JSON_INTEGER:
        *out = by__template_value_integer(json_integer_value(json));
        return BY_OK;
    case JSON_REAL:
        *out = (by__template_value){.kind = BY__REAL, .as.real = json_real_value(json)};
        return BY_OK;
    case JSON_NULL:
        *out = by__template_value_none();
        return BY_OK;
    default:
        *out = by__template_value_bool(json_is_true(json));
        return BY_OK;
    }
}

by_status by__template_value_of_json(by__template_render *r, const json_t *json,
                                     by__template_value *out)
{
    BY_TRY(by__template_render_enter(r));
    BY_TRY(convert_inner(r, json, out));
    r->depth--;
    return BY_OK;
}

/* Makes a value of each member that the template names: others, which may be long, cost nothing. */
static by_status set_variables(by__template_render *r, const json_t *variables)
{
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)variables, name, item)
    {
        if (strstr(r->tpl->source, name) == NULL) {
            continue;
        }
        by__template_value key;
        by__template_value value;
        BY_TRY(by__template_value_copy_string(r, name, strlen(name), &key));
        BY_TRY(by__template_value_of_json(r, item, &value));
        BY_TRY(by__template_table_put(r, &r->scope->variables, &key, &value));
    }
    return BY_OK;
}

by_status by__template_render_json(const by__template *tpl, const json_t *variables, char **out,
                                   size_t *length, by_error *error)
{
    by_string text = {0};
    by__template_scope globals = {0};
    by__template_render r = {.tpl = tpl,
                             .steps = MAX_STEPS,
                             .output = MAX_OUTPUT,
                             .out = &text,
                             .scope = &globals,
                             .now = (int64_t)time(NULL),
                             .error = error};
    r.arena.left = MAX_MEMORY;
    by_status status = set_variables(&r, variables);
    if (status == BY_OK) {
        status = by__template_render_body(&r, tpl->body);
    }
    by__template_arena_free(&r.arena);
    if (status != BY_OK) {
        by_string_free(&text);
        return status;
    }
    by_string_add(&text, "", 0);
    *length = text.length;
    return by__string_release(&text, out, error);
}
