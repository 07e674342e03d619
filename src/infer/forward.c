#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/storage.h"
#include "infer/infer.h"

/* Elements converted at a time: the scratch for them stays in the first-level cache. A turned
 * matrix is converted in blocks of LINES of its rows and CHUNK / LINES of its columns. */
#define CHUNK 2048
#define LINES 32

by_status by__forward_options_read(by__forward_options *out, const by_config *config,
                                   const char *precision, int threads, by_error *error)
{
    by__forward_options options = {.config = &config->model, .seed = config->seed};
    BY_TRY(by_dtype_parse(&options.compute,
                          precision == NULL ? config->precision.compute : precision, error));
    if (options.compute != BY_F32 && options.compute != BY_BF16) {
        return by_error_set(error, BY_EARG, "cannot compute in %s; f32 or bf16",
                            by_dtype_name(options.compute));
    }
    if (config->model.vocab < 1) {
        return by_error_set(error, BY_EARG, "model.vocab is not known yet");
    }
    options.threads = by__thread_count(threads == 0 ? (int)config->train.threads : threads);
    *out = options;
    return BY_OK;
}

by_status by__forward_build(by__forward *out, const by__forward_options *options,
                            const by_model_request *request, by_error *error)
{
    by__forward forward = {0};
    BY_TRY(by_graph_open(&forward.graph, error));
    by_status status =
        options->builder != NULL
            ? options->builder(options->user, &forward.model, forward.graph, options->config,
                               request, error)
            : by_model_build(&forward.model, forward.graph, options->config, request, error);
    if (status == BY_OK) {
        status = by_pass_precision(forward.graph, options->compute, error);
    }
    if (status == BY_OK) {
        status = by_pass_layout(forward.graph, error);
    }
    if (status != BY_OK) {
        by__forward_close(&forward);
        return status;
    }
    *out = forward;
    return BY_OK;
}

by_status by__forward_compile(by__forward *forward, int threads, by_error *error)
{
    BY_TRY(by_pass_fuse(forward->graph, error));
    BY_TRY(by_pass_order(forward->graph, error));
    BY_TRY(by_graph_verify(forward->graph, error));
    BY_TRY(by_device_open(&forward->device, "cpu", threads, error));
    return by_program_compile(&forward->program, forward->graph, forward->device, "model", error);
}

void by__forward_close(by__forward *forward)
{
    by_program_close(&forward->program);
    by_graph_close(&forward->graph);
    by_device_close(&forward->device);
}

by_status by__forward_bind(by__forward *forward, const char *name, void *data, by_error *error)
{
    by_value value = by_graph_find(forward->graph, name);
    if (value == BY_NONE) {
        return BY_OK;
    }
    by_memory memory = by_host_memory(data, by__value_bytes(&forward->graph->values[value]));
    return by_program_bind(forward->program, value, memory, error);
}

by_status by__block_open(by__block *out, const by_graph *graph, by_role role, const char *what,
                         by_error *error)
{
    by__block block = {0};
    size_t bytes = 0;
    for (size_t v = 0; v < graph->value_count; v++) {
        block.count += graph->values[v].role == role;
    }
    BY_TRY(by__alloc((void **)&block.slots, block.count, sizeof *block.slots, what, error));
    by_status status = BY_OK;
    by__block_slot *slot = block.slots;
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        size_t padded;
        if (graph->values[v].role != role) {
            continue;
        }
        *slot++ = (by__block_slot){graph->values[v].name, bytes};
        if (!by__size_add(by__value_bytes(&graph->values[v]), BY_CACHE_LINE - 1, &padded) ||
            !by__size_add(bytes, padded & ~(size_t)(BY_CACHE_LINE - 1), &bytes)) {
            status = by_error_set(error, BY_EMEMORY, "%s: the size overflows", what);
        }
    }
    if (status == BY_OK) {
        status = by__pages_open(&block.pages, bytes, what, error);
    }
    if (status != BY_OK) {
        by__block_close(&block);
        return status;
    }
    *out = block;
    return BY_OK;
}

void by__block_close(by__block *block)
{
    by__pages_close(&block->pages);
    free(block->slots);
    *block = (by__block){0};
}

by_status by__block_bind(const by__block *block, by__forward *forward, by_error *error)
{
    for (size_t i = 0; i < block->count; i++) {
        BY_TRY(by__forward_bind(forward, block->slots[i].name,
                                (char *)block->pages.data + block->slots[i].offset, error));
    }
    return BY_OK;
}

/* Where a parameter's values come from. A table over the vocabulary may be padded. */
static by_status find_source(const by_graph *graph, by_value value, const by_model_config *config,
                             const by_weights *weights, by_tensor_view *out, by_error *error)
{
    const by__value *parameter = &graph->values[value];
    by_shape shape = parameter->shape;
    if (parameter->turned) {
        shape = BY_SHAPE(shape.dim[1], shape.dim[0]);
    }
    bool padded =
        !parameter->turned && parameter->axes != NULL && strncmp(parameter->axes, "vocab", 5) == 0;
    BY_TRY(by__weights_parameter(weights, by_model_name_prefix(config), parameter->name, &shape,
                                 padded, out, error));
    if (!by_dtype_is_float(out->dtype)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensor '%s' is %s; weights are f32, bf16 or f16",
                            by_weights_path(weights), out->name, by_dtype_name(out->dtype));
    }
    return BY_OK;
}

/* Elements first .. first + count of a float tensor, as f32. */
static void read_part(float *out, const by_tensor_view *from, size_t first, size_t count)
{
    by_tensor_view part = {.name = from->name,
                           .dtype = from->dtype,
                           .rank = 1,
                           .shape = {(int64_t)count},
                           .data = (const char *)from->data + first * by_dtype_size(from->dtype)};
    (void)by_tensor_read_f32(&part, out, count, NULL);
}

static void store_part(void *out, by_dtype dtype, size_t first, const float *from, size_t stride,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == BY_F32) {
            ((float *)out)[first + i] = from[i * stride];
        } else {
            ((uint16_t *)out)[first + i] = by__f32_to_bf16(from[i * stride]);
        }
    }
}

/* Rows line .. line + lines of a turned matrix: columns of the one it comes from. */
static void convert_turned(void *out, const by__value *to, const by_tensor_view *from, size_t line,
                           size_t lines)
{
    float scratch[CHUNK];
    size_t depth = (size_t)to->shape.dim[1];
    for (size_t k = 0; k < depth; k += CHUNK / LINES) {
        size_t count = depth - k < CHUNK / LINES ? depth - k : CHUNK / LINES;
        for (size_t i = 0; i < count; i++) {
            read_part(scratch + i * LINES, from, (k + i) * (size_t)to->shape.dim[0] + line, lines);
        }
        for (size_t j = 0; j < lines; j++) {
            store_part(out, to->dtype, (line + j) * depth + k, scratch + j, LINES, count);
        }
    }
}

/* The values of a parameter from the `count` elements of a tensor of a float type. */
static void convert(void *out, const by__value *to, const by_tensor_view *from, size_t count,
                    int threads)
{
    size_t unit = to->turned ? LINES : CHUNK;
    size_t units = to->turned ? (size_t)to->shape.dim[0] : count;
    int64_t pieces = (int64_t)((units + unit - 1) / unit);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < pieces; i++) {
        size_t first = (size_t)i * unit;
        size_t part = units - first < unit ? units - first : unit;
        if (to->turned) {
            convert_turned(out, to, from, first, part);
            continue;
        }
        float scratch[CHUNK];
        read_part(scratch, from, first, part);
        store_part(out, to->dtype, first, scratch, 1, part);
    }
}

static by_status load(by__block *block, const by_graph *graph, const by_model_config *config,
                      const by_weights *weights, int threads, by_error *error)
{
    for (size_t s = 0; s < block->count; s++) {
        by_tensor_view from;
        size_t count;
        by_value value = by_graph_find(graph, block->slots[s].name);
        BY_TRY(find_source(graph, value, config, weights, &from, error));
        BY_TRY(by_tensor_size(&from, &count, NULL, error));
        convert((char *)block->pages.data + block->slots[s].offset, &graph->values[value], &from,
                count, threads);
    }
    return BY_OK;
}

/* Initial values of one parameter. They are drawn in f32, in the order of the unturned matrix. */
static by_status initialize_one(void *out, const by_graph *graph, by_value value,
                                const by__forward_options *options, by_error *error)
{
    const by__value *parameter = &graph->values[value];
    size_t count = (size_t)by_shape_count(&parameter->shape);
    float *drawn;
    if (parameter->dtype == BY_F32 && !parameter->turned) {
        return by_parameter_init(out, graph, value, options->seed, error);
    }
    BY_TRY(by__alloc_aligned((void **)&drawn, count * sizeof *drawn, "initial weights", error));
    by_status status = by_parameter_init(drawn, graph, value, options->seed, error);
    if (status == BY_OK) {
        by_tensor_view from = {.name = parameter->name, .dtype = BY_F32, .data = drawn};
        convert(out, parameter, &from, count, options->threads);
    }
    free(drawn);
    return status;
}

static by_status initialize(by__block *block, const by_graph *graph,
                            const by__forward_options *options, by_error *error)
{
    for (size_t s = 0; s < block->count; s++) {
        BY_TRY(initialize_one((char *)block->pages.data + block->slots[s].offset, graph,
                              by_graph_find(graph, block->slots[s].name), options, error));
    }
    return BY_OK;
}

by_status by__weights_block_open(by__block *out, const by_graph *graph,
                                 const by__forward_options *options, const by_weights *weights,
                                 by_error *error)
{
    by__block block;
    const by_model_config *config = options->config;
    for (size_t v = 0; v < graph->value_count && weights != NULL; v++) {
        by_tensor_view from;
        if (graph->values[v].role == BY_ROLE_PARAMETER) {
            BY_TRY(find_source(graph, (by_value)v, config, weights, &from, error));
        }
    }
    BY_TRY(by__block_open(&block, graph, BY_ROLE_PARAMETER, "the weights", error));
    by_status status = weights == NULL
                           ? initialize(&block, graph, options, error)
                           : load(&block, graph, config, weights, options->threads, error);
    if (status != BY_OK) {
        by__block_close(&block);
        return status;
    }
    *out = block;
    return BY_OK;
}
