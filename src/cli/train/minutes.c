/* `banyan train --minutes`: fixes the number of steps before the run is opened. */
#include <stdio.h>
#include <string.h>

#include "train/minutes.h"

/* Seconds of measuring, a share of the run's. */
#define MIN_MINUTES_FACTOR 1.5
#define MAX_MINUTES_FACTOR 8.0
#define SHARE              0.04
/* Its most share, of a run that is short. */
#define THIRD (1.0 / 3.0)

static bool sets_steps(const cli_list *overrides)
{
    for (size_t i = 0; i < overrides->count; i++) {
        if (strncmp(overrides->items[i], "train.steps=", 12) == 0) {
            return true;
        }
    }
    return false;
}

int cli_check_minutes(const cli_command *command, double minutes, const char *resume,
                      const cli_list *overrides)
{
    if (minutes == 0.0) {
        return -1;
    }
    if (resume != NULL) {
        return cli_misuse(command,
                          "--minutes fixes train.steps before the first step, which --resume is "
                          "past: give more steps with --set train.steps=N");
    }
    if (sets_steps(overrides)) {
        return cli_misuse(command, "--minutes chooses train.steps: give one of them");
    }
    return overrides->count + 3 <= CLI_LIST_MAX
               ? -1
               : cli_misuse(command, "--minutes and more than %d times --set", CLI_LIST_MAX - 3);
}

static void print(const cli_minutes *m, bool json)
{
    const by_train_fit *f = &m->fit;
    const by_train_times *t = &m->times;
    char text[5][32];
    if (json) {
        printf("{\"event\":\"fit\",\"minutes\":%s,\"step_seconds\":%s,\"evaluation_seconds\":%s,"
               "\"measuring_seconds\":%s,\"steps\":%lld,\"eval_every\":%lld,"
               "\"checkpoint_every\":%lld,\"expected_seconds\":%s}\n",
               cli_json_number(text[0], m->minutes, 6), cli_json_number(text[1], t->step, 4),
               cli_json_number(text[2], t->evaluation, 4),
               cli_json_number(text[3], t->measuring, 4), (long long)f->steps,
               (long long)f->eval_every, (long long)f->checkpoint_every,
               cli_json_number(text[4], f->seconds, 4));
        return;
    }
    printf("time       %.3g s a step, %.3g s an evaluation (measured in %.1f s): train.steps=%lld "
           "train.eval_every=%lld checkpoint.every=%lld take %s\n",
           t->step, t->evaluation, t->measuring, (long long)f->steps, (long long)f->eval_every,
           (long long)f->checkpoint_every, cli_duration(text[0], f->seconds));
}

by_status cli_fit_minutes(cli_minutes *m, const by_train_options *options, cli_list *overrides,
                          bool show, bool json, by_error *error)
{
    double seconds = 60.0 * m->minutes;
    double measuring =
        fmin(fmin(fmax(SHARE * seconds, MIN_MINUTES_FACTOR), MAX_MINUTES_FACTOR), THIRD * seconds);
    by_status status = by_train_measure(&m->times, options, measuring, error);
    if (status == BY_OK) {
        double left = fmax(seconds - m->times.measuring, m->times.step);
        status = by_train_fit_steps(&m->fit, options->config, &m->times, left, error);
    }
    if (status != BY_OK) {
        return status;
    }
    const struct {
        const char *key;
        int64_t value;
    } chosen[] = {{"train.steps", m->fit.steps},
                  {"train.eval_every", m->fit.eval_every},
                  {"checkpoint.every", m->fit.checkpoint_every}};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(m->settings[i], sizeof m->settings[i], "%s=%lld", chosen[i].key,
                       (long long)chosen[i].value);
        overrides->items[overrides->count++] = m->settings[i];
    }
    if (show) {
        print(m, json);
    }
    return BY_OK;
}
