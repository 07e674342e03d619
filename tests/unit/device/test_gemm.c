/* Matrix products: every layout, dtype and level against sums in double, with operands inside
 * larger matrices, guard values around C and scratch, and equal bits for every number of threads.
 */
#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/half.h"
#include "device/cpu/gemm.h"

#define GUARD 64

typedef struct matrix {
    by_dtype dtype;
    int64_t count;
    unsigned char *data; /* with GUARD bytes of 0xa5 on either side */
} matrix;

static matrix matrix_open(by_dtype dtype, int64_t count, uint64_t seed)
{
    matrix m = {dtype, count, NULL};
    size_t bytes = (size_t)count * by_dtype_size(dtype);
    m.data = malloc(bytes + 2 * GUARD);
    assert_non_null(m.data);
    memset(m.data, 0xa5, bytes + 2 * GUARD);
    uint32_t key[2];
    by__philox_key(key, seed, 7);
    for (int64_t i = 0; i < count; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t bits[4];
        by__philox(bits, key, counter);
        float value = by__unit_float(bits[0]) - 0.5f;
        if (dtype == BY_F32) {
            memcpy(m.data + GUARD + i * 4, &value, 4);
        } else {
            uint16_t half = by__f32_to_bf16(value);
            memcpy(m.data + GUARD + i * 2, &half, 2);
        }
    }
    return m;
}

static matrix matrix_copy(const matrix *m)
{
    matrix copy = *m;
    size_t bytes = (size_t)m->count * by_dtype_size(m->dtype) + 2 * GUARD;
    copy.data = malloc(bytes);
    assert_non_null(copy.data);
    memcpy(copy.data, m->data, bytes);
    return copy;
}

static double get(const matrix *m, int64_t i)
{
    if (m->dtype == BY_F32) {
        float value;
        memcpy(&value, m->data + GUARD + i * 4, 4);
        return (double)value;
    }
    uint16_t half;
    memcpy(&half, m->data + GUARD + i * 2, 2);
    return (double)by__bf16_to_f32(half);
}

static void check_guards(const matrix *m)
{
    const unsigned char *end = m->data + GUARD + (size_t)m->count * by_dtype_size(m->dtype);
    unsigned char guard[GUARD];
    memset(guard, 0xa5, GUARD);
    assert_memory_equal(m->data, guard, GUARD);
    assert_memory_equal(end, guard, GUARD);
}

typedef struct problem {
    by__cpu_gemm_options options;
    matrix a, b, bias, add, c;
} problem;

static problem problem_open(const by__cpu_gemm_options *options)
{
    problem p = {.options = *options};
    by__cpu_gemm_options *o = &p.options;
    int64_t a_rows = o->trans_a ? o->k : o->m;
    int64_t b_rows = o->trans_b ? o->n : o->k;
    p.a = matrix_open(o->dtype, (a_rows - 1) * o->lda + (o->trans_a ? o->m : o->k), 1);
    p.b = matrix_open(o->dtype, (b_rows - 1) * o->ldb + (o->trans_b ? o->k : o->n), 2);
    p.bias = matrix_open(o->bias_dtype, o->n, 3);
    p.add = matrix_open(o->out, (o->m - 1) * o->ldc + o->n, 4);
    p.c = matrix_open(o->out, (o->m - 1) * o->ldc + o->n, 5);
    return p;
}

static void problem_close(problem *p)
{
    free(p->a.data);
    free(p->b.data);
    free(p->bias.data);
    free(p->add.data);
    free(p->c.data);
}

/* Runs it and leaves the result in a fresh copy of c. */
static matrix multiply(const problem *p, int threads)
{
    by__cpu_gemm_options options = p->options;
    options.threads = threads;
    by__cpu_gemm *gemm = NULL;
    by_error error;
    assert_int_equal(by__cpu_gemm_open(&gemm, &options, &error), BY_OK);
    size_t work = by__cpu_gemm_work(gemm);
    unsigned char *scratch = NULL;
    assert_int_equal(by__alloc_aligned((void **)&scratch, work + GUARD, "scratch", &error), BY_OK);
    memset(scratch, 0xff, work + GUARD); /* NaN: what is read must have been written */
    matrix c = matrix_copy(&p->c);
    by__cpu_gemm_operands operands = {
        .a = p->a.data + GUARD,
        .b = p->b.data + GUARD,
        .bias = p->bias.data + GUARD,
        .add = p->add.data + GUARD,
        .c = c.data + GUARD,
        .work = scratch,
    };
    by__cpu_gemm_run(gemm, &operands);
    for (int i = 0; i < GUARD; i++) {
        assert_int_equal(scratch[work + (size_t)i], 0xff);
    }
    check_guards(&c);
    free(scratch);
    by__cpu_gemm_close(&gemm);
    assert_null(gemm);
    return c;
}

/* What element `at` (row i, column j) of C should be, and by how much it may be off. */
typedef struct expected {
    double value;
    double bound;
} expected;

static expected expect(const problem *p, int64_t i, int64_t j)
{
    const by__cpu_gemm_options *o = &p->options;
    int64_t at = i * o->ldc + j;
    double sum = 0.0;
    double magnitude = 1.0;
    for (int64_t k = 0; k < o->k; k++) {
        double product = get(&p->a, o->trans_a ? k * o->lda + i : i * o->lda + k) *
                         get(&p->b, o->trans_b ? j * o->ldb + k : k * o->ldb + j);
        sum += product;
        magnitude += fabs(product);
    }
    sum += o->bias ? get(&p->bias, j) : 0.0;
    sum += o->add ? get(&p->add, at) : 0.0;
    sum += o->accumulate ? get(&p->c, at) : 0.0;
    double epsilon = o->out == BY_F32 ? 0x1p-24 : 0x1p-8;
    return (expected){sum, 4.0 * sqrt((double)o->k) * 0x1p-24 * magnitude + epsilon * fabs(sum)};
}

static void check_values(const problem *p, const matrix *c, const expected *want)
{
    const by__cpu_gemm_options *o = &p->options;
    for (int64_t at = 0; at < c->count; at++) {
        if (at % o->ldc >= o->n) { /* between the rows: untouched */
            assert_true(get(c, at) == get(&p->c, at));
        } else if (!(fabs(get(c, at) - want[at].value) <= want[at].bound)) {
            fail_msg("element %lld: %.9g, not %.9g (bound %.3g)", (long long)at, get(c, at),
                     want[at].value, want[at].bound);
        }
    }
}

/* With and without the instructions beyond the level (AMX). */
static void check_caps(problem *p, by__cpu_isa level, const expected *want)
{
    static const char *const caps[] = {"native", "avx512"};
    for (size_t cap = 0; cap < (level == BY__ISA_AVX512 ? 2 : 1); cap++) {
        assert_int_equal(setenv("BANYAN_ISA", caps[cap], 1), 0);
        p->options.isa = level;
        matrix one = multiply(p, 1);
        check_values(p, &one, want);
        /* The last has a team of one thread, which is less than it asks for. */
        static const int threads[] = {2, 3, 16, 3};
        int levels = omp_get_max_active_levels();
        for (size_t t = 0; t < BY_ARRAY_LENGTH(threads); t++) {
            omp_set_max_active_levels(t == BY_ARRAY_LENGTH(threads) - 1 ? 0 : levels);
            matrix many = multiply(p, threads[t]);
            omp_set_max_active_levels(levels);
            assert_memory_equal(one.data, many.data,
                                (size_t)one.count * by_dtype_size(one.dtype) + 2 * GUARD);
            free(many.data);
        }
        free(one.data);
    }
    assert_int_equal(unsetenv("BANYAN_ISA"), 0);
}

/* A product at every level, with 1 to 16 threads. */
static void check(by__cpu_gemm_options options)
{
    options.lda += options.trans_a ? options.m : options.k;
    options.ldb += options.trans_b ? options.k : options.n;
    options.ldc += options.n;
    problem p = problem_open(&options);
    expected *want = calloc((size_t)p.c.count, sizeof *want);
    assert_non_null(want);
    for (int64_t i = 0; i < options.m; i++) {
        for (int64_t j = 0; j < options.n; j++) {
            want[i * options.ldc + j] = expect(&p, i, j);
        }
    }
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        check_caps(&p, (by__cpu_isa)level, want);
    }
    free(want);
    problem_close(&p);
}

/* The epilogues that a dtype allows, for one shape and layout. */
static void check_epilogues(by__cpu_gemm_options o)
{
    check(o);
    o.bias = true;
    o.bias_dtype = BY_BF16;
    check(o);
    o.add = true;
    o.bias_dtype = BY_F32;
    check(o);
    o.bias = false;
    check(o);
    o.add = false;
    if (o.out == BY_F32) {
        o.accumulate = true;
        check(o);
    }
}

static void test_odd_shapes_in_every_layout(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {1, 7, 5},    {3, 1, 33},   {2, 70, 17},
                                        {4, 3, 9}, {15, 33, 31}, {33, 65, 70}, {17, 5, 129}};
    for (size_t s = 0; s < BY_ARRAY_LENGTH(shapes); s++) {
        for (int layout = 0; layout < 4; layout++) {
            for (int types = 0; types < 4; types++) {
                for (int64_t pad = 0; pad <= 3; pad += 3) {
                    check_epilogues((by__cpu_gemm_options){
                        .m = shapes[s][0],
                        .n = shapes[s][1],
                        .k = shapes[s][2],
                        .trans_a = (layout & 1) != 0,
                        .trans_b = (layout & 2) != 0,
                        .lda = pad,
                        .ldb = pad,
                        .ldc = pad,
                        .dtype = (types & 1) != 0 ? BY_BF16 : BY_F32,
                        .out = (types & 2) != 0 ? BY_BF16 : BY_F32,
                    });
                }
            }
        }
    }
}

/* Large enough for several tiles, several pieces of k and, with k = 9001, several super-blocks;
 * rows a page apart; so many rows that two threads each pack B for themselves; few rows, few that
 * are long, and few with short columns; so many columns that each thread packs A for itself. */
static void test_many_tiles(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        {300, 290, 70}, {150, 70, 1300}, {35, 40, 9001}, {20, 40, 2048}, {530, 64, 40},
        {2, 600, 900},  {1, 300, 2600},  {4, 700, 300},  {4, 70, 2101},  {45, 210, 600},
        {3, 4103, 64},  {1, 301, 128},   {4, 2047, 128}};
    for (size_t s = 0; s < BY_ARRAY_LENGTH(shapes); s++) {
        for (int types = 0; types < 4; types++) {
            by__cpu_gemm_options o = {
                .m = shapes[s][0],
                .n = shapes[s][1],
                .k = shapes[s][2],
                .trans_a = s == 1 || s == 9,
                .trans_b = s % 2 == 0 || s > 9,
                .dtype = (types & 1) != 0 ? BY_BF16 : BY_F32,
                .out = (types & 2) != 0 ? BY_BF16 : BY_F32,
            };
            check(o);
            if (s == 9 && o.out == BY_F32) {
                o.accumulate = true;
                check(o);
                o.accumulate = false;
            }
            o.bias = true;
            o.add = true;
            check(o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_shapes_in_every_layout),
        cmocka_unit_test(test_many_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
