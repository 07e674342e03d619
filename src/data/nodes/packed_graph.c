/* Opens packed graphs: maps their files, whose checksums and contents are verified once, until they
 * change. */
#include <stdlib.h>
#include <string.h>

#include "base/host/file_stamp.h"
#include "base/paths.h"
#include "data/nodes/node_set.h"

#define STAMP      ".verified"
#define MOST_STAMP ((size_t)1 << 16)

typedef struct packed_graph {
    by__nodes_set *set;
    const char *directory;
    by__nodes_manifest manifest;
} packed_graph;

static const void *elements(const packed_graph *p, by__nodes_array which)
{
    const by__map *map = &p->set->maps[which];
    return map->data == NULL ? NULL : map->data + BY__NODES_PAGE;
}

/* ---- maps ---- */

static by_status map_array(packed_graph *p, by__nodes_array which, by_error *error)
{
    const by__nodes_manifest *m = &p->manifest;
    by__map *map = &p->set->maps[which];
    uint64_t rows;
    uint64_t columns;
    char header[BY__NODES_PAGE];
    char *path;
    by__nodes_array_extents(m, which, &rows, &columns);
    uint64_t bytes = rows * (columns > 0 ? columns : 1) * by__nodes_array_width(m, which);
    BY_TRY(by__path_make(&path, p->directory, by__nodes_array_name(which), error));
    by_status status = by__map_open(map, path, error);
    by__nodes_array_header(header, m, which);
    if (status == BY_OK &&
        (map->size != BY__NODES_PAGE + bytes || memcmp(map->data, header, sizeof header) != 0)) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s is not the array that manifest.json describes; pack the graph "
                              "again",
                              path);
    }
    free(path);
    return status;
}

/* ---- verification ---- */

static by_status check_hash(const packed_graph *p, by__nodes_array which, by_error *error)
{
    char found[33];
    const by__map *map = &p->set->maps[which];
    by__hash128_hex(found, map->data + BY__NODES_PAGE, map->size - BY__NODES_PAGE);
    return strcmp(found, p->manifest.hashes[which]) == 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT,
                              "%s/%s: damaged: its elements have checksum %s, but the manifest "
                              "says %s; pack the graph again",
                              p->directory, by__nodes_array_name(which), found,
                              p->manifest.hashes[which]);
}

static by_status refuse(const packed_graph *p, by__nodes_array which, const char *what,
                        uint64_t place, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s/%s: element %llu %s; pack the graph again",
                        p->directory, by__nodes_array_name(which), (unsigned long long)place, what);
}

static by_status check_edges(const packed_graph *p, by_error *error)
{
    const by__nodes_manifest *m = &p->manifest;
    const int64_t *offsets = elements(p, BY__NODES_OFFSETS);
    const int32_t *sources = elements(p, BY__NODES_SOURCES);
    for (uint64_t i = 0; i <= m->nodes; i++) {
        int64_t least = i == 0 ? 0 : offsets[i - 1];
        if (offsets[i] < least || (i == 0 && offsets[i] != 0) ||
            (i == m->nodes && offsets[i] != (int64_t)m->edges)) {
            return refuse(p, BY__NODES_OFFSETS, "is no offset of a row", i, error);
        }
    }
    for (uint64_t k = 0; k < m->edges; k++) {
        if (sources[k] < 0 || (uint64_t)sources[k] >= m->nodes) {
            return refuse(p, BY__NODES_SOURCES, "is no node", k, error);
        }
    }
    const float *weights = elements(p, BY__NODES_WEIGHTS);
    return weights == NULL ? BY_OK
                           : by__nodes_check_weights(weights, m->edges, p->directory, error);
}

static by_status check_nodes(const packed_graph *p, by_error *error)
{
    const by__nodes_manifest *m = &p->manifest;
    const int32_t *labels = elements(p, BY__NODES_LABELS);
    for (uint64_t i = 0; i < m->nodes && labels != NULL; i++) {
        if (labels[i] < -1 || labels[i] >= (int64_t)m->classes) {
            return refuse(p, BY__NODES_LABELS, "is no class", i, error);
        }
    }
    for (int list = 0; list < 3; list++) {
        by__nodes_array which = (by__nodes_array)(BY__NODES_TRAIN + list);
        const int64_t *nodes = elements(p, which);
        for (uint64_t i = 0; i < m->held[list]; i++) {
            if (nodes[i] < 0 || (uint64_t)nodes[i] >= m->nodes) {
                return refuse(p, which, "is no node", i, error);
            }
        }
    }
    return BY_OK;
}

/* What the files are: if this is as it was, they need not be read again. */
static by_status make_stamp(char **out, const packed_graph *p, by_error *error)
{
    by_string text = {0};
    by__string_append(&text, "banyan-verified-graph 1\n");
    for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
        char stamp[BY__FILE_STAMP_SIZE];
        char *path;
        if (p->manifest.hashes[i][0] == '\0') {
            continue;
        }
        BY_TRY(by__path_make(&path, p->directory, by__nodes_array_name((by__nodes_array)i), error));
        if (by__file_stamp(stamp, NULL, path)) {
            by_string_format(&text, "%s %s\n", p->manifest.hashes[i], stamp);
        }
        free(path);
    }
    return by__string_release(&text, out, error);
}

static by_status verify(const packed_graph *p, by_error *error)
{
    char *path;
    char *stamp = NULL;
    char *found = NULL;
    size_t length = 0;
    BY_TRY(by__path_make(&path, p->directory, STAMP, error));
    by_status status = make_stamp(&stamp, p, error);
    bool known = status == BY_OK &&
                 by__file_read(&found, &length, path, MOST_STAMP, NULL) == BY_OK &&
                 strcmp(found, stamp) == 0;
    for (size_t i = 0; i < BY__NODES_ARRAYS && status == BY_OK && !known; i++) {
        status =
            p->manifest.hashes[i][0] == '\0' ? BY_OK : check_hash(p, (by__nodes_array)i, error);
    }
    if (status == BY_OK && !known) {
        status = check_edges(p, error);
    }
    if (status == BY_OK && !known) {
        status = check_nodes(p, error);
    }
    if (status == BY_OK && !known) {
        (void)by__file_write(path, stamp, strlen(stamp), NULL); /* it may not be ours to write */
    }
    free(found);
    free(stamp);
    free(path);
    return status;
}

/* ---- opening ---- */

static by_status copy_list(uint64_t **out, uint64_t *count, const packed_graph *p, int list,
                           by_error *error)
{
    const int64_t *nodes = elements(p, (by__nodes_array)(BY__NODES_TRAIN + list));
    *count = p->manifest.held[list];
    BY_TRY(by__alloc((void **)out, (size_t)*count + 1, sizeof **out, "nodes", error));
    for (uint64_t i = 0; i < *count; i++) {
        (*out)[i] = (uint64_t)nodes[i];
    }
    return BY_OK;
}

static by_status take_hash(const packed_graph *p, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t i = 0; i < BY__NODES_TRAIN; i++) {
        by__hasher_add(hasher, p->manifest.hashes[i], strlen(p->manifest.hashes[i]));
    }
    by__hasher_add_u64(hasher, p->set->stored.normalize);
    by__hasher_hex(hasher, p->set->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

static by_status take(packed_graph *p, const by__nodes_options *options, by_error *error)
{
    const by__nodes_manifest *m = &p->manifest;
    by__nodes_set *set = p->set;
    set->nodes = (int64_t)m->nodes;
    set->edges = (int64_t)m->edges;
    set->features = (int64_t)m->features;
    set->classes = (int64_t)m->classes;
    set->offsets = elements(p, BY__NODES_OFFSETS);
    set->sources = elements(p, BY__NODES_SOURCES);
    set->labels = elements(p, BY__NODES_LABELS);
    set->weights = elements(p, BY__NODES_WEIGHTS);
    set->stored = (by__nodes_stored){.rows = elements(p, BY__NODES_FEATURES),
                                     .type = m->type,
                                     .scales = elements(p, BY__NODES_SCALES),
                                     .normalize = options->normalize};
    if (m->type == BY__NODES_FEATURES_F32 && !options->normalize) {
        set->x = set->stored.rows;
    }
    by__nodes_split *s = &set->split;
    BY_TRY(copy_list(&s->train, &s->train_count, p, 0, error));
    BY_TRY(copy_list(&s->valid, &s->valid_count, p, 1, error));
    BY_TRY(copy_list(&s->test, &s->test_count, p, 2, error));
    BY_TRY(by__nodes_set_add_degrees(set, error));
    return take_hash(p, error);
}

static by_status check_options(const packed_graph *p, const by__nodes_options *o, by_error *error)
{
    if (o->features[0] != '\0' || o->labels[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "%s is a packed graph, which has features and labels of its own: leave "
                            "out data.features and data.labels",
                            p->directory);
    }
    if (o->weighted && !p->manifest.weighted) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was packed without weights of edges: pack it with --weights, or "
                            "set data.edge_weights=false",
                            p->directory);
    }
    return p->manifest.self_loops || !o->self_loops
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s was packed without an edge from each node to itself: pack it "
                              "with --self-loops add, or set data.self_loops=false",
                              p->directory);
}

by_status by__nodes_packed_open(by__nodes_set *set, const by__nodes_options *options,
                                by_error *error)
{
    packed_graph p = {.set = set, .directory = options->graph};
    by_status status = by__nodes_manifest_read(&p.manifest, p.directory, error);
    if (status == BY_OK) {
        status = check_options(&p, options, error);
    }
    for (size_t i = 0; i < BY__NODES_ARRAYS && status == BY_OK; i++) {
        status = p.manifest.hashes[i][0] == '\0' ? BY_OK : map_array(&p, (by__nodes_array)i, error);
    }
    if (status == BY_OK) {
        status = verify(&p, error);
    }
    if (status == BY_OK) {
        status = take(&p, options, error);
    }
    by__nodes_manifest_free(&p.manifest);
    return status;
}
