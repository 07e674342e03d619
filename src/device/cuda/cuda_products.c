/* Opens cuBLASLt, and products with it. */
#include "device/cuda/cuda_products.h"

#include <stdlib.h>

#include "device/cuda/cuda_products_api.h"

/* Scratch memory that an algorithm may use. */
#define MOST_WORK ((size_t)32 << 20)

struct by__cuda_products {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    BY__CUDA_PRODUCTS(MEMBER)
#undef MEMBER
    size_t (*version)(void);
    by__cuda_lt_handle handle;
};

static const by__cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, parameters) {#symbol, offsetof(by__cuda_products, member)},
    BY__CUDA_PRODUCTS(SYMBOL)
#undef SYMBOL
        {"cublasLtGetVersion", offsetof(by__cuda_products, version)},
};

struct by__cuda_product {
    const by__cuda_products *products;
    by__cuda_product_shape shape;
    bool tf32;
    by__cuda_lt_desc desc;
    by__cuda_lt_layout a, b, y; /* of the library's operands: it has columns where we have rows */
    by__cuda_lt_choice choice;
};

/* ---- the library ---- */

/* Version 13 needs a driver of CUDA 13. */
static by_status open_library(void **out, const by__cuda_driver *driver, by_error *error)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};
    bool newest = driver->supports >= 13000;
    *out = by__cuda_search(newest ? names : names + 1, false);
    if (*out != NULL) {
        return BY_OK;
    }
    if (!newest && by__cuda_search(names, false) != NULL) {
        return by_error_set(
            error, BY_EDEVICE,
            "cuda: the NVIDIA driver knows CUDA %d.%d, and libcublasLt.so.13, which "
            "was found, needs driver 580 (CUDA 13.0): pip install "
            "nvidia-cublas-cu12, or update the driver",
            driver->supports / 1000, driver->supports % 1000 / 10);
    }
    return by_error_set(error, BY_EDEVICE,
                        "cuda: libcublasLt.so.%s was not found: pip install nvidia-cublas-cu12 "
                        "(or the package libcublas-12-9 of NVIDIA's repository), or name its "
                        "folder in BANYAN_CUDA_PATH",
                        newest ? "13 or .12" : "12");
}

by_status by__cuda_products_open(by__cuda_products **out, const by__cuda_driver *driver,
                                 by_error *error)
{
    void *library;
    by__cuda_products *p;
    BY_TRY(open_library(&library, driver, error));
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "products", error));
    const char *missing = by__cuda_resolve(p, library, symbols, BY_ARRAY_LENGTH(symbols));
    if (missing != NULL) {
        free(p);
        return by_error_set(error, BY_EDEVICE,
                            "cuda: libcublasLt lacks %s: pip install nvidia-cublas-cu12", missing);
    }
    int result = p->create(&p->handle);
    if (result != BY__CUDA_LT_OK) {
        size_t version = p->version();
        free(p);
        return by_error_set(error, BY_EDEVICE, "cuda: cublasLt %zu.%zu does not start: %d%s",
                            version / 10000, version % 10000 / 100, result,
                            result == BY__CUDA_LT_NOT_INITIALIZED
                                ? ": it finds no GPU, or no memory is left on it"
                                : "");
    }
    *out = p;
    return BY_OK;
}

void by__cuda_products_close(by__cuda_products *products)
{
    if (products != NULL) {
        (void)products->destroy(products->handle);
        free(products);
    }
}

void by__cuda_products_version(char *out, size_t size, const by__cuda_products *products)
{
    size_t version = products->version();
    (void)snprintf(out, size, "cublasLt %zu.%zu.%zu", version / 10000, version % 10000 / 100,
                   version % 100);
}

/* ---- a product ---- */

static int type_of(by_dtype dtype)
{
    return dtype == BY_F32    ? BY__CUDA_LT_R_32F
           : dtype == BY_BF16 ? BY__CUDA_LT_R_16BF
                              : BY__CUDA_LT_R_16F;
}

/* A row-major matrix [rows, columns] is the library's column-major [columns, rows], so that
 * y^T = op(b)^T op(a)^T: our b is its first operand. */
static int create_layout(const by__cuda_product *o, by__cuda_lt_layout *out, by_dtype dtype,
                         int64_t rows, int64_t columns, int64_t stride, int64_t step)
{
    const by__cuda_products *p = o->products;
    const int32_t batches = o->shape.batches;
    int result = p->layout_create(out, type_of(dtype), (uint64_t)columns, (uint64_t)rows, stride);
    if (result == BY__CUDA_LT_OK && batches > 1) {
        result = p->layout_set(*out, BY__CUDA_LT_LAYOUT_BATCHES, &batches, sizeof batches);
    }
    return result == BY__CUDA_LT_OK && batches > 1
               ? p->layout_set(*out, BY__CUDA_LT_LAYOUT_STEP, &step, sizeof step)
               : result;
}

static int create_parts(by__cuda_product *o)
{
    const by__cuda_products *p = o->products;
    const by__cuda_product_shape *s = &o->shape;
    const int transposed = BY__CUDA_LT_OP_T;
    const int bias = BY__CUDA_LT_EPILOGUE_BIAS;
    int result = p->desc_create(
        &o->desc, o->tf32 ? BY__CUDA_LT_COMPUTE_TF32 : BY__CUDA_LT_COMPUTE_32F, BY__CUDA_LT_R_32F);
    if (result == BY__CUDA_LT_OK && s->trans_b) {
        result = p->desc_set(o->desc, BY__CUDA_LT_DESC_TRANS_A, &transposed, sizeof transposed);
    }
    if (result == BY__CUDA_LT_OK && s->trans_a) {
        result = p->desc_set(o->desc, BY__CUDA_LT_DESC_TRANS_B, &transposed, sizeof transposed);
    }
    if (result == BY__CUDA_LT_OK && s->has_bias) {
        result = p->desc_set(o->desc, BY__CUDA_LT_DESC_EPILOGUE, &bias, sizeof bias);
    }
    if (result == BY__CUDA_LT_OK) {
        result = create_layout(o, &o->a, s->dtype, s->trans_a ? s->k : s->m,
                               s->trans_a ? s->m : s->k, s->a_stride, s->a_step);
    }
    if (result == BY__CUDA_LT_OK) {
        result = create_layout(o, &o->b, s->dtype, s->trans_b ? s->n : s->k,
                               s->trans_b ? s->k : s->n, s->b_stride, s->b_step);
    }
    return result == BY__CUDA_LT_OK
               ? create_layout(o, &o->y, s->y_dtype, s->m, s->n, s->y_stride, s->y_step)
               : result;
}

static int choose_algorithm(by__cuda_product *o)
{
    const by__cuda_products *p = o->products;
    const size_t work = MOST_WORK;
    const uint32_t none = BY__CUDA_LT_REDUCTION_NONE;
    by__cuda_lt_preference preference;
    int found = 0;
    int result = p->preference_create(&preference);
    if (result != BY__CUDA_LT_OK) {
        return result;
    }
    result = p->preference_set(preference, BY__CUDA_LT_PREFERENCE_WORK, &work, sizeof work);
    if (result == BY__CUDA_LT_OK) {
        result =
            p->preference_set(preference, BY__CUDA_LT_PREFERENCE_REDUCTION, &none, sizeof none);
    }
    if (result == BY__CUDA_LT_OK) {
        result = p->choose(p->handle, o->desc, o->b, o->a, o->y, o->y, preference, 1, &o->choice,
                           &found);
    }
    (void)p->preference_destroy(preference);
    return result == BY__CUDA_LT_OK && found == 0 ? BY__CUDA_LT_NOT_SUPPORTED : result;
}

/* What the choice of an algorithm depends on. */
static void name_product(char *out, size_t size, const by__cuda_product *o)
{
    const by__cuda_product_shape *s = &o->shape;
    int n =
        snprintf(out, size, "%s %s %lldx%lldx%lld %c%c %lld %lld %lld%s%s%s",
                 by_dtype_name(s->dtype), by_dtype_name(s->y_dtype), (long long)s->m,
                 (long long)s->n, (long long)s->k, s->trans_a ? 't' : 'n', s->trans_b ? 't' : 'n',
                 (long long)s->a_stride, (long long)s->b_stride, (long long)s->y_stride,
                 o->tf32 ? " tf32" : "", s->has_bias ? " bias" : "", s->adds ? " add" : "");
    if (s->batches > 1) {
        (void)snprintf(out + n, size - (size_t)n, " batch %d %lld %lld %lld", (int)s->batches,
                       (long long)s->a_step, (long long)s->b_step, (long long)s->y_step);
    }
}

/* Takes the algorithm that was chosen before for a product of this name, if there is one. */
static int take_algorithm(bool *taken, by__cuda_product *o, const by__device_choices *choices,
                          const char *name)
{
    const by__cuda_products *p = o->products;
    by__cuda_lt_algorithm algorithm;
    *taken = choices != NULL && by__device_choice_get(&algorithm, sizeof algorithm, choices, name);
    if (!*taken) {
        return BY__CUDA_LT_OK;
    }
    int result = p->check(p->handle, o->desc, o->b, o->a, o->y, o->y, &algorithm, &o->choice);
    o->choice.algorithm = algorithm;
    return result == BY__CUDA_LT_OK && o->choice.work > MOST_WORK ? BY__CUDA_LT_NOT_SUPPORTED
                                                                  : result;
}

static by_status fix_algorithm(by__cuda_product *o, by__device_choices *choices, by_error *error)
{
    char name[320];
    bool taken;
    name_product(name, sizeof name, o);
    int result = take_algorithm(&taken, o, choices, name);
    if (result != BY__CUDA_LT_OK) {
        return by_error_set(error, BY_EFORMAT,
                            "cublasLt refuses the algorithm that was chosen before for the product "
                            "'%s': %d; without its line in choices.txt of the run, one is chosen "
                            "anew",
                            name, result);
    }
    result = taken ? BY__CUDA_LT_OK : choose_algorithm(o);
    if (result != BY__CUDA_LT_OK) {
        const by__cuda_product_shape *s = &o->shape;
        return by_error_set(error, BY_EDEVICE,
                            "cublasLt has no product of %s [%lld, %lld] and [%lld, %lld]: %d",
                            by_dtype_name(s->dtype), (long long)s->m, (long long)s->k,
                            (long long)s->k, (long long)s->n, result);
    }
    return taken || choices == NULL ? BY_OK
                                    : by__device_choice_put(choices, name, &o->choice.algorithm,
                                                            sizeof o->choice.algorithm, error);
}

by_status by__cuda_product_open(by__cuda_product **out, const by__device_context *context,
                                const by__cuda_product_shape *shape, by_error *error)
{
    by__cuda_product *o;
    const by__cuda_device *device = (const by__cuda_device *)context->device;
    BY_TRY(by__alloc((void **)&o, 1, sizeof *o, "product", error));
    o->products = device->products;
    o->shape = *shape;
    o->tf32 = device->base.tf32 && shape->dtype == BY_F32;
    int result = create_parts(o);
    by_status status =
        result == BY__CUDA_LT_OK
            ? fix_algorithm(o, device->base.choices, error)
            : by_error_set(error, BY_EDEVICE, "cublasLt describes no product: %d", result);
    if (status != BY_OK) {
        by__cuda_product_close(o);
        return status;
    }
    *out = o;
    return BY_OK;
}

void by__cuda_product_close(by__cuda_product *product)
{
    if (product == NULL) {
        return;
    }
    const by__cuda_products *p = product->products;
    by__cuda_lt_layout layouts[] = {product->a, product->b, product->y};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(layouts); i++) {
        if (layouts[i] != NULL) {
            (void)p->layout_destroy(layouts[i]);
        }
    }
    if (product->desc != NULL) {
        (void)p->desc_destroy(product->desc);
    }
    free(product);
}

size_t by__cuda_product_work(const by__cuda_product *product)
{
    return product->choice.work;
}

by_status by__cuda_product_run(const by__cuda_product *product,
                               const by__cuda_product_operands *operands, void *work,
                               by__cuda_queue *queue)
{
    const by__cuda_products *p = product->products;
    const by__cuda_stream_queue *q = (const by__cuda_stream_queue *)queue;
    const float one = 1.0f;
    const float beta = product->shape.adds ? 1.0f : 0.0f;
    const void *add = product->shape.adds ? operands->add : operands->y;
    int result = BY__CUDA_LT_OK;
    if (product->shape.has_bias) {
        result = p->desc_set(product->desc, BY__CUDA_LT_DESC_BIAS, &operands->bias,
                             sizeof operands->bias);
    }
    if (result == BY__CUDA_LT_OK) {
        result = p->matmul(p->handle, product->desc, &one, operands->b, product->b, operands->a,
                           product->a, &beta, add, product->y, operands->y, product->y,
                           &product->choice.algorithm, work, product->choice.work, q->stream);
    }
    if (result == BY__CUDA_LT_OK) {
        return BY_OK;
    }
    if (q->device->failure.status == BY_OK) {
        (void)by_error_set(&q->device->failure, BY_EDEVICE, "cublasLtMatmul: status %d", result);
    }
    return BY_EDEVICE;
}
