/* Preferences as the data of tasks: what they have otherwise than conversations, and what the
 * weights at the start make of them. */
#include <stdlib.h>
#include <string.h>

#include "tasks/tasks.h"
#include "tasks/text/text_data.h"
#include "tasks/text/text_parts.h"

int64_t by__task_pairs_per_sample(const by_config *config)
{
    return 2 * config->model.context;
}

by_status by__task_pairs_resolve(by_config *config, void *own, by_error *error)
{
    if (config->parallel.sequence > 1) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: the tokens of answers are added up on one rank: set "
                            "parallel.sequence to 1",
                            by__config_where(config, "parallel.sequence", "task.kind"));
    }
    return by__task_data_mix_resolve(config, own, error);
}

static size_t sets(const by_task_data *base, const by_config *config)
{
    const by__task_text_data *d = (const by__task_text_data *)base;
    return by__task_reads_reference(config) ? d->paths.train_count + d->valid_count : 0;
}

/* Hash of what a pass over a set has: its tokens, and which of them are learned. */
static void hash_set(char out[33], const by_dataset *set, const by_token_weights *mask)
{
    char both[2][33];
    by_dataset_hash(set, both[0]);
    by_token_weights_hash(mask, both[1]);
    by__hash128_hex(out, both, sizeof both);
}

static by_status source(by_source **out, char content[33], by_task_data *base,
                        const by_config *config, size_t set, by_error *error)
{
    const by__task_text_data *d = (const by__task_text_data *)base;
    size_t first = d->paths.train_count;
    bool trained = set < first;
    *out = NULL;
    if (trained && (d->train == NULL || by__task_has_live_reference(config))) {
        return BY_OK;
    }
    const by_dataset *data = trained ? d->train[set] : d->valid[set - first];
    const by_token_weights *mask = trained ? d->weights[set] : d->valid_weights[set - first];
    const by_token_options options = {.context = (size_t)config->model.context,
                                      .weights = mask,
                                      .pairs = true,
                                      .referenced = true};
    hash_set(content, data, mask);
    return by_token_source_open(out, data, &options, error);
}

static void keep(by_task_data *base, size_t set, float *values)
{
    by__task_text_data *d = (by__task_text_data *)base;
    free(d->references[set]);
    d->references[set] = values;
}

const by_task_reference by__task_pair_reference = {.sets = sets, .source = source, .keep = keep};

void by__task_pairs_measure(double *count, double *right, double *margin, const by_batch *batch,
                            const float *values, size_t width)
{
    const float *weights = by_batch_array(batch, "weight")->data;
    for (size_t i = 0; i < batch->batch; i++) {
        const float *reward = values + i * width;
        if (weights[i] > 0.0f) {
            *count += 1.0;
            *right += reward[0] > reward[1] ? 1.0 : 0.0;
            *margin += (double)reward[0] - (double)reward[1];
        }
    }
}
