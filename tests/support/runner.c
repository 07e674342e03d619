#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"

void check_ok(by_status status, const by_error *error)
{
    if (status != BY_OK) {
        fail_msg("%s: %s", by_status_name(status), error->message);
    }
}

void check_error(by_status status, by_status want, by_error *error, const char *text)
{
    if (status != want) {
        fail_msg("status is %s, not %s (%s)", by_status_name(status), by_status_name(want),
                 error->message);
    }
    if (strstr(error->message, text) == NULL) {
        fail_msg("'%s' is not in the message: %s", text, error->message);
    }
    *error = (by_error){0};
}

by_graph *open_graph(void)
{
    by_error error = {0};
    by_graph *graph = NULL;
    check_ok(by_graph_open(&graph, &error), &error);
    return graph;
}

by_config *config_of(const char *const *common, const char *const *settings)
{
    const char *const *const lists[] = {common, settings};
    by_error error = {0};
    by_config *config;
    check_ok(by_config_default(&config, &error), &error);
    check_ok(by_config_set(config, "precision.compute=f32", &error), &error);
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; lists[k][i] != NULL; i++) {
            check_ok(by_config_set(config, lists[k][i], &error), &error);
        }
    }
    check_ok(by_config_resolve(config, &error), &error);
    return config;
}

static void *allocate(size_t bytes, int fill)
{
    void *data;
    by_error error = {0};
    check_ok(by__alloc_aligned(&data, bytes, "test buffer", &error), &error);
    memset(data, fill, bytes);
    return data;
}

void runner_open(runner *r, by_graph *graph, int threads)
{
    by_error error = {0};
    *r = (runner){.graph = graph};
    check_ok(by_device_open(&r->device, "cpu", threads, &error), &error);
    check_ok(by_program_compile(&r->program, graph, r->device, "test", &error), &error);
    check_ok(by__alloc((void **)&r->buffers, graph->value_count, sizeof(void *), "buffers", &error),
             &error);
    for (size_t v = 0; v < graph->value_count; v++) {
        if (by__role_is_external(graph->values[v].role)) {
            size_t bytes = by__graph_value_bytes(&graph->values[v]);
            r->buffers[v] = allocate(bytes, 0);
            by_memory memory = by_host_memory(r->buffers[v], bytes);
            check_ok(by_program_bind(r->program, (by_value)v, memory, &error), &error);
        }
    }
    size_t arena = by_program_arena_bytes(r->program);
    size_t workspace = by_program_workspace_bytes(r->program);
    r->arena = allocate(arena, 0xff);
    r->workspace = allocate(workspace, 0xff);
    by_program_set_memory(r->program, by_host_memory(r->arena, arena),
                          by_host_memory(r->workspace, workspace));
}

void runner_run(runner *r)
{
    by_error error = {0};
    check_ok(by_program_run(r->program, &error), &error);
}

void runner_close(runner *r)
{
    by_program_close(&r->program);
    by_device_close(&r->device);
    for (size_t v = 0; v < r->graph->value_count; v++) {
        free(r->buffers[v]);
    }
    free(r->buffers);
    free(r->arena);
    free(r->workspace);
    *r = (runner){0};
}

static by_value find(const runner *r, const char *name)
{
    by_value value = by_graph_find(r->graph, name);
    if (value == BY_NONE) {
        fail_msg("the graph has no '%s'", name);
    }
    return value;
}

void *runner_data(const runner *r, const char *name)
{
    return r->buffers[find(r, name)];
}

size_t runner_count(const runner *r, const char *name)
{
    return (size_t)by_shape_count(&r->graph->values[find(r, name)].shape);
}

void runner_fill(runner *r, uint64_t seed, int32_t ids)
{
    for (size_t v = 0; v < r->graph->value_count; v++) {
        const by__graph_value *value = &r->graph->values[v];
        if (value->role != BY_ROLE_INPUT && value->role != BY_ROLE_PARAMETER &&
            value->role != BY_ROLE_STATE) {
            continue;
        }
        uint64_t stream = by__hash64(value->name, strlen(value->name));
        for (size_t i = 0; i < (size_t)by_shape_count(&value->shape); i++) {
            double u = random_unit(seed, stream, i);
            set_element(r->buffers[v], value->dtype, i,
                        value->dtype == BY_I32 ? floor((u + 1.0) / 2.0 * ids) : u);
        }
    }
}

double get_element(const void *data, by_dtype dtype, size_t i)
{
    switch (dtype) {
    case BY_F32:
        return (double)((const float *)data)[i];
    case BY_BF16:
        return (double)by__bf16_to_f32(((const uint16_t *)data)[i]);
    case BY_I32:
        return (double)((const int32_t *)data)[i];
    case BY_U8:
        return (double)((const uint8_t *)data)[i];
    default:
        fail_msg("no test uses %s", by_dtype_name(dtype));
        return 0.0;
    }
}

void set_element(void *data, by_dtype dtype, size_t i, double value)
{
    switch (dtype) {
    case BY_F32:
        ((float *)data)[i] = (float)value;
        break;
    case BY_BF16:
        ((uint16_t *)data)[i] = by__f32_to_bf16((float)value);
        break;
    case BY_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        fail_msg("no test uses %s", by_dtype_name(dtype));
    }
}

double random_unit(uint64_t seed, uint64_t stream, size_t i)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
    by__philox_key(key, seed, stream);
    by__philox(bits, key, counter);
    return 2.0 * (double)by__unit_float(bits[0]) - 1.0;
}

double relative_distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0.0 ? sqrt(difference / norm) : sqrt(difference);
}

void set_isa(const char *isa)
{
    assert_int_equal(setenv("BANYAN_ISA", isa, 1), 0);
}
