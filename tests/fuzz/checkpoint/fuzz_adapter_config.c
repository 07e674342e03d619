/* Any bytes as adapter_config.json: refused with a message or taken, and what is taken prints to
 * text that is taken again and means the same. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/weights/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool are_equal(const by_adapter_info *a, const by_adapter_info *b)
{
    return a->rank == b->rank && a->alpha == b->alpha && a->rslora == b->rslora &&
           a->dropout == b->dropout && a->in_out == b->in_out && strcmp(a->base, b->base) == 0 &&
           strcmp(a->task, b->task) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by__checkpoint_adapter_config first;
    by__checkpoint_adapter_config second;
    by_error error = {0};
    char *printed;
    if (by__checkpoint_adapter_config_parse(&first, BY_ADAPTER_CONFIG, (const char *)data, size,
                                            &error) != BY_OK) {
        if (error.message[0] == '\0') {
            abort();
        }
        return 0;
    }
    if (by_adapter_config_json(&printed, &first.info, &error) != BY_OK ||
        by__checkpoint_adapter_config_parse(&second, BY_ADAPTER_CONFIG, printed, strlen(printed),
                                            &error) != BY_OK ||
        !are_equal(&first.info, &second.info)) {
        abort();
    }
    free(printed);
    by__checkpoint_adapter_config_free(&second);
    by__checkpoint_adapter_config_free(&first);
    return 0;
}
