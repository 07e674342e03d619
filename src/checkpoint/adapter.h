/* What files of this room share about adapters on disk (banyan/adapter.h). */
#ifndef BY_CHECKPOINT_ADAPTER_H
#define BY_CHECKPOINT_ADAPTER_H

#include "banyan/adapter.h"
#include "checkpoint/storage.h"

/* An adapter_config.json; the strings of `info` are those below it. */
typedef struct by__adapter_config {
    by_adapter_info info;
    char *base;
    char *task;
} by__adapter_config;

/* `path` is for messages. */
by_status by__adapter_config_parse(by__adapter_config *out, const char *path, const char *text,
                                   size_t length, by_error *error);
void by__adapter_config_free(by__adapter_config *config);

/* True for DIRECTORY/adapter_config.json. */
bool by__adapter_is_in(const char *directory);
/* Whether a tensor of this name is one of an adapter. */
bool by__adapter_owns(const char *name);

/* ---- a weight and what an adapter adds to it (delta.c) ---- */

/* `base`, whose type is a float and which has two axes, + scale B A. a [rank, in] and b [out, rank]
 * are f32. The entry is borrowed. */
by_status by__delta_open(by__delta **out, const by__tensor_entry *base, const float *a,
                         const float *b, int64_t rank, double scale, bool in_out, by_error *error);
void by__delta_close(by__delta **delta);

/* ---- weights that have one (weights_entries.c) ---- */

/* For by_weights_adapt: takes the adapter, unless there is one; takes what `hides` says out of the
 * list; lets a tensor be computed from a delta, which is taken, in `dtype`; and lets the values of
 * `own` take the place of a tensor's. Of the last two together as many as the adapter has
 * tensors. */
by_status by__weights_take_adapter(by_weights *weights, by_adapter *adapter, by_error *error);
void by__weights_hide(by_weights *weights, bool (*hides)(const char *name));
void by__weights_add(by_weights *weights, const by__tensor_entry *base, by__delta *delta,
                     by_dtype dtype);
void by__weights_replace(by_weights *weights, const by__tensor_entry *base,
                         const by__tensor_entry *own);

#endif
