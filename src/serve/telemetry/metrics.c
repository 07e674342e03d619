#include "serve/telemetry/metrics.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const double by__telemetry_edges[BY__EDGES] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                               0.15,  0.2,    0.25,  0.3,  0.4,   0.5,  0.75,  1.0,
                                               2.5,   5.0,    10.0,  30.0, 60.0,  300.0};

const char *const by__telemetry_refusals[BY__REFUSALS] = {"queue_full", "queue_wait",
                                                          "queue_deadline", "too_many_stored"};

void by__telemetry_metrics_refused(uint64_t rejected[BY__REFUSALS], const char *code)
{
    for (size_t i = 0; i < BY__REFUSALS; i++) {
        rejected[i] += code != NULL && strcmp(code, by__telemetry_refusals[i]) == 0;
    }
}

void by__telemetry_histogram_add(by__telemetry_histogram *histogram, double seconds)
{
    size_t i = 0;
    while (i < BY__EDGES && seconds > by__telemetry_edges[i]) {
        i++;
    }
    histogram->buckets[i]++;
    histogram->sum += seconds;
    histogram->count++;
}

void by__telemetry_histogram_subtract(by__telemetry_histogram *histogram,
                                      const by__telemetry_histogram *earlier)
{
    for (size_t i = 0; i <= BY__EDGES; i++) {
        histogram->buckets[i] -= earlier->buckets[i];
    }
    histogram->sum -= earlier->sum;
    histogram->count -= earlier->count;
}

double by__telemetry_histogram_quantile(const by__telemetry_histogram *histogram, double p)
{
    double rank = p * (double)histogram->count;
    double before = 0.0;
    for (size_t i = 0; i < BY__EDGES && histogram->count > 0; i++) {
        double in = (double)histogram->buckets[i];
        if (in > 0.0 && before + in >= rank) {
            double low = i == 0 ? 0.0 : by__telemetry_edges[i - 1];
            return low + (by__telemetry_edges[i] - low) * (rank - before) / in;
        }
        before += in;
    }
    return histogram->count > 0 ? by__telemetry_edges[BY__EDGES - 1] : 0.0;
}

void by__telemetry_metrics_label(by_string *out, const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n') {
            by__string_append(out, "\\n");
            continue;
        }
        if (*c == '\\' || *c == '"') {
            by_string_add(out, "\\", 1);
        }
        by_string_add(out, c, 1);
    }
}

static void add_number(by_string *out, double value)
{
    char text[32];
    by__format_f64(text, value);
    by__string_append(out, isinf(value)   ? (value > 0 ? "+Inf" : "-Inf")
                           : isnan(value) ? "NaN"
                                          : text);
}

void by__telemetry_metrics_sample(by_string *out, const char *name, const char *labels,
                                  double value)
{
    by__string_append(out, name);
    if (labels != NULL) {
        by_string_format(out, "{%s}", labels);
    }
    by__string_append(out, " ");
    add_number(out, value);
    by__string_append(out, "\n");
}

static void add_head(by_string *out, const char *name, const char *help, const char *type)
{
    by_string_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void by__telemetry_metrics_counter(by_string *out, const char *name, const char *help,
                                   const char *type, const char *labels, double value)
{
    add_head(out, name, help, type);
    by__telemetry_metrics_sample(out, name, labels, value);
}

void by__telemetry_metrics_family(by_string *out, const char *name, const char *help,
                                  const char *type)
{
    add_head(out, name, help, type);
}

void by__telemetry_metrics_buckets(by_string *out, const char *name, const char *labels,
                                   const by__telemetry_histogram *histogram)
{
    const char *own = labels == NULL ? "" : labels;
    const char *comma = labels == NULL ? "" : ",";
    char part[64];
    uint64_t sum = 0;
    for (size_t i = 0; i < BY__EDGES; i++) {
        char edge[32];
        by__format_f64(edge, by__telemetry_edges[i]);
        sum += histogram->buckets[i];
        by_string_format(out, "%s_bucket{%s%sle=\"%s\"} %llu\n", name, own, comma, edge,
                         (unsigned long long)sum);
    }
    by_string_format(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, own, comma,
                     (unsigned long long)histogram->count);
    (void)snprintf(part, sizeof part, "%s_sum", name);
    by__telemetry_metrics_sample(out, part, labels, histogram->sum);
    (void)snprintf(part, sizeof part, "%s_count", name);
    by__telemetry_metrics_sample(out, part, labels, (double)histogram->count);
}

void by__telemetry_metrics_histogram(by_string *out, const char *name, const char *help,
                                     const by__telemetry_histogram *histogram)
{
    add_head(out, name, help, "histogram");
    by__telemetry_metrics_buckets(out, name, NULL, histogram);
}

static void print_requests(by_string *out, const by__telemetry_metrics *m)
{
    static const char name[] = "banyan_http_requests_total";
    add_head(out, name, "Answers of HTTP by class of status, without probes and /metrics.",
             "counter");
    for (int i = 2; i < 6; i++) {
        char label[32];
        (void)snprintf(label, sizeof label, "status=\"%dxx\"", i);
        by__telemetry_metrics_sample(out, name, label, (double)m->requests[i]);
    }
}

static void print_rejected(by_string *out, const by__telemetry_metrics *m)
{
    static const char name[] = "banyan_rejected_total";
    add_head(out, name, "Requests that were refused, by reason.", "counter");
    for (size_t i = 0; i < BY__REFUSALS; i++) {
        char label[48];
        (void)snprintf(label, sizeof label, "reason=\"%s\"", by__telemetry_refusals[i]);
        by__telemetry_metrics_sample(out, name, label, (double)m->rejected[i]);
    }
    by__telemetry_metrics_sample(out, name, "reason=\"key\"", (double)m->rejected_key);
    by__telemetry_metrics_sample(out, name, "reason=\"rate_limit\"", (double)m->rejected_limit);
}

static double resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%*u %llu", &pages) != 1) {
            pages = 0;
        }
        (void)fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static double open_files(void)
{
    double count = 0.0;
    DIR *directory = opendir("/proc/self/fd");
    while (directory != NULL && readdir(directory) != NULL) {
        count++;
    }
    if (directory != NULL) {
        (void)closedir(directory);
        count -= 3.0; /* ".", ".." and the directory itself */
    }
    return count;
}

/* Start of this process in seconds since 1970; 0: unknown. */
static double start_time(void)
{
    char line[1024];
    unsigned long long ticks = 0;
    unsigned long long boot = 0;
    FILE *file = fopen("/proc/self/stat", "r");
    if (file != NULL) {
        /* The second field, the name in parentheses, may contain spaces; the time is the 22nd. */
        const char *rest = fgets(line, sizeof line, file) == NULL ? NULL : strrchr(line, ')');
        for (int field = 2; rest != NULL && field < 22; field++) {
            rest = strchr(rest + 1, ' ');
        }
        ticks = rest == NULL ? 0 : strtoull(rest, NULL, 10);
        (void)fclose(file);
    }
    file = fopen("/proc/stat", "r");
    while (file != NULL && boot == 0 && fgets(line, sizeof line, file) != NULL) {
        boot = strncmp(line, "btime ", 6) == 0 ? strtoull(line + 6, NULL, 10) : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return boot == 0 || ticks == 0 ? 0.0
                                   : (double)boot + (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

void by__telemetry_metrics_process(by_string *out)
{
    struct rusage usage = {0};
    struct rlimit limit = {0};
    (void)getrusage(RUSAGE_SELF, &usage);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    by__telemetry_metrics_counter(
        out, "process_cpu_seconds_total", "CPU time of the gateway.", "counter", NULL,
        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    by__telemetry_metrics_counter(out, "process_resident_memory_bytes", "Memory of the gateway.",
                                  "gauge", NULL, resident_bytes());
    by__telemetry_metrics_counter(out, "process_start_time_seconds",
                                  "When the gateway was started.", "gauge", NULL, start_time());
    by__telemetry_metrics_counter(out, "process_open_fds", "Open files of the gateway.", "gauge",
                                  NULL, open_files());
    by__telemetry_metrics_counter(out, "process_max_fds", "Files that it may open.", "gauge", NULL,
                                  (double)limit.rlim_cur);
}

void by__telemetry_metrics_print(by_string *out, const by__telemetry_metrics *metrics)
{
    const by__telemetry_metrics *m = metrics;
    print_requests(out, m);
    print_rejected(out, m);
    by__telemetry_metrics_histogram(
        out, "banyan_time_to_first_token_seconds",
        "From a request to its first text, or to an answer in one piece.", &m->first);
    by__telemetry_metrics_histogram(out, "banyan_inter_token_latency_seconds",
                                    "Between two texts of a stream.", &m->token);
    by__telemetry_metrics_histogram(out, "banyan_request_duration_seconds",
                                    "From a request to its end.", &m->whole);
    by__telemetry_metrics_counter(out, "banyan_requests_running",
                                  "Requests that are being answered.", "gauge", NULL,
                                  (double)m->running);
    by__telemetry_metrics_counter(out, "banyan_cancelled_total", "Requests whose client went away.",
                                  "counter", NULL, (double)m->cancelled);
    by__telemetry_metrics_counter(out, "banyan_failed_total", "Requests that an error ended.",
                                  "counter", NULL, (double)m->failed);
    by__telemetry_metrics_counter(out, "banyan_retried_total",
                                  "Requests that were run again since a worker was lost.",
                                  "counter", NULL, (double)m->again);
    by__telemetry_metrics_counter(
        out, "banyan_large_answers_total",
        "Answers that were too large for the gateway's loop: how often another "
        "thread has read or printed one.",
        "counter", NULL, (double)m->apart);
    by__telemetry_metrics_counter(
        out, "banyan_large_requests_total",
        "Requests that were too large for the gateway's loop: another thread has "
        "read them.",
        "counter", NULL, (double)m->requests_apart);
    by__telemetry_metrics_counter(out, "banyan_prompt_tokens_total", "Tokens of prompts.",
                                  "counter", NULL, (double)m->prompt_tokens);
    by__telemetry_metrics_counter(out, "banyan_generated_tokens_total", "Tokens of answers.",
                                  "counter", NULL, (double)m->generated_tokens);
    by__telemetry_metrics_process(out);
}
