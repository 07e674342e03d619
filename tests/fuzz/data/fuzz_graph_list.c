/* Lists of small graphs: the first byte has options, the rest are the texts of a directory's
 * tables, with a NUL between two; an empty one is not there. Or, if that byte is 255, an npz
 * file. Graphs that are read are packed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../support/temporary.h"
#include "data/nodes/graph_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void pack_all(const by__nodes_graph_list *list)
{
    by_error error;
    by_source *source = NULL;
    by__nodes_pack_options options = {.count = (uint64_t)list->graphs, .deviation = 1.0};
    uint64_t *ids = calloc(options.count, sizeof *ids);
    require(ids != NULL);
    for (uint64_t i = 0; i < options.count; i++) {
        ids[i] = i;
    }
    options.ids = ids;
    if (by__nodes_pack_size_fit(&options.size, list, 0, &error) == BY_OK &&
        by__nodes_pack_source_open(&source, list, &options, &error) == BY_OK) {
        by_source_close(&source);
    }
    free(ids);
}

/* Nodes and edges of each graph are its own, and all numbers are finite. */
static void check(const by__nodes_graph_list *list)
{
    const by__nodes_set *set = list->set;
    require(list->graphs > 0 && list->begins[0] == 0 && list->begins[list->graphs] == set->nodes);
    for (int64_t i = 0; i < set->nodes * set->features; i++) {
        require(isfinite(set->x[i]));
    }
    for (int64_t g = 0; g < list->graphs; g++) {
        require(list->begins[g] < list->begins[g + 1]);
        for (int64_t n = list->begins[g]; n < list->begins[g + 1]; n++) {
            for (int64_t e = set->offsets[n]; e < set->offsets[n + 1]; e++) {
                require(set->sources[e] >= list->begins[g] &&
                        set->sources[e] < list->begins[g + 1]);
            }
        }
    }
    pack_all(list);
}

static void read_graphs(const char *path, unsigned how)
{
    by_error error;
    by__nodes_graph_list *list = NULL;
    const by__nodes_options options = {.graph = path,
                                       .symmetric = (how & 1) != 0,
                                       .self_loops = (how & 2) != 0,
                                       .edge_features = (how & 4) != 0,
                                       .graph_features = (how & 8) != 0};
    if (by__nodes_graph_list_open(&list, &options, &error) == BY_OK) {
        check(list);
    }
    by__nodes_graph_list_close(&list);
}

static void read_archive(const uint8_t *data, size_t size)
{
    char path[64];
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    if (file >= 0 && write(file, data, size) == (ssize_t)size) {
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        for (unsigned how = 0; how < 16; how += 5) {
            read_graphs(path, how);
        }
    }
    if (file >= 0) {
        (void)close(file);
    }
}

static void read_tables(const char *folder, const uint8_t *data, size_t size, unsigned how)
{
    static const char *const names[] = {"num-node-list.csv", "num-edge-list.csv", "edge.csv",
                                        "node-feat.csv",     "graph-label.csv",   "edge-feat.csv",
                                        "graph-feat.csv"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names) && size > 0; i++) {
        const uint8_t *end = memchr(data, 0, size);
        size_t length = end == NULL ? size : (size_t)(end - data);
        char *path = by__path_join(folder, names[i]);
        require(path != NULL);
        if (length > 0) {
            require(by__file_write_unsynced(path, data, length, NULL) == BY_OK);
        }
        free(path);
        data += end == NULL ? length : length + 1;
        size -= end == NULL ? length : length + 1;
    }
    read_graphs(folder, how);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    if (data[0] == 255) {
        read_archive(data + 1, size - 1);
        return 0;
    }
    char *folder = temporary_make();
    if (folder != NULL) {
        read_tables(folder, data + 1, size - 1, data[0]);
    }
    temporary_remove(folder);
    return 0;
}
