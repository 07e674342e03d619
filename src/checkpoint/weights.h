/* What weights are made of: weights.c opens them, weights_entries.c has what is asked of them and
 * changed in them. */
#ifndef BY_CHECKPOINT_WEIGHTS_H
#define BY_CHECKPOINT_WEIGHTS_H

#include "checkpoint/storage.h"

/* A file of tensors. */
typedef struct by__weights_file {
    char *path;
    char *name;
    by__map map;
    by__safetensors content;
} by__weights_file;

struct by_weights {
    char *path;
    char *config;
    by__weights_file **shards; /* pointers: entries refer to a shard's path */
    size_t shard_count;
    size_t shard_capacity;
    const by__tensor_entry **entries; /* all shards', by name */
    size_t count;
    by__slice_index slices; /* of tensors that are cut over files, whose entries these are: */
    by__tensor_entry *cut;
    char *slices_path;
    by_weights *averages; /* where these are the values of some entries, which are here: */
    by__tensor_entry *averaged;
    by_adapter *adapter; /* that they have, or NULL; of tensors that it changes the entries are: */
    by__tensor_entry *adapted;
    size_t adapted_count;
    by__coded_entries coded; /* those that are computed from codes */
};

#endif
