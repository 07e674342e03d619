/* The files of a packed graph: npy arrays, and a manifest with their sizes and checksums.
 *
 *   manifest.json  what follows, and what it was packed from
 *   offsets.npy    i64 [nodes + 1]: the edges that end in node v are [offsets[v], offsets[v + 1])
 *   sources.npy    i32 [edges]: the nodes that they come from, ascending for each v
 *   features.npy   f32, f16 or u8 [nodes, features]
 *   scales.npy     f32 [2, features], with u8: a feature is scales[0] + scales[1] * value
 *   labels.npy     i32 [nodes], -1: none; if there are any
 *   weights.npy    f32 [edges], finite and at least 0; if edges have weights
 *   train.npy, valid.npy, test.npy  i64: nodes to train on and held out; if there are any
 *
 * Elements begin at byte 4,096 of a file, so that maps of them are aligned to pages. They are
 * little-endian. */
#ifndef BY_DATA_NODES_PACKED_ARRAYS_H
#define BY_DATA_NODES_PACKED_ARRAYS_H

#include "banyan/dtype.h"
#include "base/base.h"

#define BY__NODES_PAGE     4096
#define BY__NODES_MANIFEST "manifest.json"

typedef enum by__nodes_array {
    BY__NODES_OFFSETS = 0,
    BY__NODES_SOURCES,
    BY__NODES_FEATURES,
    BY__NODES_SCALES,
    BY__NODES_LABELS,
    BY__NODES_WEIGHTS,
    BY__NODES_TRAIN,
    BY__NODES_VALID,
    BY__NODES_TEST,
    BY__NODES_ARRAYS
} by__nodes_array;

/* How features are stored. */
typedef enum by__nodes_feature_type {
    BY__NODES_FEATURES_F32 = 0,
    BY__NODES_FEATURES_F16,
    BY__NODES_FEATURES_U8
} by__nodes_feature_type;

typedef struct by__nodes_manifest_source {
    char *path;
    uint64_t bytes;
    char hash[33];
} by__nodes_manifest_source;

typedef struct by__nodes_manifest {
    uint64_t nodes;
    uint64_t edges;
    uint64_t features;
    uint64_t classes; /* 0: there are no labels */
    uint64_t held[3]; /* nodes of the lists train, valid and test */
    by__nodes_feature_type type;
    bool symmetric;                    /* edges lead in both directions */
    bool self_loops;                   /* each node has an edge to itself */
    bool weighted;                     /* edges have weights */
    char hashes[BY__NODES_ARRAYS][33]; /* XXH3-128 of the elements; "": there is no such file */
    by__nodes_manifest_source *sources;
    size_t source_count;
} by__nodes_manifest;

/* Name of a file. */
const char *by__nodes_array_name(by__nodes_array which);
/* Extents of an array: columns 0: it has one axis. */
void by__nodes_array_extents(const by__nodes_manifest *m, by__nodes_array which, uint64_t *rows,
                             uint64_t *columns);
/* Bytes of an element. */
size_t by__nodes_array_width(const by__nodes_manifest *m, by__nodes_array which);
/* Writes the first page of a file. */
void by__nodes_array_header(char page[BY__NODES_PAGE], const by__nodes_manifest *m,
                            by__nodes_array which);

/* Parses a manifest. BY_EFORMAT names the key that is wrong. Free it in any case. */
by_status by__nodes_manifest_parse(by__nodes_manifest *out, const char *name, const char *text,
                                   size_t length, by_error *error);
/* Reads that of a directory. */
by_status by__nodes_manifest_read(by__nodes_manifest *out, const char *directory, by_error *error);
by_status by__nodes_manifest_write(const by__nodes_manifest *manifest, const char *directory,
                                   by_error *error);
void by__nodes_manifest_free(by__nodes_manifest *manifest);
/* Whether a directory has a manifest of a packed graph. */
bool by__nodes_is_packed(const char *path);

#endif
