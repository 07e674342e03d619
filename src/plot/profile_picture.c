/* Draws a profile's table: for each operation a bar of milliseconds a step, and the part of it that
 * a roofline model would leave. */
#include <string.h>

#include "banyan/plot.h"
#include "banyan/profile.h"
#include "plot/plot.h"
#include "plot/plot_file.h"

#define WIDTH     760.0
#define LEFT      196.0 /* where bars begin */
#define BAR       300.0
#define TOP       66.0
#define ROW       22.0
#define FONT_SIZE 13.0
#define MAX_ROWS  16

static const double part_colors[BY_PROFILE_PARTS][3] = {[BY_PROFILE_FORWARD] = {0.62, 0.78, 0.93},
                                                        [BY_PROFILE_BACKWARD] = {0.97, 0.77, 0.50},
                                                        [BY_PROFILE_UPDATE] = {0.60, 0.83, 0.64}};
static const char *const part_names[BY_PROFILE_PARTS] = {[BY_PROFILE_FORWARD] = "forward",
                                                         [BY_PROFILE_BACKWARD] = "backward",
                                                         [BY_PROFILE_UPDATE] = "update"};

typedef struct profile_chart {
    const by_profile_picture *what;
    size_t rows; /* rows that are drawn; the rest is summed in one more */
    double longest;
} profile_chart;

static void draw_row(cairo_t *cairo, const profile_chart *p, const by_profile_row *row, size_t i)
{
    char text[64];
    double y = TOP + ROW * (double)i;
    double x = LEFT;
    double steps = (double)p->what->steps;
    for (int part = 0; part < BY_PROFILE_PARTS; part++) {
        double width = BAR * row->part_seconds[part] / p->longest;
        by__plot_color(cairo, part_colors[part]);
        cairo_rectangle(cairo, x, y - 13, width, ROW - 5);
        cairo_fill(cairo);
        x += width;
    }
    by__plot_color(cairo, BY__PLOT_INK);
    if (row->roof_seconds > 0.0) {
        cairo_rectangle(cairo, LEFT + BAR * row->roof_seconds / p->longest - 1, y - 13, 2, ROW - 5);
        cairo_fill(cairo);
        (void)snprintf(text, sizeof text, "%.0f %%", 100.0 * row->roof_seconds / row->seconds);
        by__plot_text(cairo, WIDTH - 16, y, 1, text);
    }
    by__plot_text(cairo, LEFT - 8, y, 1, row->name);
    (void)snprintf(text, sizeof text, "%.1f", 1e3 * row->seconds / steps);
    by__plot_text(cairo, LEFT + BAR + 70, y, 1, text);
    (void)snprintf(text, sizeof text, "%.1f %%", 100.0 * row->seconds / p->what->seconds);
    by__plot_text(cairo, LEFT + BAR + 140, y, 1, text);
}

static void draw_legend(cairo_t *cairo, double y)
{
    double x = LEFT;
    for (int part = 0; part < BY_PROFILE_PARTS; part++) {
        by__plot_key(cairo, x, y, part_colors[part], part_names[part]);
        x += 96;
    }
    cairo_rectangle(cairo, x, y - 11, 2, 14);
    cairo_fill(cairo);
    by__plot_text(cairo, x + 10, y, 0, "at the machine's peaks");
}

/* Sums the rows that are not drawn. */
static by_profile_row sum_of_rest(const profile_chart *p)
{
    by_profile_row rest = {.name = "others"};
    for (size_t i = p->rows; i < p->what->row_count; i++) {
        const by_profile_row *row = &p->what->rows[i];
        rest.seconds += row->seconds;
        rest.roof_seconds += row->roof_seconds;
        for (int part = 0; part < BY_PROFILE_PARTS; part++) {
            rest.part_seconds[part] += row->part_seconds[part];
        }
    }
    return rest;
}

static double height_of(const profile_chart *p)
{
    return TOP + ROW * (double)(p->rows + (p->rows < p->what->row_count)) + 34;
}

static void draw(cairo_t *cairo, void *user)
{
    const profile_chart *p = user;
    char title[160];
    double step = p->what->seconds / (double)p->what->steps;
    by__plot_begin(cairo, FONT_SIZE);
    by__plot_color(cairo, BY__PLOT_INK);
    (void)snprintf(title, sizeof title, "Where a step of %.1f ms goes (%s, %d threads)", 1e3 * step,
                   p->what->machine->isa, p->what->machine->threads);
    by__plot_text(cairo, 10, 22, 0, title);
    by__plot_text(cairo, LEFT - 8, TOP - 20, 1, "operation");
    by__plot_text(cairo, LEFT + BAR + 70, TOP - 20, 1, "ms");
    by__plot_text(cairo, LEFT + BAR + 140, TOP - 20, 1, "of a step");
    by__plot_text(cairo, WIDTH - 16, TOP - 20, 1, "of the peak");
    for (size_t i = 0; i < p->rows; i++) {
        draw_row(cairo, p, &p->what->rows[i], i);
    }
    if (p->rows < p->what->row_count) {
        by_profile_row rest = sum_of_rest(p);
        draw_row(cairo, p, &rest, p->rows);
    }
    draw_legend(cairo, height_of(p) - 14);
}

by_status by_profile_draw(const by_profile_picture *what, const char *path, by_error *error)
{
    profile_chart p = {.what = what, .longest = 1e-9};
    p.rows = what->row_count > MAX_ROWS ? MAX_ROWS - 1 : what->row_count;
    for (size_t i = 0; i < what->row_count; i++) {
        p.longest = what->rows[i].seconds > p.longest ? what->rows[i].seconds : p.longest;
    }
    if (p.rows < what->row_count) {
        double rest = sum_of_rest(&p).seconds;
        p.longest = rest > p.longest ? rest : p.longest;
    }
    return by__plot_file(path, WIDTH, height_of(&p), draw, &p, error);
}
