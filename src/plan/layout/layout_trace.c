/* Records what the two queues of ranks do, and writes it for viewers of traces. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "plan/layout/layout.h"

/* ---- recording ---- */

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
    for (double k = 1.0; k < times; k += 1.0) {
        for (size_t i = 0; i < count && !trace->failed; i++) {
            by_layout_span span = trace->spans[first + i];
            span.begin += k * seconds;
            span.end += k * seconds;
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

/* ---- files ---- */

static void name_span(char text[96], const by_layout_span *s)
{
    static const char *const passes[] = {[BY_PIPELINE_FORWARD] = "forward",
                                         [BY_PIPELINE_BACKWARD] = "backward",
                                         [BY_PIPELINE_WEIGHT] = "weights"};
    if (s->pass >= 0 && s->pass < (int)BY_ARRAY_LENGTH(passes)) {
        (void)snprintf(text, 96, "%s %lld", passes[s->pass], (long long)s->micro_batch);
    } else if (s->block >= 0) {
        (void)snprintf(text, 96, "%s, block %d%s", by_layout_part_name(s->part), s->block,
                       s->backward ? " backward" : "");
    } else {
        (void)snprintf(text, 96, "%s", by_layout_part_name(s->part));
    }
}

static void print_names(by_string *out, const by_layout_plan *plan)
{
    for (size_t i = 0; i < plan->planned_count; i++) {
        const by_layout_rank *r = &plan->planned[i];
        by_string_format(out,
                         "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":"
                         "{\"name\":\"rank %d%s%s\"}},\n"
                         "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"thread_name\",\"args\":"
                         "{\"name\":\"computation\"}},\n"
                         "{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"thread_name\",\"args\":"
                         "{\"name\":\"communication\"}}",
                         i == 0 ? "" : ",", r->rank, r->rank, r->place[0] == '\0' ? "" : " ",
                         r->place, r->rank, r->rank);
    }
}

by_status by_layout_write_trace(const by_layout_plan *plan, const char *path, by_error *error)
{
    by_string text = {0};
    char name[96];
    by_string_format(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    print_names(&text, plan);
    for (size_t i = 0; i < plan->span_count; i++) {
        const by_layout_span *s = &plan->spans[i];
        name_span(name, s);
        by_string_format(&text,
                         ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"cat\":\"%s\","
                         "\"ts\":%.3f,\"dur\":%.3f}",
                         s->rank, s->exchange ? 1 : 0, name, by_layout_part_name(s->part),
                         1e6 * s->begin, 1e6 * (s->end - s->begin));
    }
    by_string_format(&text, "]}\n");
    by_status status = by_string_check(&text, error);
    if (status == BY_OK) {
        status = by__file_write(path, text.data, text.length, error);
    }
    by_string_free(&text);
    return status;
}
