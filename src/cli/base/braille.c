#include "base/braille.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { max_columns = 200, max_rows = 40 };

typedef struct axis_range {
    double low;
    double high;
} axis_range;

static void widen(axis_range *r, double value)
{
    r->low = fmin(r->low, value);
    r->high = fmax(r->high, value);
}

/* Returns which of `count` dots of a range a value falls on. */
static int place(const axis_range *r, double value, int count)
{
    double span = r->high - r->low;
    double at = span > 0.0 ? (value - r->low) / span : 0.5;
    at = at >= 0.0 && at <= 1.0 ? at : 0.5; /* differences of huge values overflow */
    return (int)lround(at * (count - 1));
}

/* The bits of a character's dots, from top to bottom, in the left and right column. */
static const uint8_t dots[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

static void set_dot(uint8_t cells[max_rows][max_columns], int x, int y)
{
    cells[y / 4][x / 2] |= dots[y % 4][x % 2];
}

/* Draws all dots between two consecutive points, so that steep curves have no gaps. */
static void draw_line(uint8_t cells[max_rows][max_columns], int x0, int y0, int x1, int y1)
{
    int steps = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= steps; i++) {
        double part = steps == 0 ? 0.0 : (double)i / steps;
        set_dot(cells, x0 + (int)lround(part * (x1 - x0)), y0 + (int)lround(part * (y1 - y0)));
    }
}

static void draw_curve(uint8_t cells[max_rows][max_columns], const cli_curve *c,
                       const axis_range *x, const axis_range *y, int width, int height)
{
    int last_x = 0;
    int last_y = 0;
    bool has_last = false;
    for (size_t i = 0; i < c->count; i++) {
        if (!isfinite(c->y[i])) {
            has_last = false;
            continue;
        }
        int at_x = place(x, c->x[i], width);
        int at_y = height - 1 - place(y, c->y[i], height);
        draw_line(cells, has_last ? last_x : at_x, has_last ? last_y : at_y, at_x, at_y);
        last_x = at_x;
        last_y = at_y;
        has_last = true;
    }
}

void cli_print_curves(const cli_curve *curves, size_t count, int columns, int rows, bool terminal)
{
    uint8_t cells[max_rows][max_columns];
    axis_range x = {INFINITY, -INFINITY};
    axis_range y = {INFINITY, -INFINITY};
    columns = columns > max_columns ? max_columns : columns;
    rows = rows > max_rows ? max_rows : rows;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < curves[k].count; i++) {
            if (isfinite(curves[k].y[i])) {
                widen(&x, curves[k].x[i]);
                widen(&y, curves[k].y[i]);
            }
        }
    }
    if (!(x.low <= x.high) || columns < 1 || rows < 1) {
        return;
    }
    memset(cells, 0, sizeof cells);
    for (size_t k = 0; k < count; k++) {
        draw_curve(cells, &curves[k], &x, &y, 2 * columns, 4 * rows);
    }
    for (int row = 0; row < rows; row++) {
        if (row == 0 || row == rows - 1) {
            printf("%10.4g ", row == 0 ? y.high : y.low);
        } else {
            printf("%10s ", "");
        }
        for (int column = 0; column < columns; column++) {
            unsigned code = 0x2800u + cells[row][column];
            printf("%c%c%c", 0xe0 | (int)(code >> 12), 0x80 | (int)(code >> 6 & 0x3f),
                   0x80 | (int)(code & 0x3f));
        }
        printf(terminal ? "\033[K\n" : "\n");
    }
}
