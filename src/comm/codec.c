#include "comm/codec.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/threads.h"

/* Independent sums per loop, which the compiler keeps in vector registers; their number fixes the
 * order of additions. */
#define LANES 16

static void put_float(uint8_t *to, float value)
{
    memcpy(to, &value, sizeof value);
}

static float load_float(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* NaN if one of the values is not finite, else 0. */
static float poison(const float *values, size_t count)
{
    float lanes[LANES] = {0.0f};
    float sum = 0.0f;
    for (size_t i = 0; i < count; i++) {
        lanes[i % LANES] += 0.0f * values[i];
    }
    for (size_t k = 0; k < LANES; k++) {
        sum += lanes[k];
    }
    return sum;
}

/* ---- bf16 ---- */

static size_t bf16_bytes(size_t count, double density)
{
    BY_UNUSED(density);
    return count * sizeof(uint16_t);
}

static void bf16_encode(const float *values, size_t count, double density, uint8_t *code)
{
    BY_UNUSED(density);
    for (size_t i = 0; i < count; i++) {
        uint16_t half = by__f32_to_bf16(values[i]);
        memcpy(code + i * sizeof half, &half, sizeof half);
    }
}

static void bf16_decode(const uint8_t *code, size_t count, double density, float *out)
{
    BY_UNUSED(density);
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, code + i * sizeof half, sizeof half);
        out[i] = by__bf16_to_f32(half);
    }
}

/* ---- int8: each unit is a scale and its codes ---- */

#define INT8_UNIT 256

static size_t int8_bytes(size_t count, double density)
{
    BY_UNUSED(density);
    return count + (count + INT8_UNIT - 1) / INT8_UNIT * sizeof(float);
}

static void int8_encode(const float *values, size_t count, double density, uint8_t *code)
{
    BY_UNUSED(density);
    for (size_t at = 0; at < count; at += INT8_UNIT) {
        const float *x = values + at;
        size_t n = smaller(INT8_UNIT, count - at);
        float largest[LANES] = {0.0f};
        for (size_t i = 0; i < n; i++) {
            float magnitude = fabsf(x[i]);
            largest[i % LANES] = magnitude > largest[i % LANES] ? magnitude : largest[i % LANES];
        }
        for (size_t k = 1; k < LANES; k++) {
            largest[0] = largest[k] > largest[0] ? largest[k] : largest[0];
        }
        float bad = poison(x, n);
        float scale = largest[0] / 127.0f;
        /* Values so small that their scale is denormal are sent as zeros. */
        float inverse = bad == 0.0f && scale >= 0x1p-126f ? 1.0f / scale : 0.0f;
        put_float(code, scale + bad);
        code += sizeof scale;
        for (size_t i = 0; i < n; i++) {
            float scaled = inverse == 0.0f ? 0.0f : x[i] * inverse;
            /* Rounds to nearest: adding and subtracting 1.5 * 2^23 rounds in the last bit. */
            float rounded = (scaled + 12582912.0f) - 12582912.0f;
            code[i] = (uint8_t)(int8_t)rounded;
        }
        code += n;
    }
}

static void int8_decode(const uint8_t *code, size_t count, double density, float *out)
{
    BY_UNUSED(density);
    for (size_t at = 0; at < count; at += INT8_UNIT) {
        size_t n = smaller(INT8_UNIT, count - at);
        float scale = load_float(code);
        code += sizeof scale;
        for (size_t i = 0; i < n; i++) {
            out[at + i] = scale * (float)(int8_t)code[i];
        }
        code += n;
    }
}

/* ---- one bit: each unit is a magnitude and the signs ---- */

#define BIT_UNIT 1024

static size_t one_bit_bytes(size_t count, double density)
{
    BY_UNUSED(density);
    return (count + BIT_UNIT - 1) / BIT_UNIT * sizeof(float) + count / BIT_UNIT * (BIT_UNIT / 8) +
           (count % BIT_UNIT + 7) / 8;
}

static float mean_magnitude(const float *x, size_t count)
{
    float lanes[LANES] = {0.0f};
    float sum = 0.0f;
    for (size_t i = 0; i < count; i++) {
        lanes[i % LANES] += fabsf(x[i]);
    }
    for (size_t k = 0; k < LANES; k++) {
        sum += lanes[k];
    }
    return sum / (float)count;
}

/* Bit i: whether x[i] is negative. */
static uint8_t pack_signs(const float *x, size_t count)
{
    uint32_t signs = 0;
    for (size_t i = 0; i < count; i++) {
        signs |= by__float_bits(x[i]) >> 31 << i;
    }
    return (uint8_t)signs;
}

static void one_bit_encode(const float *values, size_t count, double density, uint8_t *code)
{
    BY_UNUSED(density);
    for (size_t at = 0; at < count; at += BIT_UNIT) {
        const float *x = values + at;
        size_t n = smaller(BIT_UNIT, count - at);
        put_float(code, mean_magnitude(x, n) + poison(x, n));
        code += sizeof(float);
        for (size_t i = 0; i < n; i += 8) {
            *code++ = pack_signs(x + i, smaller(8, n - i));
        }
    }
}

static void one_bit_decode(const uint8_t *code, size_t count, double density, float *out)
{
    BY_UNUSED(density);
    for (size_t at = 0; at < count; at += BIT_UNIT) {
        size_t n = smaller(BIT_UNIT, count - at);
        float magnitude = load_float(code);
        code += sizeof magnitude;
        for (size_t i = 0; i < n; i++) {
            uint32_t sign = (uint32_t)(code[i / 8] >> i % 8 & 1) << 31;
            out[at + i] = by__bits_float(by__float_bits(magnitude) | sign);
        }
        code += (n + 7) / 8;
    }
}

/* ---- top k: values and their indices in the block ---- */

static size_t kept_values(size_t count, double density)
{
    size_t kept = (size_t)ceil((double)count * density);
    return kept > count ? count : kept;
}

static size_t top_k_bytes(size_t count, double density)
{
    return kept_values(count, density) * (sizeof(float) + sizeof(uint16_t));
}

/* x| as an integer with the same order; NaN is above all. */
static uint32_t magnitude_bits(float x)
{
    return by__float_bits(x) & 0x7fffffffu;
}

/* The k-th largest magnitude (k >= 1), found by radix selection with 8-bit digits from the highest
 * on; *equal: how many of the k equal it. */
static uint32_t find_threshold(const float *values, size_t count, size_t k, size_t *equal)
{
    uint32_t prefix = 0;
    uint32_t mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t histogram[256] = {0};
        for (size_t i = 0; i < count; i++) {
            uint32_t bits = magnitude_bits(values[i]);
            histogram[bits >> shift & 255u] += (bits & mask) == prefix;
        }
        uint32_t digit = 255;
        while (histogram[digit] < k) {
            k -= histogram[digit];
            digit--;
        }
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    *equal = k;
    return prefix;
}

static void top_k_encode(const float *values, size_t count, double density, uint8_t *code)
{
    size_t kept = kept_values(count, density);
    size_t equal;
    uint32_t threshold = find_threshold(values, count, kept, &equal);
    uint8_t *places = code + kept * sizeof(float);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_bits(values[i]);
        if (bits < threshold || (bits == threshold && equal == 0)) {
            continue;
        }
        equal -= bits == threshold;
        uint16_t place = (uint16_t)i;
        put_float(code, values[i]);
        memcpy(places, &place, sizeof place);
        code += sizeof(float);
        places += sizeof place;
    }
}

static void top_k_decode(const uint8_t *code, size_t count, double density, float *out)
{
    size_t kept = kept_values(count, density);
    const uint8_t *places = code + kept * sizeof(float);
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < kept; i++) {
        uint16_t place;
        memcpy(&place, places + i * sizeof place, sizeof place);
        out[place % count] = load_float(code + i * sizeof(float));
    }
}

/* ---- the table ---- */

static const by__comm_codec codecs[] = {
    {"bf16", "rounded to bf16: half the bytes", bf16_bytes, bf16_encode, bf16_decode},
    {"int8", "whole numbers of 8 bits with a scale for 256 values: a quarter", int8_bytes,
     int8_encode, int8_decode},
    {"one_bit", "signs, with a magnitude for 1024 values: a thirty-first", one_bit_bytes,
     one_bit_encode, one_bit_decode},
    {"top_k", "the share sync.density of largest magnitude", top_k_bytes, top_k_encode,
     top_k_decode},
};

const by__comm_codec *by__comm_codec_at(size_t i)
{
    return i < BY_ARRAY_LENGTH(codecs) ? &codecs[i] : NULL;
}

by_status by__comm_codec_find(const by__comm_codec **out, const char *name, by_error *error)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(codecs); i++) {
        if (strcmp(codecs[i].name, name) == 0) {
            *out = &codecs[i];
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG, "there is no codec '%s'; one of bf16, int8, one_bit, top_k",
                        name);
}

size_t by__comm_codec_bytes(const by__comm_codec *codec, size_t count, double density)
{
    size_t whole = count / BY__CODEC_BLOCK;
    size_t rest = count % BY__CODEC_BLOCK;
    return whole * codec->bytes(BY__CODEC_BLOCK, density) +
           (rest > 0 ? codec->bytes(rest, density) : 0);
}

/* ---- many blocks ---- */

/* A call of by__comm_codec_send or by__comm_codec_receive, divided into a range of blocks per
 * thread. */
typedef struct coding {
    const by__comm_codec *codec;
    size_t count;
    double density;
    const float *values; /* of send */
    float *residual;
    uint8_t *code;
    const uint8_t *received; /* of receive */
    float *out;
    bool add;
    size_t parts;
} coding;

static void send_block(const coding *c, size_t first, size_t count, uint8_t *code)
{
    float sum[BY__CODEC_BLOCK];
    float *residual = c->residual == NULL ? NULL : c->residual + first;
    const float *values = c->values + first;
    if (residual == NULL) {
        c->codec->encode(values, count, c->density, code);
        return;
    }
    memcpy(sum, values, count * sizeof *sum);
    for (size_t i = 0; i < count; i++) {
        sum[i] += residual[i];
    }
    c->codec->encode(sum, count, c->density, code);
    c->codec->decode(code, count, c->density, residual);
    for (size_t i = 0; i < count; i++) {
        float lost = sum[i] - residual[i];
        /* The receiver learns of a value that is not finite; the residual must not carry it to
         * later steps. */
        residual[i] = lost - lost == 0.0f ? lost : 0.0f;
    }
}

static void receive_block(const coding *c, size_t first, size_t count, const uint8_t *code)
{
    float sum[BY__CODEC_BLOCK];
    float *out = c->out + first;
    if (!c->add) {
        c->codec->decode(code, count, c->density, out);
        return;
    }
    c->codec->decode(code, count, c->density, sum);
    for (size_t i = 0; i < count; i++) {
        out[i] += sum[i];
    }
}

/* Processes part i of the blocks. */
static by_status run_part(void *context, size_t i, by_error *error)
{
    const coding *c = context;
    size_t blocks = (c->count + BY__CODEC_BLOCK - 1) / BY__CODEC_BLOCK;
    size_t size = c->codec->bytes(BY__CODEC_BLOCK, c->density);
    BY_UNUSED(error);
    for (size_t b = blocks * i / c->parts; b < blocks * (i + 1) / c->parts; b++) {
        size_t first = b * BY__CODEC_BLOCK;
        size_t count = smaller(BY__CODEC_BLOCK, c->count - first);
        if (c->received == NULL) {
            send_block(c, first, count, c->code + b * size);
        } else {
            receive_block(c, first, count, c->received + b * size);
        }
    }
    return BY_OK;
}

/* Starting a thread pays off for some hundred thousand values. */
static by_status code_chunks(coding *c, int threads, by_error *error)
{
    size_t parts = c->count / (16 * BY__CODEC_BLOCK);
    c->parts = smaller(parts < 1 ? 1 : parts, threads < 1 ? 1 : (size_t)threads);
    return by__threads_run(c->parts, run_part, c, error);
}

by_status by__comm_codec_send(const by__comm_codec *codec, const float *values, float *residual,
                              size_t count, double density, uint8_t *code, int threads,
                              by_error *error)
{
    coding c = {.codec = codec,
                .count = count,
                .density = density,
                .values = values,
                .residual = residual,
                .code = code};
    return code_chunks(&c, threads, error);
}

by_status by__comm_codec_receive(const by__comm_codec *codec, const uint8_t *code, size_t count,
                                 double density, bool add, float *out, int threads, by_error *error)
{
    coding c = {.codec = codec,
                .count = count,
                .density = density,
                .received = code,
                .out = out,
                .add = add};
    return code_chunks(&c, threads, error);
}
