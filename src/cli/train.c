#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/machine.h"
#include "banyan/train.h"
#include "cli.h"

/* How progress is shown: a line that is rewritten on a terminal, plain lines elsewhere, JSON lines
 * with --json. */
typedef struct screen {
    bool terminal;
    bool json;
    bool quiet;
    bool open_line; /* the terminal's last line is a progress line */
    double shown;   /* when it was last drawn */
    int64_t first;
    double peak_gflops;
} screen;

static void end_line(screen *s)
{
    if (s->open_line) {
        fprintf(stderr, "\n");
        s->open_line = false;
    }
}

static void show_preparing(screen *s, const by_train_event *e)
{
    double now = by_clock();
    if (!s->terminal || s->json || (now - s->shown < 0.1 && e->fraction < 1.0)) {
        return;
    }
    s->shown = now;
    fprintf(stderr, "\r\033[K%s %3.0f%%", e->phase, 100.0 * e->fraction);
    s->open_line = true;
}

static void show_memory(const by_memory_report *m)
{
    char text[8][32];
    printf("memory     %s planned: parameters %s, gradients %s, optimizer %s, activations %s, "
           "workspace %s, data %s, process %s\n",
           cli_bytes(text[0], m->total), cli_bytes(text[1], m->parameters),
           cli_bytes(text[2], m->gradients), cli_bytes(text[3], m->optimizer),
           cli_bytes(text[4], m->activations), cli_bytes(text[5], m->workspace),
           cli_bytes(text[6], m->data), cli_bytes(text[7], m->process));
}

static void show_started(screen *s, const by_train_event *e)
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
    printf("run        %s%s\n", e->run, e->first_step > 0 ? " (resumed)" : "");
    printf("model      %lld parameters, %.3g MFLOP a token\n", (long long)e->size->parameters,
           e->size->flops_per_token / 1e6);
    printf("data       %llu tokens to train on, %llu held out\n",
           (unsigned long long)e->train_tokens, (unsigned long long)e->valid_tokens);
    show_memory(e->memory);
    if (s->peak_gflops > 0.0) {
        printf("machine    %.0f GFLOP/s in matrix products, measured\n", s->peak_gflops);
    }
}

static void show_step(screen *s, const by_train_event *e)
{
    char left[32];
    char memory[32];
    char line[256];
    if (s->json) {
        printf("{\"event\":\"train\",\"step\":%lld,\"loss\":%.9g,\"lr\":%.9g,\"norm\":%.9g,"
               "\"tokens_per_s\":%.6g,\"mfu\":%.4g}\n",
               (long long)e->step, e->result.loss, e->result.lr, e->result.norm, e->tokens_per_s,
               e->mfu);
        return;
    }
    int n = snprintf(line, sizeof line, "step %lld/%lld  loss %.4f  lr %.2e  norm %.3f  %.0f tok/s",
                     (long long)e->step, (long long)e->steps, e->result.loss, e->result.lr,
                     e->result.norm, e->tokens_per_s);
    if (e->mfu > 0.0) {
        n += snprintf(line + n, sizeof line - (size_t)n, "  %.0f%% of peak", 100.0 * e->mfu);
    }
    (void)snprintf(line + n, sizeof line - (size_t)n, "  %s  %s left",
                   cli_bytes(memory, e->resident_bytes), cli_duration(left, e->seconds_left));
    if (s->terminal) {
        fprintf(stderr, "\r\033[K%s", line);
        s->open_line = true;
    } else {
        printf("%s\n", line);
    }
}

static void show_evaluated(screen *s, const by_train_event *e)
{
    if (s->json) {
        printf("{\"event\":\"eval\",\"step\":%lld,\"valid_loss\":%.9g}\n", (long long)e->step,
               e->valid_loss);
        return;
    }
    end_line(s);
    printf("step %lld  valid_loss %.4f  perplexity %.2f%s\n", (long long)e->step, e->valid_loss,
           exp(e->valid_loss), e->best ? "  (best)" : "");
}

static void on_event(void *user, const by_train_event *e)
{
    screen *s = user;
    if (s->quiet) {
        return;
    }
    switch (e->kind) {
    case BY_TRAIN_PREPARING:
        show_preparing(s, e);
        return;
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
        break;
    case BY_TRAIN_NOTE:
        end_line(s);
        fprintf(stderr, "%s\n", e->text);
        break;
    }
    fflush(stdout);
}

static int train(const by_config *config, const char *resume, screen *s)
{
    by_error error = {0};
    char *run = NULL;
    by_dtype dtype = strcmp(config->precision.compute, "bf16") == 0 ? BY_BF16 : BY_F32;
    /* Only for the share-of-peak figure: training goes on without it. */
    if (by_machine_peak(&s->peak_gflops, dtype, (int)config->train.threads, NULL) != BY_OK) {
        s->peak_gflops = 0.0;
    }
    by_train_options options = {.config = config,
                                .resume = resume,
                                .peak_gflops = s->peak_gflops,
                                .event = on_event,
                                .stop = cli_stop_requested,
                                .user = s};
    by_status status = by_train(&options, &run, &error);
    end_line(s);
    int code = CLI_DONE;
    if (status != BY_OK) {
        code = cli_fail(&cli_train, &error);
        if (status == BY_ESTOPPED && run != NULL) {
            fprintf(stderr, "everything is saved; go on with: banyan train --resume %s\n", run);
        }
    } else if (!s->json && !s->quiet) {
        printf("done       %s\n", run);
    }
    free(run);
    return code;
}

static int run(int argc, char **argv)
{
    const char *resume = NULL;
    cli_list overrides = {0};
    screen s = {.terminal = isatty(STDERR_FILENO) != 0};
    const cli_flag flags[] = {
        {"set", CLI_LIST, &overrides, "KEY=VALUE",
         "override a key of the config, e.g. train.steps=100"},
        {"resume", CLI_STRING, &resume, "RUN", "go on with a run from its newest valid checkpoint"},
        {"json", CLI_SWITCH, &s.json, NULL, "one JSON line an event on standard output"},
        {"quiet", CLI_SWITCH, &s.quiet, NULL, "print errors only"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_config *config;
    by_error error = {0};
    char *found = NULL;
    int code = cli_parse(&cli_train, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != (resume == NULL ? 1 : 0)) {
        return cli_misuse(&cli_train, resume == NULL ? "name one config file"
                                                     : "--resume takes the config from the run");
    }
    if (resume != NULL && by_run_find(&found, resume, &error) != BY_OK) {
        return cli_fail(&cli_train, &error);
    }
    code = CLI_USAGE;
    if (cli_open_config(&config, found != NULL ? found : rest[0], &overrides, &error) != BY_OK) {
        (void)cli_fail(&cli_train, &error);
    } else {
        cli_catch_signals();
        code = train(config, found, &s);
        by_config_close(&config);
    }
    free(found);
    return code;
}

const cli_command cli_train = {
    .name = "train",
    .summary = "train a model from a config file",
    .usage = "banyan train CONFIG [--set KEY=VALUE]... | banyan train --resume RUN",
    .text =
        "Trains the model of a config on its data and writes a run directory with the resolved\n"
        "config, events and checkpoints. Text is packed into tokens on first use. Ctrl-C or "
        "SIGTERM\n"
        "saves and exits with code 3; a second one exits at once. A resumed run continues bit for "
        "bit.\n\n"
        "  banyan train examples/shakespeare_char.yaml --set data.text=input.txt\n"
        "  banyan train --resume runs/shakespeare-char",
    .run = run};
