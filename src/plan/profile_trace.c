#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/recorder.h"

/* The trace event format:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are whole
 * nanoseconds since the first event, written in microseconds, so that what is nested stays nested
 * exactly. */
typedef struct trace {
    by__text text;
    double origin;
    bool collectives; /* their track has its name */
} trace;

/* The run of a program that is being written: its nodes may be told in any order. */
typedef struct run {
    int nodes;
    double begin;
    double end;
} run;

/* Tracks. */
#define COMPUTE     1
#define COLLECTIVES 2

static long long nanoseconds(const trace *t, double time)
{
    return llround(1e9 * (time - t->origin));
}

static void add_time(by__text *text, const char *key, long long ns)
{
    by__text_format(text, ",\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

/* Everything of a complete event but its end. */
static void begin_event(trace *t, int track, const char *name, const char *category, double begin,
                        double end)
{
    long long from = nanoseconds(t, begin);
    if (track == COLLECTIVES && !t->collectives) {
        by__text_format(&t->text,
                        ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\","
                        "\"args\":{\"name\":\"collectives\"}}",
                        COLLECTIVES);
        t->collectives = true;
    }
    by__text_format(&t->text, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":", track);
    by__text_json(&t->text, name, strlen(name));
    by__text_format(&t->text, ",\"cat\":\"%s\"", category);
    add_time(&t->text, "ts", from);
    add_time(&t->text, "dur", nanoseconds(t, end) - from);
}

static by_status add_node(trace *t, const by__watched *watched, const by__node_run *event,
                          by_error *error)
{
    by_node_info info;
    char *signature;
    double seconds = event->end - event->begin;
    BY_TRY(by_program_node(watched->program, event->node, &info, error));
    BY_TRY(by_program_node_signature(watched->program, event->node, &signature, error));
    begin_event(t, info.collective ? COLLECTIVES : COMPUTE, info.op_name,
                !watched->model ? "update"
                : info.backward ? "backward"
                                : "forward",
                event->begin, event->end);
    by__text_add(&t->text, ",\"args\":{\"kernel\":");
    by__text_json(&t->text, info.kernel, strlen(info.kernel));
    by__text_format(&t->text, ",\"block\":%d,\"gflops\":%.5g,\"shapes\":", info.block,
                    seconds > 0.0 ? 1e-9 * info.flops / seconds : 0.0);
    by__text_json(&t->text, signature, strlen(signature));
    by__text_add(&t->text, "}}");
    free(signature);
    if (watched->model) {
        by__text_add(&t->text, ",\n{\"ph\":\"C\",\"pid\":1,\"name\":\"live activations\"");
        add_time(&t->text, "ts", nanoseconds(t, event->begin));
        by__text_format(&t->text, ",\"args\":{\"bytes\":%zu}}", info.live_bytes);
    }
    return BY_OK;
}

static by_status add_events(trace *t, const by_profile *p, by_error *error)
{
    run runs[BY__MAX_WATCHED] = {0};
    for (size_t e = 0; e < p->count; e++) {
        const by__node_run *event = &p->events[e];
        if (event->program < 0) {
            begin_event(t, COMPUTE, p->span_names[event->node], "span", event->begin, event->end);
            by__text_add(&t->text, "}");
            continue;
        }
        const by__watched *watched = &p->watched[event->program];
        BY_TRY(add_node(t, watched, event, error));
        run *r = &runs[event->program];
        r->begin = r->nodes == 0 || event->begin < r->begin ? event->begin : r->begin;
        r->end = r->nodes == 0 || event->end > r->end ? event->end : r->end;
        if (++r->nodes == by_program_node_count(watched->program)) {
            begin_event(t, COMPUTE, watched->name, "program", r->begin, r->end);
            by__text_add(&t->text, "}");
            *r = (run){0};
        }
    }
    return BY_OK;
}

by_status by_profile_trace(const by_profile *profile, const char *path, by_error *error)
{
    trace t = {0};
    char *out;
    BY_TRY(by__profile_check(profile, error));
    for (size_t e = 0; e < profile->count; e++) {
        double begin = profile->events[e].begin;
        t.origin = e == 0 || begin < t.origin ? begin : t.origin;
    }
    by__text_add(
        &t.text,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
        "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"banyan\"}},\n"
        "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\","
        "\"args\":{\"name\":\"compute\"}}");
    by_status status = add_events(&t, profile, error);
    by__text_add(&t.text, "\n]}\n");
    if (status != BY_OK) {
        by__text_free(&t.text);
        return status;
    }
    size_t length = t.text.length;
    BY_TRY(by__text_take(&t.text, &out, error));
    status = by__file_write(path, out, length, error);
    free(out);
    return status;
}
