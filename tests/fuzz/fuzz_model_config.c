/* config.json of a Hugging Face model: any bytes are either a model or a clean error. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "banyan/config.h"
#include "banyan/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    by_config *config;
    by_error error = {0};
    char *json;
    if (by_config_default(&config, &error) != BY_OK) {
        abort();
    }
    by_status status =
        by_model_config_from_json(&config->model, "config.json", (const char *)data, size, &error);
    /* What was taken must be a config that can be written again, if its sizes agree. */
    if (status == BY_OK && by_config_resolve(config, &error) == BY_OK) {
        if (by_model_config_json(&json, &config->model, 0, &error) != BY_OK) {
            abort();
        }
        free(json);
    } else if (error.message[0] == '\0') {
        abort();
    }
    by_config_close(&config);
    return 0;
}
