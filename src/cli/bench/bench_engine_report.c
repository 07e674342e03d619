#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_engine.h"

/* Maximum number of rows in the table of a profile. */
#define MAX_ROWS 24

/* Statistics of the steps of one kind. */
typedef struct phase_figures {
    size_t steps;
    double per_s;   /* rows a second, one for each token */
    double step_ms; /* median */
    double gflops;
    double gbps;
} phase_figures;

typedef struct engine_figures {
    double ttft[2]; /* milliseconds: median, 95th percentile */
    double token[2];
    double computing; /* seconds of all steps */
    double step[2];
    double generated; /* tokens a second */
    double rows;
    double gflops;
    double peak;
    double gbps;
    phase_figures prompts; /* steps that only processed prompts */
    phase_figures decode;  /* steps without drafts in which the maximum number of sequences decoded,
                            and nothing else */
    int64_t first_steps;   /* maximum number of steps to the first token during a long prompt */
} engine_figures;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the value below which the share `share` of the values lies; sorts them. */
static double quantile(double *values, size_t count, double share)
{
    if (count == 0) {
        return 0.0;
    }
    qsort(values, count, sizeof *values, ascending);
    size_t at = (size_t)(share * (double)(count - 1) + 0.5);
    return values[at];
}

static void put_quantiles(double out[2], double *values, size_t count)
{
    out[0] = quantile(values, count, 0.5);
    out[1] = quantile(values, count, 0.95);
}

static bool takes_prompts(const cli_engine_step *s)
{
    return s->rows > 0 && s->generated == s->first;
}

static bool decodes(const cli_engine_step *s)
{
    return s->rows > 0 && s->generated == s->rows && s->first == 0;
}

/* Summarises the steps selected by `is` that have at least `least` rows; `values` has room for
 * all. */
static phase_figures sum_up(const cli_engine_bench *b, bool (*is)(const cli_engine_step *),
                            int64_t least, double *values)
{
    phase_figures p = {0};
    double seconds = 0.0;
    double rows = 0.0;
    for (size_t i = 0; i < b->step_count; i++) {
        const cli_engine_step *s = &b->steps[i];
        if (is(s) && s->rows >= least) {
            values[p.steps++] = 1e3 * s->seconds;
            seconds += s->seconds;
            rows += (double)s->rows;
            p.gflops += 1e-9 * s->flops;
            p.gbps += 1e-9 * s->bytes;
        }
    }
    if (p.steps > 0) {
        p.per_s = rows / seconds;
        p.step_ms = quantile(values, p.steps, 0.5);
        p.gflops /= seconds;
        p.gbps /= seconds;
    }
    return p;
}

static void sum_phases(engine_figures *f, const cli_engine_bench *b, double *values)
{
    int64_t most = 1;
    for (size_t i = 0; i < b->step_count; i++) {
        values[i] = 1e3 * b->steps[i].seconds;
        f->computing += b->steps[i].seconds;
        most = decodes(&b->steps[i]) && b->steps[i].rows > most ? b->steps[i].rows : most;
    }
    put_quantiles(f->step, values, b->step_count);
    f->prompts = sum_up(b, takes_prompts, 1, values);
    f->decode = sum_up(b, decodes, most, values);
}

static by_status summarise(const cli_engine_bench *b, engine_figures *f, by_error *error)
{
    size_t n = (size_t)b->r->requests;
    size_t room = n > b->step_count ? n : b->step_count;
    double *values = malloc(room * sizeof *values);
    size_t tokens = 0;
    if (values == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: figures");
    }
    sum_phases(f, b, values);
    for (size_t i = 0; i < n; i++) {
        const cli_engine_sample *s = &b->samples[i];
        values[i] = 1e3 * (s->first - s->arrived);
        f->first_steps = s->steps > f->first_steps ? s->steps : f->first_steps;
    }
    put_quantiles(f->ttft, values, n);
    for (size_t i = 0; i < n; i++) {
        const cli_engine_sample *s = &b->samples[i];
        if (s->tokens > 1) {
            values[tokens++] = 1e3 * (s->last - s->first) / (double)(s->tokens - 1);
        }
    }
    put_quantiles(f->token, values, tokens);
    free(values);
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    f->peak = cli_peak(&b->machine, b->precision, b->dtype);
    f->generated = (double)st.generated / b->seconds;
    f->rows = (double)st.rows / b->seconds;
    f->gflops = 1e-9 * st.flops / b->seconds;
    f->gbps = 1e-9 * st.bytes / b->seconds;
    return BY_OK;
}

/* Returns the number of steps that a request's prompt needs for its rows alone. */
static int64_t least_steps(const cli_engine_bench *b)
{
    int64_t rows = b->r->rows > 0 ? b->r->rows : BY_ENGINE_ROWS;
    return (b->r->prompt + rows - 1) / rows;
}

/* ---- JSON ---- */

static void print_phase_json(const char *name, const phase_figures *p, const cli_engine_bench *b,
                             const engine_figures *f)
{
    printf("\"%s\":{\"steps\":%zu,\"tokens_per_s\":%.6g,\"step_ms\":%.5g,\"mfu\":%.4g,"
           "\"bandwidth_share\":%.4g},",
           name, p->steps, p->per_s, p->step_ms, p->gflops / f->peak,
           p->gbps / b->machine.read_gbps);
}

static void print_profile_json(const by_profile_row *rows, size_t count)
{
    printf(",\"profile\":[");
    for (size_t i = 0; i < count; i++) {
        const by_profile_row *row = &rows[i];
        printf("%s{\"op\":\"%s\",\"shapes\":", i == 0 ? "" : ",", by_op_name(row->op));
        cli_print_json_string(row->name);
        printf(",\"runs\":%llu,\"seconds\":%.6g,\"ms\":%.6g}", (unsigned long long)row->runs,
               row->seconds, 1e3 * row->median_seconds);
    }
    printf("]");
}

static void print_json(const cli_engine_bench *b, const engine_figures *f,
                       const by_profile_row *rows, size_t count)
{
    const cli_engine_request *r = b->r;
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    printf("{\"tokens_per_s\":%.6g,\"rows_per_s\":%.6g,\"ttft_ms\":%.5g,\"ttft_p95_ms\":%.5g,"
           "\"token_ms\":%.5g,\"token_p95_ms\":%.5g,\"step_ms\":%.5g,\"step_p95_ms\":%.5g,"
           "\"gflops\":%.6g,\"peak_gflops\":%.6g,\"mfu\":%.4g,\"gbps\":%.5g,\"read_gbps\":%.5g,"
           "\"bandwidth_share\":%.4g,",
           f->generated, f->rows, f->ttft[0], f->ttft[1], f->token[0], f->token[1], f->step[0],
           f->step[1], f->gflops, f->peak, f->gflops / f->peak, f->gbps, b->machine.read_gbps,
           f->gbps / b->machine.read_gbps);
    print_phase_json("prompts", &f->prompts, b, f);
    print_phase_json("decode", &f->decode, b, f);
    if (r->background > 0) {
        printf("\"beside\":%lld,\"first_token_steps\":%lld,\"least_steps\":%lld,",
               (long long)r->background, (long long)f->first_steps, (long long)least_steps(b));
    }
    printf("\"processor_seconds\":%.6g,\"computing_seconds\":%.6g,\"steps\":%llu,"
           "\"rows\":%llu,\"padding\":%llu,\"generated\":%llu,",
           b->processor_seconds, f->computing, (unsigned long long)st.steps,
           (unsigned long long)st.rows, (unsigned long long)st.padding,
           (unsigned long long)st.generated);
    printf("\"rows_per_step\":%.5g,\"found_tokens\":%llu,\"preemptions\":%llu,"
           "\"drafted\":%llu,\"accepted\":%llu,\"requests\":%lld,\"sessions\":%lld,\"rate\":%.6g,"
           "\"temperature\":%.6g,\"prompt_tokens\":%lld,"
           "\"tokens\":%lld,\"seconds\":%.5g,\"memory_bytes\":%llu,\"precision\":\"%s\"",
           (double)st.rows / (double)st.steps, (unsigned long long)st.found,
           (unsigned long long)st.preemptions, (unsigned long long)st.drafted,
           (unsigned long long)st.accepted, (long long)r->requests, (long long)r->sessions, r->rate,
           r->temperature, (long long)r->prompt, (long long)r->tokens, b->seconds,
           (unsigned long long)by_engine_memory(b->engine)->total, b->precision);
    if (r->profile) {
        print_profile_json(rows, count);
    }
    printf("}\n");
}

/* ---- text ---- */

static void print_phase(const char *name, const phase_figures *p, const cli_engine_bench *b,
                        const engine_figures *f)
{
    if (p->steps > 0) {
        char text[2][32];
        printf("%s %.1f tokens/s, step %.2f ms, %s of the peak, %s of the bandwidth\n", name,
               p->per_s, p->step_ms, cli_share(text[0], p->gflops / f->peak, 1, " %"),
               cli_share(text[1], p->gbps / b->machine.read_gbps, 1, " %"));
    }
}

/* Prints the longest pieces of work first, and the time spent between nodes. */
static void print_profile(const cli_engine_bench *b, const by_profile_row *rows, size_t count)
{
    double steps = 0.0;
    double nodes = 0.0;
    for (size_t i = 0; i < b->step_count; i++) {
        steps += b->steps[i].seconds;
    }
    printf("\n%7s %7s %9s %8s %10s  %-28s %s\n", "share", "runs", "ms", "GB/s", "GFLOP/s", "kernel",
           "operands");
    for (size_t i = 0; i < count; i++) {
        const by_profile_row *row = &rows[i];
        nodes += row->seconds;
        if (i < MAX_ROWS) {
            printf("%5.1f %% %7llu %9.4f %8.1f %10.1f  %-28s %s\n", 100.0 * row->seconds / steps,
                   (unsigned long long)row->runs, 1e3 * row->median_seconds,
                   1e-9 * row->bytes / row->seconds, 1e-9 * row->flops / row->seconds, row->kernel,
                   row->name);
        }
    }
    printf("%5.1f %% %7s %9s between nodes: scheduling, copies, choice of tokens\n",
           100.0 * (steps - nodes) / steps, "", "");
}

static void print(const cli_engine_bench *b, const engine_figures *f)
{
    by_engine_statistics st = by_engine_statistics_now(b->engine);
    char text[32];
    printf("throughput  %.1f tokens/s, %.0f rows/s including prompts, %.1f rows per step\n",
           f->generated, f->rows, (double)st.rows / (double)st.steps);
    printf("first token %.1f ms, 95 %%: %.1f ms\n", f->ttft[0], f->ttft[1]);
    if (b->r->background > 0) {
        printf("            in step %lld at the latest; the prompt alone needs %lld steps\n",
               (long long)f->first_steps, (long long)least_steps(b));
    }
    printf("token       %.2f ms, 95 %%: %.2f ms\n", f->token[0], f->token[1]);
    printf("step        %.2f ms, 95 %%: %.2f ms\n", f->step[0], f->step[1]);
    print_phase("prompts    ", &f->prompts, b, f);
    print_phase("decoding   ", &f->decode, b, f);
    printf("arithmetic  %.0f GFLOP/s, %s of the measured peak of %.0f\n", f->gflops,
           cli_share(text, f->gflops / f->peak, 1, " %"), f->peak);
    printf("bandwidth   %.1f GB/s, %s of the measured %.1f\n", f->gbps,
           cli_share(text, f->gbps / b->machine.read_gbps, 1, " %"), b->machine.read_gbps);
    printf("cache       %llu prompt tokens found in the prefix cache, %llu preemptions\n",
           (unsigned long long)st.found, (unsigned long long)st.preemptions);
    if (b->r->speculate != NULL) {
        printf("drafts      %llu of %llu tokens accepted\n", (unsigned long long)st.accepted,
               (unsigned long long)st.drafted);
    }
    printf("memory      %s\n", by_format_bytes(text, by_engine_memory(b->engine)->total));
}

static cli_engine_rate rate_of(const phase_figures *p, const cli_engine_bench *b,
                               const engine_figures *f)
{
    double products = p->gflops / f->peak;
    double memory = p->gbps / b->machine.read_gbps;
    double share = products > memory ? products : memory;
    return (cli_engine_rate){p->per_s, share > 0.0 ? p->per_s / share : 0.0};
}

by_status cli_engine_report(cli_engine_bench *b, cli_engine_rates *rates, by_error *error)
{
    engine_figures f = {0};
    by_profile_row *rows = NULL;
    size_t count = 0;
    by_status status = summarise(b, &f, error);
    if (status == BY_OK && b->profile != NULL) {
        status =
            by_profile_rows(&rows, &count, b->profile, BY_PROFILE_BY_SHAPE, &b->machine, error);
    }
    if (status == BY_OK && b->r->json) {
        print_json(b, &f, rows, count);
    } else if (status == BY_OK && rates == NULL) {
        print(b, &f);
        if (b->profile != NULL) {
            print_profile(b, rows, count);
        }
    }
    if (status == BY_OK && rates != NULL) {
        *rates = (cli_engine_rates){rate_of(&f.prompts, b, &f), rate_of(&f.decode, b, &f),
                                    1e-3 * f.ttft[0]};
    }
    by_profile_rows_free(rows, count);
    return status;
}
