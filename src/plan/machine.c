#include "banyan/machine.h"

#include "exec/exec.h"

/* One product [m, k] x [k, n] (or its transposed forms), as a program. */
typedef struct product {
    int64_t m;
    int64_t n;
    int64_t k;
    bool trans_a;
    bool trans_b;
} product;

static const product products[] = {
    {2048, 2048, 2048, false, false},
    {4096, 3072, 768, false, true},
    {4096, 768, 3072, false, false},
};

static by_value operand(by_graph *graph, const char *name, by_dtype dtype, int64_t rows,
                        int64_t columns, bool transposed)
{
    by_shape shape = transposed ? BY_SHAPE(columns, rows) : BY_SHAPE(rows, columns);
    return by_graph_input(graph, name, dtype, shape);
}

static by_status time_program(double *best, by_program *program, by_error *error)
{
    double began = by_clock();
    *best = 1e30;
    for (int run = 0; run < 40 && (run < 3 || by_clock() - began < 0.3); run++) {
        double t = by_clock();
        BY_TRY(by_program_run(program, error));
        t = by_clock() - t;
        *best = t < *best ? t : *best;
    }
    return BY_OK;
}

static by_status time_product(double *gflops, const product *p, by_dtype dtype, int threads,
                              by_error *error)
{
    by_graph *graph = NULL;
    by_program *program = NULL;
    by__pages pages = {0};
    size_t size = by_dtype_size(dtype);
    size_t a_bytes = by__round_up((size_t)(p->m * p->k) * size, BY_CACHE_LINE);
    size_t b_bytes = by__round_up((size_t)(p->k * p->n) * size, BY_CACHE_LINE);
    size_t y_bytes = by__round_up((size_t)(p->m * p->n) * size, BY_CACHE_LINE);
    double seconds = 0.0;
    BY_TRY(by_graph_open(&graph, error));
    by_value a = operand(graph, "a", dtype, p->m, p->k, p->trans_a);
    by_value b = operand(graph, "b", dtype, p->k, p->n, p->trans_b);
    by_value y = by_matmul(graph, a, b, p->trans_a, p->trans_b);
    by_graph_output(graph, y, "y");
    by_status status = by_program_compile(&program, graph, threads, error);
    if (status == BY_OK) {
        status = by__pages_open(&pages,
                                a_bytes + b_bytes + y_bytes + by_program_workspace_bytes(program),
                                "the measurement", error);
    }
    if (status == BY_OK) {
        char *base = pages.data;
        (void)by_program_bind(program, a, base, NULL);
        (void)by_program_bind(program, b, base + a_bytes, NULL);
        (void)by_program_bind(program, y, base + a_bytes + b_bytes, NULL);
        by_program_set_memory(program, base, base + a_bytes + b_bytes + y_bytes);
        status = time_program(&seconds, program, error);
    }
    by_program_close(&program);
    by_graph_close(&graph);
    by__pages_close(&pages);
    if (status == BY_OK) {
        *gflops = 2e-9 * (double)p->m * (double)p->n * (double)p->k / seconds;
    }
    return status;
}

by_status by_machine_measure_peak(double *gflops, by_dtype dtype, int threads, by_error *error)
{
    double best = 0.0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(products); i++) {
        double one;
        BY_TRY(time_product(&one, &products[i], dtype, threads, error));
        best = one > best ? one : best;
    }
    *gflops = best;
    return BY_OK;
}

by_status by_machine_peak(double *gflops, by_dtype dtype, int threads, by_error *error)
{
    return by_machine_measure_peak(gflops, dtype, threads, error);
}
