/* Internal record of a link to a Redis server that is the broker, shared by redis_link.c and the
 * two roles: gateway (redis_gateway.c, redis_feedback.c) and worker (redis_worker.c). */
#ifndef BY_SERVE_LINK_REDIS_REDIS_LINK_H
#define BY_SERVE_LINK_REDIS_REDIS_LINK_H

#include "serve/link/core/link.h"
#include "serve/link/redis/redis_client.h"
#include "serve/protocol/event_list.h"
#include "serve/protocol/messages.h"

typedef struct by__redis_link by__redis_link;

/* How a role translates messages to calls. All functions but open and free are called between
 * `ready` and the end. */
typedef struct by__redis_role {
    const char *name; /* "role" in "hello" */
    by_status (*open)(by__redis_link *link, const json_t *hello, by_error *error);
    void (*ready)(by__redis_link *link);
    /* Sends a message of the link's owner. */
    void (*send)(by__redis_link *link, const char *kind, const json_t *message);
    /* Sends a list of events of the link's owner; false: the link is lost. NULL: the role has
     * none. */
    bool (*send_events)(by__redis_link *link, const char *list, size_t length);
    /* Handles what was published for it: a message, or NULL: a request to poll. */
    void (*published)(by__redis_link *link, json_t *message);
    /* Called every BY__BEAT milliseconds; NULL, as for the next: not needed. */
    void (*tick)(by__redis_link *link);
    /* The owner closes the link: makes the last calls. */
    void (*on_close)(by__redis_link *link);
    void (*free)(by__redis_link *link);
} by__redis_role;

struct by__redis_link {
    by__link base;
    uv_loop_t *loop;
    by__link_dialer *dialer; /* NULL: none */
    by__link_redis_address address;
    by__redis *redis; /* NULL: before "hello" */
    const by__redis_role *role;
    uv_timer_t timer;
    char name[65];
    char model[256];        /* of a worker: its model */
    json_t *waiting;        /* messages sent before `ready` */
    double last_message_at; /* by__now of the last published message */
    bool ready;
    void *own; /* owned by the role */
};

extern const by__redis_role by__redis_gateway;
extern const by__redis_role by__redis_supervisor;
extern const by__redis_role by__redis_worker;

by_status by__redis_link_connect(by__link **out, uv_loop_t *loop, const char *url,
                                 by__link_dialer *dialer, const by__link_handler *handler,
                                 by_error *error);
/* Delivers a message to the owner, and drops the reference. */
void by__redis_deliver(by__redis_link *link, json_t *message);
/* Delivers a list of one event to the owner, and drops the reference. */
void by__redis_deliver_event(by__redis_link *link, json_t *event);
/* Passes a gateway's message "feedback" to the one that gave the answer; "feedback_passed"
 * follows. */
void by__redis_feedback(by__redis_link *link, const json_t *message);
/* Returns true if a reply is missing or an error: the link is then lost. */
bool by__redis_bad(by__redis_link *link, const redisReply *reply);
/* Callback for replies of which only errors matter. */
void by__redis_ignore(void *user, const char *about, const redisReply *reply);
/* Element i of an array as a string or a number; "" or 0 if it is of another type. */
const char *by__redis_text(const redisReply *reply, size_t i);
double by__redis_number(const redisReply *reply, size_t i);
/* Element i as an array; NULL if it is not one. */
const redisReply *by__redis_array(const redisReply *reply, size_t i);

#endif
