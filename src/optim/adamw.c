/* AdamW (Kingma & Ba 2015; decoupled decay of Loshchilov & Hutter 2019) as a graph over flat
 * buckets. */
#include <math.h>

#include "optim/optim.h"

typedef struct adamw_keys {
    double betas[2];
    double eps;
} adamw_keys;

static const by__key keys[] = {
    {"optimizer", "betas", BY__KEY_PAIR, BY__OWN(adamw_keys, betas), "[0.9, 0.99]", 0, 1,
     BY__BELOW_MAX, .help = "decay rates of the first and second moment"},
    {"optimizer", "eps", BY__KEY_REAL, BY__OWN(adamw_keys, eps), "1e-8", 0, 1, BY__ABOVE_MIN,
     .help = "added to the root of the second moment"},
};
static const by__key_list key_list = BY__KEY_LIST(keys);

static by_status update(by_graph *graph, const by_optimizer_config *config, const void *own,
                        const by_buckets *buckets, by_error *error)
{
    const adamw_keys *k = own;
    by_value hyper = by_graph_input(graph, "hyper", BY_F32, BY_SHAPE(4));
    by_value scale = by_graph_input(graph, "scale", BY_F32, BY_SHAPE(1));
    graph->phase = BY__UPDATE;
    for (int bucket = 0; bucket < 2; bucket++) {
        int64_t size = by__bucket_size(buckets, bucket);
        if (size == 0) {
            continue;
        }
        by_attrs attrs = {.beta1 = (float)k->betas[0],
                          .beta2 = (float)k->betas[1],
                          .eps = (float)k->eps,
                          .decay = bucket == 0 ? (float)config->weight_decay : 0.0f};
        by_value p = by__bucket_value(graph, BY_ROLE_PARAMETER, "", bucket, size);
        by_value g = by__bucket_value(graph, BY_ROLE_INPUT, "grad.", bucket, size);
        by_value m = by__bucket_value(graph, BY_ROLE_STATE, "m.", bucket, size);
        by_value v = by__bucket_value(graph, BY_ROLE_STATE, "v.", bucket, size);
        bool copy = bucket == 0 && buckets->copies;
        by_value narrow = by__adamw(graph, p, g, m, v, hyper, scale, &attrs, copy);
        if (copy) {
            by_graph_output(graph, narrow, "copy.matrices");
        }
    }
    return by_graph_check(graph, error);
}

static void hyper_values(float hyper[4], const void *own, int64_t step)
{
    const adamw_keys *k = own;
    hyper[1] = (float)(1.0 - pow(k->betas[0], (double)step + 1.0));
    hyper[2] = (float)(1.0 - pow(k->betas[1], (double)step + 1.0));
}

const by__optimizer by__optimizer_adamw = {
    .kind = {.name = "adamw",
             .help = "Adam with decoupled weight decay (Loshchilov & Hutter 2019).",
             .keys = {&key_list},
             .size = sizeof(adamw_keys)},
    .update = update,
    .hyper = hyper_values,
};
