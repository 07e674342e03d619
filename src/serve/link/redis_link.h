/* The link to a Redis server that is the broker, for redis_link.c and the roles: what a gateway
 * (redis_gateway.c) and a worker (redis_worker.c) say to it. */
#ifndef BY_SERVE_REDIS_LINK_H
#define BY_SERVE_REDIS_LINK_H

#include "serve/event_list.h"
#include "serve/link/link.h"
#include "serve/link/redis_client.h"
#include "serve/messages.h"

typedef struct by__redis_link by__redis_link;

/* What a role makes of messages. All but open and free run between `ready` and the end. */
typedef struct by__redis_role {
    const char *name; /* in "hello" */
    by_status (*open)(by__redis_link *link, const json_t *hello, by_error *error);
    void (*ready)(by__redis_link *link);
    /* A message of the link's owner. */
    void (*send)(by__redis_link *link, const char *kind, const json_t *message);
    /* A list of events of the link's owner; false: the link is lost. NULL: it has none. */
    bool (*send_events)(by__redis_link *link, const char *list, size_t length);
    /* What was published for it: a message, or NULL: something is to be looked at. */
    void (*published)(by__redis_link *link, json_t *message);
    /* Every BY__BEAT milliseconds. */
    void (*tick)(by__redis_link *link);
    /* The owner closes the link: the last calls. */
    void (*bye)(by__redis_link *link);
    void (*free)(by__redis_link *link);
} by__redis_role;

struct by__redis_link {
    by__link base;
    uv_loop_t *loop;
    by__redis_address address;
    by__redis *redis; /* NULL: nobody has said hello yet */
    const by__redis_role *role;
    uv_timer_t timer;
    char name[65];
    char model[256]; /* of a worker */
    json_t *waiting; /* messages from before `ready` */
    double heard;    /* by__now when something was last published */
    bool ready;
    void *own; /* the role's */
};

extern const by__redis_role by__redis_gateway;
extern const by__redis_role by__redis_supervisor;
extern const by__redis_role by__redis_worker;

by_status by__redis_link_connect(by__link **out, uv_loop_t *loop, const char *url,
                                 const by__link_handler *handler, by_error *error);
/* Gives the owner a message, and drops the reference. */
void by__redis_tell(by__redis_link *link, json_t *message);
/* Gives the owner a list of one event, and drops the reference. */
void by__redis_tell_event(by__redis_link *link, json_t *event);
/* True for an answer that is none: the link is lost then. */
bool by__redis_bad(by__redis_link *link, const redisReply *reply);
/* An answer that says nothing unless it is an error. */
void by__redis_ignore(void *user, const char *about, const redisReply *reply);
/* Element i of an array, as text or as a number; "" and 0 for what is none. */
const char *by__redis_text(const redisReply *reply, size_t i);
double by__redis_number(const redisReply *reply, size_t i);
/* Element i as an array; NULL for what is none. */
const redisReply *by__redis_array(const redisReply *reply, size_t i);

#endif
