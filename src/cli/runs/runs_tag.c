#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/track.h"
#include "banyan/train.h"
#include "runs/runs.h"

static by_status print_tags(const char *run, bool json, by_error *error)
{
    by_tag_list tags;
    by_status status = by_tags_read(&tags, run, error);
    if (status != BY_OK) {
        return status;
    }
    printf(json ? "{" : "");
    for (size_t i = 0; i < tags.count; i++) {
        if (json) {
            printf("%s", i > 0 ? "," : "");
            cli_print_json_string(tags.items[i].key);
            printf(":");
            cli_print_json_string(tags.items[i].value);
        } else {
            cli_print_cell(tags.items[i].key);
            printf("\t");
            cli_print_cell(tags.items[i].value);
            printf("\n");
        }
    }
    printf(json ? "}\n" : "");
    by_tag_list_free(&tags);
    return BY_OK;
}

/* Applies an assignment: KEY=VALUE sets a tag, KEY= removes it. */
static by_status apply(const char *run, const char *assignment, by_error *error)
{
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment) {
        return by_error_set(error, BY_EARG,
                            "'%s' is neither KEY=VALUE nor KEY=, which removes a tag", assignment);
    }
    char *key = strndup(assignment, (size_t)(equals - assignment));
    if (key == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: tag");
    }
    by_status status = by_tags_set(run, key, equals[1] == '\0' ? NULL : equals + 1, error);
    free(key);
    return status;
}

int cli_tag_run(const char *run, char **assignments, int count, bool json)
{
    char *found;
    by_error error = {0};
    by_status status = by_run_find(&found, run, &error);
    if (status == BY_OK) {
        for (int i = 0; i < count && status == BY_OK; i++) {
            status = apply(found, assignments[i], &error);
        }
        if (status == BY_OK) {
            status = print_tags(found, json, &error);
        }
        free(found);
    }
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_runs, &error);
}
