/* Pooling to a given number of windows, as torch.nn.AdaptiveAvgPool2d: of an axis of H entries, S
 * windows begin at floor(i H / S) and end at ceil((i + 1) H / S). It is composed of other ops.
 * Every S / gcd(H, S) windows, the pattern repeats H / gcd(H, S) entries further on. So the windows
 * at one place of the pattern are equal and equally far apart: a pool with a stride. Where S
 * divides H, the pattern is one window. */
#include "ops/ops.h"

/* What concat takes. */
#define MOST_PARTS 8
/* The most windows along an axis, each of which may take nodes of its own. */
#define MOST_SIDE 4096

/* How an axis of x is divided. */
typedef struct pattern {
    by_value x;
    int axis; /* 1: rows; 2: columns */
    bool mean;
    int64_t entries; /* of the pattern */
    int64_t windows; /* of the pattern */
    int64_t repeats;
} pattern;

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

static by_value pool(by_graph *graph, by_value x, const by_window *window, bool mean)
{
    return mean ? by_average_pool(graph, x, window, false) : by_max_pool(graph, x, window);
}

/* The windows at places begin .. end - 1 of the pattern, in order along the axis after p->axis. */
static by_value windows_at(by_graph *graph, const pattern *p, int64_t begin, int64_t end)
{
    if (end - begin == 1) {
        by_window window = by_window_square(1, 1, 0);
        int64_t first = begin * p->entries / p->windows;
        int64_t size = (end * p->entries + p->windows - 1) / p->windows - first;
        window.size[p->axis - 1] = size;
        window.stride[p->axis - 1] = p->entries;
        int64_t extent = (p->repeats - 1) * p->entries + size;
        return pool(graph, by_slice(graph, p->x, p->axis, first, extent), &window, p->mean);
    }
    by_value parts[MOST_PARTS];
    int count = end - begin < MOST_PARTS ? (int)(end - begin) : MOST_PARTS;
    for (int i = 0; i < count; i++) {
        parts[i] = windows_at(graph, p, begin + (end - begin) * i / count,
                              begin + (end - begin) * (i + 1) / count);
    }
    return by_concat(graph, parts, count, p->axis + 1);
}

/* x with `extent` windows for an axis; all else stays. */
static by_value pool_axis(by_graph *graph, by_value x, int axis, int64_t extent, bool mean)
{
    if (graph->error.status != BY_OK || graph->values[x].shape.dim[axis] == extent) {
        return x;
    }
    by_shape shape = graph->values[x].shape;
    int64_t repeats = common_divisor(shape.dim[axis], extent);
    pattern p = {x, axis, mean, shape.dim[axis] / repeats, extent / repeats, repeats};
    shape.dim[axis] = extent;
    return by_reshape(graph, windows_at(graph, &p, 0, p.windows), shape);
}

static by_value adaptive_pool(by_graph *graph, by_value x, int64_t height, int64_t width, bool mean)
{
    char text[128];
    if (graph->error.status != BY_OK || !by__graph_has(graph, x)) {
        by__graph_fail(graph, BY_EARG, "adaptive pool: x is not a value of this graph");
        return BY_NONE;
    }
    by_shape s = graph->values[x].shape;
    if (s.rank != 4 || height < 1 || width < 1 || height > MOST_SIDE || width > MOST_SIDE) {
        by__graph_fail(graph, BY_EARG,
                       "adaptive pool: x must be [batch, height, width, channels], and the result "
                       "from 1 x 1 to %d x %d; x is %s, the result %lld x %lld",
                       MOST_SIDE, MOST_SIDE, by_shape_print(&s, text), (long long)height,
                       (long long)width);
        return BY_NONE;
    }
    if (s.dim[1] % height == 0 && s.dim[2] % width == 0) {
        int64_t down = s.dim[1] / height;
        int64_t across = s.dim[2] / width;
        by_window window = {{down, across}, {down, across}, {1, 1}, {0}, {0}};
        return pool(graph, x, &window, mean);
    }
    /* Columns first: of equal entries, the first one, row by row, gets the gradient. */
    x = pool_axis(graph, x, 2, width, mean);
    return pool_axis(graph, x, 1, height, mean);
}

by_value by_adaptive_max_pool(by_graph *graph, by_value x, int64_t height, int64_t width)
{
    return adaptive_pool(graph, x, height, width, false);
}

by_value by_adaptive_average_pool(by_graph *graph, by_value x, int64_t height, int64_t width)
{
    return adaptive_pool(graph, x, height, width, true);
}
