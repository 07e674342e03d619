/* Whether a GPU and its library multiply rightly: products of ones, whose results are the depth,
 * and of small whole numbers, in the layouts of a layer and of its weights' gradient, in each
 * format. All sums are exact. Versions of the library are known that leave out the end of a sum;
 * what they compute looks plausible. */
#include <stdlib.h>

#include "base/half.h"
#include "device/cuda/cuda_products.h"

#define SIDE  64
#define DEPTH 1040 /* more than tiles are deep, and no multiple of their depths */

/* The operands as whole numbers, row-major as they are stored, and the result. */
typedef struct self_test {
    int a[SIDE * DEPTH];
    int b[DEPTH * SIDE];
    int y[SIDE * SIDE];
    float found[SIDE * SIDE];
    union {
        float wide[SIDE * DEPTH];
        uint16_t half[SIDE * DEPTH];
    } stored;
} self_test;

typedef struct test_format {
    by_dtype dtype;
    bool tf32;
    const char *name;
} test_format;

/* Of the layer: a [SIDE, DEPTH], b [SIDE, DEPTH] transposed, all ones. Of the gradient:
 * a [DEPTH, SIDE] transposed, b [DEPTH, SIDE]. */
static void make_numbers(self_test *t, bool gradient)
{
    for (int i = 0; i < SIDE * DEPTH; i++) {
        t->a[i] = gradient ? 1 + (i / SIDE * 5 + i % SIDE) % 4 : 1;
        t->b[i] = gradient ? 1 + (i / SIDE + i % SIDE * 3) % 3 : 1;
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        t->y[i] = gradient ? 0 : DEPTH;
    }
    for (int k = 0; k < DEPTH && gradient; k++) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            t->y[i] += t->a[k * SIDE + i / SIDE] * t->b[k * SIDE + i % SIDE];
        }
    }
}

static by_status write_numbers(by_memory to, self_test *t, const int *from, by_dtype dtype,
                               by_error *error)
{
    for (int i = 0; i < SIDE * DEPTH; i++) {
        float value = (float)from[i];
        if (dtype == BY_F32) {
            t->stored.wide[i] = value;
        } else {
            t->stored.half[i] = dtype == BY_BF16 ? by__f32_to_bf16(value) : by__f32_to_f16(value);
        }
    }
    return by_device_write(to, &t->stored, error);
}

static by_status compare(const by__cuda_device *d, const self_test *t, const test_format *format,
                         by_error *error)
{
    char library[48];
    for (int i = 0; i < SIDE * SIDE; i++) {
        if (t->found[i] != (float)t->y[i]) {
            by__cuda_products_version(library, sizeof library, d->products);
            return by_error_set(error, BY_EDEVICE,
                                "cuda:%d (%s) multiplies wrongly with %s: a sum of %d products of "
                                "%s is %g, not %d; install another version of the library "
                                "(nvidia-cublas-cu12), or use another GPU",
                                d->ordinal, d->name, library, DEPTH, format->name,
                                (double)t->found[i], t->y[i]);
        }
    }
    return BY_OK;
}

/* memory: a, b, y. */
static by_status run_product(by__cuda_device *d, self_test *t, const by_memory memory[3],
                             const by__cuda_product *product, by_error *error)
{
    by_memory work;
    const by__cuda_product_operands operands = {.a = (const void *)memory[0].address,
                                                .b = (const void *)memory[1].address,
                                                .y = (void *)memory[2].address};
    BY_TRY(by_device_alloc(&work, &d->base, by__cuda_product_work(product), "products", error));
    d->failure = (by_error){0};
    by_status status = by__cuda_product_run(product, &operands, (void *)work.address,
                                            &d->queues[BY__QUEUE_COMPUTE].base);
    status = status == BY_OK ? by_device_read(t->found, memory[2], error)
                             : by_error_set(error, status, "cuda: %s", d->failure.message);
    by_device_free(&work);
    return status;
}

static by_status test_product(by__cuda_device *d, self_test *t, const by_memory memory[3],
                              const test_format *format, bool gradient, by_error *error)
{
    by__cuda_product *product;
    int64_t stride = gradient ? SIDE : DEPTH;
    size_t bytes = (size_t)SIDE * DEPTH * by_dtype_size(format->dtype);
    const by__cuda_product_shape shape = {.m = SIDE,
                                          .n = SIDE,
                                          .k = DEPTH,
                                          .trans_a = gradient,
                                          .trans_b = !gradient,
                                          .a_stride = stride,
                                          .b_stride = stride,
                                          .y_stride = SIDE,
                                          .dtype = format->dtype,
                                          .y_dtype = BY_F32};
    BY_TRY(write_numbers(by_memory_at(memory[0], 0, bytes), t, t->a, format->dtype, error));
    BY_TRY(write_numbers(by_memory_at(memory[1], 0, bytes), t, t->b, format->dtype, error));
    d->base.tf32 = format->tf32;
    by_status status = by__cuda_product_open(&product, &d->base.context, &shape, error);
    d->base.tf32 = false;
    BY_TRY(status);
    status = run_product(d, t, memory, product, error);
    by__cuda_product_close(product);
    return status == BY_OK ? compare(d, t, format, error) : status;
}

by_status by__cuda_products_test(by__cuda_device *device, by_error *error)
{
    static const test_format formats[] = {{BY_F32, false, "f32"},
                                          {BY_F32, true, "tf32"},
                                          {BY_BF16, false, "bf16"},
                                          {BY_F16, false, "fp16"}};
    static const size_t counts[3] = {(size_t)SIDE * DEPTH, (size_t)SIDE * DEPTH,
                                     (size_t)SIDE * SIDE};
    by_memory memory[3] = {{0}};
    self_test *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a test of products", error));
    by_status status = BY_OK;
    for (int i = 0; i < 3 && status == BY_OK; i++) {
        status = by_device_alloc(&memory[i], &device->base, counts[i] * sizeof(float),
                                 "a test of products", error);
    }
    for (int gradient = 0; gradient < 2 && status == BY_OK; gradient++) {
        make_numbers(t, gradient != 0);
        for (size_t f = 0; f < BY_ARRAY_LENGTH(formats) && status == BY_OK; f++) {
            status = test_product(device, t, memory, &formats[f], gradient != 0, error);
        }
    }
    for (int i = 0; i < 3; i++) {
        by_device_free(&memory[i]);
    }
    free(t);
    return status;
}
