/* The device of a GPU: memory, copies, queues and events. */
#include "device/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static by__cuda_device *of(const by_device *device)
{
    return (by__cuda_device *)(uintptr_t)device;
}

by_status by__cuda_use(const by__cuda_device *d, by_error *error)
{
    return by__cuda_driver_failed(&d->driver, d->driver.use(d->context), "context", error);
}

by_status by__cuda_work_failed(const by__cuda_device *d, int result, by_error *error)
{
    char what[256];
    const by__cuda_submitted *s = &d->submitted;
    if (result == BY__CUDA_SUCCESS) {
        return BY_OK;
    }
    if (s->programs == 0 || d->base.stepwise) {
        return by__cuda_driver_failed(&d->driver, result, "submitted work failed", error);
    }
    const char *hint = "CUDA_LAUNCH_BLOCKING=1 finds the node";
    if (s->programs == 1) {
        (void)snprintf(what, sizeof what, "program '%s' failed; %s", s->first, hint);
    } else {
        (void)snprintf(what, sizeof what, "a program from '%s' to '%s' failed; %s", s->first,
                       s->last, hint);
    }
    return by__cuda_driver_failed(&d->driver, result, what, error);
}

by_status by__cuda_launch_failed(by__cuda_device *d, int result, const char *what)
{
    if (result == BY__CUDA_SUCCESS) {
        return BY_OK;
    }
    by_error error = {0};
    by_status status = by__cuda_driver_failed(&d->driver, result, what, &error);
    if (d->failure.status == BY_OK) {
        d->failure = error;
    }
    return status;
}

/* ---- memory ---- */

static by_status describe(by_device_info *out, const by_device *device, by_error *error)
{
    const by__cuda_device *d = of(device);
    size_t left;
    size_t total;
    char products[48];
    BY_TRY(by__cuda_use(d, error));
    BY_TRY(by__cuda_driver_failed(&d->driver, d->driver.memory(&left, &total), "memory", error));
    by__cuda_products_version(products, sizeof products, d->products);
    (void)snprintf(out->kind, sizeof out->kind, "cuda");
    (void)snprintf(out->name, sizeof out->name, "%s", d->name);
    (void)snprintf(out->level, sizeof out->level, "sm_%d", d->capability);
    (void)snprintf(out->version, sizeof out->version, "driver %d.%d, %s", d->driver.supports / 1000,
                   d->driver.supports % 1000 / 10, products);
    out->memory_total = total;
    out->memory_free = left;
    return BY_OK;
}

static by_status refuse_bytes(const by__cuda_device *d, size_t bytes, const char *what,
                              by_error *error)
{
    size_t left = 0;
    size_t total = 0;
    char sizes[3][32];
    (void)d->driver.memory(&left, &total);
    return by_error_set(error, BY_EMEMORY,
                        "out of memory on cuda:%d (%s): %s: %s are needed; %s of %s are free",
                        d->ordinal, d->name, what, by_format_bytes(sizes[0], bytes),
                        by_format_bytes(sizes[1], left), by_format_bytes(sizes[2], total));
}

static by_status alloc_memory(uintptr_t *out, by_device *device, size_t bytes, const char *what,
                              by_error *error)
{
    by__cuda_device *d = of(device);
    by__cuda_stream stream = d->queues[BY__QUEUE_COPY_IN].stream;
    by__cuda_address address;
    BY_TRY(by__cuda_use(d, error));
    int result = d->driver.alloc(&address, bytes);
    if (result == BY__CUDA_OUT_OF_MEMORY) {
        return refuse_bytes(d, bytes, what, error);
    }
    BY_TRY(by__cuda_driver_failed(&d->driver, result, what, error));
    /* Zeros are there before any queue may use the memory. */
    result = d->driver.fill(address, 0, bytes, stream);
    result = result == BY__CUDA_SUCCESS ? d->driver.stream_finish(stream) : result;
    if (result != BY__CUDA_SUCCESS) {
        (void)d->driver.free(address);
        return by__cuda_work_failed(d, result, error);
    }
    *out = (uintptr_t)address;
    return BY_OK;
}

static void free_memory(by_device *device, uintptr_t address, size_t bytes)
{
    by__cuda_device *d = of(device);
    BY_UNUSED(bytes);
    if (by__cuda_use(d, NULL) == BY_OK) {
        (void)d->driver.free(address);
    }
}

static by_status pin_memory(void **out, by_device *device, size_t bytes, const char *what,
                            by_error *error)
{
    by__cuda_device *d = of(device);
    void *data;
    BY_TRY(by__cuda_use(d, error));
    int result = d->driver.pin(&data, bytes, BY__CUDA_HOST_PORTABLE);
    if (result == BY__CUDA_OUT_OF_MEMORY) {
        char size[32];
        return by_error_set(error, BY_EMEMORY, "out of memory: %s: %s of pinned host memory", what,
                            by_format_bytes(size, bytes));
    }
    BY_TRY(by__cuda_driver_failed(&d->driver, result, what, error));
    memset(data, 0, bytes);
    *out = data;
    return BY_OK;
}

static void unpin_memory(by_device *device, void *data, size_t bytes)
{
    by__cuda_device *d = of(device);
    BY_UNUSED(bytes);
    if (by__cuda_use(d, NULL) == BY_OK) {
        (void)d->driver.unpin(data);
    }
}

/* ---- copies ---- */

static by_status copy_in(by__device_queue queue, by_memory to, const void *from, by_error *error)
{
    by__cuda_device *d = of(to.device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.copy_in(to.address, from, to.bytes, d->queues[queue].stream), error);
}

static by_status copy_out(by__device_queue queue, void *to, by_memory from, by_error *error)
{
    by__cuda_device *d = of(from.device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.copy_out(to, from.address, from.bytes, d->queues[queue].stream), error);
}

static by_status copy(by__device_queue queue, by_memory to, by_memory from, by_error *error)
{
    by__cuda_device *d = of(to.device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.copy(to.address, from.address, to.bytes, d->queues[queue].stream), error);
}

static by_status fill(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error)
{
    by__cuda_device *d = of(memory.device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.fill(memory.address, byte, memory.bytes, d->queues[queue].stream), error);
}

static by_status finish(by_device *device, by__device_queue queue, by_error *error)
{
    by__cuda_device *d = of(device);
    BY_TRY(by__cuda_use(d, error));
    BY_TRY(by__cuda_work_failed(d, d->driver.stream_finish(d->queues[queue].stream), error));
    /* Programs end on the compute queue. */
    d->submitted.programs = queue == BY__QUEUE_COMPUTE ? 0 : d->submitted.programs;
    return BY_OK;
}

static by_status write_memory(by_memory to, const void *from, by_error *error)
{
    BY_TRY(copy_in(BY__QUEUE_COPY_IN, to, from, error));
    return finish(to.device, BY__QUEUE_COPY_IN, error);
}

static by_status read_memory(void *to, by_memory from, by_error *error)
{
    BY_TRY(copy_out(BY__QUEUE_COPY_OUT, to, from, error));
    return finish(from.device, BY__QUEUE_COPY_OUT, error);
}

/* ---- events ---- */

static by_status event_open(by__device_event **out, by_device *device, bool timed, by_error *error)
{
    by__cuda_device *d = of(device);
    by__cuda_device_event *event;
    BY_TRY(by__cuda_use(d, error));
    BY_TRY(by__alloc((void **)&event, 1, sizeof *event, "event", error));
    int result = d->driver.event_open(&event->event, timed ? 0 : BY__CUDA_EVENT_UNTIMED);
    if (result != BY__CUDA_SUCCESS) {
        free(event);
        return by__cuda_driver_failed(&d->driver, result, "event", error);
    }
    event->timed = timed;
    *out = &event->base;
    return BY_OK;
}

static by__cuda_device_event *event_of(by__device_event *event)
{
    return (by__cuda_device_event *)event;
}

static void event_close(by__device_event *event)
{
    by__cuda_device *d = of(event->device);
    if (by__cuda_use(d, NULL) == BY_OK) {
        (void)d->driver.event_close(event_of(event)->event);
    }
    free(event);
}

static by_status event_record(by__device_event *event, by__device_queue queue, by_error *error)
{
    by__cuda_device *d = of(event->device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.event_record(event_of(event)->event, d->queues[queue].stream), error);
}

static by_status event_order(by__device_event *event, by__device_queue queue, by_error *error)
{
    by__cuda_device *d = of(event->device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(
        d, d->driver.stream_order(d->queues[queue].stream, event_of(event)->event, 0), error);
}

static by_status event_wait(by__device_event *event, by_error *error)
{
    by__cuda_device *d = of(event->device);
    BY_TRY(by__cuda_use(d, error));
    return by__cuda_work_failed(d, d->driver.event_wait(event_of(event)->event), error);
}

static by_status event_done(bool *done, by__device_event *event, by_error *error)
{
    by__cuda_device *d = of(event->device);
    BY_TRY(by__cuda_use(d, error));
    int result = d->driver.event_query(event_of(event)->event);
    *done = result != BY__CUDA_NOT_READY;
    return *done ? by__cuda_work_failed(d, result, error) : BY_OK;
}

static by_status event_seconds(double *seconds, by__device_event *from, by__device_event *to,
                               by_error *error)
{
    by__cuda_device *d = of(from->device);
    float milliseconds = 0.0f;
    if (!event_of(from)->timed || !event_of(to)->timed) {
        return by_error_set(error, BY_ESTATE, "event times: not timed");
    }
    BY_TRY(by__cuda_use(d, error));
    int result = d->driver.event_elapsed(&milliseconds, event_of(from)->event, event_of(to)->event);
    if (result == BY__CUDA_NOT_READY) {
        return by_error_set(error, BY_ESTATE, "event times: not done");
    }
    *seconds = 1e-3 * (double)milliseconds;
    return by__cuda_driver_failed(&d->driver, result, "event times", error);
}

/* ---- launches of rows ---- */

static by__cuda_stream_queue *queue_of(by__cuda_queue *queue)
{
    return (by__cuda_stream_queue *)queue;
}

static by_status launch_kernel(by__cuda_queue *queue, by__cuda_kernel kernel,
                               const by__cuda_grid *grid, const void *args)
{
    by__cuda_stream_queue *q = queue_of(queue);
    void *parameters[1] = {(void *)(uintptr_t)args};
    int result = q->device->driver.launch(q->device->functions[kernel], grid->grid[0],
                                          grid->grid[1], grid->grid[2], grid->block, 1, 1,
                                          grid->shared, q->stream, parameters, NULL);
    return by__cuda_launch_failed(q->device, result, by__cuda_kernel_symbol(kernel));
}

static by_status launch_copy(by__cuda_queue *queue, void *to, const void *from, size_t bytes)
{
    by__cuda_stream_queue *q = queue_of(queue);
    return by__cuda_launch_failed(
        q->device, q->device->driver.copy((uintptr_t)to, (uintptr_t)from, bytes, q->stream),
        "copy");
}

static by_status launch_fill(by__cuda_queue *queue, void *to, uint8_t byte, size_t bytes)
{
    by__cuda_stream_queue *q = queue_of(queue);
    return by__cuda_launch_failed(
        q->device, q->device->driver.fill((uintptr_t)to, byte, bytes, q->stream), "fill");
}

/* ---- kernels ---- */

/* The rows that are not in rows.inc: they call a library, or the driver alone. */
static const by__device_kernel *const own_rows[] = {
    &by__cuda_matmul,
    &by__cuda_linear_cross_entropy,
    &by__cuda_linear_cross_entropy_grad,
    &by__cuda_linear_cross_entropy_train,
    &by__cuda_linear_cross_entropy_part,
    &by__cuda_linear_token_loss,
    &by__cuda_linear_distill,
    &by__cuda_linear_distill_grad,
    &by__cuda_linear_distill_train,
    &by__cuda_reshape,
    &by__cuda_replicate,
};

static by_status kernel(const by__device_kernel **out, by_device *device,
                        const by__device_call *call, by_error *error)
{
    BY_UNUSED(device);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(own_rows); i++) {
        const by__device_kernel *row = own_rows[i];
        if (row->op == call->op && (row->supports == NULL || row->supports(call))) {
            *out = row;
            return BY_OK;
        }
    }
    *out = by__cuda_row(call);
    if (*out != NULL) {
        return BY_OK;
    }
    return by_error_set(
        error, BY_EDEVICE, "cuda has no kernel for %s of %s; 'device: cpu' has one",
        by_op_name(call->op),
        by_dtype_name(call->input_count > 0 ? call->in[0].dtype : call->out[0].dtype));
}

/* ---- the device ---- */

static void close_device(by_device *device)
{
    by__cuda_device *d = of(device);
    if (d->context != NULL && by__cuda_use(d, NULL) == BY_OK) {
        by__cuda_products_close(d->products);
        for (int q = 0; q < BY__QUEUE_COUNT; q++) {
            if (d->queues[q].stream != NULL) {
                (void)d->driver.stream_finish(d->queues[q].stream);
                (void)d->driver.stream_close(d->queues[q].stream);
            }
        }
        by__cuda_modules_unload(d);
        (void)d->driver.use(NULL);
        (void)d->driver.release(d->device);
    }
    by__device_choices_close(d->base.choices);
    free(d);
}

static by_status open_queues(by__cuda_device *d, by_error *error)
{
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        by__cuda_stream_queue *queue = &d->queues[q];
        *queue = (by__cuda_stream_queue){
            .base = {.launch = launch_kernel, .copy = launch_copy, .fill = launch_fill},
            .device = d};
        BY_TRY(by__cuda_driver_failed(
            &d->driver, d->driver.stream_open(&queue->stream, BY__CUDA_STREAM_NON_BLOCKING),
            by__device_queue_name((by__device_queue)q), error));
    }
    return BY_OK;
}

static by_status set_up(by__cuda_device *d, by_error *error)
{
    BY_TRY(by__cuda_driver_open(&d->driver, error));
    BY_TRY(by__cuda_driver_check(&d->driver, d->ordinal, error));
    BY_TRY(
        by__cuda_driver_failed(&d->driver, d->driver.get(&d->device, d->ordinal), "device", error));
    BY_TRY(by__cuda_driver_failed(&d->driver, d->driver.name(d->name, sizeof d->name, d->device),
                                  "name", error));
    d->capability = by__cuda_driver_capability(&d->driver, d->device);
    int result = d->driver.retain(&d->context, d->device);
    if (result == BY__CUDA_DEVICE_UNAVAILABLE) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda:%d (%s) is used by another process alone, or its compute mode "
                            "forbids contexts (nvidia-smi -c 0 allows several)",
                            d->ordinal, d->name);
    }
    if (result == BY__CUDA_OUT_OF_MEMORY) {
        return by_error_set(error, BY_EMEMORY,
                            "cuda:%d (%s) has no memory left for a context: other processes hold "
                            "it (nvidia-smi lists them)",
                            d->ordinal, d->name);
    }
    BY_TRY(by__cuda_driver_failed(&d->driver, result, "context", error));
    BY_TRY(by__cuda_use(d, error));
    BY_TRY(open_queues(d, error));
    BY_TRY(by__cuda_modules_load(d, error));
    return by__cuda_products_open(&d->products, &d->driver, error);
}

/* Algorithms belong to a version of the library, and what it chooses to a model of GPU. */
static by_status open_choices(by__cuda_device *d, by_error *error)
{
    char products[48];
    char chooser[128];
    by__cuda_products_version(products, sizeof products, d->products);
    (void)snprintf(chooser, sizeof chooser, "%s, %s", d->name, products);
    return by__device_choices_open(&d->base.choices, chooser, error);
}

static by_status share(by_device **out, by_device *device, int threads, by_error *error);

static const by__device_ops cuda_ops = {
    .close = close_device,
    .describe = describe,
    .alloc = alloc_memory,
    .free = free_memory,
    .pin = pin_memory,
    .unpin = unpin_memory,
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
    .recording_open = by__cuda_recording_open,
    .recording_close = by__cuda_recording_close,
    .recording_bytes = by__cuda_recording_bytes,
    .submit = by__cuda_submit,
    .submit_call = by__cuda_submit_call,
    .share = share,
};

/* A handle that has what is needed to compute. */
static by_status open_handle(by__cuda_device **out, int ordinal, by_error *error)
{
    by__cuda_device *d;
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "device", error));
    d->base =
        (by_device){.ops = &cuda_ops,
                    .context = {.device = &d->base, .queue = &d->queues[BY__QUEUE_COMPUTE].base},
                    .alignment = 256,
                    .has_tf32 = true,
                    .stepwise = blocking != NULL && strcmp(blocking, "1") == 0};
    d->ordinal = ordinal;
    by_status status = set_up(d, error);
    if (status != BY_OK) {
        close_device(&d->base);
        return status;
    }
    *out = d;
    return BY_OK;
}

static by_status open_device(by_device **out, int ordinal, int threads, by_error *error)
{
    by__cuda_device *d;
    BY_UNUSED(threads);
    BY_TRY(open_handle(&d, ordinal, error));
    by_status status = by__cuda_products_test(d, error);
    status = status == BY_OK ? open_choices(d, error) : status;
    if (status != BY_OK) {
        close_device(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

/* Handles of a process share the device's primary context, and with it their memory. */
static by_status share(by_device **out, by_device *device, int threads, by_error *error)
{
    by__cuda_device *d;
    by_string chosen = {0};
    BY_UNUSED(threads);
    BY_TRY(open_handle(&d, of(device)->ordinal, error));
    d->base.tf32 = device->tf32;
    by_status status = open_choices(d, error);
    status = status == BY_OK ? by__device_add_choices(&chosen, device, error) : status;
    status = status == BY_OK ? by__device_take_choices(&d->base, chosen.data, error) : status;
    by_string_free(&chosen);
    if (status != BY_OK) {
        close_device(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

static by_status count_devices(int *out, by_error *error)
{
    by__cuda_driver driver;
    int count;
    BY_TRY(by__cuda_driver_open(&driver, error));
    BY_TRY(by__cuda_driver_failed(&driver, driver.count(&count), "devices", error));
    BY_TRY(count == 0 ? BY_OK : by__cuda_driver_check(&driver, 0, error));
    *out = count;
    return BY_OK;
}

/* Tensor cores multiply bf16 at several times the rate of f32. */
static by_status fastest(by_dtype *out, by_error *error)
{
    BY_UNUSED(error);
    *out = BY_BF16;
    return BY_OK;
}

const by__device_kind by__device_cuda = {
    .name = "cuda", .count = count_devices, .open = open_device, .fastest = fastest};
