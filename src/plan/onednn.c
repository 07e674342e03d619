#include <dlfcn.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

#define BUDGET 0.1

/* The functions in use, resolved when the library is loaded. Versions 2 and 3 differ only in how
 * memory and products are described. */
#define COMMON_FUNCTIONS(X)                                                                        \
    X(dnnl_version)                                                                                \
    X(dnnl_set_max_cpu_isa)                                                                        \
    X(dnnl_engine_create)                                                                          \
    X(dnnl_engine_destroy)                                                                         \
    X(dnnl_stream_create)                                                                          \
    X(dnnl_stream_wait)                                                                            \
    X(dnnl_stream_destroy)                                                                         \
    X(dnnl_memory_create)                                                                          \
    X(dnnl_memory_destroy)                                                                         \
    X(dnnl_primitive_create)                                                                       \
    X(dnnl_primitive_execute)                                                                      \
    X(dnnl_primitive_destroy)                                                                      \
    X(dnnl_primitive_desc_destroy)
#if DNNL_VERSION_MAJOR >= 3
#define FUNCTIONS(X)                                                                               \
    COMMON_FUNCTIONS(X)                                                                            \
    X(dnnl_memory_desc_create_with_tag)                                                            \
    X(dnnl_memory_desc_destroy)                                                                    \
    X(dnnl_matmul_primitive_desc_create)
#else
#define FUNCTIONS(X)                                                                               \
    COMMON_FUNCTIONS(X)                                                                            \
    X(dnnl_memory_desc_init_by_tag)                                                                \
    X(dnnl_matmul_desc_init)                                                                       \
    X(dnnl_primitive_desc_create)
#endif

typedef struct library {
    void *handle;
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} library;

/* A product that is ready to run, with its memory a, b, y. */
typedef struct task {
    const library *dnnl;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[3];
} task;

/* The newest library of the major version of the headers: its name ends in that version, as in
 * libdnnl.so.2, or in that and the minor one, as in libdnnl.so.3.6, whose interface is the same. */
static void *open_library(void)
{
    void *handle = NULL;
    for (int minor = 99; minor >= -1 && handle == NULL; minor--) {
        char name[40];
        (void)snprintf(name, sizeof name, minor < 0 ? "libdnnl.so.%d" : "libdnnl.so.%d.%d",
                       DNNL_VERSION_MAJOR, minor);
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    return handle;
}

static bool load(library *out)
{
    library l = {.handle = open_library()};
    bool complete = l.handle != NULL;
#define RESOLVE(name)                                                                              \
    if (complete) {                                                                                \
        void *symbol = dlsym(l.handle, #name);                                                     \
        memcpy(&l.name, &symbol, sizeof symbol);                                                   \
        complete = symbol != NULL;                                                                 \
    }
    FUNCTIONS(RESOLVE)
#undef RESOLVE
    if (l.handle != NULL && !complete) {
        (void)dlclose(l.handle);
    }
    *out = l;
    return complete;
}

/* Types of a, b and y. */
static const dnnl_data_type_t *types_of(by_dtype dtype)
{
    static const dnnl_data_type_t f32[3] = {dnnl_f32, dnnl_f32, dnnl_f32};
    static const dnnl_data_type_t bf16[3] = {dnnl_bf16, dnnl_bf16, dnnl_bf16};
    static const dnnl_data_type_t int8[3] = {dnnl_u8, dnnl_s8, dnnl_s32};
    return dtype == BY_F32 ? f32 : dtype == BY_BF16 ? bf16 : int8;
}

static size_t type_size(dnnl_data_type_t type)
{
    return type == dnnl_f32 || type == dnnl_s32 ? 4 : type == dnnl_bf16 ? 2 : 1;
}

#if DNNL_VERSION_MAJOR >= 3

static bool describe(const library *dnnl, task *t, const dnnl_dims_t dims[3],
                     const dnnl_data_type_t *types, const bool transposed[3],
                     dnnl_primitive_desc_t *product, void *const data[3])
{
    dnnl_memory_desc_t descs[3] = {NULL, NULL, NULL};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        ok = ok && dnnl->dnnl_memory_desc_create_with_tag(&descs[i], 2, dims[i], types[i],
                                                          transposed[i] ? dnnl_ba : dnnl_ab) ==
                       dnnl_success;
        ok = ok &&
             dnnl->dnnl_memory_create(&t->memory[i], descs[i], t->engine, data[i]) == dnnl_success;
    }
    ok = ok && dnnl->dnnl_matmul_primitive_desc_create(product, t->engine, descs[0], descs[1], NULL,
                                                       descs[2], NULL) == dnnl_success;
    for (int i = 0; i < 3; i++) {
        if (descs[i] != NULL) {
            (void)dnnl->dnnl_memory_desc_destroy(descs[i]);
        }
    }
    return ok;
}

#else

static bool describe(const library *dnnl, task *t, const dnnl_dims_t dims[3],
                     const dnnl_data_type_t *types, const bool transposed[3],
                     dnnl_primitive_desc_t *product, void *const data[3])
{
    dnnl_memory_desc_t descs[3];
    dnnl_matmul_desc_t matmul;
    for (int i = 0; i < 3; i++) {
        if (dnnl->dnnl_memory_desc_init_by_tag(&descs[i], 2, dims[i], types[i],
                                               transposed[i] ? dnnl_ba : dnnl_ab) != dnnl_success ||
            dnnl->dnnl_memory_create(&t->memory[i], &descs[i], t->engine, data[i]) !=
                dnnl_success) {
            return false;
        }
    }
    return dnnl->dnnl_matmul_desc_init(&matmul, &descs[0], &descs[1], NULL, &descs[2]) ==
               dnnl_success &&
           dnnl->dnnl_primitive_desc_create(product, &matmul, NULL, t->engine, NULL) ==
               dnnl_success;
}

#endif

static bool prepare(task *t, const by__plan_product *p, by_dtype dtype, void *const data[3])
{
    const dnnl_dims_t dims[3] = {{p->m, p->k}, {p->k, p->n}, {p->m, p->n}};
    const bool transposed[3] = {p->trans_a, p->trans_b, false};
    dnnl_primitive_desc_t product;
    if (t->dnnl->dnnl_engine_create(&t->engine, dnnl_cpu, 0) != dnnl_success ||
        t->dnnl->dnnl_stream_create(&t->stream, t->engine, dnnl_stream_default_flags) !=
            dnnl_success ||
        !describe(t->dnnl, t, dims, types_of(dtype), transposed, &product, data)) {
        return false;
    }
    dnnl_status_t status = t->dnnl->dnnl_primitive_create(&t->primitive, product);
    (void)t->dnnl->dnnl_primitive_desc_destroy(product);
    return status == dnnl_success;
}

static void finish(task *t)
{
    if (t->primitive != NULL) {
        (void)t->dnnl->dnnl_primitive_destroy(t->primitive);
    }
    for (int i = 0; i < 3; i++) {
        if (t->memory[i] != NULL) {
            (void)t->dnnl->dnnl_memory_destroy(t->memory[i]);
        }
    }
    if (t->stream != NULL) {
        (void)t->dnnl->dnnl_stream_destroy(t->stream);
    }
    if (t->engine != NULL) {
        (void)t->dnnl->dnnl_engine_destroy(t->engine);
    }
}

static by_status run_task(void *user, by_error *error)
{
    task *t = user;
    const dnnl_exec_arg_t args[3] = {{DNNL_ARG_SRC, t->memory[0]},
                                     {DNNL_ARG_WEIGHTS, t->memory[1]},
                                     {DNNL_ARG_DST, t->memory[2]}};
    if (t->dnnl->dnnl_primitive_execute(t->primitive, t->stream, 3, args) != dnnl_success ||
        t->dnnl->dnnl_stream_wait(t->stream) != dnnl_success) {
        return by_error_set(error, BY_EDEVICE, "oneDNN: a matrix product failed");
    }
    return BY_OK;
}

/* Returns the operations a second of one product, or 0 if it cannot be run. */
static double rate(const library *dnnl, const by__plan_product *p, by_dtype dtype)
{
    const dnnl_data_type_t *types = types_of(dtype);
    int64_t counts[3] = {p->m * p->k, p->k * p->n, p->m * p->n};
    void *data[3];
    size_t bytes = 0;
    double seconds = 0.0;
    by__cpu_pages pages;
    task t = {.dnnl = dnnl};
    for (int i = 0; i < 3; i++) {
        bytes += by__round_up((size_t)counts[i] * type_size(types[i]), BY_CACHE_LINE);
    }
    if (by__cpu_pages_open(&pages, bytes, "the measurement", NULL) != BY_OK) {
        return 0.0;
    }
    char *next = pages.data;
    for (int i = 0; i < 3; i++) {
        size_t size = (size_t)counts[i] * type_size(types[i]);
        data[i] = next;
        memset(next, 0x3c, size); /* a small number in every type */
        next += by__round_up(size, BY_CACHE_LINE);
    }
    if (!prepare(&t, p, dtype, data) ||
        by__plan_best_seconds(&seconds, BUDGET, run_task, &t, NULL) != BY_OK) {
        seconds = 0.0;
    }
    finish(&t);
    by__cpu_pages_close(&pages);
    return seconds > 0.0 ? by__product_flops(p) / seconds : 0.0;
}

double by__plan_measure_onednn(by_dtype dtype, const char *level, int threads)
{
    library dnnl;
    double best = 0.0;
    int restore = omp_get_max_threads();
    if (!load(&dnnl)) {
        return 0.0;
    }
    /* Apply this process's cap to the library too. It can be set only once, and later calls would
     * set the same. */
    if (strcmp(level, "avx512") != 0) {
        (void)dnnl.dnnl_set_max_cpu_isa(strcmp(level, "avx2") == 0 ? dnnl_cpu_isa_avx2
                                                                   : dnnl_cpu_isa_sse41);
    }
    omp_set_num_threads(threads);
    for (size_t i = 0; i < by__plan_product_count; i++) {
        /* Without fast code for this machine the library may take minutes for the large ones. */
        if (by__product_too_long(&by__plan_products[i], best)) {
            continue;
        }
        double one = rate(&dnnl, &by__plan_products[i], dtype);
        best = one > best ? one : best;
    }
    omp_set_num_threads(restore);
    (void)dlclose(dnnl.handle);
    return 1e-9 * best;
}

const char *by__plan_onednn_version(char buffer[32])
{
    library dnnl;
    buffer[0] = '\0';
    if (load(&dnnl)) {
        const dnnl_version_t *version = dnnl.dnnl_version();
        (void)snprintf(buffer, 32, "%d.%d.%d", version->major, version->minor, version->patch);
        (void)dlclose(dnnl.handle);
    }
    return buffer;
}
