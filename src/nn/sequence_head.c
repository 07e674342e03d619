/* Outputs for a whole text of families that read from left to right: a product of the last hidden
 * state of the last token that is no padding, with `score.weight`, as in transformers'
 * ...ForSequenceClassification. A model has them, instead of logits of tokens, if model.outputs is
 * set. */
#include <string.h>

#include "nn/nn.h"

static const by__config_key keys[] = {
    {"model", "outputs", BY__KEY_INT, BY__FIELD(model.outputs), "-1", 1, BY__MI24, .later = true,
     .derived = "what the data has, with task.kind classify and regress; other tasks have none",
     .help =
         "classes, or predicted numbers, of a text: the model then ends in score.weight instead "
         "of logits of tokens"},
};
const by__config_key_list by__nn_sequence_keys = BY__KEY_LIST(keys);

bool by__nn_ends_in_score(const by__nn_family *family, const by_model_config *config)
{
    return strcmp(family->reads, "tokens") == 0 && !family->encoder && config->outputs > 0;
}

by_status by__nn_sequence_resolve(by_config *config, by_error *error)
{
    const char *task = config->task.kind;
    bool rates = strcmp(task, "classify") == 0 || strcmp(task, "regress") == 0;
    if (!rates && by__config_is_given(config, "model.outputs") && config->model.outputs > 0) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s: model.outputs %lld is for texts that task.kind classify or regress "
            "rates; task.kind %s has logits of tokens: leave it out",
            by__config_where(config, "model.outputs", "task.kind"),
            (long long)config->model.outputs, task);
    }
    if (rates && by__nn_has_mup(&config->model)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.parameterisation mup is for models that end in logits of "
                            "tokens, and task.kind %s has outputs of texts: leave it out",
                            by__config_where(config, "model.parameterisation", "task.kind"), task);
    }
    config->model.outputs = rates ? config->model.outputs : -1;
    return BY_OK;
}

by_value by__nn_language_head(by__nn_build *b, by_value table)
{
    const by_model_config *c = b->config;
    return c->outputs > 0 ? BY_NONE
           : c->tied      ? table
                          : by__nn_weight(b, "vocab embed", BY_SHAPE(c->vocab, c->width),
                                          by__nn_init_normal(b), "lm_head.weight");
}

by_value by__nn_score(by_graph *graph, by_value states, by_value last, int64_t outputs, float std)
{
    if (!by__graph_has(graph, states) || !by__graph_has(graph, last)) {
        return BY_NONE;
    }
    int64_t width = by__op_last_dim(&graph->values[states].shape);
    by_value score = by_graph_parameter(graph, BY__SCORE, "class embed", BY_SHAPE(outputs, width),
                                        (by_init){BY_INIT_NORMAL, std});
    by_value x = by_sum(graph, by_mul(graph, states, last), &(const int){1}, 1, false);
    return by_cast(graph, by_linear(graph, x, score, BY_NONE, true), BY_F32);
}

void by__nn_sequence_add(by__nn_build *b)
{
    const by_model_request *r = b->request;
    by_value last = by_graph_input(b->graph, "last", BY_F32, BY_SHAPE(r->batch, r->time));
    last = by_reshape(b->graph, last, BY_SHAPE(r->batch, r->time, 1));
    b->model.output = by__nn_score(b->graph, b->model.hidden, last, b->config->outputs,
                                   (float)b->config->init_std);
}

/* ---- config.json ---- */

/* What transformers calls the models of each architecture. */
static const char suffix[] = "ForSequenceClassification";

static void name_architecture(char out[128], const char *language)
{
    static const char *const others[] = {"ForCausalLM", "LMHeadModel"};
    size_t length = strlen(language);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        const char *end = strstr(language, others[i]);
        length = end == NULL ? length : (size_t)(end - language);
    }
    (void)snprintf(out, 128, "%.*s%s", (int)length, language, suffix);
}

void by__nn_sequence_write(json_t *out, const by_model_config *config, int64_t eos)
{
    char name[128];
    json_t *list = json_object_get(out, "architectures");
    name_architecture(name, json_string_value(json_array_get(list, 0)));
    (void)json_array_set_new(list, 0, json_string(name));
    by__nn_json_write_labels(out, config->outputs);
    /* Of several texts, transformers finds the last token by this. */
    (void)json_object_set_new(out, "pad_token_id", eos < 0 ? json_null() : json_integer(eos));
}

void by__nn_sequence_read(by_model_config *config, const json_t *in)
{
    const char *name = json_string_value(json_array_get(json_object_get(in, "architectures"), 0));
    size_t length = name == NULL ? 0 : strlen(name);
    bool ends = length >= sizeof suffix && strcmp(name + length + 1 - sizeof suffix, suffix) == 0;
    config->outputs = ends ? by__nn_json_labels(in) : -1;
}
