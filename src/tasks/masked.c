/* Masked language modelling (Devlin et al. 2018): predicts the tokens that are hidden in a text,
 * from those on both sides. */
#include <math.h>
#include <string.h>

#include "banyan/data.h"
#include "banyan/ops.h"
#include "banyan/tokenizer.h"
#include "config/kind.h"
#include "graph/graph.h"
#include "tasks/tasks.h"
#include "tasks/text/text_data.h"

/* Columns that the bias of the head takes in its product, of which the first is used: products are
 * fastest at multiples of this. */
#define BIAS_COLUMNS 16

typedef struct masked_keys {
    double share;
    double span;
    char *mask_token;
} masked_keys;

static const by__config_key keys[] = {
    {"task", "mask_share", BY__KEY_REAL, BY__OWN(masked_keys, share), "0.15", 0, 1, BY__ABOVE_MIN,
     .help = "share of the tokens that are predicted; 80 % of them are hidden behind the mask, "
             "10 % behind a random token, and 10 % are seen"},
    {"task", "mask_span", BY__KEY_REAL, BY__OWN(masked_keys, span), "1", 1, 1e6, 0,
     .help = "mean number of neighbouring tokens that are predicted together; 1 is each by itself, "
             "3 to 4 is usual for spans"},
    {"task", "mask_token", BY__KEY_TEXT, BY__OWN(masked_keys, mask_token), "\"[MASK]\"", .min = 1,
     .help = "the tokenizer's token that hides others; without it in the vocabulary, the model "
             "has one more"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_masked;

static const masked_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_masked.kind);
}

/* ---- data ---- */

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    return by__task_text_open(out, &by__task_masked.task, request, error);
}

/* The tokenizer's token that hides others, or the first id behind its vocabulary. special: end of
 * text and the mask, which are not predicted. */
static by_status find_mask(by_mask_options *out, int32_t special[2], const by_task_data *data,
                           const char *token, by_error *error)
{
    by_tokenizer *tokenizer;
    int64_t vocab = by__task_text_vocab(data);
    *out = (by_mask_options){
        .mask = (int32_t)vocab, .random = (int32_t)vocab, .special = special, .special_count = 1};
    special[0] = out->mask;
    if (by__task_text_tokenizer(data) == NULL) {
        return BY_OK;
    }
    BY_TRY(by_tokenizer_open(&tokenizer, by__task_text_tokenizer(data), error));
    int64_t mask = by_tokenizer_token_id(tokenizer, token, strlen(token));
    int64_t eos = by_tokenizer_eos(tokenizer);
    if (mask >= 0) {
        special[0] = out->mask = (int32_t)mask;
    }
    if (eos >= 0) {
        special[out->special_count++] = (int32_t)eos;
    }
    by_tokenizer_close(&tokenizer);
    return BY_OK;
}

static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    by_mask_options mask;
    int32_t special[2];
    BY_TRY(find_mask(&mask, special, data, own_keys(config)->mask_token, error));
    int64_t needed = (int64_t)by__task_text_vocab(data) + (mask.mask >= mask.random);
    if (config->model.vocab < 0) {
        int64_t unit = config->model.pad_vocab_to;
        config->model.vocab = (needed + unit - 1) / unit * unit;
    }
    if (config->model.vocab < needed) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.vocab %lld is less than %lld, the tokenizer's vocabulary "
                            "and a token that hides others, since it has no '%s' "
                            "(task.mask_token)",
                            by__config_where(config, "model.vocab", "task.mask_token"),
                            (long long)config->model.vocab, (long long)needed,
                            own_keys(config)->mask_token);
    }
    return by__task_text_complete(data, config, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    by_source *text;
    by_mask_options mask;
    int32_t special[2];
    BY_TRY(find_mask(&mask, special, data, own_keys(config)->mask_token, error));
    mask.share = own_keys(config)->share;
    mask.span = own_keys(config)->span;
    BY_TRY(by__task_text_source(&text, data, config, training, error));
    return by_masked_source_open(out, text, &mask, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_UNUSED(own);
    if (by__task_keeps_documents(config)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.documents mask is for models that read from left to right; "
                            "task.kind masked needs join",
                            by__config_where(config, "data.documents", "task.kind"));
    }
    if (config->distill.teacher[0] != '\0' || config->distill.logits[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: distillation is for task.kind language; leave `distill` out",
                            by__config_where(config, "distill.teacher", "task.kind"));
    }
    return BY_OK;
}

/* ---- loss ---- */

/* The hidden states of the tokens that are predicted, [batch, targets, width]. */
static by_value predicted(by_graph *graph, const by_model_request *request, by_value hidden,
                          int64_t targets)
{
    by_value slot;
    by_value member;
    by_value range;
    by_shape shape = BY_SHAPE(request->batch, targets, -1);
    by_value chosen =
        by_graph_input(graph, "chosen", BY_I32, BY_SHAPE(request->batch, request->time, 1));
    /* One group, which tokens that are not chosen are not in. */
    by_group(graph, chosen, 1, request->batch * targets, &slot, &member, &range);
    return by_reshape(graph, by_scatter_rows(graph, hidden, slot, member, BY_NONE), shape);
}

/* Head and loss are one operation, which never materializes all logits. The bias of the head is
 * another column of it, by which a one is multiplied. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    if (!by_model_is_encoder(&config->model) || model->hidden == BY_NONE) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind masked needs an encoder of tokens; model.kind %s is none: "
                            "set it to bert, or task.kind to language",
                            config->model.kind);
    }
    /* A program may give the task to a config of another one, with samples of its own. */
    bool own = strcmp(config->task.kind, by__task_masked.task.name) == 0;
    int64_t vocab = config->model.vocab;
    int64_t time = request->time;
    int64_t room = own ? (int64_t)by_mask_targets(own_keys(config)->share, (size_t)time) : time;
    by_value hidden = room == time ? model->hidden : predicted(graph, request, model->hidden, room);
    by_value head = model->head;
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(request->batch, room));
    if (model->head_bias != BY_NONE) {
        by_dtype dtype = graph->values[hidden].dtype;
        by_shape ones = BY_SHAPE(request->batch, room, BIAS_COLUMNS);
        by_value wide[2] = {hidden, by_fill(graph, dtype, ones, 1.0f)};
        by_value bias = by_reshape(graph, model->head_bias, BY_SHAPE(vocab, 1));
        by_value tall[2] = {head, by_pad(graph, bias, 1, 0, BIAS_COLUMNS)};
        hidden = by_concat(graph, wide, 2, 2);
        head = by_concat(graph, tall, 2, 1);
    }
    model->loss = by_linear_cross_entropy(graph, hidden, head, targets);
    return BY_OK;
}

static double perplexity(const by_task_data *data, const double *const *sums,
                         const by_evaluation *evaluation)
{
    BY_UNUSED(data);
    BY_UNUSED(sums);
    return exp(evaluation->loss);
}

static const by_metric metrics[] = {{"perplexity", false, 2, perplexity}};

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per hidden token)";
}

const by__task_row by__task_masked = {
    .kind = {.name = "masked",
             .help = "Prediction of tokens that are hidden in a text, for encoders.",
             .keys = {&by__task_text_source_keys, &by__task_text_plain_keys,
                      &by__task_text_training_keys, &by__task_text_document_keys,
                      &by__task_text_held_out_keys, &key_list},
             .size = sizeof(masked_keys),
             .resolve = resolve},
    .task = {.name = "masked",
             .examples = "tokens",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .loss_label = loss_label,
             .open = open_data,
             .close = by__task_text_close,
             .per_sample = by__task_text_per_sample,
             .knows = by__task_text_knows,
             .assume = by__task_text_assume,
             .complete = complete,
             .source = source,
             .loss = loss,
             .keep = by__task_text_keep,
             .check = by__task_text_check,
             .encode = by__task_text_encode,
             .decode = by__task_text_decode},
};
