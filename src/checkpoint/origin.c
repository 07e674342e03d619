#include "checkpoint/origin.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static by_status copy(char **out, const char *text, by_error *error)
{
    if (text == NULL) {
        return BY_OK;
    }
    *out = by__strdup(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: the origin") : BY_OK;
}

/* Takes the run's name from the path RUN/checkpoints/STEP. A checkpoint that was copied elsewhere
 * does not know its run. */
static by_status parse_run(char **out, const char *directory, by_error *error)
{
    char *path = realpath(directory, NULL);
    char *parts[3] = {NULL, NULL, NULL}; /* the step, "checkpoints", the run */
    for (int i = 0; path != NULL && i < 3; i++) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            break;
        }
        parts[i] = slash + 1;
        *slash = '\0';
    }
    bool is_run = parts[2] != NULL && parts[2][0] != '\0' && strcmp(parts[1], "checkpoints") == 0;
    by_status status = copy(out, is_run ? parts[2] : NULL, error);
    free(path);
    return status;
}

static const char *state_text(const by_checkpoint *checkpoint, const char *key)
{
    const char *text = NULL;
    return by_checkpoint_value_string(checkpoint, key, &text, NULL) == BY_OK ? text : NULL;
}

static by_status read_state(by__checkpoint_origin *out, const char *directory, by_error *error)
{
    by_checkpoint *checkpoint;
    if (by_checkpoint_open(&checkpoint, directory, false, NULL) != BY_OK) {
        return BY_OK;
    }
    const char *run = state_text(checkpoint, "run");
    by_status status = copy(&out->config_hash, state_text(checkpoint, "config_hash"), error);
    if (status == BY_OK) {
        status = copy(&out->data_hash, state_text(checkpoint, "train_hash"), error);
    }
    if (status == BY_OK) {
        status = run != NULL ? copy(&out->run, run, error) : parse_run(&out->run, directory, error);
    }
    by_checkpoint_close(&checkpoint);
    return status;
}

static const char *config_text(const json_t *origin, const char *key)
{
    return json_string_value(json_object_get(origin, key));
}

static by_status read_config(by__checkpoint_origin *out, const char *text, by_error *error)
{
    json_t *root = text == NULL ? NULL : by__json_read(text, 0, NULL);
    const json_t *origin = json_object_get(root, "banyan");
    by_status status = copy(&out->run, config_text(origin, "run"), error);
    if (status == BY_OK) {
        status = copy(&out->config_hash, config_text(origin, "config_hash"), error);
    }
    if (status == BY_OK) {
        status = copy(&out->data_hash, config_text(origin, "data_hash"), error);
    }
    json_decref(root);
    return status;
}

by_status by__checkpoint_origin_read(by__checkpoint_origin *out, const by_weights *weights,
                                     by_error *error)
{
    by__checkpoint_origin origin = {0};
    const char *path = by_weights_path(weights);
    by_status status = by__path_is_dir(path) ? read_state(&origin, path, error) : BY_OK;
    if (status == BY_OK && origin.config_hash == NULL && origin.data_hash == NULL) {
        by__checkpoint_origin_free(&origin);
        status = read_config(&origin, by_weights_config(weights), error);
    }
    if (status != BY_OK) {
        by__checkpoint_origin_free(&origin);
        return status;
    }
    *out = origin;
    return BY_OK;
}

void by__checkpoint_origin_free(by__checkpoint_origin *origin)
{
    free(origin->run);
    free(origin->config_hash);
    free(origin->data_hash);
    *origin = (by__checkpoint_origin){0};
}

by_status by__checkpoint_origin_put(json_t *config, const by__checkpoint_origin *origin,
                                    by_error *error)
{
    const char *const values[][2] = {{"run", origin->run},
                                     {"config_hash", origin->config_hash},
                                     {"data_hash", origin->data_hash}};
    json_t *object = json_object();
    int failed = object == NULL ? -1 : 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(values) && failed == 0; i++) {
        if (values[i][1] != NULL) {
            failed = json_object_set_new(object, values[i][0], json_string(values[i][1]));
        }
    }
    if (failed == 0 && json_object_size(object) > 0) {
        failed = json_object_set(config, "banyan", object);
    }
    json_decref(object);
    return failed == 0 ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: config.json");
}
