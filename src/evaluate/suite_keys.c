/* The keys of a task's file. Those that other programs put there are passed over, but one that is
 * nearly the name of a key that counts is a slip, and would change what is measured unseen. */
#include <string.h>

#include "evaluate/suite_yaml.h"

#define NEAR 2 /* letters that a slip gets wrong */

static const char *const used_keys[] = {
    "task",          "include",          "output_type",       "test_split",   "validation_split",
    "fewshot_split", "training_split",   "dataset_name",      "doc_to_text",  "doc_to_choice",
    "doc_to_target", "dataset_kwargs",   "description",       "num_fewshot",  "fewshot_config",
    "metric_list",   "target_delimiter", "fewshot_delimiter", "process_docs", "process_results",
    "filter_list",   "custom_dataset",   "generation_kwargs", "dataset_path"};

/* Keys of lm-evaluation-harness that say nothing here, and resemble one of the above. */
static const char *const other_keys[] = {"tag", "doc_to_image", "doc_to_audio"};

static bool is_listed(const char *key, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(key, list[i]) == 0) {
            return true;
        }
    }
    return false;
}

by_status by__evaluate_keys_check(const json_t *yaml, const char *path, by_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)yaml, key, value)
    {
        if (is_listed(key, used_keys, BY_ARRAY_LENGTH(used_keys)) ||
            is_listed(key, other_keys, BY_ARRAY_LENGTH(other_keys))) {
            continue;
        }
        for (size_t i = 0; i < BY_ARRAY_LENGTH(used_keys); i++) {
            if (by__edit_distance(key, used_keys[i]) <= NEAR) {
                return by_error_set(error, BY_EFORMAT,
                                    "%s: unknown key '%.60s'; did you mean '%s'?", path, key,
                                    used_keys[i]);
            }
        }
    }
    return BY_OK;
}
