/* Grids of images. Everything is whole pixels, so that a picture has the same bits on every
 * machine. */
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "formats/image/png_write.h"
#include "plot/tile_letters.h"

enum {
    least_side = 96, /* smaller images are enlarged to about this width */
    page_width = 1600,
    most_side = 20000,
    margin = 12,
    between = 4,   /* images of a tile */
    text_size = 2, /* pixels of a dot of a letter */
    letter_width = (BY__LETTER_WIDTH + 1) * text_size,
    line_height = (BY__LETTER_HEIGHT + 3) * text_size,
    least_letters = 8 /* of a line of text below an image */
};

/* A page and the sizes of its parts, in pixels. */
typedef struct tile_page {
    const by_tiles *tiles;
    uint8_t *rgb; /* [height, width, 3] */
    size_t height;
    size_t width;
    size_t columns;
    size_t rows;
    size_t scale; /* by which images are enlarged */
    size_t tile_width;
    size_t tile_height;
    size_t head; /* rows above the tiles */
} tile_page;

static const uint8_t ink[3] = {31, 41, 51};
static const uint8_t muted[3] = {92, 105, 120};

static void put_pixel(const tile_page *p, size_t y, size_t x, const uint8_t color[3])
{
    if (y < p->height && x < p->width) {
        memcpy(p->rgb + (y * p->width + x) * 3, color, 3);
    }
}

/* Draws a line of text in at most `width` pixels; what does not fit is cut, and ends in "..". */
static void put_text(const tile_page *p, size_t y, size_t x, size_t width, const char *text,
                     const uint8_t color[3])
{
    size_t room = (width + text_size) / letter_width;
    size_t count = by__plot_letters(text);
    size_t kept = count <= room ? count : room < 2 ? 0 : room - 2;
    const char *rest = "..";
    for (size_t i = 0; i < (count <= room ? count : room); i++) {
        const uint8_t *rows = by__plot_letter(i < kept ? &text : &rest);
        for (size_t k = 0; k < (size_t)BY__LETTER_HEIGHT * BY__LETTER_WIDTH; k++) {
            size_t row = k / BY__LETTER_WIDTH;
            size_t column = k % BY__LETTER_WIDTH;
            bool dot = (rows[row] >> (BY__LETTER_WIDTH - 1 - column) & 1) != 0;
            for (size_t d = 0; dot && d < (size_t)text_size * text_size; d++) {
                put_pixel(p, y + row * text_size + d / text_size,
                          x + i * letter_width + column * text_size + d % text_size, color);
            }
        }
    }
}

static void put_image(const tile_page *p, size_t y, size_t x, const uint8_t *pixels)
{
    const by_tiles *t = p->tiles;
    size_t plane = t->height * t->width;
    size_t last = t->channels - 1;
    for (size_t i = 0; i < t->height * p->scale; i++) {
        for (size_t k = 0; k < t->width * p->scale; k++) {
            const uint8_t *at = pixels + i / p->scale * t->width + k / p->scale;
            const uint8_t color[3] = {at[0], at[(last > 0 ? 1 : 0) * plane], at[last * plane]};
            put_pixel(p, y + i, x + k, color);
        }
    }
}

static void put_tile(const tile_page *p, size_t i)
{
    const by_tiles *t = p->tiles;
    const by_tile *tile = &t->tiles[i];
    size_t y = p->head + i / p->columns * p->tile_height;
    size_t x = margin + i % p->columns * p->tile_width;
    size_t bytes = t->channels * t->height * t->width;
    size_t text = y + t->height * p->scale + between;
    for (size_t k = 0; k < t->images; k++) {
        put_image(p, y, x + k * (t->width * p->scale + between), tile->pixels + k * bytes);
    }
    for (size_t k = 0; k < BY_TILE_LINES && tile->lines[k] != NULL; k++) {
        put_text(p, text + k * line_height, x, p->tile_width - margin, tile->lines[k],
                 k == 0 ? ink : muted);
    }
}

/* Lines of text that the tile with most of them has. */
static size_t most_lines(const by_tiles *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t lines = 0;
        while (lines < BY_TILE_LINES && t->tiles[i].lines[lines] != NULL) {
            lines++;
        }
        most = lines > most ? lines : most;
    }
    return most;
}

static by_status lay_out(tile_page *p, by_error *error)
{
    const by_tiles *t = p->tiles;
    if (t->count == 0 || t->images == 0 || (t->channels != 1 && t->channels != 3) ||
        t->height == 0 || t->width == 0 || t->height > most_side || t->width > most_side ||
        t->images > most_side) {
        return by_error_set(error, BY_EARG,
                            "a grid of %zu tiles of %zu images, each of %zu x %zu pixels and %zu "
                            "channels: 1 or 3 channels, and at least one of all others",
                            t->count, t->images, t->width, t->height, t->channels);
    }
    size_t lines = most_lines(t);
    size_t least = lines > 0 ? (size_t)least_letters * letter_width : 0;
    p->scale = t->width < least_side ? (least_side + t->width - 1) / t->width : 1;
    size_t inside = t->images * (t->width * p->scale + between) - between;
    p->tile_width = (inside < least ? least : inside) + margin;
    p->tile_height = t->height * p->scale + between + lines * line_height + margin;
    size_t fitting = (size_t)page_width / p->tile_width;
    p->columns = t->columns > 0 ? t->columns : fitting < 1 ? 1 : fitting;
    p->columns = p->columns < t->count ? p->columns : t->count;
    p->rows = (t->count + p->columns - 1) / p->columns;
    p->head = margin + (t->title == NULL ? 0 : line_height + between);
    p->width = margin + p->columns * p->tile_width;
    p->height = p->head + p->rows * p->tile_height;
    if (p->columns > most_side || p->rows > most_side || p->width > most_side ||
        p->height > most_side) {
        return by_error_set(error, BY_EARG,
                            "a picture of %zu x %zu pixels; its sides have at most %d: draw fewer "
                            "than %zu tiles",
                            p->width, p->height, most_side, t->count);
    }
    return BY_OK;
}

by_status by_tiles_draw(uint8_t **rgb, size_t *height, size_t *width, const by_tiles *tiles,
                        by_error *error)
{
    tile_page p = {.tiles = tiles};
    BY_TRY(lay_out(&p, error));
    BY_TRY(by__alloc((void **)&p.rgb, p.height * p.width, 3, "a picture", error));
    memset(p.rgb, 0xff, p.height * p.width * 3);
    if (tiles->title != NULL) {
        put_text(&p, margin, margin, p.width - margin, tiles->title, ink);
    }
    for (size_t i = 0; i < tiles->count; i++) {
        put_tile(&p, i);
    }
    *rgb = p.rgb;
    *height = p.height;
    *width = p.width;
    return BY_OK;
}

by_status by_tiles_write(const by_tiles *tiles, const char *path, by_error *error)
{
    by_string file = {0};
    uint8_t *rgb;
    size_t height;
    size_t width;
    size_t n = strlen(path);
    if (n <= 4 || strcmp(path + n - 4, ".png") != 0) {
        return by_error_set(error, BY_EARG, "%s: a grid of images is written to a name in .png",
                            path);
    }
    BY_TRY(by_tiles_draw(&rgb, &height, &width, tiles, error));
    by_status status =
        by__format_image_write_png(&file, rgb, (int64_t)height, (int64_t)width, error);
    if (status == BY_OK) {
        status = by__file_write(path, file.data, file.length, error);
    }
    free(rgb);
    by_string_free(&file);
    return status;
}
