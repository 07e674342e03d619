/* Examples in memory as the data of a task: opened, read and kept. */
#include "tasks/examples/examples.h"

#include <stdlib.h>
#include <string.h>

#include "banyan/drift.h"
#include "tasks/examples/examples_learned.h"
#include "tasks/examples/examples_open.h"
#include "tasks/held_out.h"

static uint64_t bytes_of(const by_array_set *set)
{
    size_t count;
    uint64_t bytes = 0;
    const by_array *arrays = set == NULL ? NULL : by_array_set_arrays(set, &count);
    for (size_t i = 0; arrays != NULL && i < count; i++) {
        bytes += arrays[i].data == NULL
                     ? 0
                     : (uint64_t)by_shape_count(&arrays[i].shape) * by_dtype_size(arrays[i].dtype);
    }
    return bytes;
}

/* ---- opening ---- */

/* Opens the data named by the request, to evaluate or predict. */
static by_status open_path(by__task_examples *d, const by_task_request *r, bool classes,
                           by_error *error)
{
    bool with_targets = r->purpose != BY_TASK_PREDICT;
    size_t numbers = classes ? 0 : by__task_examples_numbers(d);
    const by_string_list first = {(char **)(uintptr_t)&r->path, 1};
    bool folder = by__task_examples_are_folders(&first) || r->more_count > 0;
    d->is_predicted = !with_targets;
    if (d->encoding == NULL) {
        BY_TRY(folder && !with_targets
                   ? by__task_examples_image_paths(&d->valid, d, r, error)
                   : by__task_examples_image_path(&d->valid, d, r->path, error));
    } else {
        BY_TRY(by__task_examples_apply_table(&d->valid, d, r->path, with_targets, false, error));
    }
    d->valid_part = by_part_whole(by_array_set_examples(d->valid));
    return with_targets ? BY_OK
                        : by__task_examples_replace_targets(
                              &d->valid, numbers, by__task_row_of(d->base.task)->maps, error);
}

static by_status open_set(by__task_examples *d, const by_task_request *r, bool classes,
                          by_error *error)
{
    bool images = by__task_examples_has_images(d->keys);
    if (r->path != NULL && r->learned == NULL) {
        return by_error_set(error, BY_EARG,
                            "%s: other data than that of the config needs what the weights were "
                            "trained with (learned)",
                            r->path);
    }
    if (r->learned != NULL) {
        bool reads = strcmp(by_model_reads(&r->config->model), "images") == 0;
        BY_TRY(by__task_examples_read_learned(d, r, images || reads, error));
        images = d->encoding == NULL;
    }
    BY_TRY(by__task_examples_open_windows(d, r->config, error));
    d->windows.all = r->purpose == BY_TASK_PREDICT && r->path == NULL;
    BY_TRY(by__task_examples_open_texts(d, r, error));
    BY_TRY(by__task_examples_list_targets(d, classes, error));
    if (r->purpose == BY_TASK_PREDICT && r->path == NULL) {
        return r->learned != NULL
                   ? by__task_examples_name_labels(d, error)
                   : by_error_set(error, BY_EARG, "examples in memory need what was learned");
    }
    if (r->path != NULL) {
        BY_TRY(open_path(d, r, classes, error));
    } else if (images) {
        BY_TRY(by__task_examples_config_images(d, r, error));
    } else if (d->keys->table == NULL) { /* a task on images alone */
        return by_error_set(error, BY_ECONFIG,
                            "task.kind %s: set data.images to pictures, and data.labels to the "
                            "classes of %s",
                            r->config->task.kind,
                            by__task_row_of(d->base.task)->maps ? "their pixels" : "these");
    } else {
        BY_TRY(by__task_examples_config_table(d, r, error));
    }
    if (d->learned == NULL) {
        BY_TRY(by__task_examples_learn(d, error));
    }
    const char *array = classes ? "labels" : "targets";
    const by_array_set *set = d->train != NULL ? d->train : d->valid;
    return by_array_set_find(set, array) != NULL
               ? by__task_examples_name_labels(d, error)
               : by_error_set(error, BY_ECONFIG, "%s: there are no labels: %s",
                              by_array_set_name(set),
                              r->path == NULL
                                  ? "set data.labels=FILE, or data.images to a folder that has one "
                                    "folder of pictures for each class"
                                  : "name both files, IMAGES,LABELS");
}

static by_status describe_held_out(by__task_examples *d, const by_task_request *r, by_error *error)
{
    char *doubts;
    if (!by__task_row_of(d->base.task)->told) {
        BY_TRY(by__task_train_classes_check(d, error));
    }
    d->base.held_out = by__task_train_held_out_how(d);
    BY_TRY(by__task_train_held_out_doubts(d, &doubts, error));
    by__task_examples_remark(r, doubts);
    free(doubts);
    if (r->config->model.outputs < 1 && r->config->model.from[0] == '\0') {
        BY_TRY(by__task_examples_doubt_labels(d, &doubts, error));
        by__task_examples_remark(r, doubts);
        free(doubts);
    }
    return BY_OK;
}

by_status by__task_examples_open(by_task_data **out, const by_task_request *request,
                                 by_error *error)
{
    by__task_examples *d;
    const by__task_row *row = by__task_examples_row(request->config);
    if (row == NULL) {
        return by_error_set(error, BY_EARG, "task.kind %s: the config was not opened as one",
                            request->config->task.kind);
    }
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &row->task;
    d->top.label = -1;
    d->keys = by__config_kind_own(request->config->task.own, &row->kind);
    d->channels = request->config->model.channels > 0 ? request->config->model.channels : 0;
    /* Predictions are matched to rows by number, and to pictures by the names of their files. */
    d->skip_files = strcmp(request->config->data.corrupt, "skip") == 0;
    d->skip = d->skip_files && request->purpose != BY_TASK_PREDICT;
    by__task_examples_set_remote(d, request);
    by_status status = open_set(d, request, row->classes, error);
    if (d->remote != NULL) {
        by__remote_quiet(d->remote);
    }
    if (status == BY_OK) {
        status = by__task_examples_name_metrics(d, error);
    }
    if (status == BY_OK) {
        status = by__task_examples_find_parts(d, error);
    }
    if (status == BY_OK && request->purpose == BY_TASK_TRAIN) {
        status = by__task_examples_read_draws(d, by_array_set_examples(d->train), error);
    }
    if (status == BY_OK && d->train != NULL) {
        status = by__task_examples_hash(d, error);
    }
    if (status == BY_OK && request->purpose == BY_TASK_TRAIN) {
        status = describe_held_out(d, request, error);
    }
    if (status == BY_OK) {
        status = by__task_examples_tell_cut(d, request, error);
    }
    if (status != BY_OK) {
        by__task_examples_close(&d->base);
        return status;
    }
    d->base.train_examples = request->purpose == BY_TASK_TRAIN ? d->train_part.count : 0;
    d->base.valid_examples = d->valid_part.count;
    d->base.bytes = bytes_of(d->train) + bytes_of(d->valid) +
                    by__task_loader_threads(request->config) * by__task_examples_scratch_bytes(d);
    if (d->keys->shuffle_files > 0) { /* rows in the order of their files */
        d->base.bytes += d->train_part.count * sizeof(uint64_t);
    }
    *out = &d->base;
    return BY_OK;
}

void by__task_examples_close(by_task_data *data)
{
    by__task_examples *d = (by__task_examples *)data;
    by_array_set_close(&d->train);
    by_array_set_close(&d->valid);
    by__remote_close(&d->remote);
    free(d->indexes);
    by__task_examples_close_texts(d);
    by__task_examples_close_windows(&d->windows);
    by_encoding_close(&d->before);
    by_encoding_close(&d->encoding);
    by__task_examples_close_parts(d);
    by__loader_damage_free(&d->damage);
    by__image_folder_free(&d->folder);
    by__image_folder_free(&d->others);
    for (size_t i = 0; i < d->described.count; i++) {
        free(d->described.items[i]);
    }
    free(d->described.items);
    by__loader_pixel_scales_free(&d->scales);
    free(d->train_rows);
    free(d->valid_rows);
    free(d->draws);
    free(d->summary);
    free(d->learned);
    free(d->reference);
    free(d->labels);
    for (size_t i = 0; i < d->base.output_metric_count; i++) {
        free(d->metric_names[i]);
    }
    free(d->metric_names);
    free(d->metrics);
    free(d->targets);
    free(d->target_names);
    free(d);
}

/* ---- sources and checkpoints ---- */

by_status by__task_examples_source(by_source **out, by_task_data *data, const by_config *config,
                                   bool training, by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    const by_array_set *set = training || d->valid == NULL ? d->train : d->valid;
    if (!training && d->base.part_count > 0) {
        return by__task_examples_source_parts(out, d, config, error);
    }
    return by__task_examples_source_of(out, d, set, training ? &d->train_part : &d->valid_part,
                                       training, error);
}

by_status by__task_examples_keep(by_task_data *data, const by_config *config, by_task_kept *out,
                                 by_error *error)
{
    by__task_examples *d = (by__task_examples *)data;
    size_t files = 1;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = (by_task_kept){
        .files = {{.name = by__task_examples_learned_name(d),
                   .data = d->learned,
                   .size = strlen(d->learned)}},
        .file_count = 1,
        .values = {{.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = d->train_hash},
                   {.key = "learned_hash", .kind = BY_VALUE_STRING, .as.string = d->learned_hash}},
        .value_count = 2,
        .eos = d->texts.last ? by_tokenizer_eos(d->texts.tokenizer) : -1,
        .labels = d->labels,
        .label_count = d->label_count};
    if (d->reference != NULL) {
        out->files[files++] = (by_checkpoint_file){
            .name = BY_DRIFT_FILE, .data = d->reference, .size = strlen(d->reference)};
    }
    out->file_count = files;
    by__task_examples_keep_texts(d, out);
    return BY_OK;
}

by_status by__task_examples_check(const by_task_data *data, const by_checkpoint *checkpoint,
                                  by_error *error)
{
    const by__task_examples *d = (const by__task_examples *)data;
    const char *content;
    const char *learned;
    BY_TRY(by_checkpoint_value_string(checkpoint, "train_hash", &content, error));
    BY_TRY(by_checkpoint_value_string(checkpoint, "learned_hash", &learned, error));
    if (strcmp(content, d->train_hash) != 0 || strcmp(learned, d->learned_hash) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was trained on other data (%.8s, %.8s) than there is now (%.8s, "
                            "%.8s): files, what is held out, or keys of section data that say how "
                            "to read them have changed; restore them, or start a new run",
                            by_checkpoint_path(checkpoint), content, learned, d->train_hash,
                            d->learned_hash);
    }
    return BY_OK;
}
