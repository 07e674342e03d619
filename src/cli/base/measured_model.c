#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/measured_model.h"

by_status cli_open_measured(cli_measured_model *out, const char *path, const cli_list *overrides,
                            by_error *error)
{
    struct stat info;
    cli_measured_model m = {0};
    char *found = NULL;
    by_status status;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = cli_find_model(&found, path, error);
        if (status == BY_OK) {
            status = by_pretrained_open(&m.pretrained, found, false, error);
        }
        if (status == BY_OK && overrides->device[0] != '\0') {
            status =
                by_pretrained_use_device(m.pretrained, strchr(overrides->device, '=') + 1, error);
        }
        if (status == BY_OK) {
            m.used = by_pretrained_config(m.pretrained);
            m.weights = by_pretrained_weights(m.pretrained);
        }
    } else {
        status = cli_open_config(&m.config, path, overrides, error);
        if (status == BY_OK && m.config->model.vocab < 0) {
            m.config->model.vocab = CLI_DEFAULT_VOCAB;
        }
        m.used = m.config;
    }
    const char *reads = status == BY_OK ? by_model_reads(&m.used->model) : "tokens";
    if (strcmp(reads, "tokens") != 0) {
        status = by_error_set(error, BY_EARG,
                              "%s: model.kind %s reads %s: what is measured makes text of tokens",
                              path, m.used->model.kind, reads);
    }
    free(found);
    *out = m;
    return status;
}

void cli_close_measured(cli_measured_model *model)
{
    by_config_close(&model->config);
    by_pretrained_close(&model->pretrained);
    *model = (cli_measured_model){0};
}
