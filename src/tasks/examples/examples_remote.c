/* Examples whose files are remote. */
#include <stdlib.h>

#include "banyan/train_events.h"
#include "base/paths.h"
#include "formats/array_file.h"
#include "tasks/examples/examples.h"

static bool relay_fetching(void *user, uint64_t done, uint64_t total)
{
    const by_train_options *options = user;
    if (options->event != NULL) {
        by_train_event event = {.kind = BY_TRAIN_PREPARING, .phase = "downloading"};
        event.fraction = total > 0 ? (double)done / (double)total : 0.0;
        options->event(options->user, &event);
    }
    return options->stop == NULL || !options->stop(options->user);
}

void by__task_examples_set_remote(by__task_examples *d, const by_task_request *request)
{
    const by_data_config *data = &request->config->data;
    d->remote_options =
        (by_remote_options){.cache = data->remote_cache,
                            .bytes = (uint64_t)data->remote_cache_size,
                            .progress = request->progress == NULL ? NULL : relay_fetching,
                            .user = (void *)(uintptr_t)request->progress,
                            .stop = request->stop,
                            .stop_user = request->user};
    /* Where no place is known, shards are read each time. */
    d->indexes = NULL;
    if (data->remote_cache[0] != '\0') {
        (void)by__path_make(&d->indexes, data->remote_cache, "index", NULL);
    } else {
        (void)by__cache_path(&d->indexes, "index", NULL);
    }
}

by_status by__task_examples_reach(by__task_examples *d, const by_string_list *paths,
                                  by_error *error)
{
    for (size_t i = 0; i < paths->count && d->remote == NULL; i++) {
        if (by_remote_is(paths->items[i])) {
            BY_TRY(by__remote_open(&d->remote, &d->remote_options, error));
        }
    }
    return BY_OK;
}

by_status by__task_examples_open_table(by_table **out, by__task_examples *d, const char *path,
                                       const by_table_options *options, by_error *error)
{
    const char *local;
    uint8_t *data;
    size_t size;
    char shown[BY__REMOTE_SHOWN];
    if (!by_remote_is(path)) {
        return by_table_open(out, path, options, error);
    }
    BY_TRY(by__remote_path(&local, &d->remote, &d->remote_options, path, error));
    BY_TRY(by__format_array_file_read(&data, &size, local, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by_table_parse(out, by__remote_shown(shown, path), (const char *)data, size,
                                      options, error);
    free(data);
    return status;
}
