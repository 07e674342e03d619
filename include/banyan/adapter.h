/* Adapters on disk: LoRA (Hu et al. 2021) in the form of the PEFT library, a directory with
 * adapter_config.json and adapter_model.safetensors. What a run with the section `lora` trains is
 * written so, and adapters that PEFT has made are read.
 */
#ifndef BANYAN_ADAPTER_H
#define BANYAN_ADAPTER_H

#include "banyan/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_ADAPTER_CONFIG  "adapter_config.json"
#define BY_ADAPTER_WEIGHTS "adapter_model.safetensors"

/* What an adapter_config.json says. Strings are owned by what it came from. */
typedef struct by_adapter_info {
    int64_t rank;
    double alpha;               /* what is added is multiplied by alpha / rank ... */
    bool rslora;                /* ... or by alpha / sqrt(rank) (Kalajdzievski 2023) */
    double dropout;             /* on the input of the adapters, in training */
    bool in_out;                /* weights of the adapted layers are [in, out] ("fan_in_fan_out") */
    const char *base;           /* "base_model_name_or_path", "" when it is not said */
    const char *task;           /* "task_type", "CAUSAL_LM"; "" when it is not said */
    const char *const *targets; /* "target_modules"; when it is written, not when it is read */
    size_t target_count;
    const char *const *also; /* "modules_to_save", likewise */
    size_t also_count;
} by_adapter_info;

/* The multiplier alpha / rank, or alpha / sqrt(rank). */
BY_API double by_adapter_scale(const by_adapter_info *info);
/* The text of an adapter_config.json, which PEFT reads; freed with free(). */
BY_API by_status by_adapter_config_json(char **out, const by_adapter_info *info, by_error *error);

typedef struct by_adapter by_adapter;

/* Opens such a directory. BY_EFORMAT names a feature of PEFT that is not supported (DoRA, biases,
 * ranks that differ, initial values that change the model's own weights, ...), and a tensor that is
 * none of an adapter, has no partner, or does not fit it. */
BY_API by_status by_adapter_open(by_adapter **out, const char *directory, by_error *error);
BY_API void by_adapter_close(by_adapter **adapter);
BY_API const by_adapter_info *by_adapter_describe(const by_adapter *adapter);
/* The adapted layers, by the names of their modules without "base_model.model.":
 * "transformer.h.0.attn.c_attn". */
BY_API size_t by_adapter_layers(const by_adapter *adapter);
BY_API const char *by_adapter_layer(const by_adapter *adapter, size_t i);
/* Its tensors, under names without "base_model.model.": LAYER.lora_A.weight [rank, in],
 * LAYER.lora_B.weight [out, rank], and parameters that were trained besides under their own. */
BY_API const by_weights *by_adapter_weights(const by_adapter *adapter);

/* Puts an adapter, which is taken also on failure, into weights: what is read from now on of an
 * adapted layer's weight W is W + scale B A, added in f32 and rounded once, and what was trained
 * besides takes the place of what is there. Tensors of adapters that the weights themselves hold,
 * as a training checkpoint does, are no longer listed. by_weights_tensor refuses such a W, which is
 * computed as it is read. same_types: W keeps its type; else it is f32. BY_EFORMAT: the weights
 * lack a layer, or its shape does not fit; BY_ESTATE: they have an adapter. */
BY_API by_status by_weights_adapt(by_weights *weights, by_adapter **adapter, bool same_types,
                                  by_error *error);

#ifdef __cplusplus
}
#endif
#endif
