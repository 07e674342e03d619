/* DIR/state.json: what is done. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "base/json.h"
#include "base/paths.h"

#define STATE    "state.json"
#define MAX_FILE ((size_t)64 << 20)

/* Copies a hash; what is none stays out. */
static void read_hash(char out[33], const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    (void)snprintf(out, 33, "%s", text != NULL && strlen(text) == 32 ? text : "");
}

static by_status read_part(by__assistant_part *part, const by_assistant *a, const json_t *object,
                           by_error *error)
{
    const char *run = json_string_value(json_object_get(object, "run"));
    const json_t *joules = json_object_get(object, "joules");
    read_hash(part->inputs, object, "inputs");
    read_hash(part->config, object, "config");
    part->seconds = json_number_value(json_object_get(object, "seconds"));
    part->joules = json_is_number(joules) ? json_number_value(joules) : -1.0;
    return run == NULL ? BY_OK : by__path_make(&part->run, a->directory, run, error);
}

by_status by__assistant_load(by_assistant *a, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_file(&root, a->directory, STATE, MAX_FILE, JSON_REJECT_DUPLICATES, error));
    by_status status = BY_OK;
    const json_t *parts = json_object_get(root, "parts");
    json_t *scores = json_object_get(root, "scores");
    if (root != NULL && !(json_is_object(parts) && json_is_object(scores))) {
        status = by_error_set(error, BY_EFORMAT,
                              "%s/" STATE ": no objects \"parts\" and \"scores\": remove it to "
                              "begin anew",
                              a->directory);
    }
    for (size_t i = 0; i < a->count && status == BY_OK; i++) {
        const json_t *object = json_object_get(parts, a->parts[i].row->name);
        if (object != NULL) {
            status = read_part(&a->parts[i], a, object, error);
        }
    }
    a->scores = status == BY_OK && scores != NULL ? json_incref(scores) : json_object();
    json_decref(root);
    return a->scores != NULL ? status : by_error_set(error, BY_EMEMORY, "out of memory: the state");
}

static json_t *write_part(const by__assistant_part *part)
{
    json_t *object = json_object();
    const char *slash = part->run == NULL ? NULL : strrchr(part->run, '/');
    json_object_set_new(object, "inputs", json_string(part->inputs));
    json_object_set_new(object, "config", json_string(part->config));
    if (slash != NULL) {
        json_object_set_new(object, "run", json_string(slash + 1));
    }
    json_object_set_new(object, "seconds", json_real(part->seconds));
    if (part->joules >= 0.0) {
        json_object_set_new(object, "joules", json_real(part->joules));
    }
    return object;
}

by_status by__assistant_save(const by_assistant *a, by_error *error)
{
    json_t *root = json_object();
    json_t *parts = json_object();
    for (size_t i = 0; i < a->count; i++) {
        json_object_set_new(parts, a->parts[i].row->name, write_part(&a->parts[i]));
    }
    json_object_set_new(root, "parts", parts);
    json_object_set(root, "scores", a->scores);
    char *text = by__json_dump(root, JSON_INDENT(1));
    json_decref(root);
    char *path = by__path_join(a->directory, STATE);
    by_status status = text != NULL && path != NULL
                           ? by__file_write(path, text, strlen(text), error)
                           : by_error_set(error, BY_EMEMORY, "out of memory: the state");
    free(text);
    free(path);
    return status;
}
