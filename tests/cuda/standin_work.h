/* standin_work: the work of the driver's stand-in: what was submitted, in which order it may run,
 * and what it must not use. Between the stand-in's files. */
#ifndef BY_TESTS_CUDA_STANDIN_WORK_H
#define BY_TESTS_CUDA_STANDIN_WORK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "standin.h"

#define MAX_STREAMS 32
#define MAX_RANGES  8
/* The result of a wait after a fault. */
#define ILLEGAL_ADDRESS 700

typedef struct clock_vector {
    size_t at[MAX_STREAMS];
} clock_vector;

typedef struct graph graph;

typedef struct stream {
    int index;
    clock_vector next; /* what its next work comes after */
    graph *capture;    /* work is captured instead of submitted; NULL: it is not */
    int slot;          /* of the capture's streams */
} stream;

typedef struct event {
    struct event *next;
    clock_vector clock;
    bool timed;
    bool reached;
    double time;
    const graph *captured; /* it was recorded there last, at `clock` of its streams */
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

/* All of it, under a recursive lock. */
typedef struct standin_all {
    pthread_mutex_t lock;
    uint64_t draws;
    int version, capability, devices;
    bool checks; /* kernels run checked, and races between streams are found in what they touch */
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
} standin_all;

extern standin_all standin_state;

void standin_lock(void);
void standin_unlock(void);
void standin_read_failure(void);
/* Raises a clock to another one; whether it is not behind it. */
void standin_join(clock_vector *clock, const clock_vector *other);
bool standin_covers(const clock_vector *clock, const clock_vector *other);
/* What these bytes are, all of one block. */
bool standin_is_pinned(const void *data, size_t bytes);
bool standin_is_device(const void *data, size_t bytes);
/* Whether work that has not run uses this memory. */
bool standin_in_use(const void *data, size_t bytes);
/* Sets the protection of all device memory. */
void standin_protect(int protection);
uint64_t standin_hash_of(const void *data, size_t bytes);
/* Raises `target` to all that must run before it. */
void standin_close_over(clock_vector *target);
/* Runs one piece of work that the target needs; false when there is none left. */
bool standin_step(const clock_vector *target);
/* Drops what the host has waited for. */
void standin_forget(void);
/* Runs all that the target needs, and returns a result of the driver. */
int standin_run_until(clock_vector target);
work *standin_make_work(stream *s, const char *name, const standin_range *ranges, size_t count,
                        bool (*run)(void *), void *data);
/* Puts work on its stream, or into the graph that is captured there. */
void standin_enqueue(stream *s, work *w);

/* ---- graphs (standin_graph.c) ---- */

void standin_capture(stream *s, work *w);
/* An event that is recorded on a stream that captures, and a wait of a stream where it or the
 * stream is captured: false if neither is. */
bool standin_capture_event(event *e, const stream *s);
bool standin_capture_wait(int *result, stream *s, const event *e);
/* Whether this thread captures: what must not be called then spoils the capture. */
bool standin_spoils_capture(void);

#endif
