/* banyan plot --show confusion,...: what a trained model says of held-out data, and what it has
 * learned (plot_scores.c, plot_images.c, plot_attention.c, plot_overlay.c). */
#ifndef BY_CLI_RUNS_PLOT_SCORES_H
#define BY_CLI_RUNS_PLOT_SCORES_H

#include "base/cli.h"

typedef struct cli_scores_request {
    const char *show;
    const char *out;    /* NULL: NAME.png */
    const char *data;   /* NULL: what the run held out */
    const char *device; /* NULL: the best one */
    int64_t count;      /* images of a grid */
    bool best;
    bool tensorboard; /* the picture is written for TensorBoard, too */
} cli_scores_request;

/* The names that --show takes for one model, for messages. */
#define CLI_SCORE_CHARTS                                                                           \
    "confusion, classes, pr, roc, calibration, wrong, filters, attention, "                        \
    "overlay"
#define CLI_SCORE_IMAGES 24 /* of a grid, unless --count says another number */

/* Whether a name of --show is drawn of a model, and not of a run's events. */
bool cli_shows_scores(const char *name, size_t length);
/* Draws them. */
int cli_plot_scores(const cli_command *command, const char *run, cli_scores_request *request);

/* Wrong examples, the surest first. */
typedef struct cli_wrong {
    int64_t class;
    int64_t said;
    double probability;
    uint8_t *pixels;
} cli_wrong;

typedef struct cli_wrongs {
    cli_wrong *items; /* [most], of which `count` are used */
    size_t count;
    size_t most;
    size_t shape[3]; /* of an image: channels, height, width; 0: there are none */
} cli_wrongs;

/* Adds the wrong examples of a micro-batch that are among the surest. */
by_status cli_add_wrongs(cli_wrongs *w, const by_task_data *data, const by_batch *batch,
                         const float *values, size_t width, by_error *error);
/* Draws them. */
by_status cli_draw_wrongs(const cli_wrongs *w, const by_task_kept *kept, const char *out,
                          by_error *error);
void cli_free_wrongs(cli_wrongs *w);
/* Draws held-out images, each with what the class token of a ViT attends to in its last layer, by
 * each head: `most` at most. */
by_status cli_draw_attention(const by_config *config, const by_pretrained *model,
                             by_task_data *data, const by_task_kept *kept, size_t most,
                             const char *out, by_error *error);
/* Draws held-out images, each with the classes of its pixels and with those that a segmentation
 * says (plot_overlay.c): `most` at most. */
by_status cli_draw_overlays(const by_config *config, const by_pretrained *model, by_task_data *data,
                            size_t most, const char *out, by_error *error);
/* Draws the filters of the first layer of a model of images: `most` at most. */
by_status cli_draw_filters(const by_pretrained *model, size_t most, const char *out,
                           by_error *error);

#endif
