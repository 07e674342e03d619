/* Parts of models that are sections with kinds: what they have in common. A config.json of
 * transformers has no words for most of them, so they are written under a key of our own, and the
 * model type says that the model is another one: a reader that does not know them must not load it
 * as what it would be without them. */
#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

#define OWN_TYPE "custom_"
#define OWN_KEY  "banyan"

typedef struct part_section {
    const char *name;
    const char *usual; /* the kind that is not written */
    size_t offset;     /* of its by_part_config in by_model_config */
    const by__config_kind *(*kind)(size_t index);
    bool published; /* every family's config.json says the kind */
} part_section;

static const part_section sections[] = {
    {"attention", "full", offsetof(by_model_config, attention), by__nn_attention_kind, false},
    {"values", "projected", offsetof(by_model_config, values), by__nn_values_kind, false},
    {"residual", "plain", offsetof(by_model_config, residual), by__nn_residual_kind, false},
    {"position", "auto", offsetof(by_model_config, position), by__nn_position_kind, false},
    {"norm", "auto", offsetof(by_model_config, norm), by__nn_norm_kind, false},
    {"mlp", "auto", offsetof(by_model_config, mlp), by__nn_mlp_kind, false},
    {"activation", "auto", offsetof(by_model_config, activation), by__nn_activation_kind, true},
};

/* clang-format off: one row a key */
static const by__config_key part_key_rows[] = {
    {"attention", "kind", BY__KEY_TEXT, BY__FIELD(model.attention.kind), "full", .later = true,
     .help = "which attention"},
    {"position", "kind", BY__KEY_TEXT, BY__FIELD(model.position.kind), "auto", .later = true,
     .help = "which positions"},
    {"activation", "kind", BY__KEY_TEXT, BY__FIELD(model.activation.kind), "auto", .later = true,
     .help = "which function"},
};
static const by__config_key activation_key_rows[] = {
    {"activation", "kind", BY__KEY_TEXT, BY__FIELD(model.activation.kind), "auto", .later = true,
     .help = "which function"},
};
static const by__config_key norm_key_rows[] = {
    {"norm", "kind", BY__KEY_TEXT, BY__FIELD(model.norm.kind), "auto", .later = true,
     .help = "which norm"},
};
static const by__config_key stream_key_rows[] = {
    {"values", "kind", BY__KEY_TEXT, BY__FIELD(model.values.kind), "projected", .later = true,
     .help = "which values"},
    {"residual", "kind", BY__KEY_TEXT, BY__FIELD(model.residual.kind), "plain", .later = true,
     .help = "which sum"},
};
static const by__config_key mlp_key_rows[] = {
    {"mlp", "kind", BY__KEY_TEXT, BY__FIELD(model.mlp.kind), "auto", .later = true,
     .help = "which layers"},
};
/* clang-format on */
const by__config_key_list by__nn_part_keys = BY__KEY_LIST(part_key_rows);
const by__config_key_list by__nn_activation_keys = BY__KEY_LIST(activation_key_rows);
const by__config_key_list by__nn_norm_keys = BY__KEY_LIST(norm_key_rows);
const by__config_key_list by__nn_stream_keys = BY__KEY_LIST(stream_key_rows);
const by__config_key_list by__nn_mlp_keys = BY__KEY_LIST(mlp_key_rows);

static by_part_config *part_of(const by_model_config *config, const part_section *section)
{
    return (by_part_config *)((uintptr_t)config + section->offset);
}

static const by__config_kind *find_kind(const part_section *section, const char *name)
{
    const by__config_kind *kind;
    for (size_t i = 0; (kind = section->kind(i)) != NULL; i++) {
        if (strcmp(kind->name, name) == 0) {
            return kind;
        }
    }
    return NULL;
}

by_status by__nn_parts_reset(by_model_config *config, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sections); i++) {
        BY_TRY(by__nn_set_string(&part_of(config, &sections[i])->kind, sections[i].usual, error));
    }
    return BY_OK;
}

bool by__nn_layers_differ(char part[64], const by_model_config *config)
{
    bool attention = by__nn_attention_differs(config);
    bool values = by__nn_values_differ(config);
    if (attention || values) {
        (void)snprintf(part, 64, "%s.kind %.40s", attention ? "attention" : "values",
                       attention ? config->attention.kind : config->values.kind);
    }
    return attention || values;
}

/* ---- config.json ---- */

static void *value_at(const by_part_config *part, const by__config_kind *kind,
                      const by__config_key *key)
{
    return (char *)by__config_kind_own(part->own, kind) + key->place.offset;
}

static json_t *value_json(const by__config_key *key, const void *at)
{
    const by_string_list *list = at;
    json_t *array;
    switch (key->type) {
    case BY__KEY_REAL:
        return json_real(*(const double *)at);
    case BY__KEY_TEXTS:
        array = json_array();
        for (size_t i = 0; i < list->count; i++) {
            (void)json_array_append_new(array, json_string(list->items[i]));
        }
        return array;
    default:
        return json_integer(*(const int64_t *)at);
    }
}

/* The keys of a kind, one after another: *list and *row start at 0. NULL: there is no further
 * one. */
static const by__config_key *next_key(const by__config_kind *kind, size_t *list, size_t *row)
{
    while (*list < BY_ARRAY_LENGTH(kind->keys) && kind->keys[*list] != NULL) {
        if (*row < kind->keys[*list]->count) {
            return &kind->keys[*list]->rows[(*row)++];
        }
        *row = 0;
        ++*list;
    }
    return NULL;
}

static json_t *part_json(const by_part_config *part, const by__config_kind *kind)
{
    json_t *out = json_pack("{s:s}", "kind", kind->name);
    const by__config_key *key;
    size_t list = 0;
    size_t row = 0;
    while ((key = next_key(kind, &list, &row)) != NULL) {
        (void)json_object_set_new(out, key->name, value_json(key, value_at(part, kind, key)));
    }
    return out;
}

void by__nn_parts_write(json_t *out, const by_model_config *config,
                        bool (*expressed)(const by_model_config *config, const char *section))
{
    json_t *own = json_object();
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sections); i++) {
        const by_part_config *part = part_of(config, &sections[i]);
        const by__config_kind *kind = find_kind(&sections[i], part->kind);
        bool usual = sections[i].published || strcmp(part->kind, sections[i].usual) == 0;
        if (!usual && kind != NULL && (expressed == NULL || !expressed(config, sections[i].name))) {
            (void)json_object_set_new(own, sections[i].name, part_json(part, kind));
        }
    }
    if (json_object_size(own) > 0) {
        char type[64];
        const char *published = json_string_value(json_object_get(out, "model_type"));
        (void)snprintf(type, sizeof type, OWN_TYPE "%s", published == NULL ? "" : published);
        (void)json_object_set_new(out, "model_type", json_string(type));
        (void)json_object_set(out, OWN_KEY, own);
    }
    json_decref(own);
}

const char *by__nn_json_model_type(const json_t *in)
{
    const char *type = json_string_value(json_object_get(in, "model_type"));
    bool own = type != NULL && strncmp(type, OWN_TYPE, strlen(OWN_TYPE)) == 0;
    return own ? type + strlen(OWN_TYPE) : type;
}

static by_status read_texts(by_string_list *out, const json_t *value, by_error *error)
{
    char **items;
    size_t count = json_array_size(value);
    BY_TRY(by__alloc((void **)&items, count + 1, sizeof *items, "a list", error));
    for (size_t i = 0; i < out->count; i++) {
        free(out->items[i]);
    }
    free(out->items);
    *out = (by_string_list){items, 0};
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(value, i));
        BY_TRY(by__nn_set_string(&items[out->count], text == NULL ? "" : text, error));
        out->count++;
    }
    return BY_OK;
}

/* Returns BY_EFORMAT if the value is not what the key accepts. */
static by_status read_value(const by__config_key *key, void *at, const char *name,
                            const char *section, const json_t *value, by_error *error)
{
    double number = json_number_value(value);
    bool in_range = json_is_number(value) && number >= key->min && number <= key->max;
    if (key->type == BY__KEY_TEXTS && json_is_array(value)) {
        return read_texts(at, value, error);
    }
    if (key->type == BY__KEY_REAL && (in_range || (key->derived != NULL && number == -1.0))) {
        *(double *)at = number;
        return BY_OK;
    }
    if (key->type == BY__KEY_INT && in_range && json_is_integer(value)) {
        *(int64_t *)at = json_integer_value(value);
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: \"%s\" of \"%s\" in \"" OWN_KEY "\" is missing or out of range", name,
                        key->name, section);
}

static by_status read_part(by_model_config *config, const part_section *section, const char *name,
                           const json_t *in, by_error *error)
{
    by_part_config *part = part_of(config, section);
    const char *text = json_string_value(json_object_get(in, "kind"));
    const by__config_kind *kind = text == NULL ? NULL : find_kind(section, text);
    const by__config_key *key;
    size_t list = 0;
    size_t row = 0;
    if (kind == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: \"%s\" in \"" OWN_KEY "\" has no known kind",
                            name, section->name);
    }
    BY_TRY(by__nn_set_string(&part->kind, kind->name, error));
    while ((key = next_key(kind, &list, &row)) != NULL) {
        BY_TRY(read_value(key, value_at(part, kind, key), name, section->name,
                          json_object_get(in, key->name), error));
    }
    return BY_OK;
}

by_status by__nn_parts_read(by_model_config *config, const char *name, const json_t *in,
                            by_error *error)
{
    const json_t *own = json_object_get(in, OWN_KEY);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(sections); i++) {
        const json_t *part = json_object_get(own, sections[i].name);
        if (part != NULL) {
            BY_TRY(read_part(config, &sections[i], name, part, error));
        }
    }
    return BY_OK;
}
