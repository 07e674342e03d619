/* Compares config.json of a directory with its tensors. */
#include <string.h>

#include "checkpoint/storage.h"
#include "export/export.h"
#include "nn/nn.h"

/* Weights for embeddings have no head. */
static bool is_head(const char *name)
{
    return strcmp(name, "lm_head.weight") == 0;
}

/* Compares the shapes of the parameters of a graph with those of files, or lists the names of those
 * that are new. */
static by_status compare(const by_graph *graph, const by_config *config, const by_weights *weights,
                         const by_string_list *anew, by_string *names, by_error *error)
{
    by_device *device;
    by__store *store = NULL;
    int flat;
    by__nn_file_names in_files = by__nn_model_file_names(&config->model);
    const by__checkpoint_load_options options = {.family = in_files.family,
                                                 .base = in_files.base,
                                                 .may_lack = is_head,
                                                 .anew = anew == NULL ? NULL : anew->items,
                                                 .anew_count = anew == NULL ? 0 : anew->count,
                                                 .exact = names == NULL};
    const by__store_flat_spec spec = {
        .role = BY__COPY, .dtype = BY_DTYPE_COUNT, .groups = (1u << BY__GROUPS) - 1};
    BY_TRY(by_device_open(&device, "cpu", 1, error));
    by_status status = by__store_open(&store, device, error);
    if (status == BY_OK) {
        status = by__nn_declare_parameters(store, graph, error);
    }
    if (status == BY_OK) {
        status = by__store_add_flat(store, &spec, &flat, error);
    }
    if (status == BY_OK) {
        status = names == NULL ? by__checkpoint_store_check(store, flat, weights, &options, error)
                               : by__checkpoint_store_initialized(names, store, flat, weights,
                                                                  &options, error);
    }
    by__store_close(&store);
    by_device_close(&device);
    return status;
}

static by_status compare_model(const by_config *config, const by_weights *weights,
                               const by_string_list *anew, by_string *names, by_error *error)
{
    by_graph *graph;
    by_model model = BY_MODEL_NONE;
    const by_model_request request = {.mode = BY_MODEL_LOSS, .batch = 1, .time = 1};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by_model_build(&model, graph, &config->model, &request, error);
    if (status == BY_OK) {
        status = compare(graph, config, weights, anew, names, error);
    }
    by_graph_close(&graph);
    return status;
}

by_status by__export_check_shapes(const by_config *config, const by_weights *weights,
                                  const by_string_list *anew, by_error *error)
{
    return compare_model(config, weights, anew, NULL, error);
}

by_status by__export_new_parameters(by_string *names, const by_config *config,
                                    const by_weights *weights, by_error *error)
{
    return compare_model(config, weights, &config->model.new_parameters, names, error);
}
