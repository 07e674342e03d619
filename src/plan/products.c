#include <stdlib.h>

#include "plan/plan.h"

const by__plan_product by__plan_products[] = {
    {256, 256, 256, false, false},    {1024, 1024, 1024, false, false},
    {2048, 2048, 2048, false, false}, {2048, 3072, 768, false, true},
    {2048, 768, 3072, false, false},
};
const size_t by__plan_product_count = BY_ARRAY_LENGTH(by__plan_products);

#define BUDGET   0.1
#define MAX_RUNS 40

by_status by__plan_best_seconds(double *best, double budget,
                                by_status (*run)(void *user, by_error *error), void *user,
                                by_error *error)
{
    double began = by__now();
    double fastest = 0.0;
    for (int i = 0; i < MAX_RUNS && (i < 2 || by__now() - began < budget); i++) {
        double t = by__now();
        BY_TRY(run(user, error));
        t = by__now() - t;
        fastest = i == 0 || t < fastest ? t : fastest;
    }
    *best = fastest > 1e-9 ? fastest : 1e-9;
    return BY_OK;
}

static by_status run_program(void *user, by_error *error)
{
    return by_program_run(user, error);
}

static by_value operand(by_graph *graph, const char *name, by_dtype dtype, int64_t rows,
                        int64_t columns, bool transposed)
{
    by_shape shape = transposed ? BY_SHAPE(columns, rows) : BY_SHAPE(rows, columns);
    return by_graph_input(graph, name, dtype, shape);
}

/* Writes every page, because pages that were never written all map to the same page of zeros. */
static by_status fill_ones(by_memory memory, by_dtype dtype, int64_t count, by_error *error)
{
    void *ones;
    BY_TRY(by__alloc(&ones, (size_t)count, by_dtype_size(dtype), "the measurement", error));
    for (int64_t i = 0; i < count; i++) {
        if (dtype == BY_F32) {
            ((float *)ones)[i] = 1.0f;
        } else {
            ((uint16_t *)ones)[i] = 0x3f80;
        }
    }
    memory.bytes = (size_t)count * by_dtype_size(dtype);
    by_status status = by_device_write(memory, ones, error);
    free(ones);
    return status;
}

static by_status time_bound(double *seconds, const by__plan_product *p, by_program *program,
                            const by_value values[3], by_dtype dtype, by_device *device,
                            by_error *error)
{
    by_memory all;
    int64_t counts[3] = {p->m * p->k, p->k * p->n, p->m * p->n};
    size_t offsets[4] = {0};
    for (int i = 0; i < 3; i++) {
        offsets[i + 1] = offsets[i] + by__round_up((size_t)counts[i] * by_dtype_size(dtype),
                                                   by__device_unit(device));
    }
    BY_TRY(by_device_alloc(&all, device, offsets[3] + by_program_workspace_bytes(program),
                           "the measurement", error));
    by_status status = BY_OK;
    for (int i = 0; i < 3 && status == BY_OK; i++) {
        by_memory memory = by_memory_at(all, offsets[i], offsets[i + 1] - offsets[i]);
        status = fill_ones(memory, dtype, counts[i], error);
        if (status == BY_OK) {
            status = by_program_bind(program, values[i], memory, error);
        }
    }
    if (status == BY_OK) {
        by_program_set_memory(program, (by_memory){0},
                              by_memory_at(all, offsets[3], by_program_workspace_bytes(program)));
        status = by__plan_best_seconds(seconds, BUDGET, run_program, program, error);
    }
    by_device_free(&all);
    return status;
}

static by_status time_product(double *seconds, const by__plan_product *p, by_dtype dtype,
                              by_device *device, by_error *error)
{
    by_graph *graph = NULL;
    by_program *program = NULL;
    by_value values[3];
    BY_TRY(by_graph_open(&graph, error));
    values[0] = operand(graph, "a", dtype, p->m, p->k, p->trans_a);
    values[1] = operand(graph, "b", dtype, p->k, p->n, p->trans_b);
    values[2] = by_matmul(graph, values[0], values[1], p->trans_a, p->trans_b);
    by_graph_output(graph, values[2], "y");
    by_status status = by_program_compile(&program, graph, device, "product", error);
    if (status == BY_OK) {
        status = time_bound(seconds, p, program, values, dtype, device, error);
    }
    by_program_close(&program);
    by_graph_close(&graph);
    return status;
}

by_status by__plan_measure_products(double *gflops, by_dtype dtype, by_device *device,
                                    by_error *error)
{
    double best = 0.0; /* operations a second */
    by_status status = BY_OK;
    for (size_t i = 0; i < by__plan_product_count && status == BY_OK; i++) {
        double seconds;
        double flops = by__product_flops(&by__plan_products[i]);
        if (by__product_too_long(&by__plan_products[i], best)) {
            continue;
        }
        status = time_product(&seconds, &by__plan_products[i], dtype, device, error);
        best = status == BY_OK && flops / seconds > best ? flops / seconds : best;
    }
    if (status == BY_OK) {
        *gflops = 1e-9 * best;
    }
    return status;
}
