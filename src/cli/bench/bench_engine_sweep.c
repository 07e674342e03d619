/* bench engine --sweep: speed for several numbers of sessions, compared with the machine's
 * limits. */
#include <stdio.h>

#include "banyan/plot.h"
#include "banyan/track.h"
#include "bench/bench_engine.h"

enum { MAX_POINTS = 32, MAX_SESSIONS = 4096 };

typedef struct engine_sweep {
    size_t count;
    int counts[MAX_POINTS];
    double sessions[MAX_POINTS];
    double decode[MAX_POINTS], decode_limit[MAX_POINTS];
    double prompts[MAX_POINTS], prompts_limit[MAX_POINTS];
} engine_sweep;

static void print_row(const engine_sweep *s, size_t i, double ttft)
{
    if (i == 0) {
        printf("sessions\tdecoding, tokens/s\tlimit\tprompts, tokens/s\tlimit\tfirst token, ms\n");
    }
    printf("%.0f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\n", s->sessions[i], s->decode[i], s->decode_limit[i],
           s->prompts[i], s->prompts_limit[i], 1e3 * ttft);
    (void)fflush(stdout);
}

static by_status draw(const engine_sweep *s, const char *path, by_error *error)
{
    by_plot_series series[] = {
        {.name = "decoding", .x = s->sessions, .y = s->decode, .count = s->count, .group = 1},
        {.name = "its limit",
         .x = s->sessions,
         .y = s->decode_limit,
         .count = s->count,
         .group = 1,
         .dashed = true},
        {.name = "prompts", .x = s->sessions, .y = s->prompts, .count = s->count, .group = 2},
        {.name = "their limit",
         .x = s->sessions,
         .y = s->prompts_limit,
         .count = s->count,
         .group = 2,
         .dashed = true},
    };
    by_plot_options chart = {.title = "Tokens a second of the engine",
                             .x_label = "sessions at a time",
                             .y_label = "tokens a second",
                             .log_y = true,
                             .whole_x = true,
                             .series = series,
                             .series_count = sizeof series / sizeof series[0]};
    return by_plot_write(&chart, path, error);
}

by_status cli_engine_sweep(const cli_engine_request *r, const char *path, by_error *error)
{
    engine_sweep s = {0};
    by_status status =
        cli_parse_counts(s.counts, &s.count, MAX_POINTS, "--sweep", r->sweep, MAX_SESSIONS, error);
    for (size_t i = 0; i < s.count && status == BY_OK; i++) {
        cli_engine_request one = *r;
        cli_engine_rates rates;
        one.sessions = s.counts[i];
        s.sessions[i] = s.counts[i];
        one.requests = one.sessions;
        status = cli_engine_measure(&one, path, &rates, error);
        if (status != BY_OK) {
            break;
        }
        s.decode[i] = rates.decode.tokens_per_s;
        s.decode_limit[i] = rates.decode.limit;
        s.prompts[i] = rates.prompts.tokens_per_s;
        s.prompts_limit[i] = rates.prompts.limit;
        if (!r->json) {
            print_row(&s, i, rates.ttft);
        }
    }
    if (status == BY_OK && r->picture != NULL) {
        status = draw(&s, r->picture, error);
        cli_tell_written(status == BY_OK ? r->picture : NULL);
    }
    return status;
}
