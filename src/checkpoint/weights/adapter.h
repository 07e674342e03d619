/* Internal functions for adapters on disk (banyan/adapter.h), shared by files of this module. */
#ifndef BY_CHECKPOINT_WEIGHTS_ADAPTER_H
#define BY_CHECKPOINT_WEIGHTS_ADAPTER_H

#include "banyan/adapter.h"
#include "checkpoint/storage.h"

/* A parsed adapter_config.json, which owns the strings of `info`. */
typedef struct by__checkpoint_adapter_config {
    by_adapter_info info;
    char *base;
    char *task;
} by__checkpoint_adapter_config;

/* `path` is for messages. */
by_status by__checkpoint_adapter_config_parse(by__checkpoint_adapter_config *out, const char *path,
                                              const char *text, size_t length, by_error *error);
void by__checkpoint_adapter_config_free(by__checkpoint_adapter_config *config);

/* True if DIRECTORY/adapter_config.json exists. */
bool by__checkpoint_adapter_is_in(const char *directory);

/* ---- a weight with an adapter's product added (delta.c) ---- */

/* The tensor `base`, which has a float dtype and two axes, + scale B A. a [rank, in] and b [out,
 * rank] are f32. The entry is borrowed. */
by_status by__checkpoint_delta_open(by__checkpoint_delta **out,
                                    const by__checkpoint_tensor_entry *base, const float *a,
                                    const float *b, int64_t rank, double scale, bool in_out,
                                    by_error *error);
void by__checkpoint_delta_close(by__checkpoint_delta **delta);

/* ---- weights with an adapter (weights_entries.c) ---- */

/* For by_weights_adapt: sets the adapter, of which there may be one, and takes it; removes the
 * tensors that `hides` selects; makes a tensor the result of a delta, which is taken, in `dtype`;
 * and replaces a tensor's values by those of `own`. The last two may be called once for each tensor
 * of the adapter, in total. */
by_status by__weights_own_adapter(by_weights *weights, by_adapter *adapter, by_error *error);
void by__weights_hide(by_weights *weights, bool (*hides)(const char *name));
void by__weights_add(by_weights *weights, const by__checkpoint_tensor_entry *base,
                     by__checkpoint_delta *delta, by_dtype dtype);
void by__weights_replace(by_weights *weights, const by__checkpoint_tensor_entry *base,
                         const by__checkpoint_tensor_entry *own);

#endif
