/* LoRA adapters on disk (Hu et al. 2021), in the layout of the PEFT library: a directory with
 * adapter_config.json and adapter_model.safetensors. Training with a `lora` section writes this
 * layout, and adapters made by PEFT can be read. */
#ifndef BANYAN_ADAPTER_H
#define BANYAN_ADAPTER_H

#include "banyan/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_ADAPTER_CONFIG  "adapter_config.json"
#define BY_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* Content of an adapter_config.json. The strings belong to the object it was obtained from. */
typedef struct by_adapter_info {
    int64_t rank;   /* rank of A and B, 1 to 65536 */
    double alpha;   /* the update B A is multiplied by alpha / rank ... */
    bool rslora;    /* ... or by alpha / sqrt(rank) if true (rank-stabilized, Kalajdzievski 2023) */
    double dropout; /* probability, on the adapters' input during training; [0, 1) */
    bool in_out;    /* weights of adapted layers are [in, out] ("fan_in_fan_out"),
                       not [out, in] */
    const char *base;           /* "base_model_name_or_path"; "" if it is absent */
    const char *task;           /* "task_type", such as "CAUSAL_LM"; "" if it is absent */
    const char *const *targets; /* "target_modules"; only for writing, not filled in when reading */
    size_t target_count;
    const char *const *also; /* "modules_to_save"; only for writing */
    size_t also_count;
} by_adapter_info;

/* Returns the factor on B A: alpha / rank, or alpha / sqrt(rank) with rslora. */
BY_API double by_adapter_scale(const by_adapter_info *info);
/* Makes the text of an adapter_config.json that PEFT reads. Free it with free(). */
BY_API by_status by_adapter_config_json(char **out, const by_adapter_info *info, by_error *error);

typedef struct by_adapter by_adapter;

/* Opens an adapter directory. Returns BY_EIO if one of its two files is missing; BY_EFORMAT if the
 * config asks for a PEFT feature that is not supported (DoRA, biases, per-layer ranks, an
 * initialization that changes the base weights, ...), or if a tensor is not part of an adapter,
 * lacks its partner or has the wrong shape. */
BY_API by_status by_adapter_open(by_adapter **out, const char *directory, by_error *error);
BY_API void by_adapter_close(by_adapter **adapter);
/* Returns what the adapter's config says. */
BY_API const by_adapter_info *by_adapter_describe(const by_adapter *adapter);
/* Returns the number of adapted layers; by_adapter_layer returns the module name of the i-th,
 * without the prefix "base_model.model.": "transformer.h.0.attn.c_attn". */
BY_API size_t by_adapter_layers(const by_adapter *adapter);
BY_API const char *by_adapter_layer(const by_adapter *adapter, size_t i);
/* Returns the adapter's tensors, named without "base_model.model.": LAYER.lora_A.weight [rank, in],
 * LAYER.lora_B.weight [out, rank], and fully trained parameters under their own names. */
BY_API const by_weights *by_adapter_weights(const by_adapter *adapter);

/* Applies an adapter to weights: from now on reading the weight W of an adapted layer yields
 * W + scale B A, added in f32 and rounded once, and fully trained parameters replace those of the
 * weights. Takes ownership of the adapter, also on failure, and sets *adapter to NULL. With
 * `same_types` W keeps its dtype; otherwise it reads as f32. Adapter tensors that the weights
 * themselves contain, as those of a training checkpoint do, are no longer listed. by_weights_tensor
 * refuses an adapted W, because its values are computed on reading. Returns BY_EFORMAT if the
 * weights lack a layer or its shape differs, BY_ESTATE if they already have an adapter. After a
 * failure the weights may be partly adapted; close them. */
BY_API by_status by_weights_adapt(by_weights *weights, by_adapter **adapter, bool same_types,
                                  by_error *error);

#ifdef __cplusplus
}
#endif
#endif
