/* In place of libcublasLt: products in order, with the checks that the library makes and those that
 * it leaves to its user. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "standin.h"

enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_TF32 = 77 };
enum { TRANS_A = 3, TRANS_B = 4, EPILOGUE = 7, BIAS = 8, EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };

/* What algorithms may assume of addresses, unless the preference says less. */
#define ALIGNMENT  256
#define WORK_BYTES ((size_t)4096)

/* Algorithms: sums in double, in order; sums in float, from the end. */
enum { IN_ORDER = 1, BACKWARDS, ALGORITHMS };

typedef struct description {
    int compute;
    int trans_a, trans_b;
    int epilogue;
    const void *bias;
} description;

typedef struct layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
    int32_t batches; /* as many matrices, */
    int64_t step;    /* so many elements apart */
} layout;

typedef struct preference {
    size_t work;
    uint32_t reductions;
} preference;

typedef struct algorithm {
    uint64_t data[8];
} algorithm;

typedef struct choice {
    algorithm algorithm;
    size_t work;
    int status;
    float waves;
    int reserved[4];
} choice;

STANDIN_API int cublasLtCreate(void **handle);
STANDIN_API int cublasLtDestroy(void *handle);
STANDIN_API size_t cublasLtGetVersion(void);
STANDIN_API int cublasLtMatmulDescCreate(description **desc, int compute, int scale);
STANDIN_API int cublasLtMatmulDescDestroy(description *desc);
STANDIN_API int cublasLtMatmulDescSetAttribute(description *desc, int attribute, const void *value,
                                               size_t bytes);
STANDIN_API int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t columns,
                                           int64_t stride);
STANDIN_API int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value,
                                                 size_t bytes);
STANDIN_API int cublasLtMatrixLayoutDestroy(layout *l);
STANDIN_API int cublasLtMatmulPreferenceCreate(preference **out);
STANDIN_API int cublasLtMatmulPreferenceDestroy(preference *p);
STANDIN_API int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute,
                                                     const void *value, size_t bytes);
STANDIN_API int cublasLtMatmulAlgoGetHeuristic(void *handle, const description *desc,
                                               const layout *a, const layout *b, const layout *c,
                                               const layout *d, const preference *p, int most,
                                               choice *choices, int *found);
STANDIN_API int cublasLtMatmulAlgoCheck(void *handle, const description *desc, const layout *a,
                                        const layout *b, const layout *c, const layout *d,
                                        const algorithm *algo, choice *out);
STANDIN_API int cublasLtMatmul(void *handle, const description *desc, const void *alpha,
                               const void *a, const layout *a_layout, const void *b,
                               const layout *b_layout, const void *beta, const void *c,
                               const layout *c_layout, void *d, const layout *d_layout,
                               const algorithm *algo, void *work, size_t work_bytes, void *stream);

#define BEGIN(name)                                                                                \
    do {                                                                                           \
        int failure;                                                                               \
        if (standin_fails(#name, &failure)) {                                                      \
            return failure;                                                                        \
        }                                                                                          \
    } while (0)

static int handle_of_all;

int cublasLtCreate(void **handle)
{
    BEGIN(cublasLtCreate);
    *handle = &handle_of_all;
    return OK;
}

int cublasLtDestroy(void *handle)
{
    return handle == &handle_of_all ? OK : NOT_INITIALIZED;
}

size_t cublasLtGetVersion(void)
{
    return (size_t)standin_number_of("BANYAN_STANDIN_LIBRARY", 120901);
}

int cublasLtMatmulDescCreate(description **desc, int compute, int scale)
{
    if ((compute != COMPUTE_32F && compute != COMPUTE_TF32) || scale != R_32F) {
        return NOT_SUPPORTED;
    }
    *desc = calloc(1, sizeof **desc);
    (*desc)->compute = compute;
    (*desc)->epilogue = EPILOGUE_DEFAULT;
    return OK;
}

int cublasLtMatmulDescDestroy(description *desc)
{
    free(desc);
    return OK;
}

int cublasLtMatmulDescSetAttribute(description *desc, int attribute, const void *value,
                                   size_t bytes)
{
    int number = 0;
    if (attribute == BIAS) {
        memcpy(&desc->bias, value, sizeof desc->bias);
        return bytes == sizeof desc->bias ? OK : INVALID_VALUE;
    }
    if (bytes != sizeof number) {
        return INVALID_VALUE;
    }
    memcpy(&number, value, sizeof number);
    switch (attribute) {
    case TRANS_A:
        desc->trans_a = number;
        return OK;
    case TRANS_B:
        desc->trans_b = number;
        return OK;
    case EPILOGUE:
        desc->epilogue = number;
        return number == EPILOGUE_DEFAULT || number == EPILOGUE_BIAS ? OK : NOT_SUPPORTED;
    default:
        return NOT_SUPPORTED;
    }
}

int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t columns,
                               int64_t stride)
{
    if (rows == 0 || columns == 0 || stride < (int64_t)rows) {
        return INVALID_VALUE;
    }
    *out = calloc(1, sizeof **out);
    **out = (layout){type, rows, columns, stride, 1, 0};
    return OK;
}

int cublasLtMatrixLayoutSetAttribute(layout *l, int attribute, const void *value, size_t bytes)
{
    if (attribute == 5 && bytes == sizeof l->batches) {
        memcpy(&l->batches, value, bytes);
        return l->batches > 0 ? OK : INVALID_VALUE;
    }
    if (attribute == 6 && bytes == sizeof l->step) {
        memcpy(&l->step, value, bytes);
        return OK;
    }
    return INVALID_VALUE;
}

int cublasLtMatrixLayoutDestroy(layout *l)
{
    free(l);
    return OK;
}

int cublasLtMatmulPreferenceCreate(preference **out)
{
    *out = calloc(1, sizeof **out);
    (*out)->reductions = 7;
    return OK;
}

int cublasLtMatmulPreferenceDestroy(preference *p)
{
    free(p);
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(preference *p, int attribute, const void *value,
                                         size_t bytes)
{
    if (attribute == 1 && bytes == sizeof p->work) {
        memcpy(&p->work, value, bytes);
        return OK;
    }
    if (attribute == 3 && bytes == sizeof p->reductions) {
        memcpy(&p->reductions, value, bytes);
        return OK;
    }
    return INVALID_VALUE;
}

static uint64_t op_rows(const layout *l, int transposed)
{
    return transposed ? l->columns : l->rows;
}

static uint64_t op_columns(const layout *l, int transposed)
{
    return transposed ? l->rows : l->columns;
}

static bool shapes_agree(const description *desc, const layout *a, const layout *b, const layout *c,
                         const layout *d)
{
    return op_rows(a, desc->trans_a) == d->rows && op_columns(b, desc->trans_b) == d->columns &&
           op_columns(a, desc->trans_a) == op_rows(b, desc->trans_b) && c->rows == d->rows &&
           c->columns == d->columns && a->type == b->type && c->type == d->type &&
           a->batches == d->batches && b->batches == d->batches && c->batches == d->batches;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const description *desc, const layout *a,
                                   const layout *b, const layout *c, const layout *d,
                                   const preference *p, int most, choice *choices, int *found)
{
    BEGIN(cublasLtMatmulAlgoGetHeuristic);
    *found = 0;
    if (handle != &handle_of_all || most < 1 || !shapes_agree(desc, a, b, c, d)) {
        return INVALID_VALUE;
    }
    if (p->reductions != 0) {
        standin_fault("a product's order of sums is left to the library");
    }
    bool known = a->type == R_32F || a->type == R_16BF || a->type == R_16F;
    bool mixes = d->type != a->type && d->type != R_32F;
    if (!known || mixes || p->work < WORK_BYTES ||
        (desc->epilogue == EPILOGUE_BIAS && d->type != a->type)) {
        return NOT_SUPPORTED;
    }
    uint64_t first = (uint64_t)standin_number_of("BANYAN_STANDIN_ALGORITHM", IN_ORDER);
    choices[0] = (choice){.algorithm = {{d->rows, d->columns, a->rows, first}}, .work = WORK_BYTES};
    *found = 1;
    return OK;
}

/* Whether an algorithm is for such a product. */
static bool is_for(const algorithm *algo, const layout *a, const layout *d)
{
    return algo->data[0] == d->rows && algo->data[1] == d->columns && algo->data[2] == a->rows &&
           algo->data[3] >= IN_ORDER && algo->data[3] < ALGORITHMS;
}

int cublasLtMatmulAlgoCheck(void *handle, const description *desc, const layout *a, const layout *b,
                            const layout *c, const layout *d, const algorithm *algo, choice *out)
{
    BEGIN(cublasLtMatmulAlgoCheck);
    if (handle != &handle_of_all || !shapes_agree(desc, a, b, c, d) || !is_for(algo, a, d)) {
        return INVALID_VALUE;
    }
    *out = (choice){.work = WORK_BYTES}; /* not the algorithm, which the caller has */
    return OK;
}

typedef struct product {
    description desc;
    layout a_layout, b_layout, c_layout, d_layout;
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    unsigned char *work;
    bool backwards;
    bool wrong; /* leaves out the end of each sum */
} product;

static size_t size_of(int type)
{
    return type == R_32F ? sizeof(float) : sizeof(uint16_t);
}

static float number(const void *values, int type, uint64_t at)
{
    const uint16_t *halves = values;
    return type == R_32F    ? ((const float *)values)[at]
           : type == R_16BF ? by__bf16_to_f32(halves[at])
                            : by__f16_to_f32(halves[at]);
}

static void set_number(void *values, int type, uint64_t at, float value)
{
    uint16_t *halves = values;
    if (type == R_32F) {
        ((float *)values)[at] = value;
    } else {
        halves[at] = type == R_16BF ? by__f32_to_bf16(value) : by__f32_to_f16(value);
    }
}

/* An operand as doubles, [inner][outer], where `outer` are rows or columns of the result. */
static double *unpack(const product *p, const void *m, const layout *l, bool inner_first,
                      uint64_t outer, uint64_t inner)
{
    double *out = malloc(outer * inner * sizeof *out);
    uint64_t stride = (uint64_t)l->stride;
    for (uint64_t k = 0; k < inner && out != NULL; k++) {
        for (uint64_t i = 0; i < outer; i++) {
            float value = number(m, l->type, inner_first ? k + i * stride : i + k * stride);
            if (p->desc.compute == COMPUTE_TF32) {
                uint32_t bits;
                memcpy(&bits, &value, sizeof bits);
                bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
                memcpy(&value, &bits, sizeof value);
            }
            out[k * outer + i] = (double)value;
        }
    }
    return out;
}

/* The sums of a column of the result, each in the order of the algorithm. */
static void sum_column(double *sum, const product *p, const double *a, const double *b,
                       uint64_t columns, uint64_t rows, uint64_t inner)
{
    memset(sum, 0, rows * sizeof *sum);
    for (uint64_t k = 0; k < inner; k++) {
        uint64_t at = p->backwards ? inner - 1 - k : k;
        if (p->wrong && inner > 64 && at == inner - 1) {
            continue;
        }
        double factor = b[at * columns];
        for (uint64_t row = 0; row < rows && p->backwards; row++) {
            sum[row] = (double)(float)(sum[row] + a[at * rows + row] * factor);
        }
        for (uint64_t row = 0; row < rows && !p->backwards; row++) {
            sum[row] += a[at * rows + row] * factor;
        }
    }
}

static void run_matrix(const product *p)
{
    const description *s = &p->desc;
    uint64_t rows = p->d_layout.rows;
    uint64_t columns = p->d_layout.columns;
    uint64_t inner = op_columns(&p->a_layout, s->trans_a);
    double *a = unpack(p, p->a, &p->a_layout, s->trans_a != 0, rows, inner);
    double *b = unpack(p, p->b, &p->b_layout, s->trans_b == 0, columns, inner);
    double *sum = malloc(rows * sizeof *sum);
    for (uint64_t column = 0; column < columns && a != NULL && b != NULL && sum != NULL; column++) {
        sum_column(sum, p, a, b + column, columns, rows, inner);
        for (uint64_t row = 0; row < rows; row++) {
            uint64_t at = row + column * (uint64_t)p->d_layout.stride;
            float y = p->alpha * (float)sum[row];
            y += p->beta != 0.0f ? p->beta * number(p->c, p->c_layout.type, at) : 0.0f;
            y += s->epilogue == EPILOGUE_BIAS ? number(s->bias, p->d_layout.type, row) : 0.0f;
            set_number(p->d, p->d_layout.type, at, y);
        }
    }
    free(a);
    free(b);
    free(sum);
    size_t size = size_of(p->d_layout.type);
    for (uint64_t column = 0; column < p->d_layout.columns; column++) {
        standin_written((char *)p->d + column * (uint64_t)p->d_layout.stride * size,
                        p->d_layout.rows * size);
    }
}

static const void *matrix_of(const void *data, const layout *l, int32_t batch)
{
    return (const char *)data + (size_t)l->step * (size_t)batch * size_of(l->type);
}

static bool run_product(void *data)
{
    const product *p = data;
    memset(p->work, 0xff, WORK_BYTES); /* what others keep there is lost */
    for (int32_t i = p->d_layout.batches; i-- > 0;) {
        product one = *p;
        one.a = matrix_of(p->a, &p->a_layout, i);
        one.b = matrix_of(p->b, &p->b_layout, i);
        one.c = matrix_of(p->c, &p->c_layout, i);
        one.d = (void *)(uintptr_t)matrix_of(p->d, &p->d_layout, i);
        run_matrix(&one);
    }
    return true;
}

static size_t bytes_of(const layout *l)
{
    return ((size_t)(l->batches - 1) * (size_t)l->step +
            (size_t)(l->columns - 1) * (size_t)l->stride + l->rows) *
           size_of(l->type);
}

/* BANYAN_STANDIN_WRONG names the format of products that are wrong. */
static bool is_wrong(int compute, int type)
{
    const char *format = getenv("BANYAN_STANDIN_WRONG");
    const char *own = compute == COMPUTE_TF32 ? "tf32"
                      : type == R_32F         ? "f32"
                      : type == R_16BF        ? "bf16"
                                              : "fp16";
    return format != NULL && strcmp(format, own) == 0;
}

static bool is_aligned(const void *address)
{
    return ((uintptr_t)address & (ALIGNMENT - 1)) == 0;
}

int cublasLtMatmul(void *handle, const description *desc, const void *alpha, const void *a,
                   const layout *a_layout, const void *b, const layout *b_layout, const void *beta,
                   const void *c, const layout *c_layout, void *d, const layout *d_layout,
                   const algorithm *algo, void *work, size_t work_bytes, void *stream)
{
    BEGIN(cublasLtMatmul);
    if (handle != &handle_of_all || algo == NULL || work == NULL || work_bytes < WORK_BYTES ||
        !shapes_agree(desc, a_layout, b_layout, c_layout, d_layout)) {
        return INVALID_VALUE;
    }
    if (!is_for(algo, a_layout, d_layout)) {
        return INVALID_VALUE; /* chosen for another shape */
    }
    if (!is_aligned(a) || !is_aligned(b) || !is_aligned(c) || !is_aligned(d) || !is_aligned(work)) {
        standin_fault("a product has operands that are not aligned to %d bytes: %p %p %p %p %p",
                      ALIGNMENT, a, b, c, d, work);
    }
    if (d_layout->batches > 1 &&
        (!is_aligned(matrix_of(a, a_layout, 1)) || !is_aligned(matrix_of(b, b_layout, 1)) ||
         !is_aligned(matrix_of(d, d_layout, 1)))) {
        standin_fault("a batch of products has operands that are not aligned");
    }
    product *p = calloc(1, sizeof *p);
    *p = (product){.desc = *desc,
                   .a_layout = *a_layout,
                   .b_layout = *b_layout,
                   .c_layout = *c_layout,
                   .d_layout = *d_layout,
                   .a = a,
                   .b = b,
                   .c = c,
                   .d = d,
                   .work = work,
                   .backwards = algo->data[3] == BACKWARDS,
                   .wrong = is_wrong(desc->compute, a_layout->type)};
    memcpy(&p->alpha, alpha, sizeof p->alpha);
    memcpy(&p->beta, beta, sizeof p->beta);
    const standin_range ranges[] = {
        {a, bytes_of(a_layout), false},
        {b, bytes_of(b_layout), false},
        {p->beta != 0.0f ? c : NULL, bytes_of(c_layout), false},
        {d, bytes_of(d_layout), true},
        {work, work_bytes, true},
        {desc->epilogue == EPILOGUE_BIAS ? desc->bias : NULL,
         d_layout->rows * size_of(d_layout->type), false},
    };
    return standin_submit(stream, "a product", ranges, sizeof ranges / sizeof *ranges, run_product,
                          p);
}
