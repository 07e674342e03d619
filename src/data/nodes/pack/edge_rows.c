#include "data/nodes/pack/edge_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/threads.h"

#define DEFAULT_MEMORY ((uint64_t)1 << 30)
/* Rows up to this are sorted by insertion. */
#define SHORT_ROW 48

/* An edge as a key: where it comes from and, in the lower half, 1 + the bits of its weight, which
 * are in the order of weights, as none is below 0. A loop that is added has 0 there. */
#define ADDED 0u

/* A range of nodes, whose edges a thread sorts. */
typedef struct node_range {
    int64_t begin;
    int64_t end;
    int32_t *sources; /* all edges of the range, then those that are left, row by row */
    uint64_t *keys;   /* of edges with weights: all of the range */
    float *weights;   /* those that are left */
    uint64_t capacity;
    uint64_t left;
    int64_t twice; /* a node with an edge that is there twice; -1: none */
    int32_t twice_source;
} node_range;

typedef struct edge_sort {
    const int32_t (*pairs)[2];
    const float *weights; /* [count]; NULL: they have none */
    uint64_t count;
    uint64_t loops; /* among them */
    int64_t nodes;
    bool symmetric;
    bool keeps_loops;
    bool adds_loops;
    bool finds_twice;
    uint64_t *offsets; /* [nodes + 1] of edges with duplicates */
    uint32_t *degrees; /* [nodes] of edges without */
    size_t threads;
    node_range *ranges; /* [threads] */
    size_t range_count;
} edge_sort;

/* ---- counting ---- */

static by_status count_piece(void *context, size_t i, by_error *error)
{
    const edge_sort *s = context;
    uint64_t begin = s->count / s->threads * i;
    uint64_t end = i + 1 == s->threads ? s->count : s->count / s->threads * (i + 1);
    BY_UNUSED(error);
    for (uint64_t k = begin; k < end; k++) {
        int32_t from = s->pairs[k][0];
        int32_t to = s->pairs[k][1];
        if (from != to || s->keeps_loops) {
            (void)__atomic_fetch_add(&s->offsets[to + 1], 1, __ATOMIC_RELAXED);
        }
        if (from != to && s->symmetric) {
            (void)__atomic_fetch_add(&s->offsets[from + 1], 1, __ATOMIC_RELAXED);
        }
    }
    return BY_OK;
}

static by_status count_edges(edge_sort *s, by_error *error)
{
    BY_TRY(by__threads_run(s->threads, count_piece, s, error));
    for (int64_t v = 0; v < s->nodes; v++) {
        s->offsets[v + 1] += s->offsets[v] + (s->adds_loops ? 1 : 0);
    }
    return BY_OK;
}

/* ---- sorting a range ---- */

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a;
    int32_t y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void sort_row(int32_t *row, uint64_t count)
{
    if (count > SHORT_ROW) {
        qsort(row, (size_t)count, sizeof *row, compare);
        return;
    }
    for (uint64_t i = 1; i < count; i++) {
        int32_t value = row[i];
        uint64_t at = i;
        for (; at > 0 && row[at - 1] > value; at--) {
            row[at] = row[at - 1];
        }
        row[at] = value;
    }
}

static void put_edge(const node_range *r, uint64_t at, int32_t source, uint32_t weight)
{
    if (r->keys == NULL) {
        r->sources[at] = source;
    } else {
        r->keys[at] = (uint64_t)source << 32 | weight;
    }
}

/* The lower half of the key of edge `k`. */
static uint32_t weight_bits(const edge_sort *s, uint64_t k)
{
    uint32_t bits = 0;
    if (s->weights != NULL) {
        memcpy(&bits, &s->weights[k], sizeof bits);
        bits = bits == 0x80000000u ? 0 : bits; /* -0 is 0 */
    }
    return bits + 1;
}

/* Puts the edges of the range where their rows are, in any order. */
static void fill_range(const edge_sort *s, const node_range *r, uint64_t *ends)
{
    uint64_t first = s->offsets[r->begin];
    for (int64_t v = r->begin; v < r->end; v++) {
        ends[v - r->begin] = s->offsets[v] - first;
    }
    for (uint64_t k = 0; k < s->count; k++) {
        int32_t from = s->pairs[k][0];
        int32_t to = s->pairs[k][1];
        if (to >= r->begin && to < r->end && (from != to || s->keeps_loops)) {
            put_edge(r, ends[to - r->begin]++, from, weight_bits(s, k));
        }
        if (s->symmetric && from >= r->begin && from < r->end && from != to) {
            put_edge(r, ends[from - r->begin]++, to, weight_bits(s, k));
        }
    }
    for (int64_t v = r->begin; v < r->end && s->adds_loops; v++) {
        put_edge(r, ends[v - r->begin]++, (int32_t)v, ADDED);
    }
}

static void sort_rows(const edge_sort *s, node_range *r)
{
    uint64_t first = s->offsets[r->begin];
    for (int64_t v = r->begin; v < r->end; v++) {
        uint64_t count = s->offsets[v + 1] - s->offsets[v];
        int32_t *row = r->sources + (s->offsets[v] - first);
        uint64_t begin = r->left;
        sort_row(row, count);
        for (uint64_t k = 0; k < count; k++) {
            if (r->left > begin && r->sources[r->left - 1] == row[k]) {
                if (r->twice < 0) {
                    r->twice = v;
                    r->twice_source = row[k];
                }
                continue;
            }
            r->sources[r->left++] = row[k];
        }
        s->degrees[v] = (uint32_t)(r->left - begin);
    }
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Adds an edge to a row that begins at `begin`. Of those from one node, whose keys come one after
 * the other, the last one has the largest weight. */
static void add_key(node_range *r, int64_t v, uint64_t begin, uint64_t key, bool after_added)
{
    int32_t source = (int32_t)(key >> 32);
    uint32_t bits = (uint32_t)key == ADDED ? 0x3f800000u : (uint32_t)key - 1; /* 1.0f */
    bool again = r->left > begin && r->sources[r->left - 1] == source;
    if (again && !after_added && r->twice < 0) {
        r->twice = v;
        r->twice_source = source;
    }
    r->left -= again ? 1 : 0;
    r->sources[r->left] = source;
    memcpy(&r->weights[r->left++], &bits, sizeof bits);
}

static void sort_weighted_rows(const edge_sort *s, node_range *r)
{
    uint64_t first = s->offsets[r->begin];
    for (int64_t v = r->begin; v < r->end; v++) {
        uint64_t count = s->offsets[v + 1] - s->offsets[v];
        uint64_t *row = r->keys + (s->offsets[v] - first);
        uint64_t begin = r->left;
        qsort(row, (size_t)count, sizeof *row, compare_keys);
        for (uint64_t k = 0; k < count; k++) {
            add_key(r, v, begin, row[k], k > 0 && (uint32_t)row[k - 1] == ADDED);
        }
        s->degrees[v] = (uint32_t)(r->left - begin);
    }
}

/* Makes room for the edges of a range. */
static by_status reserve_range(const edge_sort *s, node_range *r, uint64_t edges, by_error *error)
{
    size_t room = (size_t)edges + 1;
    if (edges < r->capacity) { /* false also for no edges and no room */
        return BY_OK;
    }
    free(r->sources);
    free(r->keys);
    free(r->weights);
    r->sources = NULL;
    r->keys = NULL;
    r->weights = NULL;
    r->capacity = 0;
    BY_TRY(by__alloc((void **)&r->sources, room, sizeof *r->sources, "edges", error));
    if (s->weights != NULL) {
        BY_TRY(by__alloc((void **)&r->keys, room, sizeof *r->keys, "edges", error));
        BY_TRY(by__alloc((void **)&r->weights, room, sizeof *r->weights, "edges", error));
    }
    r->capacity = room;
    return BY_OK;
}

static by_status sort_range(void *context, size_t i, by_error *error)
{
    const edge_sort *s = context;
    node_range *r = &s->ranges[i];
    uint64_t *ends;
    uint64_t edges = s->offsets[r->end] - s->offsets[r->begin];
    r->left = 0;
    r->twice = -1;
    BY_TRY(reserve_range(s, r, edges, error));
    BY_TRY(
        by__alloc((void **)&ends, (size_t)(r->end - r->begin) + 1, sizeof *ends, "edges", error));
    fill_range(s, r, ends);
    free(ends);
    if (s->weights != NULL) {
        sort_weighted_rows(s, r);
    } else {
        sort_rows(s, r);
    }
    return BY_OK;
}

/* ---- all ranges ---- */

/* Cuts nodes from `begin` on into one range a thread, of at most `most` edges or one node. Returns
 * where the next begins. */
static int64_t cut_ranges(edge_sort *s, int64_t begin, uint64_t most)
{
    uint64_t left = s->offsets[s->nodes] - s->offsets[begin];
    uint64_t each = (left + s->threads - 1) / s->threads;
    most = each < most ? each : most;
    s->range_count = 0;
    while (s->range_count < s->threads && begin < s->nodes) {
        int64_t low = begin + 1;
        int64_t high = s->nodes;
        while (low < high) { /* the last end with at most so many edges */
            int64_t middle = low + (high - low + 1) / 2;
            if (s->offsets[middle] - s->offsets[begin] <= most) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        s->ranges[s->range_count].begin = begin;
        s->ranges[s->range_count++].end = low;
        begin = low;
    }
    return begin;
}

/* Writes sources, and weights if there are any, of the ranges. */
static by_status write_ranges(by__nodes_rows_result *out, const edge_sort *s, by__nodes_writer w[2],
                              uint64_t *edges, by_error *error)
{
    for (size_t i = 0; i < s->range_count; i++) {
        const node_range *r = &s->ranges[i];
        if (r->twice >= 0 && s->finds_twice) {
            out->twice_found = true;
            out->twice[0] = r->twice_source;
            out->twice[1] = (int32_t)r->twice;
            return BY_OK;
        }
        BY_TRY(
            by__nodes_writer_add(&w[0], r->sources, (size_t)r->left * sizeof *r->sources, error));
        if (s->weights != NULL) {
            BY_TRY(by__nodes_writer_add(&w[1], r->weights, (size_t)r->left * sizeof *r->weights,
                                        error));
        }
        *edges += r->left;
    }
    return BY_OK;
}

static by_status write_sources(by__nodes_rows_result *out, edge_sort *s, by__nodes_manifest *m,
                               by__nodes_writer w[2], const by_graph_pack_options *o,
                               by_error *error)
{
    uint64_t memory = o->memory > 0 ? o->memory : DEFAULT_MEMORY;
    size_t bytes = s->weights == NULL ? sizeof(int32_t) : 2 * sizeof(float) + sizeof(uint64_t);
    uint64_t most = memory / bytes / s->threads;
    m->edges = 0;
    for (int64_t begin = 0; begin < s->nodes && !out->twice_found;) {
        begin = cut_ranges(s, begin, most > 0 ? most : 1);
        BY_TRY(by__threads_run(s->range_count, sort_range, s, error));
        BY_TRY(write_ranges(out, s, w, &m->edges, error));
        if (o->progress != NULL &&
            !o->progress(o->user, "sorting", s->offsets[begin], s->offsets[s->nodes])) {
            return by_error_set(error, BY_ESTOPPED, "stopped: nothing was packed");
        }
    }
    if (out->twice_found) {
        return BY_OK;
    }
    uint64_t loops = s->weights != NULL && s->adds_loops ? s->loops : 0;
    out->duplicates = s->offsets[s->nodes] - m->edges - loops;
    if (m->edges == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: there are no edges between different nodes",
                            o->inputs[0]);
    }
    if (s->weights != NULL) {
        BY_TRY(by__nodes_writer_finish(&w[1], m, error));
    }
    return by__nodes_writer_finish(&w[0], m, error);
}

static by_status write_offsets(const edge_sort *s, by__nodes_manifest *m, const char *directory,
                               by_error *error)
{
    uint64_t at = 0;
    for (int64_t v = 0; v < s->nodes; v++) {
        s->offsets[v] = at;
        at += s->degrees[v];
    }
    s->offsets[s->nodes] = at;
    return by__nodes_array_write(m, directory, BY__NODES_OFFSETS, s->offsets,
                                 (size_t)(s->nodes + 1) * sizeof *s->offsets, error);
}

by_status by__nodes_rows_write(by__nodes_rows_result *out, by__nodes_manifest *manifest,
                               const by__nodes_spool *spool, const by_graph_pack_options *options,
                               const char *directory, by_error *error)
{
    by__nodes_writer w[2] = {{.file = -1}, {.file = -1}};
    edge_sort s = {.pairs = (const int32_t(*)[2])(const void *)spool->map.data,
                   .weights = (const float *)(const void *)spool->weights.data,
                   .count = spool->count,
                   .loops = spool->loops,
                   .nodes = (int64_t)manifest->nodes,
                   .symmetric = !options->directed,
                   .keeps_loops = options->loops == BY_LOOPS_KEEP ||
                                  (options->weights && options->loops == BY_LOOPS_ADD),
                   .adds_loops = options->loops == BY_LOOPS_ADD,
                   .finds_twice = options->refuse_duplicates};
    size_t nodes = (size_t)manifest->nodes;
    *out = (by__nodes_rows_result){0};
    s.threads = options->threads > 0 ? options->threads : (size_t)by__thread_count(0);
    by_status status =
        by__alloc((void **)&s.offsets, nodes + 1, sizeof *s.offsets, "offsets", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s.degrees, nodes, sizeof *s.degrees, "degrees", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&s.ranges, s.threads, sizeof *s.ranges, "ranges", error);
    }
    if (status == BY_OK) {
        status = count_edges(&s, error);
    }
    if (status == BY_OK) {
        status = by__nodes_writer_open(&w[0], directory, BY__NODES_SOURCES, error);
    }
    if (status == BY_OK && s.weights != NULL) {
        status = by__nodes_writer_open(&w[1], directory, BY__NODES_WEIGHTS, error);
    }
    if (status == BY_OK) {
        status = write_sources(out, &s, manifest, w, options, error);
    }
    if (status == BY_OK && !out->twice_found) {
        status = write_offsets(&s, manifest, directory, error);
    }
    by__nodes_writer_close(&w[0]);
    by__nodes_writer_close(&w[1]);
    for (size_t i = 0; s.ranges != NULL && i < s.threads; i++) {
        free(s.ranges[i].sources);
        free(s.ranges[i].keys);
        free(s.ranges[i].weights);
    }
    free(s.ranges);
    free(s.degrees);
    free(s.offsets);
    return status;
}
