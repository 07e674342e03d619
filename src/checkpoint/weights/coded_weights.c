/* Quantized weights, stored as codes and scales in the formats of compressed-tensors:
 *
 *   int-quantized    X.weight i8 [n, k], X.weight_scale [n, 1]
 *   float-quantized  X.weight f8 [n, k], X.weight_scale [n, 1] or [1]
 *   pack-quantized   X.weight_packed i32 [n, k / 8], X.weight_scale [n, k / group],
 *                    X.weight_shape [2]: n, k
 *
 * They are read as tensors X.weight of f32. Codes have outputs as rows; a tensor that is [k, n], as
 * in GPT-2, is named in config.json's quantization_config.in_out. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "checkpoint/storage.h"

/* Possible group sizes of a 4-bit weight: the number of scales of an output determines which; if it
 * is ambiguous, all inputs share one scale. */
static const int64_t groups[] = {32, 64, 128};

/* The tensors of a directory, and the layer whose codes are being read. */
typedef struct coded_reader {
    const by__checkpoint_tensor_entry *const *entries;
    size_t count;
    const char *path;
    const json_t *config; /* quantization_config; NULL: there is none */
    by_error *error;
} coded_reader;

static by_status wrong(const coded_reader *r, const char *name, const char *what)
{
    return by_error_set(r->error, BY_EFORMAT, "%s: the quantized weight '%.200s': %s", r->path,
                        name, what);
}

static const by__checkpoint_tensor_entry *find(const coded_reader *r, const char *layer,
                                               size_t length, const char *end)
{
    by__checkpoint_tensor_entry key = {0};
    const by__checkpoint_tensor_entry *wanted = &key;
    char name[512];
    if (length + strlen(end) >= sizeof name) {
        return NULL;
    }
    (void)snprintf(name, sizeof name, "%.*s%s", (int)length, layer, end);
    key.name = name;
    const by__checkpoint_tensor_entry *const *found =
        bsearch(&wanted, r->entries, r->count, sizeof *r->entries, by__checkpoint_compare_entries);
    return found == NULL ? NULL : *found;
}

/* The suffix of the name of a layer's codes; NULL: the tensor is not one. */
static const char *codes_of(const by__checkpoint_tensor_entry *entry)
{
    bool narrow = entry->dtype == BY_I8 || entry->dtype == BY_F8;
    if (by__ends_with(entry->name, ".weight_packed")) {
        return ".weight_packed";
    }
    return narrow && by__ends_with(entry->name, ".weight") ? ".weight" : NULL;
}

static bool is_part_of_codes(const coded_reader *r, const char *name)
{
    static const char *const ends[] = {".weight_scale", ".weight_shape"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        if (by__ends_with(name, ends[i])) {
            size_t layer = strlen(name) - strlen(ends[i]);
            const by__checkpoint_tensor_entry *codes = find(r, name, layer, ".weight_packed");
            codes = codes == NULL ? find(r, name, layer, ".weight") : codes;
            return codes != NULL && codes_of(codes) != NULL;
        }
    }
    return false;
}

/* Returns true if config.json says that the layer's tensor is [k, n]. */
static bool is_in_out(const coded_reader *r, const char *layer, size_t length)
{
    const json_t *names = json_object_get(r->config, "in_out");
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (name != NULL && strlen(name) == length && strncmp(name, layer, length) == 0) {
            return true;
        }
    }
    return false;
}

static int64_t number_at(const by__checkpoint_tensor_entry *entry, int i)
{
    int32_t small;
    int64_t large;
    if (entry->dtype == BY_I32) {
        memcpy(&small, entry->data + (size_t)i * sizeof small, sizeof small);
        return small;
    }
    memcpy(&large, entry->data + (size_t)i * sizeof large, sizeof large);
    return large;
}

/* Reads kind, sizes and codes. */
static by_status read_codes(const coded_reader *r, by__coded *out,
                            const by__checkpoint_tensor_entry *codes, size_t layer)
{
    if (codes->rank != 2 || codes->data == NULL || codes->shape[0] < 1 || codes->shape[1] < 1) {
        return wrong(r, codes->name, "they are not a matrix");
    }
    out->n = codes->shape[0];
    out->k = codes->shape[1];
    out->codes = codes->data;
    out->kind = codes->dtype == BY_F8 ? BY__CODE_F8 : BY__CODE_INT8;
    if (codes_of(codes)[sizeof ".weight" - 1] == '\0') {
        return BY_OK;
    }
    const by__checkpoint_tensor_entry *shape = find(r, codes->name, layer, ".weight_shape");
    if (shape == NULL || codes->dtype != BY_I32 || shape->rank != 1 || shape->shape[0] != 2 ||
        (shape->dtype != BY_I32 && strcmp(shape->type, "I64") != 0) || shape->data == NULL) {
        return wrong(r, codes->name, "expected i32 words and a weight_shape of two integers");
    }
    out->kind = BY__CODE_INT4;
    out->k = number_at(shape, 1);
    if (number_at(shape, 0) != out->n || out->k < 1 || out->k > INT32_MAX ||
        (out->k + 7) / 8 != codes->shape[1]) {
        return wrong(r, codes->name, "weight_shape does not fit them; codes have 4 bits");
    }
    return BY_OK;
}

static by_status read_scales(const coded_reader *r, by__coded *out,
                             const by__checkpoint_tensor_entry *codes, size_t layer)
{
    const by__checkpoint_tensor_entry *s = find(r, codes->name, layer, ".weight_scale");
    int64_t columns = 0;
    if (s != NULL && s->dtype >= 0 && by_dtype_is_float((by_dtype)s->dtype) && s->data != NULL) {
        bool one = (s->rank == 1 || s->rank == 2) && s->shape[0] == 1 && out->n > 1 &&
                   (s->rank == 1 || s->shape[1] == 1);
        bool row = s->shape[0] == out->n && (s->rank == 1 || s->rank == 2);
        columns = row ? (s->rank == 2 ? s->shape[1] : 1) : 0;
        out->scales = s->data;
        out->scale_dtype = (by_dtype)s->dtype;
        out->scale_row = columns;
        if (one || columns == 1) {
            out->group = out->k;
            return BY_OK;
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(groups) && out->kind == BY__CODE_INT4; i++) {
        if (columns > 1 && (out->k + groups[i] - 1) / groups[i] == columns) {
            out->group = groups[i];
            return BY_OK;
        }
    }
    return wrong(r, codes->name,
                 out->kind == BY__CODE_INT4
                     ? "weight_scale must have a scale for each output, or for 32, "
                       "64 or 128 of its inputs"
                     : "weight_scale must have a scale for each output");
}

static void read_values(const by__checkpoint_computed *self, uint64_t first, size_t count, void *to)
{
    const by__checkpoint_coded_tensor *tensor =
        (const by__checkpoint_coded_tensor *)(const void *)self;
    const by__coded *c = &tensor->coded;
    int64_t columns = tensor->in_out ? c->n : c->k;
    float *out = to;
    while (count > 0) {
        int64_t row = (int64_t)first / columns;
        int64_t column = (int64_t)first % columns;
        size_t n = (size_t)(columns - column) < count ? (size_t)(columns - column) : count;
        for (size_t i = 0; i < n && tensor->in_out; i++) {
            out[i] = by__coded_at(c, column + (int64_t)i, row);
        }
        if (!tensor->in_out) {
            by__coded_row(c, row, column, (int64_t)n, out);
        }
        out += n;
        first += n;
        count -= n;
    }
}

const by__coded *by__checkpoint_entry_coded(const by__checkpoint_tensor_entry *entry)
{
    bool coded =
        entry->delta == NULL && entry->computed != NULL && entry->computed->read == read_values;
    return coded ? &((const by__checkpoint_coded_tensor *)(const void *)entry->computed)->coded
                 : NULL;
}

/* The bytes of a layer's codes, scales and shape in the file. */
static uint64_t bytes_of_codes(const coded_reader *r, const by__checkpoint_tensor_entry *codes,
                               size_t layer)
{
    static const char *const ends[] = {".weight_scale", ".weight_shape"};
    uint64_t bytes = codes->end - codes->begin;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(ends); i++) {
        const by__checkpoint_tensor_entry *part = find(r, codes->name, layer, ends[i]);
        bytes += part == NULL ? 0 : part->end - part->begin;
    }
    return bytes;
}

static by_status read_layer(const coded_reader *r, by__checkpoint_tensor_entry *own,
                            by__checkpoint_coded_tensor *coded,
                            const by__checkpoint_tensor_entry *codes)
{
    static const char *const refused[] = {".weight_zero_point", ".weight_g_idx"};
    size_t layer = strlen(codes->name) - strlen(codes_of(codes));
    by_string name = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(refused); i++) {
        if (find(r, codes->name, layer, refused[i]) != NULL) {
            return wrong(
                r, codes->name,
                "zero points and reordered inputs are not supported; quantize it symmetrically");
        }
    }
    BY_TRY(read_codes(r, &coded->coded, codes, layer));
    BY_TRY(read_scales(r, &coded->coded, codes, layer));
    coded->computed.read = read_values;
    coded->in_out = is_in_out(r, codes->name, layer);
    by_string_add(&name, codes->name, layer);
    by__string_append(&name, ".weight");
    int64_t n = coded->coded.n;
    int64_t k = coded->coded.k;
    size_t bytes;
    if (!by__size_mul((size_t)n, (size_t)k, &bytes) || !by__size_mul(bytes, 4, &bytes)) {
        by_string_free(&name);
        return wrong(r, codes->name, "they are too many");
    }
    *own = (by__checkpoint_tensor_entry){.type = by__checkpoint_type_name(BY_F32),
                                         .dtype = BY_F32,
                                         .rank = 2,
                                         .shape = {coded->in_out ? k : n, coded->in_out ? n : k},
                                         .end = bytes,
                                         .file = codes->file,
                                         .computed = &coded->computed,
                                         .code_bytes = bytes_of_codes(r, codes, layer)};
    return by__string_release(&name, &own->name, r->error);
}

static bool quantizes_activations(const json_t *config)
{
    const json_t *all = json_object_get(config, "config_groups");
    bool found = false;
    for (void *i = json_object_iter((json_t *)(uintptr_t)all); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)all, i)) {
        const json_t *rows = json_object_get(json_object_iter_value(i), "input_activations");
        const char *type = json_string_value(json_object_get(rows, "type"));
        found = found || (json_integer_value(json_object_get(rows, "num_bits")) == 8 &&
                          type != NULL && strcmp(type, "int") == 0);
    }
    return found;
}

static by_status make(by__checkpoint_coded_entries *out, const coded_reader *r, size_t coded)
{
    BY_TRY(by__alloc((void **)&out->entries, r->count, sizeof *out->entries, "tensors", r->error));
    BY_TRY(by__alloc((void **)&out->own, coded, sizeof *out->own, "tensors", r->error));
    BY_TRY(by__alloc((void **)&out->coded, coded, sizeof *out->coded, "tensors", r->error));
    for (size_t i = 0; i < r->count; i++) {
        const by__checkpoint_tensor_entry *entry = r->entries[i];
        if (codes_of(entry) != NULL) {
            size_t at = out->own_count;
            BY_TRY(read_layer(r, &out->own[at], &out->coded[at], entry));
            out->own_count++;
            out->entries[out->count++] = &out->own[at];
        } else if (!is_part_of_codes(r, entry->name)) {
            out->entries[out->count++] = entry;
        }
    }
    qsort(out->entries, out->count, sizeof *out->entries, by__checkpoint_compare_entries);
    for (size_t i = 1; i < out->count; i++) {
        if (strcmp(out->entries[i - 1]->name, out->entries[i]->name) == 0) {
            return wrong(r, out->entries[i]->name, "the weight is there as well");
        }
    }
    out->rows_as_integers = quantizes_activations(r->config);
    return BY_OK;
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t n = strlen(end);
    return length > n && strcmp(name + length - n, end) == 0;
}

/* Refuses codes in other programs' packings, which would otherwise be missing weights. */
static by_status refuse_foreign(const coded_reader *r)
{
    static const struct {
        const char *end;
        const char *made_by;
    } foreign[] = {
        {".qweight", "GPTQ or AWQ"}, {".SCB", "bitsandbytes"}, {".absmax", "bitsandbytes"}};
    const char *method = json_string_value(json_object_get(r->config, "quant_method"));
    for (size_t i = 0; i < r->count; i++) {
        for (size_t k = 0; k < BY_ARRAY_LENGTH(foreign); k++) {
            if (ends_with(r->entries[i]->name, foreign[k].end)) {
                return by_error_set(r->error, BY_EFORMAT,
                                    "%s: '%.200s' is quantized in the format of %s, which is not "
                                    "supported: quantize the original model with `banyan "
                                    "compress`, or use the format of compressed-tensors",
                                    r->path, r->entries[i]->name,
                                    method != NULL && strlen(method) < 32 ? method
                                                                          : foreign[k].made_by);
            }
        }
    }
    return BY_OK;
}

by_status by__checkpoint_coded_entries_make(by__checkpoint_coded_entries *out,
                                            const by__checkpoint_tensor_entry *const *entries,
                                            size_t count, const char *path, const char *config,
                                            by_error *error)
{
    size_t coded = 0;
    json_t *json = NULL;
    for (size_t i = 0; i < count; i++) {
        coded += codes_of(entries[i]) != NULL;
    }
    if (config != NULL) {
        json = by__json_read(config, JSON_REJECT_DUPLICATES, NULL);
    }
    const coded_reader r = {entries, count, path, json_object_get(json, "quantization_config"),
                            error};
    by_status status = refuse_foreign(&r);
    if (status == BY_OK && coded > 0) {
        status = make(out, &r, coded);
    }
    json_decref(json);
    if (status != BY_OK) {
        by__checkpoint_coded_entries_free(out);
    }
    return status;
}

void by__checkpoint_coded_entries_free(by__checkpoint_coded_entries *coded)
{
    for (size_t i = 0; i < coded->own_count; i++) {
        free(coded->own[i].name);
    }
    free(coded->own);
    free(coded->coded);
    free(coded->entries);
    *coded = (by__checkpoint_coded_entries){0};
}

json_t *by__checkpoint_codes_describe(by__code_kind kind, int64_t group, bool rows, json_t *ignored,
                                      json_t *in_out)
{
    static const char *const formats[] = {"int-quantized", "pack-quantized", "float-quantized"};
    const char *type = kind == BY__CODE_F8 ? "float" : "int";
    json_t *weights = json_pack(
        "{s:i, s:s, s:b, s:s, s:o, s:b}", "num_bits", kind == BY__CODE_INT4 ? 4 : 8, "type", type,
        "symmetric", 1, "strategy", group > 0 ? "group" : "channel", "group_size",
        group > 0 ? json_integer((json_int_t)group) : json_null(), "dynamic", 0);
    json_t *inputs = rows ? json_pack("{s:i, s:s, s:b, s:s, s:b}", "num_bits", 8, "type", "int",
                                      "symmetric", 1, "strategy", "token", "dynamic", 1)
                          : json_null();
    json_t *made = json_pack(
        "{s:s, s:s, s:s, s:o, s:{s:{s:[s], s:s, s:o, s:o, s:n}}}", "quant_method",
        "compressed-tensors", "format", formats[kind], "quantization_status", "compressed",
        "ignore", ignored, "config_groups", "group_0", "targets", "Linear", "format", formats[kind],
        "weights", weights, "input_activations", inputs, "output_activations");
    if (in_out != NULL) {
        (void)json_object_set_new(made, "in_out", in_out);
    }
    return made;
}
