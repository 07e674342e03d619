/* A range of a remote file, or a text: asked for until it is there (remote_get.c). */
#ifndef BY_REMOTE_REMOTE_GET_H
#define BY_REMOTE_REMOTE_GET_H

#include <pthread.h>

#include "remote/remote_transfer.h"
#include "remote/remote_url.h"

/* What asks: connections that are free, and credentials. */
typedef struct by__remote_client {
    pthread_mutex_t lock;
    by__remote_transfer **idle;
    size_t idle_count;
    size_t idle_capacity;
    by__remote_access access;
    by__remote_stop stop;
    atomic_bool reached; /* a server has answered */
    atomic_uint draws;   /* of random delays */
} by__remote_client;

/* A question. */
typedef struct by__remote_ask {
    const char *url; /* as the user wrote it, for messages */
    const by__remote_target *target;
    const char *query;  /* of a list, escaped and sorted; "" or NULL: none */
    uint64_t begin;     /* of a range */
    size_t size;        /* of it; what is behind the end of the file is not sent; 0: a text */
    const char *tag;    /* that the file must have; NULL: any */
    uint64_t total;     /* its size, likewise, where there is a tag */
    const char *unless; /* a tag: if the file has it, nothing is sent; NULL */
    uint8_t *out;       /* [size] */
} by__remote_ask;

/* What came of it. */
typedef struct by__remote_got {
    size_t size;    /* bytes in `out` */
    uint64_t total; /* of the file */
    char tag[BY__REMOTE_TAG];
    bool same; /* the file has the tag `unless` */
} by__remote_got;

by_status by__remote_client_open(by__remote_client *client, by_error *error);
void by__remote_client_close(by__remote_client *client);
/* Asks, again where that may help: after a random time below a bound that doubles, from where the
 * last answer ended. text (freed by the caller): of an ask of size 0. BY_EIO; BY_EFORMAT: the file
 * is not what it was. */
by_status by__remote_get(by__remote_client *client, const by__remote_ask *ask, by__remote_got *got,
                         by_string *text, by_error *error);

#endif
