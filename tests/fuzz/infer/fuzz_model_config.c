/* config.json of a Hugging Face model: any bytes are either a model or a clean error, and so are
 * the labels of its head. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "banyan/config.h"
#include "banyan/model.h"
#include "infer/infer.h"

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
    by__infer_labels labels;
    error = (by_error){0};
    status = by__infer_labels_read(&labels, 2, "config.json", (const char *)data, size, &error);
    if (status == BY_OK ? labels.names[1] == NULL : error.message[0] == '\0') {
        abort();
    }
    by__infer_labels_close(&labels);
    return 0;
}
