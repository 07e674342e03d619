/* Reads what config.json of transformers says about a classification head. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "infer/infer.h"

static by_status read_problem(by_problem *out, int64_t count, const char *name, const json_t *root,
                              by_error *error)
{
    static const char *const names[] = {[BY_PROBLEM_SINGLE] = "single_label_classification",
                                        [BY_PROBLEM_MULTI] = "multi_label_classification",
                                        [BY_PROBLEM_REGRESSION] = "regression"};
    const json_t *value = json_object_get(root, "problem_type");
    const char *text = json_string_value(value);
    if (value == NULL || json_is_null(value)) {
        *out = count == 1 ? BY_PROBLEM_REGRESSION : BY_PROBLEM_SINGLE;
        return BY_OK;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names) && text != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (by_problem)i;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EFORMAT, "%s: \"problem_type\" is '%s'; it is %s, %s or %s", name,
                        text == NULL ? "(not a string)" : text, names[0], names[1], names[2]);
}

static by_status set_name(by__infer_labels *l, int64_t i, const char *text, by_error *error)
{
    char made[32];
    (void)snprintf(made, sizeof made, "LABEL_%lld", (long long)i);
    l->names[i] = by__strdup(text == NULL ? made : text);
    return l->names[i] == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: labels") : BY_OK;
}

/* Reads "id2label": {"0": "NEGATIVE", "1": "POSITIVE"}. */
static by_status read_names(by__infer_labels *l, const char *name, const json_t *names,
                            by_error *error)
{
    if (json_is_object(names) && (int64_t)json_object_size(names) != l->count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"id2label\" has %zu names, and " BY__SCORE " %lld rows", name,
                            json_object_size(names), (long long)l->count);
    }
    for (int64_t i = 0; i < l->count; i++) {
        char id[24];
        (void)snprintf(id, sizeof id, "%lld", (long long)i);
        const char *text = json_string_value(json_object_get(names, id));
        if (names != NULL && !json_is_null(names) && text == NULL) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: \"id2label\" has no name for label %s of %lld", name, id,
                                (long long)l->count);
        }
        BY_TRY(set_name(l, i, text, error));
    }
    return BY_OK;
}

/* Names must be distinct, because they are keys of the output. */
static by_status check_names(const by__infer_labels *l, const char *name, by_error *error)
{
    json_t *seen = json_object();
    by_status status = BY_OK;
    for (int64_t i = 0; i < l->count && status == BY_OK; i++) {
        if (json_object_get(seen, l->names[i]) != NULL) {
            status = by_error_set(error, BY_EFORMAT, "%s: two labels of \"id2label\" are '%s'",
                                  name, l->names[i]);
        } else if (json_object_set_new(seen, l->names[i], json_true()) != 0) {
            status = by_error_set(error, BY_EMEMORY, "out of memory: labels");
        }
    }
    json_decref(seen);
    return status;
}

static by_status read_root(by__infer_labels *l, const char *name, const json_t *root,
                           by_error *error)
{
    const json_t *pad = json_object_get(root, "pad_token_id");
    int64_t said;
    BY_TRY(by__nn_json_integer(&said, name, root, "num_labels", l->count, error));
    if (said != l->count) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"num_labels\" is %lld, and " BY__SCORE " has %lld rows", name,
                            (long long)said, (long long)l->count);
    }
    l->pad = json_is_integer(pad) ? json_integer_value(pad) : -1;
    BY_TRY(read_problem(&l->problem, l->count, name, root, error));
    BY_TRY(read_names(l, name, json_object_get(root, "id2label"), error));
    return check_names(l, name, error);
}

by_status by__infer_labels_read(by__infer_labels *out, int64_t count, const char *name,
                                const char *json, size_t length, by_error *error)
{
    json_error_t where;
    *out = (by__infer_labels){0};
    BY_TRY(by__alloc((void **)&out->names, (size_t)count, sizeof *out->names, "labels", error));
    out->count = count;
    json_t *root = by_json_load(json, length, JSON_REJECT_DUPLICATES, &where);
    by_status status = json_is_object(root)
                           ? read_root(out, name, root, error)
                           : by_error_set(error, BY_EFORMAT, "%s: not a JSON object", name);
    json_decref(root);
    return status;
}

void by__infer_labels_close(by__infer_labels *labels)
{
    for (int64_t i = 0; i < labels->count; i++) {
        free(labels->names[i]);
    }
    free(labels->names);
    *labels = (by__infer_labels){0};
}
