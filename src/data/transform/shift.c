/* shift: moves an image by some pixels along each axis. out[y][x] = in[y + dy][x + dx]; pixels
 * beyond the image are 0, which is a random crop of the image with a margin of zeros. */
#include <string.h>

#include "data/transform/transform.h"

/* Source range of a row or column of the result: [begin, end) is within the image. */
typedef struct shift_window {
    size_t begin;
    size_t end;
} shift_window;

static shift_window cut(size_t extent, long offset)
{
    size_t away = (size_t)(offset < 0 ? -offset : offset);
    return (shift_window){.begin = offset < 0 ? away : 0,
                          .end = offset > 0 ? extent - away : extent};
}

static long draw_shift(uint32_t bits, long most)
{
    return (long)((uint64_t)bits * (uint64_t)(2 * most + 1) >> 32) - most;
}

static by_status check(const double *parameters, const by__transform_size *size, by_error *error)
{
    if (parameters[0] >= (double)size->height || parameters[0] >= (double)size->width) {
        return by_error_set(
            error, BY_EARG,
            "a shift of %.0f pixels must be from 0 to less than the %zu x %zu of an image",
            parameters[0], size->height, size->width);
    }
    return BY_OK;
}

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    uint32_t random[4];
    by__transform_random(draw, 0, random);
    long dy = draw_shift(random[0], (long)parameters[0]);
    long dx = draw_shift(random[1], (long)parameters[0]);
    shift_window rows = cut(size->height, dy);
    shift_window columns = cut(size->width, dx);
    memset(out, 0, size->channels * size->height * size->width);
    for (size_t c = 0; c < size->channels; c++) {
        for (size_t y = rows.begin; y < rows.end; y++) {
            const uint8_t *from = in + (c * size->height + (size_t)((long)y + dy)) * size->width;
            uint8_t *to = out + (c * size->height + y) * size->width;
            memcpy(to + columns.begin, from + (long)columns.begin + dx,
                   columns.end - columns.begin);
        }
    }
    return true;
}

/* Words 0 and 1 of the stream that flip takes word 2 of. */
const by__transform_row by__transform_shift = {
    .name = "shift",
    .parameters = {{.name = "pixels", .fallback = 2, .min = 0, .max = 65535, .whole = true}},
    .stream = 0x61756775u, /* "augu" in ASCII */
    .check = check,
    .moves = true,
    .apply = apply};
