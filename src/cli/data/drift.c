/* `banyan drift`: checks whether data still looks like a model's training data. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "banyan/drift_report.h"
#include "base/columns.h"

static by_status write_page(const by_drift_report *report, const char *path, by_error *error)
{
    char *page;
    by_status status = by_drift_report_html(report, &page, error);
    if (status != BY_OK) {
        return status;
    }
    FILE *file = fopen(path, "we");
    bool failed = file == NULL || fputs(page, file) < 0;
    failed = (file != NULL && fclose(file) != 0) || failed;
    free(page);
    return failed ? by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno))
                  : BY_OK;
}

/* Windows in which a feature has drifted. */
static size_t alarms_of(const by_drift_report *report, size_t feature)
{
    size_t alarms = 0;
    for (size_t w = 0; w < by_drift_report_windows(report); w++) {
        alarms += by_drift_report_verdict(report, w, feature)->detected;
    }
    return alarms;
}

/* A distance, or "-" if nothing was compared. */
static const char *figure(char text[32], const by_drift_verdict *v, double value)
{
    return cli_number(text, v->compared ? value : NAN, 4);
}

static const char *verdict_of(const by_drift_verdict *v)
{
    return !v->compared ? "-" : v->detected ? "yes" : "no";
}

/* Widest name on a terminal; the other columns take the rest of a line of 80. */
#define NAME_WIDTH 24

/* Prints a name cut to a width and padded; control characters become '?'. */
static void print_name(const char *name)
{
    int width = 0;
    for (const char *at = name; *at != '\0'; at++) {
        bool begins = ((unsigned char)*at & 0xc0) != 0x80;
        if (begins && width == NAME_WIDTH - 3 && strlen(at) > 2) {
            fputs(".. ", stdout);
            return;
        }
        width += begins;
        putchar((unsigned char)*at < 0x20 || *at == 0x7f ? '?' : *at);
    }
    printf("%*s", NAME_WIDTH - width, "");
}

/* Prints the same figures as print_table, in columns. */
static void print_columns(const by_drift_report *report)
{
    size_t windows = by_drift_report_windows(report);
    if (windows > 1) {
        printf("%zu windows, %zu with drift; the last one:\n", windows,
               by_drift_report_alarms(report));
    }
    printf("%-*s%6s%9s%9s%9s%11s%9s\n", NAME_WIDTH, "feature", "drift", "PSI", "J-S", "Wasser.",
           "p", windows > 1 ? "windows" : "");
    for (size_t i = 0; windows > 0 && i < by_drift_report_features(report); i++) {
        const by_drift_verdict *v = by_drift_report_verdict(report, windows - 1, i);
        char text[3][32];
        char p[32] = "-";
        char with[32] = "";
        print_name(v->feature);
        if (v->compared) {
            (void)snprintf(p, sizeof p, "%.3g", v->p);
        }
        if (windows > 1) {
            (void)snprintf(with, sizeof with, "%zu", alarms_of(report, i));
        }
        printf("%6s%9s%9s%9s%11s%9s\n", verdict_of(v), figure(text[0], v, v->psi),
               figure(text[1], v, v->jensen_shannon), figure(text[2], v, v->wasserstein), p, with);
    }
}

/* Prints the verdict of the last window on each feature. */
static void print_table(const by_drift_report *report)
{
    size_t windows = by_drift_report_windows(report);
    char threshold[32];
    (void)cli_number(threshold, by_drift_report_threshold(report), 4);
    printf("windows\t%zu\nwith_drift\t%zu\n"
           "feature\talarm\tpsi\tjensen_shannon\twasserstein\tthreshold\tp\twith_drift\n",
           windows, by_drift_report_alarms(report));
    for (size_t i = 0; windows > 0 && i < by_drift_report_features(report); i++) {
        const by_drift_verdict *v = by_drift_report_verdict(report, windows - 1, i);
        char text[3][32];
        cli_print_cell(v->feature);
        printf("\t%s\t%s\t%s\t%s\t%s\t", verdict_of(v), figure(text[0], v, v->psi),
               figure(text[1], v, v->jensen_shannon), figure(text[2], v, v->wasserstein),
               threshold);
        if (v->compared) {
            printf("%.3g", v->p);
        } else {
            printf("-");
        }
        printf("\t%zu\n", alarms_of(report, i));
    }
}

static void print_report(const by_drift_report *report)
{
    bool columns = isatty(STDOUT_FILENO) != 0;
    if (columns) {
        print_columns(report);
    } else {
        print_table(report);
    }
    /* Beside a table for programs, for who reads it. */
    fprintf(columns ? stdout : stderr,
            "a feature drifts from a distance of %g on, if p is small; -: not compared\n",
            by_drift_report_threshold(report));
}

static by_status report_on(const char *model, const char *data, const char *field, const char *page,
                           const by_drift_options *options, bool json, by_error *error)
{
    by_drift_report *report = NULL;
    by_pretrained *pretrained = NULL;
    char *text = NULL;
    cli_spool spool = {.path = data};
    by_status status = cli_open_pretrained(&pretrained, model, NULL, false, false, NULL, error);
    if (status == BY_OK) {
        status = cli_spool_open(&spool, data, error);
    }
    if (status == BY_OK) {
        status = by_drift_report_open(&report, pretrained, spool.path, field, options, error);
    }
    if (status == BY_OK && page != NULL) {
        status = write_page(report, page, error);
        cli_tell_written(status == BY_OK ? page : NULL);
    }
    if (status == BY_OK && json) {
        status = by_drift_report_json(report, &text, error);
    }
    if (status == BY_OK && json) {
        printf("%s\n", text);
    } else if (status == BY_OK) {
        print_report(report);
    }
    if (status == BY_OK) {
        status = by_drift_report_check(report, error);
    }
    free(text);
    by_drift_report_close(&report);
    cli_spool_close(&spool);
    by_pretrained_close(&pretrained);
    return status;
}

static int run(int argc, char **argv)
{
    by_drift_options options = {0};
    const char *data = NULL;
    const char *field = NULL;
    const char *page = NULL;
    int64_t window = 0;
    bool json = false;
    const cli_flag flags[] = {
        {"data", CLI_STREAM, &data, "FILE",
         "table (CSV, Parquet), JSON lines, plain text for a model of text, a directory of them "
         "such as a payload log, or - for standard input (required)"},
        {"field", CLI_STRING, &field, "NAME",
         "field of JSON lines, or column, that holds the text (default: prompt, else text)"},
        {"window", CLI_INTEGER_IN(1, 1 << 30), &window, "N",
         "compare windows of N rows or texts instead of the whole file"},
        {"threshold", CLI_NUMBER_ABOVE(0, INFINITY), &options.threshold, "X",
         "threshold of the PSI, Jensen-Shannon and Wasserstein distances (default 0.1)"},
        {"alpha", CLI_NUMBER_ABOVE(0, 1), &options.alpha, "P",
         "false-alarm rate: share of windows without drift that may raise an alarm (default "
         "0.0001)"},
        {"out", CLI_STRING, &page, "FILE", "write an HTML page with charts"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    by_error error = {0};
    int code = cli_parse(&cli_drift, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 2 || strcmp(rest[0], "report") != 0 || data == NULL) {
        return cli_misuse(&cli_drift, "give report, one run or directory, and --data");
    }
    options.requests = (size_t)window;
    by_status status = report_on(rest[1], data, field, page, &options, json, &error);
    return status == BY_OK ? CLI_DONE : cli_fail(&cli_drift, &error);
}

const cli_command cli_drift = {
    .name = "drift",
    .summary = "check whether data still resembles what a model was trained on",
    .usage = "banyan drift report RUN --data FILE [--out report.html]",
    .text =
        "Compares rows or texts with the reference sample in the run's checkpoint, as a whole or,\n"
        "with --window, as `banyan serve` does with requests (docs/drift.md). A file that is\n"
        "sorted drifts from window to window, but not as a whole.\n"
        "\n"
        "examples:\n"
        "  banyan drift report runs/housing-mlp --data new.csv --out report.html\n"
        "  banyan drift report runs/chat --data payload/ --window 200 --json\n"
        "\n"
        "Prints the number of windows and of windows with drift. Then, for each feature:\n"
        "whether the last window raises an alarm (-: nothing of it could be compared), its\n"
        "distances, the threshold that one of them must reach, the p-value that must be small,\n"
        "and the number of windows in which the feature drifted. Fails if nothing of a column\n"
        "that the data has, or of the predictions for a table, could be compared.",
    .run = run};
