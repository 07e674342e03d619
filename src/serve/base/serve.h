/* serve: serves models over HTTP, and keeps serving when a process fails.
 *
 * A gateway (gateway.c) speaks HTTP to clients, a worker (worker.c) runs the engine, and a broker
 * is between them, so that the web server and the engine never share a process:
 *
 *     clients --HTTP, SSE--> gateway <--link--> broker <--link--> workers, an engine each
 *
 * All three are event loops of libuv that never block: one thread of a gateway holds thousands of
 * streams. A worker has one more thread, which runs the steps of the engine. Messages between
 * processes are length-prefixed JSON objects (link.h, messages.h); each receiver validates them as
 * untrusted input.
 *
 * What an engine generates is a function of the request alone (banyan/engine.h). When a worker
 * dies, its requests are therefore run again on another one, and their streams continue: the
 * gateway skips the text that the client already has.
 *
 * If a request names entities, the gateway first fetches their features from a feature store
 * (features.h), on its loop as well.
 *
 * Types: none here. This header declares helpers that all folders of serve share (errors of libuv,
 * ids, random bytes, the clock); the records are in the main headers of http, link, broker,
 * gateway, worker, rollout and supervisor.
 *
 * Who owns what: a loop's handles belong to the object that opened them, which closes them and is
 * freed when the last one is closed. A JSON value passed to a function stays the caller's, unless
 * its comment says that it is taken.
 *
 * Never put here: what a model computes (infer), what a command prints (cli).
 */
#ifndef BY_SERVE_BASE_SERVE_H
#define BY_SERVE_BASE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "banyan/serve.h"
#include "base/json.h"

/* Most processes of a model. */
#define BY__MAX_WORKERS 256

/* BY_EIO: "cannot VERB NAME: REASON" from an error of libuv. */
by_status by__serve_uv_error(by_error *error, const char *verb, const char *name, int code);

/* ---- ids of requests (request_id.c) ---- */

#define BY__ID_BYTES 48
/* Random hexadecimal digits at the end of an id. */
#define BY__ID_DIGITS 32

/* At most 256 bytes from the system's random number generator. */
by_status by__serve_random_bytes(void *out, size_t count, by_error *error);

/* PREFIX and BY__ID_DIGITS random digits, so that ids cannot be guessed. BY_EIO: the system has no
 * random numbers. */
by_status by__serve_request_id(char out[BY__ID_BYTES], const char *prefix, by_error *error);
/* True for 1 to 64 characters of [A-Za-z0-9_-]. */
bool by__serve_id_valid(const char *id);
/* Copies the id at the beginning of the rest of a path, and returns what follows it ("", or from
 * the next '/' on). Returns NULL if there is no valid id. */
const char *by__serve_path_id(char out[65], const char *path);
/* Seconds since 1970. For records and deadlines that processes share, never for intervals. */
double by__serve_wall_clock(void);

#endif
