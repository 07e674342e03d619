/* Learning from preferences: of two answers to a prompt the chosen one is to be more probable than
 * the rejected one. With the log-probabilities c and r of both, sums over the tokens of an answer
 * or means, less those of the weights at the start where there is a reference, x = beta (c - r),
 * and s the logistic function, the loss of a pair is
 *
 *   dpo    -log s(x - margin), or (1 - e) of that and e of -log s(margin - x)
 *          (Rafailov et al. 2023, eq. 7; cDPO, Mitchell 2023, with e = task.smoothing)
 *   ipo    (c - r - 1 / (2 beta))^2                              (Azar et al. 2023, eq. 17)
 *   simpo  -log s(x - margin), of means without a reference       (Meng et al. 2024, eq. 6)
 *   orpo   -c - beta log s(o(c) - o(r)), of means without a reference, with the log-odds
 *          o(y) = y - log(1 - exp(y))                            (Hong et al. 2024, eq. 6 and 7)
 *
 * and task.nll times the mean cross-entropy of the chosen answer's tokens in addition. */
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "graph/graph.h"
#include "tasks/tasks.h"
#include "tasks/teacher.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/preference_keys.h"
#include "tasks/text/text_data.h"

extern const by__task_row by__task_preference;

/* ---- objectives ---- */

/* What an objective is computed from: log-probabilities f32 [batch] of the chosen and the rejected
 * answer, less those of the reference. */
typedef struct pair_terms {
    by_graph *graph;
    const by__task_preference_keys *keys;
    by_value chosen;
    by_value rejected;
} pair_terms;

typedef struct objective {
    const char *name;
    bool means; /* of tokens, if task.reduce is auto */
    by_value (*loss)(const pair_terms *terms);
} objective;

static by_value times(by_graph *graph, by_value x, double factor)
{
    return factor == 1.0 ? x
                         : by_scale(graph, x, by_fill(graph, BY_F32, BY_SHAPE(1), (float)factor));
}

static by_value plus(by_graph *graph, by_value x, double term)
{
    return term == 0.0 ? x : by_add(graph, x, by_fill(graph, BY_F32, BY_SHAPE(1), (float)term));
}

/* -log of the logistic function of x. */
static by_value surprise(by_graph *graph, by_value x)
{
    return by_unary(graph, by_unary(graph, x, BY_FN_NEGATE), BY_FN_SOFTPLUS);
}

static by_value logistic(const pair_terms *t)
{
    by_graph *g = t->graph;
    double smoothing = t->keys->smoothing;
    by_value x = times(g, by_sub(g, t->chosen, t->rejected), t->keys->beta);
    x = plus(g, x, -t->keys->margin);
    by_value right = times(g, surprise(g, x), 1.0 - smoothing);
    return smoothing > 0.0 ? by_add(g, right, times(g, by_unary(g, x, BY_FN_SOFTPLUS), smoothing))
                           : right;
}

static by_value square(const pair_terms *t)
{
    by_graph *g = t->graph;
    by_value d = by_sub(g, t->chosen, t->rejected);
    d = plus(g, d, -0.5 / t->keys->beta);
    return by_mul(g, d, d);
}

/* y - log(1 - exp(y)) of a mean log-probability y; exp(y) - 1 is ELU below 0. */
static by_value log_odds(by_graph *graph, by_value y)
{
    by_value rest = by_unary(graph, by_unary(graph, y, BY_FN_ELU), BY_FN_LOG_ABS);
    return by_sub(graph, y, rest);
}

static by_value odds_ratio(const pair_terms *t)
{
    by_graph *g = t->graph;
    by_value x = by_sub(g, log_odds(g, t->chosen), log_odds(g, t->rejected));
    return by_sub(g, times(g, surprise(g, x), t->keys->beta), t->chosen);
}

static const objective objectives[] = {
    {"dpo", false, logistic},
    {"ipo", false, square},
    {"simpo", true, logistic},
    {"orpo", true, odds_ratio},
};

static const objective *objective_of(const by__task_preference_keys *k)
{
    size_t i = 0;
    while (i + 1 < BY_ARRAY_LENGTH(objectives) && strcmp(objectives[i].name, k->loss) != 0) {
        i++;
    }
    return &objectives[i];
}

/* ---- loss ---- */

/* Two values, of the chosen and of the rejected answers, f32 [batch] each. All that is added up and
 * compared here has one axis: such values are computed in f32, whatever the model is (precision
 * casts tensors of two axes and more). */
typedef struct pair_values {
    by_value of[2];
} pair_values;

/* Puts values of one axis behind each other, in groups of as many as one node takes. */
static by_value join(by_graph *graph, by_value *parts, int64_t count)
{
    while (count > 1) {
        int64_t made = 0;
        for (int64_t i = 0; i < count; i += 8) {
            int together = count - i < 8 ? (int)(count - i) : 8;
            parts[made++] = together == 1 ? parts[i] : by_concat(graph, parts + i, together, 0);
        }
        count = made;
    }
    return parts[0];
}

/* Log-probabilities of answers from states of [2 batch, time] tokens, of which those of a pair
 * follow each other. parts [batch] is scratch. */
static pair_values log_probabilities(by_graph *graph, const by_model_request *request,
                                     by_value hidden, by_value head, by_value targets,
                                     by_value *parts)
{
    pair_values out;
    by_value losses = by_linear_token_loss(graph, hidden, head, targets);
    for (int64_t side = 0; side < 2; side++) {
        for (int64_t i = 0; i < request->batch; i++) {
            int64_t row = 2 * i + side;
            by_value own = by_slice(graph, losses, 0, row * request->time, request->time);
            parts[i] = by_sum(graph, own, &(const int){0}, 1, true);
        }
        out.of[side] = by_unary(graph, join(graph, parts, request->batch), BY_FN_NEGATE);
    }
    return out;
}

static pair_values input(by_graph *graph, const by_model_request *request, const char *chosen,
                         const char *rejected)
{
    return (pair_values){{by_graph_input(graph, chosen, BY_F32, BY_SHAPE(request->batch)),
                          by_graph_input(graph, rejected, BY_F32, BY_SHAPE(request->batch))}};
}

/* What the weights at the start make of the pairs. */
static by_status add_reference(pair_values *out, const by_config *config,
                               const by_model_request *request, by_graph *graph, by_value targets,
                               by_value *parts, by_error *error)
{
    by_value hidden;
    by_value head;
    if (request->mode != BY_MODEL_TRAIN || !by__task_has_live_reference(config)) {
        *out = input(graph, request, "reference.chosen", "reference.rejected");
        return BY_OK;
    }
    BY_TRY(by__task_teacher_states(&hidden, &head, config, request, graph, error));
    *out = log_probabilities(graph, request, hidden, head, targets, parts);
    return BY_OK;
}

static by_status check_model(const by_config *config, const by_model *model, by_error *error)
{
    return model->hidden != BY_NONE && model->head != BY_NONE &&
                   !by_model_is_encoder(&config->model)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind preference needs a model that continues a text; "
                              "model.kind %s does not",
                              config->model.kind);
}

/* The values of each pair one after another, for model->evaluated. parts [4 batch] is scratch. */
static by_value interleave(by_graph *graph, const by_model_request *request,
                           const pair_values *first, const pair_values *second, by_value *parts)
{
    const by_value values[] = {first->of[0], first->of[1], second->of[0], second->of[1]};
    for (int64_t i = 0; i < 4 * request->batch; i++) {
        parts[i] = by_slice(graph, values[i % 4], 0, i / 4, 1);
    }
    return by_reshape(graph, join(graph, parts, 4 * request->batch), BY_SHAPE(request->batch, 4));
}

static by_status build(const by_config *config, const by_model_request *request, by_graph *graph,
                       by_model *model, by_value *parts, by_error *error)
{
    const by__task_preference_keys *k = by__task_preference_keys_of(config);
    const objective *o = objective_of(k);
    int64_t batch = request->batch;
    bool means = strcmp(k->reduce, "auto") == 0 ? o->means : strcmp(k->reduce, "mean") == 0;
    by_value targets = by_graph_input(graph, "targets", BY_I32, BY_SHAPE(batch, 2, request->time));
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(batch));
    pair_values share = input(graph, request, "share.chosen", "share.rejected");
    targets = by_reshape(graph, targets, BY_SHAPE(2 * batch * request->time));
    pair_values sums =
        log_probabilities(graph, request, model->hidden, model->head, targets, parts);
    pair_values compared = sums;
    if (by__task_reads_reference(config)) {
        pair_values reference;
        BY_TRY(add_reference(&reference, config, request, graph, targets, parts, error));
        for (int i = 0; i < 2; i++) {
            compared.of[i] = by_sub(graph, compared.of[i], reference.of[i]);
        }
    }
    for (int i = 0; i < 2 && means; i++) {
        compared.of[i] = by_mul(graph, compared.of[i], share.of[i]);
    }
    const pair_terms terms = {
        .graph = graph, .keys = k, .chosen = compared.of[0], .rejected = compared.of[1]};
    by_value each = o->loss(&terms);
    if (k->nll > 0.0) {
        by_value mean = by_mul(graph, sums.of[0], share.of[0]);
        each = by_add(graph, each, times(graph, mean, -k->nll));
    }
    model->loss = by_sum(graph, by_mul(graph, each, weight), &(const int){0}, 1, true);
    if (model->auxiliary != BY_NONE) {
        model->counted = by_sum(graph, weight, &(const int){0}, 1, true);
    }
    if (request->mode != BY_MODEL_TRAIN) {
        const pair_values rewards = {
            {times(graph, compared.of[0], k->beta), times(graph, compared.of[1], k->beta)}};
        model->evaluated = interleave(graph, request, &sums, &rewards, parts);
    }
    return by_graph_check(graph, error);
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    by_value *parts;
    BY_TRY(check_model(config, model, error));
    BY_TRY(by__alloc((void **)&parts, 4 * (size_t)request->batch, sizeof *parts, "pairs", error));
    by_status status = build(config, request, graph, model, parts, error);
    free(parts);
    return status;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "loss of preferences (per pair)";
}

/* ---- metrics ---- */

enum { SUM_COUNT, SUM_RIGHT, SUM_MARGIN };
static const by_task_sum sums_of[] = {[SUM_COUNT] = {.name = "count"},
                                      [SUM_RIGHT] = {.name = "right"},
                                      [SUM_MARGIN] = {.name = "margin"}};

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    BY_UNUSED(data);
    by__task_pairs_measure(sums[SUM_COUNT], sums[SUM_RIGHT], sums[SUM_MARGIN], batch,
                           values + BY_REFERENCE_VALUES, width);
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_RIGHT] / *sums[SUM_COUNT];
}

static double margin(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_MARGIN] / *sums[SUM_COUNT];
}

static const by_metric metrics[] = {{"accuracy", true, 4, accuracy}, {"margin", true, 4, margin}};

/* ---- data ---- */

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const by__task_preference_keys *k = own;
    BY_TRY(by__task_chat_check(config, &k->chat, error));
    if (config->distill.teacher[0] != '\0' || config->distill.logits[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.kind preference learns from no teacher: leave the section "
                            "distill out",
                            by__config_where(config, "distill.teacher", "distill.logits"));
    }
    if (by__task_has_live_reference(config) && config->lora.from[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.reference live computes with model.from, without the "
                            "adapters of lora.from: set task.reference to cached",
                            by__config_where(config, "task.reference", "lora.from"));
    }
    if (by__task_has_live_reference(config) && strcmp(config->lora.base, "full") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.reference live computes with a second copy of the weights, "
                            "which is not in codes as lora.base %s holds them: set task.reference "
                            "to cached",
                            by__config_where(config, "task.reference", "lora.base"),
                            config->lora.base);
    }
    return by__task_pairs_resolve(config, own, error);
}

static by_status open_data(by_task_data **out, const by_task_request *r, by_error *error)
{
    if (by__task_reads_reference(r->config) && by__task_reference_path(r->config)[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s: task.loss %s compares with the weights that training starts from: "
                            "set model.from, or task.loss to simpo or orpo",
                            by__config_where(r->config, "task.loss", "task.kind"),
                            by__task_preference_keys_of(r->config)->loss);
    }
    return by__task_text_open(out, &by__task_preference.task, r, error);
}

/* Those who evaluate a run have its weights in the place of model.from, so the path of those at the
 * start is a setting of its own. */
static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    if (by__task_reads_reference(config) &&
        by__task_preference_keys_of(config)->reference_from[0] == '\0') {
        by_string setting = {0};
        by__string_append(&setting, "task.reference_from=");
        by_string_json(&setting, config->model.from, strlen(config->model.from));
        by_status status = setting.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                                          : by_config_set(config, setting.data, error);
        by_string_free(&setting);
        BY_TRY(status);
    }
    return by__task_text_complete(data, config, error);
}

const by__task_row by__task_preference = {
    .kind = {.name = "preference",
             .help = "Answers that are preferred to others (docs/preferences.md).",
             .keys = {&by__task_text_source_keys, &by__task_text_training_keys,
                      &by__task_text_held_out_keys, &by__task_chat_template_keys,
                      &by__task_pair_prompt_keys, &by__task_chat_system_keys,
                      &by__task_pair_learn_keys, &by__task_chat_long_keys,
                      &by__task_preference_key_list},
             .size = sizeof(by__task_preference_keys),
             .resolve = resolve},
    .task = {.name = "preference",
             .examples = "tokens",
             BY__TASK_LEARNS,
             .reference = &by__task_pair_reference,
             .open = open_data,
             .close = by__task_text_close,
             .per_sample = by__task_pairs_per_sample,
             .knows = by__task_text_knows,
             .assume = by__task_text_assume,
             .complete = complete,
             .source = by__task_text_source,
             .keep = by__task_text_keep,
             .check = by__task_text_check,
             .encode = by__task_text_encode,
             .decode = by__task_text_decode},
};
