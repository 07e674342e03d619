#include "data/nodes/pack/pack_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "base/paths.h"
#include "formats/npz.h"

static by_status copy(char **out, const char *path, by_error *error)
{
    *out = path == NULL ? NULL : by__strdup(path);
    return path == NULL || *out != NULL ? BY_OK
                                        : by_error_set(error, BY_EMEMORY, "out of memory: a path");
}

static by_status add_edges(by__nodes_inputs *in, const char *path, by_error *error)
{
    BY_TRY(copy(&in->edges[in->edge_count], path, error));
    in->edge_count++;
    return BY_OK;
}

/* ---- directories of the Open Graph Benchmark ---- */

/* Finds DIRECTORY/NAME or DIRECTORY/NAME.gz; *out is NULL if neither is there. */
static by_status find_file(char **out, const char *directory, const char *name, by_error *error)
{
    static const char *const endings[] = {"", ".gz"};
    *out = NULL;
    for (size_t i = 0; i < 2 && *out == NULL; i++) {
        by_string path = {0};
        by_string_format(&path, "%s/%s%s", directory, name, endings[i]);
        BY_TRY(by__string_release(&path, out, error));
        if (!by__path_exists(*out)) {
            free(*out);
            *out = NULL;
        }
    }
    return BY_OK;
}

static by_status name_splits(const char *directory, char **names, size_t count, by_error *error)
{
    by_string text = {0};
    for (size_t i = 0; i < count; i++) {
        by_string_format(&text, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    by_status status =
        by_error_set(error, BY_EARG, "%s has the splits %s: --split NAME chooses one", directory,
                     text.data == NULL ? "" : text.data);
    by_string_free(&text);
    return status;
}

/* Finds the directory of the lists; *out is NULL if there is none. */
static by_status find_split(char **out, const char *directory, const char *wanted, by_error *error)
{
    char *splits;
    char **names = NULL;
    size_t count = 0;
    *out = NULL;
    BY_TRY(by__path_make(&splits, directory, "split", error));
    if (!by__path_is_dir(splits)) {
        free(splits);
        return BY_OK;
    }
    by_status status = by__list_dir(&names, &count, splits, error);
    const char *name = status == BY_OK && count == 1 ? names[0] : NULL;
    for (size_t i = 0; status == BY_OK && wanted != NULL && i < count; i++) {
        name = strcmp(names[i], wanted) == 0 ? names[i] : i == 0 ? NULL : name;
    }
    if (status == BY_OK && count > 0) {
        status = name == NULL ? name_splits(splits, names, count, error)
                              : by__path_make(out, splits, name, error);
    }
    by__names_free(names, count);
    free(splits);
    return status;
}

static by_status find_lists(by__nodes_inputs *in, const char *split, by_error *error)
{
    static const char *const names[] = {"train.csv", "valid.csv", "test.csv"};
    for (size_t i = 0; i < 3; i++) {
        BY_TRY(find_file(&in->lists[i], split, names[i], error));
    }
    return BY_OK;
}

static by_status find_benchmark(by__nodes_inputs *in, const char *directory,
                                const by_graph_pack_options *options, by_error *error)
{
    char *raw;
    char *edges = NULL;
    char *split = NULL;
    BY_TRY(by__path_make(&raw, directory, "raw", error));
    by_status status = find_file(&edges, raw, "edge.csv", error);
    if (status == BY_OK && edges == NULL) {
        status = by_error_set(error, BY_EARG,
                              "%s is no directory of the Open Graph Benchmark: it has no "
                              "raw/edge.csv.gz",
                              directory);
    }
    if (status == BY_OK) {
        status = add_edges(in, edges, error);
    }
    if (status == BY_OK) {
        status = find_file(&in->counts, raw, "num-node-list.csv", error);
    }
    if (status == BY_OK) {
        status = find_file(&in->rows, raw, "node-feat.csv", error);
    }
    if (status == BY_OK) {
        status = find_file(&in->classes, raw, "node-label.csv", error);
    }
    if (status == BY_OK && options->weights) {
        status = find_file(&in->weights, raw, "edge_weight.csv", error);
        if (status == BY_OK && in->weights == NULL) {
            status = by_error_set(error, BY_EARG,
                                  "%s has no weights of edges, raw/edge_weight.csv.gz: leave out "
                                  "--weights",
                                  directory);
        }
    }
    if (status == BY_OK) {
        status = find_split(&split, directory, options->split, error);
    }
    if (status == BY_OK && split != NULL) {
        status = find_lists(in, split, error);
    }
    free(split);
    free(edges);
    free(raw);
    return status;
}

/* ---- all inputs ---- */

static bool is_archive(const char *path)
{
    by__map map;
    if (by__map_open(&map, path, NULL) != BY_OK) {
        return false;
    }
    bool is = by__format_npz_is(map.data, map.size);
    by__map_close(&map);
    return is;
}

static by_status find_input(by__nodes_inputs *in, const char *path,
                            const by_graph_pack_options *options, by_error *error)
{
    bool is_directory = by__path_is_dir(path);
    bool archive = !is_directory && is_archive(path);
    if ((is_directory || archive) && options->input_count > 1) {
        return by_error_set(error, BY_EARG, "%s is a whole graph: name it alone", path);
    }
    if (archive) {
        return copy(&in->archive, path, error);
    }
    if (is_directory) {
        return find_benchmark(in, path, options, error);
    }
    return by__path_exists(path)
               ? add_edges(in, path, error)
               : by_error_set(error, BY_EIO, "cannot open %s: there is no such file", path);
}

/* Options replace what the inputs have. */
static by_status take_options(by__nodes_inputs *in, const by_graph_pack_options *o, by_error *error)
{
    if (o->nodes != NULL || o->features != NULL) {
        free(in->rows);
        in->rows = NULL;
    }
    if (o->labels != NULL) {
        free(in->classes);
        in->classes = NULL;
    }
    BY_TRY(copy(&in->named, o->nodes, error));
    BY_TRY(copy(&in->features, o->features, error));
    BY_TRY(copy(&in->labels, o->labels, error));
    for (size_t i = 0; i < 3; i++) {
        if (o->lists[i] != NULL) {
            free(in->lists[i]);
            BY_TRY(copy(&in->lists[i], o->lists[i], error));
        }
    }
    if (in->archive == NULL && in->named == NULL && in->features == NULL && in->rows == NULL) {
        return by_error_set(error, BY_EARG,
                            "%s has edges alone: --nodes FILE.csv or --features FILE.npy has the "
                            "features of the nodes",
                            o->inputs[0]);
    }
    if (in->archive != NULL && (in->named != NULL || o->refuse_duplicates ||
                                o->loops == BY_LOOPS_KEEP || o->loops == BY_LOOPS_FAIL)) {
        return by_error_set(error, BY_EARG,
                            "%s is an archive: --nodes, --duplicates fail and --self-loops keep "
                            "or fail are for lists of edges",
                            in->archive);
    }
    return BY_OK;
}

by_status by__nodes_inputs_find(by__nodes_inputs *out, const by_graph_pack_options *options,
                                by_error *error)
{
    *out = (by__nodes_inputs){0};
    BY_TRY(by__alloc((void **)&out->edges, options->input_count + 1, sizeof *out->edges, "inputs",
                     error));
    for (size_t i = 0; i < options->input_count; i++) {
        BY_TRY(find_input(out, options->inputs[i], options, error));
    }
    return take_options(out, options, error);
}

void by__nodes_inputs_free(by__nodes_inputs *in)
{
    char *paths[] = {in->archive,  in->counts,   in->named,  in->rows,
                     in->classes,  in->features, in->labels, in->lists[0],
                     in->lists[1], in->lists[2], in->weights};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths); i++) {
        free(paths[i]);
    }
    for (size_t i = 0; i < in->edge_count; i++) {
        free(in->edges[i]);
    }
    free(in->edges);
    *in = (by__nodes_inputs){0};
}

by_status by__nodes_inputs_each(const by__nodes_inputs *in,
                                by_status (*each)(void *context, const char *path, by_error *error),
                                void *context, by_error *error)
{
    const char *paths[] = {in->archive,  in->counts,   in->named,  in->rows,
                           in->classes,  in->features, in->labels, in->lists[0],
                           in->lists[1], in->lists[2], in->weights};
    for (size_t i = 0; i < in->edge_count; i++) {
        BY_TRY(each(context, in->edges[i], error));
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths); i++) {
        if (paths[i] != NULL) {
            BY_TRY(each(context, paths[i], error));
        }
    }
    return BY_OK;
}
