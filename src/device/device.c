/* The functions of a device: they check arguments, call the backend, and report errors. */
#include "device/device.h"

#include <string.h>

#include "base/base.h"
#include "device/staging.h"

static const char *const queue_names[BY__QUEUE_COUNT] = {"compute", "copy-in", "copy-out",
                                                         "collective"};

const char *by__device_queue_name(by__device_queue queue)
{
    return (unsigned)queue < BY__QUEUE_COUNT ? queue_names[queue] : "?";
}

void by_device_close(by_device **device)
{
    if (device != NULL && *device != NULL) {
        (*device)->ops->close(*device);
        *device = NULL;
    }
}

by_status by_device_describe(by_device_info *out, const by_device *device, by_error *error)
{
    by_device_info info = {.threads = device->context.threads,
                           .alignment = device->alignment,
                           .host_memory = device->host_memory};
    BY_TRY(device->ops->describe(&info, device, error));
    *out = info;
    return BY_OK;
}

const by__device_context *by__device_context_of(const by_device *device)
{
    return &device->context;
}

void by__device_set_collectives(by_device *device, by__device_collectives *collectives)
{
    device->context.collectives = collectives;
}

void by__device_set_stepwise(by_device *device, bool stepwise)
{
    device->stepwise = stepwise;
}

bool by__device_use_tf32(by_device *device, bool use)
{
    device->tf32 = use && device->has_tf32;
    return device->has_tf32;
}

by_status by__device_share(by_device **out, by_device *device, int threads, by_error *error)
{
    by_device *other;
    BY_TRY(device->ops->share(&other, device, threads, error));
    other->first = device->first == NULL ? device : device->first;
    *out = other;
    return BY_OK;
}

/* ---- memory ---- */

uint64_t by__device_memory_free(const by_device *device)
{
    by_device_info info = {0};
    return device->ops->describe(&info, device, NULL) == BY_OK ? info.memory_free : UINT64_MAX;
}

size_t by__device_unit(const by_device *device)
{
    return device->alignment > BY_CACHE_LINE ? device->alignment : BY_CACHE_LINE;
}

bool by__device_has_memory_of(const by_device *device, const by_device *other)
{
    const by_device *a = device->first == NULL ? device : device->first;
    const by_device *b = other == NULL || other->first == NULL ? other : other->first;
    return b == NULL ? device->host_memory : a == b;
}

void by__device_allocate_on_use(by_device *device)
{
    device->on_use = true;
}

by_status by_device_alloc(by_memory *out, by_device *device, size_t bytes, const char *what,
                          by_error *error)
{
    by_memory memory = {.device = device, .bytes = bytes};
    if (bytes == 0) {
        *out = (by_memory){0};
        return BY_OK;
    }
    BY_TRY(device->ops->alloc(&memory.address, device, bytes, what, error));
    *out = memory;
    return BY_OK;
}

void by_device_free(by_memory *memory)
{
    if (memory->device != NULL) {
        memory->device->ops->free(memory->device, memory->address, memory->bytes);
    }
    *memory = (by_memory){0};
}

by_status by_device_pin(by_pinned *out, by_device *device, size_t bytes, const char *what,
                        by_error *error)
{
    by_pinned pinned = {.device = device, .bytes = bytes};
    if (bytes == 0) {
        *out = (by_pinned){0};
        return BY_OK;
    }
    BY_TRY(device->ops->pin(&pinned.data, device, bytes, what, error));
    *out = pinned;
    return BY_OK;
}

void by_device_unpin(by_pinned *pinned)
{
    if (pinned->device != NULL) {
        pinned->device->ops->unpin(pinned->device, pinned->data, pinned->bytes);
    }
    *pinned = (by_pinned){0};
}

by_memory by_memory_at(by_memory memory, size_t offset, size_t bytes)
{
    if (offset > memory.bytes || bytes > memory.bytes - offset) {
        return (by_memory){0};
    }
    return (by_memory){memory.device, memory.address + offset, bytes};
}

by_memory by_host_memory(void *data, size_t bytes)
{
    return (by_memory){NULL, (uintptr_t)data, bytes};
}

/* ---- copies ---- */

static by_status check_memory(by_memory memory, const char *what, by_error *error)
{
    if (memory.device == NULL) {
        return by_error_set(error, BY_EARG, "%s: %s", what,
                            memory.address == 0 ? "there is no memory"
                                                : "this is host memory, not a device's");
    }
    return BY_OK;
}

by_status by__device_copy_in(by__device_queue queue, by_memory to, const void *from,
                             by_error *error)
{
    BY_TRY(check_memory(to, "copy in", error));
    return to.device->ops->copy_in(queue, to, from, error);
}

by_status by__device_copy_out(by__device_queue queue, void *to, by_memory from, by_error *error)
{
    BY_TRY(check_memory(from, "copy out", error));
    return from.device->ops->copy_out(queue, to, from, error);
}

by_status by__device_copy(by__device_queue queue, by_memory to, by_memory from, by_error *error)
{
    BY_TRY(check_memory(to, "copy", error));
    BY_TRY(check_memory(from, "copy", error));
    if (to.device != from.device || to.bytes != from.bytes) {
        return by_error_set(error, BY_EARG, "copy: %zu bytes to %zu bytes%s", from.bytes, to.bytes,
                            to.device == from.device ? "" : " of another device");
    }
    return to.device->ops->copy(queue, to, from, error);
}

by_status by__device_fill(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error)
{
    BY_TRY(check_memory(memory, "fill", error));
    return memory.device->ops->fill(queue, memory, byte, error);
}

/* ---- waiting: where errors of submitted work surface ---- */

void by__device_on_error(by_device *device, by__device_error_fn *fn, void *user)
{
    device->on_error = fn;
    device->on_error_user = user;
}

by_status by__device_report(by_device *device, by_status status, const by_error *error)
{
    if (status != BY_OK && device->on_error != NULL) {
        by_error plain = {.status = status};
        (void)snprintf(plain.message, sizeof plain.message, "%s", by_status_name(status));
        device->on_error(device->on_error_user, status, error == NULL ? &plain : error);
    }
    return status;
}

by_status by__device_queue_finish(by_device *device, by__device_queue queue, by_error *error)
{
    by_status status = device->ops->finish(device, queue, error);
    return status == BY_OK ? BY_OK : by__device_report(device, status, error);
}

by_status by_device_finish(by_device *device, by_error *error)
{
    for (int queue = 0; queue < BY__QUEUE_COUNT; queue++) {
        BY_TRY(by__device_queue_finish(device, (by__device_queue)queue, error));
    }
    return BY_OK;
}

by_status by_device_write(by_memory to, const void *from, by_error *error)
{
    BY_TRY(check_memory(to, "write", error));
    BY_TRY(by_device_finish(to.device, error));
    return to.device->ops->write(to, from, error);
}

by_status by_device_read(void *to, by_memory from, by_error *error)
{
    BY_TRY(check_memory(from, "read", error));
    BY_TRY(by_device_finish(from.device, error));
    return from.device->ops->read(to, from, error);
}

/* ---- events ---- */

by_status by__device_event_open(by__device_event **out, by_device *device, bool timed,
                                by_error *error)
{
    by__device_event *event;
    BY_TRY(device->ops->event_open(&event, device, timed, error));
    event->device = device;
    *out = event;
    return BY_OK;
}

void by__device_event_close(by__device_event **event)
{
    if (event != NULL && *event != NULL) {
        (*event)->device->ops->event_close(*event);
        *event = NULL;
    }
}

by_status by__device_event_record(by__device_event *event, by__device_queue queue, by_error *error)
{
    return event->device->ops->event_record(event, queue, error);
}

by_status by__device_event_order(by__device_event *event, by__device_queue queue, by_error *error)
{
    return event->device->ops->event_order(event, queue, error);
}

by_status by__device_event_wait(by__device_event *event, by_error *error)
{
    by_status status = event->device->ops->event_wait(event, error);
    return status == BY_OK ? BY_OK : by__device_report(event->device, status, error);
}

by_status by__device_event_done(bool *done, by__device_event *event, by_error *error)
{
    return event->device->ops->event_done(done, event, error);
}

by_status by__device_event_seconds(double *seconds, by__device_event *from, by__device_event *to,
                                   by_error *error)
{
    return from->device->ops->event_seconds(seconds, from, to, error);
}

/* ---- programs ---- */

by_status by__device_find_kernel(const by__device_kernel **out, by_device *device,
                                 const by__device_call *call, by_error *error)
{
    /* The host exchanges copies of memory that it cannot read. */
    const by__device_kernel *exchange =
        device->host_memory ? NULL : by__cpu_exchange_kernel(call->op);
    if (exchange != NULL) {
        *out = exchange;
        return BY_OK;
    }
    return device->ops->kernel(out, device, call, error);
}

by_status by__device_recording_open(by__device_recording **out, by_device *device,
                                    const by__device_command_list *list, by_error *error)
{
    by__device_recording *recording;
    BY_TRY(device->ops->recording_open(&recording, device, list, error));
    recording->device = device;
    recording->list = list;
    *out = recording;
    return BY_OK;
}

void by__device_recording_close(by__device_recording **recording)
{
    if (recording != NULL && *recording != NULL) {
        (*recording)->device->ops->recording_close(*recording);
        *recording = NULL;
    }
}

by__device_recording_bytes by__device_recording_size(const by__device_recording *recording)
{
    const by__device_ops *ops = recording->device->ops;
    return (by__device_recording_bytes){
        .of_device = ops->recording_bytes == NULL ? 0 : ops->recording_bytes(recording),
        .pinned = by__device_staged_bytes(recording->device, recording->list)};
}

/* Commands are listed in an order in which they can run one after another. */
static by_status step_through(by__device_recording *recording, by__device_call_hook *hook,
                              void *user, by_error *error)
{
    by_device *device = recording->device;
    const by__device_command_list *list = recording->list;
    BY_TRY(by_device_finish(device, error));
    for (size_t i = 0; i < list->command_count; i++) {
        const by__device_command *command = &list->commands[i];
        if (command->kind != BY__COMMAND_CALL) {
            continue;
        }
        double begin = by__now();
        by_status status = device->ops->submit_call(recording, command, error);
        if (status == BY_OK) {
            status = device->ops->finish(device, command->queue, error);
        }
        if (status != BY_OK && !device->names_nodes) {
            return by_error_prefix(error, status, "%s: node %zu: kernel %s", list->name,
                                   command->index, list->kernels[command->index]->name);
        }
        BY_TRY(status);
        if (hook != NULL) {
            hook(user, (int)command->index, begin, by__now());
        }
    }
    return BY_OK;
}

by_status by__device_recording_submit(by__device_recording *recording, bool rebound,
                                      by__device_call_hook *hook, void *user, by_error *error)
{
    return recording->device->stepwise
               ? step_through(recording, hook, user, error)
               : recording->device->ops->submit(recording, rebound, hook, user, error);
}

by_status by__device_call_failed(const by__device_command_list *list, size_t call,
                                 const by__device_context *context, by_status status,
                                 by_error *error)
{
    const char *what = list->calls[call].what;
    if (what != NULL && context->collectives == NULL) {
        return by_error_set(error, status, "node %zu: %s: there are no other ranks", call, what);
    }
    if (what != NULL && context->collectives->error.status == status) {
        return by_error_set(error, status, "node %zu: %s: %s", call, what,
                            context->collectives->error.message);
    }
    return by_error_set(error, status, "%s: node %zu: kernel %s failed", list->name, call,
                        list->kernels[call]->name);
}
