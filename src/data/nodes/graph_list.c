/* Reads small graphs. All of them are one graph whose parts are not connected, so edges are sorted
 * as those of one graph are. */
#include "data/nodes/graph_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/npz.h"

/* The tables that graphs are read from: in f64, which holds whole numbers up to 2^53. */
enum { NODE_COUNTS, EDGE_COUNTS, EDGES, FEATURES, LABELS, EDGE_FEATURES, GRAPH_FEATURES, TABLES };

typedef struct table_name {
    const char *member;
    const char *file;
    bool optional;
} table_name;

static const table_name table_names[TABLES] = {
    [NODE_COUNTS] = {"num_node_list", "num-node-list.csv", false},
    [EDGE_COUNTS] = {"num_edge_list", "num-edge-list.csv", false},
    [EDGES] = {"edge_index", "edge.csv", false},
    [FEATURES] = {"node_feat", "node-feat.csv", true},
    [LABELS] = {"graph_label", "graph-label.csv", true},
    [EDGE_FEATURES] = {"edge_feat", "edge-feat.csv", false},
    [GRAPH_FEATURES] = {"graph_feat", "graph-feat.csv", false}};

typedef struct graph_table {
    double *values; /* NULL: there is none */
    uint64_t rows;
    uint64_t columns;
} graph_table;

typedef struct graph_reading {
    by__nodes_graph_list *list;
    const by__nodes_options *options;
    graph_table tables[TABLES];
    int32_t (*pairs)[2];
} graph_reading;

/* ---- tables ---- */

static bool is_wanted(const graph_reading *r, int table)
{
    return table == EDGE_FEATURES    ? r->options->edge_features
           : table == GRAPH_FEATURES ? r->options->graph_features
                                     : true;
}

static by_status read_member(graph_table *out, const char *file, const by__map *map,
                             const char *name, by_error *error)
{
    by__format_array_view view;
    uint8_t *memory = NULL;
    BY_TRY(by__format_npz_read(&view, &memory, file, map->data, map->size, name,
                               BY__ARRAY_FILE_LIMIT, error));
    size_t count = (size_t)by_shape_count(&view.shape);
    out->rows = view.shape.rank > 0 ? (uint64_t)view.shape.dim[0] : 1;
    out->columns = out->rows > 0 ? count / out->rows : 0;
    bool whole = view.element != BY__ELEMENT_F32 && view.element != BY__ELEMENT_F64;
    void *narrow = NULL;
    by_status status =
        by__alloc((void **)&out->values, count + 1, sizeof *out->values, "graphs", error);
    if (status == BY_OK) {
        status = by__alloc(&narrow, count + 1, sizeof(float), "graphs", error);
    }
    bool same = view.element == BY__ELEMENT_F64 && !view.big_endian;
    if (status == BY_OK && same) {
        memcpy(out->values, view.data, count * sizeof *out->values);
    } else if (status == BY_OK) {
        status = by__format_array_convert(narrow, whole ? BY_I32 : BY_F32, &view, file, error);
    }
    for (size_t i = 0; status == BY_OK && !same && i < count; i++) {
        out->values[i] = whole ? (double)((int32_t *)narrow)[i] : (double)((float *)narrow)[i];
    }
    free(narrow);
    free(memory);
    return status;
}

static by_status read_archive(graph_reading *r, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, r->options->graph, error));
    by_status status =
        by__format_npz_is(map.data, map.size)
            ? BY_OK
            : by_error_set(error, BY_EFORMAT, "%s is neither an npz file nor a directory of tables",
                           r->options->graph);
    for (int i = 0; status == BY_OK && i < TABLES; i++) {
        by__format_npz_member member;
        bool found = true;
        if (!is_wanted(r, i)) {
            continue;
        }
        status = by__format_npz_find(&member, &found, r->options->graph, map.data, map.size,
                                     table_names[i].member, error);
        if (status == BY_OK && (found || !table_names[i].optional)) {
            status =
                read_member(&r->tables[i], r->options->graph, &map, table_names[i].member, error);
        }
    }
    by__map_close(&map);
    return status;
}

/* Finds DIR/NAME, DIR/NAME.gz, or these in the folder raw; free() it. NULL: there is none. */
static char *find_table(const char *directory, const char *name)
{
    static const char *const folders[] = {"", "raw/"};
    static const char *const ends[] = {"", ".gz"};
    size_t size = strlen(directory) + strlen(name) + 16;
    char *path = malloc(size);
    for (size_t i = 0; path != NULL && i < 4; i++) {
        struct stat info;
        (void)snprintf(path, size, "%s/%s%s%s", directory, folders[i / 2], name, ends[i % 2]);
        if (stat(path, &info) == 0) {
            return path;
        }
    }
    free(path);
    return NULL;
}

static by_status read_directory(graph_reading *r, by_error *error)
{
    for (int i = 0; i < TABLES; i++) {
        char *path = is_wanted(r, i) ? find_table(r->options->graph, table_names[i].file) : NULL;
        uint8_t *text = NULL;
        size_t size = 0;
        if (path == NULL && (table_names[i].optional || !is_wanted(r, i))) {
            continue;
        }
        if (path == NULL) {
            return by_error_set(error, BY_EIO, "%s has no %s, nor %s.gz", r->options->graph,
                                table_names[i].file, table_names[i].file);
        }
        graph_table *t = &r->tables[i];
        by_status status =
            by__format_array_file_read(&text, &size, path, BY__ARRAY_FILE_LIMIT, error);
        if (status == BY_OK) {
            status = by__nodes_number_table_parse(&t->values, &t->rows, &t->columns, path,
                                                  (const char *)text, size, error);
        }
        free(text);
        free(path);
        BY_TRY(status);
    }
    return BY_OK;
}

/* ---- graphs ---- */

static by_status refuse(const graph_reading *r, int table, uint64_t row, double value,
                        const char *why, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: %s, row %llu: %g %s", r->options->graph,
                        table_names[table].member, (unsigned long long)row + 1, value, why);
}

/* Sets where the nodes of each graph begin. */
static by_status take_counts(graph_reading *r, by_error *error)
{
    by__nodes_graph_list *l = r->list;
    const graph_table *t = &r->tables[NODE_COUNTS];
    uint64_t graphs = t->rows * t->columns;
    double sum = 0.0;
    if (graphs == 0 || r->tables[EDGE_COUNTS].rows * r->tables[EDGE_COUNTS].columns != graphs) {
        return by_error_set(
            error, BY_EFORMAT, "%s: %llu graphs have nodes, and %llu edges; they must be as many",
            r->options->graph, (unsigned long long)graphs,
            (unsigned long long)(r->tables[EDGE_COUNTS].rows * r->tables[EDGE_COUNTS].columns));
    }
    l->graphs = (int64_t)graphs;
    BY_TRY(by__alloc((void **)&l->begins, graphs + 1, sizeof *l->begins, "graphs", error));
    for (uint64_t i = 0; i < graphs; i++) {
        double count = t->values[i];
        if (!(count >= 1.0) || count != floor(count) || sum + count >= (double)INT32_MAX) {
            return refuse(r, NODE_COUNTS, i, count, "is no number of nodes", error);
        }
        sum += count;
        l->begins[i + 1] = (int64_t)sum;
    }
    l->set->nodes = (int64_t)sum;
    return BY_OK;
}

/* Turns the edges of each graph into pairs of nodes of all. edge_index has a row for either end;
 * edge.csv one for each edge. */
static by_status take_edges(graph_reading *r, bool in_rows, by_error *error)
{
    const graph_table *t = &r->tables[EDGES];
    const double *counts = r->tables[EDGE_COUNTS].values;
    uint64_t edges = in_rows ? t->rows : t->columns;
    uint64_t at = 0;
    if ((in_rows ? t->columns : t->rows) != 2) {
        return by_error_set(error, BY_EFORMAT, "%s: %s has not two numbers for each edge",
                            r->options->graph, table_names[EDGES].member);
    }
    BY_TRY(by__alloc((void **)&r->pairs, (size_t)edges + 1, sizeof *r->pairs, "edges", error));
    for (int64_t g = 0; g < r->list->graphs; g++) {
        int64_t begin = r->list->begins[g];
        double nodes = (double)(r->list->begins[g + 1] - begin);
        if (!(counts[g] >= 0.0) || counts[g] != floor(counts[g]) ||
            counts[g] > (double)(edges - at)) {
            return refuse(r, EDGE_COUNTS, (uint64_t)g, counts[g],
                          "is no number of edges, or there are fewer", error);
        }
        for (uint64_t end = at + (uint64_t)counts[g]; at < end; at++) {
            for (size_t k = 0; k < 2; k++) {
                double node = t->values[in_rows ? at * 2 + k : k * edges + at];
                if (!(node >= 0.0) || node != floor(node) || node >= nodes) {
                    return refuse(r, EDGES, at, node, "is no node of its graph", error);
                }
                r->pairs[at][k] = (int32_t)(begin + (int64_t)node);
            }
        }
    }
    return at == edges
               ? by__nodes_set_edges(r->list->set, (const int32_t(*)[2])r->pairs, edges, r->options,
                                     error)
               : by_error_set(error, BY_EFORMAT,
                              "%s: there are %llu edges, but the graphs have %llu",
                              r->options->graph, (unsigned long long)edges, (unsigned long long)at);
}

static by_status take_features(graph_reading *r, by_error *error)
{
    by__nodes_set *set = r->list->set;
    const graph_table *t = &r->tables[FEATURES];
    float *x;
    if (t->values != NULL && t->rows != (uint64_t)set->nodes) {
        return by_error_set(error, BY_EFORMAT, "%s: %llu rows of features, and %lld nodes",
                            r->options->graph, (unsigned long long)t->rows, (long long)set->nodes);
    }
    set->features = t->values == NULL ? 1 : (int64_t)t->columns;
    size_t count = (size_t)(set->nodes * set->features);
    BY_TRY(by__nodes_set_alloc(set, (void **)&x, count, sizeof *x, error));
    for (size_t i = 0; i < count; i++) {
        x[i] = t->values == NULL ? 1.0f : (float)t->values[i];
        if (!isfinite(x[i])) {
            return refuse(r, FEATURES, i / t->columns, (double)x[i], "is no feature", error);
        }
    }
    set->x = x;
    return BY_OK;
}

/* Gives each edge the features of its row, or of that of the edge back. */
static void place_features(by__nodes_set *set, float *out, const by__nodes_graph *g, bool back)
{
    size_t width = (size_t)g->edge_features;
    for (uint64_t i = 0; i < g->count; i++) {
        const int32_t *pair = g->pairs[i];
        int64_t edge = by__nodes_set_edge(set, pair[back ? 1 : 0], pair[back ? 0 : 1]);
        if (edge >= 0) {
            memcpy(out + (size_t)edge * width, g->edge_x + i * width, width * sizeof *out);
        }
    }
}

/* Sets the features of edges, of which the set has the rows. */
static by_status set_edge_features(by__nodes_set *set, const by__nodes_graph *g, bool symmetric,
                                   by_error *error)
{
    float *x;
    set->edge_features = g->edge_features;
    if (g->edge_features == 0) {
        return BY_OK;
    }
    BY_TRY(by__nodes_set_alloc(set, (void **)&x, (size_t)(set->edges * g->edge_features) + 1,
                               sizeof *x, error));
    if (symmetric) {
        place_features(set, x, g, true);
    }
    place_features(set, x, g, false);
    set->edge_x = x;
    return BY_OK;
}

static by_status take_edge_features(graph_reading *r, bool in_rows, by_error *error)
{
    by__nodes_set *set = r->list->set;
    const graph_table *t = &r->tables[EDGE_FEATURES];
    uint64_t edges = in_rows ? r->tables[EDGES].rows : r->tables[EDGES].columns;
    float *x;
    if (t->values == NULL) {
        return BY_OK;
    }
    if (t->rows != edges || t->columns < 1) {
        return by_error_set(error, BY_EFORMAT, "%s: %llu rows of features of edges, and %llu edges",
                            r->options->graph, (unsigned long long)t->rows,
                            (unsigned long long)edges);
    }
    size_t count = (size_t)(t->rows * t->columns);
    BY_TRY(by__alloc((void **)&x, count + 1, sizeof *x, "features of edges", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        x[i] = (float)t->values[i];
        if (!isfinite(x[i])) {
            status = refuse(r, EDGE_FEATURES, i / t->columns, t->values[i], "is no feature", error);
        }
    }
    const by__nodes_graph g = {.pairs = (const int32_t(*)[2])r->pairs,
                               .count = edges,
                               .edge_x = x,
                               .edge_features = (int64_t)t->columns};
    if (status == BY_OK) {
        status = set_edge_features(set, &g, r->options->symmetric, error);
    }
    free(x);
    return status;
}

static by_status take_graph_features(graph_reading *r, by_error *error)
{
    by__nodes_graph_list *l = r->list;
    const graph_table *t = &r->tables[GRAPH_FEATURES];
    if (t->values == NULL) {
        return BY_OK;
    }
    if (t->rows != (uint64_t)l->graphs || t->columns < 1) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %llu rows of features of graphs, and %lld graphs",
                            r->options->graph, (unsigned long long)t->rows, (long long)l->graphs);
    }
    size_t count = (size_t)(t->rows * t->columns);
    l->features = (int64_t)t->columns;
    BY_TRY(by__nodes_set_alloc(l->set, (void **)&l->x, count, sizeof *l->x, error));
    for (size_t i = 0; i < count; i++) {
        l->x[i] = (float)t->values[i];
        if (!isfinite(l->x[i])) {
            return refuse(r, GRAPH_FEATURES, i / t->columns, t->values[i], "is no feature", error);
        }
    }
    return BY_OK;
}

static by_status take_labels(graph_reading *r, by_error *error)
{
    by__nodes_graph_list *l = r->list;
    const graph_table *t = &r->tables[LABELS];
    if (t->values == NULL) {
        return BY_OK;
    }
    if (t->rows != (uint64_t)l->graphs || t->columns != 1) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the labels are %llu rows of %llu numbers; one is read of each of "
                            "%lld graphs",
                            r->options->graph, (unsigned long long)t->rows,
                            (unsigned long long)t->columns, (long long)l->graphs);
    }
    l->values = t->values;
    r->tables[LABELS].values = NULL;
    return BY_OK;
}

static by_status take_hash(by__nodes_graph_list *l, by_error *error)
{
    by__hasher *hasher;
    by__nodes_set *set = l->set;
    size_t nodes = (size_t)set->nodes;
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add(hasher, l->begins, (size_t)(l->graphs + 1) * sizeof *l->begins);
    by__hasher_add(hasher, set->x, nodes * (size_t)set->features * sizeof *set->x);
    by__hasher_add(hasher, set->offsets, (nodes + 1) * sizeof *set->offsets);
    by__hasher_add(hasher, set->sources, (size_t)set->edges * sizeof *set->sources);
    if (set->edge_x != NULL) {
        by__hasher_add(hasher, set->edge_x,
                       (size_t)(set->edges * set->edge_features) * sizeof *set->edge_x);
    }
    if (l->x != NULL) {
        by__hasher_add(hasher, l->x, (size_t)(l->graphs * l->features) * sizeof *l->x);
    }
    if (l->values != NULL) {
        by__hasher_add(hasher, l->values, (size_t)l->graphs * sizeof *l->values);
    }
    by__hasher_hex(hasher, set->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

static by_status read_all(graph_reading *r, by_error *error)
{
    struct stat info;
    by__nodes_graph_list *l = r->list;
    BY_TRY(by__alloc((void **)&l->set, 1, sizeof *l->set, "graphs", error));
    l->set->name = by__strdup(r->options->graph);
    if (l->set->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a name");
    }
    bool is_directory = stat(r->options->graph, &info) == 0 && S_ISDIR(info.st_mode);
    BY_TRY(is_directory ? read_directory(r, error) : read_archive(r, error));
    BY_TRY(take_counts(r, error));
    BY_TRY(take_edges(r, is_directory, error));
    BY_TRY(take_features(r, error));
    BY_TRY(take_edge_features(r, is_directory, error));
    BY_TRY(take_graph_features(r, error));
    BY_TRY(take_labels(r, error));
    return take_hash(l, error);
}

by_status by__nodes_graph_list_open(by__nodes_graph_list **out, const by__nodes_options *options,
                                    by_error *error)
{
    graph_reading r = {.options = options};
    BY_TRY(by__alloc((void **)&r.list, 1, sizeof *r.list, "graphs", error));
    by_status status = read_all(&r, error);
    for (int i = 0; i < TABLES; i++) {
        free(r.tables[i].values);
    }
    free(r.pairs);
    if (status != BY_OK) {
        by__nodes_graph_list_close(&r.list);
        return status;
    }
    *out = r.list;
    return BY_OK;
}

static by_status make_edges(by__nodes_set *set, const by__nodes_graph *g,
                            const by__nodes_options *options, by_error *error)
{
    for (uint64_t i = 0; i < g->count; i++) {
        const int32_t *pair = g->pairs[i];
        if (pair[0] < 0 || pair[0] >= set->nodes || pair[1] < 0 || pair[1] >= set->nodes) {
            return by_error_set(error, BY_EARG,
                                "edge %llu leads from node %d to %d; there are %lld",
                                (unsigned long long)i, pair[0], pair[1], (long long)set->nodes);
        }
    }
    if (g->count > 0 || options->self_loops) {
        return by__nodes_set_edges(set, g->pairs, g->count, options, error);
    }
    int64_t *offsets;
    BY_TRY(by__nodes_set_alloc(set, (void **)&offsets, (size_t)set->nodes + 1, sizeof *offsets,
                               error));
    set->offsets = offsets;
    return BY_OK;
}

static by_status make_one(by__nodes_graph_list *l, const by__nodes_graph *g,
                          const by__nodes_options *options, by_error *error)
{
    by__nodes_set *set;
    float *own;
    BY_TRY(by__alloc((void **)&l->set, 1, sizeof *l->set, "a graph", error));
    BY_TRY(by__alloc((void **)&l->begins, 2, sizeof *l->begins, "a graph", error));
    set = l->set;
    l->graphs = 1;
    l->begins[1] = g->nodes;
    set->nodes = g->nodes;
    set->features = g->features;
    set->name = by__strdup("a graph");
    if (set->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a graph");
    }
    size_t elements = (size_t)(set->nodes * set->features);
    BY_TRY(by__nodes_set_alloc(set, (void **)&own, elements, sizeof *own, error));
    memcpy(own, g->x, elements * sizeof *own);
    set->x = own;
    l->features = g->graph_features;
    if (l->features > 0) {
        BY_TRY(by__nodes_set_alloc(set, (void **)&l->x, (size_t)l->features, sizeof *l->x, error));
        memcpy(l->x, g->graph_x, (size_t)l->features * sizeof *l->x);
    }
    BY_TRY(make_edges(set, g, options, error));
    return set_edge_features(set, g, options->symmetric, error);
}

by_status by__nodes_graph_list_make(by__nodes_graph_list **out, const by__nodes_graph *graph,
                                    const by__nodes_options *options, by_error *error)
{
    by__nodes_graph_list *l;
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "a graph", error));
    by_status status = make_one(l, graph, options, error);
    if (status != BY_OK) {
        by__nodes_graph_list_close(&l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by__nodes_graph_list_close(by__nodes_graph_list **list)
{
    by__nodes_graph_list *l = *list;
    if (l != NULL) {
        by__nodes_set_close(&l->set);
        free(l->begins);
        free(l->values);
        free(l);
        *list = NULL;
    }
}
