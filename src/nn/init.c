#include <math.h>
#include <string.h>

#include "nn/nn.h"

/* Elements of one Philox stream position; work is cut here, so the values do not depend on threads.
 */
#define BLOCK 4096
/* Counters that are worked on side by side: the loops over them are what the compiler makes vectors
 * of. Each counter gives four values. */
#define LANES 16

/* Only + - * sqrt and integers, in this order and never contracted into fused operations (see
 * -ffp-contract in CMakeLists.txt): initial weights have the same bits on every machine and with
 * every C library, as logf and sincosf would not. */

/* Words of LANES counters, first, first + 1, ... */
static void random_words(uint32_t words[4][LANES], const uint32_t key[2], uint32_t first,
                         int64_t block)
{
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t counter[4] = {first + lane, (uint32_t)block, (uint32_t)(block >> 32), 0};
        uint32_t bits[4];
        by__philox(bits, key, counter);
        for (int word = 0; word < 4; word++) {
            words[word][lane] = bits[word];
        }
    }
}

/* out = std sqrt(-2 ln u), u = 1 - bits / 2^32 in (0, 1]. With u = m 2^e and m in [sqrt(1/2),
 * sqrt(2)), ln u = e ln 2 + ln m; the polynomial of ln m is that of Moshier's Cephes library, and
 * ln 2 is in two parts, the first short enough that e times it is exact. */
static void radius(float out[LANES], const uint32_t bits[LANES], float std)
{
    float u[LANES];
    uint32_t pattern[LANES];
    float exponent[LANES];
    for (int i = 0; i < LANES; i++) {
        u[i] = 1.0f - by__unit_float(bits[i]);
    }
    memcpy(pattern, u, sizeof u);
    for (int i = 0; i < LANES; i++) {
        int32_t e = (int32_t)(pattern[i] - 0x3f3504f3u) >> 23; /* the pattern of sqrt(1/2) */
        pattern[i] -= (uint32_t)e << 23;
        exponent[i] = (float)e;
    }
    memcpy(u, pattern, sizeof u);
    for (int i = 0; i < LANES; i++) {
        float f = u[i] - 1.0f;
        float p = 7.0376836292e-2f;
        p = p * f - 1.1514610310e-1f;
        p = p * f + 1.1676998740e-1f;
        p = p * f - 1.2420140846e-1f;
        p = p * f + 1.4249322787e-1f;
        p = p * f - 1.6668057665e-1f;
        p = p * f + 2.0000714765e-1f;
        p = p * f - 2.4999993993e-1f;
        p = p * f + 3.3333331174e-1f;
        float rest = p * f * (f * f) - exponent[i] * 2.12194440e-4f - 0.5f * (f * f);
        float log_u = f + rest + exponent[i] * 0.693359375f;
        out[i] = std * sqrtf(-2.0f * log_u);
    }
}

/* x = r cos(2 pi u) and y = r sin(2 pi u), u = bits / 2^32. The circle is cut into quarters around
 * the axes, where Cephes' polynomials hold; the quarter says which of the two is the sine, and the
 * signs. */
static void on_circle(float x[LANES], float y[LANES], const uint32_t bits[LANES],
                      const float r[LANES])
{
    for (int i = 0; i < LANES; i++) {
        float u = by__unit_float(bits[i]);
        int32_t quarter = (int32_t)(4.0f * u + 0.5f);
        float a = (u - 0.25f * (float)quarter) * 6.28318530717958647692f;
        float z = a * a;
        float sine =
            ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
        float cosine =
            ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
                (z * z) -
            0.5f * z + 1.0f;
        float across = (quarter & 1) != 0 ? sine : cosine;
        float up = (quarter & 1) != 0 ? cosine : sine;
        x[i] = r[i] * (((quarter + 1) & 2) != 0 ? -across : across);
        y[i] = r[i] * ((quarter & 2) != 0 ? -up : up);
    }
}

/* Pairs of normal values from pairs of uniform ones (Box and Muller 1958). */
static void fill_normal(float *out, int64_t count, float std, const uint32_t key[2], int64_t block)
{
    for (int64_t i = 0; i < count; i += 4 * LANES) {
        uint32_t words[4][LANES];
        float values[4][LANES];
        float r[LANES];
        random_words(words, key, (uint32_t)(i / 4), block);
        for (int pair = 0; pair < 4; pair += 2) {
            radius(r, words[pair], std);
            on_circle(values[pair], values[pair + 1], words[pair + 1], r);
        }
        int64_t n = count - i < 4 * LANES ? count - i : 4 * LANES;
        memcpy(out + i, values, (size_t)n * sizeof *out);
    }
}

by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter, uint64_t seed,
                            by_error *error)
{
    if (!by__graph_has(graph, parameter) || graph->values[parameter].role != BY_ROLE_PARAMETER) {
        return by_error_set(error, BY_EARG, "value %d is not a parameter", (int)parameter);
    }
    const by__value *value = &graph->values[parameter];
    int64_t count = by_shape_count(&value->shape);
    if (value->init.kind != BY_INIT_NORMAL) {
        float constant = value->init.kind == BY_INIT_ONE ? 1.0f : 0.0f;
        for (int64_t i = 0; i < count; i++) {
            data[i] = constant;
        }
        return BY_OK;
    }
    uint32_t key[2];
    float std = value->init.std;
    int64_t blocks = (count + BLOCK - 1) / BLOCK;
    by__philox_key(key, seed, by__hash64(value->name, strlen(value->name)));
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BLOCK;
        fill_normal(data + first, count - first < BLOCK ? count - first : BLOCK, std, key, block);
    }
    return BY_OK;
}
