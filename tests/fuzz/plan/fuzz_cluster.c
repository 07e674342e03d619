/* Any text as a cluster: read or refused, never a crash; what is read prints and reads back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_cluster cluster;
    by_cluster again;
    by_error error;
    char *text;
    if (by_cluster_parse(&cluster, "/nowhere/fuzz.yaml", (const char *)data, size, &error) !=
        BY_OK) {
        return 0;
    }
    const by_exchange_group group = {.ranks = 24.0, .stride = 2.0, .world = 64.0};
    if (!(by_cluster_exchange(&cluster, BY_EXCHANGE_ALL_REDUCE, 1e6, &group) >= 0.0) ||
        by_cluster_print(&text, &cluster, &error) != BY_OK ||
        by_cluster_parse(&again, "printed", text, strlen(text), &error) != BY_OK ||
        again.level_count != cluster.level_count) {
        abort();
    }
    free(text);
    return 0;
}
