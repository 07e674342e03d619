/* Smooth lines for curves of runs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plot/plot.h"

/* A line has at least this many windows of the average, so that a short one keeps its shape. */
#define WINDOWS 40.0

/* Sums over the points on one side of a point, d away from it, with weights w = s^d. */
typedef struct smooth_side {
    double w, dw, ddw; /* of w, d w, d d w */
    double y, dy;      /* of w y, d w y */
} smooth_side;

/* The sums one point further on, where `y` is the point just passed. */
static void pass(smooth_side *a, double s, double y)
{
    *a = (smooth_side){.w = s * (a->w + 1),
                       .dw = s * (a->dw + a->w + 1),
                       .ddw = s * (a->ddw + 2 * a->dw + a->w + 1),
                       .y = s * (a->y + y),
                       .dy = s * (a->dy + a->y + y)};
}

/* Height at a point of the straight line that fits it and both sides best. */
static double fit(const smooth_side *left, const smooth_side *right, double y)
{
    double w = left->w + right->w + 1;
    double x = right->dw - left->dw;
    double xx = left->ddw + right->ddw;
    double sum = left->y + right->y + y;
    double xy = right->dy - left->dy;
    double determinant = w * xx - x * x;
    return determinant > 1e-9 * w * xx ? (sum * xx - x * xy) / determinant : sum / w;
}

bool by__plot_smooth(double *out, const double *y, size_t count, double weight)
{
    double s = fmin(weight, 1 - WINDOWS / (double)(count + 1));
    smooth_side left = {0};
    smooth_side right = {0};
    smooth_side *rights;
    if (s <= 0 || by__alloc((void **)&rights, count, sizeof *rights, "chart", NULL) != BY_OK) {
        memcpy(out, y, count * sizeof *y);
        return false;
    }
    for (size_t i = count; i-- > 0;) {
        rights[i] = right;
        pass(&right, s, y[i]);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = fit(&left, &rights[i], y[i]);
        pass(&left, s, y[i]);
    }
    free(rights);
    return true;
}
