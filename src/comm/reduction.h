/* State of a sum over ranks in progress, shared by comm_reduce.c (chunks, within a host) and
 * comm_relay.c (between hosts). */
#ifndef BY_COMM_REDUCTION_H
#define BY_COMM_REDUCTION_H

#include "comm/comm.h"

/* Elements of a holder in one message: in f32, as much as MPI libraries send eagerly (over TCP up
 * to 64 KiB), without a handshake with the receiver, which would cost a round trip each. */
enum { BY__SEGMENT = 15 << 10 };

typedef struct by__comm_reduction {
    by_comm *comm;
    const by__comm_sum *sum;
    size_t size;   /* bytes of an element */
    size_t offset; /* of this rank's slice, in elements */
    size_t mine;   /* elements of this rank's slice */
    /* offset of the slice that is being processed: this rank's, or one of a far rank */
    size_t base;
    bool in_records;
    bool push; /* the result is written to near ranks */
    size_t chunk;
    int *host;  /* of each holder, in the order of the merges */
    int *local; /* of each merge: the host whose holders it adds, -1: holders of several hosts */
    /* For each holder: */
    /* this rank's own buffer, or the record's payload; NULL: neither */
    const unsigned char **source;
    uint64_t *address;      /* address in the memory of its near rank */
    unsigned char **staged; /* segment received from a far host that is being summed */
    void **work;            /* a chunk in f32 or i32 */
    void **raw;             /* a chunk in the dtype of its rank */
    const void **now;       /* value in this chunk; NULL: not read yet */
    bool *used;
    bool *merged;                         /* its host adds others to it before sending it */
    bool *gone;                           /* its host adds it to another one */
    unsigned char *stage[BY__COMM_DEPTH]; /* segments received from far hosts, all holders */
} by__comm_reduction;

/* Runs this host's merges, and with `all` those across hosts, on the chunk of n elements at `at` of
 * the slice. The values are in r->now. */
by_status by__comm_merge_chunk(by__comm_reduction *r, size_t at, size_t n, bool all, void *out,
                               by_error *error);
/* Host of a holder; -1: every rank has a slice of it. */
int by__comm_host_of_holder(const by__comm_reduction *r, int holder);
/* Sums elements [begin, end) of this rank's slice, stores them and sends them to near ranks. */
by_status by__comm_sum_range(by__comm_reduction *r, size_t begin, size_t end, by_error *error);

/* Sums this rank's slice with the values of far hosts, and does this host's part of their sums. */
by_status by__comm_sum_with_far(by__comm_reduction *r, by_error *error);

#endif
