/* Internal record of by_weights: weights.c opens them, weights_entries.c has the functions that
 * query and change them. */
#ifndef BY_CHECKPOINT_WEIGHTS_WEIGHTS_H
#define BY_CHECKPOINT_WEIGHTS_WEIGHTS_H

#include "checkpoint/storage.h"

/* A file of tensors. */
typedef struct by__weights_file {
    char *path;
    char *name;
    by__map map;
    by__checkpoint_safetensors content;
} by__weights_file;

struct by_weights {
    char *path;
    char *config;
    by__weights_file **shards; /* pointers, because entries refer to a shard's path */
    size_t shard_count;
    size_t shard_capacity;
    const by__checkpoint_tensor_entry **entries; /* entries of all shards, by name */
    size_t count;
    by__checkpoint_slice_index slices; /* Tensors that are cut over files, and their entries: */
    by__checkpoint_tensor_entry *cut;
    char *slices_path;
    /* Averaged weights whose values replace those of some entries, and these entries: */
    by_weights *averages;
    by__checkpoint_tensor_entry *averaged;
    by_adapter *adapter; /* The adapter, or NULL, and the entries of tensors that it changes: */
    by__checkpoint_tensor_entry *adapted;
    size_t adapted_count;
    by__checkpoint_coded_entries coded; /* entries that are computed from codes */
};

#endif
