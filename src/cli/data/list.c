/* banyan data show --list: the examples of training data by their numbers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/show.h"

typedef struct example_list {
    const by_task_kept *kept;
    bool json;
} example_list;

const char *cli_example_name(const by_example_name *name)
{
    const char *text = name->sample != NULL && name->sample[0] != '\0' ? name->sample : name->file;
    const char *slash = text == NULL ? NULL : strrchr(text, '/');
    return text == NULL ? "" : slash == NULL ? text : slash + 1;
}

static void print_json(const example_list *l, const by_example_use *use)
{
    char text[32];
    printf("{\"example\":%" PRIu64
           ",\"trained\":%s,\"held_out\":%s,\"draws\":%s,\"drawn\":%" PRIu64,
           use->name.index, use->trained ? "true" : "false", use->held_out ? "true" : "false",
           cli_json_number(text, use->draws, 9), use->drawn);
    if (use->label >= 0) {
        printf(",\"class\":");
        cli_print_json_string(cli_class_name(text, l->kept, use->label));
    }
    if (use->name.file != NULL) {
        printf(",\"file\":");
        cli_print_json_string(use->name.file);
    }
    if (use->name.sample != NULL) {
        printf(",\"sample\":");
        cli_print_json_string(use->name.sample);
    }
    printf("}\n");
}

static void print_line(void *user, const by_example_use *use)
{
    const example_list *l = user;
    char text[32];
    if (l->json) {
        print_json(l, use);
        return;
    }
    printf("%" PRIu64 "\t%s\t%g\t%" PRIu64 "\t", use->name.index,
           use->trained    ? "training"
           : use->held_out ? "held out"
                           : "neither",
           use->draws, use->drawn);
    cli_print_cell(use->label < 0 ? "" : cli_class_name(text, l->kept, use->label));
    printf("\t");
    cli_print_cell(use->name.file == NULL ? "" : use->name.file);
    printf("\t");
    cli_print_cell(use->name.sample == NULL ? "" : use->name.sample);
    printf("\n");
}

by_status cli_list_data(by_task_data *data, const by_config *config, const cli_show_request *r,
                        by_error *error)
{
    by_task_kept kept = {0};
    example_list l = {.kept = &kept, .json = r->json};
    if (data->task->list == NULL) {
        return by_error_set(error, BY_EARG,
                            "--list is of images and of rows of tables, and the examples of "
                            "task.kind %s are %s",
                            config->task.kind, data->task->examples);
    }
    by_status status = cli_redirect(r->out, error);
    if (status == BY_OK && data->task->keep != NULL) {
        status = data->task->keep(data, config, &kept, error);
    }
    if (status == BY_OK && !r->json) {
        printf("example\tpart\tdraws\tdrawn in epoch %" PRId64 "\tclass\tfile\tsample\n", r->epoch);
    }
    if (status == BY_OK) {
        status = data->task->list(data, config, (uint64_t)r->epoch, print_line, &l, error);
    }
    cli_tell_written(status == BY_OK ? r->out : NULL);
    return status;
}
