/* Writes the features of nodes, row after row, as f32, f16 or u8. */
#ifndef BY_DATA_NODES_PACK_FEATURE_WRITER_H
#define BY_DATA_NODES_PACK_FEATURE_WRITER_H

#include "data/nodes/pack/array_writer.h"

typedef struct by__nodes_feature_writer {
    by__nodes_writer array;
    const char *directory;
    by__nodes_feature_type type;
    uint64_t columns;
    uint64_t rows;
    int spool;    /* f32 rows of what becomes u8, whose scales are only known at the end */
    float *range; /* [2, columns] least and largest values, then offset and step */
    void *block;  /* converted rows */
    size_t capacity;
} by__nodes_feature_writer;

/* Begins features of `columns` columns; must be closed in any case. */
by_status by__nodes_features_open(by__nodes_feature_writer *out, const char *directory,
                                  by__nodes_feature_type type, uint64_t columns, by_error *error);
/* Adds `rows` rows. */
by_status by__nodes_features_add(by__nodes_feature_writer *writer, const float *x, uint64_t rows,
                                 by_error *error);
/* Writes the rest; sets type, features and hashes of the manifest, whose nodes are set. */
by_status by__nodes_features_finish(by__nodes_feature_writer *writer, by__nodes_manifest *manifest,
                                    by_error *error);
void by__nodes_features_close(by__nodes_feature_writer *writer);

#endif
