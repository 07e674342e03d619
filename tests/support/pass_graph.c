#include "pass_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner.h"
#include "trainer/state/train.h"

by_config *pass_config(const char *const *settings, size_t count)
{
    by_error error = {0};
    by_config *config;
    static const char *const common[] = {
        "model.layers=3", "model.heads=4",     "model.width=32", "model.context=16",
        "model.vocab=50", "model.dropout=0.1", "train.batch=4",  "model.init_std=0.1"};
    check_ok(by_config_default(&config, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(common); i++) {
        check_ok(by_config_set(config, common[i], &error), &error);
    }
    for (size_t i = 0; i < count; i++) {
        check_ok(by_config_set(config, settings[i], &error), &error);
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

by_graph *pass_graph(const by_config *config, const char *stage)
{
    by_error error = {0};
    by_graph *graph;
    check_ok(by_train_graph(&graph, NULL, config, NULL, NULL, stage, &error), &error);
    return graph;
}

int pass_count_ops(const by_graph *graph, by_op op)
{
    int count = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        count += graph->nodes[n].op == op;
    }
    return count;
}

by_dtype pass_dtype(const by_graph *graph, by_value value)
{
    return graph->values[value].dtype;
}

by_value pass_parameter(by_graph *graph, const char *name, by_shape shape)
{
    return by_graph_parameter(graph, name, NULL, shape, (by_init){0});
}
