/* Predicts the result of a method from the shapes of a model. */
#include <string.h>

#include "base/packing/packing.h"
#include "compress/compress.h"

/* Returns the bytes of a layer's codes and scales in files. */
static uint64_t bytes_of_codes(const by__compress_linear *l, const by__compress_stored_as *how)
{
    bool narrow = how->kind == BY__CODE_INT4;
    int64_t group = how->group > 0 && how->group < l->k ? how->group : l->k;
    uint64_t scales = (uint64_t)(l->n * ((l->k + group - 1) / group));
    return (uint64_t)l->n * by__coded_row_bytes(how->kind, l->k) + scales * (narrow ? 2 : 4) +
           (narrow ? 2 * sizeof(int32_t) : 0);
}

/* Finds out the format in which inference computes with the result: bf16 with codes; else the
 * model's own, or for the directory of another one that of its weights. */
static by_status read_compute(by_dtype *out, const by__compress_state *c, by_error *error)
{
    *out = BY_BF16;
    if (c->method->store != NULL || by_weights_in_codes(c->weights) ||
        by__weights_in_bf16(c->weights)) {
        return BY_OK;
    }
    *out = BY_F32; /* of a directory whose weights are stored so */
    return c->method == &by__compress_method_none
               ? by_precision_parse(out, c->config->precision.compute, error)
               : BY_OK;
}

/* Returns the bytes of a layer as packed for inference. */
static uint64_t bytes_packed(const by__compress_linear *l, const by__compress_stored_as *how,
                             by_dtype compute)
{
    by_packing packing = {.kind = BY_PACKING_PACKED, .dtype = compute, .n = l->n, .k = l->k};
    if (how->coded && how->kind == BY__CODE_INT8) {
        packing.kind = BY_PACKING_INT8;
    } else if (how->coded && how->kind == BY__CODE_INT4) {
        packing.kind = BY_PACKING_INT4;
        packing.group = how->group < l->k ? how->group : BY__PACKED_BLOCK; /* one for a row */
    } else if (how->coded) {
        packing.kind = BY_PACKING_FP8;
    }
    by_shape shape = by__packed_shape(&packing);
    return (uint64_t)by_shape_count(&shape);
}

static const by__compress_linear *linear_of(const by__compress_state *c, const char *name)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        if (strcmp(c->linears[i].weight, name) == 0) {
            return &c->linears[i];
        }
    }
    return NULL;
}

/* Returns how a layer is stored: as the method predicts, or as it is. */
static by__compress_stored_as stored_as(const by__compress_state *c, const by__compress_linear *l)
{
    if (c->method->store != NULL) {
        return c->method->store(c, l);
    }
    const by__coded *coded = by__weights_coded(c->weights, l->weight);
    return coded == NULL ? (by__compress_stored_as){0}
                         : (by__compress_stored_as){
                               .coded = true, .kind = coded->kind, .group = coded->group};
}

static by_status add_tensor(by_compress_forecast *out, const by__compress_state *c, size_t tensor,
                            by_dtype compute, by_error *error)
{
    by_tensor_view view;
    size_t count;
    size_t bytes;
    const char *name = by_weights_name(c->weights, tensor);
    const by__compress_linear *found = linear_of(c, name);
    by__compress_stored_as how = {0};
    BY_TRY(by__weights_describe(c->weights, name, &view, error));
    by__compress_linear sized = found == NULL ? (by__compress_linear){0} : *found;
    if (c->method->resize != NULL) {
        c->method->resize(c, &view);
        sized.n = found == NULL ? 0 : view.shape[sized.in_out ? 1 : 0];
        sized.k = found == NULL ? 0 : view.shape[sized.in_out ? 0 : 1];
    }
    const by__compress_linear *l = found == NULL ? NULL : &sized;
    BY_TRY(by_tensor_size(&view, &count, &bytes, error));
    if (l != NULL) {
        how = stored_as(c, l);
    }
    uint64_t code_bytes = by__weights_entry(c->weights, tensor)->code_bytes;
    if (code_bytes > 0) { /* only the model as it is has codes before the work */
        out->bytes += code_bytes;
    } else if (how.coded) {
        out->bytes += bytes_of_codes(l, &how);
    } else {
        bool narrowed = c->method->store != NULL && view.rank >= 2 && view.dtype == BY_F32;
        out->bytes += narrowed ? count * 2 : bytes;
    }
    size_t element = view.rank >= 2 ? by_dtype_size(compute) : sizeof(float);
    uint64_t memory = l != NULL ? bytes_packed(l, &how, compute) : count * element;
    out->memory += memory;
    double share = l != NULL ? l->share : view.rank < 2 ? 1.0 : 0.0;
    out->token_bytes += (uint64_t)(share * (double)memory);
    return BY_OK;
}

by_status by_compress_forecast_make(by_compress_forecast *out, const by_pretrained *model,
                                    const by_compress_options *options, by_error *error)
{
    by__compress_state c = {0};
    by_compress_forecast forecast = {0};
    by_error why = {0};
    by_dtype compute;
    by_status status = by__compress_job_inspect(&c, model, options, error);
    if (status == BY_OK && by__compress_method_check(&c, &why) != BY_OK) {
        by__compress_job_close(&c);
        if (why.status != BY_EARG) {
            return by_error_set(error, why.status, "%s", why.message);
        }
        (void)snprintf(forecast.refused, sizeof forecast.refused, "%s", why.message);
        *out = forecast;
        return BY_OK;
    }
    if (status == BY_OK) {
        status = read_compute(&compute, &c, error);
    }
    for (size_t i = 0; status == BY_OK && i < by_weights_count(c.weights); i++) {
        status = add_tensor(&forecast, &c, i, compute, error);
    }
    by__compress_job_close(&c);
    if (status == BY_OK) {
        *out = forecast;
    }
    return status;
}
