#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "evaluate/eval_suite.h"

/* Seconds between progress lines. */
#define PROGRESS 0.2

typedef struct suite_output {
    FILE *items;
    const char *path; /* of the file of items */
    bool terminal;
    double began;
    double shown;
} suite_output;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool progress(void *user, uint64_t done, uint64_t items)
{
    suite_output *o = user;
    double t = now();
    char left[32];
    if (o->terminal && t - o->shown >= PROGRESS && done > 0) {
        double rate = (double)done / (t - o->began);
        fprintf(stderr, "\r\033[K%llu of %llu items, %.1f/s, %s left", (unsigned long long)done,
                (unsigned long long)items, rate, cli_duration(left, (double)(items - done) / rate));
        o->shown = t;
    }
    return !cli_stop_requested(NULL);
}

static by_status write_item(void *user, const char *json, by_error *error)
{
    suite_output *o = user;
    return fprintf(o->items, "%s\n", json) >= 0
               ? BY_OK
               : by_error_set(error, BY_EIO, "cannot write %s: %s", o->path, strerror(errno));
}

/* ---- finding suites ---- */

static bool is_file(const char *path)
{
    return access(path, R_OK) == 0;
}

/* A suite is named by its file, or as one in BANYAN_SUITES or examples/suites without ".yaml". */
static by_status find_suite(char out[4096], const char *name, by_error *error)
{
    const char *const places[] = {getenv("BANYAN_SUITES"), "examples/suites"};
    if (is_file(name)) {
        (void)snprintf(out, 4096, "%s", name);
        return BY_OK;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (places[i] != NULL && strchr(name, '/') == NULL) {
            (void)snprintf(out, 4096, "%s/%s.yaml", places[i], name);
            if (is_file(out)) {
                return BY_OK;
            }
        }
    }
    return by_error_set(error, BY_EARG,
                        "there is no suite '%s': name a YAML file, or one in examples/suites or "
                        "in the directory BANYAN_SUITES without its .yaml",
                        name);
}

static by_status open_suite(by_suite **out, const cli_suite_request *r, by_error *error)
{
    char path[4096];
    const by_suite_options options = {
        .data = r->data, .few_shot = r->few_shot, .limit = r->limit, .seed = r->seed};
    by_status status = find_suite(path, r->suite, error);
    return status == BY_OK ? by_suite_open(out, path, &options, error) : status;
}

by_status cli_suite_show(const cli_suite_request *request, by_error *error)
{
    by_suite *suite = NULL;
    by_status status = open_suite(&suite, request, error);
    for (size_t t = 0; status == BY_OK && t < by_suite_tasks(suite); t++) {
        for (size_t i = 0; status == BY_OK && i < by_suite_items(suite, t); i++) {
            char *text;
            status = by_suite_show(suite, t, i, &text, error);
            if (status == BY_OK) {
                puts(text);
                free(text);
            }
        }
    }
    by_suite_close(&suite);
    return status;
}

/* ---- results ---- */

static void print_metric_json(const by_suite_metric *m)
{
    char value[32];
    char low[32];
    char high[32];
    printf("\"%s\":{\"value\":%s,\"low\":%s,\"high\":%s}", m->name,
           cli_json_number(value, m->value, 9), cli_json_number(low, m->low, 9),
           cli_json_number(high, m->high, 9));
}

static void print_json(const by_suite_results *s, const char *directory)
{
    char text[32];
    printf("{\"checkpoint\":");
    cli_print_json_string(directory);
    printf(",\"tasks\":[");
    for (size_t i = 0; i < s->task_count; i++) {
        const by_suite_task_result *t = &s->tasks[i];
        printf("%s{\"task\":", i > 0 ? "," : "");
        cli_print_json_string(t->name);
        printf(",\"kind\":\"%s\",\"items\":%llu,\"few_shot\":%lld,\"cut\":%llu", t->kind,
               (unsigned long long)t->items, (long long)t->few_shot, (unsigned long long)t->cut);
        for (size_t m = 0; m < t->metric_count; m++) {
            printf(",");
            print_metric_json(&t->metrics[m]);
        }
        printf("}");
    }
    printf("]");
    const by_suite_metric *const means[] = {&s->mean, &s->centered};
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        if (means[i]->name != NULL) {
            printf(",");
            print_metric_json(means[i]);
        }
    }
    printf(",\"tokens\":%llu,\"computed\":%llu,\"seconds\":%s}\n", (unsigned long long)s->tokens,
           (unsigned long long)s->computed, cli_json_number(text, s->seconds, 4));
}

static void print_row(const char *task, const char *metric, const by_suite_metric *m,
                      const char *rest)
{
    cli_print_cell(task);
    printf("\t%s\t%.4f\t%.4f\t%.4f%s\n", metric, m->value, m->low, m->high, rest);
}

static void print_table(const by_suite_results *s)
{
    printf("task\tmetric\tvalue\tlow\thigh\titems\tshots\n");
    for (size_t i = 0; i < s->task_count; i++) {
        const by_suite_task_result *t = &s->tasks[i];
        for (size_t m = 0; m < t->metric_count; m++) {
            char rest[64];
            (void)snprintf(rest, sizeof rest, "\t%llu\t%lld", (unsigned long long)t->items,
                           (long long)t->few_shot);
            print_row(t->name, t->metrics[m].name, &t->metrics[m], m == 0 ? rest : "\t\t");
        }
        if (t->cut > 0) {
            fprintf(stderr, "banyan eval: the beginning of %llu items of ",
                    (unsigned long long)t->cut);
            cli_put_cell(stderr, t->name);
            fprintf(stderr, " was left out: they exceed the model's context\n");
        }
    }
    const by_suite_metric *const means[] = {&s->mean, &s->centered};
    for (size_t i = 0; s->task_count > 1 && i < sizeof means / sizeof means[0]; i++) {
        if (means[i]->name != NULL) {
            print_row("all", means[i]->name, means[i], "\t\t");
        }
    }
}

/* Opens the file of items for writing. What is there and is none of those is kept: it may well be
 * the data of the suite. */
static by_status open_items(FILE **out, const char *path, by_error *error)
{
    static const char head[] = "{\"task\":\"";
    char seen[sizeof head - 1];
    FILE *old = fopen(path, "r");
    size_t n = old == NULL ? 0 : fread(seen, 1, sizeof seen, old);
    if (old != NULL) {
        (void)fclose(old);
    }
    if (n > 0 && (n < sizeof seen || memcmp(seen, head, n) != 0)) {
        return by_error_set(error, BY_EARG,
                            "--items-out: %s exists, and has no items of banyan eval, which alone "
                            "are replaced: name another file, or remove it",
                            path);
    }
    *out = fopen(path, "w");
    return *out != NULL ? BY_OK
                        : by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno));
}

by_status cli_suite_run(void *request, const by_pretrained *model, const char *run, by_error *error)
{
    const cli_suite_request *r = request;
    by_suite *suite = NULL;
    by_suite_results *results = NULL;
    suite_output output = {.path = r->items, .terminal = isatty(STDERR_FILENO) != 0};
    const by_suite_run_options options = {.precision = r->precision,
                                          .seed = r->seed,
                                          .progress = progress,
                                          .item = r->items == NULL ? NULL : write_item,
                                          .user = &output};
    (void)run;
    by_status status = open_suite(&suite, r, error);
    if (status == BY_OK && r->items != NULL) {
        status = open_items(&output.items, r->items, error);
    }
    output.began = now();
    status = status == BY_OK ? by_suite_run(&results, suite, model, &options, error) : status;
    if (output.shown > 0.0) {
        fprintf(stderr, "\r\033[K");
    }
    if (output.items != NULL && fclose(output.items) != 0 && status == BY_OK) {
        status = by_error_set(error, BY_EIO, "cannot write %s: %s", r->items, strerror(errno));
    }
    if (status == BY_OK && r->json) {
        print_json(results, by_pretrained_directory(model));
    } else if (status == BY_OK) {
        print_table(results);
    }
    by_suite_results_close(&results);
    by_suite_close(&suite);
    return status;
}

/* ---- two runs ---- */

static void print_pair_json(const by_suite_pair *t, const char *before)
{
    char n[6][32];
    printf("%s{\"task\":", before);
    cli_print_json_string(t->task);
    printf(",\"items\":%llu,\"first\":%s,\"second\":%s,\"difference\":{\"value\":%s,\"low\":%s,"
           "\"high\":%s},\"better\":%llu,\"worse\":%llu,\"p\":%s}",
           (unsigned long long)t->items, cli_json_number(n[0], t->first, 9),
           cli_json_number(n[1], t->second, 9), cli_json_number(n[2], t->difference, 9),
           cli_json_number(n[3], t->low, 9), cli_json_number(n[4], t->high, 9),
           (unsigned long long)t->better, (unsigned long long)t->worse,
           cli_json_number(n[5], t->p, 6));
}

static void print_pair(const by_suite_pair *t)
{
    char p[32];
    cli_print_cell(t->task);
    printf("\t%llu\t%.4f\t%.4f\t%+.4f\t%+.4f\t%+.4f\t%llu\t%llu\t%s\n",
           (unsigned long long)t->items, t->first, t->second, t->difference, t->low, t->high,
           (unsigned long long)t->better, (unsigned long long)t->worse, cli_number(p, t->p, 4));
}

by_status cli_suite_compare(const char *first, const char *second, uint64_t seed, bool json,
                            by_error *error)
{
    by_suite_comparison *c;
    by_status status = by_suite_compare(&c, first, second, seed, error);
    if (status != BY_OK) {
        return status;
    }
    printf(json ? "{\"tasks\":["
                : "task\titems\tfirst\tsecond\tdifference\tlow\thigh\tbetter\tworse\tp\n");
    for (size_t i = 0; i < c->count; i++) {
        if (json) {
            print_pair_json(&c->tasks[i], i > 0 ? "," : "");
        } else {
            print_pair(&c->tasks[i]);
        }
    }
    if (json) {
        printf("],\"unpaired\":%llu}\n", (unsigned long long)c->unpaired);
    } else if (c->unpaired > 0) {
        fprintf(stderr, "banyan eval: %llu items are only in one of the files\n",
                (unsigned long long)c->unpaired);
    }
    by_suite_comparison_close(&c);
    return BY_OK;
}
