/* The dial from a text to a config: measures, chooses, and fixes the steps. */
#include <math.h>
#include <string.h>

#include "banyan/machine.h"
#include "banyan/train.h"
#include "banyan/trainer.h"
#include "base/base.h"
#include "plan/dial/dial.h"

/* The share of the time that steps get; measuring, evaluations and the last checkpoint take the
 * rest. */
#define STEPS_SHARE 0.94
/* Seconds of measuring models, as a share of the run, and at most. */
#define MEASURING_SHARE 0.04
#define MEASURING_LEAST 1.0
#define MEASURING_MOST  12.0
/* Of measuring the model that is chosen. */
#define FITTING_MOST 8.0
/* Of the free memory, what other programs may take before the run does. */
#define OTHERS_SHARE 16
/* The depth of the model with which data are opened. */
#define FIRST_LAYERS 4

/* A first model, of which data and trials are. *bytes: of memory that a run may take, on entry the
 * request's. */
static by_status measure(by_dial_machine *machine, by_dial_data *data, uint64_t *bytes,
                         const by_dial_request *r, by_error *error)
{
    const by_dial_machine any = {.count = 1, .flops = {1.0}, .seconds = {1e-12}};
    by_dial_request first = *r;
    by_dial_choice choice;
    by_train_options own = *r->options;
    by_config *config;
    first.budget =
        (by_dial_budget){.flops = 1e14, .layers = FIRST_LAYERS, .context = r->budget.context};
    BY_TRY(by_dial_guess_data(data, &r->text, error));
    BY_TRY(by_dial_choose(&choice, &first, data, &any, error));
    BY_TRY(by__dial_open(&config, &choice, data, r, error));
    own.config = config;
    by_status status = by_dial_open_data(data, &own, error);
    double all = r->budget.seconds;
    double seconds = all > 0.0 ? MEASURING_SHARE * all : MEASURING_LEAST;
    seconds = fmin(fmax(seconds, MEASURING_LEAST), MEASURING_MOST);
    uint64_t free_bytes = by_plan_limit(config, NULL, NULL);
    uint64_t most = free_bytes - free_bytes / OTHERS_SHARE;
    *bytes = *bytes > 0 && *bytes < most ? *bytes : most;
    config->memory.budget = (int64_t)*bytes;
    if (status == BY_OK) {
        status = by_dial_measure(machine, &own, data, seconds, error);
    }
    by_config_close(&config);
    return status;
}

/* Fixes the steps by the time that is left, as by_train_fit_steps does for any config. */
static by_status fit(by_dial_choice *choice, const by_dial_data *data, const by_dial_request *r,
                     by_error *error)
{
    by_train_times times;
    by_train_fit fitted;
    by_config *config;
    by_dtype dtype = BY_F32;
    double peak;
    by_train_options own = *r->options;
    BY_TRY(by__dial_open(&config, choice, data, r, error));
    own.config = config;
    /* The run reports its share of this, and would measure it in time that is planned for steps. */
    (void)by_precision_parse(&dtype, config->precision.compute, NULL);
    (void)by_machine_peak(&peak, dtype, config->device, (int)config->train.threads, NULL);
    double measuring =
        fmin(fmax(MEASURING_SHARE * r->budget.seconds, MEASURING_LEAST), FITTING_MOST);
    by_status status = by_train_measure(&times, &own, measuring, error);
    double left = r->budget.seconds - (by__now() - r->began);
    if (status == BY_OK) {
        status = by_train_fit_steps(&fitted, config, &times, fmax(left, times.step), error);
    }
    by_config_close(&config);
    if (status == BY_OK && (strcmp(choice->limit, "time") == 0 || fitted.steps < choice->steps)) {
        choice->steps = fitted.steps;
        choice->limit = "time";
        by_dial_extend(choice, data);
        choice->seconds = fitted.seconds;
    }
    return status;
}

/* Sets the time that is left for steps. Where the text took longer than there was, the run is the
 * shortest that is chosen. */
static by_status leave(by_dial_budget *left, const by_dial_request *r, const by_dial_data *data,
                       const by_dial_machine *machine, by_error *error)
{
    const by_dial_budget *budget = &r->budget;
    double least = by_dial_least_seconds(data, machine, budget->layers, budget->context);
    double whole = MEASURING_LEAST + least / STEPS_SHARE;
    if (budget->seconds < whole) {
        return by_error_set(error, BY_EARG,
                            "the dial: the run may take %.3g s, but measuring this machine and the "
                            "shortest training take %.3g s: give it at least %.2g minutes",
                            budget->seconds, whole, ceil(whole / 0.6) / 100.0);
    }
    double rest = STEPS_SHARE * (budget->seconds - (by__now() - r->began));
    left->seconds = fmax(rest, least * (1.0 + 1e-9));
    return BY_OK;
}

by_status by_dial_turn(by_dial_choice *out, char **yaml, char **lines, const by_dial_request *r,
                       by_error *error)
{
    by_dial_machine machine;
    by_dial_data data;
    by_dial_request left = *r;
    *yaml = NULL;
    *lines = NULL;
    BY_TRY(measure(&machine, &data, &left.budget.bytes, r, error));
    if (left.budget.seconds > 0.0) {
        BY_TRY(leave(&left.budget, r, &data, &machine, error));
    }
    BY_TRY(by_dial_choose(out, &left, &data, &machine, error));
    if (r->budget.bytes == 0 && !(out->slower > 1.0) && out->micro_batch == 0) {
        out->bytes = 0; /* nobody asked for a limit, and it takes none */
    }
    if (left.budget.seconds > 0.0) {
        BY_TRY(fit(out, &data, r, error));
    }
    return by_dial_config(yaml, lines, out, &data, r->name, &r->text, error);
}
