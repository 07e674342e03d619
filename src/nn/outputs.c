/* Outputs of a model by name. */
#include <string.h>

#include "graph/graph.h"
#include "nn/nn.h"

/* The name of by_model.output. */
#define MAIN "output"

static by_value named(const by_model *model, const char *name)
{
    for (size_t i = 0; i < model->named_count; i++) {
        if (strcmp(model->named[i].name, name) == 0) {
            return model->named[i].value;
        }
    }
    return strcmp(name, MAIN) == 0 ? model->output : BY_NONE;
}

void by_model_register(by_model *model, by_graph *graph, const char *name, by_value value)
{
    if (graph->error.status != BY_OK) {
        return;
    }
    if (strcmp(name, MAIN) == 0 || named(model, name) != BY_NONE) {
        by__graph_fail(graph, BY_EARG, "the model has an output '%s' already", name);
    } else if (model->named_count == BY_MODEL_OUTPUTS) {
        by__graph_fail(graph, BY_EARG, "output '%s': a model registers at most %d", name,
                       BY_MODEL_OUTPUTS);
    } else {
        model->named[model->named_count++] = (by_model_output){name, value};
    }
}

by_status by_model_find_output(by_value *out, const by_model *model, const char *name,
                               by_error *error)
{
    by_value value = named(model, name);
    if (value != BY_NONE) {
        *out = value;
        return BY_OK;
    }
    char names[256] = "";
    size_t at = 0;
    if (model->output != BY_NONE) {
        at = (size_t)snprintf(names, sizeof names, "%s", MAIN);
    }
    for (size_t i = 0; i < model->named_count && at < sizeof names; i++) {
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at == 0 ? "" : ", ",
                               model->named[i].name);
    }
    return by_error_set(error, BY_ECONFIG, "the model has no output '%s'; %s%s", name,
                        names[0] == '\0' ? "it has none by name" : "it has ", names);
}

by_status by__nn_choose_output(by_model *model, const by_model_config *config, by_error *error)
{
    by_error why = {0};
    if (config->output == NULL || config->output[0] == '\0') {
        return BY_OK;
    }
    by_status status = by_model_find_output(&model->output, model, config->output, &why);
    return status == BY_OK ? BY_OK : by_error_set(error, status, "model.output: %s", why.message);
}
