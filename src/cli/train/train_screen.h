/* The progress of a run on the screen (train_screen.c). */
#ifndef BY_CLI_TRAIN_TRAIN_SCREEN_H
#define BY_CLI_TRAIN_TRAIN_SCREEN_H

#include "banyan/train.h"
#include "base/cli.h"

/* How progress is shown: a line that is redrawn on a terminal, plain lines elsewhere, JSON lines
 * with --json. */
typedef struct cli_train_screen {
    bool terminal;
    bool json;
    bool quiet;
    bool open_line; /* the terminal's last line is a progress line */
    double shown;   /* time when it was last drawn */
    int64_t first;
    double peak_gflops;
    by_train_rates rates; /* of a rank's device */
    double bits;          /* held out, per byte, by the last evaluation; 0: not known */
    bool doubts_peak;     /* said that training exceeds it */
    long lost;            /* reports that could not be written to standard output */
    int reason;           /* errno of the first failure */
} cli_train_screen;

/* Shows an event of a run. */
void cli_train_screen_show(cli_train_screen *s, const by_train_event *e);
/* Ends the line that is redrawn, before other output. */
void cli_train_screen_end_line(cli_train_screen *s);
/* A full or closed standard output does not end a run. */
void cli_train_screen_flush(cli_train_screen *s);
/* Returns the exit code of a command that shows runs: a reader that went away is not a failure, but
 * losing lines that were to be kept is. */
int cli_train_screen_lost(const cli_train_screen *s, const cli_command *command, int code);

#endif
