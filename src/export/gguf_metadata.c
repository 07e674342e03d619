/* The metadata of a GGUF file that describes its model, from config.json. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "export/gguf_write.h"

static double number_of(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

void by__export_gguf_frequency_factors(float *out, int64_t width, const json_t *config)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    double theta = number_of(config, "rope_theta", 1e4);
    double factor = number_of(scaling, "factor", 1.0);
    double low = number_of(scaling, "low_freq_factor", 1.0);
    double high = number_of(scaling, "high_freq_factor", 4.0);
    double context = number_of(scaling, "original_max_position_embeddings",
                               number_of(config, "max_position_embeddings", 8192.0));
    for (int64_t i = 0; i < width / 2; i++) {
        double length = 2.0 * M_PI * pow(theta, 2.0 * (double)i / (double)width); /* of the wave */
        double smooth = (context / length - low) / (high - low);
        double divided = length > context / low    ? factor
                         : length < context / high ? 1.0
                                                   : 1.0 / ((1.0 - smooth) / factor + smooth);
        out[i] = (float)divided;
    }
}

static by_status refuse(const char *what, const by__export_gguf_architecture *architecture,
                        by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "llama.cpp's architecture %s has no %s",
                        architecture->name, what);
}

/* Returns true if attention has a window smaller than the context. */
static bool is_windowed(const json_t *config)
{
    const json_t *window = json_object_get(config, "sliding_window");
    const json_t *used = json_object_get(config, "use_sliding_window");
    return json_is_integer(window) && !json_is_false(used) &&
           json_integer_value(window) <
               json_integer_value(json_object_get(config, "max_position_embeddings"));
}

/* Returns true if every fourth layer has no rotary positions, as in llama.cpp's smollm3. */
static bool is_fourth(const json_t *layers)
{
    for (size_t i = 0; i < json_array_size(layers); i++) {
        bool rotates = json_integer_value(json_array_get(layers, i)) != 0;
        if (rotates != ((i + 1) % 4 != 0)) {
            return false;
        }
    }
    return true;
}

static void put_key(by__export_gguf_pairs *pairs, const by__export_gguf_architecture *a,
                    const char *key, by__export_gguf_key_kind kind, double value)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s.%s", a->name, key);
    if (kind == BY__GGUF_WHOLE) {
        by__export_gguf_put_u32(pairs, name, (uint32_t)value);
    } else {
        by__export_gguf_put_f32(pairs, name, (float)value);
    }
}

static by_status put_scaling(by__export_gguf_pairs *pairs, const by__export_gguf_architecture *a,
                             const json_t *config, by_error *error)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    const char *kind = json_string_value(json_object_get(scaling, "rope_type"));
    char name[64];
    if (kind == NULL || strcmp(kind, "default") == 0) {
        return BY_OK;
    }
    double context = number_of(scaling, "original_max_position_embeddings",
                               number_of(config, "max_position_embeddings", 0.0));
    if (strcmp(kind, "llama3") == 0) { /* stored as a tensor */
        put_key(pairs, a, "rope.scaling.original_context_length", BY__GGUF_WHOLE, context);
        return BY_OK;
    }
    bool yarn = strcmp(kind, "yarn") == 0;
    if (!yarn && strcmp(kind, "linear") != 0) {
        return refuse("rope scaling of this type", a, error);
    }
    if (json_object_get(scaling, "attention_factor") != NULL) {
        return refuse("attention_factor of yarn", a, error);
    }
    (void)snprintf(name, sizeof name, "%s.rope.scaling.type", a->name);
    by__export_gguf_put_text(pairs, name, kind);
    put_key(pairs, a, "rope.scaling.factor", BY__GGUF_REAL, number_of(scaling, "factor", 1.0));
    if (yarn) {
        put_key(pairs, a, "rope.scaling.original_context_length", BY__GGUF_WHOLE, context);
        put_key(pairs, a, "rope.scaling.yarn_beta_fast", BY__GGUF_REAL,
                number_of(scaling, "beta_fast", 32.0));
        put_key(pairs, a, "rope.scaling.yarn_beta_slow", BY__GGUF_REAL,
                number_of(scaling, "beta_slow", 1.0));
    }
    return BY_OK;
}

by_status by__export_gguf_put_model(by__export_gguf_pairs *pairs, const by__export *e,
                                    const by__export_gguf_architecture *a, by_error *error)
{
    const by_model_config *model = &e->source->config->model;
    if (is_windowed(e->config)) {
        return refuse("sliding window that is shorter than the context", a, error);
    }
    if (strcmp(a->name, "smollm3") == 0 &&
        !is_fourth(json_object_get(e->config, "no_rope_layers"))) {
        return refuse("rotary positions in layers other than three of four", a, error);
    }
    for (const by__export_gguf_key *k = a->keys; k->gguf != NULL; k++) {
        put_key(pairs, a, k->gguf, k->kind, number_of(e->config, k->other, 0.0));
    }
    put_key(pairs, a, "vocab_size", BY__GGUF_WHOLE, (double)model->vocab);
    if (a->rotary) {
        put_key(pairs, a, "attention.value_length", BY__GGUF_WHOLE, (double)model->head_dim);
        put_key(pairs, a, "rope.dimension_count", BY__GGUF_WHOLE, (double)model->head_dim);
        BY_TRY(put_scaling(pairs, a, e->config, error));
    }
    return BY_OK;
}
