/* The schema of a config: the tables of kinds, handed to the config room, which is below their
 * owners and knows none of them. The calls of banyan/config.h that make a config start here. */
#include <stdlib.h>

#include "config/schema.h"
#include "nn/nn.h"
#include "optim/optim.h"
#include "train/tasks/tasks.h"

static const by__kind_table tables[] = {
    {"task", by__task_kind},
    {"model", by__family_kind},
    {"optimizer", by__optimizer_kind},
};
static const by__schema schema = {tables, BY_ARRAY_LENGTH(tables)};

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
    char *path = by__path_join(run, "config.yaml");
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    by_status status = by__config_open(out, &schema, path, overrides, count, true, error);
    free(path);
    return status;
}

by_status by_config_reference(char **out, by_error *error)
{
    return by__config_reference(out, &schema, error);
}
