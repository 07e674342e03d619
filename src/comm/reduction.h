/* A sum over ranks under way: what comm_reduce.c (chunks, within a host) and comm_relay.c (between
 * hosts) share. */
#ifndef BY_COMM_REDUCTION_H
#define BY_COMM_REDUCTION_H

#include "comm/comm.h"

/* Elements of a holder in one message: in f32 what MPI libraries send at once (over TCP up to 64
 * KiB), without asking the receiver first, which would take a turn of the link each. */
enum { BY__SEGMENT = 15 << 10 };

typedef struct by__reduction {
    by_comm *comm;
    const by__comm_sum *sum;
    size_t size;   /* bytes of an element */
    size_t offset; /* of my slice, in elements */
    size_t mine;   /* elements of it */
    size_t base;   /* offset of the slice that is worked on: mine, or one of a far rank */
    bool in_records;
    bool push; /* the result goes to near ranks */
    size_t chunk;
    int *host;  /* of each holder, as merges find it */
    int *local; /* of each merge: the host whose holders it adds, -1: of several hosts */
    /* of each holder */
    const unsigned char **source; /* my own buffer, or the record's payload; NULL: elsewhere */
    uint64_t *address;            /* on its near rank */
    unsigned char **staged;       /* segment of a far host that is summed now */
    void **work;                  /* f32 or i32, a chunk */
    void **raw;                   /* a chunk as its rank has it */
    const void **now;             /* value in this chunk; NULL: not read yet */
    bool *used;
    bool *merged;                         /* its host adds others to it before it leaves the host */
    bool *gone;                           /* its host adds it to another one */
    unsigned char *stage[BY__COMM_DEPTH]; /* segments that come from far hosts, all holders */
} by__reduction;

/* Runs the merges of this host, and with `all` those of several hosts, on the chunk of n
 * elements at `at` of the slice. The values are in r->now. */
by_status by__merge_chunk(by__reduction *r, size_t at, size_t n, bool all, void *out,
                          by_error *error);
/* -1: every rank has a slice of it. */
int by__host_of_holder(const by__reduction *r, int holder);
/* Value of a holder in that chunk. */
const void *by__chunk_of(by__reduction *r, int holder, size_t at, size_t n, by_error *error);
/* Elements [begin, end) of my slice: summed, stored and given to near ranks. */
by_status by__sum_range(by__reduction *r, size_t begin, size_t end, by_error *error);

/* Sums my slice with the values of far hosts, and does this host's part of theirs. */
by_status by__sum_with_far(by__reduction *r, by_error *error);

#endif
