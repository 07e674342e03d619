/* A whole checkpoint in one call, by one writer. */
#ifndef BY_TESTS_CHECKPOINTS_H
#define BY_TESTS_CHECKPOINTS_H

#include "banyan/checkpoint.h"

typedef struct checkpoint_content {
    const by_tensor_view *model;
    size_t model_count;
    const by_tensor_view *optimizer;
    size_t optimizer_count;
    const by_checkpoint_value *values;
    size_t value_count;
    const by_checkpoint_file *files;
    size_t file_count;
    uint64_t shard_bytes;
} checkpoint_content;

static inline by_checkpoint_layout checkpoint_layout(const checkpoint_content *c)
{
    return (by_checkpoint_layout){.model = c->model,
                                  .model_count = c->model_count,
                                  .optimizer = c->optimizer,
                                  .optimizer_count = c->optimizer_count,
                                  .shard_bytes = c->shard_bytes};
}

static inline by_status checkpoint_write(const char *root, uint64_t step,
                                         const checkpoint_content *c, by_error *error)
{
    by_checkpoint_writer *writer;
    by_checkpoint_layout layout = checkpoint_layout(c);
    by_status status = by_checkpoint_begin(&writer, root, step, &layout, error);
    for (size_t i = 0; status == BY_OK && i < c->model_count + c->optimizer_count; i++) {
        size_t tensor = by_checkpoint_order(writer, i);
        const by_tensor_view *view =
            tensor < c->model_count ? &c->model[tensor] : &c->optimizer[tensor - c->model_count];
        by_tensor_slice whole = by_tensor_whole(view);
        status = by_checkpoint_add(writer, tensor, &whole, view->data, error);
        if (status != BY_OK) {
            by_checkpoint_abandon(&writer);
        }
    }
    return status != BY_OK ? status
                           : by_checkpoint_commit(&writer, c->values, c->value_count, c->files,
                                                  c->file_count, error);
}

#endif
