/* Records what the two queues of ranks do. */
#include "base/base.h"
#include "plan/layout/layout.h"

void by__layout_trace_begin(by__layout_trace *trace, by__layout_spans *out)
{
    *out = (by__layout_spans){0};
    if (trace != NULL) {
        trace->now = 0.0;
        trace->last[0] = SIZE_MAX;
        trace->last[1] = SIZE_MAX;
        out->first = trace->count;
    }
}

void by__layout_trace_end(const by__layout_trace *trace, by__layout_spans *out)
{
    out->count = trace == NULL ? 0 : trace->count - out->first;
}

static void append(by__layout_trace *trace, const by_layout_span *span)
{
    trace->failed =
        trace->failed || by__reserve((void **)&trace->spans, &trace->capacity, trace->count + 1,
                                     sizeof *trace->spans, NULL) != BY_OK;
    if (!trace->failed) {
        trace->spans[trace->count++] = *span;
    }
}

void by__layout_trace_add(by__layout_trace *trace, by_layout_span span, double begin, double end)
{
    if (trace == NULL || !(end > begin)) {
        return;
    }
    span.begin = trace->now + begin;
    span.end = trace->now + end;
    size_t *at = &trace->last[span.exchange];
    by_layout_span *last = *at == SIZE_MAX ? NULL : &trace->spans[*at];
    bool grows = last != NULL && last->part == span.part && last->block == span.block &&
                 last->backward == span.backward && !(span.begin > last->end);
    if (grows) {
        last->end = span.end;
        return;
    }
    append(trace, &span);
    *at = trace->failed ? SIZE_MAX : trace->count - 1;
}

void by__layout_trace_repeat(by__layout_trace *trace, size_t first, double seconds, double times)
{
    if (trace == NULL) {
        return;
    }
    size_t count = trace->count - first;
    trace->last[0] = SIZE_MAX;
    trace->last[1] = SIZE_MAX;
    if (times < 1.0) {
        trace->count = first;
        return;
    }
    for (uint64_t k = 1; (double)k < times && !trace->failed; k++) {
        for (size_t i = 0; i < count && !trace->failed; i++) {
            by_layout_span span = trace->spans[first + i];
            span.begin += (double)k * seconds;
            span.end += (double)k * seconds;
            append(trace, &span);
        }
    }
    trace->now += times * seconds;
}

void by__layout_trace_copy(by__layout_trace *to, const by__layout_trace *from,
                           const by__layout_spans *spans, int rank, double seconds)
{
    for (size_t i = 0; to != NULL && i < spans->count; i++) {
        by_layout_span span = from->spans[spans->first + i];
        span.rank = rank;
        span.begin += seconds;
        span.end += seconds;
        append(to, &span);
    }
}
