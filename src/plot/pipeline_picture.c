/* The picture of a schedule, at the default costs, whose unit of time is one cell. */
#include <cairo.h>
#include <stdlib.h>

#include "banyan/plot.h"
#include "plot/plot.h"
#include "plot/plot_file.h"
#include "trainer/pipeline/pipeline.h"

#define MAX_CELLS   4000
#define MAX_DRAWN   64 /* most ranks drawn */
#define CELL        26.0
#define ROW         30.0
#define LEFT        64.0
#define TOP         40.0
#define BOTTOM      40.0
#define MIN_WIDTH   460.0
#define FONT_SIZE   13.0
#define NUMBER_SIZE 11.0

static const double idle_color[3] = {0.93, 0.94, 0.95};
/* Of forward, backward and weight-gradient passes; they also differ in lightness, for greyscale
 * prints. */
static const double kinds[3][3] = {{0.62, 0.78, 0.93}, {0.97, 0.77, 0.50}, {0.60, 0.83, 0.64}};
static const char *const kind_labels[3] = {"forward", "backward", "weights' gradient"};

/* Later chunks are darker. */
static void set_color(cairo_t *cairo, const double rgb[3], double shade)
{
    cairo_set_source_rgb(cairo, rgb[0] * shade, rgb[1] * shade, rgb[2] * shade);
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
    by__plot_color(cairo, BY__PLOT_INK);
    (void)snprintf(text, sizeof text, "rank %d", rank);
    by__plot_text(cairo, 10, y + ROW / 2 + 4, 0, text);
    by__plot_color(cairo, idle_color);
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
        by__plot_color(cairo, BY__PLOT_INK);
        by__plot_text(cairo, x + width / 2, y + ROW / 2 + 2, 0.5, text);
    }
}

static void draw_legend(cairo_t *cairo, const by_pipeline *p, double y)
{
    int count = p->options.kind == BY_PIPELINE_ZERO_BUBBLE ? 3 : 2;
    double x = LEFT;
    cairo_set_font_size(cairo, FONT_SIZE);
    for (int i = 0; i <= count; i++) {
        by__plot_color(cairo, i < count ? kinds[i] : idle_color);
        draw_box(cairo, x, y - 11, 14, 14);
        by__plot_color(cairo, BY__PLOT_INK);
        by__plot_text(cairo, x + 20, y, 0, i < count ? kind_labels[i] : "idle");
        x += i == 2 ? 150 : 100;
    }
}

static void draw_all(cairo_t *cairo, const by_pipeline *p, const by_pipeline_time *time,
                     double height, const char *title)
{
    by__plot_begin(cairo, FONT_SIZE);
    by__plot_color(cairo, BY__PLOT_INK);
    by__plot_text(cairo, 10, 22, 0, title);
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
    return by__plot_file(path, width < MIN_WIDTH ? MIN_WIDTH : width, drawn.height, draw_on, &drawn,
                         error);
}

by_status by_pipeline_draw(const by_pipeline *pipeline, const char *path, by_error *error)
{
    by_pipeline_time time;
    by_string title = {0};
    char *title_text = NULL;
    BY_TRY(by__pipeline_simulate_usual(&time, pipeline, error));
    by_status status = BY_OK;
    if (time.makespan > MAX_CELLS || pipeline->options.ranks > MAX_DRAWN) {
        status = by_error_set(error, BY_EARG,
                              "a picture of %d ranks and %g units of time is too large; at most "
                              "%d and %d: fewer micro-batches show the same",
                              pipeline->options.ranks, time.makespan, MAX_DRAWN, MAX_CELLS);
    }
    if (status == BY_OK) {
        by__pipeline_summarize(&title, pipeline, &time);
        status = by__string_release(&title, &title_text, error);
    }
    if (status == BY_OK) {
        status = write_picture(pipeline, &time, title_text, path, error);
    }
    free(title_text);
    by_pipeline_time_free(&time);
    return status;
}
