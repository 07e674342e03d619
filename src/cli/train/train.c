#include <errno.h>
#include <math.h>
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

/* How progress is shown: a line that is redrawn on a terminal, plain lines elsewhere, JSON lines
 * with --json. */
typedef struct progress_screen {
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
} progress_screen;

static void end_line(progress_screen *s)
{
    if (s->open_line) {
        fprintf(stderr, "\n");
        s->open_line = false;
    }
}

static void show_preparing(progress_screen *s, const by_train_event *e)
{
    double now = by_clock();
    if (!s->terminal || s->json || (now - s->shown < 0.1 && e->fraction < 1.0)) {
        return;
    }
    s->shown = now;
    fprintf(stderr, "\r\033[K%s %3.0f%%", e->phase, 100.0 * e->fraction);
    s->open_line = true;
}

static void show_planned(const progress_screen *s, const by_train_event *e)
{
    if (s->json) {
        return;
    }
    const char *examples = e->task->examples;
    printf("model      %lld parameters, %.3g MFLOP a %.*s\n", (long long)e->size->parameters,
           e->size->flops_per_example / 1e6, (int)strlen(examples) - 1, examples);
    if (e->size->frozen > 0) {
        char text[32];
        printf("trained    %lld parameters (%.3g %%); the rest is frozen, which saves %s of "
               "gradients and optimizer state\n",
               (long long)e->size->trained, cli_trained_percent(e->size),
               by_format_bytes(text, e->memory->spared));
    }
    printf("data       %llu %s for training, %llu held out%s%s\n",
           (unsigned long long)e->train_examples, examples, (unsigned long long)e->valid_examples,
           e->held_out == NULL ? "" : ": ", e->held_out == NULL ? "" : e->held_out);
    if (e->text != NULL) {
        printf("contents   ");
        cli_print_cell(e->text);
        printf("\n");
    }
    cli_show_memory(e->memory);
}

static void show_started(progress_screen *s, const by_train_event *e)
{
    s->first = e->first_step;
    if (s->json) {
        printf("{\"event\":\"start\",\"run\":");
        cli_print_json_string(e->run);
        printf(",\"step\":%lld,\"steps\":%lld,\"parameters\":%lld,\"planned_bytes\":%llu}\n",
               (long long)e->step, (long long)e->steps, (long long)e->size->parameters,
               (unsigned long long)e->memory->total);
        return;
    }
    const by_train_config *train = &e->config->train;
    printf("run        %s%s\n", e->run, e->first_step > 0 ? " (resumed)" : "");
    printf("config     %s/config.yaml: %lld steps, batch %lld in micro-batches of %lld, %s\n",
           e->run, (long long)train->steps, (long long)train->batch, (long long)train->micro_batch,
           e->config->precision.compute);
    if (s->peak_gflops > 0.0) {
        printf("machine    %.0f GFLOP/s in matrix products, measured\n", s->peak_gflops);
    }
    if (e->forecast != NULL) {
        cli_show_forecast(e->forecast);
    }
}

/* Training is never faster than the machine, if that was measured while nothing else ran. */
static void doubt_peak(progress_screen *s, const by_train_event *e)
{
    if (e->mfu > 1.0 && !s->doubts_peak) {
        end_line(s);
        fprintf(stderr,
                "training exceeds the peak of %.0f GFLOP/s: that was measured while other programs "
                "ran, so shares of it are not to be trusted; banyan bench machine measures it "
                "again\n",
                s->peak_gflops);
        s->doubts_peak = true;
    }
}

static void show_rollouts_json(const by_rollout_report *r)
{
    char text[7][32];
    if (r != NULL) {
        printf(",\"reward\":%s,\"pass_at_k\":%s,\"flat_groups\":%s,\"completion_tokens\":%s,"
               "\"cut_completions\":%s,\"kl\":%s,\"rollout_seconds\":%s",
               cli_json_number(text[0], r->reward, 9), cli_json_number(text[1], r->pass, 9),
               cli_json_number(text[2], r->flat, 9), cli_json_number(text[3], r->tokens, 9),
               cli_json_number(text[4], r->cut, 9), cli_json_number(text[5], r->kl, 9),
               cli_json_number(text[6], r->seconds, 6));
    }
}

static void show_step(progress_screen *s, const by_train_event *e)
{
    char left[32];
    char memory[32];
    char share[32];
    char line[256];
    doubt_peak(s, e);
    if (s->json) {
        char text[5][32];
        printf("{\"event\":\"train\",\"step\":%lld,\"loss\":%s,\"lr\":%s,\"norm\":%s,"
               "\"%s_per_s\":%s,\"mfu\":%s",
               (long long)e->step, cli_json_number(text[0], e->result.loss, 9),
               cli_json_number(text[1], e->result.lr, 9),
               cli_json_number(text[2], e->result.norm, 9), e->task->examples,
               cli_json_number(text[3], e->examples_per_s, 6),
               cli_json_number(text[4], e->mfu > 1.0 ? NAN : e->mfu, 4));
        show_rollouts_json(e->rollouts);
        printf("}\n");
        return;
    }
    int n = snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  lr %.2e  norm %.3f  %.0f %s/s",
                     (long long)e->step, (long long)e->steps, e->result.loss, e->result.lr,
                     e->result.norm, e->examples_per_s, cli_rate_unit(e->task));
    if (e->rollouts != NULL) {
        n += snprintf(line + n, sizeof line - (size_t)n, "  reward %.4f  pass@%lld %.3f",
                      e->rollouts->reward, (long long)e->rollouts->group, e->rollouts->pass);
    }
    if (e->mfu > 0.0) {
        n += snprintf(line + n, sizeof line - (size_t)n, "  %s of peak",
                      cli_share(share, e->mfu, 0, "%"));
    }
    if (e->ranks > 1) {
        n += snprintf(line + n, sizeof line - (size_t)n, "  exchange %.0f%% (%.0f%% exposed)",
                      100.0 * e->exchange / e->step_seconds, 100.0 * e->exposed / e->step_seconds);
    }
    if (e->disk > 0.0) {
        n += snprintf(line + n, sizeof line - (size_t)n, "  disk %.0f%%",
                      100.0 * e->disk / e->step_seconds);
    }
    (void)snprintf(line + n, sizeof line - (size_t)n, "  %s  %s left",
                   by_format_bytes(memory, e->resident_bytes), cli_duration(left, e->seconds_left));
    if (s->terminal) {
        fprintf(stderr, "\r\033[K%s", line);
        s->open_line = true;
    } else {
        printf("%s\n", line);
    }
}

static void show_evaluated(progress_screen *s, const by_train_event *e)
{
    const by_evaluation *v = e->evaluation;
    for (size_t i = 0; i < v->task->metric_count; i++) {
        if (strcmp(v->task->metrics[i].name, "bits_per_byte") == 0) {
            s->bits = v->metrics[i];
        }
    }
    if (s->json) {
        char text[32];
        printf("{\"event\":\"eval\",\"step\":%lld,\"valid_loss\":%s", (long long)e->step,
               cli_json_number(text, v->loss, 9));
        cli_print_parts_json(v);
        cli_print_metrics_json(v);
        printf("}\n");
        return;
    }
    end_line(s);
    if (!isfinite(v->loss)) {
        printf("step %lld  valid_loss is not finite\n", (long long)e->step);
        return;
    }
    printf("step %lld  valid_loss %.4f", (long long)e->step, v->loss);
    for (size_t i = 0; i < v->part_count; i++) {
        printf("  %s %.4f", v->parts[i].part->name, v->parts[i].loss);
        if (!isnan(v->parts[i].metric)) {
            printf(" (%s %.*f)", v->task->metrics[0].name, v->task->metrics[0].decimals,
                   v->parts[i].metric);
        }
    }
    for (size_t i = 0; i < v->task->metric_count; i++) {
        const by_metric *m = &v->task->metrics[i];
        if (!isnan(v->metrics[i])) {
            printf("  %s %.*f", m->name, m->decimals, v->metrics[i]);
        }
    }
    printf("%s\n", e->best ? "  (best)" : "");
}

static void show_sample(progress_screen *s, const by_train_event *e)
{
    if (s->json) {
        printf("{\"event\":\"sample\",\"step\":%lld,\"text\":", (long long)e->step);
        cli_print_json_text(e->text, strlen(e->text));
        printf("}\n");
        return;
    }
    end_line(s);
    printf("step %lld  sample\n", (long long)e->step);
    for (const char *line = e->text; *line != '\0';) {
        char text[4096];
        size_t n = strcspn(line, "\n");
        (void)snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1),
                       line);
        printf("    ");
        cli_print_lines(stdout, text);
        printf("\n");
        line += n + (line[n] == '\n');
    }
}

/* With --json only, because the run goes on meanwhile. */
static void show_saved(const progress_screen *s, const by_train_event *e)
{
    char text[2][32];
    if (s->json) {
        printf("{\"event\":\"checkpoint\",\"step\":%lld,\"stalled_seconds\":%s,\"seconds\":%s}\n",
               (long long)e->step, cli_json_number(text[0], e->save_stalled, 6),
               cli_json_number(text[1], e->save_seconds, 6));
    }
}

/* A full or closed standard output does not end a run. */
static void flush_output(progress_screen *s)
{
    if (fflush(stdout) != 0) {
        s->reason = s->lost++ == 0 ? errno : s->reason;
        clearerr(stdout);
    }
}

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
    progress_screen *s = user;
    report_progress(e);
    if (s->quiet && e->kind != BY_TRAIN_NOTE) {
        return;
    }
    switch (e->kind) {
    case BY_TRAIN_PREPARING:
        show_preparing(s, e);
        return;
    case BY_TRAIN_PLANNED:
        end_line(s);
        show_planned(s, e);
        break;
    case BY_TRAIN_STARTED:
        end_line(s);
        show_started(s, e);
        break;
    case BY_TRAIN_STEPPED:
        show_step(s, e);
        break;
    case BY_TRAIN_EVALUATED:
        show_evaluated(s, e);
        break;
    case BY_TRAIN_SAVED:
        show_saved(s, e);
        break;
    case BY_TRAIN_SAMPLED:
        show_sample(s, e);
        break;
    case BY_TRAIN_COMPARED:
        end_line(s);
        cli_show_compared(e, s->json);
        break;
    case BY_TRAIN_NOTE:
        end_line(s);
        cli_print_lines(stderr, e->text);
        fprintf(stderr, "\n");
        break;
    }
    flush_output(s);
}

/* A reader that went away is not a failure, but losing lines that were to be kept is. */
static int report_lost(const progress_screen *s, int code)
{
    if (s->lost == 0) {
        return code;
    }
    fprintf(stderr, "banyan train: %ld lines could not be written to standard output: %s\n",
            s->lost, strerror(s->reason));
    return code == CLI_DONE && s->reason != EPIPE ? CLI_FAILED : code;
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
        cli_record_failure(error->message);
    }
    (void)nanosleep(&second, NULL);
    return code;
}

static int train(const by_config *config, const char *resume, bool from_start, by_comm *comm,
                 progress_screen *s)
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
    end_line(s);
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
        flush_output(s);
    }
    free(run);
    return report_lost(s, code);
}

/* Opens the config again, with the steps that take as long as asked for. */
static by_status fit_config(by_config **config, const char *path, cli_list *overrides,
                            cli_minutes *minutes, by_comm *comm, progress_screen *s,
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
    end_line(s);
    by_config_close(config);
    return status == BY_OK ? cli_open_config(config, path, overrides, error) : status;
}

/* `path` is that of a config, or of a run to resume. */
static int open_and_train(const char *path, const char *resume, cli_list *overrides,
                          bool from_start, cli_minutes *minutes, by_comm *comm, progress_screen *s)
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
static int choose_and_train(cli_dial *dial, cli_list *overrides, by_comm *comm, progress_screen *s)
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
    end_line(s);
    int code = status == BY_OK ? open_and_train(path, NULL, overrides, false, &none, comm, s)
                               : fail_rank(comm, &error);
    if (code == CLI_DONE && !s->quiet && !s->json) {
        char text[32];
        printf("predicted  %.4f bits per byte (%.4f to %.4f), measured %.4f, after %s\n",
               dial->choice.bits, dial->choice.low, dial->choice.high, s->bits,
               cli_duration(text, by_clock() - dial->began));
        flush_output(s);
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
    progress_screen s = {.terminal = isatty(STDERR_FILENO) != 0};
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
