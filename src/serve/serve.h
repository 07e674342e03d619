/* serve: models behind an API that stays up.
 *
 * A gateway (gateway.c) speaks HTTP to clients, a worker (worker.c) has the engine, and a broker
 * stands between them, so that the web server and the engine never share a process:
 *
 *     clients --HTTP, SSE--> gateway <--link--> broker <--link--> workers, an engine each
 *
 * All three are loops of libuv and never wait: a gateway holds thousands of streams in a thread. A
 * worker has one thread more, which runs steps of the engine. Messages between processes are JSON
 * objects behind a length (link.h, messages.h); whoever receives one checks it as if a stranger had
 * sent it.
 *
 * Because what an engine generates is a function of the request alone (banyan/engine.h), a request
 * whose worker dies is run again elsewhere, and its stream goes on where it stopped: the gateway
 * passes over what the client already has.
 *
 * Where a request names entities, the gateway fetches their features from a store of others first
 * (features.h), on its loop as all else.
 *
 * Who owns what: a loop's handles belong to the object that opened them, which closes them and is
 * freed when the last one is closed. A JSON value that a function is given stays the caller's.
 *
 * Never put here: what a model computes (infer), what a command prints (cli).
 */
#ifndef BY_SERVE_SERVE_H
#define BY_SERVE_SERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "banyan/serve.h"
#include "base/base.h"

/* Processes of a model, at most. */
#define BY__MOST_WORKERS 256

/* BY_EIO: "cannot VERB NAME: REASON" from an error of libuv. */
by_status by__uv_error(by_error *error, const char *verb, const char *name, int code);

/* Whether an address of by_gateway_options is of this machine alone. */
bool by__listens_locally(const char *listen);

/* ---- numbers of requests (request_id.c) ---- */

#define BY__ID_BYTES 48

/* At most 256 bytes of the system's random numbers. */
by_status by__random_bytes(void *out, size_t count, by_error *error);

/* PREFIX and 32 hexadecimal digits of the system's random numbers: nobody guesses another's. BY_EIO
 * when there are none. */
by_status by__request_id(char out[BY__ID_BYTES], const char *prefix, by_error *error);
/* True for 1 to 64 characters of [A-Za-z0-9_-]. */
bool by__id_valid(const char *id);
/* Copies the id at the beginning of what follows in a path, and returns what is behind it ("", or
 * from the next '/' on). NULL: there is no id that is valid. */
const char *by__path_id(char out[65], const char *path);
/* Seconds since 1970. For records and deadlines that processes share, never for intervals. */
double by__wall_clock(void);

#endif
