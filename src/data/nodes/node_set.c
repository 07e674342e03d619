/* Reads graphs: an npz file with scipy's sparse matrices, as graph benchmarks are published, or a
 * text of edges beside files of features and classes. */
#include "data/nodes/node_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/paths.h"
#include "formats/npz.h"

/* An array of an archive or a file, as i32 or f32. */
typedef struct node_array {
    by_shape shape;
    void *data;
} node_array;

static by_status convert(node_array *out, const by__format_array_view *view, by_dtype dtype,
                         const char *name, by_error *error)
{
    out->shape = view->shape;
    BY_TRY(by__alloc(&out->data, (size_t)by_shape_count(&view->shape) + 1, sizeof(float), "a graph",
                     error));
    return by__format_array_convert(out->data, dtype, view, name, error);
}

/* Where a graph is read from. */
typedef struct reading {
    by__nodes_set *set;
    const by__nodes_options *options;
    by__map file; /* of the graph */
    bool is_archive;
    int32_t (*pairs)[2];
    float *weights; /* of the pairs; NULL: they have none */
    uint64_t count;
} reading;

static by_status read_member(node_array *out, const reading *r, const char *name, by_dtype dtype,
                             by_error *error)
{
    by__format_array_view view;
    uint8_t *memory = NULL;
    BY_TRY(by__format_npz_read(&view, &memory, r->options->graph, r->file.data, r->file.size, name,
                               BY__ARRAY_FILE_LIMIT, error));
    by_status status = convert(out, &view, dtype, r->options->graph, error);
    free(memory);
    return status;
}

static by_status has_member(bool *out, const reading *r, const char *name, by_error *error)
{
    by__format_npz_member member;
    return by__format_npz_find(&member, out, r->options->graph, r->file.data, r->file.size, name,
                               error);
}

/* A matrix of scipy: PREFIX_indptr, PREFIX_indices, and the number of columns in PREFIX_shape. */
typedef struct csr_matrix {
    node_array offsets;
    node_array columns;
    int64_t rows;
    int64_t width;
} csr_matrix;

static void free_matrix(csr_matrix *m)
{
    free(m->offsets.data);
    free(m->columns.data);
}

static by_status check_matrix(const csr_matrix *m, const char *file, const char *prefix,
                              by_error *error)
{
    const int32_t *offsets = m->offsets.data;
    const int32_t *columns = m->columns.data;
    bool right = m->rows >= 1 && m->width >= 1 && m->columns.shape.rank == 1 && offsets[0] == 0 &&
                 offsets[m->rows] == m->columns.shape.dim[0];
    for (int64_t i = 0; right && i < m->rows; i++) {
        right = offsets[i] <= offsets[i + 1];
    }
    for (int64_t i = 0; right && i < m->columns.shape.dim[0]; i++) {
        right = columns[i] >= 0 && columns[i] < m->width;
    }
    return right ? BY_OK
                 : by_error_set(error, BY_EFORMAT,
                                "%s: %s_indptr, %s_indices and %s_shape are not a sparse matrix",
                                file, prefix, prefix, prefix);
}

static by_status read_matrix(csr_matrix *m, const reading *r, const char *prefix, by_error *error)
{
    char name[64];
    node_array shape = {0};
    (void)snprintf(name, sizeof name, "%s_indptr", prefix);
    by_status status = read_member(&m->offsets, r, name, BY_I32, error);
    if (status == BY_OK) {
        (void)snprintf(name, sizeof name, "%s_indices", prefix);
        status = read_member(&m->columns, r, name, BY_I32, error);
    }
    if (status == BY_OK) {
        (void)snprintf(name, sizeof name, "%s_shape", prefix);
        status = read_member(&shape, r, name, BY_I32, error);
    }
    if (status == BY_OK) {
        bool flat = m->offsets.shape.rank == 1 && by_shape_count(&shape.shape) == 2;
        m->rows = flat ? m->offsets.shape.dim[0] - 1 : 0;
        m->width = flat ? ((const int32_t *)shape.data)[1] : 0;
        m->rows = flat && ((const int32_t *)shape.data)[0] == m->rows ? m->rows : 0;
        status = check_matrix(m, r->options->graph, prefix, error);
    }
    free(shape.data);
    return status;
}

static by_status take_edges(reading *r, const csr_matrix *m, by_error *error)
{
    const int32_t *offsets = m->offsets.data;
    const int32_t *columns = m->columns.data;
    if (m->rows != m->width) {
        return by_error_set(error, BY_EFORMAT, "%s: the matrix of edges is %lld x %lld",
                            r->options->graph, (long long)m->rows, (long long)m->width);
    }
    r->set->nodes = m->rows;
    r->count = (uint64_t)offsets[m->rows];
    BY_TRY(by__alloc((void **)&r->pairs, (size_t)r->count + 1, sizeof *r->pairs, "edges", error));
    for (int64_t from = 0; from < m->rows; from++) {
        for (int32_t k = offsets[from]; k < offsets[from + 1]; k++) {
            r->pairs[k][0] = (int32_t)from;
            r->pairs[k][1] = columns[k];
        }
    }
    return BY_OK;
}

/* The weights of the edges of an archive, in the order of adj_indices. */
static by_status read_weights(reading *r, by_error *error)
{
    node_array weights = {0};
    bool named = false;
    BY_TRY(has_member(&named, r, "edge_weight", error));
    by_status status = read_member(&weights, r, named ? "edge_weight" : "adj_data", BY_F32, error);
    if (status == BY_OK && (uint64_t)by_shape_count(&weights.shape) != r->count) {
        status =
            by_error_set(error, BY_EFORMAT, "%s: %s has %lld weights of %llu edges",
                         r->options->graph, named ? "edge_weight" : "adj_data",
                         (long long)by_shape_count(&weights.shape), (unsigned long long)r->count);
    }
    if (status == BY_OK) {
        status = by__nodes_check_weights(weights.data, r->count, r->options->graph, error);
    }
    r->weights = weights.data;
    return status;
}

static by_status read_edges(reading *r, by_error *error)
{
    bool weighted = r->options->weighted;
    if (!r->is_archive) {
        const char *text = (const char *)r->file.data;
        BY_TRY(by__nodes_edge_list_parse(&r->pairs, weighted ? &r->weights : NULL, &r->count,
                                         r->options->graph, text, r->file.size, error));
        return r->count > 0
                   ? BY_OK
                   : by_error_set(error, BY_EFORMAT,
                                  "%s: there are no edges; a line is two numbers of nodes, source "
                                  "and target",
                                  r->options->graph);
    }
    csr_matrix m = {0};
    by_status status = read_matrix(&m, r, "adj", error);
    if (status == BY_OK) {
        status = take_edges(r, &m, error);
    }
    if (status == BY_OK && weighted) {
        status = read_weights(r, error);
    }
    free_matrix(&m);
    return status;
}

/* ---- features ---- */

static void normalize(float *x, int64_t nodes, int64_t features)
{
    for (int64_t i = 0; i < nodes; i++) {
        float *row = x + i * features;
        double sum = 0.0;
        for (int64_t k = 0; k < features; k++) {
            sum += fabs((double)row[k]);
        }
        for (int64_t k = 0; k < features && sum > 0.0; k++) {
            row[k] = (float)((double)row[k] / sum);
        }
    }
}

/* Takes an f32 array of a row for each node. */
by_status by__nodes_check_features(const float *x, uint64_t first, uint64_t rows, uint64_t columns,
                                   const char *file, by_error *error)
{
    for (uint64_t i = 0; i < rows * columns; i++) {
        if (!isfinite(x[i])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: feature %llu of node %llu is %g; it is finite", file,
                                (unsigned long long)(i % columns),
                                (unsigned long long)(first + i / columns), (double)x[i]);
        }
    }
    return BY_OK;
}

static by_status take_features(by__nodes_set *set, node_array *x, bool normalized, const char *file,
                               by_error *error)
{
    if (x->shape.rank != 2 || x->shape.dim[0] < 1 || x->shape.dim[1] < 1 ||
        (set->nodes > 0 && x->shape.dim[0] != set->nodes)) {
        char shape[128];
        return by_error_set(error, BY_EFORMAT,
                            "%s: features must have a row for each node and a column at least; "
                            "they are %s",
                            file, by_shape_print(&x->shape, shape));
    }
    BY_TRY(by__nodes_check_features(x->data, 0, (uint64_t)x->shape.dim[0],
                                    (uint64_t)x->shape.dim[1], file, error));
    set->nodes = x->shape.dim[0];
    set->features = x->shape.dim[1];
    if (normalized) {
        normalize(x->data, set->nodes, set->features);
    }
    set->x = x->data;
    by__nodes_set_own(set, x->data, (uint64_t)set->nodes * (uint64_t)set->features * sizeof(float));
    x->data = NULL;
    return BY_OK;
}

/* Features as a sparse matrix, whose values are 1 if it has none. */
static by_status read_sparse_features(reading *r, by_error *error)
{
    csr_matrix m = {0};
    node_array values = {0};
    node_array x = {0};
    bool valued = false;
    by_status status = read_matrix(&m, r, "attr", error);
    if (status == BY_OK) {
        status = has_member(&valued, r, "attr_data", error);
    }
    if (status == BY_OK && valued) {
        status = read_member(&values, r, "attr_data", BY_F32, error);
    }
    if (status == BY_OK && valued && !by_shape_equal(&values.shape, &m.columns.shape)) {
        status = by_error_set(error, BY_EFORMAT, "%s: attr_data is not like attr_indices",
                              r->options->graph);
    }
    size_t elements = 0;
    if (status == BY_OK && !by__size_mul((size_t)m.rows, (size_t)m.width, &elements)) {
        status = by_error_set(error, BY_EMEMORY, "%s: the features overflow", r->options->graph);
    }
    if (status == BY_OK) {
        x.shape = BY_SHAPE(m.rows, m.width);
        status = by__alloc(&x.data, elements, sizeof(float), "features", error);
    }
    for (int64_t i = 0; status == BY_OK && i < m.rows; i++) {
        const int32_t *offsets = m.offsets.data;
        for (int32_t k = offsets[i]; k < offsets[i + 1]; k++) {
            ((float *)x.data)[i * m.width + ((const int32_t *)m.columns.data)[k]] =
                valued ? ((const float *)values.data)[k] : 1.0f;
        }
    }
    if (status == BY_OK) {
        status = take_features(r->set, &x, r->options->normalize, r->options->graph, error);
    }
    free(values.data);
    free(x.data);
    free_matrix(&m);
    return status;
}

/* Reads a file of one array. */
static by_status read_file(node_array *out, const char *path, by_dtype dtype, by_error *error)
{
    uint8_t *bytes;
    size_t size;
    by__format_array_view view;
    BY_TRY(by__format_array_file_read(&bytes, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by__format_array_file_parse(&view, path, bytes, size, error);
    if (status == BY_OK) {
        status = convert(out, &view, dtype, path, error);
    }
    free(bytes);
    return status;
}

static by_status read_features(reading *r, by_error *error)
{
    const char *path = r->options->features;
    node_array x = {0};
    bool sparse = false;
    if (path[0] == '\0' && !r->is_archive) {
        return by_error_set(error, BY_ECONFIG,
                            "%s has edges alone: set data.features to an npy file with a row for "
                            "each node",
                            r->options->graph);
    }
    if (path[0] == '\0') {
        BY_TRY(has_member(&sparse, r, "attr_indptr", error));
    }
    if (sparse) {
        return read_sparse_features(r, error);
    }
    by_status status = path[0] != '\0' ? read_file(&x, path, BY_F32, error)
                                       : read_member(&x, r, "attr_matrix", BY_F32, error);
    if (status == BY_OK) {
        status = take_features(r->set, &x, r->options->normalize,
                               path[0] != '\0' ? path : r->options->graph, error);
    }
    free(x.data);
    return status;
}

/* ---- labels ---- */

static by_status take_labels(by__nodes_set *set, node_array *labels, const char *file,
                             by_error *error)
{
    if (by_shape_count(&labels->shape) != set->nodes) {
        return by_error_set(error, BY_EFORMAT, "%s: %lld labels are not one for each of %lld nodes",
                            file, (long long)by_shape_count(&labels->shape), (long long)set->nodes);
    }
    set->labels = labels->data;
    by__nodes_set_own(set, labels->data, (uint64_t)set->nodes * sizeof(int32_t));
    labels->data = NULL;
    for (int64_t i = 0; i < set->nodes; i++) {
        int32_t label = set->labels[i];
        if (label < -1 || label >= 1 << 20) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: label %d of node %lld is not a class from 0, or -1 for none",
                                file, label, (long long)i);
        }
        set->classes = label >= set->classes ? label + 1 : set->classes;
    }
    return BY_OK;
}

static by_status read_labels(reading *r, by_error *error)
{
    const char *path = r->options->labels;
    node_array labels = {0};
    bool has = path[0] != '\0';
    if (!has && r->is_archive) {
        BY_TRY(has_member(&has, r, "labels", error));
    }
    if (!has) {
        return BY_OK;
    }
    by_status status = path[0] != '\0' ? read_file(&labels, path, BY_I32, error)
                                       : read_member(&labels, r, "labels", BY_I32, error);
    if (status == BY_OK) {
        status = take_labels(r->set, &labels, path[0] != '\0' ? path : r->options->graph, error);
    }
    free(labels.data);
    return status;
}

/* ---- opening ---- */

static by_status check_pairs(const reading *r, by_error *error)
{
    for (uint64_t i = 0; i < r->count; i++) {
        for (size_t k = 0; k < 2; k++) {
            if (r->pairs[i][k] >= r->set->nodes) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s: edge %llu has node %d; there are %lld, numbered from 0",
                                    r->options->graph, (unsigned long long)i, r->pairs[i][k],
                                    (long long)r->set->nodes);
            }
        }
    }
    return BY_OK;
}

static by_status take_hash(by__nodes_set *set, by_error *error)
{
    by__hasher *hasher;
    size_t nodes = (size_t)set->nodes;
    BY_TRY(by__hasher_open(&hasher, error));
    by__hasher_add_u64(hasher, nodes);
    by__hasher_add(hasher, set->x, nodes * (size_t)set->features * sizeof(float));
    by__hasher_add(hasher, set->offsets, (nodes + 1) * sizeof(int64_t));
    by__hasher_add(hasher, set->sources, (size_t)set->edges * sizeof(int32_t));
    if (set->weights != NULL) {
        by__hasher_add(hasher, set->weights, (size_t)set->edges * sizeof(float));
    }
    if (set->labels != NULL) {
        by__hasher_add(hasher, set->labels, nodes * sizeof(int32_t));
    }
    by__hasher_hex(hasher, set->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

static by_status read_all(reading *r, by_error *error)
{
    by__nodes_set *set = r->set;
    BY_TRY(read_edges(r, error));
    BY_TRY(read_features(r, error));
    if (set->nodes >= INT32_MAX) {
        return by_error_set(error, BY_EFORMAT, "%s: there are more than 2^31 - 2 nodes", set->name);
    }
    BY_TRY(read_labels(r, error));
    BY_TRY(check_pairs(r, error));
    BY_TRY(by__nodes_set_weighted_edges(set, (const int32_t(*)[2])r->pairs, r->weights, r->count,
                                        r->options, error));
    return take_hash(set, error);
}

static by_status read_file_of(reading *r, by_error *error)
{
    BY_TRY(by__map_open(&r->file, r->options->graph, error));
    r->is_archive = by__format_npz_is(r->file.data, r->file.size);
    by_status status = read_all(r, error);
    by__map_close(&r->file);
    free(r->pairs);
    free(r->weights);
    return status;
}

by_status by__nodes_set_open(by__nodes_set **out, const by__nodes_options *options, by_error *error)
{
    reading r = {.options = options};
    bool packed = by__nodes_is_packed(options->graph);
    if (!packed && by__path_is_dir(options->graph)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s is a directory without a manifest.json, and no graph that `banyan "
                            "pack --graph` wrote: pack it, or name a text of edges or an npz file",
                            options->graph);
    }
    BY_TRY(by__alloc((void **)&r.set, 1, sizeof *r.set, "a graph", error));
    r.set->name = by__strdup(options->graph);
    by_status status = r.set->name == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a name")
                       : packed ? by__nodes_packed_open(r.set, options, error)
                                : read_file_of(&r, error);
    if (status != BY_OK) {
        by__nodes_set_close(&r.set);
        return status;
    }
    *out = r.set;
    return BY_OK;
}

by_status by__nodes_set_alloc(by__nodes_set *set, void **out, size_t count, size_t size,
                              by_error *error)
{
    BY_TRY(by__alloc(out, count, size, "a graph", error));
    by__nodes_set_own(set, *out, (uint64_t)count * size);
    return BY_OK;
}

void by__nodes_set_own(by__nodes_set *set, void *memory, uint64_t bytes)
{
    set->owned[set->owned_count++] = memory;
    set->bytes += bytes;
}

/* As by__f16_to_f32 of finite numbers, without branches, so that a loop becomes vector
 * instructions. */
static void widen_row(float *out, const uint16_t *row, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t magnitude = row[i] & 0x7fffu;
        uint32_t normal = (magnitude << 13) + (112u << 23); /* exponents count from 127, not 15 */
        uint32_t small = by__float_bits((float)(int32_t)magnitude * 5.9604644775390625e-8f);
        uint32_t sign = (uint32_t)(row[i] & 0x8000u) << 16;
        out[i] = by__bits_float(sign | (magnitude < 0x400u ? small : normal));
    }
}

void by__nodes_set_fetch_row(const by__nodes_set *set, int64_t node)
{
    static const size_t sizes[] = {[BY__NODES_FEATURES_F32] = sizeof(float),
                                   [BY__NODES_FEATURES_F16] = sizeof(uint16_t),
                                   [BY__NODES_FEATURES_U8] = sizeof(uint8_t)};
    size_t size = set->x != NULL ? sizeof(float) : sizes[set->stored.type];
    size_t bytes = (size_t)set->features * size;
    const char *row = set->x != NULL ? (const char *)set->x : set->stored.rows;
    for (size_t at = 0; at < bytes; at += BY_CACHE_LINE) {
        __builtin_prefetch(row + (size_t)node * bytes + at);
    }
}

void by__nodes_set_row(const by__nodes_set *set, int64_t node, float *out)
{
    const by__nodes_stored *s = &set->stored;
    size_t width = (size_t)set->features;
    size_t at = (size_t)node * width;
    if (width == 0) {
        return; /* a graph without features has no rows to copy from */
    }
    if (set->x != NULL) {
        memcpy(out, set->x + at, width * sizeof *out);
        return;
    }
    if (s->type == BY__NODES_FEATURES_F32) {
        memcpy(out, (const float *)s->rows + at, width * sizeof *out);
    } else if (s->type == BY__NODES_FEATURES_F16) {
        widen_row(out, (const uint16_t *)s->rows + at, width);
    } else {
        for (size_t i = 0; i < width; i++) {
            out[i] =
                s->scales[i] + s->scales[width + i] * (float)((const uint8_t *)s->rows)[at + i];
        }
    }
    if (s->normalize) {
        normalize(out, 1, set->features);
    }
}

void by__nodes_set_clear(by__nodes_set *set)
{
    for (size_t i = 0; i < set->owned_count; i++) {
        free(set->owned[i]);
    }
    for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
        by__map_close(&set->maps[i]);
    }
    by__nodes_split_free(&set->split);
    free(set->name);
    *set = (by__nodes_set){0};
}

void by__nodes_set_close(by__nodes_set **set)
{
    if (*set != NULL) {
        by__nodes_set_clear(*set);
        free(*set);
        *set = NULL;
    }
}
