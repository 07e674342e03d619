/* Llama (Touvron et al. 2023): rotary positions, pre-norm blocks with RMS norm, SwiGLU,
 * grouped-query attention, no biases. Weights are [out, in], as torch.nn.Linear keeps them. */
#include "nn/nn.h"

extern const by__family by__family_llama;

static by__llama_keys *own_keys(const by_model_config *c)
{
    return by__kind_own(c->own, &by__family_llama.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    return by__llama_resolve(config, error);
}

static by_value mlp(by__build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    by_init init = by__init_normal(b);
    by_value gate =
        by__llama_linear(b, x, c->width, c->mlp_width, "mlp embed", init, layer, "mlp.gate_proj");
    by_value up =
        by__llama_linear(b, x, c->width, c->mlp_width, "mlp embed", init, layer, "mlp.up_proj");
    by_value y = by_swiglu(b->graph, gate, up);
    return by__llama_linear(b, y, c->mlp_width, c->width, "embed mlp", by__init_residual(b), layer,
                            "mlp.down_proj");
}

static void body(by__build *b)
{
    by__llama_body(b, own_keys(b->config), mlp);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__llama_write_config(out, c, own_keys(c));
    (void)json_object_set_new(out, "attention_bias", json_false());
    (void)json_object_set_new(out, "mlp_bias", json_false());
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    return by__llama_read_config(c, own_keys(c), 10000.0, name, in, error);
}

const by__family by__family_llama = {
    .kind = {.name = "llama",
             .help = "Llama: rotary positions, RMS norm, SwiGLU, grouped-query attention.",
             .keys = {&by__transformer_keys, &by__token_keys, &by__llama_key_list},
             .size = sizeof(by__llama_keys),
             .resolve = resolve},
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .rotary = true,
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .adapted = "q_proj v_proj",
};
