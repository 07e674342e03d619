/* Packs graphs: finds the inputs, reads what is known of the nodes, then the edges, and renames the
 * directory when all of it is written. */
#include "banyan/graph_pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/paths.h"
#include "data/loader/row_list.h"
#include "data/nodes/node_set.h"
#include "data/nodes/pack/edge_rows.h"
#include "data/nodes/pack/node_table.h"
#include "data/nodes/pack/pack_inputs.h"
#include "data/nodes/pack/text_chunks.h"
#include "formats/array_file.h"

/* Bytes of features of an npy file that are converted at a time. */
#define BLOCK ((size_t)4 << 20)

typedef struct graph_packing {
    const by_graph_pack_options *options;
    char *partial; /* OUTPUT.partial */
    by__nodes_inputs inputs;
    by__nodes_manifest manifest;
    by__nodes_columns columns;
    by__nodes_feature_type type;
    size_t source_capacity;
    by_graph_pack_result result;
} graph_packing;

/* ---- features and classes ---- */

static by_status refuse_rows(const char *path, const by_shape *shape, uint64_t nodes,
                             by_error *error)
{
    char text[128];
    return by_error_set(error, BY_EFORMAT, "%s is %s, and not a row for each of %llu nodes", path,
                        by_shape_print(shape, text), (unsigned long long)nodes);
}

static by_status convert_features(graph_packing *p, by__nodes_feature_writer *w,
                                  const by__format_array_view *all, by_error *error)
{
    uint64_t columns = (uint64_t)all->shape.dim[1];
    size_t row = (size_t)columns * sizeof(float);
    uint64_t each = row < BLOCK ? BLOCK / row : 1;
    float *x;
    BY_TRY(by__alloc((void **)&x, (size_t)(each * columns), sizeof *x, "features", error));
    by_status status = by__nodes_features_open(w, p->partial, p->type, columns, error);
    for (uint64_t at = 0; at < p->columns.nodes && status == BY_OK; at += each) {
        uint64_t rows = p->columns.nodes - at < each ? p->columns.nodes - at : each;
        by__format_array_view part = *all;
        part.shape = BY_SHAPE((int64_t)rows, (int64_t)columns);
        part.data += at * columns * by__format_element_size(all->element);
        status = by__format_array_convert(x, BY_F32, &part, p->inputs.features, error);
        if (status == BY_OK) {
            status = by__nodes_check_features(x, at, rows, columns, p->inputs.features, error);
        }
        if (status == BY_OK) {
            status = by__nodes_features_add(w, x, rows, error);
        }
    }
    free(x);
    return status == BY_OK ? by__nodes_features_finish(w, &p->manifest, error) : status;
}

static by_status read_features(graph_packing *p, by_error *error)
{
    by__map map;
    by__format_array_view all;
    by__nodes_feature_writer w = {.array = {.file = -1}, .spool = -1};
    const char *path = p->inputs.features;
    BY_TRY(by__nodes_text_open(&map, path, p->partial, error));
    by_status status = by__format_array_file_parse(&all, path, map.data, map.size, error);
    uint64_t nodes = p->columns.nodes;
    if (status == BY_OK &&
        (all.shape.rank != 2 || all.shape.dim[0] < 1 || all.shape.dim[1] < 1 ||
         all.shape.dim[0] >= INT32_MAX || (nodes > 0 && nodes != (uint64_t)all.shape.dim[0]))) {
        status = refuse_rows(path, &all.shape, nodes, error);
    }
    if (status == BY_OK) {
        p->columns.nodes = (uint64_t)all.shape.dim[0];
        p->manifest.nodes = p->columns.nodes;
        status = convert_features(p, &w, &all, error);
    }
    by__nodes_features_close(&w);
    by__map_close(&map);
    return status;
}

static by_status read_labels(graph_packing *p, by_error *error)
{
    uint8_t *bytes;
    size_t size;
    by__format_array_view view;
    const char *path = p->inputs.labels;
    int32_t *labels = NULL;
    BY_TRY(by__format_array_file_read(&bytes, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by__format_array_file_parse(&view, path, bytes, size, error);
    if (status == BY_OK && (uint64_t)by_shape_count(&view.shape) != p->columns.nodes) {
        status = refuse_rows(path, &view.shape, p->columns.nodes, error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&labels, (size_t)p->columns.nodes, sizeof *labels, "labels", error);
    }
    if (status == BY_OK) {
        status = by__format_array_convert(labels, BY_I32, &view, path, error);
        free(p->columns.labels);
        p->columns.labels = labels;
    }
    for (uint64_t i = 0; status == BY_OK && i < p->columns.nodes; i++) {
        if (labels[i] < -1 || labels[i] >= 1 << 20) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: label %d of node %llu is not a class from 0, or -1 for none",
                                  path, labels[i], (unsigned long long)i);
        }
    }
    free(bytes);
    return status;
}

/* Reads the number of nodes of a benchmark, which has one graph. */
static by_status read_count(graph_packing *p, by_error *error)
{
    by__map text;
    uint64_t *counts = NULL;
    uint64_t count = 0;
    BY_TRY(by__nodes_text_open(&text, p->inputs.counts, p->partial, error));
    by_status status = by__loader_row_list_parse(
        &counts, &count, p->inputs.counts, (const char *)text.data, text.size, INT32_MAX, error);
    if (status == BY_OK) {
        if (count != 1 || counts[0] == 0) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s is of %llu graphs; one graph is packed at a time",
                                  p->inputs.counts, (unsigned long long)count);
        } else {
            p->columns.nodes = counts[0];
        }
        free(counts);
    }
    by__map_close(&text);
    return status;
}

static by_status read_lists(graph_packing *p, by_error *error)
{
    for (size_t i = 0; i < 3; i++) {
        by__map text;
        if (p->inputs.lists[i] == NULL) {
            continue;
        }
        free(p->columns.held[i]);
        p->columns.held[i] = NULL;
        BY_TRY(by__nodes_text_open(&text, p->inputs.lists[i], p->partial, error));
        by_status status = by__loader_row_list_parse(&p->columns.held[i], &p->columns.held_count[i],
                                                     p->inputs.lists[i], (const char *)text.data,
                                                     text.size, p->columns.nodes, error);
        by__map_close(&text);
        BY_TRY(status);
    }
    return BY_OK;
}

static by_status read_nodes(graph_packing *p, by_error *error)
{
    const by__nodes_inputs *in = &p->inputs;
    by__nodes_columns *c = &p->columns;
    const by_graph_pack_options *o = p->options;
    if (in->counts != NULL) {
        BY_TRY(read_count(p, error));
    }
    if (in->named != NULL) {
        BY_TRY(by__nodes_table_read(c, &p->manifest, in->named, BY__NODES_TABLE_NAMED, p->type, o,
                                    p->partial, error));
    }
    if (in->features != NULL && p->manifest.features > 0) {
        return by_error_set(error, BY_EARG, "%s has features: leave out --features", in->named);
    }
    if (in->features != NULL) {
        BY_TRY(read_features(p, error));
    }
    if (in->rows != NULL) {
        BY_TRY(by__nodes_table_read(c, &p->manifest, in->rows, BY__NODES_TABLE_FEATURES, p->type, o,
                                    p->partial, error));
    }
    if (p->manifest.features == 0) {
        return by_error_set(error, BY_EARG,
                            "%s has no columns of features: --features FILE.npy has them",
                            in->named);
    }
    if (in->classes != NULL) {
        BY_TRY(by__nodes_table_read(c, &p->manifest, in->classes, BY__NODES_TABLE_LABELS, p->type,
                                    o, p->partial, error));
    }
    if (in->labels != NULL) {
        BY_TRY(read_labels(p, error));
    }
    return read_lists(p, error);
}

static by_status write_nodes(graph_packing *p, by_error *error)
{
    by__nodes_columns *c = &p->columns;
    by__nodes_manifest *m = &p->manifest;
    m->nodes = c->nodes;
    for (uint64_t i = 0; c->labels != NULL && i < c->nodes; i++) {
        uint64_t classes = (uint64_t)(c->labels[i] + 1);
        m->classes = classes > m->classes ? classes : m->classes;
    }
    if (m->classes > 0) {
        BY_TRY(by__nodes_array_write(m, p->partial, BY__NODES_LABELS, c->labels,
                                     (size_t)c->nodes * sizeof *c->labels, error));
    }
    for (size_t i = 0; i < 3; i++) {
        m->held[i] = c->held_count[i];
        if (m->held[i] > 0) {
            BY_TRY(by__nodes_array_write(m, p->partial, (by__nodes_array)(BY__NODES_TRAIN + i),
                                         c->held[i], (size_t)m->held[i] * sizeof *c->held[i],
                                         error));
        }
    }
    return BY_OK;
}

/* ---- edges ---- */

static by_status write_edges(graph_packing *p, by__nodes_spool *spool, by_error *error)
{
    const by_graph_pack_options *o = p->options;
    by__nodes_rows_result rows;
    for (size_t i = 0; i < p->inputs.edge_count; i++) {
        BY_TRY(by__nodes_spool_read(spool, p->inputs.edges[i],
                                    o->weights && p->inputs.weights == NULL, o, error));
    }
    if (p->inputs.weights != NULL) {
        BY_TRY(by__nodes_spool_read_weights(spool, p->inputs.weights, error));
    }
    BY_TRY(by__nodes_spool_finish(spool, o, error));
    BY_TRY(by__nodes_rows_write(&rows, &p->manifest, spool, o, p->partial, error));
    if (rows.twice_found) {
        return by__nodes_spool_refuse_twice(spool, rows.twice, !o->directed,
                                            (const char *const *)p->inputs.edges,
                                            p->inputs.edge_count, error);
    }
    p->result.listed = spool->count;
    p->result.loops = spool->loops;
    p->result.skipped = spool->skipped;
    p->result.duplicates = rows.duplicates;
    return BY_OK;
}

static by_status pack_lists(graph_packing *p, by_error *error)
{
    by__nodes_spool spool;
    BY_TRY(read_nodes(p, error));
    BY_TRY(write_nodes(p, error));
    by_status status = by__nodes_spool_open(&spool, p->partial, p->options->weights, error);
    spool.nodes = (int64_t)p->columns.nodes;
    if (status == BY_OK) {
        status = write_edges(p, &spool, error);
    }
    by__nodes_spool_close(&spool);
    return status;
}

/* ---- archives, which are read into memory ---- */

static by_status copy_labels(graph_packing *p, const by__nodes_set *set, by_error *error)
{
    size_t nodes = (size_t)set->nodes;
    p->columns.nodes = (uint64_t)set->nodes;
    if (set->labels == NULL) {
        return BY_OK;
    }
    BY_TRY(
        by__alloc((void **)&p->columns.labels, nodes, sizeof *p->columns.labels, "labels", error));
    memcpy(p->columns.labels, set->labels, nodes * sizeof *set->labels);
    return BY_OK;
}

static by_status write_set(graph_packing *p, const by__nodes_set *set, by_error *error)
{
    by__nodes_manifest *m = &p->manifest;
    by__nodes_feature_writer w;
    m->nodes = (uint64_t)set->nodes;
    m->edges = (uint64_t)set->edges;
    by_status status =
        by__nodes_features_open(&w, p->partial, p->type, (uint64_t)set->features, error);
    if (status == BY_OK) {
        status = by__nodes_features_add(&w, set->x, m->nodes, error);
    }
    if (status == BY_OK) {
        status = by__nodes_features_finish(&w, m, error);
    }
    by__nodes_features_close(&w);
    BY_TRY(status);
    BY_TRY(copy_labels(p, set, error));
    BY_TRY(read_lists(p, error));
    BY_TRY(write_nodes(p, error));
    BY_TRY(by__nodes_array_write(m, p->partial, BY__NODES_OFFSETS, set->offsets,
                                 (size_t)(set->nodes + 1) * sizeof *set->offsets, error));
    p->result.listed = m->edges;
    if (set->weights != NULL) {
        BY_TRY(by__nodes_array_write(m, p->partial, BY__NODES_WEIGHTS, set->weights,
                                     (size_t)set->edges * sizeof *set->weights, error));
    }
    return by__nodes_array_write(m, p->partial, BY__NODES_SOURCES, set->sources,
                                 (size_t)set->edges * sizeof *set->sources, error);
}

static by_status pack_archive(graph_packing *p, by_error *error)
{
    by__nodes_set *set;
    const by_graph_pack_options *o = p->options;
    const by__nodes_options options = {.graph = p->inputs.archive,
                                       .features = o->features == NULL ? "" : o->features,
                                       .labels = o->labels == NULL ? "" : o->labels,
                                       .symmetric = !o->directed,
                                       .self_loops = o->loops == BY_LOOPS_ADD,
                                       .weighted = o->weights};
    BY_TRY(by__nodes_set_open(&set, &options, error));
    by_status status = write_set(p, set, error);
    by__nodes_set_close(&set);
    return status;
}

/* ---- packing ---- */

static by_status add_source(void *context, const char *path, by_error *error)
{
    graph_packing *p = context;
    by__nodes_manifest *m = &p->manifest;
    struct stat info;
    BY_TRY(by__reserve((void **)&m->sources, &p->source_capacity, m->source_count + 1,
                       sizeof *m->sources, error));
    by__nodes_manifest_source *s = &m->sources[m->source_count];
    *s = (by__nodes_manifest_source){0};
    if (stat(path, &info) != 0) {
        return by__io_error(error, "open", path);
    }
    s->bytes = (uint64_t)info.st_size;
    BY_TRY(by__hash_file_hex(s->hash, path, error));
    s->path = by__strdup(path);
    m->source_count++;
    return s->path == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
}

/* Removes what an interrupted run left, and nothing else. */
static by_status remove_rest(const graph_packing *p, by_error *error)
{
    char **names;
    size_t count;
    if (!by__path_exists(p->partial)) {
        return BY_OK;
    }
    BY_TRY(by__list_dir(&names, &count, p->partial, error));
    bool ours = true;
    for (size_t i = 0; i < count && ours; i++) {
        ours = strcmp(names[i], BY__NODES_MANIFEST) == 0;
        for (size_t k = 0; k < BY__NODES_ARRAYS && !ours; k++) {
            ours = strcmp(names[i], by__nodes_array_name((by__nodes_array)k)) == 0;
        }
    }
    by__names_free(names, count);
    return ours ? by__remove_tree(p->partial, error)
                : by_error_set(error, BY_EARG, "%s is in the way: remove it", p->partial);
}

static by_status write_all(graph_packing *p, by_error *error)
{
    const by_graph_pack_options *o = p->options;
    by__nodes_manifest *m = &p->manifest;
    m->symmetric = !o->directed;
    m->self_loops = o->loops == BY_LOOPS_ADD;
    m->weighted = o->weights;
    BY_TRY(p->inputs.archive != NULL ? pack_archive(p, error) : pack_lists(p, error));
    BY_TRY(by__nodes_inputs_each(&p->inputs, add_source, p, error));
    BY_TRY(by__nodes_manifest_write(m, p->partial, error));
    BY_TRY(by__sync_dir(p->partial, error));
    if (rename(p->partial, o->output) != 0) {
        return by__io_error(error, "rename", p->partial);
    }
    p->result.nodes = m->nodes;
    p->result.edges = m->edges;
    p->result.features = m->features;
    p->result.classes = m->classes;
    memcpy(p->result.held, m->held, sizeof m->held);
    return BY_OK;
}

static by_status pack(graph_packing *p, by_error *error)
{
    BY_TRY(by__nodes_inputs_find(&p->inputs, p->options, error));
    BY_TRY(remove_rest(p, error));
    BY_TRY(by__make_dirs(p->partial, error));
    by_status status = write_all(p, error);
    if (status != BY_OK) {
        (void)by__remove_tree(p->partial, NULL);
    }
    return status;
}

static by_status check(graph_packing *p, by_error *error)
{
    static const char *const types[] = {"f32", "f16", "u8"};
    const by_graph_pack_options *o = p->options;
    const char *type = o->store == NULL ? types[0] : o->store;
    bool known = false;
    if (o->output == NULL || o->output[0] == '\0' || o->input_count == 0) {
        return by_error_set(error, BY_EARG, "packing needs inputs and an output directory");
    }
    if (by__path_exists(o->output)) {
        return by_error_set(error, BY_EARG, "%s exists: remove it or name another directory",
                            o->output);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(type, types[i]) == 0) {
            p->type = (by__nodes_feature_type)i;
            known = true;
        }
    }
    return known ? BY_OK
                 : by_error_set(error, BY_EARG, "features are stored as f32, f16 or u8, not '%s'",
                                type);
}

by_status by_graph_pack(const by_graph_pack_options *options, by_graph_pack_result *result,
                        by_error *error)
{
    graph_packing p = {.options = options};
    by_string partial = {0};
    BY_TRY(check(&p, error));
    by_string_format(&partial, "%s.partial", options->output);
    BY_TRY(by__string_release(&partial, &p.partial, error));
    by_status status = pack(&p, error);
    by__nodes_inputs_free(&p.inputs);
    by__nodes_columns_free(&p.columns);
    by__nodes_manifest_free(&p.manifest);
    free(p.partial);
    if (status == BY_OK && result != NULL) {
        *result = p.result;
    }
    return status;
}
