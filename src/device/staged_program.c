/* Programs with collectives on a device whose memory the host cannot read (staging.h). */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device/staging.h"

struct by__device_staged {
    by_device *device;
    const by__device_command_list *list;
    /* those of the list; of each queue; and the beginning of the program */
    by__device_event **events;
    by__device_tensor *operands; /* of a collective, where their copies are */
    by__device_staging staging;
};

static bool is_exchange(const by__device_command_list *list, const by__device_command *command)
{
    return command->kind == BY__COMMAND_CALL &&
           by__cpu_exchange_kernel(list->calls[command->index].op) != NULL;
}

static size_t bytes_of(const by__device_tensor *tensor)
{
    return by__present(tensor) ? (size_t)by__tensor_count(tensor) * by_dtype_size(tensor->dtype)
                               : 0;
}

/* As stage_call takes them, if no output is in the place of an input. */
static size_t staged_bytes(const by__device_call *call)
{
    size_t bytes = by__round_up(call->work_bytes, BY_CACHE_LINE);
    for (int i = 0; i < call->input_count && call->op != BY_OP_REDUCE_GRADIENTS; i++) {
        bytes += by__round_up(bytes_of(&call->in[i]), BY_CACHE_LINE);
    }
    for (int i = 0; i < call->output_count; i++) {
        bytes += by__round_up(bytes_of(&call->out[i]), BY_CACHE_LINE);
    }
    return bytes;
}

size_t by__device_staged_bytes(const by_device *device, const by__device_command_list *list)
{
    size_t most = 0;
    for (size_t i = 0; i < list->command_count && !device->host_memory; i++) {
        if (is_exchange(list, &list->commands[i])) {
            size_t bytes = staged_bytes(&list->calls[list->commands[i].index]);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static size_t event_count(const by__device_command_list *list)
{
    return list->event_count + BY__QUEUE_COUNT + 1;
}

by_status by__device_staged_open(by__device_staged **out, by_device *device,
                                 const by__device_command_list *list, by_error *error)
{
    by__device_staged *s;
    size_t operands = BY__MAX_INPUTS;
    bool needed = false;
    *out = NULL;
    for (size_t i = 0; i < list->command_count && !device->host_memory; i++) {
        needed = needed || is_exchange(list, &list->commands[i]);
    }
    if (!needed) {
        return BY_OK;
    }
    for (size_t i = 0; i < list->call_count; i++) {
        size_t count = (size_t)list->calls[i].input_count;
        operands = count > operands ? count : operands;
    }
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "program", error));
    s->device = device;
    s->list = list;
    s->staging.planned = by__device_staged_bytes(device, list);
    by_status status =
        by__alloc((void **)&s->operands, operands, sizeof *s->operands, "program", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s->events, event_count(list), sizeof(void *), "program", error);
    }
    for (size_t i = 0; i < event_count(list) && status == BY_OK; i++) {
        status = by__device_event_open(&s->events[i], device, false, error);
    }
    if (status != BY_OK) {
        by__device_staged_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__device_staged_close(by__device_staged **staged)
{
    if (staged == NULL || *staged == NULL) {
        return;
    }
    by__device_staged *s = *staged;
    by__device_staging_close(&s->staging);
    for (size_t i = 0; s->events != NULL && i < event_count(s->list); i++) {
        by__device_event_close(&s->events[i]);
    }
    free((void *)s->events);
    free(s->operands);
    free(s);
    *staged = NULL;
}

/* ---- a collective ---- */

static by_memory memory_of(const by__device_staged *s, const by__device_tensor *tensor)
{
    return (by_memory){s->device, (uintptr_t)tensor->data, bytes_of(tensor)};
}

/* An output in the place of an input has the place of its copy. */
static by_status stage_output(by__device_staged *s, const by__device_call *call,
                              const by__device_call *original, int i, void **out, by_error *error)
{
    for (int k = 0; k < call->input_count; k++) {
        if (by__present(&call->in[k]) && original->in[k].data == original->out[i].data &&
            call->in[k].data != original->in[k].data) {
            *out = call->in[k].data;
            return BY_OK;
        }
    }
    return by__device_stage(&s->staging, memory_of(s, &original->out[i]), false, out, error);
}

/* Makes `call` one on copies of the operands of `original`. */
static by_status stage_call(by__device_staged *s, by__device_call *call,
                            const by__device_call *original, by_error *error)
{
    int slots = call->input_count > BY__MAX_INPUTS ? call->input_count : BY__MAX_INPUTS;
    *call = *original;
    memcpy(s->operands, original->in, (size_t)slots * sizeof *s->operands);
    call->in = s->operands;
    BY_TRY(by__device_staging_begin(&s->staging, s->device, error));
    for (int i = 0; i < call->input_count && call->op != BY_OP_REDUCE_GRADIENTS; i++) {
        BY_TRY(by__device_stage(&s->staging, memory_of(s, &original->in[i]), true,
                                &s->operands[i].data, error));
    }
    for (int i = 0; i < call->output_count; i++) {
        BY_TRY(stage_output(s, call, original, i, &call->out[i].data, error));
    }
    return call->work_bytes == 0
               ? BY_OK
               : by__device_staging_take(&s->staging, call->work_bytes, &call->work, error);
}

static by_status run_exchange(by__device_staged *s, size_t index, by_error *error)
{
    const by__device_call *original = &s->list->calls[index];
    const by__device_kernel *kernel = by__cpu_exchange_kernel(original->op);
    const by__device_context *context = by__device_context_of(s->device);
    by__device_call call = *original;
    BY_TRY(stage_call(s, &call, original, error));
    /* Not only for the copies: what the queue is ordered after is done then. */
    BY_TRY(by__device_queue_finish(s->device, BY__QUEUE_COLLECTIVE, error));
    double began = by__now();
    by_status status = kernel->run(&call, context);
    if (context->collectives != NULL) {
        context->collectives->wait_seconds += by__now() - began;
    }
    if (status != BY_OK) {
        return by__device_call_failed(s->list, index, context, status, error);
    }
    for (int i = 0; i < call.output_count; i++) {
        BY_TRY(by__device_unstage(&s->staging, memory_of(s, &original->out[i]), call.out[i].data,
                                  error));
    }
    return BY_OK;
}

/* ---- a program ---- */

static by_status run_command(by__device_staged *s, by__device_recording *recording,
                             const by__device_command *command, by_error *error)
{
    switch (command->kind) {
    case BY__COMMAND_RECORD:
        return by__device_event_record(s->events[command->index], command->queue, error);
    case BY__COMMAND_ORDER:
        return by__device_event_order(s->events[command->index], command->queue, error);
    default:
        return is_exchange(s->list, command)
                   ? run_exchange(s, command->index, error)
                   : s->device->ops->submit_call(recording, command, error);
    }
}

/* Commands are listed in an order in which they can run one after another. */
static by_status step_through(by__device_staged *s, by__device_recording *recording,
                              by__device_call_hook *hook, void *user, by_error *error)
{
    BY_TRY(by_device_finish(s->device, error));
    for (size_t i = 0; i < s->list->command_count; i++) {
        const by__device_command *command = &s->list->commands[i];
        if (command->kind != BY__COMMAND_CALL) {
            continue;
        }
        double begin = by__now();
        by_status status = run_command(s, recording, command, error);
        if (status == BY_OK) {
            status = s->device->ops->finish(s->device, command->queue, error);
        }
        if (status != BY_OK && !s->device->names_nodes && !is_exchange(s->list, command)) {
            return by_error_prefix(error, status, "%s: node %zu: kernel %s", s->list->name,
                                   command->index, s->list->kernels[command->index]->name);
        }
        BY_TRY(status);
        if (hook != NULL) {
            hook(user, (int)command->index, begin, by__now());
        }
    }
    return BY_OK;
}

by_status by__device_staged_submit(by__device_staged *s, by__device_recording *recording,
                                   by__device_call_hook *hook, void *user, by_error *error)
{
    const by__device_command_list *list = s->list;
    by__device_event *begin = s->events[list->event_count + BY__QUEUE_COUNT];
    bool used[BY__QUEUE_COUNT] = {[BY__QUEUE_COMPUTE] = true};
    if (s->device->stepwise || hook != NULL) {
        return step_through(s, recording, hook, user, error);
    }
    BY_TRY(by__device_event_record(begin, BY__QUEUE_COMPUTE, error));
    for (size_t i = 0; i < list->command_count; i++) {
        const by__device_command *command = &list->commands[i];
        if (!used[command->queue]) {
            used[command->queue] = true;
            BY_TRY(by__device_event_order(begin, command->queue, error));
        }
        BY_TRY(run_command(s, recording, command, error));
    }
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        by__device_event *end = s->events[list->event_count + (size_t)q];
        if (used[q] && q != BY__QUEUE_COMPUTE) {
            BY_TRY(by__device_event_record(end, (by__device_queue)q, error));
            BY_TRY(by__device_event_order(end, BY__QUEUE_COMPUTE, error));
        }
    }
    return BY_OK;
}
