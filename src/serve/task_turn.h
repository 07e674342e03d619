/* When a task goes in front of requests, for both kinds of broker.
 *
 * Nobody is connected for a task, so requests of the same priority and above go first. Under a load
 * that never ends that alone would keep a task waiting until it expires. So of what workers are
 * given while a task has waited for BY__TASK_WAIT, every BY__TASK_TURN-th is the task that has
 * waited longest, whatever its priority: it goes in front of all that waits, and takes a worker's
 * place as a request does. At a lasting overload tasks then have 1 / BY__TASK_TURN of the places,
 * and requests the rest; with fewer tasks than that requests have more. */
#ifndef BY_SERVE_TASK_TURN_H
#define BY_SERVE_TASK_TURN_H

/* Seconds. */
#define BY__TASK_WAIT 5.0
#define BY__TASK_TURN 8

#endif
