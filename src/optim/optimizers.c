#include <string.h>

#include "optim/optim.h"

/* One row an optimizer: by__optimizer_NAME of NAME.c. */
#define OPTIMIZERS(ROW) ROW(adamw)

#define DECLARE(name) extern const by__optimizer by__optimizer_##name;
#define ADDRESS(name) &by__optimizer_##name,
OPTIMIZERS(DECLARE)
static const by__optimizer *const optimizers[] = {OPTIMIZERS(ADDRESS)};

const by__kind *by__optimizer_kind(size_t index)
{
    return index < BY_ARRAY_LENGTH(optimizers) ? &optimizers[index]->kind : NULL;
}

static const by__optimizer *find(const by_optimizer_config *config)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(optimizers); i++) {
        const by__kind *kind = &optimizers[i]->kind;
        if (strcmp(config->kind, kind->name) == 0 &&
            (kind->size == 0 || by__kind_own(config->own, kind) != NULL)) {
            return optimizers[i];
        }
    }
    return NULL;
}

int64_t by__bucket_size(const by_buckets *buckets, int bucket)
{
    return bucket == 0 ? buckets->matrices : buckets->vectors;
}

by_value by__bucket_value(by_graph *graph, by_role role, const char *prefix, int bucket,
                          int64_t size)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%s%s", prefix, bucket == 0 ? "matrices" : "vectors");
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
        int64_t size = by__bucket_size(buckets, bucket);
        if (size > 0) {
            by_value g = by__bucket_value(graph, BY_ROLE_INPUT, "grad.", bucket, size);
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
    const by__optimizer *optimizer = find(config);
    if (optimizer == NULL) {
        return by_error_set(error, BY_EARG,
                            "optimizer.kind '%s': wanted is the optimizer section of a config that "
                            "by_config_open, by_config_parse or by_config_default made",
                            config->kind);
    }
    return optimizer->update(graph, config, by__kind_own(config->own, &optimizer->kind), buckets,
                             error);
}

void by_optimizer_hyper(float hyper[4], const by_optimizer_config *config, int64_t step, double lr)
{
    const by__optimizer *optimizer = find(config);
    hyper[0] = (float)lr;
    hyper[1] = hyper[2] = hyper[3] = 0.0f;
    if (optimizer != NULL && optimizer->hyper != NULL) {
        optimizer->hyper(hyper, by__kind_own(config->own, &optimizer->kind), step);
    }
}
