/* config.json of Llama and of the families derived from it. */

#include "nn/nn.h"

void by__nn_llama_write_config(json_t *out, const by_model_config *c, const by__nn_llama_keys *keys)
{
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "num_attention_heads", json_integer(c->heads));
    (void)json_object_set_new(out, "num_key_value_heads", json_integer(c->kv_heads));
    (void)json_object_set_new(out, "head_dim", json_integer(c->head_dim));
    (void)json_object_set_new(out, "intermediate_size", json_integer(c->mlp_width));
    (void)json_object_set_new(out, "max_position_embeddings", json_integer(c->context));
    by__nn_activation_write(out, "hidden_act", c, BY_FN_SILU);
    (void)json_object_set_new(out, "rms_norm_eps", json_real(c->norm_eps));
    by__nn_rope_write_config(out, &keys->rope, c);
}

by_status by__nn_llama_read_config(by_model_config *c, by__nn_llama_keys *keys,
                                   const by__nn_llama_defaults *defaults, const char *name,
                                   const json_t *in, by_error *error)
{
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "num_attention_heads", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->kv_heads, name, in, "num_key_value_heads", c->heads, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "intermediate_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->context, name, in, "max_position_embeddings", 2048, error));
    BY_TRY(by__nn_json_number(&c->norm_eps, name, in, "rms_norm_eps", defaults->norm_eps, error));
    BY_TRY(by__nn_activation_read(c, name, in, "hidden_act", BY_FN_SILU, error));
    int64_t width = defaults->head_dim > 0 ? defaults->head_dim : c->width / c->heads;
    BY_TRY(by__nn_json_integer(&width, name, in, "head_dim", width, error));
    if (width < 2 || width > 65536 || width % 2 != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: heads are %lld wide; rotary positions need an even width of at "
                            "most 65536",
                            name, (long long)width);
    }
    keys->head_dim = width == c->width / c->heads && c->width % c->heads == 0 ? -1 : width;
    c->head_dim = width;
    return by__nn_rope_read_config(&keys->rope, c, defaults->rope_theta, name, in, error);
}
