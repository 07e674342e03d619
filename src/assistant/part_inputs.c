/* When a part is to be done again: what its config was made of, and the config itself. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/track.h"
#include "base/paths.h"

/* Directories in directories of data. */
#define MOST_DEPTH 16

static void add_text(by__hasher *hasher, const char *text)
{
    by__hasher_add(hasher, text, strlen(text) + 1);
}

/* The contents of a file, or of all files below a directory in the order of their names. */
static by_status add_content(by__hasher *hasher, const char *path, int depth, by_error *error)
{
    char hex[33];
    char **names;
    size_t count;
    add_text(hasher, path);
    if (!by__path_is_dir(path)) {
        BY_TRY(by__hash_file_hex(hex, path, error));
        add_text(hasher, hex);
        return BY_OK;
    }
    if (depth == MOST_DEPTH) {
        return by_error_set(error, BY_EFORMAT, "%s: more than %d directories in each other", path,
                            MOST_DEPTH);
    }
    BY_TRY(by__list_dir(&names, &count, path, error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *inside = NULL;
        if (names[i][0] == '.') {
            continue;
        }
        status = by__path_make(&inside, path, names[i], error);
        status = status == BY_OK ? add_content(hasher, inside, depth + 1, error) : status;
        free(inside);
    }
    by__names_free(names, count);
    return status;
}

static by_status add_inputs(by__hasher *hasher, const by_assistant *a,
                            const by__assistant_part *part, const by__assistant_part *before,
                            by_error *error)
{
    char number[32];
    const by_assistant_part_config *own = by__assistant_own(part->row, a->config);
    const by_string_list *data = by__assistant_data(part->row, a->config);
    add_text(hasher, part->row->name);
    by__format_f64(number, part->minutes);
    add_text(hasher, number);
    add_text(hasher, part->row->rolls_out ? a->config->reward : "");
    if (own->config[0] != '\0') {
        BY_TRY(add_content(hasher, own->config, 0, error));
    }
    for (size_t i = 0; i < data->count; i++) {
        BY_TRY(add_content(hasher, data->items[i], 0, error));
    }
    if (before != NULL) {
        add_text(hasher, before->inputs);
        add_text(hasher, before->config);
        add_text(hasher, before->run);
    }
    return BY_OK;
}

by_status by__assistant_inputs(char out[33], const by_assistant *assistant,
                               const by__assistant_part *part, const by__assistant_part *before,
                               by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__hasher_open(&hasher, error));
    by_status status = add_inputs(hasher, assistant, part, before, error);
    by__hasher_hex(hasher, out);
    by__hasher_close(&hasher);
    return status;
}

by_status by__assistant_config_hash(char out[33], const by__assistant_part *part, by_error *error)
{
    by_config *config;
    out[0] = '\0';
    if (!by__path_exists(part->file)) {
        return BY_OK;
    }
    BY_TRY(by_config_open(&config, part->file, NULL, 0, error));
    by_status status = by_config_resolve(config, error);
    status = status == BY_OK ? by_config_hash(config, out, error) : status;
    by_config_close(&config);
    return status;
}

/* How far the run of a part is whose config is still the one that it had. */
static void read_progress(by__assistant_part *part)
{
    by_run_list runs = {0};
    if (part->run == NULL || by_run_read(&runs, part->run, NULL) != BY_OK || runs.count == 0) {
        return;
    }
    part->state =
        strcmp(runs.items[0].status, "done") == 0 ? BY_ASSISTANT_DONE : BY_ASSISTANT_BEGAN;
    part->step = (int64_t)runs.items[0].step;
    part->steps = (int64_t)runs.items[0].steps;
    by_run_list_free(&runs);
}

by_status by__assistant_refresh(by_assistant *a, by_error *error)
{
    bool follows = true; /* all parts before are done */
    for (size_t i = 0; i < a->count; i++) {
        by__assistant_part *part = &a->parts[i];
        char inputs[33];
        char config[33];
        part->state = BY_ASSISTANT_WAITS;
        part->step = part->steps = 0;
        if (!follows) {
            continue;
        }
        BY_TRY(by__assistant_inputs(inputs, a, part, i > 0 ? part - 1 : NULL, error));
        if (strcmp(inputs, part->inputs) == 0) {
            BY_TRY(by__assistant_config_hash(config, part, error));
            if (config[0] != '\0' && strcmp(config, part->config) == 0) {
                read_progress(part);
            }
        }
        follows = part->state == BY_ASSISTANT_DONE;
    }
    return BY_OK;
}
