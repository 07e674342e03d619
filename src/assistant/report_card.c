/* The report: what was trained, how good it is, what it writes, and what it cost. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "assistant/assistant.h"
#include "banyan/machine.h"
#include "banyan/track.h"

/* What both formats say. */
typedef struct report_facts {
    const by_assistant *assistant;
    bool drawn[BY__ASSISTANT_PARTS];
    by__assistant_sample *samples[BY__ASSISTANT_PARTS];
    size_t sample_counts[BY__ASSISTANT_PARTS];
    by__assistant_table parts;
    by__assistant_table suites; /* no cells: there are none */
    by__assistant_table cost;
} report_facts;

/* ---- what each part came to ---- */

/* The first and the last value of a key of an event; NaN: it was not recorded. */
static by_status read_ends(double out[2], const char *run, const char *event, const char *key,
                           by_error *error)
{
    by_series series;
    BY_TRY(by_events_read(&series, run, event, key, error));
    out[0] = series.count > 0 ? series.values[0] : NAN;
    out[1] = series.count > 0 ? series.values[series.count - 1] : NAN;
    by_series_free(&series);
    return BY_OK;
}

static void add_change(by__assistant_table *table, const double ends[2])
{
    if (isnan(ends[0])) {
        by__assistant_table_add(table, "-");
    } else {
        by__assistant_table_add(table, "%.3f to %.3f", ends[0], ends[1]);
    }
}

static by_status add_part(by__assistant_table *table, const by__assistant_part *part,
                          by_error *error)
{
    const bool rewards = part->row->rolls_out;
    double train[2];
    double held_out[2];
    double bits[2];
    double right[2];
    by_config *config;
    BY_TRY(by_config_open_run(&config, part->run, NULL, 0, error));
    BY_TRY(read_ends(train, part->run, "train", rewards ? "reward" : "loss", error));
    BY_TRY(read_ends(held_out, part->run, "eval", "valid_loss", error));
    BY_TRY(read_ends(bits, part->run, "eval", "bits_per_byte", error));
    BY_TRY(read_ends(right, part->run, "eval", "accuracy", error));
    by__assistant_table_add(table, "%s", part->row->name);
    by__assistant_table_add(table, "%s", part->row->help);
    by__assistant_table_add(table, "%lld", (long long)part->steps);
    by__assistant_table_add(table, "%lld", (long long)config->train.batch);
    add_change(table, train);
    add_change(table, held_out);
    add_change(table, bits);
    add_change(table, right);
    by_config_close(&config);
    return BY_OK;
}

static by_status list_parts(report_facts *f, by_error *error)
{
    static const char *const names[] = {"part",          "what it makes",       "steps",
                                        "batch",         "loss (reward)",       "held-out loss",
                                        "bits per byte", "held-out pairs right"};
    f->parts.columns = BY_ARRAY_LENGTH(names);
    for (size_t i = 0; i < f->parts.columns; i++) {
        by__assistant_table_add(&f->parts, "%s", names[i]);
    }
    for (size_t i = 0; i < f->assistant->count; i++) {
        BY_TRY(add_part(&f->parts, &f->assistant->parts[i], error));
    }
    return BY_OK;
}

/* ---- suites ---- */

static const json_t *metrics_of(const by_assistant *a, size_t part, const char *suite)
{
    char name[4200];
    (void)snprintf(name, sizeof name, "%s %s", a->parts[part].row->name, suite);
    return json_object_get(json_object_get(a->scores, name), "metrics");
}

static void add_score(by__assistant_table *table, const json_t *metric)
{
    if (metric == NULL) {
        by__assistant_table_add(table, "-");
    } else {
        by__assistant_table_add(table, "%.3f (%.3f to %.3f)",
                                json_number_value(json_object_get(metric, "value")),
                                json_number_value(json_object_get(metric, "low")),
                                json_number_value(json_object_get(metric, "high")));
    }
}

static void list_suites(report_facts *f)
{
    const by_assistant *a = f->assistant;
    by__assistant_table *t = &f->suites;
    t->columns = 3 + a->count;
    by__assistant_table_add(t, "task");
    by__assistant_table_add(t, "metric");
    by__assistant_table_add(t, "items");
    for (size_t p = 0; p < a->count; p++) {
        by__assistant_table_add(t, "%s", a->parts[p].row->name);
    }
    for (size_t s = 0; s < a->config->suites.count; s++) {
        const char *suite = a->config->suites.items[s];
        const json_t *tasks = metrics_of(a, 0, suite);
        for (size_t i = 0; i < json_array_size(tasks); i++) {
            const json_t *task = json_array_get(tasks, i);
            by__assistant_table_add(t, "%s", json_string_value(json_object_get(task, "task")));
            by__assistant_table_add(t, "%s", json_string_value(json_object_get(task, "metric")));
            by__assistant_table_add(t, "%lld",
                                    (long long)json_integer_value(json_object_get(task, "items")));
            for (size_t p = 0; p < a->count; p++) {
                add_score(t, json_array_get(metrics_of(a, p, suite), i));
            }
        }
    }
}

/* ---- cost ---- */

static void add_energy(by__assistant_table *table, double seconds, double joules, double watts)
{
    if (joules >= 0.0) {
        by__assistant_table_add(table, "%.3g Wh, counted", joules / 3600.0);
    } else if (watts > 0.0) {
        by__assistant_table_add(table, "%.3g Wh at %g W", watts * seconds / 3600.0, watts);
    } else {
        by__assistant_table_add(table, "unknown");
    }
}

static void add_cost(by__assistant_table *table, const char *name, double planned, double seconds,
                     double joules, double watts)
{
    by__assistant_table_add(table, "%s", name);
    by__assistant_table_add(table, "%.3g min", planned);
    by__assistant_table_add(table, "%.3g min", seconds / 60.0);
    add_energy(table, seconds, joules, watts);
}

static void list_cost(report_facts *f)
{
    static const char *const names[] = {"part", "planned", "trained for", "energy"};
    const by_assistant *a = f->assistant;
    double seconds = 0.0;
    double joules = 0.0;
    double planned = 0.0;
    f->cost.columns = BY_ARRAY_LENGTH(names);
    for (size_t i = 0; i < f->cost.columns; i++) {
        by__assistant_table_add(&f->cost, "%s", names[i]);
    }
    for (size_t i = 0; i < a->count; i++) {
        const by__assistant_part *p = &a->parts[i];
        add_cost(&f->cost, p->row->name, p->minutes, p->seconds, p->joules, a->config->watts);
        seconds += p->seconds;
        planned += p->minutes;
        joules = joules < 0.0 || p->joules < 0.0 ? -1.0 : joules + p->joules;
    }
    add_cost(&f->cost, "all", planned, seconds, joules, a->config->watts);
}

/* ---- the text ---- */

static void say(by_string *out, const by__assistant_format *format, const char *text, ...)
    BY_PRINTF(3, 4);

static void say(by_string *out, const by__assistant_format *format, const char *text, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, text);
    (void)vsnprintf(line, sizeof line, text, arguments);
    va_end(arguments);
    format->paragraph(out, line);
}

static void write_machine(by_string *out, const by__assistant_format *format)
{
    by_machine m;
    if (by_machine_describe(&m, "auto", -1, NULL) == BY_OK) {
        say(out, format, "On %s, %d threads.", m.cpu, m.threads);
    }
}

static void write_samples(by_string *out, const report_facts *f, const by__assistant_format *format)
{
    format->heading(out, "What they write");
    for (size_t p = 0; p < f->assistant->count; p++) {
        if (p == 0) {
            say(out, format,
                "%s continues beginnings of lines that it was not trained on; the sign | is where "
                "it begins:",
                f->assistant->parts[p].row->name);
        } else {
            say(out, format, "%s answers:", f->assistant->parts[p].row->name);
        }
        for (size_t i = 0; i < f->sample_counts[p]; i++) {
            const by__assistant_sample *s = &f->samples[p][i];
            by_string text = {0};
            by_string_format(&text, p == 0 ? "%s |%s" : "> %s\n%s", s->prompt, s->answer);
            format->code(out, text.failed ? "" : text.data);
            by_string_free(&text);
        }
    }
}

static void write_commands(by_string *out, const by_assistant *a,
                           const by__assistant_format *format)
{
    by_string text = {0};
    format->heading(out, "Use it, repeat it");
    by_string_format(&text, "banyan chat %s\nbanyan generate %s --prompt TEXT\nbanyan serve %s\n",
                     a->parts[a->count - 1].run, a->parts[0].run, a->parts[a->count - 1].run);
    for (size_t i = 0; i < a->count; i++) {
        by_string_format(&text, "banyan train %s%s", a->parts[i].file,
                         i + 1 < a->count ? "\n" : "");
    }
    format->code(out, text.failed ? "" : text.data);
    by_string_free(&text);
}

static void write_body(by_string *out, const report_facts *f, const by__assistant_format *format)
{
    const by_assistant *a = f->assistant;
    format->begin(out, "An assistant, from text to answers");
    write_machine(out, format);
    format->heading(out, "Training");
    format->table(out, &f->parts);
    for (size_t i = 0; i < a->count; i++) {
        char file[64];
        (void)snprintf(file, sizeof file, "%s.svg", a->parts[i].row->name);
        if (f->drawn[i]) {
            format->picture(out, a->directory, file, a->parts[i].row->help);
        }
    }
    if (f->suites.count > f->suites.columns) {
        format->heading(out, "Questions");
        say(out, format, "With 95 %% intervals of the bootstrap over items.");
        format->table(out, &f->suites);
    }
    write_samples(out, f, format);
    format->heading(out, "Cost");
    format->table(out, &f->cost);
    if (a->config->watts == 0.0 && a->parts[0].joules < 0.0) {
        say(out, format,
            "No counter of this machine tells its energy: set watts in %s/assistant.yaml.",
            a->directory);
    }
    write_commands(out, a, format);
    format->end(out);
}

static by_status write_report(const report_facts *f, const by__assistant_format *format,
                              by_error *error)
{
    by_string text = {0};
    by_string path = {0};
    write_body(&text, f, format);
    by_string_format(&path, "%s/report%s", f->assistant->directory, format->ending);
    by_status status =
        text.failed || path.failed || f->parts.failed || f->suites.failed || f->cost.failed
            ? by_error_set(error, BY_EMEMORY, "out of memory: a report")
            : by__file_write(path.data, text.data, text.length, error);
    by_string_free(&text);
    by_string_free(&path);
    return status;
}

static by_status collect(report_facts *f, by_error *error)
{
    BY_TRY(list_parts(f, error));
    list_suites(f);
    list_cost(f);
    for (size_t i = 0; i < f->assistant->count; i++) {
        BY_TRY(by__assistant_plot(&f->drawn[i], f->assistant, i, error));
        BY_TRY(by__assistant_samples(&f->samples[i], &f->sample_counts[i], f->assistant, i, error));
    }
    return BY_OK;
}

by_status by__assistant_report(const by_assistant *assistant, by_error *error)
{
    report_facts f = {.assistant = assistant};
    by_status status = collect(&f, error);
    status = status == BY_OK ? write_report(&f, &by__assistant_markdown, error) : status;
    status = status == BY_OK ? write_report(&f, &by__assistant_html, error) : status;
    for (size_t i = 0; i < assistant->count; i++) {
        by__assistant_samples_free(&f.samples[i], f.sample_counts[i]);
    }
    by__assistant_table_free(&f.parts);
    by__assistant_table_free(&f.suites);
    by__assistant_table_free(&f.cost);
    return status;
}
