/* Models: a config section becomes a graph. One file a family in src/nn/models/.
 *
 * A model reads inputs by name ("tokens", "images", "numbers") and delivers values: a hidden
 * state and a head, where there is a vocabulary, or outputs, such as the logits of classes. What
 * they should be is not its business: the loss is added by a task (banyan/task.h).
 *
 * Parameters carry the names of the Hugging Face checkpoint of their family, and each axis a
 * logical name (vocab, embed, heads, kv_heads, mlp, expert, router, position) that sharding
 * rules will map to machines; a model knows nothing of ranks, precision or optimizers.
 */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum by_model_mode {
    BY_MODEL_TRAIN = 0, /* what a loss is computed from, with dropout */
    BY_MODEL_LOSS,      /* the same without dropout */
    BY_MODEL_LOGITS,    /* models of tokens: logits of every position */
    BY_MODEL_PREFILL,   /* models of tokens: fills key/value caches, no logits */
    BY_MODEL_DECODE,    /* models of tokens: key/value caches and logits */
    /* Models of tokens: rows of many sequences, whose keys and values are in pages of one pool;
     * logits of some of the rows. */
    BY_MODEL_STEP
} by_model_mode;

typedef struct by_model_request {
    by_model_mode mode;
    int64_t batch;    /* examples: sequences, images, rows (step: 1) */
    int64_t time;     /* models of tokens: tokens of each sequence (step: rows of all) */
    int64_t cache;    /* positions of the key/value caches (prefill, decode) */
    int64_t wanted;   /* step: rows whose logits are made */
    int64_t sessions; /* step: rows of the page table */
    int64_t table;    /* step: pages that a session may have */
    int64_t pages;    /* step: pages of the pool, of BY_PAGE_TOKENS tokens each */
    bool codes;       /* step: the pool holds keys and values as codes of 8 bits */
    bool documents;   /* models of tokens, train and loss: attention stays within documents */
} by_model_request;

/* The values of a model that the caller feeds and reads; BY_NONE where there is none. Names in the
 * graph are those of the fields. */
typedef struct by_model {
    by_value tokens; /* input i32 [batch, time] (models of tokens) */
    by_value rng;    /* input i32 [4] for dropout, see banyan/op.h (train, when dropout > 0) */
    /* input i32 [batch, time]: learned positions (prefill, decode of gpt2); of each row in its
     * sequence, -1: the row is none (step) */
    by_value positions;
    by_value sessions; /* input i32 [time]: the row of the page table of each row (step) */
    by_value pages;    /* input i32 [sessions, table]: the page table (step) */
    by_value wanted;   /* input i32 [wanted]: rows, -1: none (step) */
    by_value start;    /* input i32 [1]: cached tokens before this run (prefill, decode);
                          positions (step) */
    /* input i32 [batch, time]: the first token that each one may read, that of its document (train
     * and loss, when request.documents) */
    by_value starts;
    /* Models of tokens, in train and loss: the last hidden state [batch, time, width] and the
     * parameter [vocab, width] that makes logits of it. Not outputs of the graph. */
    by_value hidden;
    by_value head;
    /* Other models: logits of classes or predictions, f32 [batch, outputs]. No output of the
     * graph. */
    by_value output;
    by_value logits; /* output f32 [batch, time, vocab] (logits, decode), [wanted, vocab] (step) */
    /* output f32 [1], added by the task: sum over the targets that count. A model of the caller's
     * own may add one itself, and then the task adds none. */
    by_value loss;
    /* f32 [1], in train: what is added to the mean loss before it is differentiated, and not
     * reported as a loss, such as a router's balance. */
    by_value auxiliary;
    by_value counted;   /* f32 [1], set by the task where auxiliary is: targets that count */
    by_value objective; /* f32 [1]: what is differentiated, loss + auxiliary * counted */
    /* output f32 [batch, ...], added by the task where its metrics need it (loss) */
    by_value evaluated;
} by_model;

/* A model without any value. */
#define BY_MODEL_NONE                                                                              \
    ((by_model){BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE,   \
                BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE})

/* Builds the forward graph of a resolved config whose sizes are known (vocab; outputs, and the
 * shape of an example). Caches are states "cache.N.k" and "cache.N.v" [batch, kv_heads, cache, head
 * width]; pools are states "pool.N.k" and "pool.N.v" [pages, kv_heads, BY_PAGE_TOKENS, head
 * width], or, with `codes`, as by_attention_paged says. */
BY_API by_status by_model_build(by_model *out, by_graph *graph, const by_model_config *config,
                                const by_model_request *request, by_error *error);

/* A user's own model: same contract as by_model_build, called with `user`. It begins with *out =
 * BY_MODEL_NONE. */
typedef by_status by_model_builder(void *user, by_model *out, by_graph *graph,
                                   const by_model_config *config, const by_model_request *request,
                                   by_error *error);

/* Number of parameters (a tied head counts once), and of those in matrix products of one
 * example: without embeddings that are only looked up, and of experts as many as one token goes
 * to. */
BY_API by_status by_model_count(const by_graph *graph, int64_t *parameters, int64_t *in_products,
                                by_error *error);

/* Initial values of all elements of a parameter, of those of other ranks too where it is split:
 * random values from Philox keyed by (seed, name), by the init of the graph. Same values for any
 * number of threads and on any processor. */
BY_API by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter,
                                   uint64_t seed, by_error *error);

/* The Hugging Face config.json of a resolved model config. eos is the end-of-text id, -1 for none.
 * Freed with free(). */
BY_API by_status by_model_config_json(char **out, const by_model_config *config, int64_t eos,
                                      by_error *error);
/* Puts names of the outputs into such a text, which is replaced: "id2label" and "label2id". */
BY_API by_status by_model_config_label(char **json, const char *const *labels, size_t count,
                                       by_error *error);
/* Fills kind, sizes and constants of `config`, a part of a by_config, from a Hugging Face
 * config.json (`name` for messages). BY_EFORMAT names a key that is missing or a feature that the
 * family here does not have. */
BY_API by_status by_model_config_from_json(by_model_config *config, const char *name,
                                           const char *json, size_t length, by_error *error);
/* The name under which a checkpoint of the config's family may hold a parameter, in addition to its
 * own: "transformer." or nothing in front. NULL when there is none. Static. */
BY_API const char *by_model_name_prefix(const by_model_config *config);
/* What a model of this config reads: "tokens", "images" or "table". Static; "" when the kind is not
 * known. */
BY_API const char *by_model_reads(const by_model_config *config);
/* The layers of a family that get LoRA adapters unless a config says others, "q_proj v_proj"; NULL
 * when none are known. Static. */
BY_API const char *by_model_adapted(const by_model_config *config);
/* True where positions are rotations, which serve for any context, and not rows of a table. */
BY_API bool by_model_is_rotary(const by_model_config *config);

#ifdef __cplusplus
}
#endif
#endif
