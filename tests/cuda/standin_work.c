/* The work of the driver's stand-in: clocks, faults, and what runs next. */
#include "standin_work.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

standin_all standin_state = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

void standin_lock(void)
{
    (void)pthread_mutex_lock(&standin_state.lock);
}

void standin_unlock(void)
{
    (void)pthread_mutex_unlock(&standin_state.lock);
}

/* ---- what the environment says ---- */

long standin_number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? otherwise : strtol(text, NULL, 10);
}

void standin_read_failure(void)
{
    const char *text = getenv("BANYAN_STANDIN_FAIL");
    standin_state.fail_call = 0;
    standin_state.fail_result = 0;
    if (text == NULL || sscanf(text, "%63[^:]:%ld=%d", standin_state.fail_name,
                               &standin_state.fail_call, &standin_state.fail_result) != 3) {
        standin_state.fail_name[0] = '\0';
    }
}

bool standin_fails(const char *name, int *result)
{
    standin_lock();
    bool fails = strcmp(name, standin_state.fail_name) == 0 && --standin_state.fail_call == 0;
    standin_unlock();
    *result = standin_state.fail_result;
    return fails;
}

void standin_fault(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    standin_lock();
    if (standin_state.fault[0] == '\0') {
        (void)vsnprintf(standin_state.fault, sizeof standin_state.fault, format, arguments);
    }
    standin_unlock();
    va_end(arguments);
}

const char *standin_first_fault(void)
{
    return standin_state.fault;
}

/* ---- clocks ---- */

void standin_join(clock_vector *clock, const clock_vector *other)
{
    for (int s = 0; s < MAX_STREAMS; s++) {
        clock->at[s] = other->at[s] > clock->at[s] ? other->at[s] : clock->at[s];
    }
}

bool standin_covers(const clock_vector *clock, const clock_vector *other)
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
    for (block *b = standin_state.blocks; b != NULL; b = b->next) {
        if ((const char *)data >= b->data && (size_t)((const char *)data - b->data) <= b->bytes &&
            bytes <= b->bytes - (size_t)((const char *)data - b->data)) {
            return b;
        }
    }
    return NULL;
}

bool standin_is_pinned(const void *data, size_t bytes)
{
    const block *b = block_of(data, bytes);
    return b != NULL && b->pinned;
}

bool standin_is_device(const void *data, size_t bytes)
{
    const block *b = block_of(data, bytes);
    return b != NULL && !b->pinned;
}

void standin_protect(int protection)
{
    for (block *b = standin_state.blocks; b != NULL; b = b->next) {
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

bool standin_in_use(const void *data, size_t bytes)
{
    for (const work *w = standin_state.first; w != NULL; w = w->next) {
        if (!w->done && touches(w, data, bytes)) {
            return true;
        }
    }
    return false;
}

/* ---- running ---- */

uint64_t standin_hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    }
    return hash;
}

/* What launches do to memory is known when they run: the emulator compares it, by the clocks of
 * streams, with what ran before, whichever of both that was. */
static void check_touched(const work *w)
{
    uint32_t after[EMULATOR_QUEUES] = {0};
    emulator_span spans[MAX_RANGES];
    if (!standin_state.checks) {
        return;
    }
    for (int s = 0; s < MAX_STREAMS; s++) {
        after[s] = (uint32_t)w->after.at[s];
    }
    emulator_clock(w->stream, after);
    for (size_t i = 0; i < w->range_count; i++) {
        spans[i] = (emulator_span){w->ranges[i].data, w->ranges[i].bytes, w->ranges[i].write};
    }
    if (w->range_count > 0 && emulator_work(w->name, spans, w->range_count) != 0) {
        standin_fault("%s", emulator_fault());
    }
}

static void run_work(work *w)
{
    if (w->hashed != NULL && standin_hash_of(w->hashed, w->hashed_bytes) != w->hash) {
        standin_fault("the host has changed pinned memory of %s before that ran", w->name);
    }
    check_touched(w);
    if (!w->run(w->data)) {
        standin_fault("%s failed", w->name);
    }
    free(w->data);
    w->data = NULL;
    w->done = true;
    standin_state.time += 1e-3;
    standin_state.done.at[w->stream]++;
    for (event *e = standin_state.events; e != NULL; e = e->next) {
        if (!e->reached && standin_covers(&standin_state.done, &e->clock)) {
            e->reached = true;
            e->time = standin_state.time;
        }
    }
}

/* Raises `target` to all that must run before it. */
void standin_close_over(clock_vector *target)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (const work *w = standin_state.first; w != NULL; w = w->next) {
            if (w->index < target->at[w->stream] && !standin_covers(target, &w->after)) {
                standin_join(target, &w->after);
                grew = true;
            }
        }
    }
}

static uint64_t draw(void)
{
    uint64_t x = standin_state.draws += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Runs one piece of work that the target needs; false when there is none left. */
bool standin_step(const clock_vector *target)
{
    work *ready[MAX_STREAMS];
    size_t count = 0;
    for (work *w = standin_state.first; w != NULL && count < MAX_STREAMS; w = w->next) {
        if (!w->done && w->index == standin_state.done.at[w->stream] &&
            w->index < target->at[w->stream] && standin_covers(&standin_state.done, &w->after)) {
            ready[count++] = w;
        }
    }
    if (count > 0) {
        run_work(ready[draw() % count]);
    }
    return count > 0;
}

/* Drops what the host has waited for. */
void standin_forget(void)
{
    work **place = &standin_state.first;
    while (*place != NULL) {
        work *w = *place;
        if (w->done && w->index < standin_state.host.at[w->stream]) {
            *place = w->next;
            free(w);
        } else {
            place = &w->next;
        }
    }
    standin_state.last = place;
}

int standin_run_until(clock_vector target)
{
    standin_lock();
    standin_close_over(&target);
    standin_protect(PROT_READ | PROT_WRITE);
    while (standin_step(&target)) {
    }
    standin_protect(PROT_NONE);
    standin_join(&standin_state.host, &target);
    standin_forget();
    int result = standin_state.fault[0] == '\0' ? BY__CUDA_SUCCESS : ILLEGAL_ADDRESS;
    standin_unlock();
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
    for (const work *earlier = standin_state.first; earlier != NULL; earlier = earlier->next) {
        if (w->after.at[earlier->stream] <= earlier->index && conflict(earlier, w)) {
            standin_fault("%s and %s on another stream use the same memory, and no event orders "
                          "them",
                          earlier->name, w->name);
        }
    }
}

work *standin_make_work(stream *s, const char *name, const standin_range *ranges, size_t count,
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

void standin_enqueue(stream *s, work *w)
{
    if (s->capture != NULL) {
        standin_capture(s, w);
        return;
    }
    w->index = standin_state.submitted.at[s->index]++;
    standin_join(&s->next, &standin_state.host);
    w->after = s->next;
    s->next.at[s->index] = w->index + 1;
    check_order(w);
    *standin_state.last = w;
    standin_state.last = &w->next;
}

int standin_submit(by__cuda_stream stream_, const char *name, const standin_range *ranges,
                   size_t count, bool (*run)(void *data), void *data)
{
    standin_lock();
    standin_enqueue(stream_, standin_make_work(stream_, name, ranges, count, run, data));
    standin_unlock();
    return BY__CUDA_SUCCESS;
}

/* In checked runs the ranges of work have told. */
void standin_written(const void *data, size_t bytes)
{
    if (!standin_state.checks) {
        emulator_written(data, bytes);
    }
}
