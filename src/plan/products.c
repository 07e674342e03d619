#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

const by__plan_product by__plan_products[] = {
    {256, 256, 256, false, false},    {1024, 1024, 1024, false, false},
    {2048, 2048, 2048, false, false}, {2048, 3072, 768, false, true},
    {2048, 768, 3072, false, false},
};
const size_t by__plan_product_count = BY_ARRAY_LENGTH(by__plan_products);

/* More of them, for devices that a product of the others does not fill. */
static const by__plan_product large_products[] = {
    {4096, 4096, 4096, false, false},
    {8192, 8192, 8192, false, true},
};

#define BUDGET   0.1
#define MAX_RUNS 40
/* Work that a device takes before the host waits for it: long beside a launch and the wait. */
#define LEAST_SECONDS 2e-3

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

/* A program that runs several times before the host waits. */
typedef struct repeated {
    by_program *program;
    by_device *device;
    int times;
} repeated;

static by_status run_repeated(void *user, by_error *error)
{
    const repeated *r = user;
    for (int i = 0; i < r->times; i++) {
        BY_TRY(by_program_submit(r->program, error));
    }
    return by__device_queue_finish(r->device, BY__QUEUE_COMPUTE, error);
}

int by__plan_repeats(const by_device *device, double seconds)
{
    return device->host_memory || seconds >= LEAST_SECONDS ? 1 : (int)(LEAST_SECONDS / seconds) + 1;
}

static by_value operand(by_graph *graph, const char *name, by_dtype dtype, int64_t rows,
                        int64_t columns, bool transposed)
{
    by_shape shape = transposed ? BY_SHAPE(columns, rows) : BY_SHAPE(rows, columns);
    return by_graph_input(graph, name, dtype, shape);
}

/* Numbers of both signs from 1/2 to 1 with random digits, since equal ones take a GPU less power,
 * which makes it faster. Writes every page, because pages that were never written all map to the
 * same page of zeros. */
static by_status fill_numbers(by_memory memory, by_dtype dtype, int64_t count, by_error *error)
{
    void *numbers;
    uint32_t word = 1;
    BY_TRY(by__alloc(&numbers, (size_t)count, by_dtype_size(dtype), "the measurement", error));
    for (int64_t i = 0; i < count; i++) {
        word = word * 1664525u + 1013904223u;
        uint32_t bits = (word & 0x807fffffu) | 0x3f000000u;
        if (dtype == BY_F32) {
            memcpy((float *)numbers + i, &bits, sizeof bits);
        } else {
            ((uint16_t *)numbers)[i] = (uint16_t)(bits >> 16);
        }
    }
    memory.bytes = (size_t)count * by_dtype_size(dtype);
    by_status status = by_device_write(memory, numbers, error);
    free(numbers);
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
        status = fill_numbers(memory, dtype, counts[i], error);
        if (status == BY_OK) {
            status = by_program_bind(program, values[i], memory, error);
        }
    }
    if (status == BY_OK) {
        by_program_set_memory(program, (by_memory){0},
                              by_memory_at(all, offsets[3], by_program_workspace_bytes(program)));
        repeated once = {program, device, 1};
        status = by__plan_best_seconds(seconds, BUDGET, run_repeated, &once, error);
        repeated more = {program, device, by__plan_repeats(device, *seconds)};
        if (status == BY_OK && more.times > 1) {
            status = by__plan_best_seconds(seconds, BUDGET, run_repeated, &more, error);
            *seconds /= more.times;
        }
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
    size_t count =
        by__plan_product_count + (device->host_memory ? 0 : BY_ARRAY_LENGTH(large_products));
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        double seconds;
        const by__plan_product *product = i < by__plan_product_count
                                              ? &by__plan_products[i]
                                              : &large_products[i - by__plan_product_count];
        double flops = by__product_flops(product);
        if (by__product_too_long(product, best)) {
            continue;
        }
        status = time_product(&seconds, product, dtype, device, error);
        if (status == BY_EMEMORY && best > 0.0) {
            status = BY_OK; /* a device that is in use has no room for the largest */
            break;
        }
        best = status == BY_OK && flops / seconds > best ? flops / seconds : best;
    }
    if (status == BY_OK) {
        *gflops = 1e-9 * best;
    }
    return status;
}
