/* An assistant from beginning to end: opens a directory, and does what is not done. */
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "base/paths.h"

/* The parts that there is data for, and the minutes of each. */
static by_status list_parts(by_assistant *a, by_error *error)
{
    for (size_t i = 0; i < BY__ASSISTANT_PARTS; i++) {
        const by__assistant_row *row = &by__assistant_rows[i];
        if (by__assistant_data(row, a->config)->count == 0) {
            continue;
        }
        by__assistant_part *part = &a->parts[a->count++];
        by_string file = {0};
        *part = (by__assistant_part){.row = row, .joules = -1.0};
        by__string_append(&file, a->directory);
        by_string_format(&file, "/%s.yaml", row->name);
        BY_TRY(by__string_release(&file, &part->file, error));
        double own = by__assistant_own(row, a->config)->minutes;
        part->minutes = own > 0.0 ? own : a->config->minutes * row->share;
    }
    return BY_OK;
}

/* Without the slashes behind it. */
static char *plain_path(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    return by__strndup(path, length);
}

by_status by_assistant_open(by_assistant **out, const char *directory, by_error *error)
{
    by_assistant *a;
    char *path = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&a, 1, sizeof *a, "an assistant", error));
    a->directory = plain_path(directory);
    by_status status = a->directory == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: a path")
                           : by__path_make(&path, a->directory, "assistant.yaml", error);
    status = status == BY_OK ? by_assistant_config_open(&a->config, path, error) : status;
    status = status == BY_OK ? list_parts(a, error) : status;
    status = status == BY_OK ? by__assistant_check_settings(a, error) : status;
    status = status == BY_OK ? by__assistant_check_suites(a, error) : status;
    status = status == BY_OK ? by__assistant_load(a, error) : status;
    status = status == BY_OK ? by__assistant_refresh(a, error) : status;
    free(path);
    if (status != BY_OK) {
        by_assistant_close(&a);
    }
    *out = a;
    return status;
}

void by_assistant_close(by_assistant **assistant)
{
    by_assistant *a = *assistant;
    *assistant = NULL;
    if (a == NULL) {
        return;
    }
    for (size_t i = 0; i < a->count; i++) {
        free(a->parts[i].file);
        free(a->parts[i].run);
    }
    json_decref(a->scores);
    by_assistant_config_close(&a->config);
    free(a->directory);
    free(a);
}

size_t by_assistant_parts(const by_assistant *assistant)
{
    return assistant->count;
}

by_assistant_part by_assistant_part_at(const by_assistant *assistant, size_t index)
{
    const by__assistant_part *p = &assistant->parts[index];
    return (by_assistant_part){.name = p->row->name,
                               .help = p->row->help,
                               .minutes = p->minutes,
                               .config = p->file,
                               .run = p->run,
                               .state = p->state,
                               .step = p->step,
                               .steps = p->steps,
                               .seconds = p->seconds};
}

void by__assistant_tell(const by_assistant *a, const by_assistant_options *o,
                        by_assistant_event_kind kind, size_t part, const char *text)
{
    if (o->event != NULL) {
        const by_assistant_event e = {
            .kind = kind, .part = by_assistant_part_at(a, part), .text = text};
        o->event(o->user, &e);
    }
}

/* A part whose config was made of what there is now keeps that file, also where its user changed
 * it. */
static by_status run_part(by_assistant *a, size_t index, const by_assistant_options *o,
                          by_error *error)
{
    by__assistant_part *part = &a->parts[index];
    char inputs[33];
    if (part->state == BY_ASSISTANT_DONE) {
        by__assistant_tell(a, o, BY_ASSISTANT_KEPT, index, NULL);
    } else {
        BY_TRY(by__assistant_inputs(inputs, a, part, index > 0 ? part - 1 : NULL, error));
        if (strcmp(inputs, part->inputs) != 0 || !by__path_exists(part->file)) {
            BY_TRY(by__assistant_choose(a, index, o, error));
        }
        BY_TRY(by__assistant_train(a, index, o, error));
    }
    return by__assistant_score(a, index, o, error);
}

by_status by_assistant_run(by_assistant *a, const by_assistant_options *options, by_error *error)
{
    static const by_assistant_options none;
    const by_assistant_options *o = options == NULL ? &none : options;
    by_string path = {0};
    BY_TRY(by__assistant_refresh(a, error));
    for (size_t i = 0; i < a->count; i++) {
        by_status status = run_part(a, i, o, error);
        if (status != BY_OK) {
            return by_error_prefix(error, status, "%s", a->parts[i].row->name);
        }
    }
    BY_TRY(by__assistant_report(a, error));
    by__string_append(&path, a->directory);
    by__string_append(&path, "/report");
    by_status status = by_string_check(&path, error);
    if (status == BY_OK) {
        by__assistant_tell(a, o, BY_ASSISTANT_REPORTED, a->count - 1, path.data);
    }
    by_string_free(&path);
    return status;
}
