/* The model of a budget: the shape of a config, scaled, that has the least loss by a law when it is
 * trained for all FLOPs, counted in its own graph. */
#include <math.h>
#include <string.h>

#include "plan/plan_command.h"

/* Shapes whose width is this multiple of the config's are not tried. */
#define MOST_SCALE 4096

typedef struct shape_search {
    const cli_law_goal *goal;
    const char *path;
    cli_law_shape base; /* the config's own */
    int64_t group;      /* query heads of a head of keys */
    int64_t head_width;
    bool own_mlp; /* model.mlp_width is not what the width gives */
} shape_search;

static double loss_of(const cli_law_goal *goal, double parameters, double tokens)
{
    return goal->unique > 0.0
               ? by_law_loss_repeated(&goal->law, &goal->cost, parameters, tokens, goal->unique)
               : by_law_loss(&goal->law, parameters, tokens);
}

/* Sets the sizes of a config, and the loss when it is trained for the budget. */
static by_status measure(cli_law_shape *s, const shape_search *search, const cli_list *overrides,
                         by_error *error)
{
    by_config *config;
    const by_task *task;
    by_trainer *trainer;
    by_status status = cli_open_config(&config, search->path, overrides, error);
    if (status != BY_OK) {
        return status;
    }
    status = by_task_find(&task, config, error);
    if (status == BY_OK && (task->knows(config) & BY_TASK_SIZES) == 0) {
        status = by_error_set(error, BY_ECONFIG,
                              "%s: it leaves sizes of the model to the data: set them, such as "
                              "model.vocab",
                              search->path);
    }
    if (status == BY_OK) {
        status = by_trainer_open(&trainer, config, NULL, error);
    }
    if (status == BY_OK) {
        const by_model_size *size = by_trainer_size(trainer);
        double per_step = (double)config->train.batch *
                          (double)(task->per_sample == NULL ? 1 : task->per_sample(config));
        s->width = config->model.width;
        s->layers = config->model.layers;
        s->heads = config->model.heads;
        s->kv_heads = config->model.kv_heads;
        s->mlp_width = config->model.mlp_width;
        s->parameters = (double)size->parameters;
        s->steps = (int64_t)fmin(
            fmax(round(search->goal->flops / (size->flops_per_example * per_step)), 1.0), 1e15);
        s->tokens = (double)s->steps * per_step;
        s->loss = loss_of(search->goal, s->parameters, s->tokens);
        by_trainer_close(&trainer);
    }
    by_config_close(&config);
    return status;
}

/* The shape of so many groups of heads: as wide as these, and as much deeper. */
static by_status measure_scaled(cli_law_shape *s, const shape_search *search, int64_t groups,
                                by_error *error)
{
    char text[5][64];
    int64_t heads = groups * search->group;
    double scale = (double)heads / (double)search->base.heads;
    double layers = fmax(round((double)search->base.layers * scale), 1.0);
    cli_list list = {.count = 3};
    (void)snprintf(text[0], sizeof text[0], "model.heads=%lld", (long long)heads);
    (void)snprintf(text[1], sizeof text[1], "model.width=%lld",
                   (long long)(heads * search->head_width));
    (void)snprintf(text[2], sizeof text[2], "model.layers=%.0f", layers);
    if (search->group > 1) {
        (void)snprintf(text[list.count++], sizeof text[0], "model.kv_heads=%lld",
                       (long long)groups);
    }
    if (search->own_mlp) {
        (void)snprintf(text[list.count++], sizeof text[0], "model.mlp_width=%.0f",
                       fmax(round((double)search->base.mlp_width * scale), 1.0));
    }
    for (size_t i = 0; i < list.count; i++) {
        list.items[i] = text[i];
    }
    by_status status = measure(s, search, &list, error);
    s->mlp_width = search->own_mlp ? s->mlp_width : 0;
    return status;
}

/* Returns true if the config has a width of the MLP of its own. */
static bool has_own_mlp(const shape_search *search)
{
    const cli_list usual = {.items = {"model.mlp_width=-1"}, .count = 1};
    by_config *config;
    if (cli_open_config(&config, search->path, &usual, NULL) != BY_OK) {
        return false; /* a kind without that key */
    }
    bool own = config->model.mlp_width != search->base.mlp_width;
    by_config_close(&config);
    return own;
}

by_status cli_find_shape(cli_law_shape *out, const cli_law_goal *goal, const char *path,
                         by_error *error)
{
    static const cli_list none;
    shape_search search = {.goal = goal, .path = path};
    by_status status = measure(&search.base, &search, &none, error);
    if (status != BY_OK) {
        return status;
    }
    const cli_law_shape *base = &search.base;
    if (base->heads < 1 || base->width % base->heads != 0) {
        return by_error_set(error, BY_ECONFIG, "%s: a model without heads has no other width",
                            path);
    }
    search.group = base->kv_heads > 0 ? base->heads / base->kv_heads : 1;
    search.head_width = base->width / base->heads;
    search.own_mlp = has_own_mlp(&search);
    /* The loss falls, and then rises, with the size. */
    int64_t low = 1;
    int64_t high = 1;
    cli_law_shape next;
    status = measure_scaled(out, &search, 1, error);
    while (status == BY_OK && high < MOST_SCALE * base->heads / search.group) {
        status = measure_scaled(&next, &search, 2 * high, error);
        if (status != BY_OK || next.loss >= out->loss) {
            break;
        }
        *out = next;
        low = high;
        high *= 2;
    }
    high *= 2;
    while (status == BY_OK && high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        cli_law_shape below;
        status = measure_scaled(&below, &search, middle - 1, error);
        if (status == BY_OK) {
            status = measure_scaled(&next, &search, middle, error);
        }
        if (status == BY_OK) {
            bool falls = next.loss < below.loss;
            low = falls ? middle : low;
            high = falls ? high : middle;
            *out = next.loss < out->loss ? next : below.loss < out->loss ? below : *out;
        }
    }
    return status;
}
