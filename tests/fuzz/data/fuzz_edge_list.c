/* Lists of edges: pairs of numbers of nodes, with weights behind them or without, or refused. */
#include <float.h>
#include <stdlib.h>

#include "data/nodes/node_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_error error;
    int32_t(*pairs)[2];
    float *weights = NULL;
    uint64_t count;
    if (by__nodes_edge_list_parse(&pairs, &weights, &count, "f", (const char *)data, size,
                                  &error) == BY_OK) {
        for (uint64_t i = 0; i < count; i++) {
            if (!(weights[i] >= 0.0f && weights[i] <= FLT_MAX)) {
                abort();
            }
        }
        free(pairs);
        free(weights);
    }
    if (by__nodes_edge_list_parse(&pairs, NULL, &count, "f", (const char *)data, size, &error) !=
        BY_OK) {
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
