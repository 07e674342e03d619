/* Parameters of a new run that the weights to start from do not give (model.new). */
#include "export/export.h"
#include "job/job.h"

static by_status name_them(const by__job *job, by_string *names, by_error *error)
{
    by_weights *weights;
    BY_TRY(by_weights_open(&weights, job->config->model.from, error));
    by_status status = by__export_new_parameters(names, job->config, weights, error);
    by_weights_close(&weights);
    return status;
}

by_status by__job_new_parameters(const by__job *job, by_error *error)
{
    const by_model_config *model = &job->config->model;
    by_string names = {0};
    if (model->new_parameters.count == 0 || job->options->resume != NULL) {
        return BY_OK;
    }
    if (model->from[0] == '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "model.new is %s, and without weights to start from all parameters are "
                            "new: set model.from",
                            model->new_parameters.items[0]);
    }
    by_status status = name_them(job, &names, error);
    if (status == BY_OK && by__job_leads(job)) {
        by__job_note(job, "these parameters are new, and not those of model.from=%.200s: %s",
                     model->from, names.data);
    }
    by_string_free(&names);
    return status;
}
