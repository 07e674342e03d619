/* The part of one of several writers: the content of its files, and the records it leaves for the
 * commit. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "checkpoint/checkpoint_writer.h"

void by__checkpoint_writer_stem(char out[64], int group, int rank, int writers)
{
    static const char *const stems[] = {"model", "model-frozen", "optimizer"};
    (void)snprintf(out, 64, "%s-%05d-of-%05d", stems[group], rank + 1, writers);
}

/* ---- content of its files ---- */

/* The slice as a tensor of a file. */
static by_status view_of(by_tensor_view *out, const by_tensor_view *tensor,
                         const by_tensor_slice *slice, by_error *error)
{
    char *name;
    by_tensor_view view = *tensor;
    BY_TRY(by__checkpoint_slice_name(&name, tensor, slice, error));
    view.name = name;
    if (!by__checkpoint_slice_is_whole(tensor, slice)) {
        view.rank = slice->flat ? 1 : tensor->rank;
        memcpy(view.shape, slice->shape, sizeof view.shape);
    }
    *out = view;
    return BY_OK;
}

static by_status add_part(by_checkpoint_writer *w, size_t tensor, const by_tensor_slice *slice,
                          size_t number, by_error *error)
{
    BY_TRY(view_of(&w->views[w->part_count], &w->tensors[tensor], slice, error));
    w->parts[w->part_count] =
        (by__checkpoint_part){.tensor = tensor, .slice = *slice, .number = number};
    if (number != SIZE_MAX) {
        w->index_of[number] = w->part_count;
    }
    w->part_count++;
    return BY_OK;
}

static by_status check_parts(const by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                             by_error *error)
{
    for (size_t i = 0; i < layout->part_count; i++) {
        const by_checkpoint_part *part = &layout->parts[i];
        size_t elements;
        if (part->tensor >= w->count) {
            return by_error_set(error, BY_EARG, "part %zu: tensor %zu of %zu", i, part->tensor,
                                w->count);
        }
        BY_TRY(
            by__checkpoint_slice_check(&w->tensors[part->tensor], &part->slice, &elements, error));
        if (elements == 0) {
            return by_error_set(error, BY_EARG, "tensor '%.200s': part %zu is empty",
                                w->tensors[part->tensor].name, i);
        }
    }
    return BY_OK;
}

int by__checkpoint_writer_group(const by_checkpoint_writer *w, size_t tensor)
{
    return tensor >= w->model_count                 ? BY__OPTIMIZER
           : w->frozen != NULL && w->frozen[tensor] ? BY__FROZEN
                                                    : BY__TRAINED;
}

bool by__checkpoint_writer_is_cut(const by_checkpoint_writer *w)
{
    return w->writers > 1 || w->frozen != NULL;
}

/* Adds the parts of a group, including those without elements that no other writer has. */
static by_status add_parts(by_checkpoint_writer *w, const by_checkpoint_layout *layout, int group,
                           by_error *error)
{
    for (size_t i = 0; i < layout->part_count && w->writers > 1; i++) {
        const by_checkpoint_part *part = &layout->parts[i];
        if (by__checkpoint_writer_group(w, part->tensor) == group) {
            BY_TRY(add_part(w, part->tensor, &part->slice, i, error));
        }
    }
    for (size_t i = 0; i < w->count && w->rank == 0; i++) {
        if (by__checkpoint_writer_group(w, i) != group) {
            continue;
        }
        by_tensor_slice whole = by_tensor_whole(&w->tensors[i]);
        size_t elements;
        BY_TRY(by_tensor_size(&w->tensors[i], &elements, NULL, error));
        if (w->writers == 1 || elements == 0) {
            BY_TRY(add_part(w, i, &whole, w->writers == 1 ? i : SIZE_MAX, error));
        }
    }
    w->group_end[group] = w->part_count;
    return BY_OK;
}

/* Checks names and shapes of the whole tensors, with a single plan of all of them. */
static by_status check_tensors(const by_checkpoint_writer *w, by_error *error)
{
    for (int k = 0; k < 2; k++) {
        by__checkpoint_weights_plan plan;
        size_t first = k == 0 ? 0 : w->model_count;
        size_t end = k == 0 ? w->model_count : w->count;
        if (end > first) {
            BY_TRY(by__weights_plan_make(&plan, "model", w->tensors + first, end - first,
                                         UINT64_MAX, error));
            by__weights_plan_free(&plan);
        }
    }
    return BY_OK;
}

static by_status plan_group(by_checkpoint_writer *w, const by_checkpoint_layout *layout, int k,
                            by_error *error)
{
    char stem[64];
    size_t first = k == 0 ? 0 : w->group_end[k - 1];
    bool cut = by__checkpoint_writer_is_cut(w);
    if (cut) {
        by__checkpoint_writer_stem(stem, k, w->rank, w->writers);
    } else {
        (void)snprintf(stem, sizeof stem, "%s", k == BY__OPTIMIZER ? "optimizer" : "model");
    }
    if (w->group_end[k] > first) {
        BY_TRY(by__weights_plan_make(&w->plans[k], stem, w->views + first, w->group_end[k] - first,
                                     cut ? UINT64_MAX : layout->shard_bytes, error));
    }
    for (size_t i = 0; i < w->plans[k].count; i++) {
        const by__checkpoint_part *part = &w->parts[first + w->plans[k].order[i]];
        if (part->number != SIZE_MAX) {
            w->order[w->order_count++] = part->number;
        }
    }
    return BY_OK;
}

static by_status plan_files(by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                            by_error *error)
{
    size_t files = 0;
    for (int k = 0; k < BY__WEIGHT_GROUPS; k++) {
        BY_TRY(plan_group(w, layout, k, error));
        files += w->plans[k].file_count;
    }
    BY_TRY(by__alloc((void **)&w->files, files, sizeof *w->files, "checkpoint", error));
    for (int k = 0; k < BY__WEIGHT_GROUPS; k++) {
        for (size_t i = 0; i < w->plans[k].file_count; i++) {
            w->files[w->file_count++] = (by__checkpoint_weight_file){
                .plan = &w->plans[k].files[i], .fd = -1, .is_frozen = k == BY__FROZEN};
        }
    }
    return BY_OK;
}

by_status by__checkpoint_writer_plan(by_checkpoint_writer *w, const by_checkpoint_layout *layout,
                                     by_error *error)
{
    size_t given = w->writers == 1 ? w->count : layout->part_count;
    size_t most = given + w->count;
    if (w->writers == 1 && layout->part_count > 0) {
        return by_error_set(error, BY_EARG, "one writer alone writes all: it has no parts");
    }
    BY_TRY(check_tensors(w, error));
    BY_TRY(check_parts(w, layout, error));
    BY_TRY(by__alloc((void **)&w->parts, most, sizeof *w->parts, "checkpoint", error));
    BY_TRY(by__alloc((void **)&w->views, most, sizeof *w->views, "checkpoint", error));
    BY_TRY(by__alloc((void **)&w->index_of, given, sizeof *w->index_of, "checkpoint", error));
    BY_TRY(by__alloc((void **)&w->order, given, sizeof *w->order, "checkpoint", error));
    for (int k = 0; k < BY__WEIGHT_GROUPS; k++) {
        BY_TRY(add_parts(w, layout, k, error));
    }
    return plan_files(w, layout, error);
}

/* ---- records for the commit ---- */

static void names_of(char slices[32], char files[32], int rank)
{
    (void)snprintf(slices, 32, "slices-%d", rank);
    (void)snprintf(files, 32, "files-%d", rank);
}

by_status by__checkpoint_writer_finish_part(by_checkpoint_writer *w, by_error *error)
{
    char slices[32];
    char files[32];
    char *text = NULL;
    size_t length;
    by__checkpoint_manifest manifest = {.step = w->step};
    names_of(slices, files, w->rank);
    by_status status = by__checkpoint_writer_record(w, &manifest.files, error);
    if (status == BY_OK) {
        status = by__checkpoint_sink_put(
            w->temporary, slices, w->slice_count == 0 ? (void *)slices : w->slices,
            w->slice_count * sizeof *w->slices, &manifest.files, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_manifest_print(&manifest, &text, &length, error);
    }
    if (status == BY_OK) {
        status = by__checkpoint_sink_put(w->temporary, files, text, length, NULL, error);
    }
    free(text);
    by__checkpoint_manifest_free(&manifest);
    return status;
}

static by_status remove_file(const by_checkpoint_writer *w, const char *name, by_error *error)
{
    char *path;
    BY_TRY(by__path_make(&path, w->temporary, name, error));
    by_status status = unlink(path) == 0
                           ? BY_OK
                           : by__checkpoint_writer_error(error, "remove", w->temporary, name);
    free(path);
    return status;
}

/* Adds the slices of a verified file. */
static by_status read_slices(by_checkpoint_writer *w, int rank, const char *name, by_error *error)
{
    char *bytes = NULL;
    size_t length = 0;
    char *path;
    BY_TRY(by__path_make(&path, w->temporary, name, error));
    by_status status = by__file_read(&bytes, &length, path, SIZE_MAX / 2, error);
    size_t count = length / sizeof *w->slices;
    if (status == BY_OK && length % sizeof *w->slices != 0) {
        status =
            by_error_set(error, BY_EFORMAT, "%s: %zu bytes are no list of slices", path, length);
    }
    if (status == BY_OK) {
        status = by__reserve((void **)&w->slices, &w->slice_capacity, w->slice_count + count,
                             sizeof *w->slices, error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        by__checkpoint_written_slice *s = &w->slices[w->slice_count];
        memcpy(s, bytes + i * sizeof *s, sizeof *s);
        if (s->tensor >= w->count || s->writer != (uint64_t)rank) {
            status =
                by_error_set(error, BY_EFORMAT, "%s: tensor %" PRIu64 " of %zu, of writer %" PRIu64,
                             path, s->tensor, w->count, s->writer);
        }
        w->slice_count++;
    }
    free(bytes);
    free(path);
    return status;
}

/* Moves the records of a writer's files to `files`, and reads its slices. */
static by_status merge_files(by_checkpoint_writer *w, int rank,
                             const by__checkpoint_manifest *manifest, const char *slices,
                             by__checkpoint_file_list *files, by_error *error)
{
    bool found = false;
    if (manifest->step != w->step) {
        return by_error_set(error, BY_EFORMAT, "%s: writer %d has written step %" PRIu64,
                            w->temporary, rank, manifest->step);
    }
    for (size_t i = 0; i < manifest->files.count; i++) {
        const by__checkpoint_file_record *record = &manifest->files.items[i];
        if (strcmp(record->name, slices) == 0) {
            BY_TRY(by__checkpoint_manifest_check_file(record, w->temporary, true, error));
            BY_TRY(read_slices(w, rank, slices, error));
            found = true;
        } else {
            BY_TRY(by__checkpoint_file_list_add(files, record->name, record->size, record->hash,
                                                record->in, error));
        }
    }
    return found ? BY_OK
                 : by_error_set(error, BY_EFORMAT, "%s: writer %d lists no slices", w->temporary,
                                rank);
}

by_status by__checkpoint_writer_merge(by_checkpoint_writer *w, int rank,
                                      by__checkpoint_file_list *files, by_error *error)
{
    char slices[32];
    char name[32];
    by__checkpoint_manifest manifest = {0};
    names_of(slices, name, rank);
    char *path;
    BY_TRY(by__path_make(&path, w->temporary, name, error));
    bool exists = by__path_exists(path);
    free(path);
    if (!exists) {
        return by_error_set(error, BY_ESTATE, "writer %d of %d did not finish its part", rank,
                            w->writers);
    }
    BY_TRY(by__checkpoint_manifest_read(&manifest, w->temporary, name, false, error));
    by_status status = merge_files(w, rank, &manifest, slices, files, error);
    by__checkpoint_manifest_free(&manifest);
    BY_TRY(status);
    BY_TRY(remove_file(w, slices, error));
    return remove_file(w, name, error);
}
