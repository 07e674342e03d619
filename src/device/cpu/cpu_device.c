/* The CPU as a device: every queue runs submitted work at once, on the calling thread, so that
 * events are complete when they are recorded. The collective calls of a program run on a separate
 * thread (collective_queue.h), and a submit returns when the program is done. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/collective_queue.h"
#include "device/cpu/cpu.h"
#include "device/cpu/pages.h"

#ifdef _OPENMP
#define OPENMP_VERSION _OPENMP
#else
#define OPENMP_VERSION 0
#endif

typedef struct cpu_device {
    by_device base;
    by__cpu_isa isa;
    by__cpu_collective_queue *collectives; /* NULL until a program needs it */
} cpu_device;

typedef struct cpu_recording {
    by__device_recording base;
    bool apart; /* it has collective calls */
    by__cpu_two_queues state;
} cpu_recording;

typedef struct cpu_event {
    by__device_event base;
    bool timed;
    double seconds; /* by__now() when it was recorded */
} cpu_event;

static void close_device(by_device *device)
{
    by__cpu_collective_queue_close(((cpu_device *)device)->collectives);
    free(device);
}

static by_status describe(by_device_info *out, const by_device *device, by_error *error)
{
    const cpu_device *cpu = (const cpu_device *)device;
    BY_UNUSED(error);
    (void)snprintf(out->kind, sizeof out->kind, "cpu");
    (void)snprintf(out->level, sizeof out->level, "%s", by__cpu_isa_name(cpu->isa));
    (void)snprintf(out->name, sizeof out->name, "cpu %s", by__cpu_isa_name(cpu->isa));
    (void)snprintf(out->version, sizeof out->version, "banyan %s, OpenMP %d", BY_VERSION,
                   OPENMP_VERSION);
    by__host_memory memory;
    by__memory_available(&memory);
    out->memory_total = memory.total;
    out->memory_free = memory.available;
    return BY_OK;
}

/* ---- memory ---- */

static by_status allocate_pages(void **out, by_device *device, size_t bytes, const char *what,
                                by_error *error)
{
    by__cpu_pages pages;
    BY_TRY(device->on_use ? by__cpu_pages_reserve(&pages, bytes, what, error)
                          : by__cpu_pages_open(&pages, bytes, what, error));
    *out = pages.data;
    return BY_OK;
}

static void release_pages(by_device *device, void *data, size_t bytes)
{
    by__cpu_pages pages = {data, bytes};
    BY_UNUSED(device);
    by__cpu_pages_close(&pages);
}

static by_status allocate(uintptr_t *out, by_device *device, size_t bytes, const char *what,
                          by_error *error)
{
    void *data;
    BY_TRY(allocate_pages(&data, device, bytes, what, error));
    *out = (uintptr_t)data;
    return BY_OK;
}

static void release_memory(by_device *device, uintptr_t address, size_t bytes)
{
    release_pages(device, (void *)address, bytes);
}

static by_status write_memory(by_memory to, const void *from, by_error *error)
{
    BY_UNUSED(error);
    memcpy((void *)to.address, from, to.bytes);
    return BY_OK;
}

static by_status read_memory(void *to, by_memory from, by_error *error)
{
    BY_UNUSED(error);
    memcpy(to, (const void *)from.address, from.bytes);
    return BY_OK;
}

static by_status copy_in(by__device_queue queue, by_memory to, const void *from, by_error *error)
{
    BY_UNUSED(queue);
    return write_memory(to, from, error);
}

static by_status copy_out(by__device_queue queue, void *to, by_memory from, by_error *error)
{
    BY_UNUSED(queue);
    return read_memory(to, from, error);
}

static by_status copy(by__device_queue queue, by_memory to, by_memory from, by_error *error)
{
    BY_UNUSED(queue);
    BY_UNUSED(error);
    memmove((void *)to.address, (const void *)from.address, to.bytes);
    return BY_OK;
}

static by_status fill(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error)
{
    BY_UNUSED(queue);
    BY_UNUSED(error);
    memset((void *)memory.address, byte, memory.bytes);
    return BY_OK;
}

static by_status finish(by_device *device, by__device_queue queue, by_error *error)
{
    BY_UNUSED(device);
    BY_UNUSED(queue);
    BY_UNUSED(error);
    return BY_OK;
}

/* ---- events ---- */

static by_status event_open(by__device_event **out, by_device *device, bool timed, by_error *error)
{
    cpu_event *event;
    BY_UNUSED(device);
    BY_TRY(by__alloc((void **)&event, 1, sizeof *event, "event", error));
    event->timed = timed;
    *out = &event->base;
    return BY_OK;
}

static void event_close(by__device_event *event)
{
    free(event);
}

static by_status event_record(by__device_event *event, by__device_queue queue, by_error *error)
{
    cpu_event *e = (cpu_event *)event;
    BY_UNUSED(queue);
    BY_UNUSED(error);
    if (e->timed) {
        e->seconds = by__now();
    }
    return BY_OK;
}

static by_status event_order(by__device_event *event, by__device_queue queue, by_error *error)
{
    BY_UNUSED(event);
    BY_UNUSED(queue);
    BY_UNUSED(error);
    return BY_OK;
}

static by_status event_wait(by__device_event *event, by_error *error)
{
    BY_UNUSED(event);
    BY_UNUSED(error);
    return BY_OK;
}

static by_status event_done(bool *done, by__device_event *event, by_error *error)
{
    BY_UNUSED(event);
    BY_UNUSED(error);
    *done = true;
    return BY_OK;
}

static by_status event_seconds(double *seconds, by__device_event *from, by__device_event *to,
                               by_error *error)
{
    BY_UNUSED(error);
    *seconds = ((const cpu_event *)to)->seconds - ((const cpu_event *)from)->seconds;
    return BY_OK;
}

/* ---- programs ---- */

static by_status kernel(const by__device_kernel **out, by_device *device,
                        const by__device_call *call, by_error *error)
{
    return by__cpu_kernel(out, call, ((const cpu_device *)device)->isa, error);
}

static by_status recording_open(by__device_recording **out, by_device *device,
                                const by__device_command_list *list, by_error *error)
{
    cpu_device *cpu = (cpu_device *)device;
    cpu_recording *recording;
    BY_TRY(by__alloc((void **)&recording, 1, sizeof *recording, "program", error));
    recording->apart = by__cpu_uses_two_queues(list);
    by_status status = BY_OK;
    if (recording->apart && cpu->collectives == NULL) {
        status = by__cpu_collective_queue_open(&cpu->collectives, error);
    }
    if (recording->apart && status == BY_OK) {
        status = by__cpu_two_queues_open(&recording->state, list, error);
    }
    if (status != BY_OK) {
        free(recording);
        return status;
    }
    *out = &recording->base;
    return BY_OK;
}

static void recording_close(by__device_recording *recording)
{
    by__cpu_two_queues_close(&((cpu_recording *)recording)->state);
    free(recording);
}

/* Calls are listed in an order in which they can run one after another. */
static by_status submit(by__device_recording *recording, bool rebound, by__device_call_hook *hook,
                        void *user, by_error *error)
{
    cpu_recording *own = (cpu_recording *)recording;
    const by__device_command_list *list = recording->list;
    const by__device_context *context = &recording->device->context;
    BY_UNUSED(rebound);
    if (own->apart) {
        return by__cpu_collective_queue_run(((cpu_device *)recording->device)->collectives,
                                            &own->state, list, context, hook, user, error);
    }
    for (size_t n = 0; n < list->call_count; n++) {
        double begin = hook != NULL ? by__now() : 0.0;
        by_status status = list->kernels[n]->run(&list->calls[n], context);
        if (status != BY_OK) {
            return by__device_call_failed(list, n, context, status, error);
        }
        if (hook != NULL) {
            hook(user, (int)n, begin, by__now());
        }
    }
    return BY_OK;
}

static by_status submit_call(by__device_recording *recording, const by__device_command *command,
                             by_error *error)
{
    const by__device_command_list *list = recording->list;
    const by__device_context *context = &recording->device->context;
    by_status status = list->kernels[command->index]->run(&list->calls[command->index], context);
    return status == BY_OK ? BY_OK
                           : by__device_call_failed(list, command->index, context, status, error);
}

static by_status share(by_device **out, by_device *device, int threads, by_error *error);

static const by__device_ops cpu_ops = {
    .close = close_device,
    .describe = describe,
    .alloc = allocate,
    .free = release_memory,
    .pin = allocate_pages,
    .unpin = release_pages,
    .write = write_memory,
    .read = read_memory,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy = copy,
    .fill = fill,
    .finish = finish,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_order = event_order,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_seconds = event_seconds,
    .kernel = kernel,
    .recording_open = recording_open,
    .recording_close = recording_close,
    .submit = submit,
    .submit_call = submit_call,
    .share = share,
};

/* All processors of the host are one device. */
static by_status count_devices(int *out, by_error *error)
{
    BY_UNUSED(error);
    *out = 1;
    return BY_OK;
}

static by_status open_device(by_device **out, int ordinal, int threads, by_error *error)
{
    cpu_device *cpu;
    by__cpu_isa isa;
    BY_UNUSED(ordinal);
    BY_TRY(by__cpu_isa_read(&isa, error));
    BY_TRY(by__alloc((void **)&cpu, 1, sizeof *cpu, "device", error));
    cpu->base = (by_device){.ops = &cpu_ops,
                            .context = {.device = &cpu->base, .threads = threads},
                            .alignment = BY_CACHE_LINE,
                            .host_memory = true,
                            .panels = true,
                            .names_nodes = true};
    cpu->isa = isa;
    *out = &cpu->base;
    return BY_OK;
}

/* All handles have the host's memory. */
static by_status share(by_device **out, by_device *device, int threads, by_error *error)
{
    BY_TRY(open_device(out, 0, threads, error));
    (*out)->alignment = device->alignment;
    (*out)->panels = device->panels;
    return BY_OK;
}

/* BANYAN_ISA limits the kernels. */
static by_status fastest(by_dtype *out, by_error *error)
{
    by__cpu_isa isa;
    BY_TRY(by__cpu_isa_read(&isa, error));
    /* Kernels of this level multiply pairs of bf16 (vdpbf16ps, or AMX tiles); lower levels widen
     * each operand to f32 first. */
    *out = isa == BY__ISA_AVX512 ? BY_BF16 : BY_F32;
    return BY_OK;
}

const by__device_kind by__device_cpu = {
    .name = "cpu", .count = count_devices, .open = open_device, .fastest = fastest};
