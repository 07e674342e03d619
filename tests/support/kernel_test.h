/* kernel_test: what the kernel tests stand on. A case names an op, its attributes and its input
 * types; the op's own shape rule gives the outputs. The cases are in kernel_cases.c, each line run
 * for every level of the machine; running one kernel on guarded buffers is in kernel_run.c.
 */
#ifndef BY_TESTS_KERNEL_TEST_H
#define BY_TESTS_KERNEL_TEST_H

#include "device/cpu/cpu.h"
#include "ops/ops.h"

/* Stands for f32 and bf16 in turn, in types and in attrs.dtype. */
#define ACT ((by_dtype)BY_DTYPE_COUNT)

typedef struct kernel_case {
    by_op op;
    by_attrs attrs;
    const by__type *in;
    int input_count;
    bool bench; /* a shape of GPT-2 124M, for --bench alone */
} kernel_case;

extern const kernel_case kernel_cases[];
extern const size_t kernel_case_count;

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
    const kernel_case *source;
    by_attrs attrs;
    by__type in[BY__MAX_INPUTS];
    by__type out[BY_MAX_OUTPUTS];
    void *data[BY__MAX_INPUTS];
    uint32_t mutates;
} problem;

/* What a run left: output tensors, then the inputs that the op updates; NULL where there is none.
 */
typedef struct result {
    void *data[MAX_TENSORS];
    by__type type[MAX_TENSORS];
} result;

/* Bit i of overlay[o]: output o is in the place of input i. */
typedef struct run_options {
    int threads;
    int overlay[BY_MAX_OUTPUTS]; /* input index, -1 for memory of its own */
} run_options;

extern const run_options plain_run;

void problem_open(problem *p, const kernel_case *source, by_dtype act, pattern kind);
void problem_close(problem *p);
/* The call as `supports` and `prepare` see it; in has room for BY__MAX_INPUTS. */
by__call problem_call(const problem *p, by__tensor *in);
/* Runs once. NULL, or what went wrong: a failed status, a byte written outside a tensor or the
 * workspace. */
const char *kernel_run(const by__kernel *kernel, const problem *p, const run_options *options,
                       result *out);
/* The same `repeats` times on the same buffers; seconds of the fastest. */
double kernel_time(const by__kernel *kernel, const problem *p, int threads, int repeats);
void result_close(result *r);
bool result_same_bits(const result *a, const result *b);
/* The largest error as a multiple of the tolerance; > 1 fails. */
double result_error(const result *got, const result *want, by_op op, by_dtype input);
double element(const void *data, by_dtype dtype, int64_t i);

#endif
