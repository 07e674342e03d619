/* Measures how fast this processor multiplies bytes and sums the products in 32 bits, from
 * registers alone: an upper bound for any matrix product in W8A8. */
#include <string.h>

#include "plan/plan.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* Independent sums, enough to cover the latency of two instructions a cycle; steps of a run. */
#define SUMS  12
#define STEPS 40000

/* Does one run and returns its number of operations. */
typedef double measured_loop(void);

/* Hides a register's value from the optimiser. */
#define UNKNOWN(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx512f,avx512vnni"))) static double run_vnni(void)
{
    __m512i sums[SUMS];
    __m512i a = _mm512_set1_epi8(1);
    __m512i b = _mm512_set1_epi8(2);
    UNKNOWN(a);
    UNKNOWN(b);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        sums[i] = _mm512_setzero_si512();
        UNKNOWN(sums[i]); /* otherwise all sums are one */
    }
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        UNKNOWN(sums[i]);
    }
    return 2.0 * sizeof(__m512i) * SUMS * STEPS;
}

/* Widens bytes to 16 bits first, because vpmaddubsw saturates when both bytes are large. */
__attribute__((target("avx2"))) static double run_avx2(void)
{
    __m256i sums[SUMS];
    __m256i a = _mm256_set1_epi16(1);
    __m256i b = _mm256_set1_epi16(2);
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        sums[i] = _mm256_setzero_si256();
        UNKNOWN(sums[i]);
    }
    for (int s = 0; s < STEPS; s++) {
        UNKNOWN(a); /* otherwise the products are computed once */
#pragma GCC unroll 12
        for (int i = 0; i < SUMS; i++) {
            __m256i other = b;
            UNKNOWN(other);
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(a, other));
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; i++) {
        UNKNOWN(sums[i]);
    }
    return 2.0 * (sizeof(__m256i) / 2.0) * SUMS * STEPS;
}

typedef struct timing {
    measured_loop *run;
    int threads;
    double operations;
} timing;

static by_status run_all(void *user, by_error *error)
{
    timing *t = user;
    double operations = 0.0;
    BY_UNUSED(error);
#pragma omp parallel num_threads(t->threads) reduction(+ : operations)
    {
        operations += t->run();
    }
    t->operations = operations;
    return BY_OK;
}

double by__plan_measure_byte_products(const char *level, int threads)
{
    timing t = {.threads = threads};
    double seconds;
    if (strcmp(level, "avx512") == 0) {
        t.run = run_vnni;
    } else if (strcmp(level, "avx2") == 0) {
        t.run = run_avx2;
    } else {
        return 0.0;
    }
    return by__plan_best_seconds(&seconds, 0.1, run_all, &t, NULL) == BY_OK
               ? 1e-9 * t.operations / seconds
               : 0.0;
}

#else

double by__plan_measure_byte_products(const char *level, int threads)
{
    BY_UNUSED(level);
    BY_UNUSED(threads);
    return 0.0;
}

#endif
