/* functions: exponentials and what is made of them, and random bits, from operations whose results
 * IEEE 754 or integers fix: the same bits on every GPU and in the emulator. Errors are those of the
 * CPU's (device/cpu/kernels/simd_math.h): 2 to 3 ulp. */
#ifndef BY_DEVICE_CUDA_KERNELS_FUNCTIONS_CUH
#define BY_DEVICE_CUDA_KERNELS_FUNCTIONS_CUH

#include "prelude.cuh"

#define BY__INFINITY by__float(0x7f800000u)
#define BY__NAN      by__float(0x7fffffffu)

__device__ inline bool by__is_finite(float x)
{
    return (by__bits(x) & 0x7fffffffu) < 0x7f800000u;
}

__device__ inline float by__magnitude(float x)
{
    return by__float(by__bits(x) & 0x7fffffffu);
}

/* 2^n for n from -126 to 127. */
__device__ inline float by__power_of_two(int n)
{
    return by__float((uint32_t)(n + 127) << 23);
}

/* x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r - 1. Adding 1.5 * 2^23 rounds to an integer. */
__device__ inline float by__exp_reduced(float x, float *n)
{
    const float magic = 12582912.0f;
    float k = by__fma(x, 1.44269504088896341f, magic) - magic;
    float r = by__fma(k, -0.693359375f, x);
    r = by__fma(k, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = by__fma(p, r, 1.3981999507e-3f);
    p = by__fma(p, r, 8.3334519073e-3f);
    p = by__fma(p, r, 4.1665795894e-2f);
    p = by__fma(p, r, 1.6666665459e-1f);
    p = by__fma(p, r, 5.0000001201e-1f);
    *n = k;
    return by__fma(r * r, p, r);
}

/* 0 below the range, infinity above it, NaN of NaN. */
__device__ inline float by__exp(float x)
{
    float n;
    float within = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    float m = by__exp_reduced(within, &n) + 1.0f;
    int k = x == x ? (int)n : 0;
    int half = k >> 1; /* in two steps, so that results near the ends of the range stay in it */
    return m * by__power_of_two(half) * by__power_of_two(k - half);
}

/* With e = exp(-2|x|) - 1, tanh |x| = -e / (e + 2), without cancellation; it is 1 from 9.02 on. */
__device__ inline float by__tanh(float x)
{
    float n;
    float size = by__magnitude(x);
    float r = by__exp_reduced((size > 10.0f ? 10.0f : size) * -2.0f, &n);
    float scale = by__power_of_two(x == x ? (int)n : 0);
    float e = by__fma(scale, r, scale - 1.0f);
    float t = -e / (e + 2.0f);
    return by__float((by__bits(t) & 0x7fffffffu) | (by__bits(x) & 0x80000000u));
}

/* exp(x) - 1 for x of at most 0, without cancellation. */
__device__ inline float by__exp_less_one(float x)
{
    float n;
    float r = by__exp_reduced(x < -18.0f ? -18.0f : x, &n);
    float scale = by__power_of_two(x == x ? (int)n : 0);
    return by__fma(scale, r, scale - 1.0f);
}

/* sigmoid(x), and 1 - sigmoid(x), both with all their digits. */
__device__ inline float by__sigmoid_pair(float x, float *complement)
{
    float e = by__exp(-by__magnitude(x));
    float large = 1.0f / (1.0f + e);
    float small = e * large;
    bool negative = x < 0.0f;
    *complement = negative ? large : small;
    return negative ? small : large;
}

__device__ inline float by__sigmoid(float x)
{
    float complement;
    return by__sigmoid_pair(x, &complement);
}

/* Natural logarithm of x >= 0: x = m 2^n with m in [sqrt(1/2), sqrt(2)), log m by the polynomial
 * of Moshier's Cephes library. */
__device__ inline float by__log(float x)
{
    bool tiny = x < 1.17549435e-38f;
    float scaled = tiny ? x * 8388608.0f : x;
    uint32_t bits = by__bits(scaled);
    int n = (int)(bits >> 23) - 126 - (tiny ? 23 : 0);
    float m = by__float((bits & 0x7fffffu) | 0x3f000000u); /* in [1/2, 1) */
    if (m < 0.707106781186547524f) {
        n--;
        m += m;
    }
    float f = m - 1.0f;
    float z = f * f;
    float p = 7.0376836292e-2f;
    p = by__fma(p, f, -1.1514610310e-1f);
    p = by__fma(p, f, 1.1676998740e-1f);
    p = by__fma(p, f, -1.2420140846e-1f);
    p = by__fma(p, f, 1.4249322787e-1f);
    p = by__fma(p, f, -1.6668057665e-1f);
    p = by__fma(p, f, 2.0000714765e-1f);
    p = by__fma(p, f, -2.4999993993e-1f);
    p = by__fma(p, f, 3.3333331174e-1f);
    float y = f * z * p;
    y = by__fma((float)n, -2.12194440e-4f, y);
    y = by__fma(z, -0.5f, y);
    float result = by__fma((float)n, 0.693359375f, f + y);
    return x > 0.0f && by__is_finite(x) ? result
           : x == 0.0f                  ? -BY__INFINITY
           : x > 0.0f                   ? x
                                        : BY__NAN;
}

/* Cosine and sine of |x| up to 2^17: x = n pi/2 + r with |r| <= pi/4 and pi/2 in three parts, then
 * the polynomials of Moshier's Cephes library. */
__device__ inline void by__cos_sin(float x, float *cosine, float *sine)
{
    const float magic = 12582912.0f;
    float n = by__fma(x, 0.63661977236758134f, magic) - magic;
    float r = by__fma(n, -1.57079637050628662f, x);
    r = by__fma(n, 4.37113900018624283e-8f, r);
    r = by__fma(n, 1.71512451000588187e-15f, r);
    float square = r * r;
    float s = by__fma(-1.9515295891e-4f, square, 8.3321608736e-3f);
    s = by__fma(s, square, -1.6666654611e-1f);
    s = by__fma(s * square, r, r);
    float c = by__fma(2.443315711809948e-5f, square, -1.388731625493765e-3f);
    c = by__fma(c, square, 4.166664568298827e-2f);
    c = by__fma(c * square, square, by__fma(square, -0.5f, 1.0f));
    int quadrant = (int)n & 3; /* odd ones swap sine and cosine; the signs follow */
    float first = (quadrant & 1) != 0 ? s : c;
    float second = (quadrant & 1) != 0 ? c : s;
    *cosine = quadrant == 1 || quadrant == 2 ? -first : first;
    *sine = quadrant >= 2 ? -second : second;
}

/* ---- functions of UNARY, numbered as by_function ---- */

enum {
    BY__GELU,
    BY__SILU,
    BY__RELU,
    BY__TANH,
    BY__SIGMOID,
    BY__NEGATE,
    BY__GELU_ERF,
    BY__SOFTPLUS,
    BY__ELU,
    BY__LOG_ABS
};

/* The normal distribution function P(x) and sqrt(2 pi) times its density, exp(-x^2 / 2): with t =
 * 1 / (1 + 0.3 |x| / sqrt(2)), P(-|x|) = exp(-x^2 / 2) t q(t), and q is the CPU's polynomial. */
__device__ inline float by__normal(float x, float *density)
{
    float size = by__magnitude(x);
    float bound = size > 14.4f ? 14.4f : size;
    float e = by__exp(bound * bound * -0.5f);
    float t = 1.0f / by__fma(0.212132034f, bound, 1.0f);
    float q = -0.0647615692f;
    q = by__fma(q, t, 0.242782207f);
    q = by__fma(q, t, -0.256140368f);
    q = by__fma(q, t, 0.273861634f);
    q = by__fma(q, t, -0.0473265671f);
    q = by__fma(q, t, 0.107463585f);
    q = by__fma(q, t, 0.0741694302f);
    q = by__fma(q, t, 0.0853576373f);
    q = by__fma(q, t, 0.0845940011f);
    float tail = e * (t * q);
    *density = e;
    return x < 0.0f ? tail : 1.0f - tail;
}

/* GELU is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3); this is 2u. */
__device__ inline float by__gelu_argument(float x)
{
    return x * by__fma(0.0713548163f * x, x, 1.5957691216f);
}

/* log(1 + e^x): with e = e^-|x| and s = e / (2 + e), log(1 + e) = 2 atanh(s), by its power series.
 */
__device__ inline float by__softplus(float x)
{
    float e = by__exp(-by__magnitude(x));
    float s = e / (2.0f + e);
    float q = s * s;
    float p = 2.0f / 17.0f;
    p = by__fma(p, q, 2.0f / 15.0f);
    p = by__fma(p, q, 2.0f / 13.0f);
    p = by__fma(p, q, 2.0f / 11.0f);
    p = by__fma(p, q, 2.0f / 9.0f);
    p = by__fma(p, q, 2.0f / 7.0f);
    p = by__fma(p, q, 2.0f / 5.0f);
    p = by__fma(p, q, 2.0f / 3.0f);
    return (x > 0.0f ? x : 0.0f * x) + by__fma(s * q, p, 2.0f * s);
}

__device__ inline float by__function(int function, float x)
{
    float unused;
    switch (function) {
    case BY__GELU:
        return x / (1.0f + by__exp(-by__gelu_argument(x)));
    case BY__SILU:
        return x / (1.0f + by__exp(-x));
    case BY__RELU:
        return x > 0.0f ? x : 0.0f;
    case BY__TANH:
        return by__tanh(x);
    case BY__NEGATE:
        return -x;
    case BY__GELU_ERF:
        return x * by__normal(x, &unused);
    case BY__SOFTPLUS:
        return by__softplus(x);
    case BY__ELU:
        return x > 0.0f ? x : by__exp_less_one(x);
    case BY__LOG_ABS:
        return by__log(by__magnitude(x) < 1.17549435e-38f ? 1.17549435e-38f : by__magnitude(x));
    default:
        return by__sigmoid(x);
    }
}

__device__ inline float by__within(float x, float bound)
{
    return x < -bound ? -bound : x > bound ? bound : x;
}

__device__ inline float by__derivative(int function, float x)
{
    float s;
    float c; /* 1 - s */
    switch (function) {
    case BY__GELU: { /* beyond 12 the sigmoid is 0 or 1; the bound keeps powers of x finite */
        float b = by__within(x, 12.0f);
        s = by__sigmoid_pair(by__gelu_argument(b), &c);
        return by__fma(s * c * b, by__fma(0.2140644488f * b, b, 1.5957691216f), s);
    }
    case BY__SILU:
        s = by__sigmoid_pair(x, &c);
        return by__fma(s, x * c, s);
    case BY__RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case BY__TANH: /* 1 - tanh(x)^2 = 4 sigmoid(2x) (1 - sigmoid(2x)) */
        s = by__sigmoid_pair(2.0f * x, &c);
        return 4.0f * s * c;
    case BY__NEGATE:
        return -1.0f;
    case BY__GELU_ERF: /* the bound avoids 0 times infinity */
        s = by__normal(x, &c);
        return by__fma(0.398942280f * by__within(x, 15.0f), c, s);
    case BY__SOFTPLUS:
        return by__sigmoid_pair(x, &c);
    case BY__ELU:
        return x > 0.0f ? 1.0f : by__exp(x);
    case BY__LOG_ABS:
        return by__magnitude(x) < 1.17549435e-38f ? 0.0f : 1.0f / x;
    default:
        s = by__sigmoid_pair(x, &c);
        return s * c;
    }
}

/* ---- Philox4x32-10 (base/random.c) ---- */

struct by__random {
    uint32_t w[4];
};

__device__ inline by__random by__philox(uint32_t key0, uint32_t key1, uint32_t c0, uint32_t c1,
                                        uint32_t c2, uint32_t c3)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = by__high_product(c0, 0xD2511F53u);
        uint32_t low0 = c0 * 0xD2511F53u;
        uint32_t high1 = by__high_product(c2, 0xCD9E8D57u);
        uint32_t low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* ---- rows of a team ---- */

/* Of `columns` elements from `at` on. All threads of the team call it. */
__device__ inline float by__row_largest(const by__team &team, const void *x, int dtype, int64_t at,
                                        int64_t columns)
{
    float largest = -BY__INFINITY;
    for (int64_t i = team.lane; i < columns; i += team.lanes) {
        largest = by__at_least(largest, by__get(x, dtype, at + i));
    }
    return by__team_largest(team, largest);
}

#endif
