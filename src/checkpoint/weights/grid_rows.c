/* Interpolates the rows of a grid, such as the positions of patches, to another grid. */
#include <math.h>

#include "checkpoint/storage.h"

#define TAPS 4

/* The rows along one axis that a row is made from, and their shares: Keys (1981) with a = -0.75,
 * about the place of the row's center; beyond the edge is the edge. */
static void taps(int64_t at[TAPS], double share[TAPS], int64_t row, int64_t from, int64_t to)
{
    const double a = -0.75;
    double center = ((double)row + 0.5) * (double)from / (double)to - 0.5;
    double first = floor(center);
    double t = center - first;
    for (int i = 0; i < TAPS; i++) {
        double d = fabs(t + 1.0 - (double)i);
        share[i] = d <= 1.0 ? ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
                            : ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
        int64_t place = (int64_t)first + i - 1;
        at[i] = place < 0 ? 0 : place >= from ? from - 1 : place;
    }
}

void by__checkpoint_grid_rows(float *out, const float *in, const by__checkpoint_grid *grid,
                              int64_t row)
{
    for (int64_t y = 0; y < grid->to[0]; y++) {
        int64_t rows[TAPS];
        double of_rows[TAPS];
        taps(rows, of_rows, y, grid->from[0], grid->to[0]);
        for (int64_t x = 0; x < grid->to[1]; x++) {
            int64_t columns[TAPS];
            double of_columns[TAPS];
            taps(columns, of_columns, x, grid->from[1], grid->to[1]);
            for (int64_t k = 0; k < row; k++) {
                double sum = 0.0;
                for (int i = 0; i < TAPS * TAPS; i++) {
                    int64_t cell = rows[i / TAPS] * grid->from[1] + columns[i % TAPS];
                    sum += of_rows[i / TAPS] * of_columns[i % TAPS] * (double)in[cell * row + k];
                }
                out[(y * grid->to[1] + x) * row + k] = (float)sum;
            }
        }
    }
}
