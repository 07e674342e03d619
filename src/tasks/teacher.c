/* The teacher of a distillation: its graph within the student's, the loss relative to it, and its
 * weights. */
#include "tasks/teacher.h"

#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "data/corpus/logit_store.h"
#include "export/export.h"
#include "nn/nn.h"
#include "tasks/tasks.h"
#include "tasks/text/preference_keys.h"
#include "text/tokenizer/vocabulary.h"

bool by__task_has_teacher(const by_config *config)
{
    return config->distill.teacher[0] != '\0' || by__task_has_live_reference(config);
}

const char *by__task_teacher_key(const by_config *config)
{
    return by__task_has_live_reference(config) ? "task.reference_from" : "distill.teacher";
}

static const char *path_of(const by_config *config)
{
    return by__task_has_live_reference(config) ? by__task_reference_path(config)
                                               : config->distill.teacher;
}

/* ---- the directory ---- */

/* Finds a run's newest checkpoint, or the directory itself. */
static by_status find_directory(char **out, const by_config *config, by_error *error)
{
    const char *path = path_of(config);
    char *root = by__path_join(path, "checkpoints");
    by_status status = BY_OK;
    if (root != NULL && by__path_is_dir(root)) {
        status = by_checkpoint_latest(root, out, NULL, error);
    } else {
        *out = root == NULL ? NULL : by__strdup(path);
        status = *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
    }
    free(root);
    return status;
}

static by_status add_own_adapter(by_weights *weights, const char *directory, by_error *error)
{
    by_adapter *adapter;
    char *file = by__path_join(directory, BY_ADAPTER_CONFIG);
    if (file == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    bool there = by__path_exists(file);
    free(file);
    if (!there) {
        return BY_OK;
    }
    BY_TRY(by_adapter_open(&adapter, directory, error));
    return by_weights_adapt(weights, &adapter, false, error);
}

by_status by__task_teacher_open_weights(by_weights **out, const by_config *config, by_error *error)
{
    char *directory = NULL;
    by_weights *weights = NULL;
    BY_TRY(find_directory(&directory, config, error));
    by_status status = by_weights_open(&weights, directory, error);
    if (status == BY_OK) {
        status = add_own_adapter(weights, directory, error);
    }
    free(directory);
    if (status != BY_OK) {
        by_weights_close(&weights);
        return by_error_prefix(error, status, "%s", by__task_teacher_key(config));
    }
    *out = weights;
    return BY_OK;
}

by_status by__task_teacher_config(by_config **out, const by_config *config, by_error *error)
{
    by_config *theirs = NULL;
    by_weights *weights;
    BY_TRY(by__task_teacher_open_weights(&weights, config, error));
    const char *json = by_weights_config(weights);
    by_status status = by__config_like(&theirs, config, error);
    if (status == BY_OK) {
        status = json == NULL ? by_error_set(error, BY_EFORMAT, "%s: there is no config.json",
                                             path_of(config))
                              : by_model_config_from_json(&theirs->model, path_of(config), json,
                                                          strlen(json), error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(theirs, error);
    }
    if (status == BY_OK) {
        status = by__export_check_shapes(theirs, weights, NULL, error);
    }
    by_weights_close(&weights);
    if (status == BY_OK && theirs->model.vocab != config->model.vocab) {
        status = by_error_set(
            error, BY_ECONFIG,
            "%s=%s has a vocabulary of %lld tokens, the model that is trained one "
            "of %lld: both must be of one tokenizer, and model.vocab %lld%s",
            by__task_teacher_key(config), path_of(config), (long long)theirs->model.vocab,
            (long long)config->model.vocab, (long long)theirs->model.vocab,
            by__task_has_live_reference(config) ? ", unless task.reference is cached" : "");
    }
    if (status != BY_OK) {
        by_config_close(&theirs);
        return status;
    }
    *out = theirs;
    return BY_OK;
}

by_status by__task_teacher_check_tokenizer(const by_config *config, const char *hash,
                                           by_error *error)
{
    bool same = true;
    char own[9];
    char *directory = NULL;
    if (config->distill.teacher[0] == '\0') { /* the start has the tokenizer that was compared */
        return BY_OK;
    }
    by_status status = find_directory(&directory, config, error);
    if (status == BY_OK) {
        status = by__tokenizer_model_has_same(&same, own, directory, hash, error);
    }
    if (status != BY_OK) {
        status = by_error_prefix(error, status, "distill.teacher");
    } else if (!same) {
        status =
            by_error_set(error, BY_ECONFIG,
                         "distill.teacher=%s has another tokenizer (%s) than the training data "
                         "(%.8s): set data.tokenizer=%s, or pack the data with --tokenizer %s",
                         config->distill.teacher, own, hash, directory, directory);
    }
    free(directory);
    return status;
}

/* ---- the graph ---- */

static by_status build_teacher(by_graph **out, by_model *model, const by_config *theirs,
                               const char *key, const by_model_request *request, by_error *error)
{
    by_graph *graph;
    by_model_request loss = *request;
    loss.mode = BY_MODEL_LOSS; /* no dropout */
    if (!by_model_is_rotary(&theirs->model) && request->time > theirs->model.context) {
        return by_error_set(error, BY_ECONFIG,
                            "the teacher has a context of %lld, the student one of %lld: set "
                            "model.context to at most the teacher's",
                            (long long)theirs->model.context, (long long)request->time);
    }
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by_model_build(model, graph, &theirs->model, &loss, error);
    if (status == BY_OK && (model->hidden == BY_NONE || model->head == BY_NONE)) {
        status =
            by_error_set(error, BY_ECONFIG, "model.kind %s reads %s, and the student reads tokens",
                         theirs->model.kind, by_model_reads(&theirs->model));
    }
    if (status != BY_OK) {
        by_graph_close(&graph);
        return by_error_prefix(error, status, "%s", key);
    }
    *out = graph;
    return BY_OK;
}

/* Adds the teacher's nodes to the graph. */
static by_status graft(by_teacher *out, const by_config *config, const by_model_request *request,
                       by_graph *graph, by_error *error)
{
    by_config *theirs;
    by_graph *source = NULL;
    by_model model;
    by_value *map = NULL;
    BY_TRY(by__task_teacher_config(&theirs, config, error));
    by_status status =
        build_teacher(&source, &model, theirs, by__task_teacher_key(config), request, error);
    by_config_close(&theirs);
    BY_TRY(status);
    status = by__alloc((void **)&map, source->value_count, sizeof *map, "the teacher", error);
    if (status == BY_OK) {
        status = by__graph_graft(graph, source, BY__TEACHER, map, error);
    }
    if (status == BY_OK) {
        *out = (by_teacher){map[model.hidden], map[model.head], BY_NONE, BY_NONE};
    }
    free(map);
    by_graph_close(&source);
    return status;
}

/* Loss of the hidden states: hidden / D times the sum of squares of P h - h' over the rows with a
 * target, with the student's h [..., C], the teacher's h' [..., D] and P [D, C], which is learned
 * (Romero et al. 2015). */
static by_value hidden_loss(by_graph *graph, by_value student, by_value teacher, by_value targets,
                            double weight)
{
    if (graph->error.status != BY_OK) {
        return BY_NONE;
    }
    int64_t in = by__op_last_dim(&graph->values[student].shape);
    int64_t out = by__op_last_dim(&graph->values[teacher].shape);
    by_value projection = by_graph_parameter(graph, BY__DISTILL "projection.weight", "",
                                             BY_SHAPE(out, in), (by_init){BY_INIT_NORMAL, 0.02f});
    by_value projected = by_linear(graph, student, projection, BY_NONE, true);
    by_value target = by_cast(graph, teacher, BY_F32);
    by_value sum = by_squared_error(graph, projected, target, targets);
    return by_scale(graph, sum, by_fill(graph, BY_F32, BY_SHAPE(1), (float)(weight / (double)out)));
}

by_status by__task_teacher_states(by_value *hidden, by_value *head, const by_config *config,
                                  const by_model_request *request, by_graph *graph, by_error *error)
{
    by_teacher teacher;
    BY_TRY(graft(&teacher, config, request, graph, error));
    *hidden = teacher.hidden;
    *head = teacher.head;
    return BY_OK;
}

by_status by__task_teacher_loss(const by_config *config, const by_model_request *request,
                                by_graph *graph, by_model *model, by_value targets, by_error *error)
{
    const by_distill_config *d = &config->distill;
    by_teacher teacher;
    BY_TRY(graft(&teacher, config, request, graph, error));
    model->loss = by_linear_distill(graph, model->hidden, model->head, targets, &teacher,
                                    (float)d->temperature, (float)d->weight);
    if (d->hidden > 0.0) {
        by_value hidden = hidden_loss(graph, model->hidden, teacher.hidden, targets, d->hidden);
        model->loss = by_add(graph, model->loss, hidden);
    }
    return by_graph_check(graph, error);
}

by_status by__task_stored_loss(const by_config *config, const by_model_request *request,
                               by_graph *graph, by_model *model, by_value targets, by_error *error)
{
    const by_distill_config *d = &config->distill;
    by_teacher teacher = {BY_NONE, BY_NONE, BY_NONE, BY_NONE};
    by__data_logit_manifest manifest;
    by_status status = by__data_logit_manifest_read(&manifest, d->logits, error);
    if (status != BY_OK) {
        return by_error_prefix(error, status, "distill.logits");
    }
    int64_t top = (int64_t)manifest.top;
    by__data_logit_manifest_free(&manifest);
    if (top > config->model.vocab) {
        return by_error_set(error, BY_ECONFIG,
                            "distill.logits=%s has %lld tokens of each position, and model.vocab "
                            "is %lld",
                            d->logits, (long long)top, (long long)config->model.vocab);
    }
    teacher.ids =
        by_graph_input(graph, "teacher.ids", BY_I32, BY_SHAPE(request->batch, request->time, top));
    teacher.logarithms = by_graph_input(graph, "teacher.logarithms", BY_F32,
                                        BY_SHAPE(request->batch, request->time, top + 1));
    by__graph_set_axes(graph, teacher.ids, "batch time top");
    by__graph_set_axes(graph, teacher.logarithms, "batch time top");
    model->loss = by_linear_distill(graph, model->hidden, model->head, targets, &teacher,
                                    (float)d->temperature, (float)d->weight);
    return by_graph_check(graph, error);
}
