/* The drawings of a report: what the run of a part recorded, over its steps. */
#include <stdlib.h>

#include "assistant/assistant.h"
#include "banyan/build.h"
#include "banyan/plot.h"
#include "banyan/track.h"

#define WIDTH  900
#define HEIGHT 420
/* About so many points are averaged for a smooth line. */
#define SMOOTH 0.9

/* A series of events as doubles. */
typedef struct plot_numbers {
    by_series series;
    double *x;
} plot_numbers;

static by_status read_numbers(plot_numbers *out, const char *run, const char *event,
                              const char *key, by_error *error)
{
    BY_TRY(by_events_read(&out->series, run, event, key, error));
    BY_TRY(by__alloc((void **)&out->x, out->series.count + 1, sizeof *out->x, "a chart", error));
    for (size_t i = 0; i < out->series.count; i++) {
        out->x[i] = (double)out->series.steps[i];
    }
    return BY_OK;
}

static void free_numbers(plot_numbers *numbers)
{
    by_series_free(&numbers->series);
    free(numbers->x);
}

by_status by__assistant_plot(bool *drawn, const by_assistant *a, size_t index, by_error *error)
{
    const by__assistant_part *part = &a->parts[index];
    bool rewards = part->row->rolls_out;
    plot_numbers train = {0};
    plot_numbers held_out = {0};
    by_string path = {0};
    *drawn = false;
    if (!by_build_has(BY_BUILD_PLOTS)) {
        return BY_OK;
    }
    by_string_format(&path, "%s/%s.svg", a->directory, part->row->name);
    by_status status = by_string_check(&path, error);
    if (status == BY_OK) {
        status = read_numbers(&train, part->run, "train", rewards ? "reward" : "loss", error);
    }
    if (status == BY_OK) {
        status = read_numbers(&held_out, part->run, "eval", "valid_loss", error);
    }
    if (status == BY_OK && train.series.count + held_out.series.count > 0) {
        const by_plot_series lines[] = {{.name = rewards ? "reward" : "training",
                                         .x = train.x,
                                         .y = train.series.values,
                                         .count = train.series.count,
                                         .smooth = train.series.count > 20 ? SMOOTH : 0.0,
                                         .group = 1},
                                        {.name = "held out",
                                         .x = held_out.x,
                                         .y = held_out.series.values,
                                         .count = held_out.series.count,
                                         .group = 1,
                                         .dashed = true}};
        const by_plot_options options = {.title = part->row->name,
                                         .x_label = "step",
                                         .y_label = rewards ? "mean reward" : "loss",
                                         .whole_x = true,
                                         .width = WIDTH,
                                         .height = HEIGHT,
                                         .series = lines,
                                         .series_count = held_out.series.count > 0 ? 2 : 1};
        status = by_plot_write(&options, path.data, error);
        *drawn = status == BY_OK;
    }
    free_numbers(&train);
    free_numbers(&held_out);
    by_string_free(&path);
    return status;
}
