/* Models: build the graph of a config's model section. Each family is one file in src/nn/models/.
 *
 * A model reads inputs by name ("tokens", "images", "numbers") and yields values: a hidden state
 * and a head if there is a vocabulary, or outputs such as the logits of classes. It does not know
 * the targets; a task (banyan/task.h) adds the loss.
 *
 * Parameters have the names of the family's Hugging Face checkpoints, and each axis a logical name
 * (vocab, embed, heads, kv_heads, mlp, expert, router, position) that sharding rules map to ranks.
 * A model knows nothing of ranks, precision or optimizers.
 */
#ifndef BANYAN_MODEL_H
#define BANYAN_MODEL_H

#include "banyan/config.h"
#include "banyan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the graph computes. Modes from BY_MODEL_LOGITS on are for models of tokens; those from
 * BY_MODEL_PREFILL on not for encoders. */
typedef enum by_model_mode {
    BY_MODEL_TRAIN = 0, /* what a loss is computed from, with dropout */
    BY_MODEL_LOSS,      /* the same without dropout */
    BY_MODEL_LOGITS,    /* logits of every position */
    BY_MODEL_PREFILL,   /* fills key/value caches, without logits */
    BY_MODEL_DECODE,    /* key/value caches and logits */
    /* Rows of many sequences, whose keys and values are in pages of one pool; logits of some
     * rows. */
    BY_MODEL_STEP
} by_model_mode;

/* Mode and sizes of a graph. */
typedef struct by_model_request {
    by_model_mode mode;
    int64_t batch;    /* examples: sequences, images, table rows (step: 1) */
    int64_t time;     /* models of tokens: tokens per sequence (step: rows in total) */
    int64_t cache;    /* prefill, decode: positions of the key/value caches */
    int64_t wanted;   /* step: rows to compute logits of */
    int64_t sessions; /* step: rows of the page table */
    int64_t table;    /* step: pages per session */
    int64_t pages;    /* step: pages of the pool, of BY_PAGE_TOKENS tokens each */
    bool codes;       /* step: the pool stores 8-bit codes */
    bool documents;   /* models of tokens, train and loss: attention stays within documents */
    bool padded;      /* encoders: samples have lengths, and what is behind them is not read */
    bool segmented;   /* encoders: tokens have segments, as those of the second of two texts */
    int64_t texts;    /* texts of an example, each of `time` tokens; 0: one */
} by_model_request;

/* Outputs that a model may register beside its main one. */
#define BY_MODEL_OUTPUTS 8

/* A value that a model yields under a name: f32 [batch, ...]. */
typedef struct by_model_output {
    const char *name; /* static storage, or the builder's: "features" */
    by_value value;
} by_model_output;

/* The values of a model that the caller feeds and reads, BY_NONE where absent. In the graph they
 * have the names of the fields. */
typedef struct by_model {
    by_value tokens; /* input i32 [batch, time] (models of tokens) */
    by_value rng;    /* input i32 [4] for dropout, see banyan/op.h (train, if dropout > 0) */
    /* Input i32: [batch, time], learned positions (prefill, decode of gpt2); [time], position of
     * each row in its sequence, -1 for an unused row (step). */
    by_value positions;
    by_value sessions; /* input i32 [time]: row of the page table for each row (step) */
    by_value pages;    /* input i32 [sessions, table]: the page table (step) */
    by_value wanted;   /* input i32 [wanted]: rows to compute logits of, -1 for none (step) */
    /* Input i32 [1]: tokens already in the caches (prefill, decode); positions (step). */
    by_value start;
    /* Input i32 [batch, time]: first token that each token may attend to, that of its document
     * (train and loss with request.documents). */
    by_value starts;
    /* Models of tokens, train and loss: last hidden state [batch, time, width]; not an output of
     * the graph. */
    by_value hidden;
    by_value head; /* parameter [vocab, width] that turns it into logits */
    /* Encoders: */
    by_value head_bias; /* parameter [vocab] that is added to the logits */
    by_value lengths;   /* input i32 [batch], tokens of each sample (with request.padded) */
    by_value segments;  /* input i32 [batch, time], of each token (with request.segmented) */
    by_value states;    /* [batch, time, width] before the head's own layers, for embeddings */
    /* With request.texts of two or more, the inputs are [batch, texts, ...], and the values those
     * of batch * texts samples. */
    /* Other models: f32 [batch, outputs], logits of classes or predictions; not an output of the
     * graph. With config.output the one of that name, which the loss, `predict`, `export` and
     * servers then use. */
    by_value output;
    by_value logits; /* output f32 [batch, time, vocab] (logits, decode), [wanted, vocab] (step) */
    /* Output f32 [1], added by the task: sum over the targets that count. A caller's own model may
     * add it itself; the task then does not. */
    by_value loss;
    /* f32 [1], train: added to the mean loss before differentiation but not reported, such as a
     * router's load-balancing loss. */
    by_value auxiliary;
    by_value counted;   /* f32 [1], set by the task if auxiliary is: targets that count */
    by_value objective; /* f32 [1]: what is differentiated, loss + auxiliary * counted */
    /* Output f32 [batch, ...], added by the task if its metrics need it (loss). */
    by_value evaluated;
    by_model_output named[BY_MODEL_OUTPUTS]; /* by by_model_register; not outputs of the graph */
    size_t named_count;
} by_model;

/* A model without any value. */
#define BY_MODEL_NONE                                                                              \
    ((by_model){BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE,           BY_NONE, BY_NONE,  \
                BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE,           BY_NONE, BY_NONE,  \
                BY_NONE, BY_NONE, BY_NONE, BY_NONE, BY_NONE, {{NULL, BY_NONE}}, 0})

/* For builders: registers an output by name. BY_EARG is stored in the graph if the name is taken or
 * there are BY_MODEL_OUTPUTS already. A model whose parameters only some outputs depend on trains
 * with a task that uses all of them, or with the others frozen (by_graph_freeze). */
BY_API void by_model_register(by_model *model, by_graph *graph, const char *name, by_value value);
/* Finds a registered output, or with "output" the main one. Returns BY_ECONFIG, with the names that
 * there are, if there is none of this name. */
BY_API by_status by_model_find_output(by_value *out, const by_model *model, const char *name,
                                      by_error *error);

/* Builds the forward graph of a resolved config with known sizes (vocab; outputs and the shape of
 * an example). Caches are states "cache.N.k" and "cache.N.v" [batch, kv_heads, cache, head width];
 * pools are states "pool.N.k" and "pool.N.v" [pages, kv_heads, BY_PAGE_TOKENS, head width] or, with
 * `codes`, as described at by_attention_paged. Returns BY_ECONFIG for an unknown family; BY_EARG if
 * the family does not support the mode or `time` exceeds the context; and errors of building. */
BY_API by_status by_model_build(by_model *out, by_graph *graph, const by_model_config *config,
                                const by_model_request *request, by_error *error);

/* A caller's own model, with the contract of by_model_build. Called with the `user` given with it;
 * *out is initially BY_MODEL_NONE. */
typedef by_status by_model_builder(void *user, by_model *out, by_graph *graph,
                                   const by_model_config *config, const by_model_request *request,
                                   by_error *error);

/* Counts the parameters (a tied head once), and those in matrix products for one example: without
 * embeddings that are only looked up, and only as many experts as a token uses. */
BY_API by_status by_model_count(const by_graph *graph, int64_t *parameters, int64_t *in_products,
                                by_error *error);

/* Computes the initial values of a parameter, of all elements even if it is split across ranks:
 * random values from Philox keyed by (seed, name), distributed as the graph says. The values are
 * the same for any number of threads and any processor. Returns BY_EARG if the value is not a
 * parameter. */
BY_API by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter,
                                   uint64_t seed, by_error *error);

/* Makes the Hugging Face config.json of a resolved model config; free it with free(). `eos` is the
 * end-of-text id, -1 for none. */
BY_API by_status by_model_config_json(char **out, const by_model_config *config, int64_t eos,
                                      by_error *error);
/* Replaces "bos_token_id", "eos_token_id" and "pad_token_id" of such a text by those of another
 * config.json, `from`, as far as that names them: a number, a list of numbers, or null. The text is
 * freed and replaced. Returns BY_EFORMAT if `from` is not a JSON object. */
BY_API by_status by_model_config_keep_ids(char **json, const char *from, by_error *error);
/* Adds the names of the outputs, "id2label" and "label2id", to such a text, which is freed and
 * replaced. */
BY_API by_status by_model_config_label(char **json, const char *const *labels, size_t count,
                                       by_error *error);
/* Fills in kind, sizes and constants of `config`, which must be part of a by_config, from a Hugging
 * Face config.json; `name` is used in messages. Returns BY_EFORMAT with the key that is missing or
 * the feature that the family here lacks, BY_EARG if `config` is not part of a by_config. */
BY_API by_status by_model_config_from_json(by_model_config *config, const char *name,
                                           const char *json, size_t length, by_error *error);
/* Returns a prefix that checkpoints of the config's family may add to parameter names,
 * "transformer." or ""; NULL if there is none. Static storage. */
BY_API const char *by_model_name_prefix(const by_model_config *config);
/* Returns what a model of this config reads: "tokens", "images" or "table"; "" for an unknown kind.
 * Static storage. */
BY_API const char *by_model_reads(const by_model_config *config);
/* Returns the layers that get LoRA adapters by default, "q_proj v_proj"; NULL if there are none.
 * Static storage. */
BY_API const char *by_model_adapted(const by_model_config *config);
/* Returns whether a model of this config reads tokens with attention over all of them: it predicts
 * masked tokens, and continues no text. */
BY_API bool by_model_is_encoder(const by_model_config *config);
/* Returns the task.kind that models of this config are of unless a run says more: "language",
 * "masked", for images and tables "classify", or "regress" with one output. Static storage. */
BY_API const char *by_model_usual_task(const by_model_config *config);
/* Returns whether there are positions for any context: rotary ones, for instance, rather than those
 * of a learned table. */
BY_API bool by_model_is_rotary(const by_model_config *config);

#ifdef __cplusplus
}
#endif
#endif
