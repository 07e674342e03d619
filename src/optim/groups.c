/* Parameters with individual rates: groups by name, and learning rates that fall with the distance
 * of a block from the end of the model (ELECTRA: Clark et al. 2020; BEiT: Bao et al. 2022): lr
 * layer_decay^(L + 1 - l) for block l = 1 .. L, embeddings being l = 0, norm and head l = L + 1. */
#include <float.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "nn/nn.h"
#include "optim/optim.h"

static const by_parameter_group *group_at(const by_optimizer_config *config, size_t i)
{
    return (const by_parameter_group *)config->groups.items + i;
}

static bool matches(const by_parameter_group *group, const char *name)
{
    return fnmatch(group->match, name, 0) == 0;
}

/* The first group that a name matches; NULL: none. */
static const by_parameter_group *find_group(const by_optimizer_config *config, const char *name)
{
    for (size_t i = 0; i < config->groups.count; i++) {
        if (matches(group_at(config, i), name)) {
            return group_at(config, i);
        }
    }
    return NULL;
}

bool by__optim_groups_have_rates(const by_config *c)
{
    const by_optimizer_config *config = &c->optimizer;
    bool rates = config->layer_decay != 1.0 || by__nn_has_mup(&c->model);
    for (size_t i = 0; i < config->groups.count && !rates; i++) {
        const by_parameter_group *group = group_at(config, i);
        rates = group->frozen != 1 && (group->lr_scale != 1.0 || group->weight_decay != -1.0);
    }
    return rates;
}

/* ---- the graph of a model ---- */

static bool is_parameter(const by_graph *graph, size_t v)
{
    return graph->values[v].role == BY_ROLE_PARAMETER;
}

/* Lists the names closest to a pattern that matches none: "a, b". */
static void add_nearest(by_string *out, const char *const *names, size_t count, const char *match)
{
    enum { SHOWN = 3 };
    const char *near[SHOWN] = {NULL};
    for (size_t k = 0; k < SHOWN; k++) {
        size_t least = SIZE_MAX;
        for (size_t i = 0; i < count; i++) {
            bool seen = false;
            for (size_t j = 0; j < k; j++) {
                seen = seen || near[j] == names[i];
            }
            size_t distance = seen ? SIZE_MAX : by__edit_distance(match, names[i]);
            if (distance < least) {
                least = distance;
                near[k] = names[i];
            }
        }
        if (near[k] != NULL) {
            by_string_format(out, "%s%s", k == 0 ? "" : ", ", near[k]);
        }
    }
}

static by_status refuse_pattern(const char *const *names, size_t count, const char *match,
                                by_error *error)
{
    by_string near = {0};
    add_nearest(&near, names, count, match);
    by_status status = by_error_set(
        error, BY_ECONFIG, "optimizer.groups: \"%.100s\" matches no parameter; the nearest are %s",
        match, near.failed || near.length == 0 ? "none" : near.data);
    by_string_free(&near);
    return status;
}

/* Each group must be the first match of some name: a group without parameters is a mistake. */
static by_status check_patterns(const by_graph *graph, const by_optimizer_config *config,
                                by_error *error)
{
    const char **names;
    size_t count = 0;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&names, graph->value_count + 1, sizeof *names, "names", error));
    for (size_t v = 0; v < graph->value_count; v++) {
        if (is_parameter(graph, v)) {
            names[count++] = graph->values[v].name;
        }
    }
    bool *used = NULL; /* of each group: it is the first match of a name */
    if (config->groups.count > count) {
        status = by_error_set(error, BY_ECONFIG,
                              "optimizer.groups: %zu groups are more than the model's %zu "
                              "parameters, of which each group must match one",
                              config->groups.count, count);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&used, config->groups.count + 1, sizeof *used, "groups", error);
    }
    for (size_t k = 0; k < count && status == BY_OK; k++) {
        const by_parameter_group *group = find_group(config, names[k]);
        if (group != NULL) {
            used[group - group_at(config, 0)] = true;
        }
    }
    for (size_t i = 0; i < config->groups.count && status == BY_OK; i++) {
        const by_parameter_group *group = group_at(config, i);
        bool any = used[i];
        for (size_t k = 0; k < count && !any; k++) {
            any = matches(group, names[k]);
        }
        if (!any) {
            status = refuse_pattern(names, count, group->match, error);
        } else if (!used[i]) {
            status = by_error_set(error, BY_ECONFIG,
                                  "optimizer.groups: everything that \"%.100s\" matches belongs to "
                                  "earlier groups: put it before them",
                                  group->match);
        }
    }
    free(used);
    free(names);
    return status;
}

/* Marks the orientation of matrices: y = x W has W [inputs, outputs], y = x W^T the opposite. */
static void mark_inputs(by_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        bool multiplies = by__mask_has(by__op_row_of(node->op)->factors, 1);
        if (multiplies && node->in[1] != BY_NONE && !node->attrs.trans_b &&
            is_parameter(graph, (size_t)node->in[1])) {
            graph->values[node->in[1]].inputs_first = true;
        }
    }
}

by_status by__optim_groups_apply(by_graph *graph, const by_optimizer_config *config,
                                 by_error *error)
{
    mark_inputs(graph);
    BY_TRY(check_patterns(graph, config, error));
    for (size_t v = 0; v < graph->value_count; v++) {
        const by_parameter_group *group =
            is_parameter(graph, v) ? find_group(config, graph->values[v].name) : NULL;
        if (group != NULL && group->frozen == 1) {
            by_graph_freeze(graph, (by_value)v);
        }
    }
    return by_graph_check(graph, error);
}

/* Number of parts of the model after the one that contains a parameter: blocks, then what follows
 * them. */
static int64_t parts_behind(const by_graph *graph, by_value parameter)
{
    int64_t blocks = 0;
    bool behind = false; /* a block precedes the parameter */
    for (size_t v = 0; v < graph->value_count; v++) {
        if (is_parameter(graph, v) && graph->values[v].block >= 0) {
            blocks = graph->values[v].block >= blocks ? graph->values[v].block + 1 : blocks;
            behind = behind || (by_value)v < parameter;
        }
    }
    int64_t block = graph->values[parameter].block;
    int64_t part = block >= 0 ? block + 1 : behind ? blocks + 1 : 0;
    return blocks + 1 - part;
}

void by__optim_groups_set_rates(by_update_unit *unit, const by_graph *graph,
                                const by_optimizer_config *config, const char *name)
{
    by_value parameter = by_graph_find(graph, name);
    const by_parameter_group *group = find_group(config, name);
    double scale = group == NULL ? 1.0 : group->lr_scale;
    if (config->layer_decay != 1.0 && parameter != BY_NONE) {
        scale *= pow(config->layer_decay, (double)parts_behind(graph, parameter));
    }
    unit->inputs_first = parameter != BY_NONE && graph->values[parameter].inputs_first;
    if (parameter != BY_NONE && graph->values[parameter].lr_scale > 0.0f) {
        double rate = (double)graph->values[parameter].lr_scale;
        scale *= rate;
        unit->decay_scale = (float)(1.0 / rate);
    }
    unit->lr_scale = scale < (double)FLT_MIN ? FLT_MIN : (float)scale;
    unit->own_decay = group != NULL && group->weight_decay != -1.0;
    unit->weight_decay = unit->own_decay ? (float)group->weight_decay : 0.0f;
}
