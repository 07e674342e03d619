/* Joining the pieces that ranks encode (pack_join.c).
 *
 * Rank 0 joins them on a thread of its own, in their order, while all encode: else the others would
 * be idle for as long as one rank writes what all have made. If it gives up, because a rank whose
 * piece it needs has ended or has not begun, the rank that finds all pieces joins them. */
#ifndef BY_DATA_PACK_PACK_JOIN_H
#define BY_DATA_PACK_PACK_JOIN_H

#include "base/worker_thread.h"
#include "data/pack/pack.h"

/* What is joined, and into what. All is borrowed. */
typedef struct by__data_join {
    const by__data_pack *pack;
    const by_tokenizer *tokenizer;
    const char *partial; /* OUTPUT.partial */
    const char *output;
} by__data_join;

/* A join on a thread of its own; {0} may be closed. */
typedef struct by__data_joiner {
    by__base_worker worker;
    by__data_join join;
    by__data_pack pack;    /* a copy, which reports no progress and waits for pieces */
    by_pack_result result; /* these four are under the lock of `worker` */
    by_error error;
    by_status status;
    bool has_encoded; /* this rank has written all pieces of its share */
    bool has_ended;
} by__data_joiner;

/* Holds a lock that tells rank 0 that this one is alive, until *fd is closed. */
by_status by__data_join_announce(const by__data_pack *pack, int *fd, by_error *error);
/* Joins the pieces if all are there, or waits for the rank that does. result->complete: the output
 * is there. */
by_status by__data_join_all(const by__data_join *join, by_pack_result *result, by_error *error);
/* Begins to join what is there and what comes. */
by_status by__data_joiner_start(by__data_joiner *joiner, const by__data_join *join,
                                by_error *error);
/* Waits until the pieces of all living ranks are joined; this one has encoded its share. */
by_status by__data_joiner_await(by__data_joiner *joiner, by_pack_result *result, by_error *error);
void by__data_joiner_close(by__data_joiner *joiner);

#endif
