/* Opens the data that a model is evaluated on, or predicts. */
#include <stdio.h>
#include <string.h>

#include "banyan/train.h"
#include "base/cli.h"

static void show_note(void *user, const by_train_event *event)
{
    (void)user;
    if (event->kind == BY_TRAIN_NOTE) {
        cli_print_lines(stderr, event->text);
        fprintf(stderr, "\n");
    }
}

by_status cli_open_task_data(by_task_data **out, cli_spool *spool, by_config *config,
                             const by_pretrained *model, const char *run,
                             const by_task_request *request, by_error *error)
{
    by_status status = BY_OK;
    const by_train_options options = {
        .resume = run, .event = show_note, .stop = cli_stop_requested};
    by_task_request what = *request;
    *spool = (cli_spool){.path = request->path};
    static const char *const texts[] = {"language", "chat", "preference", "reward"};
    bool text = false;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        text = text || strcmp(config->task.kind, texts[i]) == 0;
    }
    if (request->path != NULL && !text) {
        status = cli_spool_open(spool, request->path, error); /* a text is read as it comes */
    }
    what.config = config;
    what.path = spool->path;
    what.learned = by_pretrained_directory(model);
    what.progress = &options;
    what.stop = cli_stop_requested;
    return status == BY_OK ? by_task_open(out, NULL, &what, error) : status;
}

const char *cli_class_name(char text[32], const by_task_kept *kept, int64_t number)
{
    (void)snprintf(text, 32, "%lld", (long long)number);
    return number >= 0 && (size_t)number < kept->label_count ? kept->labels[number] : text;
}
