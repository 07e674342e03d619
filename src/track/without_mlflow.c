#include "base/build.h"
#include "track/mlflow_client.h"

by_status by__track_mlflow_open(by__track_mlflow **out, const by__track_mlflow_options *options,
                                by_error *error)
{
    BY_UNUSED(out);
    return by__build_lacks(BY_BUILD_CURL, options->server, error);
}

void by__track_mlflow_close(by__track_mlflow **mlflow)
{
    *mlflow = NULL;
}

by_status by__track_mlflow_send(by__track_mlflow *mlflow, bool *more, by_error *error)
{
    BY_UNUSED(mlflow);
    BY_UNUSED(more);
    return by__build_lacks(BY_BUILD_CURL, "MLflow", error);
}

by_status by__track_mlflow_end(by__track_mlflow *mlflow, by_error *error)
{
    BY_UNUSED(mlflow);
    return by__build_lacks(BY_BUILD_CURL, "MLflow", error);
}

uint64_t by__track_mlflow_waiting(const by__track_mlflow *mlflow)
{
    BY_UNUSED(mlflow);
    return 0;
}

by_status by__track_mlflow_rewind(const char *run, by_error *error)
{
    BY_UNUSED(run);
    BY_UNUSED(error);
    return BY_OK;
}

by_status by_mlflow_sync(const by_mlflow_sync_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by__build_lacks(BY_BUILD_CURL, "MLflow", error);
}

const char *by__track_mlflow_library(void)
{
    return NULL;
}
