#include "data/nodes/packed_arrays.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"

#define FORMAT     "banyan-graph"
#define VERSION    1
#define MOST_BYTES ((size_t)1 << 26)
/* Most nodes, edges and features. */
#define MOST_NODES    ((json_int_t)INT32_MAX - 1)
#define MOST_EDGES    ((json_int_t)1 << 48)
#define MOST_FEATURES ((json_int_t)1 << 20)

static const char *const names[BY__NODES_ARRAYS] = {
    "offsets", "sources", "features", "scales", "labels", "weights", "train", "valid", "test"};
static const char *const types[] = {"f32", "f16", "u8"};

const char *by__nodes_array_name(by__nodes_array which)
{
    static const char *const files[BY__NODES_ARRAYS] = {
        "offsets.npy", "sources.npy", "features.npy", "scales.npy", "labels.npy",
        "weights.npy", "train.npy",   "valid.npy",    "test.npy"};
    return files[which];
}

void by__nodes_array_extents(const by__nodes_manifest *m, by__nodes_array which, uint64_t *rows,
                             uint64_t *columns)
{
    bool wide = which == BY__NODES_FEATURES || which == BY__NODES_SCALES;
    *columns = wide ? m->features : 0;
    switch (which) {
    case BY__NODES_OFFSETS:
        *rows = m->nodes + 1;
        return;
    case BY__NODES_SOURCES:
    case BY__NODES_WEIGHTS:
        *rows = m->edges;
        return;
    case BY__NODES_SCALES:
        *rows = 2;
        return;
    case BY__NODES_TRAIN:
    case BY__NODES_VALID:
    case BY__NODES_TEST:
        *rows = m->held[which - BY__NODES_TRAIN];
        return;
    default:
        *rows = m->nodes;
    }
}

static const char *element(const by__nodes_manifest *m, by__nodes_array which)
{
    static const char *const of_features[] = {"<f4", "<f2", "|u1"};
    switch (which) {
    case BY__NODES_SOURCES:
    case BY__NODES_LABELS:
        return "<i4";
    case BY__NODES_FEATURES:
        return of_features[m->type];
    case BY__NODES_SCALES:
    case BY__NODES_WEIGHTS:
        return "<f4";
    default:
        return "<i8";
    }
}

size_t by__nodes_array_width(const by__nodes_manifest *m, by__nodes_array which)
{
    return (size_t)(element(m, which)[2] - '0');
}

void by__nodes_array_header(char page[BY__NODES_PAGE], const by__nodes_manifest *m,
                            by__nodes_array which)
{
    uint64_t rows;
    uint64_t columns;
    char shape[64];
    const unsigned length = BY__NODES_PAGE - 10; /* behind the magic and these two bytes */
    by__nodes_array_extents(m, which, &rows, &columns);
    if (columns > 0) {
        (void)snprintf(shape, sizeof shape, "(%llu, %llu)", (unsigned long long)rows,
                       (unsigned long long)columns);
    } else {
        (void)snprintf(shape, sizeof shape, "(%llu,)", (unsigned long long)rows);
    }
    memset(page, ' ', BY__NODES_PAGE);
    memcpy(page, "\x93NUMPY\x01\x00", 8);
    page[8] = (char)(length & 0xff);
    page[9] = (char)(length >> 8);
    int n = snprintf(page + 10, BY__NODES_PAGE - 10,
                     "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", element(m, which),
                     shape);
    page[10 + n] = ' ';
    page[BY__NODES_PAGE - 1] = '\n';
}

/* ---- manifest ---- */

void by__nodes_manifest_free(by__nodes_manifest *m)
{
    for (size_t i = 0; i < m->source_count; i++) {
        free(m->sources[i].path);
    }
    free(m->sources);
    *m = (by__nodes_manifest){0};
}

static bool is_hash(const char *text)
{
    return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static bool take_number(uint64_t *out, json_int_t value, json_int_t least, json_int_t most)
{
    *out = (uint64_t)value;
    return value >= least && value <= most;
}

static by_status refuse(const char *name, const char *what, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s: %s; pack the graph again", name, what);
}

static by_status read_hashes(by__nodes_manifest *m, const char *name, const json_t *files,
                             by_error *error)
{
    size_t found = 0;
    for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
        const json_t *value = json_object_get(files, names[i]);
        const char *text = json_string_value(value);
        bool wanted = i < BY__NODES_SCALES ||
                      (i == BY__NODES_SCALES && m->type == BY__NODES_FEATURES_U8) ||
                      (i == BY__NODES_LABELS && m->classes > 0) ||
                      (i == BY__NODES_WEIGHTS && value != NULL) ||
                      (i >= BY__NODES_TRAIN && m->held[i - BY__NODES_TRAIN] > 0);
        if (wanted != (text != NULL && is_hash(text))) {
            return by_error_set(error, BY_EFORMAT, "%s: files.%s is %s; pack the graph again", name,
                                names[i], wanted ? "no checksum of 32 hex digits" : "not wanted");
        }
        if (wanted) {
            memcpy(m->hashes[i], text, 33);
            found++;
        }
        m->weighted = m->weighted || (i == BY__NODES_WEIGHTS && wanted);
    }
    return found == json_object_size(files) ? BY_OK
                                            : refuse(name, "files has an unknown key", error);
}

static by_status read_sources(by__nodes_manifest *m, const char *name, const json_t *list,
                              by_error *error)
{
    size_t count = json_array_size(list);
    BY_TRY(by__alloc((void **)&m->sources, count + 1, sizeof *m->sources, "a manifest", error));
    for (; m->source_count < count; m->source_count++) {
        by__nodes_manifest_source *s = &m->sources[m->source_count];
        const char *path;
        const char *hash;
        json_int_t bytes;
        if (json_unpack((json_t *)(uintptr_t)json_array_get(list, m->source_count),
                        "{s:s, s:I, s:s!}", "path", &path, "bytes", &bytes, "xxh3_128",
                        &hash) != 0 ||
            !is_hash(hash) || bytes < 0) {
            return refuse(name, "an entry of sources is not {path, bytes, xxh3_128}", error);
        }
        s->bytes = (uint64_t)bytes;
        memcpy(s->hash, hash, sizeof s->hash);
        s->path = by__strdup(path);
        if (s->path == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: %s", name);
        }
    }
    return BY_OK;
}

static bool take_type(by__nodes_manifest *m, const char *type)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(type, types[i]) == 0) {
            m->type = (by__nodes_feature_type)i;
            return true;
        }
    }
    return false;
}

static by_status read_root(by__nodes_manifest *m, const char *name, json_t *root, by_error *error)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    json_int_t nodes, edges, features, classes, held[3];
    const char *type;
    int symmetric;
    int self_loops;
    json_t *files;
    json_t *sources;
    json_error_t why;
    if (format == NULL || strcmp(format, FORMAT) != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: format is not \"" FORMAT "\"", name);
    }
    if (version != VERSION) {
        return by_error_set(error, BY_EFORMAT, "%s: version %lld is not %d; pack the graph again",
                            name, (long long)version, VERSION);
    }
    if (json_unpack_ex(root, &why, 0,
                       "{s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:b, s:b, s:[III!], s:o, s:o!}",
                       "format", &format, "version", &version, "nodes", &nodes, "edges", &edges,
                       "features", &features, "classes", &classes, "type", &type, "symmetric",
                       &symmetric, "self_loops", &self_loops, "held", &held[0], &held[1], &held[2],
                       "files", &files, "sources", &sources) != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: %s; pack the graph again", name, why.text);
    }
    m->symmetric = symmetric != 0;
    m->self_loops = self_loops != 0;
    if (!take_number(&m->nodes, nodes, 1, MOST_NODES) ||
        !take_number(&m->edges, edges, 1, MOST_EDGES) ||
        !take_number(&m->features, features, 1, MOST_FEATURES) ||
        !take_number(&m->classes, classes, 0, 1 << 20) || !take_type(m, type)) {
        return refuse(name, "nodes, edges, features, classes or type is out of range", error);
    }
    for (size_t i = 0; i < 3; i++) {
        if (!take_number(&m->held[i], held[i], 0, nodes)) {
            return refuse(name, "held has more than there are nodes", error);
        }
    }
    if (!json_is_object(files) || !json_is_array(sources)) {
        return refuse(name, "files is no object, or sources no list", error);
    }
    BY_TRY(read_hashes(m, name, files, error));
    return read_sources(m, name, sources, error);
}

by_status by__nodes_manifest_parse(by__nodes_manifest *out, const char *name, const char *text,
                                   size_t length, by_error *error)
{
    json_t *root;
    *out = (by__nodes_manifest){0};
    BY_TRY(by__json_parse(&root, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = json_is_object(root) ? read_root(out, name, root, error)
                                            : refuse(name, "it is no JSON object", error);
    json_decref(root);
    return status;
}

by_status by__nodes_manifest_read(by__nodes_manifest *out, const char *directory, by_error *error)
{
    char *path;
    char *text;
    size_t length;
    *out = (by__nodes_manifest){0};
    BY_TRY(by__path_make(&path, directory, BY__NODES_MANIFEST, error));
    by_status status = by__file_read(&text, &length, path, MOST_BYTES, error);
    if (status == BY_OK) {
        status = by__nodes_manifest_parse(out, path, text, length, error);
        free(text);
    }
    free(path);
    return status;
}

static void print(by_string *t, const by__nodes_manifest *m)
{
    by_string_format(t,
                     "{\n  \"format\": \"" FORMAT "\",\n  \"version\": %d,\n  \"nodes\": %llu,\n"
                     "  \"edges\": %llu,\n  \"features\": %llu,\n  \"classes\": %llu,\n",
                     VERSION, (unsigned long long)m->nodes, (unsigned long long)m->edges,
                     (unsigned long long)m->features, (unsigned long long)m->classes);
    by_string_format(t,
                     "  \"type\": \"%s\",\n  \"symmetric\": %s,\n  \"self_loops\": %s,\n"
                     "  \"held\": [%llu, %llu, %llu],\n  \"files\": {",
                     types[m->type], m->symmetric ? "true" : "false",
                     m->self_loops ? "true" : "false", (unsigned long long)m->held[0],
                     (unsigned long long)m->held[1], (unsigned long long)m->held[2]);
    const char *comma = "";
    for (size_t i = 0; i < BY__NODES_ARRAYS; i++) {
        if (m->hashes[i][0] != '\0') {
            by_string_format(t, "%s\n    \"%s\": \"%s\"", comma, names[i], m->hashes[i]);
            comma = ",";
        }
    }
    by__string_append(t, "\n  },\n  \"sources\": [");
    for (size_t i = 0; i < m->source_count; i++) {
        by__string_append(t, i == 0 ? "\n    {\"path\": " : ",\n    {\"path\": ");
        by_string_json(t, m->sources[i].path, strlen(m->sources[i].path));
        by_string_format(t, ", \"bytes\": %llu, \"xxh3_128\": \"%s\"}",
                         (unsigned long long)m->sources[i].bytes, m->sources[i].hash);
    }
    by__string_append(t, "\n  ]\n}\n");
}

by_status by__nodes_manifest_write(const by__nodes_manifest *manifest, const char *directory,
                                   by_error *error)
{
    by_string text = {0};
    char *printed;
    char *path;
    print(&text, manifest);
    size_t length = text.length;
    BY_TRY(by__string_release(&text, &printed, error));
    by_status status = by__path_make(&path, directory, BY__NODES_MANIFEST, error);
    if (status == BY_OK) {
        status = by__file_write(path, printed, length, error);
        free(path);
    }
    free(printed);
    return status;
}

bool by__nodes_is_packed(const char *path)
{
    char *manifest;
    if (!by__path_is_dir(path) ||
        by__path_make(&manifest, path, BY__NODES_MANIFEST, NULL) != BY_OK) {
        return false;
    }
    bool there = by__path_exists(manifest);
    free(manifest);
    return there;
}
