/* nn: models as graphs. layers.c has what families share, models/ one file per family, families.c
 * the table of families.
 *
 * A family builds a forward graph from its config section for one of the modes of by_model_request,
 * names parameters as the Hugging Face checkpoint does, annotates their axes, and translates its
 * config to and from config.json. The same layers serve training and cached decoding: a
 * by__nn_build carries the mode, so that a block is written once.
 *
 * Types: by__nn_family, a family's row in the table; by__nn_build, the model under construction;
 * by__nn_llama_keys and by__nn_rope_keys, config keys that several families share. A by__nn_build
 * is used while the graph is built and owns nothing: values belong to the graph, keys to the
 * config.
 *
 * Adding a family: its file, which also declares its keys (config/kind.h), a row in families.c,
 * golden files for the parity test.
 *
 * Never put here: precision, parallelism, optimizers, buffers. Those are passes and programs.
 */
#ifndef BY_NN_NN_H
#define BY_NN_NN_H

#include <jansson.h>

#include "banyan/comm.h"
#include "banyan/model.h"
#include "config/kind.h"
#include "graph/graph.h"
#include "ops/ops.h"
#include "store/store.h"

/* The sizes of a pruned model. */
typedef struct by__nn_reduction {
    const bool *layers;      /* [layers] true: the layer is kept; NULL: all are */
    int64_t heads, kv_heads; /* 0: unchanged */
    int64_t mlp_width;       /* 0: unchanged */
} by__nn_reduction;

/* State of the model that is being built. */
typedef struct by__nn_build {
    by_graph *graph;
    const by_model_config *config;
    const by_model_request *request;
    by_model model;
    const char *prefix; /* of the names of parameters, "" */
    uint32_t streams;   /* number of dropout masks so far */
    /* Sums over the routers' layers so far, f32 [experts]: the number of tokens that chose each
     * expert, and the probabilities that they gave it. BY_NONE: none yet. */
    by_value router_load;
    by_value router_mass;
} by__nn_build;

/* A Hugging Face model type that a family can be stored as. */
typedef struct by__nn_published {
    const char *model_type;   /* config.json "model_type"; NULL ends a list */
    const char *architecture; /* config.json "architectures"[0] */
    bool tied;                /* the head is tied if config.json lacks the key */
} by__nn_published;

/* A parameter that has a row for each patch of an image: name NULL: there is none. */
typedef struct by__nn_grid {
    const char *name;
    int64_t before; /* rows in front of the patches', such as that of a class token */
    int64_t sides[2];
} by__nn_grid;

/* A parameter that scales the products of queries and keys: the factor to this power goes to its
 * initial value and learning rate. */
typedef struct by__nn_query_scale {
    const char *pattern; /* for fnmatch; NULL ends a list */
    double power;
} by__nn_query_scale;

typedef struct by__nn_family {
    by__config_kind kind; /* name and keys */
    /* prefix of parameter names in checkpoints that contain a head, may be NULL */
    const char *prefix;
    /* prefix of parameter names that checkpoints of the model without its head lack, may be NULL */
    const char *base;
    const char *embedding; /* name of the parameter that may also be the head, may be NULL */
    const char *reads;     /* what an example is: "tokens", "images", "table" or "series" */
    /* Reads the inputs (by__nn_input; for tokens, b->model.tokens) and sets hidden and head, or
     * output, of b->model. */
    void (*body)(by__nn_build *b);
    void (*write_config)(json_t *out, const by_model_config *config);
    by_status (*read_config)(by_model_config *config, const char *name, const json_t *in,
                             by_error *error);
    /* Sets the family's own keys for a pruned model, whose new sizes config->model already has.
     * NULL: the family has no keys for sizes, and the width of a head is width / heads. */
    by_status (*reduce)(by_model_config *config, const by__nn_reduction *to, by_error *error);
    /* The parameters that scale queries, of a family that has by__nn_mup_keys; NULL: it has not. */
    const by__nn_query_scale *queries;
    bool rotary; /* positions are rotations, not rows of a table, unless a config says more */
    /* Returns whether the family's config.json says what the config's kind of a part is ("norm"),
     * beside activations. NULL: of none. */
    bool (*expresses)(const by_model_config *config, const char *section);
    /* A model of tokens whose attention is over all of them: it predicts masked tokens and
     * continues no text. */
    bool encoder;
    /* Returns why a context longer than the config's is impossible; NULL: it is possible. May be
     * NULL itself. */
    const char *(*bounded)(const by_model_config *config);
    /* Of a family that reads images, the only parameter whose shape depends on their size; NULL:
     * none does. */
    by__nn_grid (*grid)(const by_model_config *config);
    /* The task.kind that a model of this config is for; NULL: that of all which read the same. */
    const char *(*usual_task)(const by_model_config *config);
    const by__nn_published *published;
    /* Returns which of the published types a config is; NULL: the first. */
    const by__nn_published *(*publish)(const by_model_config *config);
    /* Beginnings of the names of parameters that heads have, separated by spaces: of a checkpoint
     * with another head they are left out. NULL: there is one head. */
    const char *other_heads;
    /* Layers that get adapters if lora.targets is not set, as in PEFT's defaults for the family,
     * separated by spaces; NULL: no defaults. */
    const char *adapted;
} by__nn_family;

/* Sets model->output to the one that the config names (outputs.c). BY_ECONFIG: there is none. */
by_status by__nn_choose_output(by_model *model, const by_model_config *config, by_error *error);
/* Refuses a context longer than the config's if the family gives a reason. */
by_status by__nn_model_check_context(const by_model_config *config, int64_t context,
                                     by_error *error);
/* How files may name the parameters of a model; NULLs for an unknown kind. Static storage. */
typedef struct by__nn_file_names {
    const char *family; /* as by_model_name_prefix */
    const char *base;   /* as by__nn_family.base */
    const char *tied;   /* the embedding if it is also the head; NULL: the head is another one */
    const char *heads;  /* as by__nn_family.other_heads */
} by__nn_file_names;
by__nn_file_names by__nn_model_file_names(const by_model_config *config);
/* The grid of a model; its name is NULL if it has none. */
by__nn_grid by__nn_model_grid(const by_model_config *config);
/* Changes a config to that of a pruned model, and resolves it. BY_EARG: the family's config.json
 * cannot express fewer heads of the same width. */
by_status by__nn_model_reduce(by_config *config, const by__nn_reduction *to, by_error *error);
/* The kinds of the section `model`: the table of families, for by__config_kind_table. */
const by__config_kind *by__nn_family_kind(size_t index);
/* Lists the families that read one of these (NULL: all) as "gpt2, llama". */
const char *by__nn_families_reading(char buffer[256], const char *what);

/* ---- keys that families share (family_keys.c) ---- */

/* heads, norm_eps and init_std, for every transformer. */
extern const by__config_key_list by__nn_transformer_keys;
/* context, vocab and pad_vocab_to, for every model of tokens. */
extern const by__config_key_list by__nn_token_keys;
/* parameterisation, mup_base_width and mup_base_head_dim (mup.c). */
extern const by__config_key_list by__nn_mup_keys;
/* outputs, for every other model. */
extern const by__config_key_list by__nn_output_keys;
/* channels, image_height and image_width, for every model of images. */
extern const by__config_key_list by__nn_image_keys;
/* numbers and categories, for every model of tables. */
extern const by__config_key_list by__nn_table_keys;
/* context, outputs and channels, for every model of series. */
extern const by__config_key_list by__nn_series_keys;
/* outputs, channels, nodes and edges, for every model of the nodes of a graph. */
extern const by__config_key_list by__nn_node_keys;
/* Checks that the number of tokens in a batch does not overflow. */
by_status by__nn_token_resolve(const by_config *config, by_error *error);
/* Derives init_std and head_dim; head_dim -1: width / heads, which must be an integer. */
by_status by__nn_transformer_resolve(by_config *config, int64_t head_dim, by_error *error);

/* ---- muP (mup.c) ---- */

bool by__nn_has_mup(const by_model_config *config);
/* Derives the base sizes, once head_dim is known, and refuses what mup is not for. */
by_status by__nn_mup_resolve(by_config *config, by_error *error);
/* Sets initial deviations and learning rates of the parameters of a model whose body is built. */
void by__nn_mup_apply(by__nn_build *b, const by__nn_query_scale *queries);

/* Parameters of a graph, as by_model_count counts them; `trained`: those that are not frozen. */
typedef struct by__nn_parameter_count {
    int64_t all;
    int64_t in_products;
    int64_t trained;
} by__nn_parameter_count;
by_status by__nn_model_count(by__nn_parameter_count *out, const by_graph *graph, by_error *error);

/* ---- layers (layers.c) ---- */

/* The input with that name; the first call adds it to the graph. */
by_value by__nn_input(by__nn_build *b, const char *name, by_dtype dtype, by_shape shape);
/* Adds a parameter whose name is made from format and arguments, e.g. ("h.%d.ln_1.weight", 3). */
by_value by__nn_weight(by__nn_build *b, const char *axes, by_shape shape, by_init init,
                       const char *format, ...) BY_PRINTF(5, 6);
by_init by__nn_init_normal(const by__nn_build *b);
/* Initialization of the projections that end in the residual stream, as in GPT-2: std / sqrt(2
 * layers). */
by_init by__nn_init_residual(const by__nn_build *b);
/* Dropout with the config's probability when training, else x. */
by_value by__nn_drop(by__nn_build *b, by_value x);
/* True if the mode uses key/value caches. */
bool by__nn_is_cached(const by__nn_build *b);

/* ---- sequence_head.c: outputs of a text that is read from left to right ---- */

/* Name of the parameter that turns a state into outputs, or a reward. */
#define BY__SCORE "score.weight"
/* outputs, for families of tokens that are no encoders. */
extern const by__config_key_list by__nn_sequence_keys;
/* Whether a model ends in outputs of a text instead of logits of tokens. */
bool by__nn_ends_in_score(const by__nn_family *family, const by_model_config *config);
/* Drops the outputs of a config whose task has none; BY_ECONFIG if it was given some. */
by_status by__nn_sequence_resolve(by_config *config, by_error *error);
/* The head of tokens: the embedding `table`, or lm_head.weight; BY_NONE: the model has outputs. */
by_value by__nn_language_head(by__nn_build *b, by_value table);
/* Outputs f32 [batch, outputs] of states [batch, time, width]: those of one token of each, which
 * `last` f32 [batch, time, 1] has a 1 for and else zeros, times the parameter BY__SCORE. */
by_value by__nn_score(by_graph *graph, by_value states, by_value last, int64_t outputs, float std);
/* Sets the output of a model from its hidden states and the input "last". */
void by__nn_sequence_add(by__nn_build *b);
/* config.json of such a model, from that of one with a head of tokens; and whether one is. */
void by__nn_sequence_write(json_t *out, const by_model_config *config, int64_t eos);
void by__nn_sequence_read(by_model_config *config, const json_t *in);

/* ---- encoder_layers.c: layers of encoders, named as in BERT's and ViT's checkpoints ---- */

/* The norm of the config, layer norm if it does not choose, with the parameters PREFIX.weight and
 * PREFIX.bias. */
by_value by__nn_encoder_norm(by__nn_build *b, by_value x, double eps, const char *prefix);
/* Product with PREFIX.weight [out, in], plus PREFIX.bias. axes, bias_axes: of these. */
by_value by__nn_encoder_linear(by__nn_build *b, by_value x, int64_t in, int64_t out,
                               const char *axes, const char *bias_axes, by_init init,
                               const char *prefix);
/* Names of the layers of queries, keys and values. */
#define BY__NN_QKV_NAMES ((const char *const[]){"query", "key", "value"})
/* Attention of the tokens of a sample, in layer `layer`. The weights PREFIX.NAME for the three
 * names, with biases if `biased`, are separate only in checkpoints: they make one product, *qkv. */
by_value by__nn_encoder_attention(by__nn_build *b, by_value x, int layer, bool biased,
                                  const char *prefix, const char *const names[3], by_value *qkv);

/* ---- Llama's layers, shared by the families that descend from it (llama_layers.c) ---- */

/* Rotary positions (rope_scaling.c). */
typedef struct by__nn_rope_keys {
    double theta;
    char *scaling; /* "none", "linear", "dynamic", "yarn" or "llama3" */
    double factor;
    int64_t original_context; /* -1: model.context */
    double low_freq_factor;
    double high_freq_factor;
    double beta_fast;
    double beta_slow;
    double attention_factor; /* -1: derived from factor */
} by__nn_rope_keys;

/* Values of the shared Llama keys; the first member of a family's own struct. Keys that a family
 * does not declare are 0. */
typedef struct by__nn_llama_keys {
    by__nn_rope_keys rope;
    int64_t head_dim;
    int64_t window; /* 0: none */
    /* For llama only: */
    by_string_list window_layers; /* layers that have the window; empty: all */
    int64_t qkv_bias;
    int64_t output_bias;
    int64_t mlp_bias;
    int64_t qk_norm;
    by_string_list nope_layers; /* layers without rotary positions */
    char *hf_type;              /* "auto" or a model_type */
} by__nn_llama_keys;
/* rope_theta, rope_scaling and the keys of the scalings. */
extern const by__config_key_list by__nn_rope_key_list;
/* kv_heads, head_dim, mlp_width, tied and window. */
extern const by__config_key_list by__nn_llama_key_list;

/* by__nn_family's `queries` for these layers. */
extern const by__nn_query_scale by__nn_llama_queries[];

/* Checks the consistency of the rope_scaling keys. */
by_status by__nn_rope_resolve(const by_config *config, const by__nn_rope_keys *keys,
                              by_error *error);
/* Implements by__nn_family's `bounded` for these keys. */
const char *by__nn_rope_bounded(const by__nn_rope_keys *keys);
/* The rotation of a resolved config. */
by_rotation by__nn_rope_rotation(const by__nn_rope_keys *keys, const by_model_config *config);
/* Write and read rope_theta and rope_scaling of config.json, and rope_parameters as in transformers
 * 5. theta: default for a file without it. context and head_dim of `config` are known. */
void by__nn_rope_write_config(json_t *out, const by__nn_rope_keys *keys,
                              const by_model_config *config);
by_status by__nn_rope_read_config(by__nn_rope_keys *keys, const by_model_config *config,
                                  double theta, const char *name, const json_t *root,
                                  by_error *error);

/* Derives the sizes given as -1 and checks those of attention. */
by_status by__nn_llama_resolve(by_config *config, const by__nn_llama_keys *keys, by_error *error);
/* Builds the part of a block after its second norm. */
typedef by_value by__nn_block_half(by__nn_build *b, by_value x, int layer);
/* Builds the whole model: embedding, blocks, norm and head. */
void by__nn_llama_body(by__nn_build *b, const by__nn_llama_keys *keys, by__nn_block_half *mlp);
/* Multiplies x by the parameter "model.layers.LAYER.NAME.weight" [out, in], and adds "....bias" if
 * `bias`. axes: of the weight. */
by_value by__nn_llama_linear(by__nn_build *b, by_value x, int64_t in, int64_t out, const char *axes,
                             by_init init, bool bias, int layer, const char *name);
/* Implements by__nn_family's `reduce` for these keys. */
by_status by__nn_llama_reduce(by_model_config *config, by__nn_llama_keys *keys,
                              const by__nn_reduction *to, by_error *error);
/* Refuses an entry of a list that is not the number of a layer. key: "model.nope_layers". */
by_status by__nn_layers_check(const by_config *config, const char *key, const by_string_list *list,
                              by_error *error);
/* by__nn_list_has returns true if a list of numbers contains a number; by__nn_list_fill makes the
 * list of the numbers i < count with has[i]. */
bool by__nn_list_has(const by_string_list *list, int64_t number);
by_status by__nn_list_fill(by_string_list *list, const bool *has, size_t count, by_error *error);

/* Values for keys that are missing in config.json, by model_type (llama_config.c). */
typedef struct by__nn_llama_defaults {
    double rope_theta;
    double norm_eps;
    int64_t head_dim; /* 0: width / heads */
} by__nn_llama_defaults;
/* The keys of config.json that all of these families have. */
void by__nn_llama_write_config(json_t *out, const by_model_config *config,
                               const by__nn_llama_keys *keys);
by_status by__nn_llama_read_config(by_model_config *config, by__nn_llama_keys *keys,
                                   const by__nn_llama_defaults *defaults, const char *name,
                                   const json_t *in, by_error *error);

/* ---- parts that are sections with kinds (parts.c, and a file each) ---- */

/* The keys of transformers that choose kinds of attention, position and activation. */
extern const by__config_key_list by__nn_part_keys;
/* The key that chooses the activation alone. */
extern const by__config_key_list by__nn_activation_keys;
/* The keys of families that let the norm and the layers after attention be chosen. */
extern const by__config_key_list by__nn_norm_keys;
extern const by__config_key_list by__nn_mlp_keys;
/* The keys of families that let values and the sum between blocks be chosen. */
extern const by__config_key_list by__nn_stream_keys;
/* Whether layers differ by their number, not only by their weights, and as `part` then says, by
 * which section: "attention.kind mixed". */
bool by__nn_layers_differ(char part[64], const by_model_config *config);
/* The kinds of the sections, for by__config_kind_table. */
const by__config_kind *by__nn_attention_kind(size_t index);
const by__config_kind *by__nn_values_kind(size_t index);
const by__config_kind *by__nn_residual_kind(size_t index);
const by__config_kind *by__nn_position_kind(size_t index);
const by__config_kind *by__nn_norm_kind(size_t index);
const by__config_kind *by__nn_mlp_kind(size_t index);
const by__config_kind *by__nn_activation_kind(size_t index);
/* Sets all parts to what families were published with. */
by_status by__nn_parts_reset(by_model_config *config, by_error *error);
/* Writes the parts that differ from that, and that the family has not `expressed` (NULL: none but
 * these), to config.json under a key of our own, and changes its model_type, so that nobody loads
 * it as another model; the inverse. */
void by__nn_parts_write(json_t *out, const by_model_config *config,
                        bool (*expressed)(const by_model_config *config, const char *section));
by_status by__nn_parts_read(by_model_config *config, const char *name, const json_t *in,
                            by_error *error);
/* "model_type" without what by__nn_parts_write changes; NULL if it is missing. */
const char *by__nn_json_model_type(const json_t *in);

/* attentions.c. What a layer attends with. */
typedef struct by__nn_heads {
    by_value q, k, v;            /* [B, T, ...]; k and v BY_NONE: all are packed in q */
    bool bidirectional;          /* to later tokens, too */
    bool still;                  /* the layer has no rotary positions */
    int64_t window;              /* the family's own for this layer, of kind full; 0: none */
    const by_rotation *rotation; /* the family's own; NULL: it has no rotary positions */
} by__nn_heads;
/* False if the layer has no attention; the family then leaves out all that belongs to it. */
bool by__nn_attends(const by_model_config *config, int64_t layer);
/* Attention of layer `layer` in the mode of the build: plain, through that layer's caches, or
 * through pages. If documents are kept apart (b->model.starts), a token attends only to those of
 * its own; of samples with lengths, only to what they have. */
by_value by__nn_attend(by__nn_build *b, int layer, const by__nn_heads *heads);
/* The tokens that a token of the layer attends to, whose family's own window is `window`; 0: all.
 * Whether that says all about the layers; whether layers attend otherwise by their number. */
int64_t by__nn_attention_window(const by_model_config *config, int64_t layer, int64_t window);
bool by__nn_attention_is_windows(const by_model_config *config);
bool by__nn_attention_differs(const by_model_config *config);

/* positions.c. The parameter of learned positions. */
typedef struct by__nn_position_table {
    const char *name;
    int64_t rows;
    bool leading; /* it has a leading axis of one */
    bool rotary;  /* the family was published with rotary positions instead */
} by__nn_position_table;
/* Adds positions to x [B, T, width], as far as they are added. */
by_value by__nn_place(by__nn_build *b, by_value x, const by__nn_position_table *table);
/* The rotation of queries and keys, in `buffer`, or NULL. usual: the family's own, may be NULL. */
const by_rotation *by__nn_rotation(by_rotation *buffer, const by_model_config *config,
                                   const by_rotation *usual);
/* Whether there are no positions behind the context. rotary: the family has rotary ones. */
bool by__nn_positions_bounded(const by_model_config *config, bool rotary);

/* activation_kinds.c. usual: the family's own function. */
by_value by__nn_activate(by__nn_build *b, by_value x, by_function usual);
/* The activation of `gate` times `up`. */
by_value by__nn_gate(by__nn_build *b, by_value gate, by_value up, by_function usual);
/* Write and read the name of the function in config.json. */
void by__nn_activation_write(json_t *out, const char *key, const by_model_config *config,
                             by_function usual);
by_status by__nn_activation_read(by_model_config *config, const char *name, const json_t *in,
                                 const char *key, by_function usual, by_error *error);

/* mlps.c. */
typedef enum by__nn_mlp_part { BY__NN_MLP_UP, BY__NN_MLP_GATE, BY__NN_MLP_DOWN } by__nn_mlp_part;
typedef struct by__nn_mlp_layers {
    /* The product with the weight of a part, width to mlp_width, for the last one back. */
    by_value (*linear)(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part);
    by_function activation; /* the family's own */
    bool gated;             /* likewise */
} by__nn_mlp_layers;
by_value by__nn_mlp(by__nn_build *b, by_value x, int layer, const by__nn_mlp_layers *layers);

/* norms.c. Where a norm is in the model. */
typedef struct by__nn_norm_place {
    const char *prefix; /* of its parameters: PREFIX.weight and so on */
    const char *axes;   /* of these */
    int64_t width;
    double eps;
    const char *usual; /* the family's own kind */
} by__nn_norm_place;
/* The kind that a config chooses. */
const char *by__nn_norm_name(const by_model_config *config, const char *usual);
/* Sets the kind, as a config.json names it. BY_EFORMAT lists those that there are. */
by_status by__nn_norm_set(by_model_config *config, const char *kind, const char *name,
                          by_error *error);
/* Adds the norm that the config chooses to x [..., width]. */
by_value by__nn_norm(by__nn_build *b, by_value x, const by__nn_norm_place *place);

/* values.c. The values of layer `layer`, whose projection of x is v [B, T, kv_heads x head_dim].
 * Parameters are PREFIX.LAYER.self_attn.v_embed.weight and so on. */
by_value by__nn_values(by__nn_build *b, by_value v, by_value x, int layer, const char *prefix);
/* Whether layers have other values by their number. */
bool by__nn_values_differ(const by_model_config *config);

/* residuals.c. The embedding as blocks read it; `place` is that of its norm, if it has one. */
by_value by__nn_residual_begin(by__nn_build *b, by_value x, const by__nn_norm_place *place);
/* What block `layer` reads of the sum x of those before it and the embedding `first`. Parameters
 * are PREFIX.LAYER.residual.x and so on. */
by_value by__nn_residual(by__nn_build *b, by_value x, by_value first, int layer,
                         const char *prefix);

/* ---- parameters as entries of a tensor store (parameters.c) ---- */

/* Groups of parameters, in the order in which they are laid out. Trained ones come first, matrices
 * before vectors, with separate groups for those that programs compute with in a narrower format
 * than f32; then the same for parameters split over ranks, by the axes that split them; then
 * statistics. Frozen ones come last, and behind them those that are held in codes, which have no
 * copies, as wide ones. */
enum {
    BY__GROUP_VECTOR = 1,     /* one axis: norm weights, biases; exempt from weight decay */
    BY__GROUP_WIDE = 2,       /* computed with as f32 */
    BY__GROUP_TENSOR = 4,     /* each rank of the mesh axis `tensor` has a part */
    BY__GROUP_EXPERT = 8,     /* each rank of the mesh axis `expert` has a part */
    BY__GROUP_STATISTIC = 19, /* by_graph_statistic, split or not; 16 to 18 are not used */
    BY__TRAINED_GROUPS = 20,
    BY__GROUP_FROZEN = 20, /* split or not */
    BY__GROUP_CODES = 26,  /* frozen; 24 and 25 are not used */
    BY__GROUPS = 27
};
/* The set of mesh axes along which the tensors of a group are split. */
static inline uint32_t by__group_mesh(int group)
{
    return group >= BY__GROUP_STATISTIC
               ? 0
               : ((group & BY__GROUP_TENSOR) != 0 ? 1u << BY_MESH_TENSOR : 0) |
                     ((group & BY__GROUP_EXPERT) != 0 ? 1u << BY_MESH_EXPERT : 0);
}

/* Declares an entry for each parameter of a graph whose passes are done, in the graph's order. */
by_status by__nn_declare_parameters(by__store *store, const by_graph *graph, by_error *error);
/* Elements [first, first + count) of a parameter's initial value (by_parameter_init); first must be
 * a multiple of BY__NORMAL_BLOCK. */
by_status by__nn_parameter_init_part(float *data, const by_graph *graph, by_value parameter,
                                     uint64_t seed, int64_t first, int64_t count, by_error *error);
/* Writes the initial values of all parameters (by_parameter_init) into a flat buffer. */
by_status by__nn_initialize_parameters(by__store *store, int flat, const by_graph *graph,
                                       uint64_t seed, int threads, by_error *error);

/* ---- layers and config.json of models of images (image_layers.c) ---- */

/* The input "images", channels last: [B, H, W, C]. */
by_value by__nn_images(by__nn_build *b);
/* cos(p f) and then sin(p f), f = 10000^(-2 i / width), of positions p = 0, 1, ... or those of
 * `start`, i32 [batch]: [batch, time, width], as the rotation of pairs (1, 0). */
by_value by__nn_waves(by__nn_build *b, int64_t batch, int64_t time, int64_t width, by_value start);
/* A convolution with a square window. */
typedef struct by__nn_conv {
    int64_t in, out; /* channels */
    int64_t size;
    int64_t stride;
    int64_t padding;
    bool same; /* instead, pads as TensorFlow does */
    int64_t groups;
    int64_t dilation; /* 0: 1 */
    float std;        /* of the initial weights; 0: the square root of 2 / (size^2 out / groups) */
} by__nn_conv;
/* Convolves x with PREFIX.weight, and adds PREFIX.bias if `bias`. */
by_value by__nn_convolve(by__nn_build *b, by_value x, const by__nn_conv *conv, bool bias,
                         const char *prefix);
/* A batch norm with running statistics, PREFIX.weight and so on. */
typedef struct by__nn_batch_norm {
    const char *prefix;
    const char *axes;
    int64_t width;
    float eps;
    float momentum;
    by_norm_end end;
} by__nn_batch_norm;
/* Normalizes x with its own statistics in training, with the running ones otherwise
 * (torch.nn.BatchNorm2d). The running statistics of a step average those of its micro-batches, so
 * they do not depend on which ranks had them. */
by_value by__nn_batch_normalize(by__nn_build *b, by_value x, const by__nn_batch_norm *norm);
/* The mean over the image: [B, C]. */
by_value by__nn_global_average(by__nn_build *b, by_value x);
/* The linear classifier of the config's classes. */
by_value by__nn_classifier(by__nn_build *b, by_value features, int64_t width, float std,
                           const char *prefix);
/* "id2label" and "label2id" of config.json, and the number of classes that it has. */
void by__nn_json_write_labels(json_t *out, int64_t count);
int64_t by__nn_json_labels(const json_t *in);
/* "image_size": a number, or a list of height and width; 224 if it is missing. */
void by__nn_json_write_image_size(json_t *out, const by_model_config *config);
by_status by__nn_json_image_size(by_model_config *config, const char *name, const json_t *in,
                                 by_error *error);

/* ---- layers of models of series (series_layers.c) ---- */

/* Derives the rows that a model of series forecasts. */
void by__nn_series_resolve(by_model_config *config);
/* The input "series": [B, context, channels]. */
by_value by__nn_series(by__nn_build *b);
/* Mean and deviation of each channel of a window, [B, 1, channels], or what else the inverse of its
 * standardization adds and multiplies by. */
typedef struct by__nn_window_scales {
    by_value mean;
    by_value deviation;
} by__nn_window_scales;
/* Standardizes each channel of x [B, T, C] over the window: the square root is of the variance plus
 * 1e-5. affine: a learned gain and a shift of each channel follow (RevIN, Kim et al. 2022), the
 * parameters "revin_layer.affine_weight" and "revin_layer.affine_bias", named as in the authors'
 * program; the scales then undo them, too. */
by_value by__nn_series_standardize(by__nn_build *b, by_value x, bool affine,
                                   by__nn_window_scales *scales);
/* The inverse for a forecast [B, outputs, C]. */
by_value by__nn_series_restore(by__nn_build *b, by_value x, const by__nn_window_scales *scales);

/* ---- layers of models of the nodes of a graph (node_layers.c) ---- */

/* Sizes of the graph, and what all models of nodes let a config choose: the first member of the own
 * keys of each. */
typedef struct by__nn_node_sizes {
    int64_t nodes; /* -1: not known */
    int64_t edges;
    /* Room for the surroundings of the targets of a sample; 0: the whole graph is read. */
    int64_t sample_nodes;
    int64_t sample_edges;
    int64_t sample_targets;
    int64_t sample_weights; /* 1: edges of samples have factors */
    /* Room for the nodes at most 0, 1, ... hops from a target, and for the edges that end in them:
     * what layers put out, from the last one back. Layers in front of these put out all nodes. */
    by_string_list hop_nodes;
    by_string_list hop_edges;
    /* Features that are not 0, which are read as a sparse matrix; 0: all of them are read. */
    int64_t feature_entries;
    int64_t edge_weights; /* 1: edges have weights */
    double input_dropout; /* in front of the first layer */
    double edge_dropout;  /* of edges, in every layer */
    int64_t residual;
    int64_t relations; /* of edges; 0: they have none */
    int64_t relation_edges;
    int64_t edge_features;  /* of each edge of small graphs; 0: none are read */
    int64_t graph_features; /* of each small graph, beside what is read out; 0: none are read */
    int64_t
        own_graphs; /* not 0: each sample has a graph of its own, of at most `nodes` and `edges` */
    int64_t graphs; /* of a sample, several of which are one after another, and each of which is
                       read out; 0: nodes are */
    char *readout;  /* sum, mean or max */
    /* Nodes of a sample that a link from its first node may lead to; 0: nodes are read out. In
     * training, and in an evaluation. */
    int64_t candidates;
    int64_t held_out_candidates;
    char *decoder; /* of links: dot or mlp */
} by__nn_node_sizes;
/* Those of a config, which whoever opens the data sets; NULL: it is of another model.
 * (families.c) */
by__nn_node_sizes *by__nn_node_sizes_of(const by_model_config *config);
/* Whether the model reads features of edges: its family has the key model.edge_features.
 * (edge_layers.c) */
extern const by__config_key_list by__nn_edge_feature_keys;
bool by__nn_node_reads_edge_features(const by_model_config *config);
/* Sets hop_nodes and hop_edges. (size_lists.c) */
by_status by__nn_node_set_hops(by__nn_node_sizes *sizes, const int64_t *nodes, const int64_t *edges,
                               int hops, by_error *error);
/* The model reads whole graphs, and all features of their nodes, however training sampled its own.
 * (size_lists.c) */
void by__nn_node_read_whole(by__nn_node_sizes *sizes);

/* The inputs of the graph: features [B, nodes, channels]; a scale of each node that layer `layer`
 * reads, [B, nodes, 1], of that name; and the edges of that layer, from the nodes that it reads to
 * those that it puts out. B is 1 for the whole graph, and else the batch. */
by_value by__nn_node_features(by__nn_build *b, const by__nn_node_sizes *sizes);
by_value by__nn_node_scale(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int layer);
/* 1 / sqrt(degree) of the nodes that a layer puts out, and in a sample more by as much as it has
 * fewer of their edges. */
by_value by__nn_node_scale_into(by__nn_build *b, const by__nn_node_sizes *sizes, int layer);
by_edges by__nn_edges(by__nn_build *b, const by__nn_node_sizes *sizes, int layer);
/* The extent B of the inputs of the graph and of the edges. */
int64_t by__nn_node_batch(const by__nn_build *b, const by__nn_node_sizes *sizes);
/* How many nodes a layer puts out: the first ones of those that it reads, as layer + 1 does. */
int64_t by__nn_node_count(const by__nn_build *b, const by__nn_node_sizes *sizes, int layer);
/* Of x [B, nodes, columns] with the nodes that a layer reads, those that it puts out. */
by_value by__nn_node_own(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x, int layer);
/* Rows of x [B, nodes, columns] with the nodes that a layer reads or puts out, those of the
 * targets: [batch, columns], or [batch, sample_targets, columns]. */
by_value by__nn_node_rows(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                          int64_t columns);
/* What the model puts out, of x [B, nodes, columns] that the last layer does: by__nn_node_rows;
 * scores [B, candidates] of links; or of each graph, [B, graphs, outputs]. (graph_readout.c) */
by_value by__nn_node_read_out(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x);
/* Candidates that a sample of links has room for: those of training and of evaluations have the
 * same arrays. */
int64_t by__nn_node_room(const by__nn_node_sizes *sizes);
/* Columns in front of layer `layer`, or behind the last one. */
int64_t by__nn_node_width(const by_model_config *c, const by__nn_node_sizes *sizes, int64_t layer);
/* Initial weights with the variance of Glorot and Bengio (2010). */
by_init by__nn_init_glorot(int64_t in, int64_t out);
/* The product of each row of x [B, nodes, in] with w [out, in]. x BY_NONE: of the features, as a
 * sparse matrix with dropout. */
by_value by__nn_node_product(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                             by_value w, int64_t out);
/* The weights of the edges of a layer, if `weighted` and the data has them, with dropout of edges:
 * f32 [B, edges, 1], or BY_NONE. */
by_value by__nn_node_edge_factors(by__nn_build *b, const by__nn_node_sizes *sizes, int layer,
                                  bool weighted);
/* The sum of x [B, nodes, columns] over the edges of a layer that end in each node, with all of
 * these factors. */
by_value by__nn_node_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x, int layer);
/* The same of relu(x + W e + bias), where e are the features of an edge and x [B, nodes, columns]
 * the node that it comes from; parameters PREFIX.weight, PREFIX.bias. (edge_layers.c) */
by_value by__nn_node_edge_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                              int64_t columns, int layer, const char *prefix);
/* The sum of x [1, nodes relations, columns], a row for each pair of a node and a relation, over
 * the edges that end in each node: of the edges of a relation, the mean. */
by_value by__nn_node_relation_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x);
/* The norm that the config chooses, if it does, with the parameters PREFIX.weight and so on; those
 * of a batch norm are PREFIX.module.weight, as in PyTorch Geometric. */
by_value by__nn_node_norm(by__nn_build *b, by_value x, int64_t width, const char *prefix);
/* Adds layer i, of x [B, nodes, columns]; BY_NONE: of the features, as by__nn_node_product reads
 * them. */
typedef by_value by__nn_node_layer(by__nn_build *b, by_value x, int i);
typedef struct by__nn_node_stack {
    by__nn_node_layer *layer;
    by_function activation; /* the family's own, behind all layers but the last */
    bool dense;             /* the first layer is never given BY_NONE */
} by__nn_node_stack;
/* Adds all layers, with dropout in front of each, norm and activation between them, and residuals,
 * as the config chooses; and the model's output. What the last layer reads is the output
 * "features", except in training. */
void by__nn_node_layers(by__nn_build *b, const by__nn_node_sizes *sizes,
                        const by__nn_node_stack *stack);
/* Checks the keys that these models share, and derives those that are -1: an entry of
 * by__config_kind calls it. */
by_status by__nn_node_resolve(by_config *config, by__nn_node_sizes *sizes, by_error *error);
/* BY_ECONFIG if edges have weights, which a model does not read. */
by_status by__nn_node_refuse_weights(const by_config *config, const by__nn_node_sizes *sizes,
                                     by_error *error);
/* The keys of config.json that all of these families have. */
void by__nn_node_write_config(json_t *out, const by_model_config *c, const by__nn_node_sizes *sizes,
                              by_function activation);
by_status by__nn_node_read_config(by_model_config *c, by__nn_node_sizes *sizes, const char *name,
                                  const json_t *in, by_function activation, by_error *error);
/* An entry of by__nn_family. */
const char *by__nn_node_task(const by_model_config *config);

/* ---- lists of sizes (size_lists.c) ---- */

/* Entry i; 0: it is no whole number from 1 to 2^24. */
int64_t by__nn_size_at(const by_string_list *list, int64_t i);
by_status by__nn_sizes_check(const by_config *config, const char *key, const by_string_list *list,
                             by_error *error);
int64_t by__nn_sizes_sum(const by_string_list *list);
/* Refuses stages whose depths and widths do not belong together: one to eight, and no widths or as
 * many. */
by_status by__nn_stages_check(const by_config *config, const by_string_list *depths,
                              const by_string_list *widths, by_error *error);
json_t *by__nn_sizes_json(const by_string_list *list);
by_status by__nn_json_sizes(by_string_list *list, const char *name, const json_t *in,
                            const char *key, by_error *error);

/* ---- config.json readers (json_keys.c) ---- */
by_status by__nn_json_integer(int64_t *out, const char *name, const json_t *in, const char *key,
                              int64_t fallback, by_error *error);
by_status by__nn_json_number(double *out, const char *name, const json_t *in, const char *key,
                             double fallback, by_error *error);
/* Reads a boolean as 1 or 0; `fallback` if the key is missing or null. */
by_status by__nn_json_switch(int64_t *out, const char *name, const json_t *in, const char *key,
                             bool fallback, by_error *error);
/* Refuses a string key that is present and not equal to `wanted`. */
by_status by__nn_json_expect(const char *name, const json_t *in, const char *key,
                             const char *wanted, by_error *error);
/* Refuses a boolean key that is present and not equal to `wanted`. */
by_status by__nn_json_expect_bool(const char *name, const json_t *in, const char *key, bool wanted,
                                  by_error *error);
/* Replaces a string of the config by a copy of `value`. */
by_status by__nn_set_string(char **field, const char *value, by_error *error);
/* As the fallback of by__nn_json_integer: the key is required. */
#define BY__REQUIRED INT64_MIN

#endif
