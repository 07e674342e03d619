/* The collective queue of the CPU: a thread that runs collective calls while the submitting thread
 * runs the others. It is started for the first program that has such calls.
 *
 * Events inside a program are counters: an event has been reached in this run when its counter
 * equals the run's number, so that nothing is reset between runs. A thread that has to wait spins
 * briefly and then sleeps; one that reaches an event makes no system call unless the other one
 * sleeps. */
#ifndef BY_DEVICE_CPU_COLLECTIVE_QUEUE_H
#define BY_DEVICE_CPU_COLLECTIVE_QUEUE_H

#include <stdatomic.h>

#include "device/device.h"

/* State of a program that runs on two threads: its events and its collective calls. */
typedef struct by__cpu_two_queues {
    _Atomic uint64_t *reached; /* [events] the last run in which each was reached */
    double *begin;             /* [collective calls] start times, if times are recorded */
    double *end;
    uint64_t run;
} by__cpu_two_queues;

typedef struct by__cpu_collective_queue by__cpu_collective_queue;

/* Returns true if a program has calls for the collective queue. */
bool by__cpu_uses_two_queues(const by__device_command_list *list);
by_status by__cpu_two_queues_open(by__cpu_two_queues *out, const by__device_command_list *list,
                                  by_error *error);
void by__cpu_two_queues_close(by__cpu_two_queues *state);

by_status by__cpu_collective_queue_open(by__cpu_collective_queue **out, by_error *error);
/* NULL is accepted. */
void by__cpu_collective_queue_close(by__cpu_collective_queue *queue);
/* Runs a program: returns when all calls are done, or when one has failed and none is running. A
 * failure on the calling thread is reported (by__device_report) before it waits for a collective in
 * progress. */
by_status by__cpu_collective_queue_run(by__cpu_collective_queue *queue, by__cpu_two_queues *state,
                                       const by__device_command_list *list,
                                       const by__device_context *context,
                                       by__device_call_hook *hook, void *user, by_error *error);

#endif
