/* Pictures of schedules, at the default costs, whose unit of time is one cell: as text, and with
 * cairo's toy text API, which falls back to a built-in font. */
#include <cairo.h>
#include <stdlib.h>
#include <string.h>

#include "track/plot_file.h"
#include "trainer/pipeline/pipeline.h"

#define MAX_CELLS   4000
#define MAX_DRAWN   64 /* most ranks drawn */
#define CELL        26.0
#define ROW         30.0
#define LEFT        64.0
#define TOP         40.0
#define BOTTOM      40.0
#define MIN_WIDTH   460.0
#define LETTERS     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-"
#define FONT_SIZE   13.0
#define NUMBER_SIZE 11.0

static by_status simulate(by_pipeline_time *out, const by_pipeline *pipeline, by_error *error)
{
    by_pipeline_costs usual = by_pipeline_usual_costs();
    return by_pipeline_simulate(out, pipeline, &usual, error);
}

static void summarize(by_string *text, const by_pipeline *p, const by_pipeline_time *time)
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

/* ---- text ---- */

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
    BY_TRY(simulate(&time, pipeline, error));
    for (int64_t i = pipeline->options.micro_batches - 1; i >= 10; i /= 10) {
        width++;
    }
    width += pipeline->options.chunks > 1;
    for (int rank = 0; rank < pipeline->options.ranks; rank++) {
        add_rank(&text, pipeline, &time, rank, width);
    }
    summarize(&text, pipeline, &time);
    by__string_append(&text, "\n");
    by_pipeline_time_free(&time);
    return by__string_take(&text, out, error);
}

/* ---- the drawing ---- */

typedef struct schedule_color {
    double r, g, b;
} schedule_color;

static const schedule_color ink = {0.12, 0.16, 0.20};
static const schedule_color idle_color = {0.93, 0.94, 0.95};
/* Of forward, backward and weight-gradient passes; they also differ in lightness, for greyscale
 * prints. */
static const schedule_color kinds[3] = {{0.62, 0.78, 0.93}, {0.97, 0.77, 0.50}, {0.60, 0.83, 0.64}};
static const char *const kind_labels[3] = {"forward", "backward", "weights' gradient"};

/* Later chunks are darker. */
static void set_color(cairo_t *cairo, schedule_color k, double shade)
{
    cairo_set_source_rgb(cairo, k.r * shade, k.g * shade, k.b * shade);
}

static void draw_box(cairo_t *cairo, double x, double y, double width, double height)
{
    cairo_rectangle(cairo, x, y, width, height);
    cairo_fill_preserve(cairo);
    cairo_set_source_rgb(cairo, 1, 1, 1);
    cairo_set_line_width(cairo, 1);
    cairo_stroke(cairo);
}

static void draw_rank(cairo_t *cairo, const by_pipeline *p, const by_pipeline_time *time, int rank)
{
    char text[32];
    double y = TOP + rank * ROW;
    cairo_set_font_size(cairo, FONT_SIZE);
    set_color(cairo, ink, 1);
    (void)snprintf(text, sizeof text, "rank %d", rank);
    by__track_plot_text(cairo, 10, y + ROW / 2 + 4, 0, text);
    set_color(cairo, idle_color, 1);
    draw_box(cairo, LEFT, y, time->makespan * CELL, ROW - 4);
    cairo_set_font_size(cairo, NUMBER_SIZE);
    for (size_t i = 0; i < p->counts[rank]; i++) {
        const by_pipeline_action *a = &p->actions[rank][i];
        if (by__is_transfer(a)) {
            continue;
        }
        double x = LEFT + time->begin[rank][i] * CELL;
        double width = (time->end[rank][i] - time->begin[rank][i]) * CELL;
        int chunk = a->stage / p->options.ranks;
        set_color(cairo, kinds[a->kind], 1.0 - 0.35 * chunk / p->options.chunks);
        draw_box(cairo, x, y, width, ROW - 4);
        (void)snprintf(text, sizeof text, "%lld", (long long)a->micro_batch);
        set_color(cairo, ink, 1);
        by__track_plot_text(cairo, x + width / 2, y + ROW / 2 + 2, 0.5, text);
    }
}

static void draw_legend(cairo_t *cairo, const by_pipeline *p, double y)
{
    int count = p->options.kind == BY_PIPELINE_ZERO_BUBBLE ? 3 : 2;
    double x = LEFT;
    cairo_set_font_size(cairo, FONT_SIZE);
    for (int i = 0; i <= count; i++) {
        set_color(cairo, i < count ? kinds[i] : idle_color, 1);
        draw_box(cairo, x, y - 11, 14, 14);
        set_color(cairo, ink, 1);
        by__track_plot_text(cairo, x + 20, y, 0, i < count ? kind_labels[i] : "idle");
        x += i == 2 ? 150 : 100;
    }
}

static void draw_all(cairo_t *cairo, const by_pipeline *p, const by_pipeline_time *time,
                     double height, const char *title)
{
    by__track_plot_begin(cairo, FONT_SIZE);
    set_color(cairo, ink, 1);
    by__track_plot_text(cairo, 10, 22, 0, title);
    for (int rank = 0; rank < p->options.ranks; rank++) {
        draw_rank(cairo, p, time, rank);
    }
    draw_legend(cairo, p, height - 14);
}

typedef struct schedule_picture {
    const by_pipeline *pipeline;
    const by_pipeline_time *time;
    const char *title;
    double height;
} schedule_picture;

static void draw_on(cairo_t *cairo, void *user)
{
    const schedule_picture *p = user;
    draw_all(cairo, p->pipeline, p->time, p->height, p->title);
}

static by_status write_picture(const by_pipeline *p, const by_pipeline_time *time,
                               const char *title, const char *path, by_error *error)
{
    double width = LEFT + time->makespan * CELL + 16;
    schedule_picture drawn = {p, time, title, TOP + p->options.ranks * ROW + BOTTOM};
    return by__track_plot_file(path, width < MIN_WIDTH ? MIN_WIDTH : width, drawn.height, draw_on,
                               &drawn, error);
}

by_status by_pipeline_draw(const by_pipeline *pipeline, const char *path, by_error *error)
{
    by_pipeline_time time;
    by_string title = {0};
    char *title_text = NULL;
    BY_TRY(simulate(&time, pipeline, error));
    by_status status = BY_OK;
    if (time.makespan > MAX_CELLS || pipeline->options.ranks > MAX_DRAWN) {
        status = by_error_set(error, BY_EARG,
                              "a picture of %d ranks and %g units of time is too large; at most "
                              "%d and %d: fewer micro-batches show the same",
                              pipeline->options.ranks, time.makespan, MAX_DRAWN, MAX_CELLS);
    }
    if (status == BY_OK) {
        summarize(&title, pipeline, &time);
        status = by__string_take(&title, &title_text, error);
    }
    if (status == BY_OK) {
        status = write_picture(pipeline, &time, title_text, path, error);
    }
    free(title_text);
    by_pipeline_time_free(&time);
    return status;
}
