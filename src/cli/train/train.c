#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "banyan/comm.h"
#include "banyan/device.h"
#include "banyan/exit.h"
#include "banyan/layout.h"
#include "banyan/machine.h"
#include "banyan/reinforce.h"
#include "banyan/runs.h"
#include "banyan/train.h"
#include "base/cli.h"
#include "train/minutes.h"
#include "train/train_dial.h"
#include "train/train_notes.h"
#include "train/train_screen.h"

static void on_progress(void *user, int64_t step, const char *phase)
{
    (void)user;
    by_heartbeat_progress(cli_heartbeat(), step, phase);
}

static void report_progress(const by_train_event *e)
{
    by_heartbeat *heartbeat = cli_heartbeat();
    if (e->kind == BY_TRAIN_PREPARING) {
        by_heartbeat_progress(heartbeat, e->step, e->phase);
    } else if (e->kind == BY_TRAIN_STARTED) {
        by_heartbeat_run(heartbeat, e->run);
    } else if (e->kind == BY_TRAIN_SAVED) {
        by_heartbeat_saved(heartbeat, e->step);
    }
}

static void on_event(void *user, const by_train_event *e)
{
    report_progress(e);
    cli_train_screen_show(user, e);
}

/* A launcher ends the job when a rank exits with a failure, so rank 0 prints the reason before
 * that. The job's exit code is that of whichever rank ends first; for a wrong config all ranks
 * return it, even those that only learned of the error. */
static int fail_rank(by_comm *comm, const by_error *error)
{
    const struct timespec second = {.tv_sec = 1};
    (void)by_comm_fail(comm, error->status, error);
    int code = (int)by_exit_of(error->status);
    if (by_exit_of(by_comm_failure(comm)) == BY_EXIT_CONFIG) {
        code = BY_EXIT_CONFIG;
    }
    if (by_comm_rank(comm) == 0) {
        (void)cli_fail(&cli_train, error);
        return code;
    }
    if (error->status != BY_EPEER) {
        cli_record_failure(error);
    }
    (void)nanosleep(&second, NULL);
    return code;
}

static int train(const by_config *config, const char *resume, bool from_start, by_comm *comm,
                 cli_train_screen *s)
{
    by_error error = {0};
    char *run = NULL;
    bool leads = by_comm_rank(comm) == 0;
    by_dtype dtype = cli_compute_dtype(config);
    if (leads && !s->json) {
        cli_show_device(config);
    }
    /* Only needed for the share-of-peak figure, so training goes on without it. */
    if (!leads || by_machine_peak(&s->peak_gflops, dtype, config->device,
                                  (int)config->train.threads, NULL) != BY_OK) {
        s->peak_gflops = 0.0;
    }
    const by_trainer_options trainer = {.comm = comm, .speeds = cli_speeds(config)};
    by_train_options options = {.config = config,
                                .trainer = &trainer,
                                .resume = resume,
                                .from_start = from_start,
                                .peak_gflops = s->peak_gflops,
                                .rates = &s->rates,
                                .rollouts = by_reinforce_maker(),
                                .forecaster = by_layout_forecaster(),
                                .event = on_event,
                                .stop = cli_stop_requested,
                                .progress = on_progress,
                                .user = s};
    by_status status = by_train(&options, &run, &error);
    cli_train_screen_end_line(s);
    int code = CLI_DONE;
    if (status == BY_ESTOPPED && run != NULL) {
        code = CLI_STOPPED;
        if (leads) {
            (void)cli_fail(&cli_train, &error);
            fprintf(stderr, "everything is saved; resume with: banyan train --resume %s\n", run);
        }
    } else if (status != BY_OK) {
        code = fail_rank(comm, &error);
    } else if (leads && !s->json && !s->quiet) {
        printf("done       %s\n", run);
        cli_show_next(config, run);
        cli_train_screen_flush(s);
    }
    free(run);
    return cli_train_screen_lost(s, &cli_train, code);
}

/* Opens the config again, with the steps that take as long as asked for. */
static by_status fit_config(by_config **config, const char *path, cli_list *overrides,
                            cli_minutes *minutes, by_comm *comm, cli_train_screen *s,
                            by_error *error)
{
    bool shows = by_comm_rank(comm) == 0 && !s->quiet;
    const by_trainer_options trainer = {.comm = comm, .speeds = cli_speeds(*config)};
    const by_train_options options = {.config = *config,
                                      .rollouts = by_reinforce_maker(),
                                      .trainer = &trainer,
                                      .event = on_event,
                                      .stop = cli_stop_requested,
                                      .progress = on_progress,
                                      .user = s};
    by_status status = cli_fit_minutes(minutes, &options, overrides, shows, s->json, error);
    cli_train_screen_end_line(s);
    by_config_close(config);
    return status == BY_OK ? cli_open_config(config, path, overrides, error) : status;
}

/* `path` is that of a config, or of a run to resume. */
static int open_and_train(const char *path, const char *resume, cli_list *overrides,
                          bool from_start, cli_minutes *minutes, by_comm *comm, cli_train_screen *s)
{
    by_config *config;
    by_error error = {0};
    if (cli_open_config(&config, path, overrides, &error) != BY_OK) {
        (void)fail_rank(comm, &error);
        return CLI_USAGE;
    }
    cli_catch_signals();
    (void)signal(SIGPIPE, SIG_IGN);
    if (minutes->minutes > 0.0 &&
        fit_config(&config, path, overrides, minutes, comm, s, &error) != BY_OK) {
        return fail_rank(comm, &error);
    }
    int code = train(config, resume, from_start, comm, s);
    by_config_close(&config);
    return code;
}

/* Has the dial make a config, and trains it. */
static int choose_and_train(cli_dial *dial, cli_list *overrides, by_comm *comm, cli_train_screen *s)
{
    char *path = NULL;
    by_error error = {0};
    cli_minutes none = {0};
    if (by_comm_size(comm) > 1) {
        (void)by_error_set(&error, BY_EARG,
                           "--data chooses a config for one process: choose it there, then train "
                           "the file that it writes on %d ranks",
                           by_comm_size(comm));
        return fail_rank(comm, &error);
    }
    cli_catch_signals();
    const by_train_options options = {
        .event = on_event, .stop = cli_stop_requested, .progress = on_progress, .user = s};
    by_status status = cli_turn_dial(dial, &path, &options, overrides, !s->quiet, s->json, &error);
    cli_train_screen_end_line(s);
    int code = status == BY_OK ? open_and_train(path, NULL, overrides, false, &none, comm, s)
                               : fail_rank(comm, &error);
    if (code == CLI_DONE && !s->quiet && !s->json) {
        char text[32];
        printf("predicted  %.4f bits per byte (%.4f to %.4f), measured %.4f, after %s\n",
               dial->choice.bits, dial->choice.low, dial->choice.high, s->bits,
               cli_duration(text, by_clock() - dial->began));
        cli_train_screen_flush(s);
    }
    free(path);
    return code;
}

/* Refuses what contradicts itself, with an exit code. Returns -1 to continue. */
static int check_arguments(const cli_dial *dial, const char *resume, bool from_start, int count,
                           const cli_list *overrides)
{
    int code = resume != NULL && dial->data != NULL
                   ? cli_misuse(&cli_train, "--resume goes on with a run's own config, and --data "
                                            "chooses one: give one of them")
                   : cli_check_dial(&cli_train, dial, count);
    if (code >= 0) {
        return code;
    }
    if (dial->data == NULL && count != (resume == NULL ? 1 : 0)) {
        return cli_misuse(&cli_train,
                          resume == NULL
                              ? "name one config file"
                              : "--resume uses the config of the run: give no config file");
    }
    if (from_start && resume == NULL) {
        return cli_misuse(&cli_train, "--from-start needs --resume");
    }
    if (resume != NULL && !from_start && cli_unused_weights(overrides) != NULL) {
        return cli_misuse(&cli_train,
                          "--resume goes on with the run's own weights, so %s has no effect: to "
                          "start from other weights, train a new run: banyan train RUN --set "
                          "%s=WEIGHTS --set name=NAME",
                          cli_unused_weights(overrides), cli_unused_weights(overrides));
    }
    return dial->data != NULL ? -1
                              : cli_check_minutes(&cli_train, dial->minutes, resume, overrides);
}

static int run(int argc, char **argv)
{
    const char *resume = NULL;
    bool from_start = false;
    cli_list overrides = {0};
    cli_minutes minutes = {0};
    cli_dial dial = {.began = by_clock()};
    cli_train_screen s = {.terminal = isatty(STDERR_FILENO) != 0};
    const cli_flag flags[] = {
        {"device", CLI_DEVICE, &overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &overrides, "KEY=VALUE", CLI_SET_HELP},
        {"resume", CLI_STRING, &resume, "RUN", "resume a run from its newest valid checkpoint"},
        {"from-start", CLI_SWITCH, &from_start, NULL,
         "with --resume: start again at step 0 when the run has no valid checkpoint"},
        {"minutes", CLI_NUMBER_ABOVE(0, 1e6), &minutes.minutes, "N",
         "train for about N minutes: measure this machine for seconds, then choose train.steps "
         "and, "
         "where the config leaves them open, train.eval_every and checkpoint.every"},
        CLI_DIAL_FLAGS(&dial),
        {"json", CLI_SWITCH, &s.json, NULL, "print one JSON line per event to standard output"},
        {"quiet", CLI_SWITCH, &s.quiet, NULL, "print errors only"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_comm *comm;
    by_error error = {0};
    char *found = NULL;
    int code = cli_parse(&cli_train, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    dial.minutes = minutes.minutes;
    code = check_arguments(&dial, resume, from_start, count, &overrides);
    if (code >= 0) {
        return code;
    }
    if (cli_dial_rates(&s.rates, &dial, &error) != BY_OK ||
        by_comm_open(&comm, NULL, &error) != BY_OK) {
        return cli_fail(&cli_train, &error);
    }
    cli_watch_comm(comm);
    if (resume == NULL && dial.data == NULL) {
        cli_report_new_run(rest[0], comm);
    }
    code = dial.data != NULL ? choose_and_train(&dial, &overrides, comm, &s)
           : resume == NULL
               ? open_and_train(rest[0], NULL, &overrides, from_start, &minutes, comm, &s)
               : -1;
    if (resume != NULL) {
        code = by_run_find(&found, resume, &error) != BY_OK
                   ? fail_rank(comm, &error)
                   : open_and_train(found, found, &overrides, from_start, &minutes, comm, &s);
    }
    free(found);
    cli_watch_comm(NULL);
    by_comm_close(&comm);
    return code;
}

const cli_command cli_train = {
    .name = "train",
    .summary = "train a model from a config file",
    .usage = "banyan train CONFIG [--minutes N] [--set KEY=VALUE]... | banyan train --resume RUN "
             "[--from-start] |\n       banyan train --data TEXT --minutes N|--until DATE|--flops "
             "C|--money X|--memory SIZE|--depth N",
    .text =
        "Trains a model as a config file describes, and writes a run directory with the\n"
        "resolved config, events and checkpoints.\n"
        "\n"
        "examples:\n"
        "  banyan train --data book.txt --minutes 10\n"
        "  banyan train examples/shakespeare_char.yaml --set data.text=input.txt\n"
        "  banyan train --resume runs/shakespeare-char\n"
        "  mpirun -n 4 banyan train examples/shakespeare_char.yaml\n"
        "\n"
        "--minutes N replaces train.steps: a few steps and evaluations of the config are "
        "measured,\n"
        "in state of their own, and the steps that take N minutes, with evaluations and\n"
        "checkpoints, are written into the run's config: the run is the same as with\n"
        "--set train.steps=STEPS. Shares such as optimizer.warmup=0.05 fit any number.\n"
        "\n"
        "--data TEXT makes a config instead of reading one: the machine is measured for seconds,\n"
        "then model, batch, learning rate and length are chosen by laws (docs/dial.md), printed,\n"
        "written to a file of the text's name, and trained.\n"
        "\n"
        "Text is packed into tokens on first use. Ctrl-C, SIGTERM or SIGHUP saves a checkpoint\n"
        "and exits with code 3; a second signal, half a second later or more, exits at once.\n"
        "\n"
        "A run directory in place of the config trains its config again, as a new run.\n"
        "A resumed run continues bit for bit, on any number of ranks. A run that is complete is\n"
        "trained further with more steps: --resume RUN --set train.steps=N.\n"
        "\n"
        "Under mpirun or `banyan launch` the ranks train together, as the section `parallel` of\n"
        "the config says; rank 0 prints, writes and holds the lock of the run directory.",
    .run = run};
