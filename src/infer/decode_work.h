/* The work of one token that is written, read off the graph that decodes it. */
#ifndef BY_INFER_DECODE_WORK_H
#define BY_INFER_DECODE_WORK_H

#include "graph/graph.h"

typedef struct by__infer_decode_work {
    int64_t products;    /* parameters in matrix products of a token */
    double weight_bytes; /* bytes of weights that each token reads: of experts one token's share */
    double token_flops;  /* of attention, for each cached token */
    double token_bytes;  /* of keys and values likewise */
    double window_flops; /* of attention limited to the last `window` tokens */
    double window_bytes;
    double window_tokens; /* the largest of these windows */
} by__infer_decode_work;

/* Measures a graph of mode BY_MODEL_DECODE, after its passes. */
by_status by__infer_decode_work_measure(by__infer_decode_work *out, const by_graph *decode,
                                        by_error *error);

#endif
