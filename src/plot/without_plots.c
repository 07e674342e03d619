#include "banyan/plot.h"
#include "base/build.h"

by_status by_plot_write(const by_plot_options *options, const char *path, by_error *error)
{
    BY_UNUSED(options);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}

by_status by_plot_write_all(const by_plot_options *charts, size_t count, const char *path,
                            by_error *error)
{
    BY_UNUSED(charts);
    BY_UNUSED(count);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}

by_status by_pipeline_draw(const by_pipeline *pipeline, const char *path, by_error *error)
{
    BY_UNUSED(pipeline);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}

by_status by_trainer_draw_memory(const by_trainer *trainer, const char *path, by_error *error)
{
    BY_UNUSED(trainer);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}

by_status by_profile_draw(const by_profile_picture *what, const char *path, by_error *error)
{
    BY_UNUSED(what);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}

by_status by_layout_draw(const by_layout_plan *plan, const char *path, by_error *error)
{
    BY_UNUSED(plan);
    return by__build_lacks(BY_BUILD_PLOTS, path, error);
}
