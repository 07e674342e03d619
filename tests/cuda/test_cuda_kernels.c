/* Every row of the CUDA device's table on the cases of its op (tests/support/op_cases.c), on the
 * emulator: without a fault, within the tolerances of the CPU's kernels against the reference, and
 * with the same bits in four orders of blocks and threads. Rows that call a library run on the
 * stand-ins of NVIDIA's.
 * `test_cuda_kernels --device cuda [op]` also runs each on a GPU: with the emulator's bits, but for
 * products and attention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef BY_HAS_EMULATOR
#include "base/half.h"
#include "cuda/emulator.h"
#include "device/cuda/launch.h"
#include "kernel_test.h"
#include "runner.h"

#define SEEDS 4
/* Work from which a case is large, and runs in fewer orders; and from which it runs without checks
 * and in f32 alone. */
#define LARGE   6e5
#define LARGEST 3e6

/* ---- a queue that runs kernels at once ---- */

typedef struct emulated_queue {
    by__cuda_queue queue;
    const char *fault; /* the first one */
} emulated_queue;

static by_status launch(by__cuda_queue *queue, by__cuda_kernel kernel, const by__cuda_grid *grid,
                        const void *args)
{
    emulated_queue *q = (emulated_queue *)queue;
    emulator_grid g = {{grid->grid[0], grid->grid[1], grid->grid[2]}, grid->block, grid->shared};
    if (emulator_launch(&g, by__cuda_kernel_symbol(kernel), args) != 0 && q->fault == NULL) {
        q->fault = emulator_fault();
        return BY_EDEVICE;
    }
    return BY_OK;
}

static by_status copy(by__cuda_queue *queue, void *to, const void *from, size_t bytes)
{
    BY_UNUSED(queue);
    memcpy(to, from, bytes);
    emulator_written(to, bytes);
    return BY_OK;
}

static by_status fill(by__cuda_queue *queue, void *to, uint8_t byte, size_t bytes)
{
    BY_UNUSED(queue);
    memset(to, byte, bytes);
    emulator_written(to, bytes);
    return BY_OK;
}

/* ---- runs ---- */

static size_t bytes_of(const by__graph_type *type)
{
    return type->shape.rank < 0 ? 0
                                : (size_t)by_shape_count(&type->shape) * by_dtype_size(type->dtype);
}

static void *input_open(const problem *p, int i)
{
    size_t bytes = bytes_of(&p->in[i]);
    void *data = emulator_alloc(bytes);
    memcpy(data, p->data[i], bytes);
    emulator_written(data, bytes);
    return data;
}

/* Runs a row once; what it left is in `out`, whose memory run_close frees. */
static const char *run(const by__device_kernel *row, const problem *p, const run_options *options,
                       result *out)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    emulated_queue queue = {{launch, copy, fill}, NULL};
    by__device_context context = {.threads = 1, .queue = &queue};
    by_error error = {0};
    *out = (result){0};
    if (row->prepare != NULL && row->prepare(&call, &context, &error) != BY_OK) {
        return "prepare failed";
    }
    for (int i = 0; i < call.input_count; i++) {
        in[i].data = in[i].shape.rank >= 0 ? input_open(p, i) : NULL;
    }
    for (int o = 0; o < call.output_count; o++) {
        int on = options->overlay[o];
        call.out[o].data = on >= 0 ? in[on].data : emulator_alloc(bytes_of(&p->out[o]));
        out->data[o] = call.out[o].data;
        out->type[o] = p->out[o];
    }
    call.work = emulator_alloc(call.work_bytes);
    by_status status = row->run(&call, &context);
    emulator_free(call.work);
    for (int i = 0; i < call.input_count; i++) {
        bool overlaid = false;
        for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
            overlaid = overlaid || options->overlay[o] == i;
        }
        if ((p->mutates >> i & 1) != 0) {
            out->data[BY_MAX_OUTPUTS + i] = in[i].data;
            out->type[BY_MAX_OUTPUTS + i] = p->in[i];
        } else if (!overlaid) {
            emulator_free(in[i].data);
        }
    }
    if (row->release != NULL) {
        row->release(&call);
    }
    return queue.fault != NULL ? queue.fault : status != BY_OK ? "run failed" : NULL;
}

static void run_close(result *r)
{
    for (int i = 0; i < MAX_TENSORS; i++) {
        emulator_free(r->data[i]);
    }
}

/* ---- a GPU ---- */

static by_device *gpu;   /* NULL: none */
static by_device *other; /* for rows that call a library: the GPU, or a stand-in */

static by_memory gpu_alloc(size_t bytes, const void *from)
{
    by_memory memory = {0};
    by_error error = {0};
    if (by_device_alloc(&memory, other, bytes == 0 ? 1 : bytes, "a test", &error) != BY_OK ||
        (from != NULL && bytes > 0 && by_device_write(memory, from, &error) != BY_OK)) {
        fail_msg("%s", error.message);
    }
    return memory;
}

/* What a tensor on the GPU holds, in memory of the emulator. */
static void *gpu_result(by_memory memory, size_t bytes)
{
    void *data = emulator_alloc(bytes);
    by_error error = {0};
    if (bytes > 0 && by_device_read(data, memory, &error) != BY_OK) {
        fail_msg("%s", error.message);
    }
    return data;
}

static const char *gpu_run(const by__device_kernel *row, const problem *p, result *out)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    const by__device_context *context = by__device_context_of(other);
    by_memory memory[BY__MAX_INPUTS + BY_MAX_OUTPUTS + 1] = {{0}};
    static by_error error;
    *out = (result){0};
    if (row->prepare != NULL && row->prepare(&call, context, &error) != BY_OK) {
        return error.message;
    }
    for (int i = 0; i < call.input_count; i++) {
        if (in[i].shape.rank >= 0) {
            memory[i] = gpu_alloc(bytes_of(&p->in[i]), p->data[i]);
            in[i].data = (void *)memory[i].address;
        }
    }
    for (int o = 0; o < call.output_count; o++) {
        memory[BY__MAX_INPUTS + o] = gpu_alloc(bytes_of(&p->out[o]), NULL);
        call.out[o].data = (void *)memory[BY__MAX_INPUTS + o].address;
    }
    memory[BY__MAX_INPUTS + BY_MAX_OUTPUTS] = gpu_alloc(call.work_bytes, NULL);
    call.work = (void *)memory[BY__MAX_INPUTS + BY_MAX_OUTPUTS].address;
    by_status status = row->run(&call, context);
    status = status == BY_OK ? by_device_finish(other, &error) : status;
    for (int o = 0; status == BY_OK && o < call.output_count; o++) {
        out->data[o] = gpu_result(memory[BY__MAX_INPUTS + o], bytes_of(&p->out[o]));
        out->type[o] = p->out[o];
    }
    for (int i = 0; status == BY_OK && i < call.input_count; i++) {
        if ((p->mutates >> i & 1) != 0) {
            out->data[BY_MAX_OUTPUTS + i] = gpu_result(memory[i], bytes_of(&p->in[i]));
            out->type[BY_MAX_OUTPUTS + i] = p->in[i];
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(memory); i++) {
        by_device_free(&memory[i]);
    }
    if (row->release != NULL) {
        row->release(&call);
    }
    return status == BY_OK ? NULL : "the GPU failed";
}

static void must(const char *wrong, const problem *p, const char *dtype)
{
    if (wrong != NULL) {
        char shape[128];
        fail_msg("%s, %s, first operand %s: %s", by_op_name(p->source->op), dtype,
                 p->in[0].shape.rank < 0 ? "none" : by_shape_print(&p->in[0].shape, shape), wrong);
    }
}

/* ---- checks ---- */

static void check_overlays(const by__device_kernel *row, const problem *p, const result *plain,
                           const char *dtype)
{
    const by__op_row *op = by__op_row_of(p->source->op);
    for (int choice = 0; choice < BY_MAX_OUTPUTS * BY__MAX_INPUTS; choice++) {
        int o = choice / BY__MAX_INPUTS;
        int i = choice % BY__MAX_INPUTS;
        if ((op->overlay[o] >> i & 1) == 0 || i >= p->source->input_count ||
            p->out[o].shape.rank < 0 || !by__op_type_equal(&p->in[i], &p->out[o])) {
            continue;
        }
        run_options options = plain_run;
        options.overlay[o] = i;
        result r;
        must(run(row, p, &options, &r), p, dtype);
        must(result_same_bits(&r, plain) ? NULL : "other bits in the place of an input", p, dtype);
        run_close(&r);
    }
}

/* About how much a case computes. */
static double work_of(const problem *p)
{
    const by_shape *first = &p->in[0].shape;
    const by_shape *out = &p->out[0].shape;
    double work = 0.0;
    for (int i = 0; i < p->source->input_count; i++) {
        work += (double)bytes_of(&p->in[i]);
    }
    switch (p->source->op) {
    case BY_OP_ATTENTION:
        return work * (double)first->dim[1] / 4.0;
    case BY_OP_ATTENTION_GRAD:
        return work * (double)first->dim[1];
    case BY_OP_LINEAR_ATTENTION: /* products with a head's matrix and a chunk's keys */
        return work * ((double)out->dim[2] / (double)p->attrs.heads + BY__CUDA_CHUNK) / 4.0;
    case BY_OP_LINEAR_ATTENTION_GRAD:
        return work * ((double)first->dim[2] / (double)p->attrs.heads + BY__CUDA_CHUNK);
    case BY_OP_LSTM:
    case BY_OP_LSTM_GRAD:
    case BY_OP_GRU:
    case BY_OP_GRU_GRAD: /* a product with the matrix of the states a step */
        return (double)(first->dim[0] * first->dim[1]) * (double)by_shape_count(&p->in[2].shape);
    case BY_OP_CACHED_ATTENTION: /* a lane has few elements of a key, and five shuffles */
        return 200.0 *
               (double)(first->dim[0] * first->dim[1] * p->attrs.heads * p->in[3].shape.dim[2]);
    case BY_OP_PAGED_ATTENTION:
        return 200.0 * (double)(first->dim[1] * p->attrs.heads * p->in[7].shape.dim[1]) * 16.0;
    case BY_OP_MATMUL:
    case BY_OP_GROUPED_MATMUL:
        return work * (double)out->dim[out->rank - 1] / 4.0;
    case BY_OP_PACKED_MATMUL:
    case BY_OP_PACKED_GROUPED_MATMUL: /* a weight is decoded for each tile of rows */
        return 4.0 * (double)by_shape_count(first) * (double)out->dim[out->rank - 1];
    case BY_OP_GROUPED_MATMUL_GRAD:
        return work * (double)first->dim[1] / 4.0;
    case BY_OP_CONV:
    case BY_OP_CONV_TRANSPOSED: /* of all outputs the weights of a group */
        return work * (double)by_shape_count(&p->in[1].shape) / (double)p->in[1].shape.dim[0] / 4.0;
    case BY_OP_CONV_WEIGHT_GRAD:
        return work * (double)(first->dim[1] * first->dim[2]) / 4.0;
    default:
        return work;
    }
}

/* How many times the tolerance of the CPU's kernels an error may be. They compute attention of f16
 * in f32; tensor cores take probabilities that were rounded to f16, by 2^-11 of the largest value:
 * 9.4 times at most in these cases. */
static double allowed(const problem *p)
{
    return p->source->op == BY_OP_ATTENTION && p->in[0].dtype == BY_F16 ? 16.0 : 1.0;
}

/* Tensor cores, and exponentials of the processor, have bits of their own. */
static void check_gpu(const problem *p, const by__device_kernel *row, const result *emulated,
                      const char *dtype)
{
    bool attention = p->source->op == BY_OP_ATTENTION || p->source->op == BY_OP_ATTENTION_GRAD;
    result r;
    must(gpu_run(row, p, &r), p, dtype);
    if (!attention) {
        must(result_same_bits(&r, emulated) ? NULL : "the GPU has other bits", p, dtype);
    } else if (!(result_error(&r, emulated, p->source->op, p->in[0].dtype) <= allowed(p))) {
        must("the GPU has other results", p, dtype);
    }
    run_close(&r);
}

static void check_problem(const problem *p, const by__device_kernel *row, const char *dtype)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    result want;
    result got;
    must(kernel_run(by__cpu_kernel_at(&call, BY__ISA_REFERENCE), p, &plain_run, &want), p, dtype);
    double work = work_of(p);
    emulator_seed(1);
    emulator_check(work < LARGEST);
    must(run(row, p, &plain_run, &got), p, dtype);
    emulator_check(false);
    double error = result_error(&got, &want, p->source->op, p->in[0].dtype);
    if (!(error <= allowed(p))) {
        char text[64];
        (void)snprintf(text, sizeof text, "off by %.3g times the tolerance", error);
        must(text, p, dtype);
    }
    bool halves = p->in[0].dtype == BY_BF16 || p->in[0].dtype == BY_F16;
    unsigned seeds = work >= LARGE ? 1 : halves ? 2 : SEEDS;
    for (unsigned seed = 0; seed < seeds; seed++) {
        result r;
        emulator_seed(seed);
        must(run(row, p, &plain_run, &r), p, dtype);
        must(result_same_bits(&r, &got) ? NULL : "other bits in another order", p, dtype);
        run_close(&r);
    }
    check_overlays(row, p, &got, dtype);
    if (gpu != NULL) {
        check_gpu(p, row, &got, dtype);
    }
    run_close(&got);
    result_close(&want);
}

/* The row that the device has for a call, if it is none of rows.inc: one that calls a library. */
static const by__device_kernel *library_row(const by__device_call *call)
{
    const by__device_kernel *row;
    return other == NULL || by__device_find_kernel(&row, other, call, NULL) != BY_OK ||
                   row == by__cuda_row(call)
               ? NULL
               : row;
}

/* An f32 bias is rounded to the halves of its product, by half a step of its own size, which is
 * more than a step of a smaller sum: 4 times the tolerance of the CPU's kernels in these cases. */
static double allowed_of_library(const problem *p)
{
    bool rounds = p->source->op == BY_OP_MATMUL && p->source->input_count > 2 &&
                  p->in[2].shape.rank >= 0 && p->in[2].dtype != p->out[0].dtype;
    return rounds ? 6.0 : 1.0;
}

static void check_library(const problem *p, const by__device_kernel *row, const char *dtype)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    result want;
    result got;
    must(kernel_run(by__cpu_kernel_at(&call, BY__ISA_REFERENCE), p, &plain_run, &want), p, dtype);
    must(gpu_run(row, p, &got), p, dtype);
    double error = result_error(&got, &want, p->source->op, p->in[0].dtype);
    if (!(error <= allowed_of_library(p))) {
        char text[64];
        (void)snprintf(text, sizeof text, "off by %.3g times the tolerance", error);
        must(text, p, dtype);
    }
    run_close(&got);
    result_close(&want);
}

static bool uses_act(const op_case *source)
{
    bool found = source->attrs.dtype == ACT;
    for (int i = 0; i < source->input_count; i++) {
        found = found || source->in[i].type.dtype == ACT;
    }
    return found;
}

static bool has_row(by_op op)
{
    static const by_op of_libraries[] = {BY_OP_LINEAR_TOKEN_LOSS,
                                         BY_OP_LINEAR_CROSS_ENTROPY,
                                         BY_OP_LINEAR_CROSS_ENTROPY_GRAD,
                                         BY_OP_LINEAR_CROSS_ENTROPY_TRAIN,
                                         BY_OP_LINEAR_CROSS_ENTROPY_PART,
                                         BY_OP_LINEAR_DISTILL,
                                         BY_OP_LINEAR_DISTILL_GRAD,
                                         BY_OP_LINEAR_DISTILL_TRAIN,
                                         BY_OP_RESHAPE};
#define BY__CUDA_ROW(name) extern const by__device_kernel by__cuda_row_##name;
#include "device/cuda/rows.inc"
#undef BY__CUDA_ROW
    static const by__device_kernel *const rows[] = {
#define BY__CUDA_ROW(name) &by__cuda_row_##name,
#include "device/cuda/rows.inc"
#undef BY__CUDA_ROW
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i]->op == op) {
            return true;
        }
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(of_libraries); i++) {
        if (other != NULL && of_libraries[i] == op) {
            return true;
        }
    }
    return false;
}

static void test_row(void **state)
{
    by_op op = *(const by_op *)*state;
    int seen = 0;
    for (size_t c = 0; c < op_case_count; c++) {
        const op_case *source = &op_cases[c];
        if (source->op != op || source->use == FOR_BENCH) {
            continue;
        }
        for (int act = BY_F32; act <= (uses_act(source) ? BY_F16 : BY_F32); act++) {
            problem p;
            by__device_tensor in[BY__MAX_INPUTS];
            problem_open(&p, source, (by_dtype)act, PATTERN_RANDOM);
            by__device_call call = problem_call(&p, in);
            const by__device_kernel *row = by__cuda_row(&call);
            if (row != NULL && (act == BY_F32 || work_of(&p) < LARGEST)) {
                check_problem(&p, row, by_dtype_name((by_dtype)act));
                seen++;
            }
            row = library_row(&call);
            if (row != NULL) {
                check_library(&p, row, by_dtype_name((by_dtype)act));
                seen++;
            }
            problem_close(&p);
        }
    }
    assert_int_not_equal(seen, 0);
}

static by_status open_device(const char *name, by_error *error)
{
    if (name == NULL) {
        return setenv("BANYAN_CUDA_PATH", BY_STANDINS "/all", 1) == 0
                   ? by_device_open(&other, "cuda", 1, error)
                   : BY_EIO;
    }
    by_status status = by_device_open(&gpu, name, 1, error);
    other = gpu;
    return status;
}

/* ---- instructions ---- */

#define BLOCKS 2

/* What the kernel of instructions reads and writes. */
typedef struct instruction_data {
    uint16_t halves[BLOCKS][24][16];
    float numbers[BLOCKS][32];
    uint32_t fragments[BLOCKS][32][2][4];
    float sums[BLOCKS][32][4];
    uint32_t results[BLOCKS][32][BY__CUDA_INSTRUCTION_RESULTS];
} instruction_data;

static by__cuda_instructions_args instructions_at(uintptr_t data)
{
    return (by__cuda_instructions_args){
        .halves = (const uint16_t *)(data + offsetof(instruction_data, halves)),
        .numbers = (const float *)(data + offsetof(instruction_data, numbers)),
        .fragments = (uint32_t *)(data + offsetof(instruction_data, fragments)),
        .sums = (float *)(data + offsetof(instruction_data, sums)),
        .results = (uint32_t *)(data + offsetof(instruction_data, results))};
}

/* Small whole numbers, whose sums are exact in any order. */
static int whole(size_t row, size_t column)
{
    return (int)((row * 7 + column * 5 + row * column) % 9) - 4;
}

static void fill_instructions(instruction_data *d)
{
    static const uint32_t special[] = {0x7f800000u, 0xff800000u, 0x7fc00001u, 0x80000000u,
                                       0x00000001u, 0x477fefffu, 0x477ff000u, 0x33000001u,
                                       0x3f808000u, 0x3f818000u, 0x38800000u, 0x387fe000u};
    for (size_t block = 0; block < BLOCKS; block++) {
        for (size_t i = 0; i < 24 * 16; i++) {
            float value = (float)whole(i / 16, i % 16);
            d->halves[block][i / 16][i % 16] =
                block == 0 ? by__f32_to_bf16(value) : by__f32_to_f16(value);
        }
        for (size_t i = 0; i < 32; i++) {
            uint32_t bits = special[i % BY_ARRAY_LENGTH(special)] + (uint32_t)(i / 12 * 0x2345u);
            memcpy(&d->numbers[block][i], &bits, sizeof bits);
        }
    }
}

/* Fragments and sums as the instruction set describes them. */
static void check_fragments(const instruction_data *d)
{
    for (size_t i = 0; i < BLOCKS * 32 * 4; i++) {
        size_t block = i / 128;
        size_t lane = i / 4 % 32;
        size_t k = i % 4;
        size_t row = lane / 4 + k % 2 * 8;
        size_t column = lane % 4 * 2 + k / 2 * 8;
        const uint16_t(*a)[16] = d->halves[block];
        uint32_t own = a[row][column] | (uint32_t)a[row][column + 1] << 16;
        size_t from = lane % 4 * 2 + k % 2 * 8;
        size_t at = lane / 4 + k / 2 * 8;
        uint32_t turned = a[from][at] | (uint32_t)a[from + 1][at] << 16;
        assert_int_equal(d->fragments[block][lane][0][k], own);
        assert_int_equal(d->fragments[block][lane][1][k], turned);
        size_t m = lane / 4 + k / 2 * 8;
        size_t n = lane % 4 * 2 + k % 2;
        int sum = (int)(lane * 4 + k);
        for (size_t j = 0; j < (n == 7 ? 12 : 16); j++) {
            sum += whole(m, j) * whole(16 + n, j);
        }
        assert_true(d->sums[block][lane][k] == (float)sum);
    }
}

static void test_instructions(void **state)
{
    BY_UNUSED(state);
    emulated_queue queue = {{launch, copy, fill}, NULL};
    const by__cuda_grid grid = {{BLOCKS, 1, 1}, 32, 0};
    instruction_data *d = emulator_alloc(sizeof *d);
    memset(d, 0, sizeof *d);
    fill_instructions(d);
    emulator_written(d, sizeof *d);
    by__cuda_instructions_args args = instructions_at((uintptr_t)d);
    emulator_check(true);
    by_status status = launch(&queue.queue, BY__CUDA_KERNEL_instructions, &grid, &args);
    emulator_check(false);
    if (status != BY_OK) {
        fail_msg("%s", queue.fault);
    }
    check_fragments(d);
    if (gpu != NULL) {
        by_error error = {0};
        instruction_data *own = calloc(1, sizeof *own);
        assert_non_null(own);
        fill_instructions(own);
        by_memory memory = gpu_alloc(sizeof *own, own);
        by__cuda_queue *real = by__device_context_of(gpu)->queue;
        args = instructions_at(memory.address);
        assert_int_equal(real->launch(real, BY__CUDA_KERNEL_instructions, &grid, &args), BY_OK);
        check_ok(by_device_finish(gpu, &error), &error);
        check_ok(by_device_read(own, memory, &error), &error);
        check_fragments(own);
        for (size_t i = 0; i < sizeof own->results / sizeof(uint32_t); i++) {
            uint32_t got = (&own->results[0][0][0])[i];
            uint32_t want = (&d->results[0][0][0])[i];
            if (got != want) {
                fail_msg("number %zu, result %zu: %08x on the GPU, %08x in the emulator",
                         i / BY__CUDA_INSTRUCTION_RESULTS, i % BY__CUDA_INSTRUCTION_RESULTS, got,
                         want);
            }
        }
        by_device_free(&memory);
        free(own);
    }
    emulator_free(d);
}

int main(int argc, char **argv)
{
    static by_op ops[BY_OP_COUNT];
    static struct CMUnitTest tests[BY_OP_COUNT + 1] = {cmocka_unit_test(test_instructions)};
    size_t count = 1;
    by_error error = {0};
    bool named = argc > 2 && strcmp(argv[1], "--device") == 0;
    if (open_device(named ? argv[2] : NULL, &error) != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    argc -= named ? 2 : 0;
    argv += named ? 2 : 0;
    for (int op = 0; op < BY_OP_COUNT; op++) {
        if (has_row((by_op)op)) {
            ops[count - 1] = (by_op)op;
            tests[count] =
                (struct CMUnitTest){by_op_name((by_op)op), test_row, NULL, NULL, &ops[count - 1]};
            count++;
        }
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    int failed = _cmocka_run_group_tests("cuda kernels", tests, count, NULL, NULL);
    by_device_close(&other);
    return failed;
}

#else

int main(void)
{
    printf("skipped: there is no clang++ that compiles kernels for the emulator\n");
    return 77;
}

#endif
