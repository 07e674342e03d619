#include <string.h>

#include "compress/compress.h"

/* In the order in which help and plans list them. */
static const by__compress_method *const methods[] = {
    &by__compress_method_int8,      &by__compress_method_w8a8,  &by__compress_method_int4,
    &by__compress_method_awq,       &by__compress_method_gptq,  &by__compress_method_fp8,
    &by__compress_method_magnitude, &by__compress_method_wanda, &by__compress_method_sparsegpt,
    &by__compress_method_width,     &by__compress_method_depth, &by__compress_method_stack,
    &by__compress_method_widen,
};

const by__compress_method *by__compress_method_at(size_t i)
{
    return i < BY_ARRAY_LENGTH(methods) ? methods[i] : NULL;
}

static bool is_quantized(const by_weights *weights)
{
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        if (by__weights_entry(weights, i)->code_bytes > 0) {
            return true;
        }
    }
    return false;
}

/* Refuses quantized weights, in codes or in the blocks of a GGUF file: encoding them again adds to
 * their errors and gains nothing over encoding the original, and the other methods would write
 * their values, which take several times the bytes. */
static by_status refuse_codes(const by__compress_state *c, by_error *error)
{
    const char *path = by_pretrained_directory(c->model);
    const char *precision = by_weights_in_codes(c->weights)
                                ? by_infer_precision_of(c->config, c->weights)
                                : "GGUF blocks";
    if (!is_quantized(c->weights)) {
        return BY_OK;
    }
    if (c->method->store != NULL) {
        return by_error_set(error, BY_EARG,
                            "%s: its weights are already quantized (%s), and quantizing them again "
                            "would add error; compress the original model",
                            path, precision);
    }
    return by_error_set(error, BY_EARG,
                        "%s: its weights are quantized (%s), and pruning would write them as wider "
                        "numbers; prune the original model and quantize the result, or write the "
                        "values first (banyan export %s --format safetensors --output DIR)",
                        path, precision, path);
}

const by__compress_method by__compress_method_none = {
    .shown = {.name = "none", .summary = "the model as it is", .settings = NULL}};

by_status by__compress_method_check(by__compress_state *c, by_error *error)
{
    const by_model_config *config = &c->config->model;
    if (c->method == &by__compress_method_none) {
        return BY_OK;
    }
    BY_TRY(refuse_codes(c, error));
    if (c->method->shown.calibrates && strcmp(by_model_reads(config), "tokens") != 0) {
        return by_error_set(error, BY_EARG,
                            "model.kind %s: methods with calibration data need a language model",
                            config->kind);
    }
    return c->method->takes == NULL ? BY_OK : c->method->takes(c, error);
}

const by_compress_method *by_compress_method_at(size_t i)
{
    return i < BY_ARRAY_LENGTH(methods) ? &methods[i]->shown : NULL;
}

const by_compress_method *by_compress_method_find(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(methods); i++) {
        if (strcmp(methods[i]->shown.name, name) == 0) {
            return &methods[i]->shown;
        }
    }
    return NULL;
}
