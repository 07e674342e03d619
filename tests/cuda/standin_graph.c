/* Graphs of the driver's stand-in: what streams capture, and its replay as the same work, in an
 * order that the graph alone fixes. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "standin_work.h"

#define INVALID_VALUE        1
#define CAPTURE_UNSUPPORTED  900
#define CAPTURE_INVALIDATED  901
#define CAPTURE_MERGE        902
#define CAPTURE_UNMATCHED    903
#define CAPTURE_UNJOINED     904
#define CAPTURE_ISOLATION    905
#define CAPTURED_EVENT       907
#define CAPTURE_WRONG_THREAD 908

/* Work of a capture; stream and clocks are those of the capture's streams, in the order in which
 * they joined. */
struct graph {
    work *first, **last;
    clock_vector count;
    clock_vector next[MAX_STREAMS];
    stream *streams[MAX_STREAMS]; /* the first is where it began */
    int stream_count;
    bool spoiled;
    int users;
};

/* A graph, and streams in the place of those that joined. */
typedef struct graph_exec {
    graph *graph;
    by__cuda_stream streams[MAX_STREAMS];
} graph_exec;

static _Thread_local graph *capturing;

static void join_capture(graph *g, stream *s)
{
    s->capture = g;
    s->slot = g->stream_count;
    g->streams[g->stream_count++] = s;
}

static void drop(graph *g)
{
    if (--g->users > 0) {
        return;
    }
    for (work *w = g->first; w != NULL;) {
        work *next = w->next;
        free(w->data);
        free(w);
        w = next;
    }
    free(g);
}

void standin_capture(stream *s, work *w)
{
    graph *g = s->capture;
    g->spoiled = g->spoiled || w->hashed != NULL;
    w->stream = s->slot;
    w->index = g->count.at[s->slot]++;
    w->after = g->next[s->slot];
    g->next[s->slot].at[s->slot] = w->index + 1;
    *g->last = w;
    g->last = &w->next;
}

bool standin_capture_event(event *e, const stream *s)
{
    e->captured = s->capture;
    if (s->capture != NULL) {
        e->clock = s->capture->next[s->slot];
    }
    return s->capture != NULL;
}

bool standin_capture_wait(int *result, stream *s, const event *e)
{
    graph *g = s->capture;
    *result = BY__CUDA_SUCCESS;
    if (g == NULL && e->captured == NULL) {
        return false;
    }
    if (e->captured == NULL) {
        *result = CAPTURE_ISOLATION;
        g->spoiled = true;
    } else if (e->captured != capturing) {
        *result = CAPTURED_EVENT;
    } else if (g != NULL && g != capturing) {
        *result = CAPTURE_MERGE;
        g->spoiled = true;
    } else {
        if (g == NULL) {
            join_capture(capturing, s);
        }
        standin_join(&capturing->next[s->slot], &e->clock);
    }
    return true;
}

bool standin_spoils_capture(void)
{
    if (capturing != NULL) {
        capturing->spoiled = true;
    }
    return capturing != NULL;
}

int cuStreamBeginCapture_v2(by__cuda_stream stream_, int mode)
{
    int failure;
    if (standin_fails("cuStreamBeginCapture_v2", &failure)) {
        return failure;
    }
    if (capturing != NULL || mode != BY__CUDA_CAPTURE_THREAD) {
        return INVALID_VALUE;
    }
    graph *g = calloc(1, sizeof *g);
    g->last = &g->first;
    g->users = 1;
    capturing = g;
    join_capture(g, stream_);
    return BY__CUDA_SUCCESS;
}

int cuStreamEndCapture(by__cuda_stream stream_, by__cuda_graph *out)
{
    graph *g = ((stream *)stream_)->capture;
    int failure = 0;
    *out = NULL;
    if (g == NULL || g != capturing) {
        return g == NULL ? INVALID_VALUE : CAPTURE_WRONG_THREAD;
    }
    int result = g->streams[0] == stream_ ? BY__CUDA_SUCCESS : CAPTURE_UNMATCHED;
    result = g->spoiled ? CAPTURE_INVALIDATED : result;
    for (int k = 0; k < g->stream_count; k++) {
        if (result == BY__CUDA_SUCCESS && !standin_covers(&g->next[0], &g->next[k])) {
            result = CAPTURE_UNJOINED;
        }
        g->streams[k]->capture = NULL;
    }
    capturing = NULL;
    if (standin_fails("cuStreamEndCapture", &failure)) {
        result = failure;
    }
    if (result != BY__CUDA_SUCCESS) {
        drop(g);
        return result;
    }
    *out = g;
    return BY__CUDA_SUCCESS;
}

int cuGraphDestroy(by__cuda_graph graph_)
{
    drop(graph_);
    return BY__CUDA_SUCCESS;
}

int cuGraphInstantiateWithFlags(by__cuda_graph_exec *out, by__cuda_graph graph_,
                                unsigned long long flags)
{
    int failure;
    graph *g = graph_;
    if (standin_fails("cuGraphInstantiateWithFlags", &failure)) {
        return failure;
    }
    if (flags != 0) {
        return INVALID_VALUE;
    }
    graph_exec *x = calloc(1, sizeof *x);
    x->graph = g;
    g->users++;
    for (int k = 1; k < g->stream_count; k++) {
        (void)cuStreamCreate(&x->streams[k], BY__CUDA_STREAM_NON_BLOCKING);
    }
    *out = x;
    return BY__CUDA_SUCCESS;
}

int cuGraphExecDestroy(by__cuda_graph_exec exec)
{
    graph_exec *x = exec;
    for (int k = 1; k < x->graph->stream_count; k++) {
        (void)cuStreamDestroy_v2(x->streams[k]);
    }
    drop(x->graph);
    free(x);
    return BY__CUDA_SUCCESS;
}

static void *copy_of(void *data)
{
    size_t bytes = malloc_usable_size(data);
    void *copy = malloc(bytes);
    memcpy(copy, data, bytes);
    return copy;
}

/* The same work, after all that the stream holds. */
int cuGraphLaunch(by__cuda_graph_exec exec, by__cuda_stream stream_)
{
    int failure;
    graph_exec *x = exec;
    graph *g = x->graph;
    stream *on[MAX_STREAMS] = {stream_};
    size_t base[MAX_STREAMS];
    if (standin_fails("cuGraphLaunch", &failure)) {
        return failure;
    }
    if (on[0]->capture != NULL) {
        return CAPTURE_UNSUPPORTED;
    }
    standin_lock();
    for (int k = 0; k < g->stream_count; k++) {
        on[k] = k == 0 ? stream_ : x->streams[k];
        standin_join(&on[k]->next, &on[0]->next);
        base[k] = standin_state.submitted.at[on[k]->index];
    }
    for (const work *w = g->first; w != NULL; w = w->next) {
        stream *s = on[w->stream];
        for (int k = 0; k < g->stream_count; k++) {
            clock_vector after = {{0}};
            after.at[on[k]->index] = w->after.at[k] > 0 ? base[k] + w->after.at[k] : 0;
            standin_join(&s->next, &after);
        }
        standin_enqueue(
            s, standin_make_work(s, w->name, w->ranges, w->range_count, w->run, copy_of(w->data)));
    }
    for (int k = 1; k < g->stream_count; k++) {
        standin_join(&on[0]->next, &on[k]->next);
    }
    standin_unlock();
    return BY__CUDA_SUCCESS;
}
