/* Host files: read with names that are safe in a command line, or refused. */
#include <stdlib.h>
#include <string.h>

#include "launch/supervisor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_host_list hosts;
    if (by__launch_hosts_parse(&hosts, "hosts", (const char *)data, size, NULL) != BY_OK) {
        return 0;
    }
    for (size_t i = 0; i < hosts.count; i++) {
        const by_host *h = &hosts.items[i];
        if (h->slots < 1 || h->name[0] == '\0' || h->name[0] == '-' ||
            strpbrk(h->name, " ;&|$`'\"\\<>(){}*?~#:,/\n\t") != NULL) {
            abort();
        }
    }
    if (hosts.count == 0) {
        abort();
    }
    by_hosts_free(&hosts);
    return 0;
}
