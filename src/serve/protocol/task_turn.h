/* When a task goes ahead of requests, for both kinds of broker.
 *
 * No client is connected for a task, so requests of the same priority and above go first. Under
 * constant load that alone would keep a task waiting until it expires. So while a task has waited
 * for BY__TASK_WAIT, every BY__TASK_TURN-th delivery to workers is the task that has waited
 * longest, whatever its priority: it goes ahead of everything queued, and takes a worker's slot as
 * a request does. Under lasting overload tasks then get 1 / BY__TASK_TURN of the slots and requests
 * the rest; with fewer tasks, requests get more. */
#ifndef BY_SERVE_PROTOCOL_TASK_TURN_H
#define BY_SERVE_PROTOCOL_TASK_TURN_H

/* BY__TASK_WAIT is in seconds. */
#define BY__TASK_WAIT 5.0
#define BY__TASK_TURN 8

#endif
