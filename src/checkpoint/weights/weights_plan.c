/* Layout of tensors in files: files, their headers and the index of shards, from shapes alone. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"

/* The order of the reference writer: larger alignment first, then by name. */
static const struct {
    const char *name;
    int rank;
} types[BY_DTYPE_COUNT] = {
    [BY_BOOL] = {"BOOL", 0},  [BY_U8] = {"U8", 1},   [BY_I8] = {"I8", 2},
    [BY_F8] = {"F8_E4M3", 3}, [BY_F16] = {"F16", 4}, [BY_BF16] = {"BF16", 5},
    [BY_I32] = {"I32", 6},    [BY_F32] = {"F32", 7},
};

const char *by__checkpoint_type_name(by_dtype dtype)
{
    return types[dtype].name;
}

static int by_type_and_name(const void *a, const void *b)
{
    const by_tensor_view *x = *(const by_tensor_view *const *)a;
    const by_tensor_view *y = *(const by_tensor_view *const *)b;
    int order = types[y->dtype].rank - types[x->dtype].rank;
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* Prints the header. transformers requires the metadata "format": "pt", which names the library
 * whose conventions the tensors follow. */
static by_status make_header(by_string *text, const by_tensor_view *const *tensors, size_t count,
                             uint64_t *data_bytes, by_error *error)
{
    uint64_t offset = 0;
    by__string_append(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        BY_TRY(by_tensor_size(tensors[i], NULL, &bytes, error));
        by__string_append(text, ",");
        by_string_json(text, tensors[i]->name, strlen(tensors[i]->name));
        by_string_format(text, ":{\"dtype\":\"%s\",\"shape\":[", types[tensors[i]->dtype].name);
        for (int k = 0; k < tensors[i]->rank; k++) {
            by_string_format(text, "%s%" PRId64, k == 0 ? "" : ",", tensors[i]->shape[k]);
        }
        by_string_format(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
                         offset + bytes);
        offset += bytes;
    }
    by__string_append(text, "}");
    while (!text->failed && text->length % 8 != 0) {
        by__string_append(text, " ");
    }
    *data_bytes = offset;
    return text->failed ? by_error_set(error, BY_EMEMORY, "out of memory: safetensors header")
                        : BY_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const by_tensor_view *const *)a)->name,
                  (*(const by_tensor_view *const *)b)->name);
}

/* Refuses tensors that could not be read back. `order` is scratch of `count` pointers. */
static by_status check_tensors(const by_tensor_view *tensors, size_t count,
                               const by_tensor_view **order, uint64_t *total, by_error *error)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        const by_tensor_view *t = &tensors[i];
        size_t bytes;
        if (t->name == NULL || t->name[0] == '\0' || strcmp(t->name, "__metadata__") == 0 ||
            !by__utf8_valid(t->name, strlen(t->name))) {
            return by_error_set(error, BY_EARG,
                                "tensor %zu: its name is empty, reserved or not UTF-8", i);
        }
        BY_TRY(by_tensor_size(t, NULL, &bytes, error));
        if (bytes > INT64_MAX - *total) {
            return by_error_set(error, BY_EMEMORY, "tensor '%.200s': the total size overflows",
                                t->name);
        }
        *total += bytes;
        order[i] = t;
    }
    if (count > 1) {
        qsort(order, count, sizeof *order, by_name);
    }
    for (size_t i = 1; i < count; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) {
            return by_error_set(error, BY_EARG, "two tensors are called '%.200s'", order[i]->name);
        }
    }
    return BY_OK;
}

static void shard_name(char out[256], const char *stem, size_t shard, size_t shards)
{
    (void)snprintf(out, 256, "%.190s-%05zu-of-%05zu.safetensors", stem, shard + 1, shards);
}

/* Assigns tensors to shards in the caller's order, as Hugging Face does: a new shard begins when
 * the next tensor would not fit. Returns the number of shards. */
static size_t assign_shards(const by_tensor_view *tensors, size_t count, uint64_t limit,
                            size_t *shard_of)
{
    size_t shard = 0;
    uint64_t used = 0;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        (void)by_tensor_size(&tensors[i], NULL, &bytes, NULL);
        if (used > 0 && used + bytes > limit) {
            shard++;
            used = 0;
        }
        used += bytes;
        shard_of[i] = shard;
    }
    return shard + 1;
}

/* Makes the header, with its length, and the offset of each tensor. `order` contains the file's
 * tensors. */
static by_status plan_file(by__checkpoint_weights_plan *p, size_t file,
                           const by_tensor_view *tensors, const by_tensor_view **order,
                           size_t count, by_error *error)
{
    by__checkpoint_planned_file *f = &p->files[file];
    by_string json = {0};
    uint64_t data_bytes = 0;
    uint8_t length[8];
    if (count > 1) {
        qsort(order, count, sizeof *order, by_type_and_name);
    }
    by_status status = make_header(&json, order, count, &data_bytes, error);
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)((uint64_t)json.length >> (8 * i));
    }
    if (status == BY_OK) {
        by_string_add(&f->header, length, sizeof length);
        by_string_add(&f->header, json.data, json.length);
        if (f->header.failed) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: safetensors header");
        }
    }
    by_string_free(&json);
    BY_TRY(status);
    f->size = f->header.length + data_bytes;
    f->first = file == 0 ? 0 : p->files[file - 1].first + p->files[file - 1].count;
    f->count = count;
    uint64_t at = f->header.length;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        size_t tensor = (size_t)(order[i] - tensors);
        (void)by_tensor_size(order[i], NULL, &bytes, NULL); /* it was checked before */
        p->order[f->first + i] = tensor;
        p->tensors[tensor] =
            (by__checkpoint_planned_tensor){.file = file, .begin = at, .bytes = bytes};
        at += bytes;
    }
    return BY_OK;
}

by_status by__weights_index_print(char **out, size_t *length, const by_tensor_view *tensors,
                                  const char *const *files, size_t count, by_error *error)
{
    by_string text = {0};
    const by_tensor_view **order;
    uint64_t total = 0;
    BY_TRY(by__alloc((void **)&order, count, sizeof *order, "tensor order", error));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        (void)by_tensor_size(&tensors[i], NULL, &bytes, NULL); /* it was checked before */
        total += bytes;
        order[i] = &tensors[i];
    }
    if (count > 1) {
        qsort(order, count, sizeof *order, by_name);
    }
    by_string_format(
        &text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
        total);
    for (size_t i = 0; i < count; i++) {
        by__string_append(&text, i == 0 ? "\n    " : ",\n    ");
        by_string_json(&text, order[i]->name, strlen(order[i]->name));
        by_string_format(&text, ": \"%s\"", files[order[i] - tensors]);
    }
    by__string_append(&text, "\n  }\n}\n");
    free(order);
    *length = text.length;
    return by__string_release(&text, out, error);
}

static by_status plan_index(by__checkpoint_weights_plan *p, const by_tensor_view *tensors,
                            by_error *error)
{
    const char **files;
    free(p->index);
    p->index = NULL;
    BY_TRY(by__alloc((void **)&files, p->count, sizeof *files, "shard list", error));
    for (size_t i = 0; i < p->count; i++) {
        files[i] = p->files[p->tensors[i].file].name;
    }
    by_status status =
        by__weights_index_print(&p->index, &p->index_length, tensors, files, p->count, error);
    free(files);
    return status;
}

by_status by__weights_plan_rename(by__checkpoint_weights_plan *plan, const char *stem,
                                  const by_tensor_view *tensors, by_error *error)
{
    for (size_t i = 0; i < plan->file_count; i++) {
        shard_name(plan->files[i].name, stem, i, plan->file_count);
    }
    return plan_index(plan, tensors, error);
}

static by_status plan_files(by__checkpoint_weights_plan *p, const char *stem,
                            const by_tensor_view *tensors, const by_tensor_view **order,
                            uint64_t limit, uint64_t total, by_error *error)
{
    size_t *shard_of;
    size_t count = p->count;
    BY_TRY(by__alloc((void **)&shard_of, count, sizeof *shard_of, "shard list", error));
    size_t shards = total <= limit ? 1 : assign_shards(tensors, count, limit, shard_of);
    by_status status = by__alloc((void **)&p->files, shards, sizeof *p->files, "files", error);
    p->file_count = status == BY_OK ? shards : 0;
    for (size_t first = 0, file = 0; file < shards && status == BY_OK; file++) {
        size_t n = 0;
        for (; first + n < count && shard_of[first + n] == file; n++) {
            order[n] = &tensors[first + n];
        }
        if (total <= limit || count == 1) {
            (void)snprintf(p->files[0].name, sizeof p->files[0].name, "%.200s.safetensors", stem);
        } else {
            shard_name(p->files[file].name, stem, file, shards);
        }
        status = plan_file(p, file, tensors, order, n, error);
        first += n;
    }
    if (status == BY_OK && total > limit && count > 1) {
        (void)snprintf(p->index_name, sizeof p->index_name, "%.200s.safetensors.index.json", stem);
        status = plan_index(p, tensors, error);
    }
    free(shard_of);
    return status;
}

by_status by__weights_plan_make(by__checkpoint_weights_plan *out, const char *stem,
                                const by_tensor_view *tensors, size_t count, uint64_t shard_bytes,
                                by_error *error)
{
    by__checkpoint_weights_plan p = {.count = count};
    const by_tensor_view **order = NULL;
    uint64_t total = 0;
    by_status status = by__alloc((void **)&order, count, sizeof *order, "tensor order", error);
    if (status == BY_OK) {
        status = check_tensors(tensors, count, order, &total, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&p.order, count, sizeof *p.order, "tensor order", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&p.tensors, count, sizeof *p.tensors, "tensor list", error);
    }
    if (status == BY_OK) {
        status = plan_files(&p, stem, tensors, order,
                            shard_bytes == 0 ? BY_DEFAULT_SHARD_BYTES : shard_bytes, total, error);
    }
    free(order);
    if (status != BY_OK) {
        by__weights_plan_free(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by__weights_plan_free(by__checkpoint_weights_plan *plan)
{
    for (size_t i = 0; i < plan->file_count; i++) {
        by_string_free(&plan->files[i].header);
    }
    free(plan->files);
    free(plan->order);
    free(plan->tensors);
    free(plan->index);
    *plan = (by__checkpoint_weights_plan){0};
}
