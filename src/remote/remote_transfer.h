/* One request of HTTP and its answer, by libcurl (remote_transfer.c; without_remote.c). */
#ifndef BY_REMOTE_REMOTE_TRANSFER_H
#define BY_REMOTE_REMOTE_TRANSFER_H

#include <stdatomic.h>

#include "base/base.h"

/* Most bytes of a tag, with its NUL. */
#define BY__REMOTE_TAG 256

/* Why there is no whole answer. */
typedef enum by__remote_failure {
    BY__REMOTE_ANSWERED = 0,
    BY__REMOTE_CUT,         /* the connection failed, or stood still: another try may do */
    BY__REMOTE_UNREACHABLE, /* there was no connection */
    BY__REMOTE_HOPELESS     /* another try is the same */
} by__remote_failure;

/* In: `out` and `capacity`. */
typedef struct by__remote_answer {
    uint8_t *out; /* of a range, or of all of a file: goes here, */
    size_t capacity;
    size_t got;     /* as much as came */
    bool overflow;  /* more came, and was refused */
    by_string text; /* of other answers, and where `out` is NULL */
    by__remote_failure failure;
    char why[256]; /* of a failure */
    long status;
    bool has_range; /* the answer says which part of the file it is: */
    uint64_t first;
    uint64_t total;           /* bytes of the file; UINT64_MAX: not said */
    char tag[BY__REMOTE_TAG]; /* ETag, or else Last-Modified; "": neither */
    bool is_etag;
    char region[64]; /* where the bucket is; "": not said */
    double wait;     /* seconds that the server asks for before the next try */
} by__remote_answer;

/* Whether requests are to end. `poll` is asked by many threads, up to many times a second; NULL:
 * nobody is. */
typedef struct by__remote_stop {
    atomic_bool set;
    bool (*poll)(void *user);
    void *user;
} by__remote_stop;

static inline bool by__remote_stops(by__remote_stop *stop)
{
    if (!atomic_load(&stop->set) && stop->poll != NULL && stop->poll(stop->user)) {
        atomic_store(&stop->set, true);
    }
    return atomic_load(&stop->set);
}

/* A connection, which is kept for the next request. */
typedef struct by__remote_transfer by__remote_transfer;

/* To be called once before threads open transfers. BY_ECONFIG: built without libcurl. */
by_status by__remote_transfers_begin(by_error *error);
by_status by__remote_transfer_open(by__remote_transfer **out, by__remote_stop *stop,
                                   by_error *error);
void by__remote_transfer_close(by__remote_transfer **transfer);
/* Sends GET with headers "NAME: VALUE", ended by NULL. `follow`: where a redirection leads. It ends
 * soon after *stop is set, or its poll says so. */
void by__remote_transfer_get(by__remote_transfer *transfer, const char *url,
                             const char *const *headers, bool follow, by__remote_answer *answer);

#endif
