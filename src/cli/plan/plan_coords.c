/* banyan plan coords. */
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "plan/plan_command.h"

typedef struct coords_request {
    int64_t widths[BY_COORDINATE_WIDTHS];
    by_coordinate_options options;
    const char *out;
    bool json;
} coords_request;

static void print_json(const by_coordinates *c)
{
    char text[32];
    printf("{\"steps\":%zu,\"widths\":[", c->steps);
    for (size_t w = 0; w < c->width_count; w++) {
        printf("%s%lld", w == 0 ? "" : ",", (long long)c->widths[w]);
    }
    printf("],\"activations\":[");
    for (size_t i = 0; i < c->name_count; i++) {
        printf("%s{\"name\":\"%s\",\"slope\":%s,\"sizes\":[", i == 0 ? "" : ",", c->names[i],
               cli_json_number(text, c->slopes[i], 5));
        for (size_t s = 0; s <= c->steps; s++) {
            printf("%s[", s == 0 ? "" : ",");
            for (size_t w = 0; w < c->width_count; w++) {
                double size = c->sizes[(i * (c->steps + 1) + s) * c->width_count + w];
                printf("%s%s", w == 0 ? "" : ",", cli_json_number(text, size, 6));
            }
            printf("]");
        }
        printf("]}");
    }
    printf("],\"limit\":%s,\"verdict\":\"%s\"}\n", cli_json_number(text, c->limit, 3),
           c->grows ? "growing" : "flat");
}

static void print(const by_coordinates *c)
{
    char text[32];
    printf("root mean square after %zu steps, at width\n%-14s", c->steps, "");
    for (size_t w = 0; w < c->width_count; w++) {
        printf(" %10lld", (long long)c->widths[w]);
    }
    printf(" %10s\n", "slope");
    for (size_t i = 0; i < c->name_count; i++) {
        printf("%-14s", c->names[i]);
        for (size_t w = 0; w < c->width_count; w++) {
            double size = c->sizes[(i * (c->steps + 1) + c->steps) * c->width_count + w];
            printf(" %10s", cli_json_number(text, size, 4));
        }
        printf(" %10s\n", cli_number(text, c->slopes[i], 2));
    }
    printf("%s: the steepest power of the width is %s %s\n", c->grows ? "growing" : "flat",
           c->grows ? "above" : "at most", cli_number(text, c->limit, 1));
}

/* A line for each activation: its size after the last step over the width. */
static by_status draw(const by_coordinates *c, const char *path, by_error *error)
{
    by_plot_series series[BY_COORDINATE_NAMES];
    double x[BY_COORDINATE_WIDTHS];
    for (size_t w = 0; w < c->width_count; w++) {
        x[w] = log2((double)c->widths[w]);
    }
    for (size_t i = 0; i < c->name_count; i++) {
        series[i] =
            (by_plot_series){.name = c->names[i],
                             .x = x,
                             .y = &c->sizes[(i * (c->steps + 1) + c->steps) * c->width_count],
                             .count = c->width_count};
    }
    const by_plot_options options = {.title = "Sizes of activations",
                                     .x_label = "width, log2",
                                     .y_label = "root mean square",
                                     .log_y = true,
                                     .series = series,
                                     .series_count = c->name_count};
    return by_plot_write(&options, path, error);
}

static by_status work(void *user, by_config *config, by_error *error)
{
    const coords_request *q = user;
    by_coordinates *c;
    by_status status = by_coordinates_measure(&c, config, &q->options, error);
    if (status != BY_OK) {
        return status;
    }
    if (q->json) {
        print_json(c);
    } else {
        print(c);
    }
    if (q->out != NULL) {
        status = draw(c, q->out, error);
        cli_tell_written(status == BY_OK ? q->out : NULL);
    }
    by_coordinates_close(&c);
    return status;
}

/* Reads "64,128,256". */
static bool read_widths(coords_request *q, const char *text)
{
    for (;;) {
        char *end;
        long long width = strtoll(text, &end, 10);
        size_t count = q->options.width_count;
        if (end == text || width < 1 || width > 1 << 20 || count == BY_COORDINATE_WIDTHS ||
            (count > 0 && width <= q->widths[count - 1])) {
            return false;
        }
        q->widths[q->options.width_count++] = width;
        if (*end == '\0') {
            return q->options.width_count >= 2;
        }
        if (*end != ',') {
            return false;
        }
        text = end + 1;
    }
}

/* Whether a chart can be written to that name; asked before minutes of measuring. */
static bool is_chart(const char *path)
{
    size_t n = path == NULL ? 0 : strlen(path);
    return path == NULL ||
           (n > 4 && (strcmp(path + n - 4, ".svg") == 0 || strcmp(path + n - 4, ".png") == 0));
}

static int run(int argc, char **argv)
{
    const char *widths = "64,128,256,512";
    int64_t steps = 0;
    int64_t seeds = 0;
    cli_list overrides = {0};
    coords_request q = {0};
    const cli_flag flags[] = {
        {"widths", CLI_STRING, &widths, "LIST", "ascending widths (default: 64,128,256,512)"},
        {"steps", CLI_INTEGER_IN(1, 1000), &steps, "N", "optimizer steps (default: 6)"},
        {"seeds", CLI_INTEGER_IN(1, 100), &seeds, "N",
         "means over so many seeds, from the config's on (default: 3)"},
        {"out", CLI_STRING, &q.out, "FILE", ".svg or .png file with the sizes over the width"},
        {"device", CLI_DEVICE, &overrides, "NAME", CLI_DEVICE_HELP},
        {"set", CLI_LIST, &overrides, "KEY=VALUE", CLI_SET_HELP},
        {"json", CLI_SWITCH, &q.json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    int code = cli_parse(&cli_plan_coords, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 1) {
        return cli_misuse(&cli_plan_coords, "name one config file");
    }
    if (!read_widths(&q, widths)) {
        return cli_misuse(&cli_plan_coords,
                          "--widths '%s' is not a list of 2 to %d ascending widths, such as "
                          "64,128,256",
                          widths, BY_COORDINATE_WIDTHS);
    }
    if (!is_chart(q.out)) {
        return cli_misuse(&cli_plan_coords, "--out '%s' is no name in .png or .svg", q.out);
    }
    q.options.widths = q.widths;
    q.options.steps = (size_t)steps;
    q.options.seeds = (size_t)seeds;
    return cli_with_config(&cli_plan_coords, rest[0], &overrides, work, &q);
}

const cli_command cli_plan_coords = {
    .name = "plan coords",
    .summary = "check whether activations keep their size at every width",
    .usage = "banyan plan coords CONFIG [--widths LIST] [--steps N] [--seeds N] [--out FILE]",
    .text =
        "Trains the model of a config for a few steps at several widths, on random tokens with a\n"
        "constant learning rate, and tells how its activations and logits grow with the width:\n"
        "the coordinate check of muP (Yang et al. 2022). With model.parameterisation mup all are\n"
        "flat, and the best learning rate of a narrow model holds for wider ones; with the\n"
        "standard one the change of the logits grows. Heads keep their width.\n"
        "\n"
        "examples:\n"
        "  banyan plan coords c.yaml --set model.parameterisation=mup --out coords.svg\n"
        "  banyan plan coords c.yaml --widths 64,256 --set optimizer.lr=0.01",
    .run = run};
