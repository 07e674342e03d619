/* Opens weights: a file, shards with an index, or tensors that are cut over files. */
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/weights/weights.h"

static void shard_free(by__weights_file *s)
{
    if (s != NULL) {
        by__checkpoint_safetensors_free(&s->content);
        by__map_close(&s->map);
        free(s->path);
        free(s->name);
        free(s);
    }
}

static by_status add_shard(by_weights *weights, const char *directory, const char *name,
                           by_error *error)
{
    by__weights_file *s;
    BY_TRY(by__reserve((void **)&weights->shards, &weights->shard_capacity,
                       weights->shard_count + 1, sizeof *weights->shards, error));
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "weight file", error));
    s->name = by__strdup(name);
    s->path = directory == NULL ? by__strdup(name) : by__path_join(directory, name);
    by_status status = BY_OK;
    if (s->name == NULL || s->path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    if (status == BY_OK) {
        status = by__map_open(&s->map, s->path, error);
    }
    if (status == BY_OK) {
        status =
            by__checkpoint_safetensors_parse(&s->content, s->path, s->map.data, s->map.size, error);
    }
    if (status != BY_OK) {
        shard_free(s);
        return status;
    }
    weights->shards[weights->shard_count++] = s;
    return BY_OK;
}

/* Sorts the entries by name; duplicates are an error. */
static by_status sort_entries(by_weights *weights, by_error *error)
{
    if (weights->count > 1) {
        qsort(weights->entries, weights->count, sizeof *weights->entries,
              by__checkpoint_compare_entries);
    }
    for (size_t i = 1; i < weights->count; i++) {
        const by__checkpoint_tensor_entry *before = weights->entries[i - 1];
        const by__checkpoint_tensor_entry *entry = weights->entries[i];
        if (strcmp(before->name, entry->name) == 0) {
            return by_error_set(error, BY_EFORMAT, "tensor '%.150s' is in both %s and %s",
                                entry->name, before->file, entry->file);
        }
    }
    return BY_OK;
}

static by_status join_shards(by_weights *weights, by_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < weights->shard_count; i++) {
        total += weights->shards[i]->content.count;
    }
    BY_TRY(by__alloc((void **)&weights->entries, total, sizeof *weights->entries, "tensor list",
                     error));
    for (size_t i = 0; i < weights->shard_count; i++) {
        for (size_t k = 0; k < weights->shards[i]->content.count; k++) {
            weights->entries[weights->count++] = &weights->shards[i]->content.entries[k];
        }
    }
    return sort_entries(weights, error);
}

/* The shard with that file name, opened on first use; consecutive names are mostly equal. */
static by_status shard_of(by_weights *weights, const char *directory, const char *name,
                          by_error *error)
{
    for (size_t i = weights->shard_count; i > 0; i--) {
        if (strcmp(weights->shards[i - 1]->name, name) == 0) {
            return BY_OK;
        }
    }
    return add_shard(weights, directory, name, error);
}

static by_status open_index(by_weights *weights, const char *directory, const char *path,
                            by_error *error)
{
    char *text;
    size_t length;
    by__checkpoint_index index = {0};
    BY_TRY(by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, error));
    by_status status = by__checkpoint_index_parse(&index, path, text, length, error);
    free(text);
    for (size_t i = 0; i < index.count && status == BY_OK; i++) {
        status = shard_of(weights, directory, index.items[i].file, error);
    }
    if (status == BY_OK) {
        status = join_shards(weights, error);
    }
    for (size_t i = 0; i < index.count && status == BY_OK; i++) {
        const by__checkpoint_tensor_entry *entry = by__weights_find(weights, index.items[i].tensor);
        const char *slash = entry == NULL ? NULL : strrchr(entry->file, '/');
        const char *file = slash == NULL ? (entry == NULL ? "" : entry->file) : slash + 1;
        if (strcmp(file, index.items[i].file) != 0) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: weight_map puts tensor '%.200s' in %.100s, which lacks it",
                                  path, index.items[i].tensor, index.items[i].file);
        }
    }
    by__checkpoint_index_free(&index);
    return status;
}

/* Makes the entry of a tensor that is cut over files. `pieces`: the entries of all files, by
 * name. */
static by_status join_slices(by__checkpoint_tensor_entry *out, const by_weights *pieces,
                             const by__checkpoint_cut_tensor *tensor, by_error *error)
{
    size_t bytes;
    const by_tensor_view *view = &tensor->view;
    BY_TRY(by_tensor_size(view, NULL, &bytes, error));
    *out = (by__checkpoint_tensor_entry){.name = (char *)(uintptr_t)view->name,
                                         .type = by__checkpoint_type_name(view->dtype),
                                         .dtype = (int)view->dtype,
                                         .rank = (size_t)view->rank,
                                         .end = bytes,
                                         .file = pieces->slices_path};
    memcpy(out->shape, view->shape, sizeof out->shape);
    BY_TRY(by__checkpoint_pieces_open(&out->pieces, view, error));
    for (size_t i = 0; i < tensor->count; i++) {
        const by__checkpoint_cut_slice *s = &pieces->slices.slices[tensor->first + i];
        char *name;
        size_t elements;
        BY_TRY(by__checkpoint_slice_check(view, &s->slice, &elements, error));
        BY_TRY(by__checkpoint_slice_name(&name, view, &s->slice, error));
        const by__checkpoint_tensor_entry *piece = by__weights_find(pieces, name);
        const char *file = piece == NULL ? "" : strrchr(piece->file, '/');
        by_status status = BY_OK;
        if (piece == NULL || strcmp(file == NULL ? piece->file : file + 1, s->file) != 0 ||
            piece->dtype != out->dtype ||
            piece->end - piece->begin != elements * by_dtype_size(view->dtype)) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: %.100s lacks '%.200s', %zu elements of type %s",
                                  pieces->slices_path, s->file, name, elements, out->type);
        }
        free(name);
        BY_TRY(status);
        BY_TRY(by__checkpoint_pieces_add(out->pieces, &s->slice, piece->data, error));
        out->data = tensor->count == 1 ? piece->data : NULL;
    }
    return BY_OK;
}

/* Opens tensors that are cut over files. */
static by_status open_slices(by_weights *weights, const char *directory, const char *path,
                             by_error *error)
{
    char *text;
    size_t length;
    weights->slices_path = by__strdup(path);
    if (weights->slices_path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    BY_TRY(by__file_read(&text, &length, path, BY_MAX_JSON_BYTES, error));
    by_status status =
        by__checkpoint_slice_index_parse(&weights->slices, path, text, length, error);
    free(text);
    for (size_t i = 0; i < weights->slices.slice_count && status == BY_OK; i++) {
        status = shard_of(weights, directory, weights->slices.slices[i].file, error);
    }
    if (status == BY_OK) {
        status = join_shards(weights, error);
    }
    size_t count = weights->slices.count;
    if (status == BY_OK) {
        status =
            by__alloc((void **)&weights->cut, count, sizeof *weights->cut, "tensor list", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = join_slices(&weights->cut[i], weights, &weights->slices.tensors[i], error);
    }
    if (status == BY_OK && weights->count != weights->slices.slice_count) {
        status = by_error_set(error, BY_EFORMAT, "%s lists %zu slices, the files hold %zu", path,
                              weights->slices.slice_count, weights->count);
    }
    /* From here on the entries are those of whole tensors, of which there are no more than
     * slices. */
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        weights->entries[i] = &weights->cut[i];
        weights->count = count;
    }
    if (count > 1 && status == BY_OK) {
        qsort(weights->entries, count, sizeof *weights->entries, by__checkpoint_compare_entries);
    }
    return status;
}

static by_status read_config(by_weights *weights, const char *directory, by_error *error)
{
    char *path;
    size_t length;
    BY_TRY(by__path_make(&path, directory, "config.json", error));
    by_status status = BY_OK;
    if (by__path_exists(path)) {
        status = by__file_read(&weights->config, &length, path, BY_MAX_JSON_BYTES, error);
    }
    free(path);
    return status;
}

/* Explains why a directory without safetensors is refused. It may have pickles, which execute their
 * content when loaded, or one file for another program. */
static by_status refuse_directory(const char *directory, const char *single, const char *index,
                                  by_error *error)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "consolidated.00.pth"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        char *path;
        BY_TRY(by__path_make(&path, directory, others[i], error));
        bool there = by__path_exists(path);
        free(path);
        if (there) {
            return by_error_set(
                error, BY_EFORMAT,
                "%s holds %s and no %s: PyTorch pickle files can execute code and are not read. "
                "Convert it: python3 -c \"from transformers import AutoModelForCausalLM as M; "
                "M.from_pretrained('%s', dtype='auto').save_pretrained('NEW')\" writes "
                "safetensors to NEW",
                directory, others[i], single, directory);
        }
    }
    return by_error_set(error, BY_EIO, "%s holds neither %s nor %s", directory, single, index);
}

/* Converts quantized weights to ordinary tensors. */
static by_status decode_entries(by_weights *weights, by_error *error)
{
    BY_TRY(by__checkpoint_coded_entries_make(&weights->coded, weights->entries, weights->count,
                                             weights->path, weights->config, error));
    if (weights->coded.entries != NULL) {
        free(weights->entries);
        weights->entries = weights->coded.entries;
        weights->count = weights->coded.count;
        weights->coded.entries = NULL;
    }
    return BY_OK;
}

static by_status open_directory(by_weights *weights, const char *directory, const char *stem,
                                by_error *error)
{
    char single[256];
    char index[256];
    char slices[256];
    (void)snprintf(single, sizeof single, "%.200s.safetensors", stem);
    (void)snprintf(index, sizeof index, "%.200s.safetensors.index.json", stem);
    (void)snprintf(slices, sizeof slices, "%.200s.slices.json", stem);
    char *single_path = by__path_join(directory, single);
    char *index_path = by__path_join(directory, index);
    char *slices_path = by__path_join(directory, slices);
    by_status status = BY_OK;
    if (single_path == NULL || index_path == NULL || slices_path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (by__path_exists(single_path)) {
        status = add_shard(weights, directory, single, error);
        if (status == BY_OK) {
            status = join_shards(weights, error);
        }
    } else if (by__path_exists(index_path)) {
        status = open_index(weights, directory, index_path, error);
    } else if (by__path_exists(slices_path)) {
        status = open_slices(weights, directory, slices_path, error);
    } else {
        status = refuse_directory(directory, single, index, error);
    }
    if (status == BY_OK) {
        status = read_config(weights, directory, error);
    }
    if (status == BY_OK) {
        status = decode_entries(weights, error);
    }
    free(single_path);
    free(index_path);
    free(slices_path);
    return status;
}

by_status by__weights_open(by_weights **out, const char *path, const char *stem, by_error *error)
{
    by_weights *weights;
    BY_TRY(by__alloc((void **)&weights, 1, sizeof *weights, "weights", error));
    by_status status = BY_OK;
    weights->path = by__strdup(path);
    if (weights->path == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: path");
    } else if (by__path_is_dir(path)) {
        status = open_directory(weights, path, stem, error);
    } else {
        status = add_shard(weights, NULL, path, error);
        if (status == BY_OK) {
            status = join_shards(weights, error);
        }
    }
    if (status != BY_OK) {
        by_weights_close(&weights);
        return status;
    }
    *out = weights;
    return BY_OK;
}

by_status by__weights_of(by_weights **out, const char *path, char *config,
                         const by__checkpoint_tensor_entry *entries, size_t count, by_error *error)
{
    by_weights *weights;
    by_status status = by__alloc((void **)&weights, 1, sizeof *weights, "weights", error);
    if (status != BY_OK) {
        free(config);
        return status;
    }
    weights->config = config;
    weights->path = by__strdup(path);
    status = weights->path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: path")
                                   : by__alloc((void **)&weights->entries, count,
                                               sizeof *weights->entries, "tensor list", error);
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        weights->entries[weights->count++] = &entries[i];
    }
    if (status == BY_OK) {
        status = sort_entries(weights, error);
    }
    if (status != BY_OK) {
        by_weights_close(&weights);
        return status;
    }
    *out = weights;
    return BY_OK;
}

by_status by_weights_open(by_weights **out, const char *path, by_error *error)
{
    return by__weights_open(out, path, "model", error);
}

by_status by_weights_open_averages(by_weights **out, const char *directory, by_error *error)
{
    by_weights *weights;
    char name[512];
    size_t found = 0;
    BY_TRY(by_weights_open(&weights, directory, error));
    by_status status = by__weights_open(&weights->averages, directory, "optimizer", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&weights->averaged, weights->count, sizeof *weights->averaged,
                           "tensor list", error);
    }
    for (size_t i = 0; i < weights->count && status == BY_OK; i++) {
        const by__checkpoint_tensor_entry *own = weights->entries[i];
        (void)snprintf(name, sizeof name, "%s%.400s", BY_AVERAGE_PREFIX, own->name);
        const by__checkpoint_tensor_entry *average = by__weights_find(weights->averages, name);
        if (average != NULL) {
            by__checkpoint_tensor_entry *entry = &weights->averaged[found++];
            *entry = *average;
            entry->name = own->name;
            weights->entries[i] = entry;
        }
    }
    if (status == BY_OK && found == 0) {
        status = by_error_set(
            error, BY_EFORMAT,
            "%s has no moving average of the weights: it was trained without optimizer.ema",
            directory);
    }
    if (status != BY_OK) {
        by_weights_close(&weights);
        return status;
    }
    *out = weights;
    return BY_OK;
}

void by_weights_close(by_weights **weights)
{
    by_weights *w = *weights;
    if (w != NULL) {
        by_weights_close(&w->averages);
        free(w->averaged);
        for (size_t i = 0; i < w->shard_count; i++) {
            shard_free(w->shards[i]);
        }
        for (size_t i = 0; w->cut != NULL && i < w->slices.count; i++) {
            by__checkpoint_pieces_close(&w->cut[i].pieces);
        }
        for (size_t i = 0; i < w->adapted_count; i++) {
            by__checkpoint_delta_close(&w->adapted[i].delta);
        }
        free(w->adapted);
        by_adapter_close(&w->adapter);
        by__checkpoint_coded_entries_free(&w->coded);
        by__checkpoint_slice_index_free(&w->slices);
        free(w->cut);
        free(w->slices_path);
        free(w->shards);
        free(w->entries);
        free(w->config);
        free(w->path);
        free(w);
        *weights = NULL;
    }
}
