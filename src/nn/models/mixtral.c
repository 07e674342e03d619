/* Mixtral (Jiang et al. 2024): Llama with a mixture of experts in each block. A router sends each
 * token to a few of many SwiGLU layers, whose results are added by the router's weights.
 *
 * The experts of a layer are three parameters with a leading axis, which files hold as one tensor
 * per expert. Tokens are sorted by expert, so that each matrix is multiplied once, with exactly its
 * rows; nothing is computed for an expert without tokens. */
#include <math.h>

#include "nn/nn.h"

typedef struct mixtral_keys {
    by__nn_llama_keys llama;
    int64_t experts;
    int64_t experts_per_token;
    double capacity_factor;
    double router_aux_loss_coef;
} mixtral_keys;

static const by__config_key keys[] = {
    {"model", "experts", BY__KEY_INT, BY__OWN(mixtral_keys, experts), "8", 1, 65536,
     .help = "experts per layer"},
    {"model", "experts_per_token", BY__KEY_INT, BY__OWN(mixtral_keys, experts_per_token), "2", 1,
     65536, .help = "experts that process a token; at most `experts`"},
    {"model", "capacity_factor", BY__KEY_REAL, BY__OWN(mixtral_keys, capacity_factor), "-1", 0, 1e6,
     BY__ABOVE_MIN, .derived = "no limit",
     .help = "largest load of an expert during training, as a multiple of an even share of the "
             "micro-batch's tokens; tokens beyond it skip the expert"},
    {"model", "router_aux_loss_coef", BY__KEY_REAL, BY__OWN(mixtral_keys, router_aux_loss_coef),
     "0.02", 0, 1e6, .help = "weight of the load-balancing loss, which is added to the mean loss"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_mixtral;

static mixtral_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_mixtral.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const mixtral_keys *k = own;
    if (k->experts_per_token > k->experts) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: experts_per_token %lld is more than the number of experts, %lld",
                            by__config_where(config, "model.experts_per_token", "model.experts"),
                            (long long)k->experts_per_token, (long long)k->experts);
    }
    BY_TRY(by__config_divides(config, "parallel.expert", "model.experts", error));
    BY_TRY(by__config_divides(config, "parallel.expert", "train.micro_batch", error));
    return by__nn_llama_resolve(config, &k->llama, error);
}

/* Most rows per expert; 0: unlimited. Only training limits them: otherwise the result for a text
 * would depend on the other texts of the batch. */
static int64_t capacity_of(const by__nn_build *b)
{
    const mixtral_keys *k = own_keys(b->config);
    int64_t tokens = b->request->batch * b->request->time;
    double share = (double)tokens * (double)k->experts_per_token / (double)k->experts;
    double rows = ceil(k->capacity_factor * share);
    if (k->capacity_factor < 0.0 || b->request->mode != BY_MODEL_TRAIN || rows >= (double)tokens) {
        return 0;
    }
    return rows < 1.0 ? 1 : (int64_t)rows;
}

static by_value add_up(by__nn_build *b, by_value sum, by_value term)
{
    return sum == BY_NONE ? term : by_add(b->graph, sum, term);
}

static by_value expert_weight(by__nn_build *b, int layer, const char *name, int64_t out, int64_t in,
                              const char *axes, by_init init)
{
    return by__nn_weight(b, axes, BY_SHAPE(own_keys(b->config)->experts, out, in), init,
                         "model.layers.%d.block_sparse_moe.experts.*.%s.weight", layer, name);
}

/* rows: of the tokens, sorted by expert. */
static by_value experts(by__nn_build *b, by_value rows, by_value range, int layer)
{
    const by_model_config *c = b->config;
    int64_t chosen = own_keys(c)->experts_per_token;
    by_init init = by__nn_init_normal(b);
    by_value w1 = expert_weight(b, layer, "w1", c->mlp_width, c->width, "expert mlp embed", init);
    by_value w2 = expert_weight(b, layer, "w2", c->width, c->mlp_width, "expert embed mlp",
                                by__nn_init_residual(b));
    by_value w3 = expert_weight(b, layer, "w3", c->mlp_width, c->width, "expert mlp embed", init);
    by_value gate = by_grouped_matmul(b->graph, rows, w1, range, true, chosen);
    by_value up = by_grouped_matmul(b->graph, rows, w3, range, true, chosen);
    by_value y = by__nn_gate(b, gate, up, BY_FN_SILU);
    return by_grouped_matmul(b->graph, y, w2, range, true, chosen);
}

static by_value mixture(by__nn_build *b, by_value x, int layer)
{
    const mixtral_keys *k = own_keys(b->config);
    by_value weight;
    by_value index;
    by_value mass;
    by_value slot;
    by_value member;
    by_value range;
    by_value logits =
        by__nn_llama_linear(b, x, b->config->width, k->experts, "router embed",
                            by__nn_init_normal(b), false, layer, "block_sparse_moe.gate");
    by_router(b->graph, logits, k->experts_per_token, &weight, &index, &mass);
    by_group(b->graph, index, k->experts, capacity_of(b), &slot, &member, &range);
    by_value rows = by_scatter_rows(b->graph, x, slot, member, BY_NONE);
    by_value y = experts(b, rows, range, layer);
    if (b->request->mode == BY_MODEL_TRAIN && k->router_aux_loss_coef > 0.0) {
        by_value load = by_count_ids(b->graph, index, k->experts);
        b->router_load = add_up(b, b->router_load, load);
        b->router_mass = add_up(b, b->router_mass, mass);
    }
    return by_gather_rows(b->graph, y, slot, member, weight);
}

/* The load-balancing loss (Fedus et al. 2022, over the choices of all layers together, as
 * transformers computes it for Mixtral): E times the sum over experts of f P, where f is the share
 * of tokens that chose the expert and P its mean probability. */
static by_value balance(by__nn_build *b)
{
    static const int axis = 0;
    const mixtral_keys *k = own_keys(b->config);
    double rows = (double)b->config->layers * (double)(b->request->batch * b->request->time);
    double factor = k->router_aux_loss_coef * (double)k->experts / (rows * rows);
    by_value sum =
        by_sum(b->graph, by_mul(b->graph, b->router_load, b->router_mass), &axis, 1, true);
    return by_scale(b->graph, sum, by_fill(b->graph, BY_F32, BY_SHAPE(1), (float)factor));
}

static void body(by__nn_build *b)
{
    by__nn_llama_body(b, &own_keys(b->config)->llama, mixture);
    if (b->router_mass != BY_NONE) {
        b->model.auxiliary = balance(b);
    }
}

static void write_config(json_t *out, const by_model_config *c)
{
    const mixtral_keys *k = own_keys(c);
    by__nn_llama_write_config(out, c, &k->llama);
    (void)json_object_set_new(out, "num_local_experts", json_integer(k->experts));
    (void)json_object_set_new(out, "num_experts_per_tok", json_integer(k->experts_per_token));
    (void)json_object_set_new(out, "router_aux_loss_coef", json_real(k->router_aux_loss_coef));
    (void)json_object_set_new(out, "sliding_window",
                              k->llama.window == 0 ? json_null() : json_integer(k->llama.window));
}

/* Reads a coefficient that may be 0. */
static by_status read_coefficient(double *out, const char *name, const json_t *in, by_error *error)
{
    const json_t *value = json_object_get(in, "router_aux_loss_coef");
    *out = 0.001; /* transformers' default */
    if (value == NULL || json_is_null(value)) {
        return BY_OK;
    }
    *out = json_number_value(value);
    if (!json_is_number(value) || !(*out >= 0.0 && *out <= 1e6)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"router_aux_loss_coef\" is not a number from 0 on", name);
    }
    return BY_OK;
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    mixtral_keys *k = own_keys(c);
    BY_TRY(by__nn_llama_read_config(c, &k->llama, &(by__nn_llama_defaults){1e6, 1e-5, 0}, name, in,
                                    error));
    BY_TRY(by__nn_json_integer(&k->experts, name, in, "num_local_experts", 8, error));
    BY_TRY(by__nn_json_integer(&k->experts_per_token, name, in, "num_experts_per_tok", 2, error));
    BY_TRY(by__nn_json_integer(&k->llama.window, name, in, "sliding_window", 0, error));
    return read_coefficient(&k->router_aux_loss_coef, name, in, error);
}

static by_status reduce(by_model_config *c, const by__nn_reduction *to, by_error *error)
{
    return by__nn_llama_reduce(c, &own_keys(c)->llama, to, error);
}

static const char *bounded(const by_model_config *c)
{
    return by__nn_rope_bounded(&own_keys(c)->llama.rope);
}

const by__nn_family by__nn_family_mixtral = {
    .kind = {.name = "mixtral",
             .help = "Mixtral: Llama with a mixture of experts in each block.",
             .keys = {&by__nn_transformer_keys, &by__nn_token_keys, &by__nn_llama_key_list,
                      &by__nn_rope_key_list, &key_list, &by__nn_part_keys, &by__nn_norm_keys,
                      &by__nn_mup_keys, &by__nn_sequence_keys},
             .size = sizeof(mixtral_keys),
             .resolve = resolve},
    .base = "model.",
    .embedding = "model.embed_tokens.weight",
    .reads = "tokens",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .reduce = reduce,
    .queries = by__nn_llama_queries,
    .rotary = true,
    .bounded = bounded,
    .published = (const by__nn_published[]){{"mixtral", "MixtralForCausalLM", false}, {0}},
    .adapted = "q_proj v_proj",
};
