/* The features of nodes that are not 0, as a sparse matrix in rows (CSR) with its transpose. Where
 * most are 0, as with words of a document, a model reads these alone. */
#ifndef BY_DATA_NODES_NODE_ENTRIES_H
#define BY_DATA_NODES_NODE_ENTRIES_H

#include "data/nodes/node_set.h"

typedef struct by__nodes_entries {
    int64_t count;         /* 0: there are too many for a sparse matrix to be worth while */
    float *values;         /* [count] */
    int32_t *offsets;      /* [nodes + 1] */
    int32_t *columns;      /* [count] */
    int32_t *back_offsets; /* [features + 1] */
    int32_t *back_rows;    /* [count] */
    int32_t *back_entries; /* [count] */
    uint64_t bytes;
} by__nodes_entries;

/* Collects the features of set->whole that are not 0, if they are at most a tenth of all. */
by_status by__nodes_entries_make(by__nodes_entries *out, const by__nodes_set *set, by_error *error);
void by__nodes_entries_free(by__nodes_entries *entries);

#endif
