#include "device/cpu/conv_plan.h"

#include <stdlib.h>

bool by__cpu_conv_is_pointwise(const by_attrs *attrs, int64_t height, int64_t width)
{
    const by_window *w = &attrs->sliding;
    bool plain = height == 1 && width == 1 && attrs->groups == 1;
    for (int i = 0; i < 2; i++) {
        plain = plain && w->stride[i] == 1 && w->before[i] == 0 && w->after[i] == 0;
    }
    return plain;
}

/* Appends the taps of a class of a transposed map with these rests, in the order of the operand's
 * pixels. */
static void add_transposed(by__cpu_conv_plan *plan, by__cpu_conv_class *class,
                           const by_window *window, const int64_t size[2])
{
    for (int64_t r = size[0] - 1; r >= 0; r--) {
        int64_t row = class->origin[0] + window->before[0] - r * window->dilation[0];
        for (int64_t s = size[1] - 1; s >= 0 && row % window->stride[0] == 0; s--) {
            int64_t column = class->origin[1] + window->before[1] - s * window->dilation[1];
            if (column % window->stride[1] == 0) {
                plan->tap[class->first_tap + class->taps++] = (by__cpu_conv_tap){
                    {row / window->stride[0], column / window->stride[1]}, r * size[1] + s};
            }
        }
    }
}

static void add_plain(by__cpu_conv_plan *plan, const by_window *window, const int64_t size[2])
{
    by__cpu_conv_class *class = &plan->classes[0];
    for (int64_t r = 0; r < size[0]; r++) {
        for (int64_t s = 0; s < size[1]; s++) {
            plan->tap[class->taps++] =
                (by__cpu_conv_tap){{r * window->dilation[0] - window->before[0],
                                    s * window->dilation[1] - window->before[1]},
                                   r * size[1] + s};
        }
    }
}

static void add_classes(by__cpu_conv_plan *plan, const by_window *window, const int64_t size[2])
{
    for (int64_t i = 0; i < plan->class_count; i++) {
        by__cpu_conv_class *class = &plan->classes[i];
        int64_t across = by__min_i64(window->stride[1], plan->target[1]);
        class->origin[0] = i / across;
        class->origin[1] = i % across;
        class->first_tap = i == 0 ? 0 : class[-1].first_tap + class[-1].taps;
        for (int d = 0; d < 2; d++) {
            class->grid[d] = by__ceil_div(plan->target[d] - class->origin[d], window->stride[d]);
        }
        add_transposed(plan, class, window, size);
    }
}

by_status by__cpu_conv_plan_open(by__cpu_conv_plan *out, const by__device_tensor *x,
                                 const by__device_tensor *w, const by__device_tensor *y,
                                 const by_attrs *attrs, bool transposed, by_error *error)
{
    const by_window *window = &attrs->sliding;
    const int64_t size[2] = {w->shape.dim[2], w->shape.dim[3]};
    by__cpu_conv_plan plan = {.images = x->shape.dim[0],
                              .source = {x->shape.dim[1], x->shape.dim[2]},
                              .target = {y->shape.dim[1], y->shape.dim[2]},
                              .source_channels = x->shape.dim[3],
                              .target_channels = y->shape.dim[3],
                              .groups = attrs->groups,
                              .inner = x->shape.dim[3] / attrs->groups,
                              .outer = y->shape.dim[3] / attrs->groups,
                              .step = {1, 1},
                              .spacing = {1, 1},
                              .taps = size[0] * size[1],
                              .class_count = 1};
    for (int d = 0; d < 2; d++) {
        *(transposed ? &plan.spacing[d] : &plan.step[d]) = window->stride[d];
        plan.class_count *= transposed ? by__min_i64(window->stride[d], plan.target[d]) : 1;
    }
    BY_TRY(
        by__alloc((void **)&plan.tap, (size_t)plan.taps, sizeof *plan.tap, "a convolution", error));
    by_status status = by__alloc((void **)&plan.classes, (size_t)plan.class_count,
                                 sizeof *plan.classes, "a convolution", error);
    if (status != BY_OK) {
        by__cpu_conv_plan_close(&plan);
        return status;
    }
    if (transposed) {
        add_classes(&plan, window, size);
    } else {
        plan.classes[0].grid[0] = plan.target[0];
        plan.classes[0].grid[1] = plan.target[1];
        add_plain(&plan, window, size);
    }
    *out = plan;
    return BY_OK;
}

void by__cpu_conv_plan_close(by__cpu_conv_plan *plan)
{
    free(plan->tap);
    free(plan->classes);
    *plan = (by__cpu_conv_plan){0};
}
