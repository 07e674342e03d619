#include "data/nodes/node_relations.h"

#include <stdlib.h>
#include <string.h>

#include "data/loader/row_list.h"

/* Most relations that a file may name. */
#define MOST_RELATIONS 65536

typedef struct typed_edge {
    int32_t to;
    int32_t from;
    int32_t type;
} typed_edge;

static int by_place(const void *a, const void *b)
{
    const typed_edge *x = a;
    const typed_edge *y = b;
    int32_t left = x->to != y->to ? x->to : x->from != y->from ? x->from : x->type;
    int32_t right = x->to != y->to ? y->to : x->from != y->from ? y->from : y->type;
    return (left > right) - (left < right);
}

/* Sorts edges, and leaves out those that are there already. Returns how many are left. */
static int64_t sort_edges(typed_edge *edges, size_t count)
{
    int64_t kept = 0;
    qsort(edges, count, sizeof *edges, by_place);
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || by_place(&edges[kept - 1], &edges[i]) != 0) {
            edges[kept++] = edges[i];
        }
    }
    return kept;
}

static by_status allocate(by__nodes_relations *r, by_error *error)
{
    size_t edges = (size_t)r->edges;
    size_t pairs = (size_t)(r->nodes * r->relations);
    const struct {
        void *out;
        size_t count;
        size_t size;
    } arrays[] = {
        {&r->offsets, (size_t)r->nodes + 1, sizeof(int32_t)},
        {&r->sources, edges, sizeof(int32_t)},
        {&r->weights, edges, sizeof(float)},
        {&r->back_offsets, pairs + 1, sizeof(int32_t)},
        {&r->back_sources, edges, sizeof(int32_t)},
        {&r->back_edges, edges, sizeof(int32_t)},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i].out, arrays[i].count, arrays[i].size, "relations", error));
        r->bytes += arrays[i].count * arrays[i].size;
    }
    return BY_OK;
}

/* Turns counts at offsets[i + 1] into offsets. */
static void add_up(int32_t *offsets, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        offsets[i + 1] += offsets[i];
    }
}

/* Weights of the edges of a row; `counts` [relations] is 0 before and after. */
static void weigh_row(const by__nodes_relations *r, int64_t row, int32_t *counts)
{
    for (int32_t k = r->offsets[row]; k < r->offsets[row + 1]; k++) {
        counts[r->sources[k] % r->relations]++;
    }
    for (int32_t k = r->offsets[row]; k < r->offsets[row + 1]; k++) {
        r->weights[k] = 1.0f / (float)counts[r->sources[k] % r->relations];
    }
    for (int32_t k = r->offsets[row]; k < r->offsets[row + 1]; k++) {
        counts[r->sources[k] % r->relations] = 0;
    }
}

static void fill_rows(const by__nodes_relations *r, const typed_edge *edges, int32_t *counts)
{
    for (int64_t k = 0; k < r->edges; k++) {
        r->sources[k] = (int32_t)(edges[k].from * r->relations + edges[k].type);
        r->offsets[edges[k].to + 1]++;
        r->back_offsets[r->sources[k] + 1]++;
    }
    add_up(r->offsets, r->nodes);
    add_up(r->back_offsets, r->nodes * r->relations);
    for (int64_t row = 0; row < r->nodes; row++) {
        weigh_row(r, row, counts);
    }
}

static void transpose(const by__nodes_relations *r)
{
    int32_t *ends = r->back_offsets;
    int64_t pairs = r->nodes * r->relations;
    for (int64_t row = 0; row < r->nodes; row++) {
        for (int32_t k = r->offsets[row]; k < r->offsets[row + 1]; k++) {
            int32_t at = ends[r->sources[k]]++;
            r->back_sources[at] = (int32_t)row;
            r->back_edges[at] = k;
        }
    }
    memmove(ends + 1, ends, (size_t)pairs * sizeof *ends);
    ends[0] = 0;
}

/* *all: how many edges there are then. */
static by_status collect(typed_edge *edges, uint64_t *all, int64_t *relations, const char *name,
                         const int32_t (*pairs)[2], const int32_t *types, uint64_t count,
                         bool symmetric, const by__nodes_set *among, by_error *error)
{
    int32_t last = 0;
    *all = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (types[i] < 0 || types[i] >= MOST_RELATIONS) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: edge %llu has relation %d; they are numbered from 0 to %d",
                                name, (unsigned long long)i, types[i], MOST_RELATIONS - 1);
        }
        last = types[i] > last ? types[i] : last;
    }
    for (uint64_t i = 0; i < count; i++) {
        const int32_t *p = pairs[i];
        if (among != NULL && by__nodes_set_edge(among, p[0], p[1]) < 0) {
            continue;
        }
        edges[(*all)++] = (typed_edge){.to = p[1], .from = p[0], .type = types[i]};
        if (symmetric) {
            edges[(*all)++] = (typed_edge){.to = p[0], .from = p[1], .type = types[i] + last + 1};
        }
    }
    *relations = (int64_t)(last + 1) * (symmetric ? 2 : 1);
    return BY_OK;
}

static by_status make(by__nodes_relations *r, typed_edge *edges, const char *name, uint64_t all,
                      by_error *error)
{
    int32_t *counts;
    if (all > INT32_MAX || r->nodes * r->relations >= INT32_MAX) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %llu edges, or %lld nodes times %lld relations, are more than "
                            "2^31 - 2",
                            name, (unsigned long long)all, (long long)r->nodes,
                            (long long)r->relations);
    }
    r->edges = sort_edges(edges, (size_t)all);
    BY_TRY(allocate(r, error));
    BY_TRY(by__alloc((void **)&counts, (size_t)r->relations, sizeof *counts, "relations", error));
    fill_rows(r, edges, counts);
    transpose(r);
    free(counts);
    return BY_OK;
}

by_status by__nodes_relations_make(by__nodes_relations *out, const char *name, int64_t nodes,
                                   const int32_t (*pairs)[2], const int32_t *types, uint64_t count,
                                   bool symmetric, const by__nodes_set *among, by_error *error)
{
    by__nodes_relations r = {.nodes = nodes};
    typed_edge *edges;
    uint64_t all = symmetric ? 2 * count : count;
    BY_TRY(by__alloc((void **)&edges, (size_t)all + 1, sizeof *edges, "relations", error));
    by_status status =
        collect(edges, &all, &r.relations, name, pairs, types, count, symmetric, among, error);
    if (status == BY_OK) {
        status = make(&r, edges, name, all, error);
    }
    free(edges);
    if (status != BY_OK) {
        by__nodes_relations_free(&r);
        return status;
    }
    *out = r;
    return BY_OK;
}

/* Numbers of a list as i32: they are below MOST_RELATIONS. */
static by_status narrow(int32_t **out, const uint64_t *list, uint64_t count, by_error *error)
{
    BY_TRY(by__alloc((void **)out, (size_t)count + 1, sizeof **out, "relations", error));
    for (uint64_t i = 0; i < count; i++) {
        (*out)[i] = (int32_t)list[i];
    }
    return BY_OK;
}

static by_status read_pairs(int32_t (**pairs)[2], uint64_t *count, const char *graph, int64_t nodes,
                            by_error *error)
{
    by__map file;
    BY_TRY(by__map_open(&file, graph, error));
    by_status status = by__nodes_edge_list_parse(pairs, NULL, count, graph, (const char *)file.data,
                                                 file.size, error);
    by__map_close(&file);
    for (uint64_t i = 0; status == BY_OK && i < *count; i++) {
        if ((*pairs)[i][0] >= nodes || (*pairs)[i][1] >= nodes) {
            status = by_error_set(error, BY_EFORMAT, "%s: edge %llu has a node from %lld on", graph,
                                  (unsigned long long)i, (long long)nodes);
        }
    }
    return status;
}

by_status by__nodes_relations_open(by__nodes_relations *out, const char *graph, const char *types,
                                   const by__nodes_set *among, bool within, bool symmetric,
                                   by_error *error)
{
    int64_t nodes = among->nodes;
    int32_t(*pairs)[2] = NULL;
    uint64_t *list = NULL;
    int32_t *narrowed = NULL;
    uint64_t count = 0;
    uint64_t listed = 0;
    by_status status = read_pairs(&pairs, &count, graph, nodes, error);
    if (status == BY_OK) {
        status = by__loader_row_list_read(&list, &listed, types, MOST_RELATIONS, error);
    }
    if (status == BY_OK && listed != count) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s has the relations of %llu edges, but %s has %llu edges", types,
                              (unsigned long long)listed, graph, (unsigned long long)count);
    }
    if (status == BY_OK) {
        status = narrow(&narrowed, list, count, error);
    }
    if (status == BY_OK) {
        status = by__nodes_relations_make(out, graph, nodes, (const int32_t(*)[2])pairs, narrowed,
                                          count, symmetric, within ? among : NULL, error);
    }
    free(narrowed);
    free(list);
    free(pairs);
    return status;
}

by_status by__nodes_relations_hash(const by__nodes_relations *r, char hash[33], by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add(hasher, hash, 32);
    by__hasher_add_u64(hasher, (uint64_t)r->relations);
    by__hasher_add(hasher, r->offsets, (size_t)(r->nodes + 1) * sizeof *r->offsets);
    by__hasher_add(hasher, r->sources, (size_t)r->edges * sizeof *r->sources);
    by__hasher_hex(hasher, hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

void by__nodes_relations_free(by__nodes_relations *r)
{
    free(r->offsets);
    free(r->sources);
    free(r->weights);
    free(r->back_offsets);
    free(r->back_sources);
    free(r->back_edges);
    *r = (by__nodes_relations){0};
}
