#include <string.h>

#include "compress/compress.h"

/* In the order in which help and plans list them. */
static const by__method *const methods[] = {
    &by__method_int8,      &by__method_w8a8,  &by__method_int4,      &by__method_awq,
    &by__method_gptq,      &by__method_fp8,   &by__method_magnitude, &by__method_wanda,
    &by__method_sparsegpt, &by__method_width, &by__method_depth,
};

const by__method *by__method_at(size_t i)
{
    return i < BY_ARRAY_LENGTH(methods) ? methods[i] : NULL;
}

/* Refuses weights in codes: encoding them again adds to their errors and gains nothing over
 * encoding the original. 8-bit floats are accepted, because some models are published only as
 * such. */
static by_status refuse_codes(const by__compression *c, by_error *error)
{
    bool makes_codes = c->method->store != NULL;
    if (!makes_codes || !by_weights_in_codes(c->weights)) {
        return BY_OK;
    }
    const char *precision = by_infer_precision_of(c->config, c->weights);
    return strcmp(precision, "bf16") == 0
               ? BY_OK
               : by_error_set(error, BY_EARG,
                              "%s: its weights are already quantized (%s), and quantizing them "
                              "again would add error; compress the original model",
                              by_pretrained_directory(c->model), precision);
}

by_status by__method_takes(by__compression *c, by_error *error)
{
    const by_model_config *config = &c->config->model;
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
