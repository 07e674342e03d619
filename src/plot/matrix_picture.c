/* Tables as heat maps. */
#include <math.h>
#include <string.h>

#include "plot/matrix_picture.h"
#include "plot/plot.h"
#include "plot/plot_file.h"

enum { least_text = 9 /* smallest letters of a cell, in units */ };

/* A table on its page, in units of the page. */
typedef struct matrix_page {
    const by_plot_options *options;
    const by_plot_matrix *matrix;
    cairo_t *cairo;
    double unit;
    double left, top; /* of the cells */
    double cell_width, cell_height;
    double font;
} matrix_page;

/* White to blue. */
static void set_shade(const matrix_page *p, double shade)
{
    double s = shade > 0 ? fmin(shade, 1) : 0;
    const double rgb[3] = {1 - 0.89 * s, 1 - 0.58 * s, 1 - 0.25 * s};
    by__plot_color(p->cairo, rgb);
}

static void set_font(const matrix_page *p, double size, bool bold)
{
    cairo_select_font_face(p->cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(p->cairo, size);
}

static double width_of(const matrix_page *p, const char *text)
{
    cairo_text_extents_t extents;
    cairo_text_extents(p->cairo, text, &extents);
    return extents.x_advance;
}

static const char *name_of(char text[32], const char *const *names, size_t i)
{
    (void)snprintf(text, 32, "%zu", i);
    return names == NULL || names[i] == NULL ? text : names[i];
}

/* Draws a name in at most `width`: what does not fit is left out. */
static void draw_name(const matrix_page *p, double x, double y, double align, double width,
                      const char *name)
{
    char text[128];
    size_t length = strlen(name);
    length = length < sizeof text ? length : sizeof text - 1;
    memcpy(text, name, length);
    do {
        while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80) {
            length--; /* not within a character of UTF-8 */
        }
        text[length] = '\0';
    } while (length > 0 && width_of(p, text) > width && length-- > 0);
    by__plot_text(p->cairo, x, y, align, text);
}

static double widest_name(const matrix_page *p)
{
    char text[32];
    double widest = 0;
    for (size_t i = 0; i < p->matrix->rows; i++) {
        widest = fmax(widest, width_of(p, name_of(text, p->matrix->row_names, i)));
    }
    return widest;
}

static void draw_cells(const matrix_page *p)
{
    const by_plot_matrix *m = p->matrix;
    double size = fmin(p->cell_height * 0.42, 15 * p->unit);
    bool fits = size >= least_text * p->unit;
    set_font(p, size, false);
    for (size_t i = 0; i < m->rows * m->columns; i++) {
        size_t row = i / m->columns;
        double x = p->left + (double)(i % m->columns) * p->cell_width;
        double y = p->top + (double)row * p->cell_height;
        char text[64];
        set_shade(p, m->shades[i]);
        cairo_rectangle(p->cairo, x, y, p->cell_width, p->cell_height);
        cairo_fill(p->cairo);
        (void)snprintf(text, sizeof text, "%.*f", m->decimals, m->values[i]);
        if (fits && isfinite(m->values[i]) && width_of(p, text) < 0.92 * p->cell_width) {
            by__plot_color(p->cairo,
                           m->shades[i] > 0.55 ? (const double[3]){1, 1, 1} : BY__PLOT_INK);
            by__plot_text(p->cairo, x + p->cell_width / 2, y + p->cell_height / 2 + 0.35 * size,
                          0.5, text);
        }
    }
}

/* Names of rows and columns; of many, one of several. */
static void draw_names(const matrix_page *p)
{
    const by_plot_matrix *m = p->matrix;
    char text[32];
    size_t every = (size_t)fmax(1, ceil(p->font * 1.15 / p->cell_height));
    set_font(p, p->font, false);
    by__plot_color(p->cairo, BY__PLOT_INK);
    for (size_t i = 0; i < m->rows; i += every) {
        draw_name(p, p->left - 8 * p->unit,
                  p->top + ((double)i + 0.5) * p->cell_height + 0.35 * p->font, 1,
                  p->left - 60 * p->unit, name_of(text, m->row_names, i));
    }
    every = (size_t)fmax(1, ceil(2.4 * p->font / p->cell_width));
    for (size_t i = 0; i < m->columns; i += every) {
        draw_name(p, p->left + ((double)i + 0.5) * p->cell_width, p->top - 8 * p->unit, 0.5,
                  (double)every * p->cell_width - 4 * p->unit, name_of(text, m->column_names, i));
    }
}

static void draw_labels(const matrix_page *p, double width, double height)
{
    const by_plot_options *o = p->options;
    set_font(p, 15 * p->unit, false);
    if (o->x_label != NULL) {
        by__plot_text(p->cairo, p->left + (width - p->left) / 2, height - 14 * p->unit, 0.5,
                      o->x_label);
    }
    if (o->y_label != NULL) {
        cairo_save(p->cairo);
        cairo_translate(p->cairo, 28 * p->unit, p->top + (height - p->top) / 2);
        cairo_rotate(p->cairo, -acos(-1.0) / 2);
        by__plot_text(p->cairo, 0, 0, 0.5, o->y_label);
        cairo_restore(p->cairo);
    }
    if (o->title != NULL) {
        set_font(p, 23 * p->unit, true);
        by__plot_text(p->cairo, 48 * p->unit, 44 * p->unit, 0, o->title);
    }
}

void by__plot_matrix(cairo_t *cairo, const by_plot_options *options, double width, double height,
                     double unit)
{
    const by_plot_matrix *m = options->matrix;
    matrix_page p = {
        .options = options, .matrix = m, .cairo = cairo, .unit = unit, .font = 14 * unit};
    set_font(&p, p.font, false);
    p.left = 60 * unit + fmin(widest_name(&p), 0.3 * width);
    p.top = 96 * unit;
    p.cell_width = (width - 36 * unit - p.left) / (double)m->columns;
    p.cell_height = (height - 44 * unit - p.top) / (double)m->rows;
    by__plot_color(cairo, BY__PLOT_INK);
    draw_labels(&p, width, height);
    draw_cells(&p);
    draw_names(&p);
}

by_status by__plot_matrix_check(const by_plot_matrix *m, by_error *error)
{
    const char *const *names[] = {m->row_names, m->column_names};
    const size_t counts[] = {m->rows, m->columns};
    if (m->rows == 0 || m->columns == 0 || m->values == NULL || m->shades == NULL ||
        m->decimals < 0 || m->decimals > 17) {
        return by_error_set(error, BY_EARG, "a table of %zu x %zu numbers with %d decimals",
                            m->rows, m->columns, m->decimals);
    }
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; names[k] != NULL && i < counts[k]; i++) {
            if (names[k][i] != NULL && !by__utf8_valid(names[k][i], strlen(names[k][i]))) {
                return by_error_set(error, BY_EARG, "a name of the table is not UTF-8");
            }
        }
    }
    return BY_OK;
}
