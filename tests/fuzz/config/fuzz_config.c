/* Any text as a config: read or refused, never a crash; what is read prints and reads back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_config *config;
    by_config *again;
    by_error error;
    char *text;
    char *second;
    char override[256];
    /* The name is in no folder, so that `base:` reaches nothing. */
    if (by_config_parse(&config, "/nowhere/fuzz.yaml", (const char *)data, size, NULL, 0, &error) !=
        BY_OK) {
        size_t length = size < sizeof override - 1 ? size : sizeof override - 1;
        memcpy(override, data, length);
        override[length] = '\0';
        if (by_config_default(&config, &error) != BY_OK) {
            return 0;
        }
        (void)by_config_set(config, override, &error);
    }
    if (by_config_print(config, &text, &error) != BY_OK ||
        by_config_parse(&again, "printed", text, strlen(text), NULL, 0, &error) != BY_OK ||
        by_config_print(again, &second, &error) != BY_OK || strcmp(text, second) != 0) {
        abort();
    }
    (void)by_config_resolve(config, &error);
    by_config_close(&config);
    by_config_close(&again);
    free(text);
    free(second);
    return 0;
}
