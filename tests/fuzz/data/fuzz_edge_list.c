/* Lists of edges: pairs of numbers of nodes, or refused. */
#include <stdlib.h>

#include "data/nodes/node_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    int32_t(*pairs)[2];
    uint64_t count;
    if (by__nodes_edge_list_parse(&pairs, &count, "f", (const char *)data, size, &error) != BY_OK) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (pairs[i][0] < 0 || pairs[i][1] < 0 || pairs[i][0] == INT32_MAX) {
            abort();
        }
    }
    free(pairs);
    return 0;
}
