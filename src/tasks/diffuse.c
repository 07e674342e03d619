/* Diffusion: a model learns to take noise out of images, told how much there is and, mostly, the
 * class; repeated from noise alone, that makes new ones (src/infer/diffusion.c). It predicts the
 * noise (DDPM, Ho et al. 2020), or the way from the image to the noise along a line (flow matching,
 * Lipman et al. 2023; rectified flow, Liu et al. 2023). */
#include <string.h>

#include "banyan/ops.h"
#include "graph/graph.h"
#include "tasks/examples/examples.h"
#include "tasks/noise_levels.h"

typedef struct diffuse_keys {
    by__task_examples_keys set;
    char *loss;
    char *betas;
    int64_t timesteps;
    double drop_class;
} diffuse_keys;

static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(diffuse_keys, loss), "flow", .choices = "flow|ddpm",
     .help = "what the squared error is of: flow, the difference of noise and image, which are "
             "mixed along a line; or ddpm, the noise"},
    {"task", "betas", BY__KEY_TEXT, BY__OWN(diffuse_keys, betas), "linear",
     .choices = "linear|cosine", .help = "of ddpm: how noise grows from step to step"},
    {"task", "timesteps", BY__KEY_INT, BY__OWN(diffuse_keys, timesteps), "1000", 2, 100000,
     .help = "steps from image to noise, of which a sample is at a random one"},
    {"task", "drop_class", BY__KEY_REAL, BY__OWN(diffuse_keys, drop_class), "0.1", 0, 1,
     BY__BELOW_MAX,
     .help = "share of training samples whose class the model is not told, for guidance (Ho and "
             "Salimans 2022)"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_diffuse;

static const diffuse_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_diffuse.kind);
}

by_status by__task_diffuse_process(by__task_diffusion *out, const by_config *config,
                                   by_error *error)
{
    const diffuse_keys *own = own_keys(config);
    if (own == NULL || strcmp(config->task.kind, by__task_diffuse.task.name) != 0) {
        return by_error_set(error, BY_EARG,
                            "task.kind %s: only a model of task.kind diffuse makes images",
                            config->task.kind);
    }
    return by__task_diffusion_open(out, strcmp(own->loss, "flow") == 0,
                                   strcmp(own->betas, "cosine") == 0, own->timesteps, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const diffuse_keys *k = own;
    return by__task_examples_mixes(&k->set)
               ? by_error_set(error, BY_ECONFIG,
                              "%s: transforms that mix images give them two classes, and task.kind "
                              "diffuse trains with one: leave them out",
                              by__config_where(config, "data.transforms", "task.kind"))
               : BY_OK;
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    by_source *images;
    by__task_diffusion process;
    BY_TRY(by__task_diffuse_process(&process, config, error));
    by_status status = by__task_examples_source(&images, data, config, training, error);
    if (status != BY_OK) {
        by__task_diffusion_close(&process);
        return status;
    }
    return by__task_noised_source_open(out, images, &process, config->model.outputs,
                                       own_keys(config)->drop_class, error);
}

static by_status check_model(const by_config *config, const by_graph *graph, const by_model *model,
                             by_error *error)
{
    const by_model_config *m = &config->model;
    const by_shape *shape =
        by__graph_has(graph, model->output) ? &graph->values[model->output].shape : NULL;
    return shape == NULL || (shape->rank == 4 && shape->dim[1] == m->channels &&
                             by_graph_find(graph, "timesteps") != BY_NONE)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "task.kind diffuse needs a model that reads times and yields images, "
                              "which model.kind %s is not: set model.kind to dit or unet2d",
                              m->kind);
}

/* The mean over the elements of an image, summed over images. */
static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const by_model_config *m = &config->model;
    int64_t batch = request->batch;
    int64_t elements = m->channels * m->image_height * m->image_width;
    BY_TRY(by__task_examples_needs_output(config, model, error));
    BY_TRY(check_model(config, graph, model, error));
    by_value targets = by_graph_input(
        graph, "targets", BY_F32, BY_SHAPE(batch, m->channels, m->image_height, m->image_width));
    by_value weight = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(batch));
    by_shape rows = BY_SHAPE(batch, elements);
    by_value error_of = by_squared_error(graph, by_reshape(graph, model->output, rows),
                                         by_reshape(graph, targets, rows), weight);
    by_value share = by_fill(graph, BY_F32, BY_SHAPE(1), (float)(1.0 / (double)elements));
    model->loss = by_scale(graph, error_of, share);
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    const diffuse_keys *own = own_keys(config);
    return own != NULL && strcmp(own->loss, "ddpm") == 0 ? "squared error of the noise"
                                                         : "squared error of the flow";
}

const by__task_row by__task_diffuse = {
    .kind = {.name = "diffuse",
             .help = "Diffusion: images out of noise, by DDPM or flow matching.",
             .keys = {&key_list, &by__task_image_data_keys, &by__task_split_keys},
             .size = sizeof(diffuse_keys),
             .resolve = resolve},
    .task = {.name = "diffuse",
             .examples = "images",
             .loss_label = loss_label,
             .open = by__task_examples_open,
             .close = by__task_examples_close,
             .knows = by__task_examples_knows,
             .assume = by__task_examples_assume,
             .complete = by__task_examples_complete,
             .source = source,
             .plain = by__task_examples_plain,
             .pixels = by__task_examples_pixels,
             .classes = by__task_examples_count_classes,
             .order = by__task_examples_order,
             .loss = loss,
             .keep = by__task_examples_keep,
             .check = by__task_examples_check,
             .name_example = by__task_examples_name},
    .classes = true,
    .told = true};
