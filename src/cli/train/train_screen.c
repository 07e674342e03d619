/* The progress of a run on the screen. */
#include "train/train_screen.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "banyan/program.h"
#include "train/train_notes.h"

void cli_train_screen_end_line(cli_train_screen *s)
{
    if (s->open_line) {
        fprintf(stderr, "\n");
        s->open_line = false;
    }
}

static void show_preparing(cli_train_screen *s, const by_train_event *e)
{
    double now = by_clock();
    if (!s->terminal || s->json || (now - s->shown < 0.1 && e->fraction < 1.0)) {
        return;
    }
    s->shown = now;
    fprintf(stderr, "\r\033[K%s %3.0f%%", e->phase, 100.0 * e->fraction);
    s->open_line = true;
}

static void show_planned(const cli_train_screen *s, const by_train_event *e)
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

static void show_started(cli_train_screen *s, const by_train_event *e)
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
static void doubt_peak(cli_train_screen *s, const by_train_event *e)
{
    if (e->mfu > 1.0 && !s->doubts_peak) {
        cli_train_screen_end_line(s);
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

static void show_step(cli_train_screen *s, const by_train_event *e)
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

static void show_evaluated(cli_train_screen *s, const by_train_event *e)
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
    cli_train_screen_end_line(s);
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

static void show_sample(cli_train_screen *s, const by_train_event *e)
{
    if (s->json) {
        printf("{\"event\":\"sample\",\"step\":%lld,\"text\":", (long long)e->step);
        cli_print_json_text(e->text, strlen(e->text));
        printf("}\n");
        return;
    }
    cli_train_screen_end_line(s);
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
static void show_saved(const cli_train_screen *s, const by_train_event *e)
{
    char text[2][32];
    if (s->json) {
        printf("{\"event\":\"checkpoint\",\"step\":%lld,\"stalled_seconds\":%s,\"seconds\":%s}\n",
               (long long)e->step, cli_json_number(text[0], e->save_stalled, 6),
               cli_json_number(text[1], e->save_seconds, 6));
    }
}

void cli_train_screen_flush(cli_train_screen *s)
{
    if (fflush(stdout) != 0) {
        s->reason = s->lost++ == 0 ? errno : s->reason;
        clearerr(stdout);
    }
}

void cli_train_screen_show(cli_train_screen *s, const by_train_event *e)
{
    if (s->quiet && e->kind != BY_TRAIN_NOTE) {
        return;
    }
    switch (e->kind) {
    case BY_TRAIN_PREPARING:
        show_preparing(s, e);
        return;
    case BY_TRAIN_PLANNED:
        cli_train_screen_end_line(s);
        show_planned(s, e);
        break;
    case BY_TRAIN_STARTED:
        cli_train_screen_end_line(s);
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
        cli_train_screen_end_line(s);
        cli_show_compared(e, s->json);
        break;
    case BY_TRAIN_NOTE:
        cli_train_screen_end_line(s);
        cli_print_lines(stderr, e->text);
        fprintf(stderr, "\n");
        break;
    }
    cli_train_screen_flush(s);
}

int cli_train_screen_lost(const cli_train_screen *s, const cli_command *command, int code)
{
    if (s->lost == 0) {
        return code;
    }
    fprintf(stderr, "banyan %s: %ld lines could not be written to standard output: %s\n",
            command->name, s->lost, strerror(s->reason));
    return code == CLI_DONE && s->reason != EPIPE ? CLI_FAILED : code;
}
