/* Models: a config section becomes a graph. One file a family in src/nn/models/.
 *
 * Parameters carry the names of the Hugging Face checkpoint of their family, and each axis a
 * logical name (vocab, embed, heads, kv_heads, mlp, position) that sharding rules will map to
 * machines; a model knows nothing of ranks, precision or optimizers.
 */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_model_mode {
    BY_MODEL_TRAIN = 0, /* loss, with dropout */
    BY_MODEL_LOSS,      /* loss, without dropout */
    BY_MODEL_LOGITS,    /* logits of every position */
    BY_MODEL_PREFILL,   /* fills key/value caches, no logits */
    BY_MODEL_DECODE     /* key/value caches and logits */
} by_model_mode;

typedef struct by_model_request {
    by_model_mode mode;
    int64_t batch; /* sequences */
    int64_t time;  /* tokens of each */
    int64_t cache; /* positions of the key/value caches (prefill, decode) */
} by_model_request;

/* The values of a model that the caller feeds and reads; BY_NONE where the mode has none.
 * Names in the graph are those of the fields. */
typedef struct by_model {
    by_value tokens;    /* input i32 [batch, time] */
    by_value targets;   /* input i32 [batch, time], negative: not counted (train, loss) */
    by_value rng;       /* input i32 [4] for dropout, see banyan/op.h (train, when dropout > 0) */
    by_value positions; /* input i32 [batch, time]: learned positions (prefill, decode of gpt2) */
    by_value start;     /* input i32 [1]: cached tokens before this run (prefill, decode) */
    /* output f32 [1]: sum of cross-entropies over the counted targets, in nats */
    by_value loss;
    by_value logits; /* output f32 [batch, time, vocab] (logits, decode) */
} by_model;

/* Builds the forward graph of a resolved config (vocab known). Caches are states "cache.N.k" and
 * "cache.N.v" [batch, kv_heads, cache, head width]. */
BY_API by_status by_model_build(by_model *out, by_graph *graph, const by_model_config *config,
                                const by_model_request *request, by_error *error);

/* A user's own model: same contract as by_model_build, called with `user`. */
typedef by_status by_model_builder(void *user, by_model *out, by_graph *graph,
                                   const by_model_config *config, const by_model_request *request,
                                   by_error *error);

/* Number of trained parameters (a tied head counts once), and of those in matrix products: without
 * embeddings that are only looked up. */
BY_API by_status by_model_count(const by_graph *graph, int64_t *parameters, int64_t *in_products,
                                by_error *error);

/* Initial values of parameter `name` of `count` elements: normal values from Philox keyed by (seed,
 * name), by the init of the graph. Same values for any number of threads and on any processor. */
BY_API by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter,
                                   uint64_t seed, by_error *error);

/* The Hugging Face config.json of a resolved model config. eos is the end-of-text id, -1 for none.
 * Freed with free(). */
BY_API by_status by_model_config_json(char **out, const by_model_config *config, int64_t eos,
                                      by_error *error);
/* Fills kind, sizes and constants of `config`, a part of a by_config, from a Hugging Face config.json (`name` for
 * messages). BY_EFORMAT names a key that is missing or a feature that the family here does not
 * have. */
BY_API by_status by_model_config_from_json(by_model_config *config, const char *name,
                                           const char *json, size_t length, by_error *error);
/* The name under which a checkpoint of the config's family may hold a parameter, besides its own:
 * "transformer." or nothing in front. NULL when there is none. Static. */
BY_API const char *by_model_name_prefix(const by_model_config *config);
/* True where positions are rotations, which serve for any context, and not rows of a table. */
BY_API bool by_model_is_rotary(const by_model_config *config);

#ifdef __cplusplus
}
#endif
#endif
