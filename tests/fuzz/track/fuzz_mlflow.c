/* Any bytes as mlflow.json and as events.jsonl to send. A state that is read prints as one that
 * reads back to the same; a body of metrics is JSON with as many metrics as it says, and whatever
 * is not in it is left for the next. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "track/mlflow_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_state(const char *text, size_t size)
{
    by__track_mlflow_state state;
    by__track_mlflow_state again;
    by_string first = {0};
    by_string second = {0};
    if (by__track_mlflow_state_parse(&state, "mlflow.json", text, size, NULL) != BY_OK) {
        return;
    }
    by__track_mlflow_state_print(&first, &state);
    if (by__track_mlflow_state_parse(&again, "mlflow.json", first.data, first.length, NULL) !=
        BY_OK) {
        abort();
    }
    by__track_mlflow_state_print(&second, &again);
    if (strcmp(first.data, second.data) != 0) {
        abort();
    }
    by__track_mlflow_state_free(&state);
    by__track_mlflow_state_free(&again);
    by_string_free(&first);
    by_string_free(&second);
}

static void check_batches(const char *text, size_t size)
{
    size_t at = 0;
    size_t skip = 0;
    for (;;) {
        by_string body = {0};
        size_t used;
        size_t next;
        size_t count;
        by_status status = by__track_mlflow_batch(&body, "run", "events.jsonl", text + at,
                                                  size - at, skip, &used, &next, &count, NULL);
        by__string_append(&body, "]}");
        if (status == BY_OK) {
            json_t *root = json_loadb(body.data, body.length, 0, NULL);
            if (root == NULL || json_array_size(json_object_get(root, "metrics")) != count ||
                count > BY__MLFLOW_BATCH || used > size - at ||
                (next > 0 && count != BY__MLFLOW_BATCH)) {
                abort();
            }
            json_decref(root);
        }
        by_string_free(&body);
        if (status != BY_OK || (used == 0 && next == skip) || (used == 0 && next == 0)) {
            return;
        }
        at += used;
        skip = next;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_state((const char *)data, size);
    check_batches((const char *)data, size);
    return 0;
}
