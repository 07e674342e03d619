/* What the dial measures: the text, and steps of models of some depths. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/paths.h"
#include "config/kind.h"
#include "plan/dial/dial.h"
#include "tasks/text/text_data.h"

/* Deeper models are measured while a step is shorter than this. */
#define MOST_SECONDS 0.5
/* Of a FLOP of a core, where nothing can be measured. */
#define USUAL_SECONDS 1e-10
/* Before the tokenizer is known. */
#define BYTES_PER_TOKEN 3.0
/* Directories in directories of text. */
#define MOST_DEPTH 16

static const int64_t depths[BY_DIAL_TRIALS] = {2, 4, 8, 16};

/* Bytes of a file, or of all files below a directory. */
static by_status add_bytes(double *bytes, const char *path, int depth, by_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return by_error_set(error, BY_EIO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        *bytes += (double)info.st_size;
        return BY_OK;
    }
    DIR *dir = depth < MOST_DEPTH ? opendir(path) : NULL;
    by_status status = BY_OK;
    const struct dirent *entry;
    while (dir != NULL && status == BY_OK && (entry = readdir(dir)) != NULL) {
        char *inside;
        if (entry->d_name[0] == '.') {
            continue;
        }
        status = by__path_make(&inside, path, entry->d_name, error);
        if (status == BY_OK) {
            status = add_bytes(bytes, inside, depth + 1, error);
            free(inside);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return status;
}

by_status by_dial_guess_data(by_dial_data *out, const by_string_list *text, by_error *error)
{
    double bytes = 0.0;
    for (size_t i = 0; i < text->count; i++) {
        BY_TRY(add_bytes(&bytes, text->items[i], 0, error));
    }
    int64_t vocab = by__dial_vocab(&by__dial_laws_of_text, bytes);
    *out = (by_dial_data){.tokens = fmax(bytes / BYTES_PER_TOKEN, 1.0),
                          .bytes_per_token = BYTES_PER_TOKEN,
                          .tokenizer = vocab,
                          .vocab = vocab};
    return BY_OK;
}

by_status by_dial_open_data(by_dial_data *out, const by_train_options *options, by_error *error)
{
    by_task_data *data;
    const by_task *task;
    const by_task_request request = {
        .purpose = BY_TASK_TRAIN, .config = options->config, .progress = options};
    uint64_t tokens;
    uint64_t bytes;
    BY_TRY(by_task_find(&task, options->config, error));
    BY_TRY(by_task_open(&data, NULL, &request, error));
    by__task_text_valid_size(data, &tokens, &bytes);
    *out = (by_dial_data){.tokens = (double)data->train_examples,
                          .tokenizer = out->tokenizer,
                          .bytes_per_token =
                              tokens > 0 && bytes > 0 ? (double)bytes / (double)tokens : 1.0,
                          .vocab = (int64_t)by__task_text_vocab(data),
                          .held = data->bytes,
                          .opening = data->opening_bytes};
    by_task_close(&data);
    return BY_OK;
}

/* The config of a model of so many layers. */
static by_status shape_config(by_config **out, double *flops, const by_config *from,
                              const by_dial_data *data, int64_t layers, by_error *error)
{
    by_dial_choice shape = {0};
    by_config *config;
    BY_TRY(by_config_copy(&config, from, error));
    by__dial_shape(&shape, layers, config->model.context, data->vocab);
    config->model.layers = shape.layers;
    config->model.width = shape.width;
    config->model.heads = shape.heads;
    config->model.kv_heads = -1;
    config->model.mlp_width = -1;
    config->model.init_std = -1.0;
    config->train.micro_batch = -1;
    config->memory.budget = 0;
    *flops = shape.flops_per_token;
    by_status status = by_config_resolve(config, error);
    if (status != BY_OK) {
        by_config_close(&config);
        return status;
    }
    *out = config;
    return BY_OK;
}

/* Measures one as trial `i`; *step: seconds of its step. Where it does not fit into memory, nothing
 * is measured. */
static by_status measure(by_dial_machine *out, double *step, const by_train_options *options,
                         const by_dial_data *data, int64_t layers, double seconds, by_error *error)
{
    by__dial_plan plan;
    by_train_times times;
    by_config *config;
    by_train_options own = *options;
    size_t i = out->count;
    uint64_t limit = (uint64_t)options->config->memory.budget;
    BY_TRY(shape_config(&config, &out->flops[i], options->config, data, layers, error));
    own.config = config;
    by_status status = by__dial_plan_make(&plan, config, data, options, limit, error);
    if (status == BY_OK && plan.fits) {
        config->memory.budget = plan.slower > 1.0 || plan.micro_batch > 0 ? (int64_t)limit : 0;
        status = by_train_measure(&times, &own, seconds, error);
    }
    if (status == BY_OK && plan.fits) {
        double tokens = (double)config->train.batch * (double)config->model.context;
        *step = times.step;
        out->seconds[i] = times.step / tokens / plan.slower;
        out->count++;
    }
    by_config_close(&config);
    return status;
}

/* Measures the smallest model that is chosen. If that does not fit, no other one does, and its
 * speed is not asked for. */
static by_status measure_smallest(by_dial_machine *out, const by_train_options *options,
                                  const by_dial_data *data, double seconds, by_error *error)
{
    by_config *config;
    by_train_options own = *options;
    double step;
    BY_TRY(by_config_copy(&config, options->config, error));
    config->train.batch = BY__DIAL_LEAST_BATCH;
    own.config = config;
    by_status status = measure(out, &step, &own, data, 1, seconds, error);
    by_config_close(&config);
    if (status == BY_OK && out->count == 0) {
        out->seconds[0] = USUAL_SECONDS * out->flops[0];
        out->count = 1;
    }
    return status;
}

by_status by_dial_measure(by_dial_machine *out, const by_train_options *options,
                          const by_dial_data *data, double seconds, by_error *error)
{
    const by_config *c = options->config;
    by_dial_machine machine = {.asked = by__config_is_given(c, "precision.compute")};
    (void)snprintf(machine.precision, sizeof machine.precision, "%s", c->precision.compute);
    for (size_t i = 0; i < BY_DIAL_TRIALS && machine.count == i; i++) {
        double step = 0.0;
        BY_TRY(measure(&machine, &step, options, data, depths[i], seconds / BY_DIAL_TRIALS, error));
        double next = step * pow((double)depths[(i + 1) % BY_DIAL_TRIALS] / (double)depths[i], 3.0);
        if (next > MOST_SECONDS) {
            break;
        }
    }
    if (machine.count == 0) {
        BY_TRY(measure_smallest(&machine, options, data, seconds, error));
    }
    *out = machine;
    return BY_OK;
}
