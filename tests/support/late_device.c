#include "late_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "ops/ops.h"

#define MAX_RANGES 32

/* How many pieces of work of each queue come before something. */
typedef struct clock_vector {
    size_t at[BY__QUEUE_COUNT];
} clock_vector;

typedef struct range {
    uintptr_t begin;
    uintptr_t end;
    bool write;
} range;

typedef enum work_kind { COPY, FILL, CALL } work_kind;

/* A piece of submitted work. */
typedef struct work {
    work_kind kind;
    by__device_queue queue;
    size_t index; /* on its queue */
    clock_vector after;
    range ranges[MAX_RANGES];
    size_t range_count;
    /* copies and fills; hashed and poisoned are of host memory */
    void *to;
    const void *from;
    size_t bytes;
    uint8_t byte;
    bool hashed;
    uint64_t hash;
    /* calls: as they were bound at submit */
    by__device_recording *recording;
    size_t call_index;
    by__device_call call;
    by__device_tensor *operands;
    by__device_call_hook *hook;
    void *user;
} work;

typedef struct block {
    void *data;
    size_t bytes;
    size_t mapped;
    bool pinned;
} block;

typedef struct late_event {
    by__device_event base;
    struct late_event *next;
    clock_vector clock; /* what it stands for */
    bool timed;
    bool reached;
    double seconds;
} late_event;

/* Memory of all handles of a device. */
typedef struct late_memory {
    pthread_mutex_t lock; /* recursive; held by whatever reads it, and while work runs */
    block *blocks;
    size_t block_count;
    size_t block_capacity;
    uint64_t used; /* not pinned */
    int handles;
} late_memory;

typedef struct late_device {
    by_device base;
    by_device *cpu;
    late_options options;
    late_memory *memory;
    uint32_t key[2];
    uint32_t draws;
    work **works; /* all that the host has not waited for, in the order of submission */
    size_t work_count;
    size_t work_capacity;
    clock_vector queue[BY__QUEUE_COUNT]; /* what the next work of a queue comes after */
    clock_vector submitted;
    clock_vector done;
    clock_vector host; /* what the host has waited for */
    late_event *events;
    by_error failure; /* of a kernel */
    char fault[300];
} late_device;

const char *late_device_fault(const by_device *device)
{
    return ((const late_device *)device)->fault;
}

size_t late_device_waiting(const by_device *device)
{
    const late_device *d = (const late_device *)device;
    size_t count = 0;
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        count += d->submitted.at[q] - d->done.at[q];
    }
    return count;
}

static void join(clock_vector *clock, const clock_vector *other)
{
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        clock->at[q] = other->at[q] > clock->at[q] ? other->at[q] : clock->at[q];
    }
}

static bool covers(const clock_vector *clock, const clock_vector *other)
{
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        if (clock->at[q] < other->at[q]) {
            return false;
        }
    }
    return true;
}

/* ---- faults ---- */

#define FAULT(d, ...)                                                                              \
    do {                                                                                           \
        if ((d)->fault[0] == '\0') {                                                               \
            (void)snprintf((d)->fault, sizeof(d)->fault, __VA_ARGS__);                             \
        }                                                                                          \
    } while (0)

static const char *name_of(const work *w)
{
    return w->kind == CALL   ? w->recording->list->kernels[w->call_index]->name
           : w->kind == COPY ? "a copy"
                             : "a fill";
}

static bool overlap(const range *a, const range *b)
{
    return a->begin < b->end && b->begin < a->end;
}

static bool touches(const work *w, uintptr_t begin, size_t bytes)
{
    range all = {begin, begin + bytes, true};
    for (size_t i = 0; i < w->range_count; i++) {
        if (overlap(&w->ranges[i], &all)) {
            return true;
        }
    }
    return false;
}

/* Whether both use the same memory, one of them writing. */
static bool conflict(const work *a, const work *b)
{
    for (size_t i = 0; i < a->range_count; i++) {
        for (size_t j = 0; j < b->range_count; j++) {
            if ((a->ranges[i].write || b->ranges[j].write) &&
                overlap(&a->ranges[i], &b->ranges[j])) {
                return true;
            }
        }
    }
    return false;
}

static void check_order(late_device *d, const work *w)
{
    for (size_t i = 0; i < d->work_count; i++) {
        const work *earlier = d->works[i];
        if (w->after.at[earlier->queue] <= earlier->index && conflict(earlier, w)) {
            FAULT(d,
                  "%s on the %s queue and %s on the %s queue use the same memory, and no event "
                  "orders them",
                  name_of(earlier), by__device_queue_name(earlier->queue), name_of(w),
                  by__device_queue_name(w->queue));
        }
    }
}

static void check_unused(late_device *d, uintptr_t address, size_t bytes, const char *what)
{
    for (size_t i = 0; i < d->work_count; i++) {
        if (touches(d->works[i], address, bytes)) {
            FAULT(d, "%s was freed while %s may use it", what, name_of(d->works[i]));
        }
    }
}

static void lock(late_device *d)
{
    (void)pthread_mutex_lock(&d->memory->lock);
}

static void unlock(late_device *d)
{
    (void)pthread_mutex_unlock(&d->memory->lock);
}

static void check_block(late_device *d, const void *data, size_t bytes, bool pinned)
{
    bool found = false;
    lock(d);
    for (size_t i = 0; i < d->memory->block_count && !found; i++) {
        const block *b = &d->memory->blocks[i];
        uintptr_t begin = (uintptr_t)b->data;
        found = b->pinned == pinned && (uintptr_t)data >= begin &&
                (uintptr_t)data + bytes <= begin + b->bytes;
    }
    unlock(d);
    if (found) {
        return;
    }
    FAULT(d, "%s",
          pinned ? "a copy that does not block uses host memory that is not pinned"
                 : "work uses memory that the device does not have");
}

/* ---- running ---- */

static void protect(late_device *d, int protection)
{
    for (size_t i = 0; i < d->memory->block_count; i++) {
        const block *b = &d->memory->blocks[i];
        if (!b->pinned) {
            (void)mprotect(b->data, b->mapped, protection);
        }
    }
}

/* Only the block that has this range. */
static void protect_block(late_device *d, uintptr_t address, int protection)
{
    for (size_t i = 0; i < d->memory->block_count; i++) {
        const block *b = &d->memory->blocks[i];
        if (!b->pinned && address - (uintptr_t)b->data < b->mapped) {
            (void)mprotect(b->data, b->mapped, protection);
        }
    }
}

static void run_call(late_device *d, work *w)
{
    const by__device_command_list *list = w->recording->list;
    double begin = by__now();
    by__device_context context = *by__device_context_of(d->cpu);
    context.collectives = d->base.context.collectives;
    by_status status = list->kernels[w->call_index]->run(&w->call, &context);
    if (status != BY_OK && d->failure.status == BY_OK) {
        (void)by__device_call_failed(list, w->call_index, &context, status, &d->failure);
        if (d->options.vague) {
            (void)by_error_set(&d->failure, status, "the device has failed");
        }
    }
    if (w->hook != NULL) {
        w->hook(w->user, (int)w->call_index, begin, by__now());
    }
}

static void run_work(late_device *d, work *w)
{
    if (w->hashed && by__hash64(w->from, w->bytes) != w->hash) {
        FAULT(d, "pinned memory was changed before the copy from it ran");
    }
    switch (w->kind) {
    case COPY:
        if (w->bytes > 0) { /* an empty tensor has no address */
            memmove(w->to, w->from, w->bytes);
        }
        break;
    case FILL:
        if (w->bytes > 0) {
            memset(w->to, w->byte, w->bytes);
        }
        break;
    default:
        run_call(d, w);
    }
    d->done.at[w->queue]++;
    for (late_event *e = d->events; e != NULL; e = e->next) {
        if (e->timed && !e->reached && covers(&d->done, &e->clock)) {
            e->reached = true;
            e->seconds = by__now();
        }
    }
}

/* The work at the front of a queue. */
static work *front(const late_device *d, int queue)
{
    for (size_t i = 0; i < d->work_count; i++) {
        if ((int)d->works[i]->queue == queue && d->works[i]->index == d->done.at[queue]) {
            return d->works[i];
        }
    }
    return NULL;
}

/* Raises `target` to all that must run before it. */
static void close_over(const late_device *d, clock_vector *target)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t i = 0; i < d->work_count; i++) {
            const work *w = d->works[i];
            if (w->index < target->at[w->queue] && !covers(target, &w->after)) {
                join(target, &w->after);
                grew = true;
            }
        }
    }
}

/* Runs one piece of work that the target needs; false when there is none left. */
static bool step(late_device *d, const clock_vector *target)
{
    work *ready[BY__QUEUE_COUNT];
    uint32_t count = 0;
    uint32_t bits[4];
    const uint32_t counter[4] = {d->draws++, 0, 0, 0};
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        work *w = d->done.at[q] < target->at[q] ? front(d, q) : NULL;
        if (w != NULL && covers(&d->done, &w->after)) {
            ready[count++] = w;
        }
    }
    if (count == 0) {
        return false;
    }
    by__philox(bits, d->key, counter);
    run_work(d, ready[bits[0] % count]);
    return true;
}

/* Drops what the host has waited for. */
static void forget(late_device *d)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->work_count; i++) {
        work *w = d->works[i];
        if (w->index < d->host.at[w->queue]) {
            free(w->operands);
            free(w);
        } else {
            d->works[kept++] = w;
        }
    }
    d->work_count = kept;
}

static by_status run_until(late_device *d, clock_vector target, by_error *error)
{
    close_over(d, &target);
    lock(d);
    protect(d, PROT_READ | PROT_WRITE);
    while (step(d, &target)) {
    }
    protect(d, PROT_NONE);
    unlock(d);
    join(&d->host, &target);
    forget(d);
    if (d->fault[0] != '\0') {
        return by_error_set(error, BY_EDEVICE, "%s", d->fault);
    }
    if (d->failure.status != BY_OK) {
        return by_error_set(error, d->failure.status, "%s", d->failure.message);
    }
    return BY_OK;
}

/* ---- submitting ---- */

static void add_range(work *w, const void *data, size_t bytes, bool write)
{
    if (data != NULL && bytes > 0 && w->range_count < MAX_RANGES) {
        w->ranges[w->range_count++] = (range){(uintptr_t)data, (uintptr_t)data + bytes, write};
    }
}

static by_status submit_work(late_device *d, const work *like, by_error *error)
{
    work *w;
    BY_TRY(by__reserve((void **)&d->works, &d->work_capacity, d->work_count + 1, sizeof *d->works,
                       error));
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "work", error));
    *w = *like;
    w->index = d->submitted.at[w->queue]++;
    clock_vector *queue = &d->queue[w->queue];
    join(queue, &d->host);
    w->after = *queue;
    queue->at[w->queue] = w->index + 1;
    check_order(d, w);
    d->works[d->work_count++] = w;
    return BY_OK;
}

static bool in_use(const late_device *d, const void *data, size_t bytes)
{
    for (size_t i = 0; i < d->work_count; i++) {
        if (touches(d->works[i], (uintptr_t)data, bytes)) {
            return true;
        }
    }
    return false;
}

static by_status copy_in(by__device_queue queue, by_memory to, const void *from, by_error *error)
{
    late_device *d = (late_device *)to.device;
    work w = {.kind = COPY, .queue = queue, .to = (void *)to.address, .from = from};
    w.bytes = to.bytes;
    check_block(d, from, to.bytes, true);
    check_block(d, w.to, to.bytes, false);
    /* What a copy that has not run yet will put there has no hash yet. */
    w.hashed = !in_use(d, from, to.bytes);
    w.hash = w.hashed ? by__hash64(from, to.bytes) : 0;
    add_range(&w, from, to.bytes, false);
    add_range(&w, w.to, to.bytes, true);
    return submit_work(d, &w, error);
}

static by_status copy_out(by__device_queue queue, void *to, by_memory from, by_error *error)
{
    late_device *d = (late_device *)from.device;
    work w = {.kind = COPY, .queue = queue, .to = to, .from = (const void *)from.address};
    w.bytes = from.bytes;
    check_block(d, to, from.bytes, true);
    check_block(d, w.from, from.bytes, false);
    if (!in_use(d, to, from.bytes)) {
        memset(to, 0xff, from.bytes);
    }
    add_range(&w, w.from, from.bytes, false);
    add_range(&w, to, from.bytes, true);
    return submit_work(d, &w, error);
}

static by_status copy(by__device_queue queue, by_memory to, by_memory from, by_error *error)
{
    late_device *d = (late_device *)to.device;
    work w = {.kind = COPY, .queue = queue, .to = (void *)to.address, .bytes = to.bytes};
    w.from = (const void *)from.address;
    check_block(d, w.from, to.bytes, false);
    check_block(d, w.to, to.bytes, false);
    add_range(&w, w.from, to.bytes, false);
    add_range(&w, w.to, to.bytes, true);
    return submit_work(d, &w, error);
}

static by_status fill(by__device_queue queue, by_memory memory, uint8_t byte, by_error *error)
{
    late_device *d = (late_device *)memory.device;
    work w = {.kind = FILL, .queue = queue, .to = (void *)memory.address, .bytes = memory.bytes};
    w.byte = byte;
    check_block(d, w.to, memory.bytes, false);
    add_range(&w, w.to, memory.bytes, true);
    return submit_work(d, &w, error);
}

/* ---- programs ---- */

static by_status recording_open(by__device_recording **out, by_device *device,
                                const by__device_command_list *list, by_error *error)
{
    BY_UNUSED(device);
    BY_UNUSED(list);
    return by__alloc((void **)out, 1, sizeof **out, "program", error);
}

static void recording_close(by__device_recording *recording)
{
    late_device *d = (late_device *)recording->device;
    for (size_t i = 0; i < d->work_count; i++) {
        if (d->works[i]->recording == recording) {
            FAULT(d, "program '%s' was closed while it may run", recording->list->name);
        }
    }
    /* It is not run any more: what it points to is gone. */
    for (size_t i = 0; i < d->work_count; i++) {
        if (d->works[i]->recording == recording) {
            d->works[i]->kind = FILL;
            d->works[i]->bytes = 0;
            d->works[i]->recording = NULL;
        }
    }
    free(recording);
}

static size_t tensor_bytes(const by__device_tensor *tensor)
{
    return tensor->shape.rank < 0
               ? 0
               : (size_t)by_shape_count(&tensor->shape) * by_dtype_size(tensor->dtype);
}

/* A call as it is bound now. */
static by_status submit_call(late_device *d, by__device_recording *recording,
                             const by__device_command *command, by__device_call_hook *hook,
                             void *user, by_error *error)
{
    const by__device_call *call = &recording->list->calls[command->index];
    size_t slots =
        (size_t)(call->input_count > BY__MAX_INPUTS ? call->input_count : BY__MAX_INPUTS);
    uint32_t mutates = by__op_mutates(call->op, &call->attrs);
    work w = {.kind = CALL, .queue = command->queue, .recording = recording, .hook = hook};
    w.user = user;
    w.call_index = command->index;
    BY_TRY(by__alloc((void **)&w.operands, slots, sizeof *w.operands, "work", error));
    memcpy(w.operands, call->in, slots * sizeof *w.operands);
    w.call = *call;
    w.call.in = w.operands;
    for (int i = 0; i < call->input_count; i++) {
        add_range(&w, call->in[i].data, tensor_bytes(&call->in[i]), by__mask_has(mutates, i));
    }
    for (int i = 0; i < call->output_count; i++) {
        add_range(&w, call->out[i].data, tensor_bytes(&call->out[i]), true);
    }
    add_range(&w, call->work, call->work_bytes, true);
    for (size_t i = 0; i < w.range_count; i++) {
        check_block(d, (const void *)w.ranges[i].begin, w.ranges[i].end - w.ranges[i].begin, false);
    }
    return submit_work(d, &w, error);
}

/* Other queues begin after what the compute queue holds; it goes on after all of them. */
static by_status submit(by__device_recording *recording, bool rebound, by__device_call_hook *hook,
                        void *user, by_error *error)
{
    late_device *d = (late_device *)recording->device;
    const by__device_command_list *list = recording->list;
    clock_vector *events = NULL;
    clock_vector *compute = &d->queue[BY__QUEUE_COMPUTE];
    bool used[BY__QUEUE_COUNT] = {false};
    BY_UNUSED(rebound);
    BY_TRY(by__alloc((void **)&events, list->event_count + 1, sizeof *events, "events", error));
    clock_vector begin = *compute;
    by_status status = BY_OK;
    for (size_t i = 0; i < list->command_count && status == BY_OK; i++) {
        const by__device_command *command = &list->commands[i];
        clock_vector *queue = &d->queue[command->queue];
        if (!used[command->queue]) {
            join(queue, &begin);
            used[command->queue] = true;
        }
        if (command->kind == BY__COMMAND_CALL) {
            status = submit_call(d, recording, command, hook, user, error);
        } else if (command->kind == BY__COMMAND_RECORD) {
            events[command->index] = *queue;
        } else {
            join(queue, &events[command->index]);
        }
    }
    for (int q = 0; q < BY__QUEUE_COUNT; q++) {
        if (used[q]) {
            join(compute, &d->queue[q]);
        }
    }
    free(events);
    return status;
}

/* ---- waiting ---- */

static by_status finish(by_device *device, by__device_queue queue, by_error *error)
{
    late_device *d = (late_device *)device;
    clock_vector target = {{0}};
    target.at[queue] = d->submitted.at[queue];
    return run_until(d, target, error);
}

static by_status event_open(by__device_event **out, by_device *device, bool timed, by_error *error)
{
    late_device *d = (late_device *)device;
    late_event *event;
    BY_TRY(by__alloc((void **)&event, 1, sizeof *event, "event", error));
    event->timed = timed;
    event->next = d->events;
    d->events = event;
    *out = &event->base;
    return BY_OK;
}

static void event_close(by__device_event *event)
{
    late_event **place = &((late_device *)event->device)->events;
    while (&(*place)->base != event) {
        place = &(*place)->next;
    }
    *place = (*place)->next;
    free(event);
}

static by_status event_record(by__device_event *event, by__device_queue queue, by_error *error)
{
    late_event *e = (late_event *)event;
    late_device *d = (late_device *)event->device;
    BY_UNUSED(error);
    e->clock = d->queue[queue];
    e->reached = covers(&d->done, &e->clock);
    e->seconds = by__now();
    return BY_OK;
}

static by_status event_order(by__device_event *event, by__device_queue queue, by_error *error)
{
    BY_UNUSED(error);
    join(&((late_device *)event->device)->queue[queue], &((late_event *)event)->clock);
    return BY_OK;
}

static by_status event_wait(by__device_event *event, by_error *error)
{
    return run_until((late_device *)event->device, ((late_event *)event)->clock, error);
}

/* Each question brings the answer one piece of work nearer. */
static by_status event_done(bool *done, by__device_event *event, by_error *error)
{
    late_device *d = (late_device *)event->device;
    clock_vector target = ((late_event *)event)->clock;
    if (covers(&d->done, &target)) {
        *done = true;
        return event_wait(event, error);
    }
    close_over(d, &target);
    lock(d);
    protect(d, PROT_READ | PROT_WRITE);
    (void)step(d, &target);
    protect(d, PROT_NONE);
    unlock(d);
    *done = false;
    return BY_OK;
}

static by_status event_seconds(double *seconds, by__device_event *from, by__device_event *to,
                               by_error *error)
{
    const late_event *begin = (const late_event *)from;
    const late_event *end = (const late_event *)to;
    if (!begin->timed || !end->timed || !begin->reached || !end->reached) {
        return by_error_set(error, BY_ESTATE, "event times: not timed, or not done");
    }
    *seconds = end->seconds - begin->seconds;
    return BY_OK;
}

/* ---- memory ---- */

static by_status map(void **out, by_device *device, size_t bytes, bool pinned, const char *what,
                     by_error *error)
{
    late_device *d = (late_device *)device;
    late_memory *m = d->memory;
    size_t mapped = by__round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    void *data = MAP_FAILED;
    lock(d);
    bool fits = pinned || d->options.memory == 0 || m->used + bytes <= d->options.memory;
    if (fits && mapped >= bytes &&
        by__reserve((void **)&m->blocks, &m->block_capacity, m->block_count + 1, sizeof *m->blocks,
                    NULL) == BY_OK) {
        data = mmap(NULL, mapped, pinned ? PROT_READ | PROT_WRITE : PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (data != MAP_FAILED) {
        m->blocks[m->block_count++] = (block){data, bytes, mapped, pinned};
        m->used += pinned ? 0 : bytes;
        *out = data;
    }
    unlock(d);
    return data != MAP_FAILED ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: %s", what);
}

static void unmap(by_device *device, void *data, size_t bytes)
{
    late_device *d = (late_device *)device;
    late_memory *m = d->memory;
    bool found = false;
    check_unused(d, (uintptr_t)data, bytes, "memory");
    lock(d);
    for (size_t i = 0; i < m->block_count && !found; i++) {
        found = m->blocks[i].data == data;
        /* Work that still wants it must not crash the test. */
        if (found && !in_use(d, data, bytes)) {
            (void)munmap(data, m->blocks[i].mapped);
            m->used -= m->blocks[i].pinned ? 0 : m->blocks[i].bytes;
            m->blocks[i] = m->blocks[--m->block_count];
        }
    }
    unlock(d);
    if (!found) {
        FAULT(d, "memory was freed that the device does not have");
    }
}

static by_status take(uintptr_t *out, by_device *device, size_t bytes, const char *what,
                      by_error *error)
{
    void *data = NULL;
    BY_TRY(map(&data, device, bytes, false, what, error));
    *out = (uintptr_t)data;
    return BY_OK;
}

static void give(by_device *device, uintptr_t address, size_t bytes)
{
    unmap(device, (void *)address, bytes);
}

static by_status pin(void **out, by_device *device, size_t bytes, const char *what, by_error *error)
{
    return map(out, device, bytes, true, what, error);
}

static by_status write_memory(by_memory to, const void *from, by_error *error)
{
    late_device *d = (late_device *)to.device;
    BY_UNUSED(error);
    lock(d);
    protect_block(d, to.address, PROT_READ | PROT_WRITE);
    memcpy((void *)to.address, from, to.bytes);
    protect_block(d, to.address, PROT_NONE);
    unlock(d);
    return BY_OK;
}

static by_status read_memory(void *to, by_memory from, by_error *error)
{
    late_device *d = (late_device *)from.device;
    BY_UNUSED(error);
    lock(d);
    protect_block(d, from.address, PROT_READ | PROT_WRITE);
    memcpy(to, (const void *)from.address, from.bytes);
    protect_block(d, from.address, PROT_NONE);
    unlock(d);
    return BY_OK;
}

/* ---- the device ---- */

static by_status describe(by_device_info *out, const by_device *device, by_error *error)
{
    const late_device *d = (const late_device *)device;
    BY_TRY(d->cpu->ops->describe(out, d->cpu, error));
    (void)snprintf(out->kind, sizeof out->kind, "late");
    (void)snprintf(out->name, sizeof out->name, "late device");
    if (d->options.memory > 0) {
        lock((late_device *)(uintptr_t)device);
        out->memory_total = d->options.memory;
        out->memory_free = d->options.memory - d->memory->used;
        unlock((late_device *)(uintptr_t)device);
    }
    return BY_OK;
}

static by_status kernel(const by__device_kernel **out, by_device *device,
                        const by__device_call *call, by_error *error)
{
    return by__device_find_kernel(out, ((late_device *)device)->cpu, call, error);
}

static void close_device(by_device *device)
{
    late_device *d = (late_device *)device;
    join(&d->host, &d->submitted);
    forget(d);
    lock(d);
    late_memory *m = d->memory;
    bool last = --m->handles == 0;
    unlock(d);
    for (size_t i = 0; i < m->block_count && last; i++) {
        (void)munmap(m->blocks[i].data, m->blocks[i].mapped);
    }
    if (last) {
        (void)pthread_mutex_destroy(&m->lock);
        free(m->blocks);
        free(m);
    }
    by_device_close(&d->cpu);
    free(d->works);
    free(d);
}

static by_status submit_one(by__device_recording *recording, const by__device_command *command,
                            by_error *error)
{
    return submit_call((late_device *)recording->device, recording, command, NULL, NULL, error);
}

static by_status share(by_device **out, by_device *device, int threads, by_error *error);

static const by__device_ops late_ops = {
    .close = close_device,
    .describe = describe,
    .alloc = take,
    .free = give,
    .pin = pin,
    .unpin = unmap,
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
    .submit_call = submit_one,
    .share = share,
};

static by_status open_handle(by_device **out, const late_options *options, late_memory *memory,
                             by_error *error)
{
    late_device *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "device", error));
    by_status status = by_device_open(&d->cpu, "cpu", options->threads, error);
    if (status != BY_OK) {
        free(d);
        return status;
    }
    d->base =
        (by_device){.ops = &late_ops,
                    .context = {.device = &d->base, .threads = d->cpu->context.threads},
                    .alignment = options->alignment == 0 ? d->cpu->alignment : options->alignment,
                    .panels = !options->plain,
                    .names_nodes = !options->vague};
    d->options = *options;
    d->memory = memory;
    memory->handles++;
    by__philox_key(d->key, options->seed, 0);
    *out = &d->base;
    return BY_OK;
}

static by_status share(by_device **out, by_device *device, int threads, by_error *error)
{
    late_device *d = (late_device *)device;
    late_options options = d->options;
    options.threads = threads;
    options.seed++;
    lock(d);
    by_status status = open_handle(out, &options, d->memory, error);
    unlock(d);
    return status;
}

by_status late_device_open_as(by_device **out, const late_options *options, by_error *error)
{
    late_memory *memory;
    pthread_mutexattr_t recursive;
    BY_TRY(by__alloc((void **)&memory, 1, sizeof *memory, "device", error));
    (void)pthread_mutexattr_init(&recursive);
    (void)pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    (void)pthread_mutex_init(&memory->lock, &recursive);
    (void)pthread_mutexattr_destroy(&recursive);
    by_status status = open_handle(out, options, memory, error);
    if (status != BY_OK) {
        (void)pthread_mutex_destroy(&memory->lock);
        free(memory);
    }
    return status;
}

by_status late_device_open(by_device **out, uint64_t seed, int threads, by_error *error)
{
    const late_options options = {.seed = seed, .threads = threads};
    return late_device_open_as(out, &options, error);
}
