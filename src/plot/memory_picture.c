/* A picture of memory use during a step: what is allocated while each node runs, by purpose. */
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "banyan/text.h"
#include "plot/plot.h"
#include "plot/plot_file.h"
#include "trainer/state/trainer.h"

#define WIDTH     760.0
#define HEIGHT    380.0
#define LEFT      78.0
#define RIGHT     214.0
#define TOP       44.0
#define BOTTOM    46.0
#define FONT_SIZE 13.0

/* Bands from bottom to top; the last two change from node to node. */
enum { REST, WEIGHTS, GRADIENTS, STATE, ACTIVATIONS, WORKSPACE, BANDS };

static const char *const band_names[BANDS] = {"process, data", "weights",     "gradients",
                                              "optimizer",     "activations", "workspace"};
static const double band_colors[BANDS][3] = {{0.80, 0.82, 0.84}, {0.40, 0.58, 0.78},
                                             {0.97, 0.77, 0.50}, {0.60, 0.83, 0.64},
                                             {0.62, 0.78, 0.93}, {0.86, 0.50, 0.48}};

/* A node of the step. */
typedef struct moment {
    double live;
    double workspace;
    bool backward;
} moment;

typedef struct memory_chart {
    const by_trainer *trainer;
    double fixed[ACTIVATIONS]; /* bytes of the constant bands */
    double most[BANDS];
    moment *moments;
    int count;
    int updates; /* index of the update's first node */
    int first_backward;
    double top; /* maximum of the y axis */
} memory_chart;

static double x_of(const memory_chart *p, int m)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * m / (p->count > 0 ? p->count : 1);
}

static double y_of(const memory_chart *p, double bytes)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes / p->top;
}

/* Bytes of all bands up to `band` at a node. */
static double height_of(const memory_chart *p, int band, int m)
{
    double bytes = 0.0;
    for (int b = 0; b <= band && b < ACTIVATIONS; b++) {
        bytes += p->fixed[b];
    }
    bytes += band >= ACTIVATIONS ? p->moments[m].live : 0.0;
    return bytes + (band >= WORKSPACE ? p->moments[m].workspace : 0.0);
}

/* Upper bands are drawn first, and lower ones over them. */
static void draw_band(cairo_t *cairo, const memory_chart *p, int band)
{
    by__plot_color(cairo, band_colors[band]);
    cairo_move_to(cairo, x_of(p, 0), y_of(p, 0.0));
    for (int m = 0; m < p->count; m++) {
        double y = y_of(p, height_of(p, band, m));
        cairo_line_to(cairo, x_of(p, m), y);
        cairo_line_to(cairo, x_of(p, m + 1), y);
    }
    cairo_line_to(cairo, x_of(p, p->count), y_of(p, 0.0));
    cairo_close_path(cairo);
    cairo_fill(cairo);
}

static void draw_line(cairo_t *cairo, double x1, double y1, double x2, double y2, bool dashed)
{
    static const double dashes[2] = {5, 4};
    cairo_set_dash(cairo, dashes, dashed ? 2 : 0, 0);
    cairo_set_line_width(cairo, 1);
    cairo_move_to(cairo, x1, y1);
    cairo_line_to(cairo, x2, y2);
    cairo_stroke(cairo);
    cairo_set_dash(cairo, dashes, 0, 0);
}

static void draw_axes(cairo_t *cairo, const memory_chart *p, double total)
{
    char text[48];
    double ticks[64];
    size_t count;
    double right = x_of(p, p->count);
    double gib = 1024.0 * 1024.0 * (p->top > 8e9 ? 1024.0 : 1.0);
    double step = by__plot_ticks(ticks, &count, 0.0, p->top / gib, 5, 0);
    by__plot_color(cairo, BY__PLOT_INK);
    for (size_t i = 0; i < count; i++) {
        char number[32];
        double y = y_of(p, ticks[i] * gib);
        by__plot_tick_text(number, ticks[i], step, ticks[count - 1]);
        (void)snprintf(text, sizeof text, "%s %s", number, p->top > 8e9 ? "GiB" : "MiB");
        draw_line(cairo, LEFT - 4, y, LEFT, y, false);
        by__plot_text(cairo, LEFT - 8, y + 4, 1, text);
    }
    draw_line(cairo, LEFT, TOP, LEFT, HEIGHT - BOTTOM, false);
    draw_line(cairo, LEFT, HEIGHT - BOTTOM, right, HEIGHT - BOTTOM, false);
    const struct {
        const char *name;
        int from;
        int to;
    } parts[] = {{"forward", 0, p->first_backward},
                 {"backward", p->first_backward, p->updates},
                 {"update", p->updates, p->count}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(parts); i++) {
        if (parts[i].to > parts[i].from) {
            double middle = (x_of(p, parts[i].from) + x_of(p, parts[i].to)) / 2;
            draw_line(cairo, x_of(p, parts[i].to), HEIGHT - BOTTOM, x_of(p, parts[i].to),
                      HEIGHT - BOTTOM + 6, false);
            by__plot_text(cairo, middle, HEIGHT - BOTTOM + 20, 0.5, parts[i].name);
        }
    }
    draw_line(cairo, LEFT, y_of(p, total), right, y_of(p, total), true);
    by__plot_text(cairo, right + 8, y_of(p, total) + 4, 0, "planned");
}

static void draw_legend(cairo_t *cairo, const memory_chart *p)
{
    double x = WIDTH - RIGHT + 10;
    for (int band = BANDS - 1, row = 0; band >= 0; band--, row++) {
        char text[80];
        char bytes[32];
        double y = TOP + 44 + 24 * row;
        (void)snprintf(text, sizeof text, "%s%s %s", band >= ACTIVATIONS ? "up to " : "",
                       by_format_bytes(bytes, (uint64_t)p->most[band]), band_names[band]);
        by__plot_key(cairo, x, y, band_colors[band], text);
    }
}

static void draw(cairo_t *cairo, void *user)
{
    const memory_chart *p = user;
    char title[160];
    char bytes[32];
    const by_config *config = p->trainer->config;
    uint64_t total = p->trainer->plan.memory.total;
    by__plot_begin(cairo, FONT_SIZE);
    for (int band = BANDS - 1; band >= 0; band--) {
        draw_band(cairo, p, band);
    }
    (void)snprintf(title, sizeof title,
                   "Memory of a step, node by node: %s planned (recompute %s, %s)",
                   by_format_bytes(bytes, total),
                   p->trainer->plan.arena_bytes > 0 ? "by budget" : config->memory.recompute,
                   config->precision.compute);
    by__plot_color(cairo, BY__PLOT_INK);
    by__plot_text(cairo, 10, 22, 0, title);
    draw_axes(cairo, p, (double)total);
    draw_legend(cairo, p);
}

static by_status add_moments(memory_chart *p, const by__exec_program_row *row, by_error *error)
{
    int count = row == NULL || row->program == NULL ? 0 : by_program_node_count(row->program);
    for (int n = 0; n < count; n++) {
        by_node_info info;
        BY_TRY(by_program_node(row->program, n, &info, error));
        moment *m = &p->moments[p->count++];
        *m = (moment){(double)info.live_bytes, (double)info.workspace, info.backward};
        p->most[ACTIVATIONS] = m->live > p->most[ACTIVATIONS] ? m->live : p->most[ACTIVATIONS];
        p->most[WORKSPACE] = m->workspace > p->most[WORKSPACE] ? m->workspace : p->most[WORKSPACE];
    }
    return BY_OK;
}

static by_status fill(memory_chart *p, by_error *error)
{
    const by_trainer *t = p->trainer;
    const by_memory_report *m = &t->plan.memory;
    const by__exec_program_row *rows[] = {t->model.gradients, t->norm.row, t->update.row,
                                          t->update.copy_row};
    size_t nodes = 1;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        bool has = rows[i] != NULL && rows[i]->program != NULL;
        nodes += has ? (size_t)by_program_node_count(rows[i]->program) : 0;
    }
    BY_TRY(by__alloc((void **)&p->moments, nodes, sizeof *p->moments, "picture", error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        BY_TRY(add_moments(p, rows[i], error));
        p->updates = i == 0 ? p->count : p->updates;
    }
    while (p->first_backward < p->updates && !p->moments[p->first_backward].backward) {
        p->first_backward++;
    }
    p->fixed[REST] = (double)(m->process + m->data + m->staging);
    p->fixed[WEIGHTS] = (double)m->parameters;
    p->fixed[GRADIENTS] = (double)m->gradients;
    p->fixed[STATE] = (double)m->optimizer;
    memcpy(p->most, p->fixed, sizeof p->fixed);
    p->top = 1.05 * (double)m->total;
    return BY_OK;
}

by_status by_trainer_draw_memory(const by_trainer *trainer, const char *path, by_error *error)
{
    memory_chart p = {.trainer = trainer};
    if (trainer->model.gradients == NULL) {
        return by_error_set(error, BY_EARG,
                            "%s: the memory of a step can be plotted only for a single program of "
                            "forward and backward pass, but %s",
                            path,
                            trainer->model.stages > 1 ? "the stages of a pipeline have several"
                                                      : "this trainer has none");
    }
    by_status status = fill(&p, error);
    if (status == BY_OK) {
        status = by__plot_file(path, WIDTH, HEIGHT, draw, &p, error);
    }
    free(p.moments);
    return status;
}
