/* Clusters (Chiang et al. 2019): the graph is cut into parts with few edges between them, and the
 * nodes of a sample are those of some parts, which each epoch puts together anew. */
#include <stdlib.h>

#include "base/paths.h"
#include "data/loader/order.h"
#include "data/nodes/partition/partition.h"
#include "data/nodes/subgraph/subgraph.h"

/* ---- the file of a graph's clusters: a line that says of what they are, and i32 [nodes] ---- */

static by_status name_file(char **out, const by__nodes_subgraphs *s, by_error *error)
{
    char name[96];
    (void)snprintf(name, sizeof name, "clusters-%lld-%llu.bin", (long long)s->options.clusters,
                   (unsigned long long)s->options.seed);
    return by__path_make(out, s->options.directory, name, error);
}

/* The line, with the checksum of the parts. */
static int head_of(char *out, size_t size, const by__nodes_subgraphs *s, const void *parts)
{
    char sum[33];
    by__hash128_hex(sum, parts, (size_t)s->set->nodes * sizeof(int32_t));
    return snprintf(out, size, "banyan-clusters 2 graph %s checksum %s\n", s->set->hash, sum);
}

/* Returns false if there is no such file, or it is of another graph or damaged: then the clusters
 * are made again. */
static bool read_parts(int32_t *parts, const by__nodes_subgraphs *s, const char *path)
{
    char head[160];
    char *bytes;
    size_t length;
    size_t size = (size_t)s->set->nodes * sizeof *parts;
    if (by__file_read(&bytes, &length, path, size + sizeof head, NULL) != BY_OK) {
        return false;
    }
    bool good = length > size;
    if (good) {
        memcpy(parts, bytes + (length - size), size);
        int head_length = head_of(head, sizeof head, s, parts);
        good = (size_t)head_length == length - size && memcmp(head, bytes, length - size) == 0;
    }
    for (int64_t v = 0; v < s->set->nodes && good; v++) {
        good = parts[v] >= 0 && parts[v] < s->options.clusters;
    }
    free(bytes);
    return good;
}

/* Whoever may not write there makes the clusters in each run. */
static void write_parts(const int32_t *parts, const by__nodes_subgraphs *s, const char *path)
{
    char head[160];
    by_string text = {0};
    int length = head_of(head, sizeof head, s, parts);
    by_string_add(&text, head, (size_t)length);
    by_string_add(&text, (const char *)parts, (size_t)s->set->nodes * sizeof *parts);
    if (!text.failed) {
        (void)by__file_write(path, text.data, text.length, NULL);
    }
    by_string_free(&text);
}

static by_status find_parts(int32_t *parts, const by__nodes_subgraphs *s, by_error *error)
{
    const by__nodes_set *set = s->set;
    char *path = NULL;
    if (s->options.directory != NULL) {
        BY_TRY(name_file(&path, s, error));
    }
    by_status status = BY_OK;
    if (path == NULL || !read_parts(parts, s, path)) {
        status = by__nodes_partition(parts, set->offsets, set->sources, set->nodes,
                                     s->options.clusters, s->options.seed, error);
        if (status == BY_OK && path != NULL) {
            write_parts(parts, s, path);
        }
    }
    free(path);
    return status;
}

/* ---- the strategy ---- */

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Sorts nodes by cluster, and sets the room for the largest ones. */
static by_status sort_nodes(by__nodes_subgraphs *s, const int32_t *parts, by_error *error)
{
    int64_t clusters = s->options.clusters;
    int64_t *sizes;
    BY_TRY(by__alloc((void **)&sizes, (size_t)clusters, sizeof *sizes, "clusters", error));
    for (int64_t v = 0; v < s->set->nodes; v++) {
        sizes[parts[v]]++;
    }
    for (int64_t c = 0; c < clusters; c++) {
        s->begins[c + 1] = s->begins[c] + sizes[c];
        sizes[c] = s->begins[c];
    }
    for (int64_t v = 0; v < s->set->nodes; v++) {
        s->members[sizes[parts[v]]++] = (int32_t)v;
    }
    for (int64_t c = 0; c < clusters; c++) {
        sizes[c] = s->begins[c + 1] - s->begins[c];
    }
    qsort(sizes, (size_t)clusters, sizeof *sizes, descending);
    s->nodes = 0;
    for (int64_t c = 0; c < s->options.together; c++) {
        s->nodes += sizes[c];
    }
    free(sizes);
    return BY_OK;
}

static by_status prepare(by__nodes_subgraphs *s, by_error *error)
{
    const by__nodes_subgraph_options *o = &s->options;
    size_t nodes = (size_t)s->set->nodes;
    int32_t *parts;
    if (o->clusters < 1 || o->clusters > s->set->nodes || o->together > o->clusters) {
        return by_error_set(error, BY_ECONFIG,
                            "data.clusters is %lld, with data.sample_clusters %lld: take from "
                            "there to %lld, the nodes of %s; clusters of some hundreds of nodes "
                            "are usual",
                            (long long)o->clusters, (long long)o->together,
                            (long long)s->set->nodes, s->set->name);
    }
    BY_TRY(by__alloc((void **)&s->members, nodes, sizeof *s->members, "clusters", error));
    BY_TRY(by__alloc((void **)&s->begins, (size_t)o->clusters + 1, sizeof *s->begins, "clusters",
                     error));
    BY_TRY(by__alloc((void **)&parts, nodes, sizeof *parts, "clusters", error));
    by_status status = find_parts(parts, s, error);
    if (status == BY_OK) {
        status = sort_nodes(s, parts, error);
    }
    s->bytes += nodes * sizeof *s->members + (size_t)(o->clusters + 1) * sizeof *s->begins;
    free(parts);
    return status;
}

static uint64_t samples(const by__nodes_subgraphs *s, uint64_t count)
{
    BY_UNUSED(count);
    return (uint64_t)((s->options.clusters + s->options.together - 1) / s->options.together);
}

static int32_t draw(const by__nodes_subgraphs *s, const by__nodes_draw *d, by__nodes_met *met)
{
    uint64_t clusters = (uint64_t)s->options.clusters;
    uint64_t each = (uint64_t)s->options.together;
    const by_source_sample *sample = d->sample;
    uint64_t first = (d->shuffle ? sample->index % samples(s, 0) : sample->place) * each;
    by__loader_order order;
    if (d->shuffle) {
        by__loader_order_init(&order, clusters, sample->seed, sample->epoch);
    }
    for (uint64_t i = first; i < first + each && i < clusters; i++) {
        uint64_t c = d->shuffle ? by__loader_order_at(&order, i) : i;
        for (int64_t k = s->begins[c]; k < s->begins[c + 1]; k++) {
            (void)by__nodes_met_add(met, s->members[k]);
        }
    }
    return met->count;
}

const by__nodes_strategy by__nodes_strategy_clusters = {
    .name = "clusters", .prepare = prepare, .samples = samples, .draw = draw};
