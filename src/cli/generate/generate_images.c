/* generate --image: new images from a model of task.kind diffuse. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "banyan/diffusion.h"
#include "banyan/infer.h"
#include "banyan/plot.h"
#include "generate/generate.h"

#define LINE 64 /* bytes of a line below an image */

typedef struct image_session {
    const cli_generation *r;
    by_diffusion *diffusion;
    int64_t size[3];
    size_t bytes; /* of an image */
    uint8_t *pixels;
    int32_t *classes;
    by_tile *tiles;
    char (*lines)[LINE];
} image_session;

static by_status open_session(image_session *s, const by_pretrained *model, by_error *error)
{
    const cli_generation *r = s->r;
    size_t count = (size_t)r->samples;
    const by_diffusion_options options = {.steps = r->steps,
                                          .guidance = r->guidance,
                                          .seed = r->sampling.seed,
                                          .batch = r->samples < 16 ? r->samples : 16,
                                          .precision = r->precision,
                                          .threads = (int)r->threads};
    by_status status =
        by_diffusion_open(&s->diffusion, by_pretrained_config(model), by_pretrained_weights(model),
                          by_pretrained_directory(model), &options, error);
    if (status != BY_OK) {
        return status;
    }
    by_diffusion_image(s->diffusion, s->size);
    s->bytes = (size_t)(s->size[0] * s->size[1] * s->size[2]);
    s->pixels = calloc(count, s->bytes);
    s->classes = calloc(count, sizeof *s->classes);
    s->tiles = calloc(count, sizeof *s->tiles);
    s->lines = calloc(count, sizeof *s->lines);
    return s->pixels == NULL || s->classes == NULL || s->tiles == NULL || s->lines == NULL
               ? by_error_set(error, BY_EMEMORY, "out of memory: images")
               : BY_OK;
}

/* Finds the class of --class: by its name, or by its number. -1: none was given. */
static by_status find_class(int64_t *out, const image_session *s, by_error *error)
{
    const char *wanted = s->r->class;
    int64_t classes = by_diffusion_classes(s->diffusion);
    char *end;
    *out = -1;
    if (wanted == NULL) {
        return BY_OK;
    }
    for (int64_t i = 0; i < classes; i++) {
        const char *name = by_diffusion_class_name(s->diffusion, i);
        if (name != NULL && strcmp(name, wanted) == 0) {
            *out = i;
            return BY_OK;
        }
    }
    long long number = strtoll(wanted, &end, 10);
    if (end != wanted && *end == '\0' && number >= 0 && number < classes) {
        *out = number;
        return BY_OK;
    }
    const char *first = by_diffusion_class_name(s->diffusion, 0);
    const char *last = by_diffusion_class_name(s->diffusion, classes - 1);
    return by_error_set(error, BY_EARG, "--class %s: the model has classes 0 to %lld%s%.60s%s%.60s",
                        wanted, (long long)classes - 1, first == NULL ? "" : ", by name ",
                        first == NULL ? "" : first, last == NULL ? "" : " to ",
                        last == NULL ? "" : last);
}

/* Without a class, each in turn. */
static by_status make_images(image_session *s, by_error *error)
{
    int64_t class;
    by_status status = find_class(&class, s, error);
    size_t count = (size_t)s->r->samples;
    size_t batch = (size_t)by_diffusion_batch(s->diffusion);
    int64_t classes = by_diffusion_classes(s->diffusion);
    for (size_t i = 0; i < count; i++) {
        s->classes[i] = (int32_t)(class >= 0 ? class : (int64_t)i % classes);
    }
    for (size_t i = 0; i < count && status == BY_OK; i += batch) {
        size_t part = count - i < batch ? count - i : batch;
        status = cli_stop_requested(NULL) ? by_error_set(error, BY_ESTOPPED, "interrupted")
                                          : by_diffusion_run(s->diffusion, s->classes + i, part, i,
                                                             s->pixels + i * s->bytes, error);
    }
    return status;
}

static by_status write_grid(image_session *s, by_error *error)
{
    by_tiles tiles = {.tiles = s->tiles,
                      .count = (size_t)s->r->samples,
                      .images = 1,
                      .channels = (size_t)s->size[0],
                      .height = (size_t)s->size[1],
                      .width = (size_t)s->size[2]};
    for (size_t i = 0; i < tiles.count; i++) {
        const char *name = by_diffusion_class_name(s->diffusion, s->classes[i]);
        if (name != NULL) {
            (void)snprintf(s->lines[i], LINE, "%.60s", name);
        } else {
            (void)snprintf(s->lines[i], LINE, "%d", s->classes[i]);
        }
        s->tiles[i] = (by_tile){.pixels = s->pixels + i * s->bytes, .lines = {s->lines[i], NULL}};
    }
    by_status status = by_tiles_write(&tiles, s->r->image, error);
    if (status == BY_OK) {
        cli_tell_written(s->r->image);
    }
    return status;
}

/* One file for each image, named after its number and class: 000007_3.png. */
static by_status write_images(image_session *s, by_error *error)
{
    char path[4096];
    const char *to = s->r->images;
    by_status status = BY_OK;
    if (mkdir(to, 0777) != 0 && errno != EEXIST) {
        return by_error_set(error, BY_EIO, "cannot create %s: %s", to, strerror(errno));
    }
    for (size_t i = 0; i < (size_t)s->r->samples && status == BY_OK; i++) {
        int length = snprintf(path, sizeof path, "%s/%06zu_%d.png", to, i, s->classes[i]);
        status = length < 0 || (size_t)length >= sizeof path
                     ? by_error_set(error, BY_EARG, "--images: the path is too long")
                     : by_diffusion_write(path, s->pixels + i * s->bytes, s->size, error);
    }
    if (status == BY_OK) {
        cli_tell_written(to);
    }
    return status;
}

/* {"samples":50,"image":"digits.png","images":null,"seed":1} */
static void report(const cli_generation *r)
{
    const char *const files[] = {r->image, r->images};
    printf("{\"samples\":%lld", (long long)r->samples);
    for (int i = 0; i < 2; i++) {
        printf(i == 0 ? ",\"image\":" : ",\"images\":");
        if (files[i] == NULL) {
            printf("null");
        } else {
            cli_print_json_string(files[i]);
        }
    }
    printf(",\"seed\":%llu}\n", (unsigned long long)r->sampling.seed);
}

static by_status make_and_write(void *user, const by_pretrained *model, const char *run,
                                by_error *error)
{
    image_session *s = user;
    const cli_generation *r = s->r;
    by_status status = open_session(s, model, error);
    if (status == BY_OK) {
        status = make_images(s, error);
    }
    if (status == BY_OK && r->image != NULL) {
        status = write_grid(s, error);
    }
    if (status == BY_OK && r->tensorboard) {
        status = cli_track_picture(model, run, "samples", r->image, error);
    }
    if (status == BY_OK && r->images != NULL) {
        status = write_images(s, error);
    }
    if (status == BY_OK && r->json) {
        report(r);
    }
    return status;
}

int cli_generate_images(const cli_generation *r, const char *path)
{
    image_session s = {.r = r};
    int code = cli_with_pretrained(&cli_generate, path, r->device, r->best, r->ema, r->adapter,
                                   make_and_write, &s);
    by_diffusion_close(&s.diffusion);
    free(s.pixels);
    free(s.classes);
    free(s.tiles);
    free(s.lines);
    return code;
}
