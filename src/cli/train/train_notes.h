/* What `banyan train` says to people before and after a run (train_notes.c). */
#ifndef BY_CLI_TRAIN_TRAIN_NOTES_H
#define BY_CLI_TRAIN_TRAIN_NOTES_H

#include "banyan/train_events.h"
#include "base/cli.h"

/* What can be done with a run that is done. */
void cli_show_next(const by_config *config, const char *run);
/* Where the run computes, unless that is the CPU. */
void cli_show_device(const by_config *config);
/* A run that is named as a config is trained again from the start, which its user may not mean. */
void cli_report_new_run(const char *path, const by_comm *comm);
/* The key of weights to start from that is set for a run which goes on with its own; NULL: none. */
const char *cli_unused_weights(const cli_list *overrides);
/* The planned memory, by purpose. */
void cli_show_memory(const by_memory_report *memory);
/* What a step is predicted to take; and, after the last one, what it took. */
void cli_show_forecast(const by_step_forecast *forecast);
void cli_show_compared(const by_train_event *event, bool json);

#endif
