/* The section `values`: what the values of attention are made of. */
#include <string.h>

#include "nn/nn.h"

typedef struct value_keys {
    int64_t every;
    int64_t gate_inputs;
} value_keys;

static const by__config_key key_rows[] = {
    {"values", "every", BY__KEY_INT, BY__OWN(value_keys, every), "2", 1, BY__MI20, .later = true,
     .help = "layers with such values: the last one, and each that is a multiple of this before "
             "it"},
    {"values", "gate_inputs", BY__KEY_INT, BY__OWN(value_keys, gate_inputs), "12", 1, BY__MI20,
     .later = true, .help = "entries of what the layer reads, from the first, that open the gate"},
};
static const by__config_key_list key_list = BY__KEY_LIST(key_rows);

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const value_keys *k = own;
    return k->gate_inputs <= config->model.width
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: values.gate_inputs is %lld, of a model whose width is %lld",
                              by__config_where(config, "values.gate_inputs", "model.width"),
                              (long long)k->gate_inputs, (long long)config->model.width);
}

enum { PROJECTED, EMBEDDED };
static const by__config_kind rows[] = {
    [PROJECTED] = {.name = "projected", .help = "A projection of what the layer reads."},
    [EMBEDDED] = {.name = "embedded",
                  .help =
                      "In some layers, also an embedding of the token that the layer alone has, "
                      "times a gate for each head, 2 sigmoid(G x), whose weights begin at 0 "
                      "(value embeddings of modded-nanogpt: Jordan et al. 2024, after Zhou et "
                      "al. 2024). They cost memory and nearly no time.",
                  .keys = {&key_list},
                  .size = sizeof(value_keys),
                  .resolve = resolve},
};

const by__config_kind *by__nn_values_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(rows) ? &rows[index] : NULL;
}

/* The keys of a model with such values; NULL: it has none. */
static const value_keys *keys_of(const by_model_config *c)
{
    bool embedded = c->values.kind != NULL && strcmp(c->values.kind, rows[EMBEDDED].name) == 0;
    return embedded ? by__config_kind_own(c->values.own, &rows[EMBEDDED]) : NULL;
}

bool by__nn_values_differ(const by_model_config *config)
{
    const value_keys *k = keys_of(config);
    return k != NULL && k->every > 1;
}

by_value by__nn_values(by__nn_build *b, by_value v, by_value x, int layer, const char *prefix)
{
    const by_model_config *c = b->config;
    const value_keys *k = keys_of(c);
    if (k == NULL || (c->layers - 1 - layer) % k->every != 0) {
        return v;
    }
    by_shape shape = b->graph->values[v].shape; /* [batch, time, kv_heads x head_dim] */
    by_value table =
        by__nn_weight(b, "token kv_heads", BY_SHAPE(c->vocab, c->kv_heads * c->head_dim),
                      by__nn_init_normal(b), "%s.%d.self_attn.v_embed.weight", prefix, layer);
    by_value gate = by__nn_weight(b, "kv_heads part", BY_SHAPE(c->kv_heads, k->gate_inputs),
                                  (by_init){0}, "%s.%d.self_attn.v_gate.weight", prefix, layer);
    by_value open = by_slice(b->graph, x, 2, 0, k->gate_inputs);
    open = by_unary(b->graph, by_linear(b->graph, open, gate, BY_NONE, true), BY_FN_SIGMOID);
    open = by_scale(b->graph, open, by_fill(b->graph, BY_F32, BY_SHAPE(1), 2.0f));
    open = by_reshape(b->graph, open, BY_SHAPE(shape.dim[0], shape.dim[1], c->kv_heads, 1));
    by_value own = by_reshape(b->graph, by_embedding(b->graph, b->model.tokens, table),
                              BY_SHAPE(shape.dim[0], shape.dim[1], c->kv_heads, c->head_dim));
    return by_add(b->graph, v, by_reshape(b->graph, by_mul(b->graph, own, open), shape));
}
