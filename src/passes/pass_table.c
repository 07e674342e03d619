#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* In the order in which they compose. Precision comes first, so that gradients are derived from a
 * graph that has its casts; ranks share the work of both passes; what saves memory comes before
 * fusion, which would hide what it looks for; the order of nodes comes last, first for memory and
 * then for collectives. */
static const by__pass *const passes[] = {
    &by__pass_precision, &by__pass_gradients, &by__pass_shard, &by__pass_rematerialize,
    &by__pass_recompute, &by__pass_layout,    &by__pass_fuse,  &by__pass_gather,
    &by__pass_order,     &by__pass_overlap,
};

/* The name for "before any pass". */
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
    by__text text = {0};
    char *names;
    by__text_add(&text, before_all);
    for (int i = 0; i < by_pass_count(); i++) {
        by__text_format(&text, ", %s", passes[i]->name);
    }
    BY_TRY(by__text_take(&text, &names, error));
    by_status status =
        by_error_set(error, BY_EARG, "there is no pass '%s'; one of %s", name, names);
    free(names);
    return status;
}

by_status by_passes_run(by_graph *graph, by_purpose purpose, const by_pass_options *options,
                        const char *last, by_error *error)
{
    int count = by_pass_count();
    if (last != NULL && strcmp(last, before_all) == 0) {
        count = 0;
    } else if (last != NULL) {
        int i = 0;
        while (i < count && strcmp(passes[i]->name, last) != 0) {
            i++;
        }
        if (i == count) {
            return refuse_name(last, error);
        }
        count = i + 1;
    }
    for (int i = 0; i < count; i++) {
        if ((passes[i]->purposes & purpose) != 0) {
            BY_TRY(passes[i]->apply(graph, options, error));
        }
    }
    return by_graph_verify(graph, error);
}
