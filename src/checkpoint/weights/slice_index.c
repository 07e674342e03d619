/* STEM.slices.json: which file has which slice of each tensor that is cut over files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/storage.h"

#define FORMAT_NAME    "banyan-slices"
#define FORMAT_VERSION 1

void by__checkpoint_slice_index_free(by__checkpoint_slice_index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free((void *)(uintptr_t)index->tensors[i].view.name);
    }
    for (size_t i = 0; i < index->slice_count; i++) {
        free(index->slices[i].file);
    }
    free(index->tensors);
    free(index->slices);
    *index = (by__checkpoint_slice_index){0};
}

by_status by__checkpoint_slice_index_add_tensor(by__checkpoint_slice_index *index,
                                                const by_tensor_view *view, by_error *error)
{
    BY_TRY(by__reserve((void **)&index->tensors, &index->capacity, index->count + 1,
                       sizeof *index->tensors, error));
    by__checkpoint_cut_tensor *tensor = &index->tensors[index->count];
    *tensor = (by__checkpoint_cut_tensor){.view = *view, .first = index->slice_count};
    tensor->view.data = NULL;
    tensor->view.name = by__strdup(view->name);
    if (tensor->view.name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: slice index");
    }
    index->count++;
    return BY_OK;
}

by_status by__checkpoint_slice_index_add(by__checkpoint_slice_index *index,
                                         const by_tensor_slice *slice, const char *file,
                                         by_error *error)
{
    BY_TRY(by__reserve((void **)&index->slices, &index->slice_capacity, index->slice_count + 1,
                       sizeof *index->slices, error));
    by__checkpoint_cut_slice *s = &index->slices[index->slice_count];
    *s = (by__checkpoint_cut_slice){.slice = *slice, .file = by__strdup(file)};
    if (s->file == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: slice index");
    }
    index->slice_count++;
    index->tensors[index->count - 1].count++;
    return BY_OK;
}

/* ---- printing ---- */

/* Prints "NAME": [a, b]. */
static void print_numbers(by_string *text, const char *name, const int64_t *values, int count)
{
    by_string_format(text, ", \"%s\": [", name);
    for (int i = 0; i < count; i++) {
        by_string_format(text, "%s%" PRId64, i == 0 ? "" : ", ", values[i]);
    }
    by__string_append(text, "]");
}

static void print_slice(by_string *text, const by_tensor_view *view,
                        const by__checkpoint_cut_slice *s)
{
    by__string_append(text, "{\"file\": ");
    by_string_json(text, s->file, strlen(s->file));
    if (by__checkpoint_slice_is_whole(view, &s->slice)) {
        by__string_append(text, "}");
        return;
    }
    if (s->slice.flat) {
        const int64_t range[2] = {s->slice.offset[0], s->slice.offset[0] + s->slice.shape[0]};
        print_numbers(text, "range", range, 2);
    } else {
        print_numbers(text, "offset", s->slice.offset, view->rank);
        print_numbers(text, "shape", s->slice.shape, view->rank);
    }
    by__string_append(text, "}");
}

by_status by__checkpoint_slice_index_print(const by__checkpoint_slice_index *index, char **out,
                                           size_t *length, by_error *error)
{
    by_string text = {0};
    by_string_format(&text,
                     "{\n \"format\": \"" FORMAT_NAME "\",\n \"version\": %d,\n \"tensors\": {",
                     FORMAT_VERSION);
    for (size_t i = 0; i < index->count; i++) {
        const by__checkpoint_cut_tensor *t = &index->tensors[i];
        by__string_append(&text, i == 0 ? "\n  " : ",\n  ");
        by_string_json(&text, t->view.name, strlen(t->view.name));
        by_string_format(&text, ": {\"dtype\": \"%s\"", by__checkpoint_type_name(t->view.dtype));
        print_numbers(&text, "shape", t->view.shape, t->view.rank);
        by__string_append(&text, ", \"slices\": [");
        for (size_t k = 0; k < t->count; k++) {
            by__string_append(&text, k == 0 ? "\n   " : ",\n   ");
            print_slice(&text, &t->view, &index->slices[t->first + k]);
        }
        by__string_append(&text, "]}");
    }
    by__string_append(&text, "\n }\n}\n");
    *length = text.length;
    return by__string_release(&text, out, error);
}

/* ---- parsing ---- */

static bool read_numbers(int64_t *out, const json_t *value, size_t count)
{
    bool good = json_is_array(value) && json_array_size(value) == count;
    for (size_t i = 0; i < count && good; i++) {
        const json_t *item = json_array_get(value, i);
        good = json_is_integer(item) && json_integer_value(item) >= 0;
        out[i] = json_integer_value(item);
    }
    return good;
}

static by_status read_slice(by__checkpoint_slice_index *out, const by_tensor_view *view,
                            const char *path, const json_t *value, by_error *error)
{
    by_tensor_slice slice = {0};
    size_t elements;
    const char *file = json_string_value(json_object_get(value, "file"));
    const json_t *range = json_object_get(value, "range");
    const json_t *offset = json_object_get(value, "offset");
    bool good = file != NULL && by__checkpoint_plain_name(file);
    if (range != NULL) {
        int64_t ends[2] = {0};
        good = good && read_numbers(ends, range, 2) && ends[0] <= ends[1];
        slice = (by_tensor_slice){.flat = true, .offset = {ends[0]}, .shape = {ends[1] - ends[0]}};
    } else if (offset != NULL) {
        good = good && read_numbers(slice.offset, offset, (size_t)view->rank) &&
               read_numbers(slice.shape, json_object_get(value, "shape"), (size_t)view->rank);
    } else {
        slice = by_tensor_whole(view);
    }
    if (!good) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%.200s': expected slices with a file and a range, or an "
                            "offset and a shape",
                            path, view->name);
    }
    by_status status = by__checkpoint_slice_check(view, &slice, &elements, error);
    if (status == BY_OK && elements == 0 && !by__checkpoint_slice_is_whole(view, &slice)) {
        status = by_error_set(error, BY_EFORMAT, "tensor '%.200s': an empty slice", view->name);
    }
    if (status != BY_OK) {
        return by_error_prefix(error, BY_EFORMAT, "%s", path);
    }
    return by__checkpoint_slice_index_add(out, &slice, file, error);
}

/* BY_EFORMAT unless the slices make up the tensor. */
static by_status check_cover(const by__checkpoint_slice_index *index,
                             const by__checkpoint_cut_tensor *tensor, const char *path,
                             by_error *error)
{
    const by_tensor_slice **slices;
    size_t elements;
    BY_TRY(by_tensor_size(&tensor->view, &elements, NULL, error));
    BY_TRY(by__alloc((void **)&slices, tensor->count, sizeof *slices, "slices", error));
    for (size_t i = 0; i < tensor->count; i++) {
        slices[i] = &index->slices[tensor->first + i].slice;
    }
    by_status status =
        elements == 0 && tensor->count == 1
            ? BY_OK
            : by__checkpoint_slices_cover(&tensor->view, slices, tensor->count, error);
    free(slices);
    return status == BY_OK || status == BY_EMEMORY ? status
                                                   : by_error_prefix(error, BY_EFORMAT, "%s", path);
}

static by_status read_tensor(by__checkpoint_slice_index *out, const char *path, const char *name,
                             const json_t *value, by_error *error)
{
    by_tensor_view view = {.name = name};
    const char *type = json_string_value(json_object_get(value, "dtype"));
    const json_t *shape = json_object_get(value, "shape");
    const json_t *slices = json_object_get(value, "slices");
    int dtype = type == NULL ? -1 : by__checkpoint_type_of_name(type);
    size_t rank = json_array_size(shape);
    bool good = dtype >= 0 && rank <= BY_TENSOR_MAX_RANK && read_numbers(view.shape, shape, rank) &&
                json_is_array(slices) && json_array_size(slices) > 0;
    if (!good) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%.200s': expected a dtype, a shape of at most %d axes and "
                            "a list of slices",
                            path, name, BY_TENSOR_MAX_RANK);
    }
    view.dtype = (by_dtype)dtype;
    view.rank = (int)rank;
    if (by_tensor_size(&view, NULL, NULL, error) != BY_OK) {
        return by_error_prefix(error, BY_EFORMAT, "%s", path);
    }
    BY_TRY(by__checkpoint_slice_index_add_tensor(out, &view, error));
    for (size_t i = 0; i < json_array_size(slices); i++) {
        BY_TRY(read_slice(out, &out->tensors[out->count - 1].view, path, json_array_get(slices, i),
                          error));
    }
    return check_cover(out, &out->tensors[out->count - 1], path, error);
}

static by_status read_root(by__checkpoint_slice_index *out, const char *path, json_t *root,
                           by_error *error)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    json_t *tensors = json_object_get(root, "tensors");
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0 || !json_is_integer(version) ||
        !json_is_object(tensors) || json_object_size(tensors) == 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: expected format \"" FORMAT_NAME "\", a version and tensors", path);
    }
    if (json_integer_value(version) != FORMAT_VERSION) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: format version %" JSON_INTEGER_FORMAT
                            "; this banyan reads version %d",
                            path, json_integer_value(version), FORMAT_VERSION);
    }
    for (void *i = json_object_iter(tensors); i != NULL; i = json_object_iter_next(tensors, i)) {
        BY_TRY(read_tensor(out, path, json_object_iter_key(i), json_object_iter_value(i), error));
    }
    return BY_OK;
}

by_status by__checkpoint_slice_index_parse(by__checkpoint_slice_index *out, const char *path,
                                           const char *text, size_t length, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, path, text, length, JSON_REJECT_DUPLICATES, error));
    by__checkpoint_slice_index index = {0};
    by_status status = read_root(&index, path, root, error);
    json_decref(root);
    if (status != BY_OK) {
        by__checkpoint_slice_index_free(&index);
        return status;
    }
    *out = index;
    return BY_OK;
}
