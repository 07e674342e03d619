/* The picture of a planned step: a row for each rank, its queue of computation above that of
 * communication, over time. */
#include <cairo.h>
#include <string.h>

#include "banyan/plot.h"
#include "plot/plot.h"
#include "plot/plot_file.h"

#define MAX_DRAWN 64 /* most ranks drawn */
#define WIDTH     1400.0
#define LEFT      190.0
#define RIGHT     20.0
#define TOP       62.0
#define ROW       36.0
#define LANE      15.0 /* of a queue */
#define BOTTOM    34.0
#define FONT      12.0

static const double idle_color[3] = {0.93, 0.94, 0.95};

/* Passes of a pipeline are coloured as in the picture of its schedule. */
static const struct picture_color {
    const char *name;
    double rgb[3];
} pass_colors[] = {[BY_PIPELINE_FORWARD] = {"forward", {0.62, 0.78, 0.93}},
                   [BY_PIPELINE_BACKWARD] = {"backward", {0.97, 0.77, 0.50}},
                   [BY_PIPELINE_WEIGHT] = {"weights' gradient", {0.60, 0.83, 0.64}}};

static const double part_colors[BY_LAYOUT_PARTS][3] = {
    [BY_LAYOUT_PRODUCTS] = {0.36, 0.55, 0.78}, [BY_LAYOUT_ATTENTION] = {0.55, 0.75, 0.90},
    [BY_LAYOUT_OTHER] = {0.70, 0.74, 0.80},    [BY_LAYOUT_ENDS] = {0.47, 0.69, 0.52},
    [BY_LAYOUT_SUMS] = {0.74, 0.86, 0.66},     [BY_LAYOUT_UPDATE] = {0.60, 0.60, 0.42},
    [BY_LAYOUT_TENSOR] = {0.85, 0.45, 0.35},   [BY_LAYOUT_SEQUENCE] = {0.93, 0.66, 0.40},
    [BY_LAYOUT_EXPERT] = {0.80, 0.55, 0.70},   [BY_LAYOUT_GRADIENTS] = {0.72, 0.30, 0.42},
    [BY_LAYOUT_WEIGHTS] = {0.58, 0.42, 0.70},  [BY_LAYOUT_PIPELINE] = {0.35, 0.35, 0.40},
    [BY_LAYOUT_BUBBLE] = {0.93, 0.94, 0.95}};

typedef struct layout_picture {
    const by_layout_plan *plan;
    double seconds; /* of the axis */
    int rows;
    double height;
} layout_picture;

/* The row of a rank; -1: it has no spans. */
static int row_of(const by_layout_plan *plan, int rank)
{
    int row = 0;
    for (size_t i = 0; i < plan->planned_count; i++) {
        bool drawn = false;
        for (size_t k = 0; k < plan->span_count && !drawn; k++) {
            drawn = plan->spans[k].rank == plan->planned[i].rank;
        }
        if (plan->planned[i].rank == rank) {
            return drawn ? row : -1;
        }
        row += drawn;
    }
    return -1;
}

static const double *color_of(const by_layout_span *s)
{
    return s->pass >= 0 ? pass_colors[s->pass].rgb : part_colors[s->part];
}

static double x_of(const layout_picture *p, double seconds)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / p->seconds;
}

static void draw_rows(cairo_t *cairo, const layout_picture *p)
{
    for (size_t i = 0; i < p->plan->planned_count; i++) {
        const by_layout_rank *r = &p->plan->planned[i];
        int row = row_of(p->plan, r->rank);
        char text[128];
        if (row < 0) {
            continue;
        }
        double y = TOP + row * ROW;
        (void)snprintf(text, sizeof text, "%d %s", r->rank, r->place);
        by__plot_color(cairo, BY__PLOT_INK);
        by__plot_text(cairo, 8, y + LANE + 3, 0, text);
        by__plot_color(cairo, idle_color);
        cairo_rectangle(cairo, LEFT, y, WIDTH - LEFT - RIGHT, 2 * LANE);
        cairo_fill(cairo);
    }
}

static void draw_spans(cairo_t *cairo, const layout_picture *p)
{
    int rank = -1;
    int row = -1;
    for (size_t i = 0; i < p->plan->span_count; i++) {
        const by_layout_span *s = &p->plan->spans[i];
        row = s->rank == rank ? row : row_of(p->plan, s->rank);
        rank = s->rank;
        double x = x_of(p, s->begin);
        by__plot_color(cairo, color_of(s));
        cairo_rectangle(cairo, x, TOP + row * ROW + (s->exchange ? LANE : 0.0), x_of(p, s->end) - x,
                        LANE - 1.0);
        cairo_fill(cairo);
    }
}

static void draw_axis(cairo_t *cairo, const layout_picture *p)
{
    double ticks[64];
    size_t count;
    double y = TOP + p->rows * ROW;
    double step = by__plot_ticks(ticks, &count, 0.0, 1e3 * p->seconds, 10, 0.0);
    by__plot_color(cairo, BY__PLOT_INK);
    for (size_t i = 0; i < count; i++) {
        char text[32];
        by__plot_tick_text(text, ticks[i], step, 1e3 * p->seconds);
        by__plot_text(cairo, x_of(p, 1e-3 * ticks[i]), y + 14, 0.5, text);
    }
    by__plot_text(cairo, 8, y + 14, 0, "ms");
}

/* What the spans show, each once. */
static void draw_legend(cairo_t *cairo, const layout_picture *p)
{
    enum { PASSES = BY_ARRAY_LENGTH(pass_colors) };
    bool shown[PASSES + BY_LAYOUT_PARTS] = {false};
    double x = LEFT;
    for (size_t i = 0; i < p->plan->span_count; i++) {
        const by_layout_span *s = &p->plan->spans[i];
        shown[s->pass >= 0 ? s->pass : PASSES + (int)s->part] = true;
    }
    for (int i = 0; i < PASSES + BY_LAYOUT_PARTS; i++) {
        const char *name =
            i < PASSES ? pass_colors[i].name : by_layout_part_name((by_layout_part)(i - PASSES));
        if (shown[i]) {
            by__plot_key(cairo, x, 48, i < PASSES ? pass_colors[i].rgb : part_colors[i - PASSES],
                         name);
            x += 34.0 + 7.0 * (double)strlen(name);
        }
    }
}

static void draw_all(cairo_t *cairo, void *user)
{
    const layout_picture *p = user;
    char title[160];
    by__plot_begin(cairo, FONT);
    (void)snprintf(title, sizeof title,
                   "a planned step of %d ranks, %.4g ms: computation above, communication below",
                   p->plan->ranks, 1e3 * p->plan->seconds);
    by__plot_color(cairo, BY__PLOT_INK);
    by__plot_text(cairo, 8, 22, 0, title);
    draw_legend(cairo, p);
    draw_rows(cairo, p);
    draw_spans(cairo, p);
    draw_axis(cairo, p);
}

by_status by_layout_draw(const by_layout_plan *plan, const char *path, by_error *error)
{
    layout_picture p = {.plan = plan, .seconds = plan->seconds};
    for (size_t i = 0; i < plan->planned_count; i++) {
        p.rows += row_of(plan, plan->planned[i].rank) >= 0;
    }
    for (size_t i = 0; i < plan->span_count; i++) {
        p.seconds = plan->spans[i].end > p.seconds ? plan->spans[i].end : p.seconds;
    }
    if (p.rows == 0) {
        return by_error_set(error, BY_EARG, "a plan without spans: set by_layout_options.trace");
    }
    if (p.rows > MAX_DRAWN) {
        return by_error_set(error, BY_EARG,
                            "a picture of %d ranks is too large; at most %d: write the trace as "
                            "JSON",
                            p.rows, MAX_DRAWN);
    }
    p.height = TOP + p.rows * ROW + BOTTOM;
    return by__plot_file(path, WIDTH, p.height, draw_all, &p, error);
}
