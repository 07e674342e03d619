/* Stored predictions of a teacher for the training data (distill.logits). */
#include <string.h>

#include "tasks/tasks.h"
#include "tasks/text/language.h"

by_status by__task_open_logits(by_logit_store **out, const by_config *config, size_t train_count,
                               by_error *error)
{
    bool best_fit = strcmp(config->data.packing, "best_fit") == 0;
    bool parts = by__task_keeps_documents(config);
    *out = NULL;
    if (config->distill.logits[0] == '\0') {
        return BY_OK;
    }
    if (train_count != 1 || best_fit || parts) {
        return by_error_set(error, BY_ECONFIG,
                            "distill.logits: they are of one packed directory, read as a stream: "
                            "leave data.%s out",
                            best_fit ? "packing"
                            : parts  ? "documents"
                                     : "mix");
    }
    by_status status = by_logit_store_open(out, config->distill.logits, error);
    return status == BY_OK ? BY_OK : by_error_prefix(error, status, "distill.logits");
}
