/* Programs of a GPU: calls launched on the streams of their queues, ordered by events. One that is
 * submitted again with the same addresses becomes a graph of the driver, the same launches in one:
 * it is captured at its second submit, when libraries have loaded what they need, and replayed
 * until its buffers change. Collectives are the host's as well, and have none. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

typedef struct cuda_recording {
    by__device_recording base;
    by__cuda_event *events; /* of the list, then one for each queue: where it ends */
    size_t event_count;
    by__cuda_event *times; /* before and after each call, once a hook has asked for them */
    size_t time_count;
    by__cuda_graph_exec graph; /* NULL: none */
    bool plain;                /* it cannot be one */
} cuda_recording;

static by__cuda_device *device_of(const by__device_recording *recording)
{
    return (by__cuda_device *)recording->device;
}

static void close_events(const by__cuda_device *d, by__cuda_event *events, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)d->driver.event_close(events[i]);
    }
    free(events);
}

static by_status open_events(by__cuda_event **out, size_t *opened, const by__cuda_device *d,
                             size_t count, unsigned flags, by_error *error)
{
    by__cuda_event *events;
    BY_TRY(by__alloc((void **)&events, count, sizeof *events, "events", error));
    for (size_t i = 0; i < count; i++) {
        int result = d->driver.event_open(&events[i], flags);
        if (result != BY__CUDA_SUCCESS) {
            close_events(d, events, i);
            return by__cuda_driver_failed(&d->driver, result, "event", error);
        }
    }
    *out = events;
    *opened = count;
    return BY_OK;
}

by_status by__cuda_recording_open(by__device_recording **out, by_device *device,
                                  const by__device_command_list *list, by_error *error)
{
    cuda_recording *r;
    by__cuda_device *d = (by__cuda_device *)device;
    BY_TRY(by__cuda_use(d, error));
    BY_TRY(by__alloc((void **)&r, 1, sizeof *r, "program", error));
    by_status status =
        open_events(&r->events, &r->event_count, d, list->event_count + BY__QUEUE_COUNT,
                    BY__CUDA_EVENT_UNTIMED, error);
    if (status != BY_OK) {
        free(r);
        return status;
    }
    for (size_t i = 0; i < list->command_count; i++) {
        r->plain = r->plain || list->commands[i].queue == BY__QUEUE_COLLECTIVE;
    }
    *out = &r->base;
    return BY_OK;
}

/* What drivers were seen to keep on the GPU for a node of a graph, of which most calls are one. */
#define NODE_BYTES ((size_t)64 << 10)

size_t by__cuda_recording_bytes(const by__device_recording *recording)
{
    return ((const cuda_recording *)recording)->plain ? 0
                                                      : recording->list->call_count * NODE_BYTES;
}

static void drop_graph(cuda_recording *r)
{
    if (r->graph != NULL) {
        (void)device_of(&r->base)->driver.exec_close(r->graph);
        r->graph = NULL;
    }
}

void by__cuda_recording_close(by__device_recording *recording)
{
    cuda_recording *r = (cuda_recording *)recording;
    const by__cuda_device *d = device_of(recording);
    if (by__cuda_use(d, NULL) == BY_OK) {
        drop_graph(r);
        close_events(d, r->events, r->event_count);
        close_events(d, r->times, r->time_count);
    }
    free(r);
}

/* Notes the program's name for errors that surface later. */
static void note(by__cuda_device *d, const char *name)
{
    by__cuda_submitted *s = &d->submitted;
    if (s->programs == 0) {
        (void)snprintf(s->first, sizeof s->first, "%s", name);
    }
    (void)snprintf(s->last, sizeof s->last, "%s", name);
    s->programs += s->programs == 0 || strcmp(s->first, name) != 0;
}

by_status by__cuda_submit_call(by__device_recording *recording, const by__device_command *command,
                               by_error *error)
{
    by__cuda_device *d = device_of(recording);
    const by__device_command_list *list = recording->list;
    by__device_context context = d->base.context;
    context.queue = &d->queues[command->queue].base;
    d->failure = (by_error){0};
    BY_TRY(by__cuda_use(d, error));
    by_status status = list->kernels[command->index]->run(&list->calls[command->index], &context);
    if (status == BY_OK) {
        return BY_OK;
    }
    return d->failure.status == BY_OK
               ? by__device_call_failed(list, command->index, &context, status, error)
               : by_error_set(error, status, "%s: node %zu: kernel %s: %s", list->name,
                              command->index, list->kernels[command->index]->name,
                              d->failure.message);
}

/* Records the event, and makes `queue` wait for it. */
static by_status order(const by__cuda_device *d, by__cuda_event event, by__cuda_stream from,
                       by__cuda_stream queue, by_error *error)
{
    BY_TRY(by__cuda_work_failed(d, d->driver.event_record(event, from), error));
    return by__cuda_work_failed(d, d->driver.stream_order(queue, event, 0), error);
}

static by_status run_command(cuda_recording *r, const by__device_command *command, bool timed,
                             by_error *error)
{
    const by__cuda_device *d = device_of(&r->base);
    by__cuda_stream stream = d->queues[command->queue].stream;
    by__cuda_event *times = timed ? &r->times[2 * command->index] : NULL;
    int result;
    switch (command->kind) {
    case BY__COMMAND_RECORD:
        result = d->driver.event_record(r->events[command->index], stream);
        break;
    case BY__COMMAND_ORDER:
        result = d->driver.stream_order(stream, r->events[command->index], 0);
        break;
    default:
        result = timed ? d->driver.event_record(times[0], stream) : BY__CUDA_SUCCESS;
        BY_TRY(by__cuda_work_failed(d, result, error));
        BY_TRY(by__cuda_submit_call(&r->base, command, error));
        result = timed ? d->driver.event_record(times[1], stream) : BY__CUDA_SUCCESS;
        break;
    }
    return by__cuda_work_failed(d, result, error);
}

/* Reports when the calls ran, after they have: the last of them ended now. */
static by_status report_times(cuda_recording *r, by__device_call_hook *hook, void *user,
                              by_error *error)
{
    by__cuda_device *d = device_of(&r->base);
    const by__device_command_list *list = r->base.list;
    by__cuda_event last = NULL;
    BY_TRY(by__cuda_work_failed(d, d->driver.stream_finish(d->queues[BY__QUEUE_COMPUTE].stream),
                                error));
    double now = by__now();
    for (size_t i = 0; i < list->command_count; i++) {
        const by__device_command *c = &list->commands[i];
        last = c->kind == BY__COMMAND_CALL ? r->times[2 * c->index + 1] : last;
    }
    for (size_t i = 0; i < list->command_count; i++) {
        const by__device_command *c = &list->commands[i];
        float from_begin = 0.0f;
        float from_end = 0.0f;
        if (c->kind != BY__COMMAND_CALL) {
            continue;
        }
        int result = d->driver.event_elapsed(&from_begin, r->times[2 * c->index], last);
        result = result == BY__CUDA_SUCCESS
                     ? d->driver.event_elapsed(&from_end, r->times[2 * c->index + 1], last)
                     : result;
        BY_TRY(by__cuda_work_failed(d, result, error));
        hook(user, (int)c->index, now - 1e-3 * (double)from_begin, now - 1e-3 * (double)from_end);
    }
    return BY_OK;
}

/* Launches all of it, which reads the addresses of the calls. Other queues begin after what the
 * compute queue holds; it goes on after all of them. */
static by_status launch_all(cuda_recording *r, bool timed, by_error *error)
{
    by__cuda_device *d = device_of(&r->base);
    const by__device_command_list *list = r->base.list;
    by__cuda_stream compute = d->queues[BY__QUEUE_COMPUTE].stream;
    bool used[BY__QUEUE_COUNT] = {[BY__QUEUE_COMPUTE] = true};
    for (size_t i = 0; i < list->command_count; i++) {
        const by__device_command *command = &list->commands[i];
        if (!used[command->queue]) {
            used[command->queue] = true;
            BY_TRY(order(d, r->events[list->event_count + BY__QUEUE_COMPUTE], compute,
                         d->queues[command->queue].stream, error));
        }
        BY_TRY(run_command(r, command, timed, error));
    }
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        if (used[q] && q != BY__QUEUE_COMPUTE) {
            BY_TRY(order(d, r->events[list->event_count + (size_t)q], d->queues[q].stream, compute,
                         error));
        }
    }
    return BY_OK;
}

/* Makes a graph of what launch_all would launch, and launches none of it. A program that the driver
 * makes no graph of stays plain, with the same results. */
static void capture(cuda_recording *r)
{
    by__cuda_device *d = device_of(&r->base);
    by__cuda_stream compute = d->queues[BY__QUEUE_COMPUTE].stream;
    by__cuda_graph graph = NULL;
    int result = d->driver.capture_begin(compute, BY__CUDA_CAPTURE_THREAD);
    if (result == BY__CUDA_SUCCESS) {
        by_status status = launch_all(r, false, NULL);
        result = d->driver.capture_end(compute, &graph); /* also ends one that has failed */
        if (result == BY__CUDA_SUCCESS && status == BY_OK) {
            result = d->driver.exec_open(&r->graph, graph, 0);
        }
    }
    if (graph != NULL) {
        (void)d->driver.graph_close(graph);
    }
    if (result != BY__CUDA_SUCCESS) {
        r->graph = NULL;
    }
    r->plain = r->graph == NULL;
}

by_status by__cuda_submit(by__device_recording *recording, bool rebound, by__device_call_hook *hook,
                          void *user, by_error *error)
{
    cuda_recording *r = (cuda_recording *)recording;
    by__cuda_device *d = device_of(recording);
    const by__device_command_list *list = recording->list;
    BY_TRY(by__cuda_use(d, error));
    note(d, list->name);
    if (rebound) {
        drop_graph(r);
    } else if (hook == NULL && r->graph == NULL && !r->plain) {
        capture(r);
    }
    if (hook == NULL && r->graph != NULL) {
        by__cuda_stream compute = d->queues[BY__QUEUE_COMPUTE].stream;
        return by__cuda_work_failed(d, d->driver.exec_launch(r->graph, compute), error);
    }
    if (hook != NULL && r->times == NULL) {
        BY_TRY(open_events(&r->times, &r->time_count, d, 2 * list->call_count, 0, error));
    }
    BY_TRY(launch_all(r, hook != NULL, error));
    return hook == NULL ? BY_OK : report_times(r, hook, user, error);
}
