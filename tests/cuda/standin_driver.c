/* The functions of the driver's stand-in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"
#include "standin_work.h"

#define PAGE                ((size_t)4096)
#define INVALID_VALUE       1
#define INVALID_CONTEXT     201
#define CAPTURE_UNSUPPORTED 900
#define INVALID_HANDLE      400

static _Thread_local bool has_context;
static int the_context;

/* Every function begins with this: failures on demand, and the context. */
#define BEGIN(name, needs_context)                                                                 \
    do {                                                                                           \
        int failure;                                                                               \
        if (standin_fails(#name, &failure)) {                                                      \
            return failure;                                                                        \
        }                                                                                          \
        if ((needs_context) && !has_context) {                                                     \
            return INVALID_CONTEXT;                                                                \
        }                                                                                          \
    } while (0)

/* What a thread must not call while it captures. */
#define NOT_WHILE_CAPTURING                                                                        \
    do {                                                                                           \
        if (standin_spoils_capture()) {                                                            \
            return CAPTURE_UNSUPPORTED;                                                            \
        }                                                                                          \
    } while (0)

/* ---- copies ---- */

typedef struct transfer {
    char *to;
    const char *from;
    size_t bytes;
    unsigned char byte;
    bool to_device;
    unsigned char staged[];
} transfer;

static transfer *new_transfer(void *to, const void *from, size_t bytes, size_t staged)
{
    transfer *t = calloc(1, sizeof *t + staged);
    if (t == NULL) {
        abort();
    }
    *t = (transfer){.to = to, .from = from, .bytes = bytes};
    return t;
}

static bool run_copy(void *data)
{
    const transfer *t = data;
    memmove(t->to, t->from, t->bytes);
    if (t->to_device) {
        standin_written(t->to, t->bytes);
    }
    return true;
}

static bool run_fill(void *data)
{
    const transfer *t = data;
    memset(t->to, t->byte, t->bytes);
    standin_written(t->to, t->bytes);
    return true;
}

int cuMemcpyHtoDAsync_v2(by__cuda_address to, const void *from, size_t bytes,
                         by__cuda_stream stream_)
{
    BEGIN(cuMemcpyHtoDAsync_v2, true);
    NOT_WHILE_CAPTURING;
    void *address = (void *)(uintptr_t)to;
    standin_lock();
    bool pinned = standin_is_pinned(from, bytes);
    if (!standin_is_device(address, bytes)) {
        standin_unlock();
        return INVALID_VALUE;
    }
    transfer *t = new_transfer(address, from, bytes, pinned ? 0 : bytes);
    t->to_device = true;
    if (!pinned) { /* the driver reads pageable memory before it returns */
        memcpy(t->staged, from, bytes);
        t->from = (const char *)t->staged;
    }
    const standin_range ranges[] = {{address, bytes, true}, {pinned ? from : NULL, bytes, false}};
    work *w = standin_make_work(stream_, "a copy in", ranges, 2, run_copy, t);
    if (pinned && !standin_in_use(from, bytes)) {
        w->hashed = from;
        w->hashed_bytes = bytes;
        w->hash = standin_hash_of(from, bytes);
    }
    standin_enqueue(stream_, w);
    standin_unlock();
    return BY__CUDA_SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, by__cuda_address from, size_t bytes, by__cuda_stream stream_)
{
    BEGIN(cuMemcpyDtoHAsync_v2, true);
    NOT_WHILE_CAPTURING;
    const void *address = (const void *)(uintptr_t)from;
    standin_lock();
    bool pinned = standin_is_pinned(to, bytes);
    if (!standin_is_device(address, bytes)) {
        standin_unlock();
        return INVALID_VALUE;
    }
    const standin_range ranges[] = {{address, bytes, false}, {pinned ? to : NULL, bytes, true}};
    work *w = standin_make_work(stream_, "a copy out", ranges, 2, run_copy,
                                new_transfer(to, address, bytes, 0));
    if (pinned && !standin_in_use(to, bytes)) {
        memset(to, 0xff, bytes);
        w->hashed = to; /* what the host writes there would be lost */
        w->hashed_bytes = bytes;
        w->hash = standin_hash_of(to, bytes);
    }
    standin_enqueue(stream_, w);
    standin_unlock();
    /* A copy to pageable memory blocks. */
    return pinned ? BY__CUDA_SUCCESS : cuStreamSynchronize(stream_);
}

int cuMemcpyDtoDAsync_v2(by__cuda_address to, by__cuda_address from, size_t bytes,
                         by__cuda_stream stream_)
{
    BEGIN(cuMemcpyDtoDAsync_v2, true);
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    standin_lock();
    bool known = standin_is_device(target, bytes) && standin_is_device(source, bytes);
    if (known) {
        const standin_range ranges[] = {{target, bytes, true}, {source, bytes, false}};
        transfer *t = new_transfer(target, source, bytes, 0);
        t->to_device = true;
        standin_enqueue(stream_, standin_make_work(stream_, "a copy", ranges, 2, run_copy, t));
    }
    standin_unlock();
    return known ? BY__CUDA_SUCCESS : INVALID_VALUE;
}

int cuMemsetD8Async(by__cuda_address to, unsigned char byte, size_t bytes, by__cuda_stream stream_)
{
    BEGIN(cuMemsetD8Async, true);
    void *target = (void *)(uintptr_t)to;
    standin_lock();
    bool known = standin_is_device(target, bytes);
    if (known) {
        const standin_range ranges[] = {{target, bytes, true}};
        transfer *t = new_transfer(target, NULL, bytes, 0);
        t->byte = byte;
        standin_enqueue(stream_, standin_make_work(stream_, "a fill", ranges, 1, run_fill, t));
    }
    standin_unlock();
    return known ? BY__CUDA_SUCCESS : INVALID_VALUE;
}

/* ---- allocation ---- */

static int map_block(void **out, size_t bytes, bool pinned)
{
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    block *b = calloc(1, sizeof *b);
    standin_lock();
    bool fits =
        b != NULL && bytes > 0 && (pinned || bytes <= standin_state.memory - standin_state.used);
    void *data =
        fits ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
             : MAP_FAILED;
    if (data == MAP_FAILED) {
        standin_unlock();
        free(b);
        return BY__CUDA_OUT_OF_MEMORY;
    }
    memset(data, 0xff, mapped);
    *b = (block){standin_state.blocks, data, bytes, mapped, pinned};
    standin_state.blocks = b;
    if (!pinned) {
        standin_state.used += bytes;
        emulator_memory_add(data, bytes);
        (void)mprotect(data, mapped, PROT_NONE);
    }
    standin_unlock();
    *out = data;
    return BY__CUDA_SUCCESS;
}

static int unmap_block(void *data, bool pinned)
{
    int result = INVALID_VALUE;
    standin_lock();
    for (block **place = &standin_state.blocks; *place != NULL; place = &(*place)->next) {
        block *b = *place;
        if (b->data != data || b->pinned != pinned) {
            continue;
        }
        result = BY__CUDA_SUCCESS;
        if (standin_in_use(b->data, b->bytes)) {
            /* Work that still wants it must not crash the test. */
            standin_fault("memory was freed while work may use it");
            break;
        }
        *place = b->next;
        if (!pinned) {
            standin_state.used -= b->bytes;
            emulator_memory_remove(b->data);
        }
        (void)munmap(b->data, b->mapped);
        free(b);
        break;
    }
    if (result != BY__CUDA_SUCCESS) {
        standin_fault("memory was freed that is not there");
    }
    standin_unlock();
    return result;
}

int cuMemAlloc_v2(by__cuda_address *address, size_t bytes)
{
    BEGIN(cuMemAlloc_v2, true);
    NOT_WHILE_CAPTURING;
    void *data = NULL;
    int result = map_block(&data, bytes, false);
    *address = (uintptr_t)data;
    return result;
}

/* cuMemFree waits for all work of the device first. */
int cuMemFree_v2(by__cuda_address address)
{
    BEGIN(cuMemFree_v2, true);
    NOT_WHILE_CAPTURING;
    return unmap_block((void *)(uintptr_t)address, false);
}

int cuMemHostAlloc(void **data, size_t bytes, unsigned flags)
{
    BEGIN(cuMemHostAlloc, true);
    NOT_WHILE_CAPTURING;
    (void)flags;
    return map_block(data, bytes, true);
}

int cuMemFreeHost(void *data)
{
    BEGIN(cuMemFreeHost, true);
    NOT_WHILE_CAPTURING;
    return unmap_block(data, true);
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    BEGIN(cuMemGetInfo_v2, true);
    *total = standin_state.memory;
    *left = standin_state.memory - standin_state.used;
    return BY__CUDA_SUCCESS;
}

/* ---- streams and events ---- */

/* Whether an event is there; it is a fault if not. */
static bool knows_event(const void *event_)
{
    standin_lock();
    const event *e = standin_state.events;
    while (e != NULL && e != event_) {
        e = e->next;
    }
    if (e == NULL) {
        standin_fault("an event is used that was closed");
    }
    standin_unlock();
    return e != NULL;
}

int cuStreamCreate(by__cuda_stream *out, unsigned flags)
{
    BEGIN(cuStreamCreate, true);
    stream *s = calloc(1, sizeof *s);
    (void)flags;
    standin_lock();
    for (s->index = 0; s->index < MAX_STREAMS - 1 && standin_state.used_stream[s->index];) {
        s->index++;
    }
    standin_state.used_stream[s->index] = true;
    s->next.at[s->index] = standin_state.submitted.at[s->index];
    standin_unlock();
    *out = s;
    return BY__CUDA_SUCCESS;
}

int cuStreamDestroy_v2(by__cuda_stream stream_)
{
    BEGIN(cuStreamDestroy_v2, true);
    stream *s = stream_;
    int result = cuStreamSynchronize(stream_);
    standin_lock();
    standin_state.used_stream[s->index] = false;
    standin_unlock();
    free(s);
    return result;
}

int cuStreamSynchronize(by__cuda_stream stream_)
{
    BEGIN(cuStreamSynchronize, true);
    NOT_WHILE_CAPTURING;
    clock_vector target = {{0}};
    const stream *s = stream_;
    standin_lock();
    target.at[s->index] = standin_state.submitted.at[s->index];
    standin_unlock();
    return standin_run_until(target);
}

int cuStreamWaitEvent(by__cuda_stream stream_, by__cuda_event event_, unsigned flags)
{
    BEGIN(cuStreamWaitEvent, true);
    (void)flags;
    int result;
    if (!knows_event(event_)) {
        return INVALID_HANDLE;
    }
    if (standin_capture_wait(&result, stream_, event_)) {
        return result;
    }
    standin_lock();
    standin_join(&((stream *)stream_)->next, &((event *)event_)->clock);
    standin_unlock();
    return BY__CUDA_SUCCESS;
}

int cuEventCreate(by__cuda_event *out, unsigned flags)
{
    BEGIN(cuEventCreate, true);
    event *e = calloc(1, sizeof *e);
    standin_lock();
    *e = (event){.next = standin_state.events, .timed = (flags & BY__CUDA_EVENT_UNTIMED) == 0};
    standin_state.events = e;
    standin_unlock();
    *out = e;
    return BY__CUDA_SUCCESS;
}

int cuEventDestroy_v2(by__cuda_event event_)
{
    BEGIN(cuEventDestroy_v2, true);
    standin_lock();
    for (event **place = &standin_state.events; *place != NULL; place = &(*place)->next) {
        if (*place == event_) {
            *place = (*place)->next;
            standin_unlock();
            free(event_);
            return BY__CUDA_SUCCESS;
        }
    }
    standin_fault("an event was closed that is not there");
    standin_unlock();
    return INVALID_HANDLE;
}

int cuEventRecord(by__cuda_event event_, by__cuda_stream stream_)
{
    BEGIN(cuEventRecord, true);
    event *e = event_;
    if (!knows_event(event_)) {
        return INVALID_HANDLE;
    }
    if (standin_capture_event(e, stream_)) {
        return BY__CUDA_SUCCESS;
    }
    standin_lock();
    e->clock = ((const stream *)stream_)->next;
    e->reached = standin_covers(&standin_state.done, &e->clock);
    e->time = standin_state.time;
    standin_unlock();
    return BY__CUDA_SUCCESS;
}

int cuEventSynchronize(by__cuda_event event_)
{
    BEGIN(cuEventSynchronize, true);
    NOT_WHILE_CAPTURING;
    return standin_run_until(((const event *)event_)->clock);
}

/* Each question brings the answer one piece of work nearer. */
int cuEventQuery(by__cuda_event event_)
{
    BEGIN(cuEventQuery, true);
    NOT_WHILE_CAPTURING;
    clock_vector target = ((const event *)event_)->clock;
    if (standin_covers(&standin_state.done, &target)) {
        return standin_run_until(target);
    }
    standin_lock();
    standin_close_over(&target);
    standin_protect(PROT_READ | PROT_WRITE);
    (void)standin_step(&target);
    standin_protect(PROT_NONE);
    standin_unlock();
    return BY__CUDA_NOT_READY;
}

int cuEventElapsedTime(float *milliseconds, by__cuda_event from, by__cuda_event to)
{
    BEGIN(cuEventElapsedTime, true);
    const event *a = from;
    const event *b = to;
    if (!a->timed || !b->timed) {
        return INVALID_HANDLE;
    }
    *milliseconds = (float)(1e3 * (b->time - a->time));
    return a->reached && b->reached ? BY__CUDA_SUCCESS : BY__CUDA_NOT_READY;
}

/* ---- modules and launches ---- */

int cuModuleLoadData(by__cuda_module *out, const void *image)
{
    BEGIN(cuModuleLoadData, true);
    NOT_WHILE_CAPTURING;
    *out = (void *)(uintptr_t)image;
    return image == NULL ? INVALID_VALUE : BY__CUDA_SUCCESS;
}

int cuModuleUnload(by__cuda_module module)
{
    BEGIN(cuModuleUnload, true);
    return module == NULL ? INVALID_VALUE : BY__CUDA_SUCCESS;
}

int cuModuleGetFunction(by__cuda_function *out, by__cuda_module module, const char *name)
{
    BEGIN(cuModuleGetFunction, true);
    (void)module;
    size_t args = emulator_args_bytes(name);
    if (args == 0) {
        return BY__CUDA_NOT_FOUND;
    }
    function *f = calloc(1, sizeof *f);
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    f->args = args;
    f->shared = BY__CUDA_SHARED_BYTES;
    standin_lock();
    f->next = standin_state.functions; /* kept: a process loads few modules */
    standin_state.functions = f;
    standin_unlock();
    *out = f;
    return BY__CUDA_SUCCESS;
}

int cuFuncSetAttribute(by__cuda_function function_, int property, int value)
{
    BEGIN(cuFuncSetAttribute, true);
    if (property != BY__CUDA_FUNCTION_SHARED_BYTES || value < 0 || value > 227 << 10) {
        return INVALID_VALUE;
    }
    ((function *)function_)->shared = (unsigned)value;
    return BY__CUDA_SUCCESS;
}

typedef struct launch {
    const function *kernel;
    emulator_grid grid;
    unsigned char args[];
} launch;

static bool run_launch(void *data)
{
    const launch *l = data;
    if (emulator_launch(&l->grid, l->kernel->name, l->args) != 0) {
        standin_fault("%s: %s", l->kernel->name, emulator_fault());
        return false;
    }
    return true;
}

int cuLaunchKernel(by__cuda_function function_, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   by__cuda_stream stream_, void **parameters, void **extra)
{
    BEGIN(cuLaunchKernel, true);
    const function *f = function_;
    (void)extra;
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || grid_x > 0x7fffffff || grid_y > 65535 ||
        grid_z > 65535 || block_x == 0 || block_y != 1 || block_z != 1 || block_x > 1024 ||
        shared_bytes > f->shared) {
        return INVALID_VALUE;
    }
    launch *l = calloc(1, sizeof *l + f->args);
    l->kernel = f;
    l->grid =
        (emulator_grid){.grid = {grid_x, grid_y, grid_z}, .block = block_x, .shared = shared_bytes};
    memcpy(l->args, parameters[0], f->args);
    return standin_submit(stream_, f->name, NULL, 0, run_launch, l);
}

/* ---- the machine ---- */

int cuInit(unsigned flags)
{
    (void)flags;
    standin_lock();
    standin_state.draws = (uint64_t)standin_number_of("BANYAN_STANDIN_SEED", 1);
    emulator_seed((unsigned)standin_state.draws);
    standin_state.version = (int)standin_number_of("BANYAN_STANDIN_VERSION", 12090);
    standin_state.capability = (int)standin_number_of("BANYAN_STANDIN_CAPABILITY", 90);
    standin_state.devices = (int)standin_number_of("BANYAN_STANDIN_DEVICES", 1);
    standin_state.memory = (size_t)standin_number_of("BANYAN_STANDIN_MEMORY", 8L << 30);
    standin_state.checks = standin_number_of("BANYAN_STANDIN_CHECK", 0) != 0;
    emulator_check(standin_state.checks);
    /* What an earlier test left behind. */
    bool idle = true;
    for (const work *w = standin_state.first; w != NULL; w = w->next) {
        idle = idle && w->done;
    }
    if (idle) {
        standin_state.host = standin_state.done;
        standin_forget();
        standin_state.fault[0] = '\0';
    }
    standin_read_failure();
    standin_unlock();
    BEGIN(cuInit, false);
    return standin_state.devices == 0 ? BY__CUDA_NO_DEVICE : BY__CUDA_SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    BEGIN(cuDriverGetVersion, false);
    *version = standin_state.version;
    return BY__CUDA_SUCCESS;
}

int cuGetErrorName(int result, const char **name)
{
    *name = result == ILLEGAL_ADDRESS          ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == BY__CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                               : "CUDA_ERROR";
    return BY__CUDA_SUCCESS;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == ILLEGAL_ADDRESS && standin_state.fault[0] != '\0' ? standin_state.fault
                                                                        : "the stand-in says so";
    return BY__CUDA_SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    BEGIN(cuDeviceGetCount, false);
    *count = standin_state.devices;
    return BY__CUDA_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    BEGIN(cuDeviceGet, false);
    *device = ordinal;
    return ordinal >= 0 && ordinal < standin_state.devices ? BY__CUDA_SUCCESS : 101;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN(cuDeviceGetName, false);
    (void)snprintf(name, (size_t)bytes, "stand-in %d", device);
    return BY__CUDA_SUCCESS;
}

int cuDeviceGetPCIBusId(char *pci, int bytes, int device)
{
    BEGIN(cuDeviceGetPCIBusId, false);
    (void)snprintf(pci, (size_t)bytes, "0000:%d:00.0", 41 + device);
    return BY__CUDA_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int property, int device)
{
    BEGIN(cuDeviceGetAttribute, false);
    (void)device;
    switch (property) {
    case BY__CUDA_CAPABILITY_MAJOR:
        *value = standin_state.capability / 10;
        break;
    case BY__CUDA_CAPABILITY_MINOR:
        *value = standin_state.capability % 10;
        break;
    case BY__CUDA_MULTIPROCESSORS:
        *value = 132;
        break;
    case BY__CUDA_SHARED_OPTIN:
        *value = 227 << 10;
        break;
    default:
        return INVALID_VALUE;
    }
    return BY__CUDA_SUCCESS;
}

int cuDevicePrimaryCtxRetain(by__cuda_context *context, int device)
{
    BEGIN(cuDevicePrimaryCtxRetain, false);
    (void)device;
    *context = &the_context;
    return BY__CUDA_SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN(cuDevicePrimaryCtxRelease_v2, false);
    (void)device;
    return BY__CUDA_SUCCESS;
}

int cuCtxSetCurrent(by__cuda_context context)
{
    BEGIN(cuCtxSetCurrent, false);
    has_context = context != NULL;
    return BY__CUDA_SUCCESS;
}
