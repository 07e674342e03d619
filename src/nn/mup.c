/* The maximal update parameterisation, muP (Yang et al. 2022, "Tensor Programs V", arXiv
 * 2203.03466): initial values and learning rates by tensor, with which activations and their
 * updates have the same size at every width, so that the best learning rate of a narrow model is
 * that of a wide one.
 *
 * With m = width / mup_base_width, the model of the base width is the usual one, and (table 3, for
 * Adam; d is the width of a head):
 *
 *     parameters                     deviation    learning rate
 *     width -> width ("hidden")      / sqrt(m)    / m
 *     width -> finite (head, router) / m          / m
 *     finite -> width (embeddings)   1            1
 *     vectors (biases, norms)        1            1
 *     products of queries and keys   times sqrt(base d / d)
 *
 * Tables 8 and 9 of the paper multiply logits and attention instead. A factor f in front of a
 * parameter is, for Adam, the same as f on its initial value and on its learning rate (lemma J.1):
 * here all factors are folded like that. So the graph is that of the usual model, and so are its
 * kernels and what is exported. A head that is tied to the embedding has no initial value of its
 * own, so the last norm's weights take the factor 1 / m. Decay is by the unscaled learning rate
 * (lemma J.1 asks for it, and the decay of a step must not depend on the width: arXiv 2510.19093).
 */
#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "nn/nn.h"

static const by__config_key keys[] = {
    {"model", "parameterisation", BY__KEY_TEXT, BY__FIELD(model.parameterisation), "standard",
     .choices = "standard|mup", .later = true,
     .help = "how initial weights and learning rates depend on the width; mup: as Yang et al. 2022 "
             "say, so that the best learning rate is the same at every width"},
    {"model", "mup_base_width", BY__KEY_INT, BY__FIELD(model.mup_base_width), "-1", 1, BY__MI20,
     .derived = "width", .later = true,
     .help = "with mup: the width at which all is as in the standard parameterisation, and that lr "
             "and init_std are meant for"},
    {"model", "mup_base_head_dim", BY__KEY_INT, BY__FIELD(model.mup_base_head_dim), "-1", 1,
     BY__MI20, .derived = "that of the model: wider models have more heads", .later = true,
     .help = "with mup: the width of a head at the base width"},
};
const by__config_key_list by__nn_mup_keys = BY__KEY_LIST(keys);

bool by__nn_has_mup(const by_model_config *config)
{
    return config->parameterisation != NULL && strcmp(config->parameterisation, "mup") == 0;
}

by_status by__nn_mup_resolve(by_config *config, by_error *error)
{
    by_model_config *c = &config->model;
    if (!by__nn_has_mup(c)) {
        return BY_OK; /* configs without mup keep the hashes that they had before it */
    }
    c->mup_base_width = c->mup_base_width == -1 ? c->width : c->mup_base_width;
    c->mup_base_head_dim = c->mup_base_head_dim == -1 ? c->head_dim : c->mup_base_head_dim;
    if (config->lora.rank > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.parameterisation mup is for weights that are all trained, "
                            "and lora.rank is %lld: leave it out, which does not change what a "
                            "model of model.from computes",
                            by__config_where(config, "model.parameterisation", "lora.rank"),
                            (long long)config->lora.rank);
    }
    return BY_OK;
}

/* ---- the graph ---- */

/* How many axes of a parameter grow with the width of the model. */
static int growing_axes(const char *axes)
{
    static const char *const growing[] = {"embed", "mlp", "heads", "kv_heads", "qkv"};
    int count = 0;
    while (axes != NULL && *axes != '\0') {
        size_t length = strcspn(axes, " ");
        for (size_t i = 0; i < BY_ARRAY_LENGTH(growing); i++) {
            count += strlen(growing[i]) == length && strncmp(axes, growing[i], length) == 0;
        }
        axes += length;
        axes += strspn(axes, " ");
    }
    return count;
}

static void multiply(by__graph_value *value, double deviation, double rate)
{
    if (value->init.kind == BY_INIT_ONE) {
        value->init = (by_init){BY_INIT_CONSTANT, 1.0f};
    }
    value->init.std = (float)((double)value->init.std * deviation);
    value->lr_scale = (float)((value->lr_scale == 0.0f ? 1.0 : (double)value->lr_scale) * rate);
}

/* Whether a product multiplies by it, other than the head's. */
static bool is_multiplied(const by_graph *graph, by_value v)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (by__mask_has(by__op_row_of(node->op)->factors, 1) && node->in[1] == v) {
            return true;
        }
    }
    return false;
}

/* The weights of the last norm, in front of a tied head. */
static void multiply_last_norm(by__nn_build *b, double factor)
{
    by_graph *graph = b->graph;
    int producer = graph->values[b->model.hidden].producer;
    bool any = false;
    for (int i = 0; producer >= 0 && i < graph->nodes[producer].input_count; i++) {
        by_value in = graph->nodes[producer].in[i];
        by__graph_value *value = in == BY_NONE ? NULL : &graph->values[in];
        if (value != NULL && value->role == BY_ROLE_PARAMETER && !value->statistic) {
            multiply(value, factor, factor);
            any = true;
        }
    }
    if (!any) {
        by__graph_fail(graph, BY_EARG,
                       "model.parameterisation mup with a tied head needs a last norm with "
                       "weights; set model.tied: false");
    }
}

void by__nn_mup_apply(by__nn_build *b, const by__nn_query_scale *queries)
{
    const by_model_config *c = b->config;
    by_graph *graph = b->graph;
    double m = (double)c->width / (double)c->mup_base_width;
    double attention = sqrt((double)c->mup_base_head_dim / (double)c->head_dim);
    if (!by__nn_has_mup(c) || graph->error.status != BY_OK) {
        return;
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        by__graph_value *value = &graph->values[v];
        if (value->role != BY_ROLE_PARAMETER || value->statistic) {
            continue;
        }
        int growing = growing_axes(value->axes);
        bool is_head = (by_value)v == b->model.head;
        bool ends = is_head ? c->tied != 1 : is_multiplied(graph, (by_value)v);
        value->lr_scale = 1.0f;
        if (growing >= 2) {
            multiply(value, 1.0 / sqrt(m), 1.0 / m);
        } else if (growing == 1 && value->shape.rank >= 2 && ends) {
            multiply(value, 1.0 / m, 1.0 / m);
        }
        for (size_t i = 0; queries[i].pattern != NULL; i++) {
            if (fnmatch(queries[i].pattern, value->name, 0) == 0) {
                double factor = pow(attention, queries[i].power);
                multiply(value, factor, factor);
            }
        }
    }
    if (c->tied == 1) {
        multiply_last_norm(b, 1.0 / m);
    }
}
