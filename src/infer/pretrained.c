#include <stdlib.h>
#include <string.h>

#include "banyan/adapter.h"
#include "banyan/path_hint.h"
#include "config/schema.h"
#include "export/export.h"
#include "export/gguf_model.h"
#include "formats/gguf_file.h"
#include "infer/infer.h"

struct by_pretrained {
    by_config *config;
    by_weights *weights;
    by__export_gguf_model *gguf; /* the GGUF file of the weights, if there is one */
    char *directory;             /* the directory of the weights, or the GGUF file */
    char *skipped;               /* NULL: none */
    bool is_run;
    bool has_adapter; /* added to the weights */
};

static by_status out_of_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a path");
}

/* Opens a run's config without its quantisation-aware training, since its weights are used as they
 * are, and for any device: this machine need not have the one that it was trained on. */
static by_status open_run_config(by_pretrained *p, const char *run, by_error *error)
{
    BY_TRY(by_config_open_run(&p->config, run, NULL, 0, error));
    p->is_run = true;
    BY_TRY(by_config_set(p->config, "device=auto", error));
    return by_config_set(p->config, "precision.qat=none", error);
}

/* Handles a PATH that is a run: opens its config and finds the wanted checkpoint. */
static by_status find_in_run(by_pretrained *p, const char *path, const char *root, bool best,
                             by_error *error)
{
    BY_TRY(open_run_config(p, path, error));
    return best ? by_checkpoint_best(root, &p->directory, NULL, error)
                : by_checkpoint_latest(root, &p->directory, &p->skipped, error);
}

/* Handles a PATH that contains the weights itself. */
static by_status set_directory(by_pretrained *p, const char *path, bool best, by_error *error)
{
    if (best) {
        return by_error_set(error, BY_EARG, "%s is not a run, so it has no best checkpoint", path);
    }
    p->directory = by__strdup(path);
    return p->directory == NULL ? out_of_memory(error) : by_config_default(&p->config, error);
}

static by_status refuse_path(const char *path, by_error *error)
{
    static const char give[] = "; give a run (with checkpoints/ and config.yaml), a directory with "
                               "config.json and weights, or a GGUF file";
    char near[BY_PATH_HINT] = "";
    bool there = by__path_exists(path);
    if (!there) {
        (void)by_path_hint(near, path);
    }
    return by_error_set(error, BY_ECONFIG, "%s: %s%s", path,
                        by__path_is_dir(path) ? "no model is here"
                        : there               ? "it is neither a directory nor a GGUF file"
                                              : "there is no such directory",
                        near[0] != '\0' ? near : give);
}

static by_status find_directory(by_pretrained *p, const char *path, bool best, by_error *error)
{
    char *root = by__path_join(path, "checkpoints");
    char *file = by__path_join(path, "config.json");
    by_status status = BY_OK;
    if (root == NULL || file == NULL) {
        status = out_of_memory(error);
    } else if (by__path_is_dir(root)) {
        status = find_in_run(p, path, root, best, error);
    } else if (by__path_exists(file)) {
        status = set_directory(p, path, best, error);
    } else {
        status = refuse_path(path, error);
    }
    free(root);
    free(file);
    return status;
}

/* Takes the task from config.json if no run says what the weights were trained for. */
static by_status derive_task(by_pretrained *p, by_error *error)
{
    char setting[64];
    (void)snprintf(setting, sizeof setting, "task.kind=%s", by_model_usual_task(&p->config->model));
    return p->is_run ? BY_OK : by_config_set(p->config, setting, error);
}

/* Weights of a directory or a file that are stored in bf16 are used so: f32 would take twice the
 * memory, and restore nothing of what rounding took. Others are not rounded unless asked for. */
static by_status derive_precision(by_pretrained *p, by_error *error)
{
    bool narrow =
        strcmp(by_model_reads(&p->config->model), "tokens") == 0 && by__weights_in_bf16(p->weights);
    return p->is_run
               ? BY_OK
               : by_config_set(p->config,
                               narrow ? "precision.compute=bf16" : "precision.compute=f32", error);
}

/* Takes the model from the weights' own config.json, even if the run's config differs. */
static by_status read_model(by_pretrained *p, by_error *error)
{
    const char *text = by_weights_config(p->weights);
    char *name = by__path_join(p->directory, "config.json");
    by_status status = BY_OK;
    if (name == NULL) {
        return out_of_memory(error);
    }
    if (text == NULL) {
        status = by_error_set(error, BY_EFORMAT, "%s is missing: it describes the weights", name);
    } else {
        status = by_model_config_from_json(&p->config->model, name, text, strlen(text), error);
    }
    if (status == BY_OK && p->is_run) {
        /* The model is now as the weights describe it, windows of attention by keys of the model:
         * keys of the sections that the run's config had for them do not count. */
        by__config_drop_foreign((by__config *)p->config);
    }
    if (status == BY_OK) {
        status = derive_task(p, error);
    }
    if (status == BY_OK) {
        status = derive_precision(p, error);
    }
    if (status == BY_OK) {
        status = by_config_resolve(p->config, error);
        if (status != BY_OK) {
            (void)by_error_prefix(error, status, "%s", name);
        }
    }
    if (status == BY_OK) {
        status = by__export_check_shapes(p->config, p->weights, NULL, error);
    }
    free(name);
    return status;
}

/* Disables adapters in the config, because they are merged into the weights. It keeps how they were
 * trained: preferences are compared with the weights that they began on. */
static by_status drop_adapters(by_config *config, by_error *error)
{
    static const char *const none[] = {"lora.rank=0",        "lora.alpha=-1", "lora.targets=[]",
                                       "lora.train_also=[]", "lora.from=",    "lora.base=full"};
    BY_TRY(by__config_keep_trained(config, error));
    for (size_t i = 0; i < BY_ARRAY_LENGTH(none); i++) {
        BY_TRY(by_config_set(config, none[i], error));
    }
    return BY_OK;
}

by_status by_pretrained_adapt(by_pretrained *p, const char *directory, by_error *error)
{
    by_adapter *adapter;
    BY_TRY(by_adapter_open(&adapter, directory, error));
    BY_TRY(by_weights_adapt(p->weights, &adapter, false, error));
    p->has_adapter = true;
    return drop_adapters(p->config, error);
}

/* Uses the adapters of a checkpoint that has them next to their base weights. */
static by_status apply_own_adapter(by_pretrained *p, by_error *error)
{
    char *file = by__path_join(p->directory, BY_ADAPTER_CONFIG);
    if (file == NULL) {
        return out_of_memory(error);
    }
    bool there = by__path_exists(file);
    free(file);
    return there ? by_pretrained_adapt(p, p->directory, error) : BY_OK;
}

static by_status open_gguf(by_pretrained *p, const char *path, bool best, by_error *error)
{
    BY_TRY(set_directory(p, path, best, error));
    BY_TRY(by__export_gguf_model_open(&p->gguf, path, error));
    return by__export_gguf_model_weights(&p->weights, p->gguf, error);
}

static by_status open_directory(by_pretrained *p, const char *path, bool best, by_error *error)
{
    BY_TRY(find_directory(p, path, best, error));
    return by_weights_open(&p->weights, p->directory, error);
}

static by_status open_checkpoint(by_pretrained *p, const char *run, const char *checkpoint,
                                 by_error *error)
{
    BY_TRY(open_run_config(p, run, error));
    p->directory = by__strdup(checkpoint);
    return p->directory == NULL ? out_of_memory(error)
                                : by_weights_open(&p->weights, p->directory, error);
}

/* Completes the opening after the weights were opened with `status`. */
static by_status complete(by_pretrained **out, by_pretrained *p, by_status status, by_error *error)
{
    if (status == BY_OK) {
        status = apply_own_adapter(p, error);
    }
    if (status == BY_OK) {
        status = read_model(p, error);
    }
    if (status != BY_OK) {
        by_pretrained_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

by_status by_pretrained_open(by_pretrained **out, const char *path, bool best, by_error *error)
{
    by_pretrained *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pretrained model", error));
    by_status status = by__format_gguf_is_file(path) ? open_gguf(p, path, best, error)
                                                     : open_directory(p, path, best, error);
    return complete(out, p, status, error);
}

by_status by_pretrained_open_checkpoint(by_pretrained **out, const char *run,
                                        const char *checkpoint, by_error *error)
{
    by_pretrained *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pretrained model", error));
    return complete(out, p, open_checkpoint(p, run, checkpoint, error), error);
}

by_status by_pretrained_open_like(by_pretrained **out, const char *path, const by_pretrained *model,
                                  by_error *error)
{
    by_pretrained *p;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "pretrained model", error));
    p->is_run = true; /* its config defines the task */
    p->directory = by__strdup(path);
    by_status status = p->directory == NULL ? out_of_memory(error) : BY_OK;
    if (status == BY_OK) {
        status = by_config_copy(&p->config, model->config, error);
    }
    if (status == BY_OK) {
        p->config->model.from[0] = '\0';
        status = by_weights_open(&p->weights, path, error);
    }
    if (status == BY_OK) {
        status = read_model(p, error);
    }
    if (status != BY_OK) {
        by_pretrained_close(&p);
        return status;
    }
    *out = p;
    return BY_OK;
}

by_status by_pretrained_use_device(by_pretrained *p, const char *name, by_error *error)
{
    char device[BY_DEVICE_NAME];
    char setting[BY_DEVICE_NAME + 16];
    BY_TRY(by_device_resolve(device, name, error));
    (void)snprintf(setting, sizeof setting, "device=%s", device);
    return by_config_set(p->config, setting, error);
}

by_status by_pretrained_use_average(by_pretrained *p, by_error *error)
{
    by_weights *averages;
    if (!p->is_run) {
        return by_error_set(error, BY_EARG,
                            "%s is not a run, so it has no moving average of the weights",
                            p->directory);
    }
    if (p->has_adapter) {
        return by_error_set(
            error, BY_EARG,
            "%s has adapters that are added to the weights, and no moving average of the result",
            p->directory);
    }
    BY_TRY(by_weights_open_averages(&averages, p->directory, error));
    by_weights_close(&p->weights);
    p->weights = averages;
    return BY_OK;
}

void by_pretrained_close(by_pretrained **pretrained)
{
    if (pretrained == NULL || *pretrained == NULL) {
        return;
    }
    by_pretrained *p = *pretrained;
    by_config_close(&p->config);
    by_weights_close(&p->weights);
    by__export_gguf_model_close(&p->gguf);
    free(p->directory);
    free(p->skipped);
    free(p);
    *pretrained = NULL;
}

const by_config *by_pretrained_config(const by_pretrained *pretrained)
{
    return pretrained->config;
}

const by_weights *by_pretrained_weights(const by_pretrained *pretrained)
{
    return pretrained->weights;
}

by_status by_pretrained_tokenizer(by_tokenizer **out, const by_pretrained *model, by_error *error)
{
    const char *reads = by_model_reads(&model->config->model);
    if (strcmp(reads, "tokens") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.kind %s reads %s and writes no text: `banyan %s` is for it",
                            model->directory, model->config->model.kind,
                            strcmp(reads, "table") == 0 ? "rows of a table" : reads,
                            strcmp(by_model_usual_task(&model->config->model), "diffuse") == 0
                                ? "generate --image"
                                : "predict");
    }
    return by_tokenizer_open(out, model->directory, error);
}

const char *by_pretrained_directory(const by_pretrained *pretrained)
{
    return pretrained->directory;
}

const char *by_pretrained_skipped(const by_pretrained *pretrained)
{
    return pretrained->skipped == NULL ? "" : pretrained->skipped;
}

void by__infer_pretrained_identify(char out[33], const by_pretrained *pretrained)
{
    static const char *const names[] = {"manifest.json", "model.safetensors.index.json",
                                        "model.safetensors"};
    const char *directory = pretrained->directory;
    memset(out, '0', 32);
    out[32] = '\0';
    bool found = pretrained->gguf != NULL && by__hash_file_hex(out, directory, NULL) == BY_OK;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names) && !found; i++) {
        char *path = by__path_join(directory, names[i]);
        found =
            path != NULL && by__path_exists(path) && by__hash_file_hex(out, path, NULL) == BY_OK;
        free(path);
    }
}
