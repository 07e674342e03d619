/* Rounds weights to nearest in fewer bits, without calibration data. */
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"

static const by_compress_setting int8_settings[] = {BY__SETTING_HEAD, {0}};

static const by_compress_setting int4_settings[] = {
    BY__SETTING_GROUP, BY__SETTING_SCALE("largest"), BY__SETTING_HEAD, {0}};

by_status by__compress_round_layer(by__compress_state *c, by__compress_linear *l,
                                   by__code_kind kind, int64_t group, by__compress_scale_rule rule,
                                   by_error *error)
{
    float *weight;
    by__compress_codes codes;
    BY_TRY(by__alloc((void **)&weight, (size_t)(l->n * l->k), sizeof *weight, "a layer", error));
    by_status status = by__compress_codes_open(&codes, kind, l->n, l->k, group, error);
    if (status == BY_OK) {
        status = by__compress_linear_read(c, l, weight, error);
        if (status == BY_OK) {
            by__compress_codes_round(&codes, weight, rule, c->threads);
            status = by__compress_codes_put(c, l, &codes, error);
        }
        by__compress_codes_close(&codes);
    }
    free(weight);
    return status;
}

by_status by__compress_round_rest(by__compress_state *c, by__code_kind kind, int64_t group,
                                  by_error *error)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        by__compress_linear *l = &c->linears[i];
        if (l->coded || (l->head && by__compress_setting_number(c, "head") != 8.0)) {
            continue;
        }
        BY_TRY(by__compress_report(c, l->name, i, c->linear_count, error));
        BY_TRY(by__compress_round_layer(c, l, l->head ? BY__CODE_INT8 : kind, l->head ? 0 : group,
                                        BY__SCALE_LARGEST, error));
    }
    return BY_OK;
}

by_status by__compress_run_calibrated(by__compress_state *c, by_error *error)
{
    int64_t group = by__compress_group_setting(c);
    BY_TRY(by__compress_calibrate(c, c->method->round, NULL, error));
    BY_TRY(by__compress_round_rest(c, BY__CODE_INT4, group, error));
    return by__compress_codes_finish(c, BY__CODE_INT4, group, false, error);
}

static by_status round_all(by__compress_state *c, by__code_kind kind, int64_t group,
                           by__compress_scale_rule rule, bool rows, by_error *error)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        by__compress_linear *l = &c->linears[i];
        BY_TRY(by__compress_report(c, l->name, i, c->linear_count, error));
        if (!l->head) {
            BY_TRY(by__compress_round_layer(c, l, kind, group, rule, error));
        }
    }
    BY_TRY(by__compress_round_rest(c, kind, group, error));
    return by__compress_codes_finish(c, kind, group, rows, error);
}

static by_status run_int8(by__compress_state *c, by_error *error)
{
    return round_all(c, BY__CODE_INT8, 0, BY__SCALE_LARGEST, false, error);
}

static by_status run_w8a8(by__compress_state *c, by_error *error)
{
    return round_all(c, BY__CODE_INT8, 0, BY__SCALE_LARGEST, true, error);
}

/* Only the programs of language models quantize what weights are multiplied with. */
static by_status check_w8a8(by__compress_state *c, by_error *error)
{
    const by_model_config *model = &c->config->model;
    return strcmp(by_model_reads(model), "tokens") == 0
               ? BY_OK
               : by_error_set(
                     error, BY_EARG,
                     "model.kind %s reads %s, and activations are quantized only in models "
                     "that read tokens: use int8, which has the same codes",
                     model->kind, by_model_reads(model));
}

static by_status run_int4(by__compress_state *c, by_error *error)
{
    return round_all(c, BY__CODE_INT4, by__compress_group_setting(c), by__compress_scale_setting(c),
                     false, error);
}

static by_status run_fp8(by__compress_state *c, by_error *error)
{
    return round_all(c, BY__CODE_F8, 0, BY__SCALE_LARGEST, false, error);
}

static by__compress_stored_as store(const by__compress_state *c, const by__compress_linear *l,
                                    by__code_kind kind, int64_t group)
{
    if (l->head) {
        return (by__compress_stored_as){.coded = by__compress_setting_number(c, "head") == 8.0,
                                        .kind = BY__CODE_INT8};
    }
    return (by__compress_stored_as){.coded = true, .kind = kind, .group = group};
}

static by__compress_stored_as store_int8(const by__compress_state *c, const by__compress_linear *l)
{
    return store(c, l, BY__CODE_INT8, 0);
}

by__compress_stored_as by__compress_store_int4(const by__compress_state *c,
                                               const by__compress_linear *l)
{
    return store(c, l, BY__CODE_INT4, by__compress_group_setting(c));
}

static by__compress_stored_as store_fp8(const by__compress_state *c, const by__compress_linear *l)
{
    return store(c, l, BY__CODE_F8, 0);
}

const by__compress_method by__compress_method_int8 = {
    .shown = {.name = "int8",
              .summary = "weights of 8 bits, a scale for each output",
              .settings = int8_settings},
    .run = run_int8,
    .store = store_int8};
const by__compress_method by__compress_method_w8a8 = {
    .shown = {.name = "w8a8",
              .summary = "weights as int8 has them; what they are multiplied with becomes 8 bits, "
                         "too, a scale for each row",
              .settings = int8_settings},
    .run = run_w8a8,
    .takes = check_w8a8,
    .store = store_int8};
const by__compress_method by__compress_method_int4 = {
    .shown = {.name = "int4",
              .summary = "weights of 4 bits in groups, rounded to nearest",
              .settings = int4_settings},
    .run = run_int4,
    .store = by__compress_store_int4};
const by__compress_method by__compress_method_fp8 = {
    .shown = {.name = "fp8",
              .summary = "weights of 8 bits as floats (e4m3), a scale for each output",
              .settings = int8_settings},
    .run = run_fp8,
    .store = store_fp8};
