/* Weights that a trainer holds in codes, as checkpoints have them: in the format of
 * compressed-tensors that `banyan compress` writes (checkpoint/weights/coded_weights.c). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/packing/packing.h"
#include "base/paths.h"
#include "nn/nn.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

/* What files have of a weight, in this order. */
enum { CODES = 1, SCALES, SIZES };

static const char weight_end[] = ".weight";

static bool is_narrow(const by__store_tensor *entry)
{
    return entry->packing.kind == BY_PACKING_INT4;
}

bool by__trainer_codes_has(const by_trainer *trainer, size_t parameter)
{
    return by__store_entry(trainer->store, (by__store_handle)parameter)->group == BY__GROUP_CODES;
}

bool by__trainer_codes_slice(by__checkpoint_held_slice *out, const by_trainer *trainer,
                             size_t parameter, int part, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(trainer->store, (by__store_handle)parameter);
    const by_packing *p = &entry->packing;
    size_t length = strlen(entry->name);
    bool narrow = is_narrow(entry);
    const char *ends[] = {
        [CODES] = narrow ? ".weight_packed" : weight_end,
        [SCALES] = ".weight_scale",
        [SIZES] = ".weight_shape",
    };
    if (part > (narrow ? SIZES : SCALES)) {
        return false;
    }
    *out = (by__checkpoint_held_slice){.is_copy = true, .rank = 2, .shape = {p->n}};
    if (part == CODES) {
        out->dtype = narrow ? BY_I32 : BY_I8;
        out->shape[1] = narrow ? (p->k + 7) / 8 : p->k;
    } else if (part == SCALES) {
        out->dtype = narrow ? BY_F16 : BY_F32;
        out->shape[1] = by__packed_scale_row(p);
    } else {
        out->dtype = BY_I32;
        out->rank = 1;
        out->shape[0] = 2;
    }
    out->slice = by__slice_whole(out->rank, out->shape);
    if (!by__ends_with(entry->name, weight_end) || length + 8 > sizeof out->name) {
        (void)by_error_set(error, BY_EARG,
                           "'%.200s' is held in codes, which files have under names that end in "
                           "'%s'",
                           entry->name, weight_end);
        return false;
    }
    (void)snprintf(out->name, sizeof out->name, "%.*s%s", (int)(length + 1 - sizeof weight_end),
                   entry->name, ends[part]);
    return true;
}

by_status by__trainer_codes_read(const by_trainer *trainer, size_t parameter, int part,
                                 const void *panels, void **owned, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(trainer->store, (by__store_handle)parameter);
    const by_packing *p = &entry->packing;
    bool narrow = is_narrow(entry);
    const int32_t sizes[2] = {(int32_t)p->n, (int32_t)p->k};
    size_t bytes =
        part == SIZES ? sizeof sizes
        : part == SCALES
            ? (size_t)(p->n * by__packed_scale_row(p)) * (narrow ? 2 : sizeof(float))
            : (size_t)p->n * by__coded_row_bytes(narrow ? BY__CODE_INT4 : BY__CODE_INT8, p->k);
    BY_TRY(by__alloc(owned, 1, bytes, "codes of a weight", error));
    if (part == SIZES) {
        memcpy(*owned, sizes, sizeof sizes);
    } else {
        by__unpack_codes(part == CODES ? *owned : NULL, part == SCALES ? *owned : NULL, p, panels,
                         trainer->threads);
    }
    return BY_OK;
}

/* Adds "quantization_config" to the text of a config.json. */
by_status by__trainer_codes_describe(char **text, const by_trainer *trainer, by_error *error)
{
    json_t *in_out = NULL;
    const by_packing *any = NULL;
    for (size_t i = 0; i < by_trainer_parameter_count(trainer); i++) {
        const by__store_tensor *entry = by__store_entry(trainer->store, (by__store_handle)i);
        if (!by__trainer_codes_has(trainer, i)) {
            continue;
        }
        any = &entry->packing;
        if (!entry->out_in) {
            in_out = in_out == NULL ? json_array() : in_out;
            (void)json_array_append_new(
                in_out, json_stringn(entry->name, strlen(entry->name) + 1 - sizeof weight_end));
        }
    }
    if (any == NULL) {
        return BY_OK;
    }
    bool narrow = any->kind == BY_PACKING_INT4;
    json_t *root = by__json_read(*text, JSON_REJECT_DUPLICATES, NULL);
    json_t *made =
        by__checkpoint_codes_describe(narrow ? BY__CODE_INT4 : BY__CODE_INT8,
                                      narrow ? any->group : 0, false, json_array(), in_out);
    (void)json_object_set_new(root, "quantization_config", made);
    char *with = made == NULL ? NULL : by__json_dump(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(root);
    if (with == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: config.json");
    }
    free(*text);
    *text = with;
    return BY_OK;
}
