#include <string.h>

#include "device/cpu/reference.h"

/* What entry i of an axis of `to` entries is made of: two of `from`, and the share of the
 * second. */
typedef struct entry_mix {
    int64_t at[2];
    double share[2];
} entry_mix;

static entry_mix mix_of(int64_t from, int64_t to, bool linear, int64_t i)
{
    double place = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    if (!linear) {
        return (entry_mix){{i * from / to, 0}, {1.0, 0.0}};
    }
    place = place < 0.0 ? 0.0 : place > (double)(from - 1) ? (double)(from - 1) : place;
    int64_t first = (int64_t)place;
    double second = place - (double)first;
    return (entry_mix){{first, first + 1 < from ? first + 1 : first}, {1.0 - second, second}};
}

/* Runs `what` for entry `to` of the larger image y and each entry `from` of x that it is made of,
 * in the share `share`. */
#define FOR_EACH_PART(call, x, y, what)                                                            \
    for (int64_t to = 0; to < by_shape_count(y); to++) {                                           \
        int64_t c = to % (y)->dim[3];                                                              \
        int64_t column = to / (y)->dim[3] % (y)->dim[2];                                           \
        int64_t row = to / (y)->dim[3] / (y)->dim[2] % (y)->dim[1];                                \
        int64_t b = to / (y)->dim[3] / (y)->dim[2] / (y)->dim[1];                                  \
        entry_mix rows = mix_of((x)->dim[1], (y)->dim[1], (call)->attrs.linear, row);              \
        entry_mix columns = mix_of((x)->dim[2], (y)->dim[2], (call)->attrs.linear, column);        \
        for (int part = 0; part < 4; part++) {                                                     \
            int64_t i = rows.at[part / 2];                                                         \
            int64_t j = columns.at[part % 2];                                                      \
            double share = rows.share[part / 2] * columns.share[part % 2];                         \
            int64_t from = ((b * (x)->dim[1] + i) * (x)->dim[2] + j) * (x)->dim[3] + c;            \
            what;                                                                                  \
        }                                                                                          \
    }

/* A result is summed in double. */
static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_count(&call->out[0]), error);
}

static void give(const by__device_call *call, const double *sums)
{
    for (int64_t i = 0; i < by__tensor_count(&call->out[0]); i++) {
        by__set(&call->out[0], i, sums[i]);
    }
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    double *y = call->work;
    BY_UNUSED(context);
    memset(y, 0, (size_t)by__tensor_count(&call->out[0]) * sizeof *y);
    FOR_EACH_PART(call, &call->in[0].shape, &call->out[0].shape,
                  y[to] += share > 0.0 ? share * by__get(&call->in[0], from) : 0.0)
    give(call, y);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_UPSAMPLE, upsample, prepare, run);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    double *dx = call->work;
    BY_UNUSED(context);
    memset(dx, 0, (size_t)by__tensor_count(&call->out[0]) * sizeof *dx);
    FOR_EACH_PART(call, &call->out[0].shape, &call->in[0].shape,
                  dx[from] += share > 0.0 ? share * by__get(&call->in[0], to) : 0.0)
    give(call, dx);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_UPSAMPLE_GRAD, upsample_grad, prepare, run_grad);
