/* A model that rates conversations, learned from preferences: the loss of a pair is
 * -log s(r - q) with the rewards r of the chosen and q of the rejected conversation and s the
 * logistic function (Bradley and Terry 1952; Ouyang et al. 2022, eq. 1), and task.center (r + q)^2
 * (Eisenstein et al. 2023). A reward is a product of the last hidden state of the last token with
 * `score.weight`, as in transformers' models for sequence classification with one label. */
#include <string.h>

#include "banyan/ops.h"
#include "graph/graph.h"
#include "nn/nn.h"
#include "tasks/tasks.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/text_data.h"

typedef struct reward_keys {
    by__task_chat_keys chat;
    double center;
} reward_keys;

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"task", "center", BY__KEY_REAL, BY__OWN(reward_keys, center), "0", 0, 1e6,
     .help = "weight of the square of the sum of a pair's rewards, which keeps them around 0"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_reward;

/* ---- loss ---- */

static by_status check_model(const by_config *config, const by_model *model, by_error *error)
{
    return model->hidden != BY_NONE && model->head != BY_NONE &&
                   !by_model_is_encoder(&config->model)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind reward needs a model that continues a text; model.kind %s "
                              "does not",
                              config->model.kind);
}

/* Rewards f32 [batch, 2]: of states [2 batch, time, width] those of the last tokens are chosen by a
 * sum over time. */
static by_value rewards_of(by_graph *graph, const by_model_request *request, by_value states)
{
    int64_t all = 2 * request->batch;
    by_value last =
        by_graph_input(graph, "last", BY_F32, BY_SHAPE(request->batch, 2, request->time));
    last = by_reshape(graph, last, BY_SHAPE(all, request->time, 1));
    by_value rewards = by__nn_score(graph, states, last, 1, 0.02f);
    return by_reshape(graph, rewards, BY_SHAPE(request->batch, 2));
}

static by_value side(by_graph *graph, const by_model_request *request, by_value pairs, int i)
{
    return by_reshape(graph, by_slice(graph, pairs, 1, i, 1), BY_SHAPE(request->batch));
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const reward_keys *k = by__config_kind_own(config->task.own, &by__task_reward.kind);
    BY_TRY(check_model(config, model, error));
    if (config->model.tied != 1) { /* no loss depends on a head of its own */
        by_graph_freeze(graph, model->head);
    }
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(request->batch));
    by_value rewards = rewards_of(graph, request, model->hidden);
    by_value chosen = side(graph, request, rewards, 0);
    by_value rejected = side(graph, request, rewards, 1);
    by_value each = by_unary(graph, by_sub(graph, rejected, chosen), BY_FN_SOFTPLUS);
    if (k->center > 0.0) {
        by_value sum = by_add(graph, chosen, rejected);
        by_value factor = by_fill(graph, BY_F32, BY_SHAPE(1), (float)k->center);
        each = by_add(graph, each, by_scale(graph, by_mul(graph, sum, sum), factor));
    }
    model->loss = by_sum(graph, by_mul(graph, each, weight), &(const int){0}, 1, true);
    if (model->auxiliary != BY_NONE) {
        model->counted = by_sum(graph, weight, &(const int){0}, 1, true);
    }
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : rewards;
    return by_graph_check(graph, error);
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per pair)";
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
    by__task_pairs_measure(sums[SUM_COUNT], sums[SUM_RIGHT], sums[SUM_MARGIN], batch, values,
                           width);
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
    const reward_keys *k = own;
    BY_TRY(by__task_chat_check(config, &k->chat, error));
    if (config->lora.rank > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: adapters have no place for score.weight, which task.kind reward "
                            "learns: set lora.rank to 0",
                            by__config_where(config, "lora.rank", "task.kind"));
    }
    return by__task_pairs_resolve(config, own, error);
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    return by__task_text_open(out, &by__task_reward.task, request, error);
}

const by__task_row by__task_reward = {
    .kind = {.name = "reward",
             .help = "Rewards of conversations, from preferences (docs/preferences.md).",
             .keys = {&by__task_text_source_keys, &by__task_text_training_keys,
                      &by__task_text_held_out_keys, &by__task_chat_template_keys,
                      &by__task_pair_prompt_keys, &by__task_chat_system_keys,
                      &by__task_chat_long_keys, &key_list},
             .size = sizeof(reward_keys),
             .resolve = resolve},
    .task = {.name = "reward",
             .examples = "tokens",
             .best_by_metric = true,
             BY__TASK_LEARNS,
             .open = open_data,
             .close = by__task_text_close,
             .per_sample = by__task_pairs_per_sample,
             .knows = by__task_text_knows,
             .assume = by__task_text_assume,
             .complete = by__task_text_complete,
             .source = by__task_text_source,
             .keep = by__task_text_keep,
             .check = by__task_text_check,
             .encode = by__task_text_encode,
             .decode = by__task_text_decode},
};
