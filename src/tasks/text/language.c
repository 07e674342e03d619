/* Language modelling: predicts each token from those before it. */
#include <math.h>

#include "banyan/ops.h"
#include "config/kind.h"
#include "graph/graph.h"
#include "tasks/tasks.h"
#include "tasks/teacher.h"
#include "tasks/text/documents.h"
#include "tasks/text/language.h"
#include "tasks/text/text_data.h"

/* ---- loss and metrics ---- */

/* Head and loss are one operation, which never materializes all logits. */
by_status by__task_language_loss(const by_config *config, const by_model_request *request,
                                 by_graph *graph, by_model *model, by_error *error)
{
    if (model->hidden == BY_NONE || model->head == BY_NONE) {
        return by_error_set(
            error, BY_ECONFIG,
            "task.kind %s needs a model of tokens; model.kind %s reads %s: set task.kind "
            "to classify or regress",
            config->task.kind, config->model.kind, by_model_reads(&config->model));
    }
    if (by_model_is_encoder(&config->model)) {
        return by_error_set(
            error, BY_ECONFIG,
            "task.kind %s predicts each token from those before it, and model.kind %s "
            "sees all of them: set task.kind to masked",
            config->task.kind, config->model.kind);
    }
    bool weighted = by__task_weighs_targets(config);
    by_value weights = BY_NONE;
    by_value targets =
        by_graph_input(graph, "targets", BY_I32, BY_SHAPE(request->batch, request->time));
    by__graph_set_axes(graph, targets, "batch time");
    if (request->mode == BY_MODEL_TRAIN && by__task_has_teacher(config)) {
        BY_TRY(by__task_teacher_loss(config, request, graph, model, targets, error));
    } else if (request->mode == BY_MODEL_TRAIN && config->distill.logits[0] != '\0') {
        BY_TRY(by__task_stored_loss(config, request, graph, model, targets, error));
    } else if (weighted) {
        weights = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(request->batch, request->time));
        by__graph_set_axes(graph, weights, "batch time");
        model->loss =
            by_weighted_linear_cross_entropy(graph, model->hidden, model->head, targets, weights);
    } else {
        model->loss = by_linear_cross_entropy(graph, model->hidden, model->head, targets);
    }
    if (model->auxiliary != BY_NONE && weighted) {
        by_value sum = by_sum(graph, weights, (const int[]){0, 1}, 2, true);
        model->counted = by_reshape(graph, sum, BY_SHAPE(1));
    } else if (model->auxiliary != BY_NONE) {
        by_value ids = by_count_ids(graph, targets, config->model.vocab);
        model->counted = by_sum(graph, ids, &(const int){0}, 1, true);
    }
    return BY_OK;
}

double by__task_perplexity(const by_task_data *base, const double *const *sums,
                           const by_evaluation *evaluation)
{
    BY_UNUSED(base);
    BY_UNUSED(sums);
    return exp(evaluation->loss);
}

/* From the average number of bytes per token, over the whole set; 0 if that is unknown. */
static double bits_per_byte(const by_task_data *base, const double *const *sums,
                            const by_evaluation *evaluation)
{
    uint64_t tokens;
    uint64_t bytes;
    BY_UNUSED(sums);
    by__task_text_valid_size(base, &tokens, &bytes);
    return bytes > 0 ? evaluation->loss / log(2.0) * (double)tokens / (double)bytes : 0.0;
}

static const by_metric metrics[] = {{"perplexity", false, 2, by__task_perplexity},
                                    {"bits_per_byte", false, 4, bits_per_byte}};

/* ---- predictions ---- */

static by_status predict(by_task_data *base, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    by__task_document_loss result;
    BY_UNUSED(values);
    BY_UNUSED(width);
    BY_UNUSED(error);
    if (by__task_documents_add(by__task_text_documents(base), batch->first_sample, sum, &result)) {
        const by_field fields[] = {
            {.name = "index", .number = (double)result.document, .is_whole = true},
            {.name = "loss", .number = result.loss},
            {.name = "perplexity", .number = exp(result.loss)},
            {.name = "tokens", .number = (double)result.targets, .is_whole = true}};
        report(user, fields, BY_ARRAY_LENGTH(fields));
    }
    return BY_OK;
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    return by__task_text_open(out, &by__task_language.task, request, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_TRY(by__task_weights_check(config, own, error));
    return by__task_data_mix_resolve(config, own, error);
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per token)";
}

const by__task_row by__task_language = {
    .kind = {.name = "language",
             .help = "Prediction of the next token of text.",
             .keys = {&by__task_text_source_keys, &by__task_text_plain_keys,
                      &by__task_text_training_keys, &by__task_text_document_keys,
                      &by__task_text_held_out_keys, &by__task_weight_keys},
             .size = sizeof(by__task_language_keys),
             .resolve = resolve},
    .task = {.name = "language",
             .examples = "tokens",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .loss_label = loss_label,
             .open = open_data,
             .close = by__task_text_close,
             .per_sample = by__task_text_per_sample,
             .knows = by__task_text_knows,
             .assume = by__task_text_assume,
             .complete = by__task_text_complete,
             .source = by__task_text_source,
             .loss = by__task_language_loss,
             .keep = by__task_text_keep,
             .check = by__task_text_check,
             .predict = predict,
             .encode = by__task_text_encode,
             .decode = by__task_text_decode},
};
