/* Loads weight files into a tensor store. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/storage.h"

static bool fits(const by_tensor_view *tensor, const by_shape *shape, bool grows)
{
    bool same = tensor->rank == shape->rank;
    for (int i = 0; i < tensor->rank && same; i++) {
        bool shorter = i == 0 && grows && tensor->shape[0] <= shape->dim[0];
        same = tensor->shape[i] == shape->dim[i] || shorter;
    }
    return same;
}

/* Returns true if files have a tensor, or the first part of a stacked one (stacked.c). */
static bool has(const by_weights *weights, const char *name)
{
    char part[512];
    if (by_weights_has(weights, name) || !by__checkpoint_name_is_stacked(name)) {
        return by_weights_has(weights, name);
    }
    by__checkpoint_stacked_name(part, sizeof part, name, 0);
    return by_weights_has(weights, part);
}

/* The entry's name in files: its own, or, if the files have none of that name, with the prefix
 * options->family or without the prefix options->base. */
static const char *file_name(char name[512], const by__store_tensor *entry,
                             const by_weights *weights, const by__checkpoint_load_options *options)
{
    char other[512];
    const char *prefix = options->prefix == NULL ? "" : options->prefix;
    size_t base = options->base == NULL ? 0 : strlen(options->base);
    (void)snprintf(name, 512, "%s%s", prefix, entry->name);
    if (options->family != NULL && !has(weights, name)) {
        (void)snprintf(other, sizeof other, "%s%s", options->family, name);
        if (has(weights, other)) {
            memcpy(name, other, sizeof other);
        }
    }
    if (base > 0 && strncmp(entry->name, options->base, base) == 0 && !has(weights, name)) {
        (void)snprintf(other, sizeof other, "%s%s", prefix, entry->name + base);
        if (has(weights, other)) {
            memcpy(name, other, sizeof other);
        }
    }
    return name;
}

/* Returns true if the files have an entry under one of its names. */
static bool is_in_file(const by__store *store, by__store_handle handle, const by_weights *weights,
                       const by__checkpoint_load_options *options)
{
    char name[512];
    return by_weights_has(weights,
                          file_name(name, by__store_entry(store, handle), weights, options));
}

/* The shape that files have of an entry. */
static by_shape whole_shape(const by__store *store, int flat, by__store_handle handle)
{
    const by__store_tensor held = by__store_held(store, flat, handle);
    bool packed = by__store_entry(store, handle)->packing.kind != BY_PACKING_NONE;
    return by__store_is_part(&held) || packed ? held.shape : by__store_shape(store, flat, handle);
}

/* Returns true if the files have the whole of an entry, as one tensor or in parts. */
static bool has_whole(const by__store *store, int flat, by__store_handle handle,
                      const by_weights *weights, const by__checkpoint_load_options *options)
{
    char name[512];
    by_tensor_view tensor;
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_shape shape = whole_shape(store, flat, handle);
    (void)file_name(name, entry, weights, options);
    if (by_weights_has(weights, name)) {
        return by__weights_describe(weights, name, &tensor, NULL) == BY_OK &&
               fits(&tensor, &shape, entry->grows && !options->exact);
    }
    if (!has(weights, name)) {
        return false;
    }
    by_tensor_slice all = {0};
    memcpy(all.shape, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
    return by__checkpoint_stacked_read(NULL, weights, name, &shape, &all, NULL) == BY_OK;
}

/* Returns true if a pattern of options->anew holds for an entry. */
static bool begins_anew(const by__store *store, int flat, by__store_handle handle,
                        const char *pattern, const by_weights *weights,
                        const by__checkpoint_load_options *options)
{
    return fnmatch(pattern, by__store_entry(store, handle)->name, 0) == 0 &&
           !has_whole(store, flat, handle, weights, options);
}

static bool is_new(const by__store *store, int flat, by__store_handle handle,
                   const by_weights *weights, const by__checkpoint_load_options *options)
{
    bool found = false;
    for (size_t i = 0; i < options->anew_count && !found; i++) {
        found = begins_anew(store, flat, handle, options->anew[i], weights, options);
    }
    return found;
}

/* Returns true if an entry keeps its present values. */
static bool is_left(const by__store *store, int flat, by__store_handle handle,
                    const by_weights *weights, const by__checkpoint_load_options *options)
{
    return by__store_shape(store, flat, handle).rank < 0 ||
           is_new(store, flat, handle, weights, options) ||
           (options->may_lack != NULL && options->may_lack(by__store_entry(store, handle)->name) &&
            !is_in_file(store, handle, weights, options));
}

/* Adds the keys of config.json that have a value, or whose product it is: a number of heads and
 * their width. */
static void add_keys(by_string *out, json_t *config, int64_t wanted)
{
    size_t length = out->length;
    for (void *i = json_object_iter(config); i != NULL; i = json_object_iter_next(config, i)) {
        const char *key = json_object_iter_key(i);
        int64_t a = json_integer_value(json_object_iter_value(i));
        if (a == wanted) {
            by_string_format(out, "%s\"%.60s\"", out->length == length ? "" : ", ", key);
        }
        for (void *k = json_object_iter_next(config, i); k != NULL && strstr(key, "head") != NULL;
             k = json_object_iter_next(config, k)) {
            const char *other = json_object_iter_key(k);
            int64_t b = json_integer_value(json_object_iter_value(k));
            if (strstr(other, "head") != NULL && a > 0 && wanted % a == 0 && wanted / a == b) {
                by_string_format(out, "%s\"%.60s\" x \"%.60s\"", out->length == length ? "" : ", ",
                                 key, other);
            }
        }
    }
}

/* The error for a tensor whose shape is not that of the model. It names the keys of config.json
 * that the sizes may come from. */
static by_status refuse_shape(const by_weights *weights, const by_tensor_view *tensor,
                              const by_shape *shape, by_error *error)
{
    char wanted[128];
    char have[128];
    by_string keys = {0};
    by_shape found = {.rank = tensor->rank > BY_MAX_RANK ? BY_MAX_RANK : tensor->rank};
    memcpy(found.dim, tensor->shape, (size_t)found.rank * sizeof found.dim[0]);
    json_t *config = by__json_read(by_weights_config(weights), 0, NULL);
    for (int i = 0; i < shape->rank && tensor->rank == shape->rank; i++) {
        if (shape->dim[i] != tensor->shape[i]) {
            by_string_format(&keys, "%s%lld", keys.length == 0 ? "; in config.json " : ", ",
                             (long long)shape->dim[i]);
            size_t length = keys.length;
            by__string_append(&keys, " is ");
            add_keys(&keys, config, shape->dim[i]);
            if (keys.length == length + 4) {
                by__string_append(&keys, "no key's value");
            }
        }
    }
    json_decref(config);
    by_status status =
        by_error_set(error, BY_EFORMAT, "%s: tensor '%s' is %s; the model needs %s%.300s",
                     by_weights_path(weights), tensor->name, by_shape_print(&found, have),
                     by_shape_print(shape, wanted),
                     keys.failed || keys.data == NULL || config == NULL ? "" : keys.data);
    by_string_free(&keys);
    return status;
}

/* Finds the tensor of an entry. */
static by_status find(const by__store *store, int flat, by__store_handle handle,
                      const by_weights *weights, const by__checkpoint_load_options *options,
                      by_tensor_view *out, by_error *error)
{
    char name[512];
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_shape shape = whole_shape(store, flat, handle);
    by_tensor_view tensor;
    (void)file_name(name, entry, weights, options);
    BY_TRY(by__weights_describe(weights, name, &tensor, error));
    const by__store_tensor held = by__store_held(store, flat, handle);
    bool packed = entry->packing.kind != BY_PACKING_NONE;
    if (!fits(&tensor, &shape, held.grows && !options->exact)) {
        return refuse_shape(weights, &tensor, &shape, error);
    }
    bool codes = by__store_dtype(store, flat, handle) == BY_U8 && !packed;
    if (codes && tensor.dtype != BY_U8) {
        return by_error_set(error, BY_EFORMAT, "%s: tensor '%s' is %s; codes are u8",
                            by_weights_path(weights), tensor.name, by_dtype_name(tensor.dtype));
    }
    if (!codes && !by_dtype_is_float(tensor.dtype)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%s' is %s; weights are f32, bf16 or f16",
                            by_weights_path(weights), tensor.name, by_dtype_name(tensor.dtype));
    }
    *out = tensor;
    return BY_OK;
}

/* Elements copied at a time. */
#define COPIED ((int64_t)1 << 18)

/* Loads a tensor that is cut over files. */
static by_status load_cut(by__store *store, int flat, by__store_handle handle,
                          const by_weights *weights, const by_tensor_view *tensor, int64_t count,
                          int threads, by_error *error)
{
    void *copy;
    by_status status = BY_OK;
    size_t most = (size_t)(count < COPIED ? count : COPIED);
    BY_TRY(
        by__alloc_aligned(&copy, most * by_dtype_size(tensor->dtype), "a copy of a tensor", error));
    for (int64_t first = 0; first < count && status == BY_OK; first += COPIED) {
        int64_t part = count - first < COPIED ? count - first : COPIED;
        const by_tensor_slice slice = {.flat = true, .offset = {first}, .shape = {part}};
        status = by_weights_read(weights, tensor->name, &slice, copy, (size_t)part, error);
        if (status == BY_OK) {
            status = by__store_write_part(store, flat, handle, first, copy, tensor->dtype, part,
                                          threads, error);
        }
    }
    free(copy);
    return status;
}

/* Codes that are rounded to others would be neither the weights of the file nor those that were
 * asked for. */
static by_status refuse_codes(const by_packing *packing, const by_weights *weights,
                              const char *name, const by__coded *coded, by_error *error)
{
    static const char *const kinds[] = {"int8", "int4", "fp8"};
    return by_error_set(error, BY_ECONFIG,
                        "%s: '%.200s' is held in codes of %s with a scale for %lld inputs, which "
                        "are not those of lora.base %s%s: set both to that of the file, or start "
                        "from the weights that it was made from",
                        by_weights_path(weights), name, kinds[coded->kind], (long long)coded->group,
                        by_packing_kind_name(packing->kind),
                        packing->kind == BY_PACKING_INT4 ? " and lora.base_group" : "");
}

/* Writes a tensor into its buffer; one that is cut over files is first assembled in a copy. */
static by_status load(by__store *store, int flat, by__store_handle handle,
                      const by_weights *weights, const by_tensor_view *tensor, bool exact,
                      int threads, by_error *error)
{
    size_t count;
    size_t bytes;
    void *copy = NULL;
    by_tensor_slice whole = by_tensor_whole(tensor);
    by_status status = BY_OK;
    BY_TRY(by_tensor_size(tensor, &count, &bytes, error));
    const by__coded *coded = by__weights_coded(weights, tensor->name);
    const by_packing *packing = &by__store_entry(store, handle)->packing;
    if (coded != NULL && by__packing_accepts(packing, coded)) {
        return by__store_write_coded(store, flat, handle, &coded, threads, error);
    }
    if (coded != NULL && packing->kind != BY_PACKING_NONE && exact) {
        return refuse_codes(packing, weights, tensor->name, coded, error);
    }
    if (tensor->data == NULL && !by__store_rearranges(by__store_entry(store, handle))) {
        return load_cut(store, flat, handle, weights, tensor, (int64_t)count, threads, error);
    }
    if (tensor->data == NULL && count > 0) {
        BY_TRY(by__alloc_aligned(&copy, bytes, "a copy of a tensor", error));
        status = by_weights_read(weights, tensor->name, &whole, copy, count, error);
    }
    if (status == BY_OK) {
        status = by__store_write(store, flat, handle, copy != NULL ? copy : tensor->data,
                                 tensor->dtype, (int64_t)count, threads, error);
    }
    free(copy);
    by__weights_release(weights, tensor->data, bytes);
    return status;
}

/* Returns true if the file has the entry in parts (stacked.c). */
static bool is_in_parts(const by__store *store, by__store_handle handle, const by_weights *weights,
                        const by__checkpoint_load_options *options)
{
    char name[512];
    const by__store_tensor *entry = by__store_entry(store, handle);
    return by__checkpoint_name_is_stacked(entry->name) &&
           !by_weights_has(weights, file_name(name, entry, weights, options));
}

/* Reads the held part of such an entry, which is one box; out NULL: only checks. */
static by_status read_parts(float *out, const by__store_tensor *entry, const by_weights *weights,
                            const by__checkpoint_load_options *options, by_error *error)
{
    char name[512];
    by_tensor_slice place;
    by_tensor_slice slice = by__store_box(entry, 0, &place);
    return by__checkpoint_stacked_read(out, weights, file_name(name, entry, weights, options),
                                       &entry->shape, &slice, error);
}

/* Finds the codes of all parts of a packed entry. *out is freed with free(), or NULL if a part has
 * none that can be stored unchanged. */
static by_status find_codes(const by__coded ***out, const by__store_tensor *entry,
                            const by_weights *weights, const by__checkpoint_load_options *options,
                            by_error *error)
{
    char name[512];
    char part[512];
    const by__coded **coded;
    int64_t count = entry->packing.stack;
    BY_TRY(by__alloc((void **)&coded, (size_t)count, sizeof *coded, "codes", error));
    (void)file_name(name, entry, weights, options);
    for (int64_t i = 0; i < count; i++) {
        by__checkpoint_stacked_name(part, sizeof part, name, i);
        coded[i] = by__weights_coded(weights, part);
        if (coded[i] == NULL || !by__packing_accepts(&entry->packing, coded[i])) {
            free(coded);
            *out = NULL;
            return BY_OK;
        }
    }
    *out = coded;
    return BY_OK;
}

static by_status load_parts(by__store *store, int flat, by__store_handle handle,
                            const by_weights *weights, const by__checkpoint_load_options *options,
                            by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    int64_t count = by_shape_count(&entry->local);
    const by__coded **coded = NULL;
    float *values;
    if (entry->packing.kind != BY_PACKING_NONE) {
        BY_TRY(find_codes(&coded, entry, weights, options, error));
    }
    if (coded != NULL) {
        by_status status =
            by__store_write_coded(store, flat, handle, coded, options->threads, error);
        free(coded);
        return status;
    }
    BY_TRY(by__alloc_aligned((void **)&values, (size_t)count * sizeof *values, "a copy of a tensor",
                             error));
    by_status status = read_parts(values, entry, weights, options, error);
    if (status == BY_OK) {
        status =
            by__store_write(store, flat, handle, values, BY_F32, count, options->threads, error);
    }
    free(values);
    return status;
}

/* Loads the table of options->grid, of which files have another grid. */
static by_status load_grid(by__store *store, int flat, by__store_handle handle,
                           const by_weights *weights, const by__checkpoint_load_options *options,
                           by_error *error)
{
    char name[512];
    by_tensor_view tensor;
    float *in;
    const by__checkpoint_grid *grid = options->grid;
    const by__store_tensor *entry = by__store_entry(store, handle);
    const by__store_tensor held = by__store_held(store, flat, handle);
    by_shape shape = whole_shape(store, flat, handle);
    by_shape theirs = shape;
    theirs.dim[shape.rank - 2] = grid->before + grid->from[0] * grid->from[1];
    int64_t row = shape.dim[shape.rank - 1];
    int64_t count = by_shape_count(&theirs);
    (void)file_name(name, entry, weights, options);
    BY_TRY(by__weights_describe(weights, name, &tensor, error));
    if (!fits(&tensor, &theirs, false)) {
        return refuse_shape(weights, &tensor, &theirs, error);
    }
    if (by__store_is_part(&held)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: '%s' is interpolated to another size of images only where no "
                            "ranks divide it: set parallel.tensor to 1",
                            by_weights_path(weights), name);
    }
    int64_t wanted = by_shape_count(&shape);
    BY_TRY(
        by__alloc_aligned((void **)&in, (size_t)(count + wanted) * sizeof *in, "positions", error));
    float *out = in + count;
    by_tensor_slice whole = by_tensor_whole(&tensor);
    by_status status = by_weights_read_f32(weights, name, &whole, in, (size_t)count, error);
    if (status == BY_OK) {
        memcpy(out, in, (size_t)(grid->before * row) * sizeof *in);
        by__checkpoint_grid_rows(out + grid->before * row, in + grid->before * row, grid, row);
        status = by__store_write(store, flat, handle, out, BY_F32, wanted, options->threads, error);
    }
    free(in);
    return status;
}

/* Whether an entry is that table. */
static bool is_grid(const by__store *store, by__store_handle handle,
                    const by__checkpoint_load_options *options)
{
    const by__checkpoint_grid *grid = options->grid;
    return grid != NULL && strcmp(by__store_entry(store, handle)->name, grid->name) == 0 &&
           (grid->from[0] != grid->to[0] || grid->from[1] != grid->to[1]);
}

static size_t elements(const by_shape *shape)
{
    return (size_t)by_shape_count(shape);
}

/* Reads the held part of a tensor, box by box. If a table grows, a box may have fewer rows in the
 * file, or none. */
static by_status load_boxes(by__store *store, int flat, by__store_handle handle,
                            const by_weights *weights, const by_tensor_view *tensor, int threads,
                            by_error *error)
{
    const by__store_tensor held = by__store_held(store, flat, handle);
    const by__store_tensor *entry = &held;
    size_t size = by_dtype_size(tensor->dtype);
    size_t count = elements(&entry->local);
    void *part;
    void *box = NULL;
    by_status status = BY_OK;
    BY_TRY(by__alloc_aligned(&part, count * size, "a part of a tensor", error));
    status = by__alloc_aligned(&box, count * size, "a part of a tensor", error);
    for (int64_t k = 0; k < by__store_box_count(entry) && status == BY_OK; k++) {
        by_tensor_slice place;
        by_tensor_slice slice = by__store_box(entry, k, &place);
        if (entry->grows && slice.offset[0] + slice.shape[0] > tensor->shape[0]) {
            int64_t rows = tensor->shape[0] - slice.offset[0];
            slice.shape[0] = rows < 0 ? 0 : rows;
            /* a table has one box, and these are its first rows */
            count = by__slice_elements(entry->shape.rank, &slice);
        }
        size_t wanted = by__slice_elements(entry->shape.rank, &slice);
        if (wanted > 0) {
            status = by_weights_read(weights, tensor->name, &slice, box, wanted, error);
        }
        if (status == BY_OK) {
            by__store_box_copy(entry, k, box, part, size, true);
        }
    }
    if (status == BY_OK) {
        status = by__store_write(store, flat, handle, part, tensor->dtype, (int64_t)count, threads,
                                 error);
    }
    free(box);
    free(part);
    return status;
}

bool by__weights_is_buffer(const char *name)
{
    return by__ends_with(name, ".rotary_emb.inv_freq") || by__ends_with(name, ".attn.bias") ||
           by__ends_with(name, ".attn.masked_bias") || by__ends_with(name, ".num_batches_tracked");
}

/* Tensors of files that no model reads: a head that is shared with the embedding, buffers,
 * adapters, which are merged elsewhere, and parameters used only for distillation. */
static bool is_no_weight(const char *name)
{
    return by__weights_is_buffer(name) || strcmp(name, "lm_head.weight") == 0 ||
           strstr(name, ".lora_") != NULL || strncmp(name, "distill.", 8) == 0;
}

/* Returns true if there is an entry of this name, or with a '*' in place of a number. */
static bool has_named_entry(const by__store *store, const char *name)
{
    char stacked[512];
    if (by__store_find(store, name) != BY__NO_ENTRY) {
        return true;
    }
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.') {
            (void)snprintf(stacked, sizeof stacked, "%.*s*%s", (int)(dot + 1 - name), name,
                           dot + 1 + digits);
            if (by__store_find(store, stacked) != BY__NO_ENTRY) {
                return true;
            }
        }
    }
    return false;
}

/* Returns true if there is an entry for the tensor, whose name in files may have the prefix
 * options->family or lack options->base. */
static bool has_entry(const by__store *store, const char *name,
                      const by__checkpoint_load_options *options)
{
    char other[512];
    size_t family = options->family == NULL ? 0 : strlen(options->family);
    if (has_named_entry(store, name) ||
        (family > 0 && strncmp(name, options->family, family) == 0 &&
         has_named_entry(store, name + family))) {
        return true;
    }
    return options->base != NULL &&
           snprintf(other, sizeof other, "%s%s", options->base, name) < (int)sizeof other &&
           has_named_entry(store, other);
}

/* Returns true if a tensor may be one of a head that the model does not have. */
static bool is_of_other_head(const char *name, const char *heads)
{
    for (const char *at = heads; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, " ");
        if (strncmp(name, at, length) == 0) {
            return true;
        }
        at += length + (at[length] == ' ');
    }
    return false;
}

/* Refuses tensors without an entry: a model without them would be a different one. */
static by_status check_unused(const by__store *store, const by_weights *weights,
                              const by__checkpoint_load_options *options, by_error *error)
{
    const char *first = NULL;
    size_t others = 0;
    for (size_t i = 0; i < by_weights_count(weights) && options->whole; i++) {
        const char *name = by_weights_name(weights, i);
        bool besides = (options->besides != NULL && strcmp(name, options->besides) == 0) ||
                       is_of_other_head(name, options->heads);
        if (!besides && !has_entry(store, name, options) && !is_no_weight(name)) {
            first = first == NULL ? name : first;
            others++;
        }
    }
    return others == 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: the model has no tensor '%.150s'%s; %s",
                              by_weights_path(weights), first,
                              others > 1 ? ", nor others that are there" : "",
                              strcmp(first, "score.weight") == 0
                                  ? "it is the head of a classification model: use "
                                    "`banyan classify`"
                                  : "is the model of another kind, or is a feature missing "
                                    "in config.json?");
}

/* Elements compared at a time. */
#define COMPARED ((int64_t)1 << 16)

/* Compares two tensors of the same shape. */
static by_status compare(bool *same, const by_weights *weights, const by_tensor_view *a,
                         const by_tensor_view *b, by_error *error)
{
    float *values;
    size_t count;
    by_status status = BY_OK;
    BY_TRY(by_tensor_size(a, &count, NULL, error));
    BY_TRY(by__alloc((void **)&values, 2 * COMPARED, sizeof *values, "a comparison", error));
    *same = true;
    for (int64_t first = 0; first < (int64_t)count && *same && status == BY_OK; first += COMPARED) {
        int64_t part = (int64_t)count - first < COMPARED ? (int64_t)count - first : COMPARED;
        const by_tensor_slice slice = {.flat = true, .offset = {first}, .shape = {part}};
        status = by_weights_read_f32(weights, a->name, &slice, values, (size_t)part, error);
        if (status == BY_OK) {
            status = by_weights_read_f32(weights, b->name, &slice, values + COMPARED, (size_t)part,
                                         error);
        }
        *same = status != BY_OK ||
                memcmp(values, values + COMPARED, (size_t)part * sizeof *values) == 0;
    }
    free(values);
    return status;
}

/* Refuses a head of its own in the files of a model whose head is the embedding: one of the two is
 * a mistake, and the results would differ. */
static by_status check_head(const by__store *store, const by_weights *weights,
                            const by__checkpoint_load_options *options, by_error *error)
{
    static const char head_name[] = "lm_head.weight";
    char name[512];
    by_tensor_view head;
    by_tensor_view embedding;
    by__store_handle handle =
        options->tied == NULL ? BY__NO_ENTRY : by__store_find(store, options->tied);
    if (handle == BY__NO_ENTRY || !by_weights_has(weights, head_name) ||
        !is_in_file(store, handle, weights, options)) {
        return BY_OK;
    }
    (void)file_name(name, by__store_entry(store, handle), weights, options);
    BY_TRY(by__weights_describe(weights, head_name, &head, error));
    BY_TRY(by__weights_describe(weights, name, &embedding, error));
    bool same = head.rank == embedding.rank &&
                memcmp(head.shape, embedding.shape, (size_t)head.rank * sizeof *head.shape) == 0;
    BY_TRY(same ? compare(&same, weights, &head, &embedding, error) : BY_OK);
    return same ? BY_OK
                : by_error_set(error, BY_EFORMAT,
                               "%s: config.json ties the head to the embedding, but '%s' differs "
                               "from '%s'; set \"tie_word_embeddings\" to false to use both, or "
                               "remove '%s'",
                               by_weights_path(weights), head_name, name, head_name);
}

by_status by__checkpoint_store_check(const by__store *store, int flat, const by_weights *weights,
                                     const by__checkpoint_load_options *options, by_error *error)
{
    BY_TRY(check_unused(store, weights, options, error));
    BY_TRY(check_head(store, weights, options, error));
    for (size_t i = 0; i < by__store_count(store); i++) {
        by_tensor_view tensor;
        if (is_left(store, flat, (by__store_handle)i, weights, options)) {
            continue;
        }
        if (is_in_parts(store, (by__store_handle)i, weights, options)) {
            BY_TRY(read_parts(NULL, by__store_entry(store, (by__store_handle)i), weights, options,
                              error));
        } else {
            BY_TRY(find(store, flat, (by__store_handle)i, weights, options, &tensor, error));
        }
    }
    return BY_OK;
}

by_status by__checkpoint_store_load(by__store *store, int flat, const by_weights *weights,
                                    const by__checkpoint_load_options *options, by_error *error)
{
    BY_TRY(check_head(store, weights, options, error));
    for (size_t i = 0; i < by__store_count(store); i++) {
        by_tensor_view tensor;
        if (is_left(store, flat, (by__store_handle)i, weights, options)) {
            continue;
        }
        if (is_in_parts(store, (by__store_handle)i, weights, options)) {
            BY_TRY(load_parts(store, flat, (by__store_handle)i, weights, options, error));
            continue;
        }
        if (is_grid(store, (by__store_handle)i, options)) {
            BY_TRY(load_grid(store, flat, (by__store_handle)i, weights, options, error));
            continue;
        }
        BY_TRY(find(store, flat, (by__store_handle)i, weights, options, &tensor, error));
        const by__store_tensor held = by__store_held(store, flat, (by__store_handle)i);
        BY_TRY(by__store_is_part(&held) ? load_boxes(store, flat, (by__store_handle)i, weights,
                                                     &tensor, options->threads, error)
                                        : load(store, flat, (by__store_handle)i, weights, &tensor,
                                               options->exact_codes, options->threads, error));
        BY_TRY(by__checkpoint_mean_rows(store, flat, (by__store_handle)i, weights, &tensor, options,
                                        error));
    }
    return BY_OK;
}

by_status by__checkpoint_store_initialized(by_string *names, const by__store *store, int flat,
                                           const by_weights *weights,
                                           const by__checkpoint_load_options *options,
                                           by_error *error)
{
    for (size_t k = 0; k < options->anew_count; k++) {
        const char *pattern = options->anew[k];
        bool used = false;
        for (size_t i = 0; i < by__store_count(store) && !used; i++) {
            used = begins_anew(store, flat, (by__store_handle)i, pattern, weights, options);
        }
        if (!used) {
            return by_error_set(
                error, BY_ECONFIG,
                "model.new: \"%.100s\" matches no parameter that %s lacks or has in "
                "another shape: leave it out",
                pattern, by_weights_path(weights));
        }
    }
    for (size_t i = 0; i < by__store_count(store); i++) {
        if (is_new(store, flat, (by__store_handle)i, weights, options)) {
            by_string_format(names, "%s%s", names->length == 0 ? "" : ", ",
                             by__store_entry(store, (by__store_handle)i)->name);
        }
    }
    return names->failed ? by_error_set(error, BY_EMEMORY, "out of memory: names") : BY_OK;
}
