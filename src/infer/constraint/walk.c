#include <stdlib.h>
#include <string.h>

#include "infer/constraint/constraint.h"

/* Frames are hash-consed, so stacks are equal if and only if their numbers are equal. */

#define SLOTS (2 * BY__MAX_FRAMES)

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

by_status by__frames_open(by__frames *frames, by_error *error)
{
    *frames = (by__frames){0};
    BY_TRY(by__alloc((void **)&frames->list, BY__MAX_FRAMES, sizeof *frames->list, "a constraint",
                     error));
    BY_TRY(by__alloc((void **)&frames->slots, SLOTS, sizeof *frames->slots, "a constraint", error));
    by__frames_clear(frames);
    return BY_OK;
}

void by__frames_close(by__frames *frames)
{
    free(frames->list);
    free(frames->slots);
    *frames = (by__frames){0};
}

void by__frames_clear(by__frames *frames)
{
    memset(frames->slots, 0, SLOTS * sizeof *frames->slots);
    frames->list[0] = (by__frame){.back = BY__DEAD};
    frames->count = 1;
}

void by__frames_copy(by__frames *to, const by__frames *from)
{
    memcpy(to->list, from->list, (size_t)from->count * sizeof *from->list);
    memcpy(to->slots, from->slots, SLOTS * sizeof *from->slots);
    to->count = from->count;
}

/* Returns the frame with `back` on top of `below`; -1 if there is no room or the nesting is too
 * deep. */
static int32_t push(by__frames *frames, int32_t back, int32_t below)
{
    uint64_t hash = mix(frames->list[below].hash * 31 + (uint64_t)back + 1);
    size_t slot = hash % SLOTS;
    for (; frames->slots[slot] != 0; slot = (slot + 1) % SLOTS) {
        const by__frame *f = &frames->list[frames->slots[slot]];
        if (f->back == back && f->below == below) {
            return frames->slots[slot];
        }
    }
    int32_t depth = frames->list[below].depth + 1;
    if (frames->count == BY__MAX_FRAMES || depth > 2 * BY__MAX_NESTING) {
        return -1;
    }
    frames->list[frames->count] = (by__frame){back, below, depth, hash};
    frames->slots[slot] = frames->count;
    return frames->count++;
}

static void add_way(by__way *out, int *count, int32_t state, int32_t frame)
{
    for (int i = 0; i < *count; i++) {
        if (out[i].state == state && out[i].frame == frame) {
            return;
        }
    }
    if (*count < BY__MAX_WAYS) {
        out[(*count)++] = (by__way){state, frame};
    }
}

/* Adds the ways into rules that the ways from index `from` on call, and back out of rules that
 * end. */
static void follow(const by__automata *a, by__frames *frames, by__way *out, int from, int *count)
{
    for (int i = from; i < *count; i++) {
        by__way way = out[i];
        for (int32_t k = a->first_call[way.state]; k < a->first_call[way.state + 1]; k++) {
            /* A tail call does not return, so it does not make the stack deeper. */
            int32_t back = a->calls[k].back;
            int32_t frame = a->ends[back] != 0 ? way.frame : push(frames, back, way.frame);
            if (frame >= 0) {
                add_way(out, count, a->calls[k].start, frame);
            }
        }
        if (a->accepts[way.state] != 0 && way.frame != 0) {
            const by__frame *f = &frames->list[way.frame];
            add_way(out, count, f->back, f->below);
        }
    }
}

int by__walk_begin(const by__automata *a, by__frames *frames, by__way *out)
{
    int count = 0;
    add_way(out, &count, a->root, 0);
    follow(a, frames, out, 0, &count);
    return count;
}

int by__walk_byte(const by__automata *a, by__frames *frames, const by__way *ways, int count,
                  uint8_t byte, by__way *out)
{
    int made = 0;
    size_t class = a->class_of[byte];
    for (int i = 0; i < count; i++) {
        int32_t to = a->next[(size_t)ways[i].state * (size_t)a->classes + class];
        if (to >= 0) {
            add_way(out, &made, to, ways[i].frame);
        }
    }
    follow(a, frames, out, 0, &made);
    return made;
}

bool by__walk_can_end(const by__automata *a, const by__way *ways, int count)
{
    for (int i = 0; i < count; i++) {
        if (a->accepts[ways[i].state] != 0 && ways[i].frame == 0) {
            return true;
        }
    }
    return false;
}

static int32_t moved(const by__frames *from, by__frames *to, int32_t frame)
{
    int32_t stack[2 * BY__MAX_NESTING + 1];
    int depth = 0;
    int32_t out = 0;
    for (int32_t f = frame; f != 0; f = from->list[f].below) {
        stack[depth++] = from->list[f].back;
    }
    while (depth > 0) {
        out = push(to, stack[--depth], out);
    }
    return out;
}

void by__frames_compact(by__frames *frames, by__frames *spare, by__way *ways, int count)
{
    by__frames_clear(spare);
    for (int i = 0; i < count; i++) {
        ways[i].frame = moved(frames, spare, ways[i].frame);
    }
    by__frames kept = *frames;
    *frames = *spare;
    *spare = kept;
}
