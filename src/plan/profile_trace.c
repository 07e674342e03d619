#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/recorder.h"

/* The trace event format:
 * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are
 * rounded to nanoseconds since the first event and written in microseconds, so that nesting is
 * preserved exactly. */
typedef struct trace {
    by_string text; /* events, each followed by a comma */
    const by_profile *profile;
    int process;
    double origin; /* on this rank's clock */
    /* The process's steps, for the arguments of events; NULL: unknown. */
    const by_profile_step *steps;
    size_t step;
    int tracks; /* tracks of exchanges that have a name so far */
} trace;

/* Tracks. Exchanges that overlap others of COLLECTIVES go to further tracks after it. */
#define COMPUTE     1
#define COLLECTIVES 2

static long long nanoseconds(const trace *t, double time)
{
    return llround(1e9 * (time - t->origin));
}

static void add_time(by_string *text, const char *key, long long ns)
{
    by_string_format(text, ",\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

/* Names a track; track 0 names the process itself. */
static void name_track(trace *t, int track, const char *name)
{
    by_string_format(&t->text, ",\n{\"ph\":\"M\",\"pid\":%d,", t->process);
    if (track > 0) {
        by_string_format(&t->text, "\"tid\":%d,", track);
    }
    by_string_format(&t->text,
                     "\"name\":\"%s_name\",\"args\":{\"name\":", track > 0 ? "thread" : "process");
    by_string_json(&t->text, name, strlen(name));
    by__string_append(&t->text, "}}");
}

/* Writes a complete event except for its end. */
static void begin_event(trace *t, int track, const char *name, const char *category, double begin,
                        double end)
{
    long long from = nanoseconds(t, begin);
    by_string_format(&t->text, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":", t->process,
                     track);
    by_string_json(&t->text, name, strlen(name));
    by_string_format(&t->text, ",\"cat\":\"%s\"", category);
    add_time(&t->text, "ts", from);
    add_time(&t->text, "dur", nanoseconds(t, end) - from);
}

static by_status add_node(trace *t, int track, const by__plan_node_run *event,
                          const by_node_info *info, by_error *error)
{
    const by__plan_watched *watched = t->profile->watched[event->program];
    char *signature;
    double seconds = event->end - event->begin;
    bool update = watched->work == BY_PROFILE_WORK_UPDATE;
    BY_TRY(by_program_node_signature(watched->program, event->node, &signature, error));
    begin_event(t, track, info->op_name,
                update           ? "update"
                : info->backward ? "backward"
                                 : "forward",
                event->begin, event->end);
    by__string_append(&t->text, ",\"args\":{\"kernel\":");
    by_string_json(&t->text, info->kernel, strlen(info->kernel));
    by_string_format(&t->text, ",\"block\":%d,\"gflops\":%.5g,\"shapes\":", info->block,
                     seconds > 0.0 ? 1e-9 * info->flops / seconds : 0.0);
    by_string_json(&t->text, signature, strlen(signature));
    by__string_append(&t->text, "}}");
    free(signature);
    if (!update) {
        by_string_format(&t->text, ",\n{\"ph\":\"C\",\"pid\":%d,\"name\":\"live activations\"",
                         t->process);
        add_time(&t->text, "ts", nanoseconds(t, event->begin));
        by_string_format(&t->text, ",\"args\":{\"bytes\":%zu}}", info->live_bytes);
    }
    return BY_OK;
}

static void add_span(trace *t, const by__plan_node_run *event)
{
    begin_event(t, COMPUTE, t->profile->span_names[event->node], "span", event->begin, event->end);
    if (t->steps != NULL && by__plan_is_span(t->profile, event, "step")) {
        const by_profile_step *s = &t->steps[t->step++];
        by_string_format(&t->text,
                         ",\"args\":{\"compute_ms\":%.6g,\"hidden_ms\":%.6g,\"exposed_ms\":%.6g,"
                         "\"waiting_ms\":%.6g,\"bubble_ms\":%.6g}",
                         1e3 * s->compute, 1e3 * s->hidden, 1e3 * s->exposed, 1e3 * s->waiting,
                         1e3 * s->bubble);
    }
    by__string_append(&t->text, "}");
}

/* Writes spans, programs and what ran on the compute queue. */
static by_status add_computed(trace *t, by__plan_program_run *runs, by_error *error)
{
    const by_profile *p = t->profile;
    for (size_t e = 0; e < p->count; e++) {
        const by__plan_node_run *event = &p->events[e];
        by_node_info info;
        if (event->program < 0) {
            add_span(t, event);
            continue;
        }
        const by__plan_watched *watched = p->watched[event->program];
        BY_TRY(by_program_node(watched->program, event->node, &info, error));
        BY_TRY(info.collective ? BY_OK : add_node(t, COMPUTE, event, &info, error));
        by__plan_program_run *r = &runs[event->program];
        if (by__plan_program_run_add(r, watched, event)) {
            begin_event(t, COMPUTE, watched->name, "program", r->begin, r->end);
            by__string_append(&t->text, "}");
            *r = (by__plan_program_run){0};
        }
    }
    return BY_OK;
}

/* ---- exchanges ---- */

/* The node of a collective, or a call on a communicator, possibly the one that the node made. */
typedef struct slice {
    double begin;
    double end;
    const by__plan_node_run *node;
    const by__plan_exchanged *call;
} slice;

/* Sorts enclosing slices before the ones that they contain. */
static int outer_first(const void *a, const void *b)
{
    const slice *x = a;
    const slice *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    if (x->end != y->end) {
        return x->end > y->end ? -1 : 1;
    }
    return (x->call != NULL) - (y->call != NULL);
}

static by_status list_exchanges(slice **out, size_t *count, const by_profile *p, by_error *error)
{
    slice *list;
    size_t n = 0;
    by_status status =
        by__alloc((void **)&list, p->count + p->exchange_count + 1, sizeof *list, "a trace", error);
    for (size_t e = 0; e < p->count && status == BY_OK; e++) {
        const by__plan_node_run *event = &p->events[e];
        by_node_info info;
        if (event->program >= 0) {
            status =
                by_program_node(p->watched[event->program]->program, event->node, &info, error);
            if (status == BY_OK && info.collective) {
                list[n++] = (slice){event->begin, event->end, event, NULL};
            }
        }
    }
    if (status != BY_OK) {
        free(list);
        return status;
    }
    for (size_t i = 0; i < p->exchange_count; i++) {
        const by__plan_exchanged *x = &p->exchanges[i];
        list[n++] = (slice){x->begin, x->end, NULL, x};
    }
    qsort(list, n, sizeof *list, outer_first);
    *out = list;
    *count = n;
    return BY_OK;
}

/* The slices that are open on each track. */
enum { MAX_TRACKS = 16, MAX_DEPTH = 16 };
typedef struct slice_stack {
    long long ends[MAX_DEPTH];
    unsigned depth;
} slice_stack;

/* Returns the first track on which a slice nests into the open ones or follows them. */
static int find_track(slice_stack *open, long long begin, long long end)
{
    for (int k = 0; k < MAX_TRACKS; k++) {
        slice_stack *o = &open[k];
        while (o->depth > 0 && o->ends[o->depth - 1] <= begin) {
            o->depth--;
        }
        if (o->depth == 0 || (end <= o->ends[o->depth - 1] && o->depth < MAX_DEPTH)) {
            o->ends[o->depth++] = end;
            return k;
        }
    }
    return MAX_TRACKS - 1;
}

static void add_call(trace *t, int track, const by__plan_exchanged *call)
{
    char name[96];
    (void)snprintf(name, sizeof name, "%s%s%s", call->kind, call->what[0] == '\0' ? "" : ": ",
                   call->what);
    begin_event(t, track, name, "exchange", call->begin, call->end);
    by_string_format(&t->text, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)call->bytes);
    if (nanoseconds(t, call->ready) > nanoseconds(t, call->begin)) {
        begin_event(t, track, "wait", "wait", call->begin, call->ready);
        by__string_append(&t->text, "}");
    }
}

static by_status add_exchanges(trace *t, by_error *error)
{
    slice_stack open[MAX_TRACKS] = {0};
    const by_profile *p = t->profile;
    slice *list;
    size_t count;
    BY_TRY(list_exchanges(&list, &count, p, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        const slice *s = &list[i];
        by_node_info info;
        int k = find_track(open, nanoseconds(t, s->begin), nanoseconds(t, s->end));
        for (; t->tracks <= k; t->tracks++) {
            name_track(t, COLLECTIVES + t->tracks, "collectives");
        }
        if (s->call != NULL) {
            add_call(t, COLLECTIVES + k, s->call);
            continue;
        }
        status =
            by_program_node(p->watched[s->node->program]->program, s->node->node, &info, error);
        if (status == BY_OK) {
            status = add_node(t, COLLECTIVES + k, s->node, &info, error);
        }
    }
    free(list);
    return status;
}

/* ---- files ---- */

static by_status add_all(trace *t, const char *process, by_error *error)
{
    by__plan_program_run *runs;
    name_track(t, 0, process);
    name_track(t, COMPUTE, "compute");
    BY_TRY(
        by__alloc((void **)&runs, t->profile->watched_count + 1, sizeof *runs, "a trace", error));
    by_status status = add_computed(t, runs, error);
    free(runs);
    return status == BY_OK ? add_exchanges(t, error) : status;
}

by_status by__plan_trace_rank(char **out, size_t *length, const by_profile *profile,
                              const by_profile_ranks *ranks, int rank, double origin,
                              by_error *error)
{
    char name[240];
    char memory[2][32];
    size_t count;
    const by_profile_rank *r = by_profile_rank_of(ranks, rank);
    trace t = {.profile = profile,
               .process = rank + 1,
               .origin = origin + r->clock,
               .steps = by_profile_steps_of(ranks, rank, &count)};
    (void)snprintf(name, sizeof name, "rank %d, %s%s%s", rank, r->host,
                   r->place[0] == '\0' ? "" : ", ", r->place);
    by_string_format(&t.text,
                     ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\","
                     "\"args\":{\"sort_index\":%d}}",
                     t.process, rank);
    by_string_format(&t.text,
                     ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_labels\","
                     "\"args\":{\"labels\":\"%s planned, %s measured\"}}",
                     t.process, by_format_bytes(memory[0], r->planned),
                     by_format_bytes(memory[1], r->resident));
    by_status status = by__plan_profile_check(profile, error);
    if (status == BY_OK) {
        status = add_all(&t, name, error);
    }
    *length = t.text.length;
    if (status != BY_OK) {
        by_string_free(&t.text);
        return status;
    }
    return by__string_release(&t.text, out, error);
}

by_status by__plan_trace_write(const char *path, const by_string *events, by_error *error)
{
    by_string file = {0};
    char *out;
    by__string_append(&file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    if (events->length > 0) {
        by_string_add(&file, events->data + 2, events->length - 2); /* without its ",
                                                                            " */
    }
    by__string_append(&file, "\n]}\n");
    file.failed = file.failed || events->failed;
    size_t length = file.length;
    BY_TRY(by__string_release(&file, &out, error));
    by_status status = by__file_write(path, out, length, error);
    free(out);
    return status;
}

by_status by_profile_trace(const by_profile *profile, const char *path, by_error *error)
{
    trace t = {.profile = profile, .process = 1};
    BY_TRY(by__plan_profile_check(profile, error));
    for (size_t e = 0; e < profile->count; e++) {
        double begin = profile->events[e].begin;
        t.origin = e == 0 || begin < t.origin ? begin : t.origin;
    }
    by_status status = add_all(&t, "banyan", error);
    if (status == BY_OK) {
        status = by__plan_trace_write(path, &t.text, error);
    }
    by_string_free(&t.text);
    return status;
}
