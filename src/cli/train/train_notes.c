/* What `banyan train` says to people before and after a run. */
#include "train/train_notes.h"

#include <string.h>
#include <unistd.h>

/* What can be done with a run that is done. */
void cli_show_next(const by_config *config, const char *run)
{
    const by_task *task = NULL;
    bool text = strcmp(config->task.kind, "language") == 0;
    bool chat = strcmp(config->task.kind, "chat") == 0;
    bool tokens = strcmp(by_model_reads(&config->model), "tokens") == 0;
    bool known = by_task_find(&task, config, NULL) == BY_OK;
    if (known && task->rolls_out) {
        printf("next       banyan generate %s --prompt TEXT\n", run);
    } else {
        printf("next       banyan eval %s\n", run);
    }
    if (text) {
        printf("           banyan generate %s --prompt TEXT\n", run);
    } else if (chat) {
        printf("           banyan chat %s\n", run);
    } else if (known && task->predict != NULL) {
        printf("           banyan predict %s FILE\n", run);
    } else if (known && strcmp(task->name, "diffuse") == 0) {
        printf("           banyan generate %s --image FILE.png\n", run);
    }
    if (tokens || (known && task->open_examples != NULL)) {
        printf("           banyan serve %s\n", run);
    }
    printf("           banyan plot %s --out loss.png\n", run);
}

/* Where the run computes, unless that is the CPU. */
void cli_show_device(const by_config *config)
{
    by_machine machine;
    char name[BY_DEVICE_NAME];
    if (by_device_resolve(name, config->device, NULL) == BY_OK && strcmp(name, "cpu") != 0 &&
        by_machine_describe(&machine, name, (int)config->train.threads, NULL) == BY_OK) {
        printf("device     %s: %s, %s\n", name, machine.cpu, machine.isa);
    }
}

/* A run that is named as a config is trained again from the start, which its user may not mean. */
void cli_report_new_run(const char *path, const by_comm *comm)
{
    char file[4096];
    (void)snprintf(file, sizeof file, "%s/config.yaml", path);
    if (by_comm_rank(comm) == 0 && access(file, F_OK) == 0) {
        fprintf(stderr,
                "banyan train: %s is a run: its config is trained from step 0, as a new run; to "
                "continue it: banyan train --resume %s\n",
                path, path);
    }
}

/* The key of weights to start from that is set for a run which goes on with its own; NULL: none. */
const char *cli_unused_weights(const cli_list *overrides)
{
    static const char *const keys[] = {"model.from", "lora.from"};
    for (size_t i = 0; i < overrides->count; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            size_t length = strlen(keys[k]);
            if (strncmp(overrides->items[i], keys[k], length) == 0 &&
                overrides->items[i][length] == '=') {
                return keys[k];
            }
        }
    }
    return NULL;
}
