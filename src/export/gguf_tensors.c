/* The tensors of a GGUF file: their list, in the order of layers, and their rows. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "export/gguf_write.h"

void by__export_gguf_plan_free(by__export_gguf_plan *plan)
{
    free(plan->tensors);
    free(plan->values);
    *plan = (by__export_gguf_plan){0};
}

/* Returns the type for a matrix with rows of this length: the wanted one, or a wider one whose
 * blocks fit. Embeddings and heads keep at least 8 bits, because they are a small part of the
 * weights and the most sensitive one. */
static const by__export_gguf_type *type_for(by__export_gguf_plan *plan,
                                            const by__export_gguf_type *wanted,
                                            const by__export_gguf_tensor *tensor, bool in_f32)
{
    const by__export_gguf_type *type = wanted;
    if (in_f32 || tensor->rank < 2) {
        return by__export_gguf_type_named("f32");
    }
    bool is_table = strcmp(tensor->name, "token_embd.weight") == 0 ||
                    strcmp(tensor->name, "output.weight") == 0;
    if (is_table && wanted->is_quantized) {
        type = by__export_gguf_type_named("q8_0");
    }
    if (tensor->columns % (int64_t)type->elements != 0) {
        type = by__export_gguf_type_named("q8_0");
        type = tensor->columns % (int64_t)type->elements == 0 ? type
                                                              : by__export_gguf_type_named("f16");
        plan->widened++;
    }
    return type;
}

/* Adds a tensor whose name, rank and sizes are set. */
static by_status add(by__export_gguf_plan *plan, const by__export_gguf_tensor *tensor,
                     const by__export_gguf_type *type, bool in_f32, by_error *error)
{
    size_t blocks;
    size_t bytes;
    BY_TRY(by__reserve((void **)&plan->tensors, &plan->capacity, plan->count + 1,
                       sizeof *plan->tensors, error));
    by__export_gguf_tensor *t = &plan->tensors[plan->count];
    *t = *tensor;
    t->type = type_for(plan, type, t, in_f32);
    if (!by__size_mul((size_t)t->rows, (size_t)t->columns / t->type->elements, &blocks) ||
        !by__size_mul(blocks, t->type->bytes, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "tensor '%s' is too large", t->name);
    }
    t->bytes = bytes;
    plan->count++;
    return BY_OK;
}

/* Adds the experts of a layer as one tensor. */
static by_status add_experts(by__export_gguf_plan *plan, const by__export *e, const char *gguf,
                             const char *other, const by__export_gguf_type *type, by_error *error)
{
    const by_weights *weights = e->source->weights;
    const char *star = strchr(other, '*');
    char name[256];
    by_tensor_view view;
    by__export_gguf_tensor tensor = {.order = BY__GGUF_EXPERTS, .rank = 3};
    tensor.experts = json_integer_value(json_object_get(e->config, "num_local_experts"));
    (void)snprintf(name, sizeof name, "%.*s0%s.weight", (int)(star - other), other, star + 1);
    const char *first = by__export_find(weights, plan->architecture->prefix, name);
    if (first == NULL || tensor.experts < 1) {
        return by_error_set(error, BY_EFORMAT, "the model has no tensor '%s', or no experts", name);
    }
    size_t before = strlen(first) - strlen(name) + (size_t)(star - other);
    (void)snprintf(tensor.name, sizeof tensor.name, "%.50s.weight", gguf);
    (void)snprintf(tensor.parts, sizeof tensor.parts, "%.*s*%s", (int)before, first,
                   first + before + 1);
    BY_TRY(by__weights_describe(weights, first, &view, error));
    if (view.rank != 2) {
        return by_error_set(error, BY_EFORMAT, "tensor '%s' has rank %d, not 2", first, view.rank);
    }
    by_shape shape = BY_SHAPE(tensor.experts, view.shape[0], view.shape[1]);
    by_tensor_slice whole = {.shape = {tensor.experts, view.shape[0], view.shape[1]}};
    BY_TRY(by__checkpoint_stacked_read(NULL, weights, tensor.parts, &shape, &whole, error));
    tensor.rows = tensor.experts * view.shape[0];
    tensor.columns = view.shape[1];
    return add(plan, &tensor, type, false, error);
}

/* Adds the weight and the bias of a layer, if the model has them. */
static by_status add_layer(by__export_gguf_plan *plan, const by__export *e,
                           const by__export_gguf_layer *layer, const char *gguf, const char *other,
                           const by__export_gguf_type *type, by_error *error)
{
    static const char *const parts[] = {"weight", "bias"};
    const by__export_gguf_architecture *a = plan->architecture;
    const by_model_config *model = &e->source->config->model;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(parts); i++) {
        char name[256];
        by_tensor_view view;
        by__export_gguf_tensor tensor = {
            .order = layer->order, .head = model->head_dim, .experts = 1};
        (void)snprintf(name, sizeof name, "%s.%s", other, parts[i]);
        const char *prefix = strcmp(other, "lm_head") == 0 ? "" : a->prefix;
        tensor.source = by__export_find(e->source->weights, prefix, name);
        if (tensor.source == NULL) {
            continue;
        }
        (void)snprintf(tensor.name, sizeof tensor.name, "%.50s.%s", gguf, parts[i]);
        BY_TRY(by__weights_describe(e->source->weights, tensor.source, &view, error));
        if (view.rank < 1 || view.rank > 2) {
            return by_error_set(error, BY_EFORMAT, "tensor '%s' has rank %d; GGUF has it as %s",
                                tensor.source, view.rank, tensor.name);
        }
        bool by_heads = tensor.order == BY__GGUF_HEADS || tensor.order == BY__GGUF_KV_HEADS;
        bool in_order =
            (by_heads && !a->pairs) || (view.rank == 1 && tensor.order == BY__GGUF_TRANSPOSED);
        tensor.order = in_order ? BY__GGUF_PLAIN : tensor.order;
        if (by_heads && !in_order && view.shape[0] % tensor.head != 0) {
            return by_error_set(error, BY_EFORMAT,
                                "tensor '%s' has %" PRId64 " rows, which are no heads of width "
                                "%" PRId64,
                                tensor.source, view.shape[0], tensor.head);
        }
        tensor.rank = view.rank;
        bool is_turned = tensor.order == BY__GGUF_TRANSPOSED;
        tensor.rows = view.rank == 1 ? 1 : view.shape[is_turned ? 1 : 0];
        tensor.columns = view.rank == 1 ? view.shape[0] : view.shape[is_turned ? 0 : 1];
        BY_TRY(add(plan, &tensor, type, layer->in_f32, error));
    }
    return BY_OK;
}

/* Adds the factors of rope_type llama3, which llama.cpp reads as a tensor. */
static by_status add_frequencies(by__export_gguf_plan *plan, const by__export *e, by_error *error)
{
    const json_t *scaling = json_object_get(e->config, "rope_scaling");
    const char *kind = json_string_value(json_object_get(scaling, "rope_type"));
    int64_t width = e->source->config->model.head_dim;
    if (kind == NULL || strcmp(kind, "llama3") != 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&plan->values, (size_t)width / 2, sizeof *plan->values,
                     "factors of frequencies", error));
    by__export_gguf_frequency_factors(plan->values, width, e->config);
    by__export_gguf_tensor tensor = {
        .name = "rope_freqs.weight", .values = plan->values, .rank = 1, .experts = 1, .rows = 1};
    tensor.columns = width / 2;
    return add(plan, &tensor, by__export_gguf_type_named("f32"), true, error);
}

/* Returns true for the name of one of the experts. */
static bool is_part(const by__export_gguf_tensor *t, const char *name)
{
    size_t before = strcspn(t->parts, "*");
    char *end;
    if (t->order != BY__GGUF_EXPERTS || strncmp(name, t->parts, before) != 0 ||
        name[before] < '0' || name[before] > '9') {
        return false;
    }
    long long part = strtoll(name + before, &end, 10);
    return part < t->experts && strcmp(end, t->parts + before + 1) == 0;
}

static bool is_in_plan(const by__export_gguf_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->count; i++) {
        const by__export_gguf_tensor *t = &plan->tensors[i];
        if ((t->source != NULL && strcmp(t->source, name) == 0) || is_part(t, name)) {
            return true;
        }
    }
    return false;
}

/* Checks that no tensor is left out, since that would change the model. */
static by_status check_all(const by__export_gguf_plan *plan, const by__export *e, bool tied,
                           by_error *error)
{
    const by_weights *weights = e->source->weights;
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const char *name = by_weights_name(weights, i);
        bool left = by__weights_is_buffer(name) || (tied && strcmp(name, "lm_head.weight") == 0);
        if (!left && !is_in_plan(plan, name)) {
            return by_error_set(error, BY_EFORMAT,
                                "tensor '%.150s' has no place in llama.cpp's architecture %s", name,
                                plan->architecture->name);
        }
    }
    return BY_OK;
}

by_status by__export_gguf_plan_make(by__export_gguf_plan *out, const by__export *e,
                                    const by__export_gguf_type *type, by_error *error)
{
    const char *kind = json_string_value(json_object_get(e->config, "model_type"));
    by__export_gguf_plan plan = {.architecture = by__export_gguf_architecture_of(kind)};
    const by__export_gguf_layer head = {"output", "lm_head", BY__GGUF_PLAIN, false};
    bool tied = e->source->config->model.tied == 1;
    char gguf[80];
    char other[256];
    by_status status = BY_OK;
    for (const by__export_gguf_layer *l = plan.architecture->layers;
         l->gguf != NULL && status == BY_OK; l++) {
        status = add_layer(&plan, e, l, l->gguf, l->other, type, error);
    }
    if (!tied && status == BY_OK) {
        status = add_layer(&plan, e, &head, "output", "lm_head", type, error);
    }
    if (status == BY_OK) {
        status = add_frequencies(&plan, e, error);
    }
    for (int64_t i = 0; i < e->source->config->model.layers; i++) {
        for (const by__export_gguf_layer *l = plan.architecture->blocks;
             l->gguf != NULL && status == BY_OK; l++) {
            (void)snprintf(gguf, sizeof gguf, "blk.%" PRId64 ".%s", i, l->gguf);
            (void)snprintf(other, sizeof other, "%s%" PRId64 ".%s", plan.architecture->block, i,
                           l->other);
            status = l->order == BY__GGUF_EXPERTS
                         ? add_experts(&plan, e, gguf, other, type, error)
                         : add_layer(&plan, e, l, gguf, other, type, error);
        }
    }
    if (status == BY_OK) {
        status = check_all(&plan, e, tied, error);
    }
    if (status != BY_OK) {
        by__export_gguf_plan_free(&plan);
        return status;
    }
    *out = plan;
    return BY_OK;
}

/* ---- rows ---- */

/* Reads rows of the source given as slices. */
static by_status read_box(float *out, const by_weights *weights, const by__export_gguf_tensor *t,
                          const by_tensor_slice *slice, size_t count, by_error *error)
{
    return by_weights_read_f32(weights, t->source, slice, out, count, error);
}

static by_status read_rows(float *out, const by_weights *weights, const by__export_gguf_tensor *t,
                           int64_t first, int64_t count, by_error *error)
{
    by_tensor_slice slice = {0};
    if (t->rank == 1) {
        slice.shape[0] = t->columns;
    } else {
        slice.offset[0] = first;
        slice.shape[0] = count;
        slice.shape[1] = t->columns;
    }
    return read_box(out, weights, t, &slice, (size_t)(count * t->columns), error);
}

/* Reorders the elements of a bias by heads, like a matrix of one column. */
static by_status bias_by_heads(float *out, float *scratch, const by_weights *weights,
                               const by__export_gguf_tensor *t, by_error *error)
{
    BY_TRY(read_rows(scratch, weights, t, 0, 1, error));
    for (int64_t i = 0; i < t->columns; i++) {
        out[i] = scratch[by__gguf_head_row(i, t->head)];
    }
    return BY_OK;
}

static by_status read_columns(float *out, float *scratch, const by_weights *weights,
                              const by__export_gguf_tensor *t, int64_t first, int64_t count,
                              by_error *error)
{
    by_tensor_slice slice = {.offset = {0, first}, .shape = {t->columns, count}};
    BY_TRY(read_box(scratch, weights, t, &slice, (size_t)(count * t->columns), error));
    for (int64_t i = 0; i < t->columns; i++) {
        for (int64_t k = 0; k < count; k++) {
            out[k * t->columns + i] = scratch[i * count + k];
        }
    }
    return BY_OK;
}

/* Reads rows of one expert after another. */
static by_status read_experts(float *out, const by_weights *weights,
                              const by__export_gguf_tensor *t, int64_t first, int64_t count,
                              by_error *error)
{
    int64_t rows = t->rows / t->experts;
    by_shape shape = BY_SHAPE(t->experts, rows, t->columns);
    for (int64_t at = first; at < first + count;) {
        int64_t row = at % rows;
        int64_t n = first + count - at < rows - row ? first + count - at : rows - row;
        by_tensor_slice slice = {.offset = {at / rows, row}, .shape = {1, n, t->columns}};
        BY_TRY(by__checkpoint_stacked_read(out, weights, t->parts, &shape, &slice, error));
        out += n * t->columns;
        at += n;
    }
    return BY_OK;
}

by_status by__export_gguf_rows(float *out, float *scratch, const by__export_gguf_tensor *t,
                               const by_weights *weights, int64_t first, int64_t count,
                               by_error *error)
{
    if (t->order == BY__GGUF_EXPERTS) {
        return read_experts(out, weights, t, first, count, error);
    }
    if (t->source == NULL) {
        memcpy(out, t->values, (size_t)t->columns * sizeof *out);
        return BY_OK;
    }
    if (t->order == BY__GGUF_PLAIN) {
        return read_rows(out, weights, t, first, count, error);
    }
    if (t->order == BY__GGUF_TRANSPOSED) {
        return read_columns(out, scratch, weights, t, first, count, error);
    }
    if (t->rank == 1) {
        return bias_by_heads(out, scratch, weights, t, error);
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t row = by__gguf_head_row(first + i, t->head);
        BY_TRY(read_rows(out + i * t->columns, weights, t, row, 1, error));
    }
    return BY_OK;
}
