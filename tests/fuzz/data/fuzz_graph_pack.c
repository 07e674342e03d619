/* Texts of edges and of nodes, up to a NUL and behind it, that are packed as a graph; without a
 * NUL, the edges of a graph of three nodes. The first byte has options. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../support/temporary.h"
#include "banyan/graph_pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes a file in memory; returns its path, or an empty text. */
static void make_file(char path[64], int *file, const void *data, size_t size)
{
    path[0] = '\0';
    *file = memfd_create("fuzz", MFD_CLOEXEC);
    if (*file >= 0 && write(*file, data, size) == (ssize_t)size) {
        (void)snprintf(path, 64, "/proc/self/fd/%d", *file);
    }
}

static void pack(const char *edges, const char *nodes, const char *output, unsigned options)
{
    static const char *const types[] = {"f32", "f16", "u8", "f32"};
    by_error error;
    const by_graph_pack_options o = {.inputs = &edges,
                                     .input_count = 1,
                                     .output = output,
                                     .nodes = nodes,
                                     .store = types[options & 3],
                                     .directed = (options & 4) != 0,
                                     .loops = (by_graph_loops)(options >> 3 & 3),
                                     .refuse_duplicates = (options & 32) != 0,
                                     .skip_corrupt = (options & 64) != 0,
                                     .weights = (options & 128) != 0,
                                     .corrupt_budget = 100,
                                     .memory = 16,
                                     .threads = 1};
    (void)by_graph_pack(&o, NULL, &error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char three[] = "x\n1\n2\n3\n";
    char edges[64];
    char nodes[64];
    int files[2] = {-1, -1};
    if (size < 1) {
        return 0;
    }
    const uint8_t *text = data + 1;
    const uint8_t *end = memchr(text, 0, size - 1);
    size_t length = end == NULL ? size - 1 : (size_t)(end - text);
    char *folder = temporary_make();
    char *output = folder == NULL ? NULL : by__path_join(folder, "packed");
    make_file(edges, &files[0], text, length);
    if (end == NULL) {
        make_file(nodes, &files[1], three, sizeof three - 1);
    } else {
        make_file(nodes, &files[1], end + 1, size - 2 - length);
    }
    if (output != NULL && edges[0] != '\0' && nodes[0] != '\0') {
        pack(edges, nodes, output, data[0]);
    }
    for (int i = 0; i < 2; i++) {
        if (files[i] >= 0) {
            (void)close(files[i]);
        }
    }
    free(output);
    temporary_remove(folder);
    return 0;
}
