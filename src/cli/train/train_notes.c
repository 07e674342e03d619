/* What `banyan train` says to people before and after a run. */
#include "train/train_notes.h"

#include <string.h>
#include <unistd.h>

/* What can be done with a run that is done. */
void cli_show_next(const by_config *config, const char *run)
{
    const by_task *task = NULL;
    bool text = strcmp(config->task.kind, "language") == 0;
    bool rates = strcmp(config->task.kind, "reward") == 0;
    bool chat =
        strcmp(config->task.kind, "chat") == 0 || strcmp(config->task.kind, "preference") == 0;
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
    if ((tokens && !rates) || (known && task->open_examples != NULL)) {
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

void cli_show_forecast(const by_step_forecast *f)
{
    char text[3][32];
    printf("step       %s ms planned, 80 %% between %s and %s", cli_ms(text[0], 1e3 * f->seconds),
           cli_ms(text[1], 1e3 * f->low), cli_ms(text[2], 1e3 * f->high));
    if (f->runs > 0) {
        printf("; corrected by %.3g from earlier runs", f->seconds / f->planned);
    }
    printf("\n");
}

void cli_show_compared(const by_train_event *e, bool json)
{
    const by_step_forecast *f = e->forecast;
    char text[2][32];
    if (json) {
        printf("{\"event\":\"compared\",\"planned_step_s\":%.9g,\"step_s\":%.9g,"
               "\"planned_bytes\":%llu,\"resident_bytes\":%llu}\n",
               f->seconds, e->step_seconds, (unsigned long long)e->memory->total,
               (unsigned long long)e->resident_bytes);
        return;
    }
    printf("step       %s ms, planned %s (%+.1f %%)\n", cli_ms(text[0], 1e3 * e->step_seconds),
           cli_ms(text[1], 1e3 * f->seconds), 100.0 * (f->seconds / e->step_seconds - 1.0));
    if (e->resident_bytes > 0) {
        printf("memory     %s resident, planned %s (%+.1f %%)\n",
               by_format_bytes(text[0], e->resident_bytes),
               by_format_bytes(text[1], e->memory->total),
               100.0 * ((double)e->memory->total / (double)e->resident_bytes - 1.0));
    }
}

void cli_show_memory(const by_memory_report *m)
{
    char text[8][32];
    printf("memory     %s planned: parameters %s, gradients %s, optimizer %s, activations %s, "
           "workspace %s, data %s, process %s\n",
           by_format_bytes(text[0], m->total), by_format_bytes(text[1], m->parameters),
           by_format_bytes(text[2], m->gradients), by_format_bytes(text[3], m->optimizer),
           by_format_bytes(text[4], m->activations), by_format_bytes(text[5], m->workspace),
           by_format_bytes(text[6], m->data), by_format_bytes(text[7], m->process));
    if (m->on_disk > 0) {
        printf("on disk    %s of weights and optimizer state\n",
               by_format_bytes(text[0], m->on_disk));
    }
}
