/* Operations that change the values of pixels, and the amounts that policies give them. */
#include "data/transform/operations.h"

#include <math.h>
#include <string.h>

#define LEVELS 256

/* ---- tables: each value of a channel has another one ---- */

static void map_plane(uint8_t *pixels, size_t count, const uint8_t table[LEVELS])
{
    for (size_t i = 0; i < count; i++) {
        pixels[i] = table[pixels[i]];
    }
}

static void count_levels(uint64_t counts[LEVELS], const uint8_t *pixels, size_t count)
{
    memset(counts, 0, LEVELS * sizeof counts[0]);
    for (size_t i = 0; i < count; i++) {
        counts[pixels[i]]++;
    }
}

/* Image.blend of one value: between both it is rounded down, beyond them it is also clipped. */
static inline uint8_t blend(int zero, int one, float factor)
{
    float value = (float)zero + factor * (float)(one - zero);
    return (uint8_t)(value <= 0.0f ? 0 : value >= 255.0f ? 255 : (int)value);
}

/* Pixels between a constant grey (factor 0) and themselves (1). */
static void blend_with_grey(uint8_t *pixels, size_t count, int grey, float factor)
{
    uint8_t table[LEVELS];
    for (int v = 0; v < LEVELS; v++) {
        table[v] = blend(grey, v, factor);
    }
    map_plane(pixels, count, table);
}

static void autocontrast(uint8_t *pixels, size_t count)
{
    uint64_t counts[LEVELS];
    uint8_t table[LEVELS];
    int low = 0;
    int high = LEVELS - 1;
    count_levels(counts, pixels, count);
    while (low < high && counts[low] == 0) {
        low++;
    }
    while (high > low && counts[high] == 0) {
        high--;
    }
    if (high <= low) {
        return;
    }
    double scale = 255.0 / (high - low);
    double offset = -low * scale;
    for (int v = 0; v < LEVELS; v++) {
        int value = (int)(v * scale + offset);
        table[v] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    map_plane(pixels, count, table);
}

static void equalize(uint8_t *pixels, size_t count)
{
    uint64_t counts[LEVELS];
    uint8_t table[LEVELS];
    int last = LEVELS - 1;
    count_levels(counts, pixels, count);
    while (last > 0 && counts[last] == 0) {
        last--;
    }
    uint64_t step = ((uint64_t)count - counts[last]) / 255;
    if (step == 0) {
        return; /* too few pixels, or one level */
    }
    uint64_t sum = step / 2;
    for (int v = 0; v < LEVELS; v++) {
        uint64_t value = sum / step;
        table[v] = (uint8_t)(value > 255 ? 255 : value);
        sum += counts[v];
    }
    map_plane(pixels, count, table);
}

static void change_levels(by__transform_operation operation, double amount, uint8_t *pixels,
                          size_t count)
{
    uint8_t table[LEVELS];
    bool is_bits = operation == BY__OPERATION_POSTERIZE && amount < 8.0; /* else a level */
    uint8_t mask = (uint8_t)(!is_bits ? 0xff : amount <= 0.0 ? 0 : 0xff << (8 - (int)amount));
    for (int v = 0; v < LEVELS; v++) {
        bool kept = operation == BY__OPERATION_SOLARIZE && v < amount;
        table[v] = operation == BY__OPERATION_POSTERIZE ? (uint8_t)(v & mask)
                   : kept                               ? (uint8_t)v
                                                        : (uint8_t)(255 - v);
    }
    map_plane(pixels, count, table);
}

/* ---- colours ---- */

/* The weights of ITU-R 601-2, in the integers of Pillow. */
static inline int grey_of(const uint8_t *pixel, size_t plane)
{
    return (int)((pixel[0] * 19595u + pixel[plane] * 38470u + pixel[2 * plane] * 7471u + 0x8000u) >>
                 16);
}

/* The mean grey, to the nearest. */
static int mean_grey(const by__transform_size *size, const uint8_t *pixels)
{
    size_t plane = size->height * size->width;
    uint64_t sum = 0;
    for (size_t i = 0; i < plane; i++) {
        sum += (uint64_t)(size->channels == 3 ? grey_of(pixels + i, plane) : pixels[i]);
    }
    return (int)((double)sum / (double)plane + 0.5);
}

static void change_color(uint8_t *pixels, size_t plane, float factor)
{
    for (size_t i = 0; i < plane; i++) {
        int grey = grey_of(pixels + i, plane);
        for (size_t c = 0; c < 3; c++) {
            pixels[c * plane + i] = blend(grey, pixels[c * plane + i], factor);
        }
    }
}

static inline int clip(int value)
{
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

/* Hue and saturation, as libImaging/Convert.c computes them in single precision. */
static void hue_of(int *hue, int *saturation, int r, int g, int b)
{
    int most = r > g ? (r > b ? r : b) : (g > b ? g : b);
    int least = r < g ? (r < b ? r : b) : (g < b ? g : b);
    *hue = 0;
    *saturation = 0;
    if (most == least) {
        return;
    }
    float range = (float)(most - least);
    float from_r = (float)(most - r) / range;
    float from_g = (float)(most - g) / range;
    float from_b = (float)(most - b) / range;
    float sixths = r == most   ? from_b - from_g
                   : g == most ? (float)(2.0 + (double)from_r - (double)from_b)
                               : (float)(4.0 + (double)from_g - (double)from_r);
    float turn = (float)fmod((double)sixths / 6.0 + 1.0, 1.0);
    *hue = clip((int)((double)turn * 255.0));
    *saturation = clip((int)((double)(range / (float)most) * 255.0));
}

static void set_hue(uint8_t *out, size_t plane, int hue, int saturation, int value)
{
    int part = (int)floor((double)hue * 6.0 / 255.0);
    float rest = (float)((double)hue * 6.0 / 255.0 - (double)part);
    float share = (float)(saturation / 255.0);
    int p = clip((int)round(value * (1.0 - (double)share)));
    int q = clip((int)round(value * (1.0 - (double)(share * rest))));
    int t = clip((int)round(value * (1.0 - (double)share * (1.0 - (double)rest))));
    const int colors[6][3] = {{value, t, p}, {q, value, p}, {p, value, t},
                              {p, q, value}, {t, p, value}, {value, p, q}};
    for (size_t c = 0; c < 3; c++) {
        out[c * plane] = (uint8_t)(saturation == 0 ? value : colors[part % 6][c]);
    }
}

static void turn_hue(uint8_t *pixels, size_t plane, double amount)
{
    int turn = (int)(amount * 255.0);
    for (size_t i = 0; i < plane; i++) {
        uint8_t *p = pixels + i;
        int hue;
        int saturation;
        int value = p[0] > p[plane] ? p[0] : p[plane];
        value = p[2 * plane] > value ? p[2 * plane] : value;
        hue_of(&hue, &saturation, p[0], p[plane], p[2 * plane]);
        set_hue(p, plane, (hue + turn) & 0xff, saturation, value);
    }
}

/* ---- neighbours ---- */

/* ImageFilter.SMOOTH, (1 1 1, 1 5 1, 1 1 1) / 13, to the nearest; edges stay as they are. */
static void sharpen(uint8_t *out, const uint8_t *in, size_t height, size_t width, float factor)
{
    for (size_t y = 1; y + 1 < height; y++) {
        const uint8_t *row = in + y * width;
        for (size_t x = 1; x + 1 < width; x++) {
            const uint8_t *above = row - width + x;
            const uint8_t *below = row + width + x;
            int sum = above[-1] + above[0] + above[1] + row[x - 1] + 5 * row[x] + row[x + 1] +
                      below[-1] + below[0] + below[1];
            out[y * width + x] = blend((2 * sum + 13) / 26, row[x], factor);
        }
    }
}

/* ---- operations ---- */

void by__transform_operate(by__transform_operation operation, double amount,
                           const by__transform_size *size, uint8_t *pixels, uint8_t *spare)
{
    size_t plane = size->height * size->width;
    size_t bytes = size->channels * plane;
    bool colored = size->channels == 3;
    switch (operation) {
    case BY__OPERATION_IDENTITY:
        break;
    case BY__OPERATION_BRIGHTNESS:
        blend_with_grey(pixels, bytes, 0, (float)amount);
        break;
    case BY__OPERATION_CONTRAST:
        blend_with_grey(pixels, bytes, mean_grey(size, pixels), (float)amount);
        break;
    case BY__OPERATION_COLOR:
        change_color(pixels, colored ? plane : 0, (float)amount);
        break;
    case BY__OPERATION_HUE:
        turn_hue(pixels, colored ? plane : 0, amount);
        break;
    case BY__OPERATION_POSTERIZE:
    case BY__OPERATION_SOLARIZE:
    case BY__OPERATION_INVERT:
        change_levels(operation, amount, pixels, bytes);
        break;
    case BY__OPERATION_AUTOCONTRAST:
    case BY__OPERATION_EQUALIZE:
        for (size_t c = 0; c < size->channels; c++) {
            (operation == BY__OPERATION_EQUALIZE ? equalize : autocontrast)(pixels + c * plane,
                                                                            plane);
        }
        break;
    case BY__OPERATION_SHARPNESS:
        memcpy(spare, pixels, bytes);
        for (size_t c = 0; c < size->channels; c++) {
            sharpen(pixels + c * plane, spare + c * plane, size->height, size->width,
                    (float)amount);
        }
        break;
    case BY__OPERATION_SHEAR_X:
    case BY__OPERATION_SHEAR_Y:
    case BY__OPERATION_TRANSLATE_X:
    case BY__OPERATION_TRANSLATE_Y:
    case BY__OPERATION_ROTATE:
        memcpy(spare, pixels, bytes);
        by__transform_move(operation, amount, size, spare, pixels);
        break;
    }
}

/* ---- amounts ---- */

by__transform_magnitude by__transform_magnitude_of(by__transform_operation operation, int bin,
                                                   int bins, const by__transform_size *size)
{
    double share = (double)bin / (bins - 1);
    switch (operation) {
    case BY__OPERATION_SHEAR_X:
    case BY__OPERATION_SHEAR_Y:
        return (by__transform_magnitude){0.3 * share, true};
    case BY__OPERATION_TRANSLATE_X:
        return (by__transform_magnitude){150.0 / 331.0 * (double)size->width * share, true};
    case BY__OPERATION_TRANSLATE_Y:
        return (by__transform_magnitude){150.0 / 331.0 * (double)size->height * share, true};
    case BY__OPERATION_ROTATE:
        return (by__transform_magnitude){30.0 * share, true};
    case BY__OPERATION_BRIGHTNESS:
    case BY__OPERATION_CONTRAST:
    case BY__OPERATION_COLOR:
    case BY__OPERATION_SHARPNESS:
        return (by__transform_magnitude){0.9 * share, true};
    case BY__OPERATION_POSTERIZE:
        return (by__transform_magnitude){8.0 - rint(bin / ((bins - 1) / 4.0)), false};
    case BY__OPERATION_SOLARIZE:
        return (by__transform_magnitude){255.0 * (1.0 - share), false};
    default:
        return (by__transform_magnitude){0.0, false};
    }
}

void by__transform_augment(by__transform_operation operation, double amount,
                           const by__transform_size *size, uint8_t *pixels, uint8_t *spare)
{
    switch (operation) {
    case BY__OPERATION_BRIGHTNESS:
    case BY__OPERATION_CONTRAST:
    case BY__OPERATION_COLOR:
    case BY__OPERATION_SHARPNESS:
        amount += 1.0;
        break;
    case BY__OPERATION_TRANSLATE_X:
    case BY__OPERATION_TRANSLATE_Y:
        amount = trunc(amount);
        break;
    default:
        break;
    }
    if (size->labels && operation > BY__OPERATION_ROTATE) {
        return; /* changes colours alone */
    }
    by__transform_operate(operation, amount, size, pixels, spare);
}

size_t by__transform_spare_bytes(const by__transform_size *size)
{
    return size->channels * size->height * size->width;
}
