/* kernel_test: what the tests of kernels and gradients stand on. A case names an op, its attributes
 * and its operands; the op's own shape rule gives the outputs. All cases are in op_cases.c:
 *
 *   CASE      tests/kernels/test_kernels.c runs every kernel of the op on it
 *   GRADIENT  the same, and tests/grad/test_gradients.c takes finite differences
 *   BENCH     timed by test_kernels --bench alone
 *
 * Running one kernel on guarded buffers is in kernel_run.c.
 */
#ifndef BY_TESTS_KERNEL_TEST_H
#define BY_TESTS_KERNEL_TEST_H

#include "device/cpu/cpu.h"
#include "ops/ops.h"

/* Stands for f32, bf16 and f16 in turn, in types and in attrs.dtype. */
#define ACT ((by_dtype)BY_DTYPE_COUNT)

/* What the test of gradients makes of an operand. Its floats are differentiated unless they are
 * CONSTANT; the gradient of a TRAINED one is f32. */
typedef enum operand_kind {
    PLAIN = 0,   /* integers: in [0, 5) */
    TRAINED,     /* a parameter */
    CONSTANT,    /* not differentiated */
    DIVISOR,     /* magnitudes above 1: changes little over the steps of the differences */
    SPACED,      /* neighbours are further apart than the steps of the differences */
    SOME_ABSENT, /* in [0, 5), every third one is -1 */
    ALL_THREE,
    IN_TURN, /* 0, 1, 2, 3, 4, 0, ... */
    SLOT,    /* entry i of n is in row n - 1 - i, entry 0 in none, ... */
    MEMBER,  /* ... the entries of these rows */
    RANGE,   /* of groups in 7 rows: 0, 1; none; 3 to 6 */
    COUNTER, /* of random bits */
    /* A matrix and its transpose: edge_operands.c. */
    OFFSETS,
    SOURCES,
    BACK_OFFSETS,
    BACK_SOURCES,
    BACK_EDGES
} operand_kind;

/* An absent operand has rank -1. */
typedef struct operand {
    by__graph_type type;
    operand_kind kind;
} operand;

typedef enum case_use { FOR_KERNELS, FOR_GRADIENTS, FOR_BENCH } case_use;

typedef struct op_case {
    by_op op;
    by_attrs attrs;
    const operand *in;
    int input_count;
    case_use use;
} op_case;

/* Element k of operand i, one of OFFSETS to BACK_EDGES. */
int32_t edge_operand(const op_case *source, int i, int64_t k);

extern const op_case op_cases[];
extern const size_t op_case_count;

/* |got - want| <= relative * |want| + absolute * (largest |want| of the output). */
typedef struct tolerance {
    double relative;
    double absolute;
} tolerance;

tolerance kernel_tolerance(by_op op, by_dtype input, by_dtype output);

typedef enum pattern {
    PATTERN_RANDOM, /* uniform in [-2, 2] */
    PATTERN_WIDE,   /* magnitudes 2^-20 .. 2^12 of both signs, and zeros */
    PATTERN_ZERO,
    PATTERN_COUNT
} pattern;

#define MAX_TENSORS (BY__MAX_INPUTS + BY_MAX_OUTPUTS)

/* A case made concrete: types, and inputs that every run starts from. */
typedef struct problem {
    const op_case *source;
    by_attrs attrs;
    by__graph_type in[BY__MAX_INPUTS];
    by__graph_type out[BY_MAX_OUTPUTS];
    void *data[BY__MAX_INPUTS];
    uint32_t mutates;
} problem;

/* What a run left: output tensors, then the inputs that the op updates; NULL where there is none.
 */
typedef struct result {
    void *data[MAX_TENSORS];
    by__graph_type type[MAX_TENSORS];
} result;

/* Bit i of overlay[o]: output o is in the place of input i. */
typedef struct run_options {
    int threads;
    int overlay[BY_MAX_OUTPUTS]; /* input index, -1 for memory of its own */
} run_options;

extern const run_options plain_run;

void problem_open(problem *p, const op_case *source, by_dtype act, pattern kind);
void problem_close(problem *p);
/* The call as `supports` and `prepare` see it; in has room for BY__MAX_INPUTS. */
by__device_call problem_call(const problem *p, by__device_tensor *in);
/* Runs once. NULL, or what went wrong: a failed status, a byte written outside a tensor or the
 * workspace. */
const char *kernel_run(const by__device_kernel *kernel, const problem *p,
                       const run_options *options, result *out);
/* The same `repeats` times on the same buffers; seconds of the fastest. */
double kernel_time(const by__device_kernel *kernel, const problem *p, int threads, int repeats);
void result_close(result *r);
bool result_same_bits(const result *a, const result *b);
/* The largest error as a multiple of the tolerance; > 1 fails. */
double result_error(const result *got, const result *want, by_op op, by_dtype input);
double element(const void *data, by_dtype dtype, int64_t i);

#endif
