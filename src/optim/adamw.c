/* AdamW (Kingma & Ba 2015; decoupled decay of Loshchilov & Hutter 2019) as a graph over flat
 * buckets. */
#include <math.h>

#include "banyan/optimizer.h"
#include "ops/ops.h"

static const char *const bucket_names[2] = {"matrices", "vectors"};

static int64_t bucket_size(const by_buckets *buckets, int bucket)
{
    return bucket == 0 ? buckets->matrices : buckets->vectors;
}

static by_value named(by_graph *graph, by_role role, const char *prefix, int bucket, int64_t size)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s%s", prefix, bucket_names[bucket]);
    return by__graph_add_value(graph, role, name, NULL, (by__type){BY_F32, BY_SHAPE(size)});
}

by_status by_optimizer_norm_graph(by_graph *graph, const by_optimizer_config *config,
                                  const by_buckets *buckets, by_error *error)
{
    by_value squares[2];
    int count = 0;
    by_value norm;
    by_value scale;
    for (int bucket = 0; bucket < 2; bucket++) {
        int64_t size = bucket_size(buckets, bucket);
        if (size > 0) {
            by_value g = named(graph, BY_ROLE_INPUT, "grad.", bucket, size);
            squares[count++] = by__sum_squares(graph, g);
        }
    }
    by__clip_scale(graph, squares, count, (float)config->clip, &norm, &scale);
    by_graph_output(graph, norm, "norm");
    by_graph_output(graph, scale, "scale");
    return by_graph_check(graph, error);
}

by_status by_optimizer_update_graph(by_graph *graph, const by_optimizer_config *config,
                                    const by_buckets *buckets, by_error *error)
{
    by_value hyper = by_graph_input(graph, "hyper", BY_F32, BY_SHAPE(4));
    by_value scale = by_graph_input(graph, "scale", BY_F32, BY_SHAPE(1));
    graph->phase = BY__UPDATE;
    for (int bucket = 0; bucket < 2; bucket++) {
        int64_t size = bucket_size(buckets, bucket);
        if (size == 0) {
            continue;
        }
        by_attrs attrs = {.beta1 = (float)config->beta1,
                          .beta2 = (float)config->beta2,
                          .eps = (float)config->eps,
                          .decay = bucket == 0 ? (float)config->weight_decay : 0.0f};
        by_value p = named(graph, BY_ROLE_PARAMETER, "", bucket, size);
        by_value g = named(graph, BY_ROLE_INPUT, "grad.", bucket, size);
        by_value m = named(graph, BY_ROLE_STATE, "m.", bucket, size);
        by_value v = named(graph, BY_ROLE_STATE, "v.", bucket, size);
        bool copy = bucket == 0 && buckets->copies;
        by_value narrow = by__adamw(graph, p, g, m, v, hyper, scale, &attrs, copy);
        if (copy) {
            by_graph_output(graph, narrow, "copy.matrices");
        }
    }
    return by_graph_check(graph, error);
}

void by_optimizer_hyper(float hyper[4], const by_optimizer_config *config, int64_t step, double lr)
{
    hyper[0] = (float)lr;
    hyper[1] = (float)(1.0 - pow(config->beta1, (double)step + 1.0));
    hyper[2] = (float)(1.0 - pow(config->beta2, (double)step + 1.0));
    hyper[3] = 0.0f;
}
