/* Predicts the result of a method from the shapes of a model. */
#include <string.h>

#include "base/packing.h"
#include "compress/compress.h"

/* Returns the bytes of a layer's codes and scales in files. */
static uint64_t bytes_of_codes(const by__linear *l, const by__stored_as *how)
{
    bool narrow = how->kind == BY__CODE_INT4;
    int64_t group = how->group > 0 && how->group < l->k ? how->group : l->k;
    uint64_t scales = (uint64_t)(l->n * ((l->k + group - 1) / group));
    return (uint64_t)l->n * by__coded_row_bytes(how->kind, l->k) + scales * (narrow ? 2 : 4) +
           (narrow ? 2 * sizeof(int32_t) : 0);
}

/* Returns the bytes of a layer as packed for inference. */
static uint64_t bytes_packed(const by__linear *l, const by__stored_as *how)
{
    by_packing packing = {.kind = BY_PACKING_PACKED, .dtype = BY_BF16, .n = l->n, .k = l->k};
    if (how->coded && how->kind == BY__CODE_INT8) {
        packing.kind = BY_PACKING_INT8;
    } else if (how->coded && how->kind == BY__CODE_INT4) {
        packing.kind = BY_PACKING_INT4;
        packing.group = how->group;
    } else if (how->coded) {
        packing.kind = BY_PACKING_FP8;
    }
    by_shape shape = by__packed_shape(&packing);
    return (uint64_t)by_shape_count(&shape);
}

static const by__linear *linear_of(const by__compression *c, const char *name)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        if (strcmp(c->linears[i].weight, name) == 0) {
            return &c->linears[i];
        }
    }
    return NULL;
}

static by_status add_tensor(by_compress_forecast *out, const by__compression *c, const char *name,
                            by_error *error)
{
    by_tensor_view view;
    size_t count;
    size_t bytes;
    const by__linear *found = linear_of(c, name);
    by__stored_as how = {0};
    BY_TRY(by__weights_describe(c->weights, name, &view, error));
    by__linear sized = found == NULL ? (by__linear){0} : *found;
    if (c->method->resize != NULL) {
        c->method->resize(c, &view);
        sized.n = found == NULL ? 0 : view.shape[sized.in_out ? 1 : 0];
        sized.k = found == NULL ? 0 : view.shape[sized.in_out ? 0 : 1];
    }
    const by__linear *l = found == NULL ? NULL : &sized;
    BY_TRY(by_tensor_size(&view, &count, &bytes, error));
    if (l != NULL && c->method->store != NULL) {
        how = c->method->store(c, l);
    }
    if (how.coded) {
        out->bytes += bytes_of_codes(l, &how);
    } else {
        bool narrowed = c->method->store != NULL && view.rank >= 2 && view.dtype == BY_F32;
        out->bytes += narrowed ? count * 2 : bytes;
    }
    uint64_t memory = l != NULL ? bytes_packed(l, &how) : view.rank >= 2 ? count * 2 : count * 4;
    out->memory += memory;
    double share = l != NULL ? l->share : view.rank < 2 ? 1.0 : 0.0;
    out->token_bytes += (uint64_t)(share * (double)memory);
    return BY_OK;
}

by_status by_compress_forecast_make(by_compress_forecast *out, const by_pretrained *model,
                                    const by_compress_options *options, by_error *error)
{
    by__compression c = {0};
    by_compress_forecast forecast = {0};
    by_error why = {0};
    by_status status = by__job_look(&c, model, options, error);
    if (status == BY_OK && by__method_takes(&c, &why) != BY_OK) {
        by__job_close(&c);
        if (why.status != BY_EARG) {
            return by_error_set(error, why.status, "%s", why.message);
        }
        (void)snprintf(forecast.refused, sizeof forecast.refused, "%s", why.message);
        *out = forecast;
        return BY_OK;
    }
    for (size_t i = 0; status == BY_OK && i < by_weights_count(c.weights); i++) {
        status = add_tensor(&forecast, &c, by_weights_name(c.weights, i), error);
    }
    by__job_close(&c);
    if (status == BY_OK) {
        *out = forecast;
    }
    return status;
}
