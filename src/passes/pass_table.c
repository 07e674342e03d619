#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* The order in which passes run. Precision comes first, so that gradients are derived from a
 * graph that has its casts, and from the codes of frozen weights. Synchronising changes what
 * both passes of a norm compute. Sharding handles both forward and backward pass. Passes that
 * save memory come before fusion, which would hide the nodes that they look for. Observation
 * comes after everything that changes values. The order of nodes comes last, first for memory
 * and then for collectives. */
static const by__pass *const passes[] = {
    &by__pass_precision, &by__pass_quantise_frozen, &by__pass_gradients, &by__pass_synchronise,
    &by__pass_shard,     &by__pass_rematerialize,   &by__pass_recompute, &by__pass_narrow,
    &by__pass_pack,      &by__pass_layout,          &by__pass_fuse,      &by__pass_gather,
    &by__pass_observe,   &by__pass_order,           &by__pass_overlap,
};

/* The name that means "before any pass". */
static const char before_all[] = "forward";

int by_pass_count(void)
{
    return (int)BY_ARRAY_LENGTH(passes);
}

const char *by_pass_name(int i)
{
    return i >= 0 && i < by_pass_count() ? passes[i]->name : NULL;
}

const char *by_pass_summary(int i)
{
    return i >= 0 && i < by_pass_count() ? passes[i]->summary : NULL;
}

static by_status refuse_name(const char *name, by_error *error)
{
    by_string text = {0};
    char *names;
    by__string_append(&text, before_all);
    for (int i = 0; i < by_pass_count(); i++) {
        by_string_format(&text, ", %s", passes[i]->name);
    }
    BY_TRY(by__string_release(&text, &names, error));
    by_status status =
        by_error_set(error, BY_EARG, "there is no pass '%s'; one of %s", name, names);
    free(names);
    return status;
}

/* Returns a pass's index in the table, or by_pass_count() if the name is unknown. */
static int find_pass(const char *name)
{
    int i = 0;
    while (i < by_pass_count() && strcmp(passes[i]->name, name) != 0) {
        i++;
    }
    return i;
}

static by_status run_passes(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                            int first, int end, by_error *error)
{
    for (int i = first; i < end; i++) {
        if ((passes[i]->purposes & purpose) != 0) {
            BY_TRY(passes[i]->apply(graph, options, error));
        }
    }
    return BY_OK;
}

by_status by__passes_run_after(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                               const by__pass *pass, by_error *error)
{
    return run_passes(graph, purpose, options, find_pass(pass->name) + 1, by_pass_count(), error);
}

by_status by_passes_run(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                        const char *last, by_error *error)
{
    int end = by_pass_count();
    if (last != NULL && strcmp(last, before_all) == 0) {
        end = 0;
    } else if (last != NULL) {
        if (find_pass(last) == by_pass_count()) {
            return refuse_name(last, error);
        }
        end = find_pass(last) + 1;
    }
    BY_TRY(run_passes(graph, purpose, options, 0, end, error));
    return by_graph_verify(graph, error);
}
