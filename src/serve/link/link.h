/* The link of a gateway, a worker or a supervisor to its broker: JSON objects (messages.h) and
 * lists of events (event_list.h), in both directions and in their order. Whoever speaks over a link
 * does not see which kind it is:
 *
 *   link_socket.c  to `banyan broker`, by a socket in the file system: each object behind its
 *                  length (u32, little endian), and each list behind its length and the byte
 *                  BY__LINK_EVENTS. What is over BY__LINK_MESSAGE bytes, or is neither, ends the
 *                  link: the other side is not one of ours.
 *   redis_link.c   to a Redis server, which then is the broker: the link runs scripts in Redis for
 *                  the messages that it is given, and makes messages of what comes back. */
#ifndef BY_SERVE_LINK_H
#define BY_SERVE_LINK_H

#include "serve/serve.h"

#define BY__LINK_MESSAGE ((size_t)64 << 20)
/* In front of a list of events. */
#define BY__LINK_EVENTS '\1'
/* Bytes that may wait for the other side; a link with more is lost: it has stopped. */
#define BY__LINK_PENDING ((size_t)256 << 20)

typedef struct by__link by__link;
typedef struct by__link_listener by__link_listener;

typedef struct by__link_handler {
    /* The message is the link's. */
    void (*message)(void *user, by__link *link, json_t *message);
    /* A list of events (by__events_valid), for the time of the call. */
    void (*events)(void *user, by__link *link, const char *list, size_t length);
    /* The other side is gone, or cannot be understood; the link closes itself. */
    void (*lost)(void *user, by__link *link, const char *why);
    /* A connection that was asked for stands. May be NULL for those that a listener took. */
    void (*ready)(void *user, by__link *link);
    void *user;
} by__link_handler;

/* Connects to a broker: "redis://..." (redis_address.h), else the path of a socket. `ready` or
 * `lost` follows. */
by_status by__link_connect(by__link **out, uv_loop_t *loop, const char *broker,
                           const by__link_handler *handler, by_error *error);
/* BY_ECONFIG: the address of a broker cannot be one. */
by_status by__link_check(const char *broker, by_error *error);
/* Sends an object; before `ready` it waits. False: the link is closed, or memory is exhausted, or
 * too much waits (the link is lost then). */
bool by__link_send(by__link *link, const json_t *message);
/* Sends a list of events, perhaps as several. */
bool by__link_send_events(by__link *link, const char *list, size_t length);
/* Takes nothing more from the other side (which then keeps it), or again takes what comes. Links to
 * Redis go on. */
void by__link_hold(by__link *link, bool holds);
/* Ends a link without telling the handler. */
void by__link_close(by__link **link);
/* The owner's pointer. */
void by__link_set(by__link *link, void *peer);
void *by__link_get(const by__link *link);

/* ---- of all kinds: the first member of a kind's record ---- */

typedef struct by__link_kind {
    bool (*send)(by__link *link, const json_t *message);
    bool (*send_events)(by__link *link, const char *list, size_t length);
    void (*hold)(by__link *link, bool holds); /* NULL: it cannot */
    /* Frees the link, soon: `closed` is set, and the handler is not called any more. */
    void (*close)(by__link *link);
} by__link_kind;

struct by__link {
    const by__link_kind *kind;
    by__link_handler handler;
    void *peer;
    bool closed;
    bool refused; /* the broker takes no process of this version: the next attempt is like this one
                   */
};

/* Tells the handler, and closes the link, once. */
void by__link_lose(by__link *link, const char *why);

by_status by__socket_link_connect(by__link **out, uv_loop_t *loop, const char *path,
                                  const by__link_handler *handler, by_error *error);

/* ---- sockets (link_socket.c) ---- */

/* Listens on a path, which only the user of this process may open. `taken` gets each new link.
 * BY_ECONFIG: another process listens there (socket_lock.h). */
by_status by__link_listen(by__link_listener **out, uv_loop_t *loop, const char *path,
                          void (*taken)(void *user, by__link *link),
                          const by__link_handler *handler, by_error *error);
void by__link_listener_close(by__link_listener **listener);

/* ---- the frames themselves, for the fuzzer (frame.c) ---- */

typedef struct by__frames {
    char *data;
    size_t length;
    size_t capacity;
} by__frames;

/* What takes them; false ends it. */
typedef struct by__frame_handler {
    bool (*message)(void *user, json_t *message);
    bool (*events)(void *user, const char *list, size_t length);
    void *user;
} by__frame_handler;

/* Adds bytes; gives the handler each whole object and list. False: what came is neither. */
bool by__frames_take(by__frames *frames, const char *data, size_t length,
                     const by__frame_handler *handler);
void by__frames_free(by__frames *frames);

#endif
