/* banyan plot --show forecast. */
#ifndef BY_CLI_RUNS_PLOT_FORECAST_H
#define BY_CLI_RUNS_PLOT_FORECAST_H

#include "base/cli.h"

typedef struct cli_forecast_request {
    const char *out;    /* NULL: forecast.png */
    const char *data;   /* NULL: the held-out rows of the run */
    const char *series; /* NULL: the first one */
    const char *device;
    bool test; /* the part that the run keeps for a test */
    bool best;
    bool tensorboard; /* the picture is written for TensorBoard, too */
} cli_forecast_request;

/* Draws a forecast of a run: each channel with what it was before and during the last held-out
 * window of a series, and the band of the outermost quantiles. Returns the exit code. */
int cli_plot_forecast(const cli_command *command, const char *path, cli_forecast_request *request);

#endif
