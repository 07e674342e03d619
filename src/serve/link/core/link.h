/* link: the connection of a gateway, a worker or a supervisor to its broker. It carries JSON
 * objects (messages.h) and lists of events (event_list.h), in order and in both directions. Users
 * of a link do not depend on its kind:
 *
 *   link_socket.c  to `banyan broker`, by a socket in the file system: each object is preceded by
 *                  its length (u32, little endian), and each list by its length and the byte
 *                  BY__LINK_EVENTS. A long text that is the member "request" of an object, or of
 *                  its member "task", follows as it is: BY__LINK_TEXT, the length (u32) of the
 *                  object without it, this object, the text. A frame of more than BY__LINK_MESSAGE
 *                  bytes, or of no such kind, closes the link: the other side is not one of our
 *                  processes.
 *   redis_link.c   to a Redis server, which then is the broker: the link runs scripts in Redis for
 *                  the messages that it is given, and turns replies and publications into messages.
 *
 * Types: by__link; by__link_handler, the owner's callbacks; by__link_listener, the broker's side;
 * by__link_broker (broker_link.h), a link that reconnects.
 *
 * Who owns what: the owner of a link closes it, and is not called afterwards; the memory is freed
 * by the loop. Messages passed to a callback belong to the link.
 *
 * Never put here: the meaning of messages, except for what Redis needs to act as the broker. */
#ifndef BY_SERVE_LINK_CORE_LINK_H
#define BY_SERVE_LINK_CORE_LINK_H

#include "serve/link/core/dialer.h"

#define BY__LINK_MESSAGE ((size_t)64 << 20)
/* First byte of the frame of a list of events. */
#define BY__LINK_EVENTS '\1'
/* First byte of the frame of an object with a long text. */
#define BY__LINK_TEXT '\2'
/* Bytes that may be pending for the other side; a link with more is considered stuck and lost. */
#define BY__LINK_PENDING ((size_t)256 << 20)

typedef struct by__link by__link;
typedef struct by__link_listener by__link_listener;

typedef struct by__link_handler {
    /* A message; the link keeps ownership. */
    void (*message)(void *user, by__link *link, json_t *message);
    /* A list of events (by__protocol_events_valid), valid during the call. */
    void (*events)(void *user, by__link *link, const char *list, size_t length);
    /* The other side is gone, or sent something malformed; the link closes itself. */
    void (*lost)(void *user, by__link *link, const char *why);
    /* A connection that was requested is established. May be NULL for accepted ones. */
    void (*ready)(void *user, by__link *link);
    void *user;
} by__link_handler;

/* Checks the address of a broker. BY_ECONFIG: it is malformed. */
by_status by__link_check(const char *broker, by_error *error);
/* Sends an object; before `ready` it is queued. Returns false if the link is closed, memory is
 * exhausted, or too much is pending (the link is then lost). */
bool by__link_send(by__link *link, const json_t *message);
/* Sends a list of events, possibly split into several. */
bool by__link_send_events(by__link *link, const char *list, size_t length);
/* Stops reading from the other side (which keeps what it sends), or resumes. No effect on links to
 * Redis. */
void by__link_pause(by__link *link, bool pauses);
/* Bytes that were sent and are still here; what is closed does not send them. */
size_t by__link_unsent(const by__link *link);
/* Closes a link without calling the handler. */
void by__link_close(by__link **link);
/* Sets the owner's pointer. */
void by__link_set(by__link *link, void *peer);
void *by__link_get(const by__link *link);

/* ---- all kinds: the first member of a kind's record ---- */

typedef struct by__link_kind {
    bool (*send)(by__link *link, const json_t *message);
    bool (*send_events)(by__link *link, const char *list, size_t length);
    void (*pause)(by__link *link, bool pauses); /* NULL: not supported */
    size_t (*unsent)(const by__link *link);
    /* Frees the link later: `closed` is set, and the handler is not called any more. */
    void (*close)(by__link *link);
} by__link_kind;

struct by__link {
    const by__link_kind *kind;
    by__link_handler handler;
    void *peer;
    bool closed;
    bool connected; /* when by__link_connect returned: `ready` does not follow */
    /* the broker refuses processes of this version: a retry is useless */
    bool refused;
};

/* Calls the handler's `lost` and closes the link; once. */
void by__link_fail(by__link *link, const char *why);

by_status by__link_socket_connect(by__link **out, uv_loop_t *loop, const char *path,
                                  by__link_dialer *dialer, const by__link_handler *handler,
                                  by_error *error);

/* ---- sockets (link_socket.c) ---- */

/* Listens on a path that only the user of this process may open. `accepted` gets each new link.
 * BY_ECONFIG: another process listens there (socket_lock.h). */
by_status by__link_listen(by__link_listener **out, uv_loop_t *loop, const char *path,
                          void (*accepted)(void *user, by__link *link),
                          const by__link_handler *handler, by_error *error);
void by__link_listener_close(by__link_listener **listener);

/* ---- framing, for the fuzzer (frame.c) ---- */

typedef struct by__link_frames {
    char *data;
    size_t length;
    size_t capacity;
} by__link_frames;

/* Receives objects and lists; returning false stops. */
typedef struct by__link_frame_handler {
    bool (*message)(void *user, json_t *message);
    bool (*events)(void *user, const char *list, size_t length);
    void *user;
} by__link_frame_handler;

/* Adds bytes; passes each complete object and list to the handler. Returns false if the bytes are
 * neither. */
bool by__link_frames_feed(by__link_frames *frames, const char *data, size_t length,
                          const by__link_frame_handler *handler);
void by__link_frames_free(by__link_frames *frames);

#endif
