#include "base/node_choice.h"

#include <stdlib.h>
#include <string.h>

bool cli_reads_graph(const by_config *config)
{
    return strcmp(by_model_reads(&config->model), "nodes") == 0;
}

static by_status set_path(by_config *config, const char *key, const char *path, by_error *error)
{
    size_t size = strlen(key) + strlen(path) + 4;
    char *text = malloc(size);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    (void)snprintf(text, size, "%s=%s", key, path[0] == '\0' ? "\"\"" : path);
    by_status status = by_config_set(config, text, error);
    free(text);
    return status;
}

static by_status read_list(cli_node_choice *choice, size_t *count, by_error *error)
{
    size_t most = 1;
    for (const char *c = choice->list; *c != '\0'; c++) {
        most += *c == ',';
    }
    choice->chosen = malloc(most * sizeof *choice->chosen);
    if (choice->chosen == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a list of nodes");
    }
    const char *at = choice->list;
    for (*count = 0; *count < most; ++*count) {
        char *end;
        choice->chosen[*count] = strtoull(at, &end, 10);
        if (at[0] < '0' || at[0] > '9' || (*end != ',' && *end != '\0')) {
            return by_error_set(error, BY_EARG,
                                "--nodes %s: '%s' does not begin with a number of a node",
                                choice->list, at);
        }
        at = end + 1;
    }
    return BY_OK;
}

by_status cli_choose_nodes(by_config *config, by_task_request *request, cli_node_choice *choice,
                           by_error *error)
{
    bool any = choice->list != NULL || choice->graph != NULL || choice->features != NULL;
    if (!cli_reads_graph(config)) {
        return any || request->path == NULL
                   ? by_error_set(error, BY_ECONFIG,
                                  "a model of kind %s reads %s: name a file of them, without "
                                  "--nodes, --graph and --features",
                                  config->model.kind, by_model_reads(&config->model))
                   : BY_OK;
    }
    by_status status = BY_OK;
    if (choice->graph != NULL) {
        status = set_path(config, "data.graph", choice->graph, error);
        if (status == BY_OK && strcmp(config->task.kind, "nodes") == 0) {
            status = set_path(config, "data.labels", "", error);
        }
    }
    if (status == BY_OK && (choice->graph != NULL || choice->features != NULL)) {
        const char *features = choice->features == NULL ? "" : choice->features;
        status = set_path(config, "data.features", features, error);
    }
    if (status == BY_OK && choice->list != NULL) {
        status = read_list(choice, &request->chosen_count, error);
        request->chosen = choice->chosen;
    }
    return status;
}

void cli_node_choice_free(cli_node_choice *choice)
{
    free(choice->chosen);
    choice->chosen = NULL;
}
