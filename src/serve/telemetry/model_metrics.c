#include "serve/telemetry/model_metrics.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

by__telemetry_model_metrics *by__telemetry_model_metrics_of(by__telemetry_model_metrics **list,
                                                            const char *model)
{
    by__telemetry_model_metrics *m = *list;
    by_error ignored = {0};
    while (m != NULL && strcmp(m->model, model) != 0) {
        m = m->next;
    }
    if (m == NULL && strlen(model) < sizeof m->model &&
        by__alloc((void **)&m, 1, sizeof *m, "metrics", &ignored) == BY_OK) {
        memcpy(m->model, model, strlen(model) + 1);
        m->next = *list;
        *list = m;
    }
    return m;
}

void by__telemetry_model_metrics_free(by__telemetry_model_metrics **list)
{
    while (*list != NULL) {
        by__telemetry_model_metrics *m = *list;
        *list = m->next;
        free(m);
    }
}

void by__telemetry_model_metrics_tokens(by__telemetry_model_metrics *metrics, const char *version,
                                        int64_t prompt, int64_t generated)
{
    by__telemetry_version_tokens *v = &metrics->versions[0];
    metrics->prompt_tokens += (uint64_t)prompt;
    metrics->generated_tokens += (uint64_t)generated;
    if (version[0] == '\0' || strlen(version) >= sizeof v->version) {
        return;
    }
    for (size_t i = 0; i < BY__COUNTED_VERSIONS; i++) {
        by__telemetry_version_tokens *other = &metrics->versions[i];
        if (strcmp(other->version, version) == 0) {
            v = other;
            break;
        }
        v = other->used < v->used ? other : v;
    }
    if (strcmp(v->version, version) != 0) {
        *v = (by__telemetry_version_tokens){0};
        memcpy(v->version, version, strlen(version) + 1);
    }
    v->used = by__now();
    v->prompt += (uint64_t)prompt;
    v->generated += (uint64_t)generated;
}

void by__telemetry_model_metrics_families(by_string *out, const by__telemetry_model_metrics *list,
                                          const by__telemetry_model_family *families, size_t count,
                                          void (*labels)(by_string *out, const char *model))
{
    for (const by__telemetry_model_family *f = families; f < families + count; f++) {
        by__telemetry_metrics_family(out, f->name, f->help, f->histogram ? "histogram" : "counter");
        for (const by__telemetry_model_metrics *m = list; m != NULL; m = m->next) {
            const void *at = (const char *)m + f->offset;
            by_string text = {0};
            labels(&text, m->model);
            if (!text.failed && f->histogram) {
                by__telemetry_metrics_buckets(out, f->name, text.data, at);
            } else if (!text.failed) {
                by__telemetry_metrics_sample(out, f->name, text.data,
                                             (double)*(const uint64_t *)at);
            }
            by_string_free(&text);
        }
    }
}

/* ---- banyan's names ---- */

static const by__telemetry_model_family own[] = {
    {"banyan_model_queue_time_seconds", "From a request to its acceptance by a worker.",
     offsetof(by__telemetry_model_metrics, queue), true},
    {"banyan_model_time_to_first_token_seconds",
     "From a request to its first text, or to an answer in one piece.",
     offsetof(by__telemetry_model_metrics, first), true},
    {"banyan_model_inter_token_latency_seconds", "Between two texts of a stream.",
     offsetof(by__telemetry_model_metrics, token), true},
    {"banyan_model_request_duration_seconds", "From a request to its end.",
     offsetof(by__telemetry_model_metrics, whole), true},
    {"banyan_model_prompt_tokens_total", "Tokens of prompts of completed requests.",
     offsetof(by__telemetry_model_metrics, prompt_tokens), false},
    {"banyan_model_generated_tokens_total", "Tokens of the answers to completed requests.",
     offsetof(by__telemetry_model_metrics, generated_tokens), false},
};

static void add_labels(by_string *out, const char *model)
{
    by__string_append(out, "model=\"");
    by__telemetry_metrics_label(out, model);
    by__string_append(out, "\"");
}

/* Prints a sample with a second label. */
static void print_sample(by_string *out, const char *name, const char *model, const char *label,
                         const char *label_value, uint64_t value)
{
    by_string labels = {0};
    add_labels(&labels, model);
    by_string_format(&labels, ",%s=\"%s\"", label, label_value);
    if (!labels.failed) {
        by__telemetry_metrics_sample(out, name, labels.data, (double)value);
    }
    by_string_free(&labels);
}

static void print_versions(by_string *out, const by__telemetry_model_metrics *list,
                           const char *name, const char *help, size_t offset)
{
    by__telemetry_metrics_family(out, name, help, "counter");
    for (const by__telemetry_model_metrics *m = list; m != NULL; m = m->next) {
        for (size_t i = 0; i < BY__COUNTED_VERSIONS; i++) {
            const by__telemetry_version_tokens *v = &m->versions[i];
            if (v->version[0] != '\0') {
                const void *at = (const char *)v + offset;
                print_sample(out, name, m->model, "version", v->version, *(const uint64_t *)at);
            }
        }
    }
}

void by__telemetry_model_metrics_print(by_string *out, const by__telemetry_model_metrics *list)
{
    static const char rejected[] = "banyan_model_rejected_total";
    by__telemetry_model_metrics_families(out, list, own, BY_ARRAY_LENGTH(own), add_labels);
    by__telemetry_metrics_family(out, rejected, "Requests that were refused, by reason.",
                                 "counter");
    for (const by__telemetry_model_metrics *m = list; m != NULL; m = m->next) {
        for (size_t i = 0; i < BY__REFUSALS; i++) {
            print_sample(out, rejected, m->model, "reason", by__telemetry_refusals[i],
                         m->rejected[i]);
        }
    }
    print_versions(out, list, "banyan_version_prompt_tokens_total",
                   "Tokens of prompts of completed requests.",
                   offsetof(by__telemetry_version_tokens, prompt));
    print_versions(out, list, "banyan_version_generated_tokens_total",
                   "Tokens of the answers to completed requests.",
                   offsetof(by__telemetry_version_tokens, generated));
}
