/* Operations that move the pixels of an image: Pillow's affine transform with the nearest pixel, in
 * its fixed point of 16 bits (libImaging/Geometry.c). */
#include <math.h>
#include <string.h>

#include "data/transform/operations.h"

#define ONE 65536.0
#define PI  3.14159265358979323846

/* The pixel (x, y) of the result is pixel (a x + b y + c, d x + e y + f). */
typedef struct affine {
    double a, b, c, d, e, f;
} affine;

static affine affine_of(by__transform_operation operation, double amount,
                        const by__transform_size *size)
{
    affine m = {.a = 1.0, .e = 1.0};
    double x = (double)size->width / 2.0;
    double y = (double)size->height / 2.0;
    double angle = -amount * PI / 180.0;
    switch (operation) {
    case BY__OPERATION_SHEAR_X:
        m.b = amount;
        break;
    case BY__OPERATION_SHEAR_Y:
        m.d = amount;
        break;
    case BY__OPERATION_TRANSLATE_X:
        m.c = -amount;
        break;
    case BY__OPERATION_TRANSLATE_Y:
        m.f = -amount;
        break;
    default:
        m = (affine){.a = cos(angle), .b = sin(angle), .d = -sin(angle), .e = cos(angle)};
        m.c = x - m.a * x - m.b * y;
        m.f = y - m.d * x - m.e * y;
        break;
    }
    return m;
}

static int64_t fixed(double value)
{
    return (int64_t)floor(value * ONE + 0.5);
}

void by__transform_move(by__transform_operation operation, double amount,
                        const by__transform_size *size, const uint8_t *in, uint8_t *out)
{
    const affine m = affine_of(operation, amount, size);
    int64_t width = (int64_t)size->width;
    int64_t height = (int64_t)size->height;
    size_t plane = size->width * size->height;
    int64_t x_row = fixed(m.c + (m.a + m.b) * 0.5);
    int64_t y_row = fixed(m.f + (m.d + m.e) * 0.5);
    int64_t steps[4] = {fixed(m.a), fixed(m.b), fixed(m.d), fixed(m.e)};
    for (int64_t row = 0; row < height; row++, x_row += steps[1], y_row += steps[3]) {
        int64_t x = x_row;
        int64_t y = y_row;
        for (int64_t column = 0; column < width; column++, x += steps[0], y += steps[2]) {
            int64_t from_x = x >> 16;
            int64_t from_y = y >> 16;
            bool inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
            size_t from = inside ? (size_t)(from_y * width + from_x) : 0;
            size_t to = (size_t)(row * width + column);
            for (size_t c = 0; c < size->channels; c++) {
                out[c * plane + to] = inside ? in[c * plane + from] : 0;
            }
        }
    }
}
