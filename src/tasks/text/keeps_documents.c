/* What samples of texts are: parts of documents, whole conversations, or pairs of these. */
#include <string.h>

#include "tasks/tasks.h"

bool by__task_has_pairs(const by_config *config)
{
    return strcmp(config->task.kind, "preference") == 0 || by__task_rates_texts(config);
}

bool by__task_rates_texts(const by_config *config)
{
    return strcmp(config->task.kind, "reward") == 0;
}

bool by__task_is_chat(const by_config *config)
{
    return strcmp(config->task.kind, "chat") == 0 || by__task_has_pairs(config);
}

bool by__task_keeps_documents(const by_config *config)
{
    const char *documents = config->data.documents; /* NULL for tasks without the key */
    bool packed = by__task_is_chat(config) && !by__task_has_pairs(config);
    return packed || (documents != NULL && strcmp(documents, "mask") == 0);
}
