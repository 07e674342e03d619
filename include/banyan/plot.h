/* Drawings, as files in PNG or SVG: charts of lines, tables as heat maps, grids of images,
 * schedules of pipelines, the memory of a step, profiles. */
#ifndef BANYAN_PLOT_H
#define BANYAN_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/layout.h"
#include "banyan/pipeline.h"
#include "banyan/profile.h"
#include "banyan/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- charts ---- */

/* A line in a chart. */
typedef struct by_plot_series {
    const char *name; /* NULL or "": not in the legend */
    const double *x;  /* [count] */
    const double *y;  /* [count]; points that are not finite (with log_y: not positive) break the
                         line */
    size_t count;
    /* 0: the line as it is; in (0, 1): a thin raw line and a smooth one, to which neighbours on
     * both sides contribute with weights that fall by this factor (0.9: about 10 points). */
    double smooth;
    /* Series of one group have one hue, in all charts of a page; 0: its place in the list, from
     * 1. */
    size_t group;
    bool dashed; /* a dashed line in a darker shade, beside another of its group */
    /* [count]: the area from here up to y in a light shade, instead of a line; NULL: a line. */
    const double *low;
} by_plot_series;

/* A table of numbers, each in a cell of a colour. */
typedef struct by_plot_matrix {
    const double *values; /* [rows, columns]: written where a cell has room for it */
    const double *shades; /* [rows, columns] of the cells: 0 (white) to 1 */
    size_t rows;          /* at least 1, as columns */
    size_t columns;
    const char *const *row_names; /* [rows]; NULL: their numbers, from 0 */
    const char *const *column_names;
    int decimals; /* of the values */
} by_plot_matrix;

/* A line chart, or a table. */
typedef struct by_plot_options {
    const char *title; /* this and the labels may be NULL */
    const char *x_label;
    const char *y_label;
    bool log_y;   /* logarithmic y axis */
    bool whole_x; /* x counts something: ticks at whole numbers only */
    int width;    /* pixels, or points for SVG; 200 to 10000; 0: 1200 */
    int height;   /* as width; 0: 720 */
    const by_plot_series *series;
    size_t series_count;
    const by_plot_matrix *matrix; /* NULL: a line chart; else there are no series, and the labels
                                     say what rows (y) and columns (x) are */
} by_plot_options;

/* Draws a line chart to a file ending in .png or .svg, atomically. Works without installed fonts,
 * using a built-in one. Returns BY_EARG with the option that is invalid. */
BY_API by_status by_plot_write(const by_plot_options *options, const char *path, by_error *error);
/* Draws 1 to 16 charts into one file, in rows of two if there are several. All must have the same
 * size. Returns BY_EARG as by_plot_write, or if the sizes differ. */
BY_API by_status by_plot_write_all(const by_plot_options *charts, size_t count, const char *path,
                                   by_error *error);

/* ---- grids of images ---- */

#define BY_TILE_LINES 3

/* Images side by side, with text below them. */
typedef struct by_tile {
    const uint8_t *pixels;            /* [images, channels, height, width] */
    const char *lines[BY_TILE_LINES]; /* NULL: no line, and none behind it */
} by_tile;

typedef struct by_tiles {
    const by_tile *tiles;
    size_t count;    /* of tiles, at least 1 */
    size_t images;   /* of each tile, at least 1 */
    size_t channels; /* 1 (grey) or 3 (RGB) */
    size_t height;
    size_t width;
    size_t columns;    /* tiles in a row; 0: as many as fit */
    const char *title; /* NULL: none */
} by_tiles;

/* Draws a grid of images to a file in .png, atomically; small images are enlarged by a whole
 * factor. Its pixels are the same on every machine. Returns BY_EARG for another name, sizes that
 * are wrong or too large a picture. */
BY_API by_status by_tiles_write(const by_tiles *tiles, const char *path, by_error *error);
/* The same in memory, u8 [height, width, 3]: free *rgb with free(). */
BY_API by_status by_tiles_draw(uint8_t **rgb, size_t *height, size_t *width, const by_tiles *tiles,
                               by_error *error);

/* ---- schedules, memory, profiles ---- */

/* Draws the picture of by_pipeline_text to a file ending in .svg or .png, atomically. Returns
 * BY_EARG for another
 * name, or for more than 4000 units of time or 64 ranks. */
BY_API by_status by_pipeline_draw(const by_pipeline *pipeline, const char *path, by_error *error);

/* Draws what is in memory while each node of a step runs, by purpose, to a file ending in .svg or
 * .png, atomically. Works on a plan, before allocation. Returns BY_EARG for another name, a
 * pipeline stage, or a trainer for losses only. */
BY_API by_status by_trainer_draw_memory(const by_trainer *trainer, const char *path,
                                        by_error *error);

/* Draws the spans of a plan (banyan/layout.h, options.trace), a row of two queues for each rank, to
 * a file ending in .svg or .png, atomically. Returns BY_EARG for another name, a plan without
 * spans, or more than 64 ranks. */
BY_API by_status by_layout_draw(const by_layout_plan *plan, const char *path, by_error *error);

/* Input of by_profile_draw. */
typedef struct by_profile_picture {
    const by_profile_row *rows; /* by operation, longest first */
    size_t row_count;
    double seconds; /* of all steps */
    int64_t steps;
    const by_machine *machine;
} by_profile_picture;

/* Draws the rows as a table with bars to a file ending in .svg or .png, atomically. Returns BY_EARG
 * for another name. */
BY_API by_status by_profile_draw(const by_profile_picture *what, const char *path, by_error *error);

#ifdef __cplusplus
}
#endif

#endif
