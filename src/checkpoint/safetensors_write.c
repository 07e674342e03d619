#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/storage.h"

/* The convention of the reference writer: larger alignment first, then by name. */
static const struct {
    const char *name;
    int rank;
} types[BY_DTYPE_COUNT] = {
    [BY_BOOL] = {"BOOL", 0}, [BY_U8] = {"U8", 1},   [BY_F16] = {"F16", 2},
    [BY_BF16] = {"BF16", 3}, [BY_I32] = {"I32", 4}, [BY_F32] = {"F32", 5},
};

by_status by_tensor_size(const by_tensor_view *tensor, size_t *elements, size_t *bytes,
                         by_error *error)
{
    const char *name = tensor->name == NULL ? "" : tensor->name;
    size_t count = 1;
    size_t total;
    bool empty = false;
    bool fits = true;
    if (by_dtype_size(tensor->dtype) == 0 || tensor->rank < 0 ||
        tensor->rank > BY_TENSOR_MAX_RANK) {
        return by_error_set(error, BY_EARG, "tensor '%.200s': dtype %d or rank %d is not valid",
                            name, (int)tensor->dtype, tensor->rank);
    }
    for (int i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0) {
            return by_error_set(error, BY_EARG, "tensor '%.200s': dimension %d is %" PRId64, name,
                                i, tensor->shape[i]);
        }
        empty = empty || tensor->shape[i] == 0;
        fits = fits && by__size_mul(count, (size_t)tensor->shape[i], &count);
    }
    count = empty ? 0 : count;
    if ((!fits && !empty) || !by__size_mul(count, by_dtype_size(tensor->dtype), &total)) {
        return by_error_set(error, BY_EMEMORY, "tensor '%.200s': its size overflows", name);
    }
    if (elements != NULL) {
        *elements = count;
    }
    if (bytes != NULL) {
        *bytes = total;
    }
    return BY_OK;
}

by_status by_tensor_read_f32(const by_tensor_view *tensor, float *out, size_t count,
                             by_error *error)
{
    size_t elements;
    BY_TRY(by_tensor_size(tensor, &elements, NULL, error));
    if (elements != count) {
        return by_error_set(error, BY_EARG, "tensor '%.200s' has %zu elements, expected %zu",
                            tensor->name, elements, count);
    }
    const uint8_t *bytes = tensor->data;
    switch (tensor->dtype) {
    case BY_F32:
        if (count > 0) {
            memcpy(out, bytes, count * sizeof *out);
        }
        return BY_OK;
    case BY_BF16:
    case BY_F16:
        for (size_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, bytes + 2 * i, sizeof half);
            out[i] = tensor->dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
        }
        return BY_OK;
    default:
        return by_error_set(error, BY_EFORMAT, "tensor '%.200s' is %s, expected f32, bf16 or f16",
                            tensor->name, by_dtype_name(tensor->dtype));
    }
}

static int by_type_and_name(const void *a, const void *b)
{
    const by_tensor_view *x = *(const by_tensor_view *const *)a;
    const by_tensor_view *y = *(const by_tensor_view *const *)b;
    int order = types[y->dtype].rank - types[x->dtype].rank;
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* "pt" as transformers wants it: which library's conventions the tensors follow. */
static by_status make_header(by__text *text, const by_tensor_view *const *tensors, size_t count,
                             uint64_t *data_bytes, by_error *error)
{
    uint64_t offset = 0;
    by__text_add(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        size_t bytes;
        BY_TRY(by_tensor_size(tensors[i], NULL, &bytes, error));
        by__text_add(text, ",");
        by__text_json(text, tensors[i]->name, strlen(tensors[i]->name));
        by__text_format(text, ":{\"dtype\":\"%s\",\"shape\":[", types[tensors[i]->dtype].name);
        for (int k = 0; k < tensors[i]->rank; k++) {
            by__text_format(text, "%s%" PRId64, k == 0 ? "" : ",", tensors[i]->shape[k]);
        }
        by__text_format(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
                        offset + bytes);
        offset += bytes;
    }
    by__text_add(text, "}");
    while (!text->failed && text->length % 8 != 0) {
        by__text_add(text, " ");
    }
    *data_bytes = offset;
    return text->failed ? by_error_set(error, BY_EMEMORY, "out of memory: safetensors header")
                        : BY_OK;
}

/* Sorts `tensors` in place and writes them as one file. */
static by_status write_one(const char *directory, const char *name, const by_tensor_view **tensors,
                           size_t count, by__file_list *written, by_error *error)
{
    by__text header = {0};
    by__sink *sink = NULL;
    uint64_t data_bytes = 0;
    uint8_t length[8];
    if (count > 1) {
        qsort(tensors, count, sizeof *tensors, by_type_and_name);
    }
    by_status status = make_header(&header, tensors, count, &data_bytes, error);
    if (status == BY_OK) {
        status = by__sink_open(&sink, directory, name, 8 + header.length + data_bytes, error);
    }
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)((uint64_t)header.length >> (8 * i));
    }
    if (status == BY_OK) {
        status = by__sink_add(sink, length, sizeof length, error);
    }
    if (status == BY_OK) {
        status = by__sink_add(sink, header.data, header.length, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        size_t bytes;
        status = by_tensor_size(tensors[i], NULL, &bytes, error);
        if (status == BY_OK) {
            status = by__sink_add(sink, tensors[i]->data, bytes, error);
        }
    }
    by__text_free(&header);
    if (status != BY_OK) {
        by__sink_discard(&sink);
        return status;
    }
    return by__sink_commit(&sink, written, error);
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const by_tensor_view *const *)a)->name,
                  (*(const by_tensor_view *const *)b)->name);
}

/* Refuses what could not be read back. `order` is scratch of `count` pointers. */
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
        if (bytes > 0 && t->data == NULL) {
            return by_error_set(error, BY_EARG, "tensor '%.200s' has no data", t->name);
        }
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
    (void)snprintf(out, 256, "%.200s-%05zu-of-%05zu.safetensors", stem, shard + 1, shards);
}

/* Fills shard_of in the caller's order, as Hugging Face does: a new shard begins when the next
 * tensor would not fit. Returns the number of shards. */
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

static by_status write_index(const char *directory, const char *stem, const by_tensor_view *tensors,
                             const by_tensor_view *const *sorted, const size_t *shard_of,
                             size_t count, uint64_t total, by__file_list *written, by_error *error)
{
    size_t shards = shard_of[count - 1] + 1;
    char name[256];
    by__text text = {0};
    by__text_format(
        &text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
        total);
    for (size_t i = 0; i < count; i++) {
        shard_name(name, stem, shard_of[sorted[i] - tensors], shards);
        by__text_add(&text, i == 0 ? "\n    " : ",\n    ");
        by__text_json(&text, sorted[i]->name, strlen(sorted[i]->name));
        by__text_format(&text, ": \"%s\"", name);
    }
    by__text_add(&text, "\n  }\n}\n");
    by_status status = BY_OK;
    if (text.failed) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: shard index");
    } else {
        (void)snprintf(name, sizeof name, "%.200s.safetensors.index.json", stem);
        status = by__sink_put(directory, name, text.data, text.length, written, error);
    }
    by__text_free(&text);
    return status;
}

static by_status write_shards(const char *directory, const char *stem,
                              const by_tensor_view *tensors, const by_tensor_view **scratch,
                              size_t count, uint64_t limit, uint64_t total, by__file_list *written,
                              by_error *error)
{
    size_t *shard_of;
    BY_TRY(by__alloc((void **)&shard_of, count, sizeof *shard_of, "shard list", error));
    size_t shards = assign_shards(tensors, count, limit, shard_of);
    by_status status = BY_OK;
    for (size_t first = 0; first < count && status == BY_OK;) {
        size_t n = 0;
        char name[256];
        for (; first + n < count && shard_of[first + n] == shard_of[first]; n++) {
            scratch[n] = &tensors[first + n];
        }
        shard_name(name, stem, shard_of[first], shards);
        status = write_one(directory, name, scratch, n, written, error);
        first += n;
    }
    for (size_t i = 0; i < count; i++) {
        scratch[i] = &tensors[i];
    }
    qsort(scratch, count, sizeof *scratch, by_name);
    if (status == BY_OK) {
        status =
            write_index(directory, stem, tensors, scratch, shard_of, count, total, written, error);
    }
    free(shard_of);
    return status;
}

by_status by__weights_write(const char *directory, const char *stem, const by_tensor_view *tensors,
                            size_t count, uint64_t shard_bytes, by__file_list *written,
                            by_error *error)
{
    const by_tensor_view **order;
    uint64_t limit = shard_bytes == 0 ? BY_DEFAULT_SHARD_BYTES : shard_bytes;
    uint64_t total;
    char name[256];
    BY_TRY(by__alloc((void **)&order, count, sizeof *order, "tensor order", error));
    by_status status = check_tensors(tensors, count, order, &total, error);
    if (status == BY_OK && (total <= limit || count == 1)) {
        (void)snprintf(name, sizeof name, "%.200s.safetensors", stem);
        status = write_one(directory, name, order, count, written, error);
    } else if (status == BY_OK) {
        status = write_shards(directory, stem, tensors, order, count, limit, total, written, error);
    }
    free(order);
    return status;
}

by_status by_tensors_write(const char *path, const by_tensor_view *tensors, size_t count,
                           by_error *error)
{
    static const char suffix[] = ".safetensors";
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    size_t length = strlen(file);
    size_t stem_length = length - (sizeof suffix - 1);
    if (length <= sizeof suffix - 1 || strcmp(file + stem_length, suffix) != 0) {
        return by_error_set(error, BY_EARG, "'%s' does not end in .safetensors", path);
    }
    char *directory =
        slash == NULL ? by__strdup(".") : by__strndup(path, (size_t)(slash - path) + 1);
    char *stem = by__strndup(file, stem_length);
    by_status status =
        directory == NULL || stem == NULL
            ? by_error_set(error, BY_EMEMORY, "out of memory: path")
            : by__weights_write(directory, stem, tensors, count, UINT64_MAX, NULL, error);
    free(directory);
    free(stem);
    return status;
}
