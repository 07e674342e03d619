/* Metrics of workers, from the broker's state. */
#include "serve/protocol/messages.h"
#include "serve/telemetry/metrics.h"

static const struct {
    const char *name;
    const char *key; /* in the worker's "engine" */
    const char *help;
    const char *type;
} rows[] = {
    {"banyan_engine_running", "running", "Sequences that run.", "gauge"},
    {"banyan_engine_waiting", "waiting", "Sequences that wait in the engine.", "gauge"},
    {"banyan_engine_rows_total", "rows", "Tokens, of prompts and answers, that steps computed.",
     "counter"},
    {"banyan_cache_pages", "pages", "Pages of keys and values in the pool.", "gauge"},
    {"banyan_cache_pages_used", "pages_used", "Pages of the pool that running sequences use.",
     "gauge"},
    {"banyan_prefix_cache_tokens_total", "looked_up",
     "Tokens that were looked up in the prefix cache.", "counter"},
    {"banyan_prefix_cache_hit_tokens_total", "found", "Tokens that were found in the prefix cache.",
     "counter"},
    {"banyan_batches_total", "batches", "Batches of embeddings and predictions.", "counter"},
    {"banyan_batch_examples_total", "examples",
     "Texts, rows and images in batches of embeddings and predictions.", "counter"},
    {"banyan_engine_preemptions_total", "preemptions",
     "Sequences that were preempted because the page pool was full.", "counter"},
};

static void add_labels(by_string *out, const json_t *worker)
{
    by__string_append(out, "model=\"");
    by__telemetry_metrics_label(out, by__protocol_get_text(worker, "model"));
    by_string_format(out, "\",version=\"%s\",worker=\"%s\"",
                     by__protocol_get_text(worker, "version"),
                     by__protocol_get_text(worker, "name"));
}

/* The batch size of text: a histogram of the sequences in a step, whose edges are powers of 2. */
static void print_steps(by_string *out, const json_t *worker)
{
    const json_t *engine = json_object_get(worker, "engine");
    const json_t *sizes = json_object_get(engine, "step_sizes");
    double count = 0.0;
    by_string labels = {0};
    add_labels(&labels, worker);
    for (size_t i = 0; i < json_array_size(sizes) && !labels.failed; i++) {
        bool last = i + 1 == json_array_size(sizes);
        count += json_number_value(json_array_get(sizes, i));
        by_string_format(out, "banyan_engine_step_sequences_bucket{%s,le=\"", labels.data);
        by_string_format(out, last ? "+Inf" : "%llu", 1ULL << i);
        by_string_format(out, "\"} %.0f\n", count);
    }
    if (!labels.failed) {
        by__telemetry_metrics_sample(out, "banyan_engine_step_sequences_sum", labels.data,
                                     by__protocol_get_number(engine, "sequences", 0.0));
        by__telemetry_metrics_sample(out, "banyan_engine_step_sequences_count", labels.data, count);
    }
    by_string_free(&labels);
}

void by__telemetry_metrics_workers(by_string *out, const json_t *workers)
{
    size_t i;
    json_t *w;
    for (size_t row = 0; row < BY_ARRAY_LENGTH(rows); row++) {
        by__telemetry_metrics_family(out, rows[row].name, rows[row].help, rows[row].type);
        json_array_foreach(workers, i, w)
        {
            by_string labels = {0};
            add_labels(&labels, w);
            if (!labels.failed) {
                by__telemetry_metrics_sample(
                    out, rows[row].name, labels.data,
                    by__protocol_get_number(json_object_get(w, "engine"), rows[row].key, 0.0));
            }
            by_string_free(&labels);
        }
    }
    by__telemetry_metrics_family(out, "banyan_engine_step_sequences",
                                 "Sequences that a step of the engine computed together.",
                                 "histogram");
    json_array_foreach(workers, i, w)
    {
        print_steps(out, w);
    }
}
