#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"
#include "standin.h"

#define MAX_STREAMS     32
#define MAX_RANGES      8
#define PAGE            ((size_t)4096)
#define INVALID_VALUE   1
#define INVALID_CONTEXT 201
#define ILLEGAL_ADDRESS 700

/* How many pieces of work of each stream come before something. */
typedef struct clock_vector {
    size_t at[MAX_STREAMS];
} clock_vector;

typedef struct stream {
    int index;
    clock_vector next; /* what its next work comes after */
} stream;

typedef struct event {
    struct event *next;
    clock_vector clock;
    bool timed;
    bool reached;
    double time;
} event;

typedef struct function {
    struct function *next;
    char name[64];
    size_t args;
    unsigned shared;
} function;

typedef struct work {
    struct work *next; /* in the order of submission */
    const char *name;
    int stream;
    size_t index; /* on its stream */
    clock_vector after;
    standin_range ranges[MAX_RANGES];
    size_t range_count;
    bool (*run)(void *data);
    void *data;
    const void *hashed; /* pinned memory that must not change */
    size_t hashed_bytes;
    uint64_t hash;
    bool done;
} work;

typedef struct block {
    struct block *next;
    char *data;
    size_t bytes;
    size_t mapped;
    bool pinned;
} block;

static struct {
    pthread_mutex_t lock;
    bool started;
    uint64_t draws;
    int version, capability, devices;
    size_t memory, used;
    char fail_name[64];
    long fail_call;
    int fail_result;
    char fault[400];
    bool used_stream[MAX_STREAMS];
    clock_vector submitted, done, host;
    work *first, **last;
    event *events;
    block *blocks;
    function *functions;
    double time;
} state = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static _Thread_local bool has_context;
static int the_context;

static void lock(void)
{
    (void)pthread_mutex_lock(&state.lock);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&state.lock);
}

/* ---- what the environment says ---- */

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? otherwise : strtol(text, NULL, 10);
}

static void read_failure(void)
{
    const char *text = getenv("BANYAN_STANDIN_FAIL");
    state.fail_call = 0;
    state.fail_result = 0;
    if (text == NULL || sscanf(text, "%63[^:]:%ld=%d", state.fail_name, &state.fail_call,
                               &state.fail_result) != 3) {
        state.fail_name[0] = '\0';
    }
}

bool standin_fails(const char *name, int *result)
{
    lock();
    bool fails = strcmp(name, state.fail_name) == 0 && --state.fail_call == 0;
    unlock();
    *result = state.fail_result;
    return fails;
}

void standin_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    lock();
    if (state.fault[0] == '\0') {
        (void)vsnprintf(state.fault, sizeof state.fault, format, arguments);
    }
    unlock();
    va_end(arguments);
}

const char *standin_first_fault(void)
{
    return state.fault;
}

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

/* ---- clocks ---- */

static void join(clock_vector *clock, const clock_vector *other)
{
    for (int s = 0; s < MAX_STREAMS; s++) {
        clock->at[s] = other->at[s] > clock->at[s] ? other->at[s] : clock->at[s];
    }
}

static bool covers(const clock_vector *clock, const clock_vector *other)
{
    for (int s = 0; s < MAX_STREAMS; s++) {
        if (clock->at[s] < other->at[s]) {
            return false;
        }
    }
    return true;
}

/* ---- memory ---- */

static block *block_of(const void *data, size_t bytes)
{
    for (block *b = state.blocks; b != NULL; b = b->next) {
        if ((const char *)data >= b->data && (size_t)((const char *)data - b->data) <= b->bytes &&
            bytes <= b->bytes - (size_t)((const char *)data - b->data)) {
            return b;
        }
    }
    return NULL;
}

static bool is_pinned(const void *data, size_t bytes)
{
    const block *b = block_of(data, bytes);
    return b != NULL && b->pinned;
}

static bool is_device(const void *data, size_t bytes)
{
    const block *b = block_of(data, bytes);
    return b != NULL && !b->pinned;
}

static void protect(int protection)
{
    for (block *b = state.blocks; b != NULL; b = b->next) {
        if (!b->pinned) {
            (void)mprotect(b->data, b->mapped, protection);
        }
    }
}

static bool overlap(const standin_range *a, const void *data, size_t bytes)
{
    const char *from = a->data;
    return from < (const char *)data + bytes && (const char *)data < from + a->bytes;
}

static bool touches(const work *w, const void *data, size_t bytes)
{
    for (size_t i = 0; i < w->range_count; i++) {
        if (overlap(&w->ranges[i], data, bytes)) {
            return true;
        }
    }
    return false;
}

static bool in_use(const void *data, size_t bytes)
{
    for (const work *w = state.first; w != NULL; w = w->next) {
        if (!w->done && touches(w, data, bytes)) {
            return true;
        }
    }
    return false;
}

/* ---- running ---- */

static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    }
    return hash;
}

static void run_work(work *w)
{
    if (w->hashed != NULL && hash_of(w->hashed, w->hashed_bytes) != w->hash) {
        standin_fault("pinned memory was changed before the copy from it ran");
    }
    if (!w->run(w->data)) {
        standin_fault("%s failed", w->name);
    }
    free(w->data);
    w->data = NULL;
    w->done = true;
    state.time += 1e-3;
    state.done.at[w->stream]++;
    for (event *e = state.events; e != NULL; e = e->next) {
        if (!e->reached && covers(&state.done, &e->clock)) {
            e->reached = true;
            e->time = state.time;
        }
    }
}

/* Raises `target` to all that must run before it. */
static void close_over(clock_vector *target)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (const work *w = state.first; w != NULL; w = w->next) {
            if (w->index < target->at[w->stream] && !covers(target, &w->after)) {
                join(target, &w->after);
                grew = true;
            }
        }
    }
}

static uint64_t draw(void)
{
    uint64_t x = state.draws += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Runs one piece of work that the target needs; false when there is none left. */
static bool step(const clock_vector *target)
{
    work *ready[MAX_STREAMS];
    size_t count = 0;
    for (work *w = state.first; w != NULL && count < MAX_STREAMS; w = w->next) {
        if (!w->done && w->index == state.done.at[w->stream] && w->index < target->at[w->stream] &&
            covers(&state.done, &w->after)) {
            ready[count++] = w;
        }
    }
    if (count > 0) {
        run_work(ready[draw() % count]);
    }
    return count > 0;
}

/* Drops what the host has waited for. */
static void forget(void)
{
    work **place = &state.first;
    while (*place != NULL) {
        work *w = *place;
        if (w->done && w->index < state.host.at[w->stream]) {
            *place = w->next;
            free(w);
        } else {
            place = &w->next;
        }
    }
    state.last = place;
}

static int run_until(clock_vector target)
{
    lock();
    close_over(&target);
    protect(PROT_READ | PROT_WRITE);
    while (step(&target)) {
    }
    protect(PROT_NONE);
    join(&state.host, &target);
    forget();
    int result = state.fault[0] == '\0' ? BY__CUDA_SUCCESS : ILLEGAL_ADDRESS;
    unlock();
    return result;
}

/* ---- submitting ---- */

static bool conflict(const work *a, const work *b)
{
    for (size_t i = 0; i < a->range_count; i++) {
        for (size_t j = 0; j < b->range_count; j++) {
            if ((a->ranges[i].write || b->ranges[j].write) &&
                overlap(&a->ranges[i], b->ranges[j].data, b->ranges[j].bytes)) {
                return true;
            }
        }
    }
    return false;
}

static void check_order(const work *w)
{
    for (const work *earlier = state.first; earlier != NULL; earlier = earlier->next) {
        if (w->after.at[earlier->stream] <= earlier->index && conflict(earlier, w)) {
            standin_fault("%s and %s on another stream use the same memory, and no event orders "
                          "them",
                          earlier->name, w->name);
        }
    }
}

static work *new_work(stream *s, const char *name, const standin_range *ranges, size_t count,
                      bool (*run)(void *), void *data)
{
    work *w = calloc(1, sizeof *w);
    if (w == NULL) {
        abort();
    }
    *w = (work){.name = name, .stream = s->index, .run = run, .data = data};
    for (size_t i = 0; i < count && w->range_count < MAX_RANGES; i++) {
        if (ranges[i].data != NULL && ranges[i].bytes > 0) {
            w->ranges[w->range_count++] = ranges[i];
        }
    }
    return w;
}

static void append(stream *s, work *w)
{
    w->index = state.submitted.at[s->index]++;
    join(&s->next, &state.host);
    w->after = s->next;
    s->next.at[s->index] = w->index + 1;
    check_order(w);
    *state.last = w;
    state.last = &w->next;
}

int standin_submit(by__cuda_stream stream_, const char *name, const standin_range *ranges,
                   size_t count, bool (*run)(void *data), void *data)
{
    lock();
    append(stream_, new_work(stream_, name, ranges, count, run, data));
    unlock();
    return BY__CUDA_SUCCESS;
}

void standin_written(const void *data, size_t bytes)
{
    emulator_written(data, bytes);
}

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
        emulator_written(t->to, t->bytes);
    }
    return true;
}

static bool run_fill(void *data)
{
    const transfer *t = data;
    memset(t->to, t->byte, t->bytes);
    emulator_written(t->to, t->bytes);
    return true;
}

int cuMemcpyHtoDAsync_v2(by__cuda_address to, const void *from, size_t bytes,
                         by__cuda_stream stream_)
{
    BEGIN(cuMemcpyHtoDAsync_v2, true);
    void *address = (void *)(uintptr_t)to;
    lock();
    bool pinned = is_pinned(from, bytes);
    if (!is_device(address, bytes)) {
        unlock();
        return INVALID_VALUE;
    }
    transfer *t = new_transfer(address, from, bytes, pinned ? 0 : bytes);
    t->to_device = true;
    if (!pinned) { /* the driver reads pageable memory before it returns */
        memcpy(t->staged, from, bytes);
        t->from = (const char *)t->staged;
    }
    const standin_range ranges[] = {{address, bytes, true}, {pinned ? from : NULL, bytes, false}};
    work *w = new_work(stream_, "a copy in", ranges, 2, run_copy, t);
    if (pinned && !in_use(from, bytes)) {
        w->hashed = from;
        w->hashed_bytes = bytes;
        w->hash = hash_of(from, bytes);
    }
    append(stream_, w);
    unlock();
    return BY__CUDA_SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, by__cuda_address from, size_t bytes, by__cuda_stream stream_)
{
    BEGIN(cuMemcpyDtoHAsync_v2, true);
    const void *address = (const void *)(uintptr_t)from;
    lock();
    bool pinned = is_pinned(to, bytes);
    if (!is_device(address, bytes)) {
        unlock();
        return INVALID_VALUE;
    }
    if (pinned && !in_use(to, bytes)) {
        memset(to, 0xff, bytes);
    }
    const standin_range ranges[] = {{address, bytes, false}, {pinned ? to : NULL, bytes, true}};
    append(stream_, new_work(stream_, "a copy out", ranges, 2, run_copy,
                             new_transfer(to, address, bytes, 0)));
    unlock();
    /* A copy to pageable memory blocks. */
    return pinned ? BY__CUDA_SUCCESS : cuStreamSynchronize(stream_);
}

int cuMemcpyDtoDAsync_v2(by__cuda_address to, by__cuda_address from, size_t bytes,
                         by__cuda_stream stream_)
{
    BEGIN(cuMemcpyDtoDAsync_v2, true);
    void *target = (void *)(uintptr_t)to;
    const void *source = (const void *)(uintptr_t)from;
    lock();
    bool known = is_device(target, bytes) && is_device(source, bytes);
    if (known) {
        const standin_range ranges[] = {{target, bytes, true}, {source, bytes, false}};
        transfer *t = new_transfer(target, source, bytes, 0);
        t->to_device = true;
        append(stream_, new_work(stream_, "a copy", ranges, 2, run_copy, t));
    }
    unlock();
    return known ? BY__CUDA_SUCCESS : INVALID_VALUE;
}

int cuMemsetD8Async(by__cuda_address to, unsigned char byte, size_t bytes, by__cuda_stream stream_)
{
    BEGIN(cuMemsetD8Async, true);
    void *target = (void *)(uintptr_t)to;
    lock();
    bool known = is_device(target, bytes);
    if (known) {
        const standin_range ranges[] = {{target, bytes, true}};
        transfer *t = new_transfer(target, NULL, bytes, 0);
        t->byte = byte;
        append(stream_, new_work(stream_, "a fill", ranges, 1, run_fill, t));
    }
    unlock();
    return known ? BY__CUDA_SUCCESS : INVALID_VALUE;
}

/* ---- allocation ---- */

static int map_block(void **out, size_t bytes, bool pinned)
{
    size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
    block *b = calloc(1, sizeof *b);
    lock();
    bool fits = b != NULL && bytes > 0 && (pinned || bytes <= state.memory - state.used);
    void *data =
        fits ? mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
             : MAP_FAILED;
    if (data == MAP_FAILED) {
        unlock();
        free(b);
        return BY__CUDA_OUT_OF_MEMORY;
    }
    memset(data, 0xff, mapped);
    *b = (block){state.blocks, data, bytes, mapped, pinned};
    state.blocks = b;
    if (!pinned) {
        state.used += bytes;
        emulator_memory_add(data, bytes);
        (void)mprotect(data, mapped, PROT_NONE);
    }
    unlock();
    *out = data;
    return BY__CUDA_SUCCESS;
}

static int unmap_block(void *data, bool pinned)
{
    int result = INVALID_VALUE;
    lock();
    for (block **place = &state.blocks; *place != NULL; place = &(*place)->next) {
        block *b = *place;
        if (b->data != data || b->pinned != pinned) {
            continue;
        }
        result = BY__CUDA_SUCCESS;
        if (in_use(b->data, b->bytes)) {
            /* Work that still wants it must not crash the test. */
            standin_fault("memory was freed while work may use it");
            break;
        }
        *place = b->next;
        if (!pinned) {
            state.used -= b->bytes;
            emulator_memory_remove(b->data);
        }
        (void)munmap(b->data, b->mapped);
        free(b);
        break;
    }
    unlock();
    return result;
}

int cuMemAlloc_v2(by__cuda_address *address, size_t bytes)
{
    BEGIN(cuMemAlloc_v2, true);
    void *data = NULL;
    int result = map_block(&data, bytes, false);
    *address = (uintptr_t)data;
    return result;
}

/* cuMemFree waits for all work of the device first. */
int cuMemFree_v2(by__cuda_address address)
{
    BEGIN(cuMemFree_v2, true);
    return unmap_block((void *)(uintptr_t)address, false);
}

int cuMemHostAlloc(void **data, size_t bytes, unsigned flags)
{
    BEGIN(cuMemHostAlloc, true);
    (void)flags;
    return map_block(data, bytes, true);
}

int cuMemFreeHost(void *data)
{
    BEGIN(cuMemFreeHost, true);
    return unmap_block(data, true);
}

int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    BEGIN(cuMemGetInfo_v2, true);
    *total = state.memory;
    *left = state.memory - state.used;
    return BY__CUDA_SUCCESS;
}

/* ---- streams and events ---- */

int cuStreamCreate(by__cuda_stream *out, unsigned flags)
{
    BEGIN(cuStreamCreate, true);
    stream *s = calloc(1, sizeof *s);
    (void)flags;
    lock();
    for (s->index = 0; s->index < MAX_STREAMS - 1 && state.used_stream[s->index];) {
        s->index++;
    }
    state.used_stream[s->index] = true;
    s->next.at[s->index] = state.submitted.at[s->index];
    unlock();
    *out = s;
    return BY__CUDA_SUCCESS;
}

int cuStreamDestroy_v2(by__cuda_stream stream_)
{
    BEGIN(cuStreamDestroy_v2, true);
    stream *s = stream_;
    int result = cuStreamSynchronize(stream_);
    lock();
    state.used_stream[s->index] = false;
    unlock();
    free(s);
    return result;
}

int cuStreamSynchronize(by__cuda_stream stream_)
{
    BEGIN(cuStreamSynchronize, true);
    clock_vector target = {{0}};
    const stream *s = stream_;
    lock();
    target.at[s->index] = state.submitted.at[s->index];
    unlock();
    return run_until(target);
}

int cuStreamWaitEvent(by__cuda_stream stream_, by__cuda_event event_, unsigned flags)
{
    BEGIN(cuStreamWaitEvent, true);
    (void)flags;
    lock();
    join(&((stream *)stream_)->next, &((event *)event_)->clock);
    unlock();
    return BY__CUDA_SUCCESS;
}

int cuEventCreate(by__cuda_event *out, unsigned flags)
{
    BEGIN(cuEventCreate, true);
    event *e = calloc(1, sizeof *e);
    lock();
    *e = (event){.next = state.events, .timed = (flags & BY__CUDA_EVENT_UNTIMED) == 0};
    state.events = e;
    unlock();
    *out = e;
    return BY__CUDA_SUCCESS;
}

int cuEventDestroy_v2(by__cuda_event event_)
{
    BEGIN(cuEventDestroy_v2, true);
    lock();
    for (event **place = &state.events; *place != NULL; place = &(*place)->next) {
        if (*place == event_) {
            *place = (*place)->next;
            break;
        }
    }
    unlock();
    free(event_);
    return BY__CUDA_SUCCESS;
}

int cuEventRecord(by__cuda_event event_, by__cuda_stream stream_)
{
    BEGIN(cuEventRecord, true);
    event *e = event_;
    lock();
    e->clock = ((const stream *)stream_)->next;
    e->reached = covers(&state.done, &e->clock);
    e->time = state.time;
    unlock();
    return BY__CUDA_SUCCESS;
}

int cuEventSynchronize(by__cuda_event event_)
{
    BEGIN(cuEventSynchronize, true);
    return run_until(((const event *)event_)->clock);
}

/* Each question brings the answer one piece of work nearer. */
int cuEventQuery(by__cuda_event event_)
{
    BEGIN(cuEventQuery, true);
    clock_vector target = ((const event *)event_)->clock;
    if (covers(&state.done, &target)) {
        return run_until(target);
    }
    lock();
    close_over(&target);
    protect(PROT_READ | PROT_WRITE);
    (void)step(&target);
    protect(PROT_NONE);
    unlock();
    return BY__CUDA_NOT_READY;
}

int cuEventElapsedTime(float *milliseconds, by__cuda_event from, by__cuda_event to)
{
    BEGIN(cuEventElapsedTime, true);
    const event *a = from;
    const event *b = to;
    if (!a->timed || !b->timed) {
        return 400; /* invalid handle */
    }
    *milliseconds = (float)(1e3 * (b->time - a->time));
    return a->reached && b->reached ? BY__CUDA_SUCCESS : BY__CUDA_NOT_READY;
}

/* ---- modules and launches ---- */

int cuModuleLoadData(by__cuda_module *out, const void *image)
{
    BEGIN(cuModuleLoadData, true);
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
    lock();
    f->next = state.functions; /* kept: a process loads few modules */
    state.functions = f;
    unlock();
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
    lock();
    state.draws = (uint64_t)number_of("BANYAN_STANDIN_SEED", 1);
    emulator_seed((unsigned)state.draws);
    state.version = (int)number_of("BANYAN_STANDIN_VERSION", 12090);
    state.capability = (int)number_of("BANYAN_STANDIN_CAPABILITY", 90);
    state.devices = (int)number_of("BANYAN_STANDIN_DEVICES", 1);
    state.memory = (size_t)number_of("BANYAN_STANDIN_MEMORY", 8L << 30);
    /* What an earlier test left behind. */
    bool idle = true;
    for (const work *w = state.first; w != NULL; w = w->next) {
        idle = idle && w->done;
    }
    if (idle) {
        state.host = state.done;
        forget();
        state.fault[0] = '\0';
    }
    read_failure();
    unlock();
    BEGIN(cuInit, false);
    return state.devices == 0 ? BY__CUDA_NO_DEVICE : BY__CUDA_SUCCESS;
}

int cuDriverGetVersion(int *version)
{
    BEGIN(cuDriverGetVersion, false);
    *version = state.version;
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
    *text =
        result == ILLEGAL_ADDRESS && state.fault[0] != '\0' ? state.fault : "the stand-in says so";
    return BY__CUDA_SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    BEGIN(cuDeviceGetCount, false);
    *count = state.devices;
    return BY__CUDA_SUCCESS;
}

int cuDeviceGet(int *device, int ordinal)
{
    BEGIN(cuDeviceGet, false);
    *device = ordinal;
    return ordinal >= 0 && ordinal < state.devices ? BY__CUDA_SUCCESS : 101;
}

int cuDeviceGetName(char *name, int bytes, int device)
{
    BEGIN(cuDeviceGetName, false);
    (void)snprintf(name, (size_t)bytes, "stand-in %d", device);
    return BY__CUDA_SUCCESS;
}

int cuDeviceGetAttribute(int *value, int property, int device)
{
    BEGIN(cuDeviceGetAttribute, false);
    (void)device;
    switch (property) {
    case BY__CUDA_CAPABILITY_MAJOR:
        *value = state.capability / 10;
        break;
    case BY__CUDA_CAPABILITY_MINOR:
        *value = state.capability % 10;
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
