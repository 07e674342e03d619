/* Line charts. All lengths are multiples of `unit`, so that a chart looks the same at any size. */
#include <cairo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "plot/matrix_picture.h"
#include "plot/plot.h"
#include "plot/plot_file.h"

enum { max_ticks = 64, max_dots = 40, default_width = 1200, default_height = 720 };

/* Opacity of an area. */
static const double shade = 0.22;

/* Beyond this, differences of values overflow. */
static const double largest = 1e300;

typedef struct plot_color {
    double r, g, b;
} plot_color;

static const plot_color ink = {0.12, 0.16, 0.20};
static const plot_color muted = {0.36, 0.41, 0.47};
static const plot_color axis_color = {0.62, 0.67, 0.72};
static const plot_color grid_color = {0.90, 0.92, 0.94};

/* Distinguishable for most colour-blind readers, and by lightness in greyscale prints. */
static const plot_color palette[] = {
    {0.11, 0.42, 0.75}, {0.88, 0.44, 0.07}, {0.13, 0.59, 0.42}, {0.75, 0.22, 0.45},
    {0.45, 0.36, 0.74}, {0.78, 0.62, 0.10}, {0.16, 0.63, 0.72}, {0.42, 0.45, 0.50},
};

typedef struct axis {
    double low, high;     /* range of the values; their logarithms if log */
    double start, length; /* on the page; length is negative for y, which grows upwards */
    bool log;
    double ticks[max_ticks];
    size_t tick_count;
    double step;
} axis;

typedef struct chart {
    const by_plot_options *options;
    cairo_t *cairo;
    double unit; /* one pixel at the default size */
    double width, height;
    axis x, y;
} chart;

static void set_color(const chart *c, plot_color k, double alpha)
{
    cairo_set_source_rgba(c->cairo, k.r, k.g, k.b, alpha);
}

static plot_color color_of(const chart *c, size_t i)
{
    const by_plot_series *s = &c->options->series[i];
    size_t group = s->group > 0 ? s->group - 1 : i;
    plot_color k = palette[group % BY_ARRAY_LENGTH(palette)];
    return s->dashed ? (plot_color){0.6 * k.r, 0.6 * k.g, 0.6 * k.b} : k;
}

static void set_dash(const chart *c, bool dashed)
{
    const double lengths[] = {10 * c->unit, 5 * c->unit};
    cairo_set_dash(c->cairo, lengths, dashed ? 2 : 0, 0);
}

static void set_font(const chart *c, double size, bool bold)
{
    cairo_select_font_face(c->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c->cairo, size * c->unit);
}

static double text_width(const chart *c, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(c->cairo, text, &extents);
    return extents.x_advance;
}

static double place(const axis *a, double value)
{
    double v = a->log ? log10(value) : value;
    return a->start + a->length * (v - a->low) / (a->high - a->low);
}

static bool drawable(const chart *c, double x, double y)
{
    return fabs(x) < largest && fabs(y) < largest && (!c->options->log_y || y > 0);
}

static const char *or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

/* ---- the ranges ---- */

static void widen(double *low, double *high)
{
    double size = fmax(fabs(*low), fabs(*high));
    if (*low > *high) { /* there are no points */
        *low = 0;
        *high = 1;
    } else if (*high - *low <= 1e-9 * size || *high - *low < 1e-290) {
        double pad = size > 1e-280 ? 0.05 * size : 1;
        *low -= pad;
        *high += pad;
    }
}

static void find_ranges(chart *c)
{
    double x_low = INFINITY;
    double x_high = -INFINITY;
    double y_low = INFINITY;
    double y_high = -INFINITY;
    for (size_t i = 0; i < c->options->series_count; i++) {
        const by_plot_series *s = &c->options->series[i];
        for (size_t k = 0; k < s->count; k++) {
            if (drawable(c, s->x[k], s->y[k])) {
                x_low = fmin(x_low, s->x[k]);
                x_high = fmax(x_high, s->x[k]);
                y_low = fmin(y_low, s->y[k]);
                y_high = fmax(y_high, s->y[k]);
            }
            if (s->low != NULL && drawable(c, s->x[k], s->low[k])) {
                y_low = fmin(y_low, s->low[k]);
                y_high = fmax(y_high, s->low[k]);
            }
        }
    }
    c->y.log = c->options->log_y;
    if (c->y.log) {
        y_low = y_low > y_high ? 0 : log10(y_low);
        y_high = y_low > y_high ? 1 : log10(y_high);
    }
    widen(&x_low, &x_high);
    widen(&y_low, &y_high);
    c->x.low = x_low;
    c->x.high = x_high;
    c->y.low = y_low;
    c->y.high = y_high;
}

/* A linear y axis ends on ticks; a logarithmic one leaves a margin. */
static void find_y_ticks(chart *c, double pixels)
{
    axis *y = &c->y;
    if (y->log) {
        double air = 0.04 * (y->high - y->low);
        y->low -= air;
        y->high += air;
        by__plot_log_ticks(y->ticks, &y->tick_count, pow(10, y->low), pow(10, y->high));
        return;
    }
    int wanted = (int)fmin(12, fmax(2, pixels / (70 * c->unit)));
    y->step = by__plot_ticks(y->ticks, &y->tick_count, y->low, y->high, wanted, 0);
    y->low = floor(y->low / y->step + 1e-6) * y->step;
    y->high = ceil(y->high / y->step - 1e-6) * y->step;
    (void)by__plot_ticks(y->ticks, &y->tick_count, y->low, y->high,
                         (int)lround((y->high - y->low) / y->step), 0);
}

static void tick_label(char out[32], const axis *a, size_t i)
{
    double most = fabs(a->ticks[i]);
    for (size_t k = 0; k < a->tick_count && !a->log; k++) {
        most = fmax(most, fabs(a->ticks[k]));
    }
    by__plot_tick_text(out, a->ticks[i], a->log ? a->ticks[i] : a->step, most);
}

/* ---- the parts, top down ---- */

/* Draws the names in rows from y down. Returns the baseline after the last row. */
static double draw_legend(const chart *c, double left, double right, double y)
{
    double x = left;
    bool any = false;
    set_font(c, 15, false);
    for (size_t i = 0; i < c->options->series_count; i++) {
        const char *name = or_empty(c->options->series[i].name);
        double width = text_width(c, name) + 62 * c->unit;
        if (name[0] == '\0') {
            continue;
        }
        if (x > left && x + width - 24 * c->unit > right) {
            x = left;
            y += 24 * c->unit;
        }
        bool area = c->options->series[i].low != NULL;
        set_color(c, color_of(c, i), area ? shade : 1);
        cairo_set_line_width(c->cairo, (area ? 12 : 4) * c->unit);
        set_dash(c, c->options->series[i].dashed);
        cairo_move_to(c->cairo, x + 2 * c->unit, y - 5 * c->unit);
        cairo_rel_line_to(c->cairo, 24 * c->unit, 0);
        cairo_stroke(c->cairo);
        set_dash(c, false);
        set_color(c, muted, 1);
        by__plot_text(c->cairo, x + 36 * c->unit, y, 0, name);
        x += width;
        any = true;
    }
    return any ? y + 24 * c->unit : y;
}

/* Draws title and legend. Returns the top of the plot area. */
static double draw_head(const chart *c, double left, double right)
{
    double y = 20 * c->unit;
    const char *title = or_empty(c->options->title);
    if (title[0] != '\0') {
        y += 24 * c->unit;
        set_font(c, 23, true);
        set_color(c, ink, 1);
        by__plot_text(c->cairo, left, y, 0, title);
        y += 12 * c->unit;
    }
    return draw_legend(c, left, right, y + 20 * c->unit);
}

static double widest_y_label(const chart *c)
{
    double widest = 0;
    char text[32];
    set_font(c, 14, false);
    for (size_t i = 0; i < c->y.tick_count; i++) {
        tick_label(text, &c->y, i);
        widest = fmax(widest, text_width(c, text));
    }
    return widest;
}

static void draw_grid(const chart *c)
{
    char text[32];
    double right = c->x.start + c->x.length;
    set_font(c, 14, false);
    cairo_set_line_width(c->cairo, fmax(1, c->unit));
    for (size_t i = 0; i < c->y.tick_count; i++) {
        double at = place(&c->y, c->y.ticks[i]);
        set_color(c, grid_color, 1);
        cairo_move_to(c->cairo, c->x.start, at);
        cairo_line_to(c->cairo, right, at);
        cairo_stroke(c->cairo);
        set_color(c, muted, 1);
        tick_label(text, &c->y, i);
        by__plot_text(c->cairo, c->x.start - 12 * c->unit, at + 5 * c->unit, 1, text);
    }
    for (size_t i = 0; i < c->x.tick_count; i++) {
        double at = place(&c->x, c->x.ticks[i]);
        set_color(c, grid_color, 1);
        cairo_move_to(c->cairo, at, c->y.start + c->y.length);
        cairo_line_to(c->cairo, at, c->y.start);
        cairo_stroke(c->cairo);
        set_color(c, muted, 1);
        tick_label(text, &c->x, i);
        by__plot_text(c->cairo, at, c->y.start + 26 * c->unit, 0.5, text);
    }
    set_color(c, axis_color, 1);
    cairo_set_line_width(c->cairo, 1.5 * c->unit);
    cairo_move_to(c->cairo, c->x.start, c->y.start);
    cairo_line_to(c->cairo, right, c->y.start);
    cairo_stroke(c->cairo);
}

static void draw_labels(const chart *c)
{
    set_font(c, 15, false);
    set_color(c, ink, 1);
    by__plot_text(c->cairo, c->x.start + c->x.length / 2, c->height - 16 * c->unit, 0.5,
                  or_empty(c->options->x_label));
    cairo_save(c->cairo);
    cairo_translate(c->cairo, 28 * c->unit, c->y.start + c->y.length / 2);
    cairo_rotate(c->cairo, -acos(-1.0) / 2);
    by__plot_text(c->cairo, 0, 0, 0.5, or_empty(c->options->y_label));
    cairo_restore(c->cairo);
}

/* ---- the lines ---- */

/* A path that reduces the points of each pixel column to its lowest, highest and last point, so
 * that a million points cost no more than the width of the page. */
typedef struct pen {
    const chart *chart;
    bool thin; /* whether columns are merged at all */
    bool open; /* whether the line has a point */
    double column, x, low, high, last;
} pen;

static void pen_flush(pen *p)
{
    cairo_t *cairo = p->chart->cairo;
    if (p->open && p->high > p->low) {
        cairo_line_to(cairo, p->x, p->low);
        cairo_line_to(cairo, p->x, p->high);
    }
    if (p->open) {
        cairo_line_to(cairo, p->x, p->last);
    }
}

static void pen_lift(pen *p)
{
    pen_flush(p);
    cairo_new_sub_path(p->chart->cairo);
    p->open = false;
}

static void pen_point(pen *p, double x, double y)
{
    if (p->thin && p->open && floor(x) == p->column) {
        p->low = fmin(p->low, y);
        p->high = fmax(p->high, y);
    } else {
        pen_flush(p);
        p->low = p->high = y;
        p->column = floor(x);
        p->x = x;
    }
    p->last = y;
    p->open = true;
}

/* Heights on the page of a smooth line, in each stretch without a gap; NULL: there is nothing to
 * smooth. Free them with free(). */
static double *smooth_heights(const chart *c, const by_plot_series *s)
{
    double *heights = NULL;
    bool smoothed = false;
    if (s->smooth <= 0 ||
        by__alloc((void **)&heights, 2 * s->count + 1, sizeof *heights, "chart", NULL) != BY_OK) {
        return NULL;
    }
    double *raw = heights + s->count;
    for (size_t i = 0; i < s->count; i++) {
        size_t first = i;
        while (i < s->count && drawable(c, s->x[i], s->y[i])) {
            raw[i] = place(&c->y, s->y[i]);
            i++;
        }
        smoothed = by__plot_smooth(heights + first, raw + first, i - first, s->smooth) || smoothed;
    }
    if (!smoothed) {
        free(heights);
        heights = NULL;
    }
    return heights;
}

/* Strokes the series, at `heights` unless that is NULL. */
static void draw_line(const chart *c, const by_plot_series *s, const double *heights)
{
    pen p = {.chart = c, .thin = (double)s->count > 2 * c->x.length};
    cairo_new_path(c->cairo);
    for (size_t i = 0; i < s->count; i++) {
        if (drawable(c, s->x[i], s->y[i])) {
            pen_point(&p, place(&c->x, s->x[i]),
                      heights == NULL ? place(&c->y, s->y[i]) : heights[i]);
        } else {
            pen_lift(&p);
        }
    }
    pen_lift(&p);
    cairo_stroke(c->cairo);
}

/* Marks single points of short series, such as evaluations; one point alone has no line. */
static void draw_dots(const chart *c, const by_plot_series *s)
{
    for (size_t i = 0; i < s->count && s->count <= max_dots; i++) {
        if (drawable(c, s->x[i], s->y[i])) {
            cairo_new_path(c->cairo);
            cairo_arc(c->cairo, place(&c->x, s->x[i]), place(&c->y, s->y[i]), 4 * c->unit, 0,
                      2 * acos(-1.0));
            cairo_fill(c->cairo);
        }
    }
}

/* Fills each stretch of points that have both ends. */
static void draw_area(const chart *c, const by_plot_series *s)
{
    for (size_t i = 0; i < s->count; i++) {
        size_t first = i;
        cairo_new_path(c->cairo);
        while (i < s->count && drawable(c, s->x[i], s->y[i]) && drawable(c, s->x[i], s->low[i])) {
            cairo_line_to(c->cairo, place(&c->x, s->x[i]), place(&c->y, s->y[i]));
            i++;
        }
        for (size_t k = i; k > first; k--) {
            cairo_line_to(c->cairo, place(&c->x, s->x[k - 1]), place(&c->y, s->low[k - 1]));
        }
        cairo_close_path(c->cairo);
        cairo_fill(c->cairo);
    }
}

static void draw_series(const chart *c)
{
    cairo_save(c->cairo);
    cairo_rectangle(c->cairo, c->x.start - 4 * c->unit, c->y.start + c->y.length - 4 * c->unit,
                    c->x.length + 8 * c->unit, -c->y.length + 8 * c->unit);
    cairo_clip(c->cairo);
    cairo_set_line_join(c->cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(c->cairo, CAIRO_LINE_CAP_ROUND);
    for (size_t i = 0; i < c->options->series_count; i++) {
        const by_plot_series *s = &c->options->series[i];
        if (s->low != NULL) {
            set_color(c, color_of(c, i), shade);
            draw_area(c, s);
            continue;
        }
        double *heights = smooth_heights(c, s);
        if (heights != NULL) {
            set_color(c, color_of(c, i), 0.28);
            cairo_set_line_width(c->cairo, 1.2 * c->unit);
            draw_line(c, s, NULL);
        }
        set_color(c, color_of(c, i), 1);
        cairo_set_line_width(c->cairo, 2.6 * c->unit);
        set_dash(c, s->dashed);
        draw_line(c, s, heights);
        set_dash(c, false);
        draw_dots(c, s);
        free(heights);
    }
    cairo_restore(c->cairo);
}

static void draw_chart(chart *c)
{
    find_ranges(c);
    double bottom = c->height - (or_empty(c->options->x_label)[0] != '\0' ? 70 : 46) * c->unit;
    find_y_ticks(c, bottom - 90 * c->unit);
    double left = (or_empty(c->options->y_label)[0] != '\0' ? 52 : 26) * c->unit +
                  widest_y_label(c) + 14 * c->unit;
    double right = c->width - 36 * c->unit;
    double top = fmin(draw_head(c, left, right), bottom - 40 * c->unit);
    c->x.start = left;
    c->x.length = fmax(right - left, 20 * c->unit);
    c->y.start = bottom;
    c->y.length = top - bottom;
    c->x.step = by__plot_ticks(c->x.ticks, &c->x.tick_count, c->x.low, c->x.high,
                               (int)fmin(10, fmax(2, c->x.length / (110 * c->unit))),
                               c->options->whole_x ? 1 : 0);
    draw_grid(c);
    draw_labels(c);
    draw_series(c);
}

/* ---- the file ---- */

static by_status check_options(const by_plot_options *options, by_error *error)
{
    if ((options->width != 0 && (options->width < 200 || options->width > 10000)) ||
        (options->height != 0 && (options->height < 200 || options->height > 10000))) {
        return by_error_set(error, BY_EARG, "a chart of %d x %d; both must be in 200 to 10000",
                            options->width, options->height);
    }
    const char *const texts[] = {options->title, options->x_label, options->y_label};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        if (!by__utf8_valid(or_empty(texts[i]), strlen(or_empty(texts[i])))) {
            return by_error_set(error, BY_EARG, "a text of the chart is not UTF-8");
        }
    }
    for (size_t i = 0; i < options->series_count; i++) {
        const by_plot_series *s = &options->series[i];
        const char *name = or_empty(s->name);
        if (!by__utf8_valid(name, strlen(name)) || !(s->smooth >= 0 && s->smooth < 1) ||
            (s->count > 0 && (s->x == NULL || s->y == NULL))) {
            return by_error_set(error, BY_EARG,
                                "series %zu: its name is not UTF-8, its data is NULL, or smooth %g "
                                "is outside 0 to 1",
                                i, s->smooth);
        }
    }
    return options->matrix == NULL ? BY_OK : by__plot_matrix_check(options->matrix, error);
}

enum { max_charts = 16 };

/* A page of charts of equal size in rows. */
typedef struct chart_page {
    const by_plot_options *charts;
    size_t count;
    size_t columns;
    int width; /* of a chart */
    int height;
} chart_page;

static void draw_page(cairo_t *cairo, void *user)
{
    const chart_page *p = user;
    set_color(&(chart){.cairo = cairo}, (plot_color){1, 1, 1}, 1);
    cairo_paint(cairo); /* also where there is no chart */
    for (size_t i = 0; i < p->count; i++) {
        chart c = {
            .options = &p->charts[i], .cairo = cairo, .width = p->width, .height = p->height};
        c.unit = fmax(0.6, fmin(c.width / default_width, c.height / default_height));
        cairo_save(cairo);
        size_t row = i / p->columns;
        cairo_translate(cairo, (double)(i % p->columns) * p->width, (double)row * p->height);
        cairo_rectangle(cairo, 0, 0, p->width, p->height);
        cairo_clip(cairo);
        if (c.options->matrix != NULL) {
            by__plot_matrix(cairo, c.options, c.width, c.height, c.unit);
        } else {
            draw_chart(&c);
        }
        cairo_restore(cairo);
    }
}

by_status by_plot_write_all(const by_plot_options *charts, size_t count, const char *path,
                            by_error *error)
{
    if (count == 0 || count > max_charts) {
        return by_error_set(error, BY_EARG, "a page of %zu charts; it holds 1 to %d", count,
                            max_charts);
    }
    for (size_t i = 0; i < count; i++) {
        BY_TRY(check_options(&charts[i], error));
        if (charts[i].width != charts[0].width || charts[i].height != charts[0].height) {
            return by_error_set(error, BY_EARG, "chart %zu of a page has another size than chart 0",
                                i);
        }
    }
    chart_page p = {.charts = charts,
                    .count = count,
                    .columns = count > 1 ? 2 : 1,
                    .width = charts[0].width == 0 ? default_width : charts[0].width,
                    .height = charts[0].height == 0 ? default_height : charts[0].height};
    size_t rows = (count + p.columns - 1) / p.columns;
    return by__plot_file(path, (double)p.columns * p.width, (double)rows * p.height, draw_page, &p,
                         error);
}

by_status by_plot_write(const by_plot_options *options, const char *path, by_error *error)
{
    return by_plot_write_all(options, 1, path, error);
}
