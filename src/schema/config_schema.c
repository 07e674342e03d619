/* The schema of a config: passes the tables of kinds to the module config, which is below their
 * owners and does not know them. The functions of banyan/config.h that make a config are here. */
#include <stdio.h>
#include <stdlib.h>

#include "config/schema.h"
#include "device/device.h"
#include "nn/nn.h"
#include "optim/optim.h"
#include "schema/config_history.h"
#include "tasks/tasks.h"

static const by__config_kind_table tables[] = {
    {"task", by__task_kind},
    {"model", by__nn_family_kind},
    {"optimizer", by__optim_kind},
    /* Parts of models, behind model, whose kinds have their keys. */
    {"attention", by__nn_attention_kind},
    {"values", by__nn_values_kind},
    {"residual", by__nn_residual_kind},
    {"position", by__nn_position_kind},
    {"norm", by__nn_norm_kind},
    {"mlp", by__nn_mlp_kind},
    {"activation", by__nn_activation_kind},
};
static const by__config_schema schema = {.tables = tables,
                                         .table_count = BY_ARRAY_LENGTH(tables),
                                         .sections = &by__config_run_sections,
                                         .keys = &by__config_run_keys,
                                         .check_device = by__device_check,
                                         .fastest = by__device_fastest};

static const char reference_head[] =
    "# Configuration\n\n"
    "All keys of a run's config, one YAML file. `base: other.yaml` (a path relative to the file\n"
    "that names it) includes another file; keys of this file override those of the base, lists\n"
    "as a whole. On the command line, `--set section.key=value` overrides a key of the file; its\n"
    "value is taken literally unless it starts with `[`, `\"` or `'`, which is read as YAML. The\n"
    "resolved config is hashed and stored as `config.yaml` in the run's directory, whose path is\n"
    "printed; `banyan info CONFIG --config` prints it without training.\n\n"
    "A section with a key `kind` has further keys for each kind, listed below the section's own.\n"
    "It is an error, reported with file and line, if a key is unknown, is given twice or does not\n"
    "belong to the chosen kind, or if a value has the wrong type or is out of range. Whole\n"
    "numbers may be written as `1_000` or `1e3`, and a list of one element without brackets. If a\n"
    "key accepts -1, the value is derived as the table says.\n\n"
    "<!-- Generated from the declarations of all keys; regenerate it with\n"
    "     `build/debug/tests/test_config --write`. -->\n";

by_status by_config_default(by_config **out, by_error *error)
{
    by__config *made;
    BY_TRY(by__config_new(&made, &schema, error));
    *out = &made->config;
    return BY_OK;
}

by_status by_config_parse(by_config **out, const char *name, const char *text, size_t length,
                          const char *const *overrides, size_t count, by_error *error)
{
    return by__config_parse(out, &schema, name, text, length, overrides, count, false, error);
}

by_status by_config_open(by_config **out, const char *path, const char *const *overrides,
                         size_t count, by_error *error)
{
    return by__config_open(out, &schema, path, overrides, count, false, error);
}

by_status by_config_open_run(by_config **out, const char *run, const char *const *overrides,
                             size_t count, by_error *error)
{
    uint64_t *steps = NULL;
    size_t step_count = 0;
    char *path = NULL;
    /* What cannot be listed may be read all the same. */
    (void)by__schema_config_steps(&steps, &step_count, run, NULL);
    by_status status =
        by__schema_config_file(&path, run, step_count == 0 ? 0 : steps[step_count - 1], error);
    free(steps);
    if (status == BY_OK) {
        status = by__config_open(out, &schema, path, overrides, count, true, error);
    }
    free(path);
    return status;
}

bool by_config_suggest(char out[256], const char *name)
{
    by__config *made;
    by_string text = {0};
    if (by__config_new(&made, &schema, NULL) != BY_OK) {
        return false;
    }
    bool found = by__config_key_suggest(&text, made, name) && !text.failed;
    (void)snprintf(out, 256, "%s", found ? text.data : "");
    by_string_free(&text);
    by_config *config = &made->config;
    by_config_close(&config);
    return found;
}

by_status by__schema_config_print_file(char **out, const char *path, by_error *error)
{
    by_config *config;
    BY_TRY(by__config_open(&config, &schema, path, NULL, 0, true, error));
    by_status status = by_config_print(config, out, error);
    by_config_close(&config);
    return status;
}

by_status by_config_reference(char **out, by_error *error)
{
    return by__config_reference(out, &schema, reference_head, error);
}
