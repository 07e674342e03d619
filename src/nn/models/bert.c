/* BERT (Devlin et al. 2018): an encoder of tokens. Learned positions and segments, post-norm blocks
 * with layer norm, attention over all tokens and GELU (the exact form). Masked tokens are predicted
 * by a layer of its own and a head tied to the token embedding, with a bias; a text is classified
 * by the state of its first token, behind a layer with tanh (the pooler), and tokens each by their
 * own. Weights are [out, in], as in torch.nn.Linear; names are those of transformers'
 * BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification and BertModel. All
 * tokens are of the first segment, unless samples have segments. */
#include <string.h>

#include "nn/nn.h"

typedef struct bert_keys {
    int64_t segments;
    double norm_eps;
    char *head;
} bert_keys;

static const by__config_key keys[] = {
    {"model", "heads", BY__KEY_INT, BY__FIELD(model.heads), "4", 1, 65536,
     .help = "attention heads; divides width"},
    {"model", "mlp_width", BY__KEY_INT, BY__FIELD(model.mlp_width), "-1", 1, BY__MI24,
     .derived = "4 x width", .help = "hidden width of the MLP"},
    {"model", "segments", BY__KEY_INT, BY__OWN(bert_keys, segments), "2", 1, 65536,
     .help = "rows of the table of segments: the first is used, and of two texts the second, too"},
    {"model", "norm_eps", BY__KEY_REAL, BY__OWN(bert_keys, norm_eps), "1e-12", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of layer norm"},
    {"model", "init_std", BY__KEY_REAL, BY__FIELD(model.init_std), "-1", 0, 10,
     .derived = "the square root of 2 / (5 x width)",
     .help = "standard deviation of the initial weights"},
    {"model", "head", BY__KEY_TEXT, BY__OWN(bert_keys, head), "masked",
     .choices = "masked|sequence|token|none", .later = true,
     .help = "what the model ends in, which follows from task.kind: logits of masked tokens; "
             "outputs for a sequence (classify, regress) or for each token (tag); none: its hidden "
             "states (contrast)"},
    {"model", "outputs", BY__KEY_INT, BY__FIELD(model.outputs), "-1", 1, BY__MI24, .later = true,
     .derived = "what the data has",
     .help = "classes, or predicted numbers, of a sequence or a token"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_bert;

static bert_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_bert.kind);
}

/* The heads by name, as transformers calls models with them, and the tasks that need them. */
typedef struct bert_head {
    const char *name;
    const char *tasks[2];
    by__nn_published published;
} bert_head;

static const bert_head heads[] = {
    {"masked", {"masked", NULL}, {"bert", "BertForMaskedLM", true}},
    {"sequence", {"classify", "regress"}, {"bert", "BertForSequenceClassification", true}},
    {"token", {"tag", NULL}, {"bert", "BertForTokenClassification", true}},
    {"none", {"contrast", NULL}, {"bert", "BertModel", true}},
};

static const bert_head *head_of(const by_model_config *c)
{
    const bert_keys *k = own_keys(c);
    size_t i = 0;
    while (i + 1 < BY_ARRAY_LENGTH(heads) && strcmp(heads[i].name, k->head) != 0) {
        i++;
    }
    return &heads[i];
}

static bool is_classifier(const bert_head *head)
{
    return strcmp(head->name, "sequence") == 0 || strcmp(head->name, "token") == 0;
}

static const by__nn_published *publish(const by_model_config *c)
{
    return &head_of(c)->published;
}

/* Tasks of other heads need a table. */
static const char *usual_task(const by_model_config *c)
{
    return strcmp(head_of(c)->name, "masked") == 0 ? "masked" : "language";
}

/* A task that needs a head has it, whichever the weights have that it starts from; those of other
 * tasks keep theirs. */
static by_status choose_head(const by_config *config, bert_keys *k, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(heads); i++) {
        for (size_t t = 0; t < BY_ARRAY_LENGTH(heads[i].tasks); t++) {
            const char *task = heads[i].tasks[t];
            if (task != NULL && strcmp(task, config->task.kind) == 0) {
                return by__nn_set_string(&k->head, heads[i].name, error);
            }
        }
    }
    return BY_OK;
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    by_model_config *c = &config->model;
    BY_TRY(choose_head(config, own, error));
    c->kv_heads = c->heads;
    c->mlp_width = c->mlp_width == -1 ? 4 * c->width : c->mlp_width;
    c->tied = 1;
    BY_TRY(by__nn_token_resolve(config, error));
    return by__nn_transformer_resolve(config, -1, error);
}

static by_value norm(by__nn_build *b, by_value x, const char *prefix)
{
    return by__nn_encoder_norm(b, x, own_keys(b->config)->norm_eps, prefix);
}

/* The sum of token, position and segment: [B, T, width]. */
static by_value embed(by__nn_build *b, by_value words)
{
    const by_model_config *c = b->config;
    by_init init = by__nn_init_normal(b);
    by_graph *g = b->graph;
    by_value x =
        by__nn_place(b, by_embedding(g, b->model.tokens, words),
                     &(by__nn_position_table){.name = "bert.embeddings.position_embeddings.weight",
                                              .rows = c->context});
    by_value segments = by__nn_weight(b, "segment embed", BY_SHAPE(own_keys(c)->segments, c->width),
                                      init, "bert.embeddings.token_type_embeddings.weight");
    by_value own = b->model.segments != BY_NONE
                       ? by_embedding(g, b->model.segments, segments)
                       : by_reshape(g, by_slice(g, segments, 0, 0, 1), BY_SHAPE(c->width));
    return by__nn_drop(b, norm(b, by_add(g, x, own), "bert.embeddings.LayerNorm"));
}

static by_value attend(by__nn_build *b, by_value x, int layer)
{
    const by_model_config *c = b->config;
    by_value qkv;
    char name[96];
    (void)snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.self", layer);
    by_value y = by__nn_encoder_attention(b, x, layer, true, name, BY__NN_QKV_NAMES, &qkv);
    (void)snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.dense", layer);
    y = by__nn_encoder_linear(b, y, c->width, c->width, "embed heads", "embed",
                              by__nn_init_normal(b), name);
    (void)snprintf(name, sizeof name, "bert.encoder.layer.%d.attention.output.LayerNorm", layer);
    return norm(b, by_add(b->graph, x, by__nn_drop(b, y)), name);
}

static by_value mlp_linear(by__nn_build *b, by_value x, int layer, by__nn_mlp_part part)
{
    static const char *const names[] = {"intermediate.dense", "intermediate.gate", "output.dense"};
    const by_model_config *c = b->config;
    by_init init = by__nn_init_normal(b);
    char name[96];
    (void)snprintf(name, sizeof name, "bert.encoder.layer.%d.%s", layer, names[part]);
    return part == BY__NN_MLP_DOWN ? by__nn_encoder_linear(b, x, c->mlp_width, c->width,
                                                           "embed mlp", "embed", init, name)
                                   : by__nn_encoder_linear(b, x, c->width, c->mlp_width,
                                                           "mlp embed", "mlp", init, name);
}

static by_value block(by__nn_build *b, by_value x, int layer)
{
    static const by__nn_mlp_layers mlp = {.linear = mlp_linear, .activation = BY_FN_GELU_ERF};
    by_graph *g = b->graph;
    char name[96];
    by_graph_set_block(g, layer);
    if (by__nn_attends(b->config, layer)) {
        x = attend(b, x, layer);
    }
    by_value y = by__nn_mlp(b, x, layer, &mlp);
    (void)snprintf(name, sizeof name, "bert.encoder.layer.%d.output.LayerNorm", layer);
    x = norm(b, by_add(g, x, by__nn_drop(b, y)), name);
    by_graph_set_block(g, -1);
    return x;
}

/* A layer of its own, and a head tied to the embedding. */
static void add_masked(by__nn_build *b, by_value x, by_value words)
{
    const by_model_config *c = b->config;
    x = by__nn_encoder_linear(b, x, c->width, c->width, "features embed", "features",
                              by__nn_init_normal(b), "cls.predictions.transform.dense");
    x = norm(b, by__nn_activate(b, x, BY_FN_GELU_ERF), "cls.predictions.transform.LayerNorm");
    b->model.hidden = x;
    b->model.head = words;
    b->model.head_bias =
        by__nn_weight(b, "vocab", BY_SHAPE(c->vocab), (by_init){0}, "cls.predictions.bias");
}

static by_value classify(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    return by__nn_encoder_linear(b, by__nn_drop(b, x), c->width, c->outputs, "class embed", "class",
                                 by__nn_init_normal(b), "classifier");
}

/* Outputs of the first token's state. */
static void add_sequence(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    by_init init = by__nn_init_normal(b);
    x = by_reshape(g, by_slice(g, x, 1, 0, 1), BY_SHAPE(b->request->batch, c->width));
    x = by__nn_encoder_linear(b, x, c->width, c->width, "features embed", "features", init,
                              "bert.pooler.dense");
    x = by_unary(g, x, BY_FN_TANH);
    by_model_register(&b->model, g, "features", x);
    b->model.output = classify(b, x);
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    by_value words = by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                   by__nn_init_normal(b), "bert.embeddings.word_embeddings.weight");
    by_value x = embed(b, words);
    for (int layer = 0; layer < c->layers; layer++) {
        x = block(b, x, layer);
    }
    b->model.states = x;
    const char *head = head_of(c)->name;
    if (strcmp(head, "masked") == 0) {
        add_masked(b, x, words);
    } else if (strcmp(head, "sequence") == 0) {
        add_sequence(b, x);
    } else if (strcmp(head, "token") == 0) {
        b->model.output = classify(b, x);
    }
}

static void write_config(json_t *out, const by_model_config *c)
{
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "num_attention_heads", json_integer(c->heads));
    (void)json_object_set_new(out, "intermediate_size", json_integer(c->mlp_width));
    (void)json_object_set_new(out, "max_position_embeddings", json_integer(c->context));
    (void)json_object_set_new(out, "type_vocab_size", json_integer(own_keys(c)->segments));
    by__nn_activation_write(out, "hidden_act", c, BY_FN_GELU_ERF);
    (void)json_object_set_new(out, "position_embedding_type", json_string("absolute"));
    (void)json_object_set_new(out, "layer_norm_eps", json_real(own_keys(c)->norm_eps));
    (void)json_object_set_new(out, "hidden_dropout_prob", json_real(c->dropout));
    (void)json_object_set_new(out, "attention_probs_dropout_prob", json_real(0.0));
    if (is_classifier(head_of(c))) {
        by__nn_json_write_labels(out, c->outputs);
    }
}

/* The head that "architectures" names; that of masked tokens if it names none. */
static by_status read_head(by_model_config *c, const json_t *in, by_error *error)
{
    const char *name = json_string_value(json_array_get(json_object_get(in, "architectures"), 0));
    const bert_head *head = &heads[0];
    for (size_t i = 0; i < BY_ARRAY_LENGTH(heads) && name != NULL; i++) {
        head = strcmp(heads[i].published.architecture, name) == 0 ? &heads[i] : head;
    }
    if (is_classifier(head)) {
        c->outputs = by__nn_json_labels(in);
    }
    return by__nn_set_string(&own_keys(c)->head, head->name, error);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    bert_keys *k = own_keys(c);
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", 768, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", 12, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "num_attention_heads", 12, error));
    BY_TRY(by__nn_json_integer(&c->mlp_width, name, in, "intermediate_size", 3072, error));
    BY_TRY(by__nn_json_integer(&c->context, name, in, "max_position_embeddings", 512, error));
    BY_TRY(by__nn_json_integer(&k->segments, name, in, "type_vocab_size", 2, error));
    BY_TRY(by__nn_json_number(&k->norm_eps, name, in, "layer_norm_eps", 1e-12, error));
    BY_TRY(read_head(c, in, error));
    c->kv_heads = c->heads;
    BY_TRY(by__nn_json_expect_bool(name, in, "tie_word_embeddings", true, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "is_decoder", false, error));
    BY_TRY(by__nn_json_expect_bool(name, in, "add_cross_attention", false, error));
    BY_TRY(by__nn_json_expect(name, in, "position_embedding_type", "absolute", error));
    return by__nn_activation_read(c, name, in, "hidden_act", BY_FN_GELU_ERF, error);
}

const by__nn_family by__nn_family_bert = {
    .kind = {.name = "bert",
             .help = "BERT: an encoder of texts; learned positions, GELU.",
             .keys = {&by__nn_token_keys, &key_list, &by__nn_part_keys, &by__nn_norm_keys,
                      &by__nn_mlp_keys},
             .size = sizeof(bert_keys),
             .resolve = resolve},
    .base = "bert.",
    .embedding = "bert.embeddings.word_embeddings.weight",
    .reads = "tokens",
    .encoder = true,
    .adapted = "query value",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"bert", "BertForMaskedLM", true}, {0}},
    .publish = publish,
    .usual_task = usual_task,
    .other_heads = "cls. classifier. bert.pooler. pooler.",
};
