/* Schedules as text, at the default costs, whose unit of time is one column. */
#include <string.h>

#include "trainer/pipeline/pipeline.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"

by_status by__pipeline_simulate_usual(by_pipeline_time *out, const by_pipeline *pipeline,
                                      by_error *error)
{
    by_pipeline_costs usual = by_pipeline_usual_costs();
    return by_pipeline_simulate(out, pipeline, &usual, error);
}

void by__pipeline_summarize(by_string *text, const by_pipeline *p, const by_pipeline_time *time)
{
    const by_pipeline_options *o = &p->options;
    by_string_format(text, "%s, %d rank%s", by_pipeline_kind_name(o->kind), o->ranks,
                     o->ranks == 1 ? "" : "s");
    if (o->chunks > 1) {
        by_string_format(text, " x %d chunks", o->chunks);
    }
    by_string_format(text, ", %lld micro-batch%s: %g units of time, %.1f %% idle",
                     (long long)o->micro_batches, o->micro_batches == 1 ? "" : "es", time->makespan,
                     100.0 * time->bubble);
}

/* Fills `width` characters with label and `fill`, followed by a space. */
static void add_cell(by_string *text, const char *label, char fill, size_t width)
{
    size_t length = strlen(label);
    by__string_append(text, label);
    for (size_t i = length; i + 1 < width; i++) {
        by_string_add(text, &fill, 1);
    }
    by__string_append(text, " ");
}

static void add_rank(by_string *text, const by_pipeline *p, const by_pipeline_time *time, int rank,
                     size_t width)
{
    size_t cells = (size_t)time->makespan;
    size_t at = 0;
    by_string_format(text, "rank %-3d ", rank);
    for (size_t i = 0; i < p->counts[rank]; i++) {
        const by_pipeline_action *a = &p->actions[rank][i];
        char label[32];
        if (by__is_transfer(a)) {
            continue;
        }
        for (; at < (size_t)time->begin[rank][i]; at++) {
            add_cell(text, ".", ' ', width);
        }
        size_t length = (size_t)time->end[rank][i] - at;
        (void)snprintf(label, sizeof label, "%c%lld", "FBW"[a->kind], (long long)a -> micro_batch);
        if (p->options.chunks > 1) {
            (void)snprintf(label + strlen(label), 2, "%c", LETTERS[a->stage / p->options.ranks]);
        }
        add_cell(text, label, length > 1 ? '-' : ' ', length * width);
        at += length;
    }
    for (; at < cells; at++) {
        add_cell(text, ".", ' ', width);
    }
    while (text->length > 0 && text->data[text->length - 1] == ' ') {
        text->length--;
    }
    by__string_append(text, "\n");
}

by_status by_pipeline_text(char **out, const by_pipeline *pipeline, by_error *error)
{
    by_pipeline_time time;
    by_string text = {0};
    size_t width = 3; /* a letter, a digit and a space */
    BY_TRY(by__pipeline_simulate_usual(&time, pipeline, error));
    for (int64_t i = pipeline->options.micro_batches - 1; i >= 10; i /= 10) {
        width++;
    }
    width += pipeline->options.chunks > 1;
    for (int rank = 0; rank < pipeline->options.ranks; rank++) {
        add_rank(&text, pipeline, &time, rank, width);
    }
    by__pipeline_summarize(&text, pipeline, &time);
    by__string_append(&text, "\n");
    by_pipeline_time_free(&time);
    return by__string_release(&text, out, error);
}
