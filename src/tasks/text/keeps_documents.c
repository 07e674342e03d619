/* Whether samples keep to one document each (data.documents). */
#include <string.h>

#include "tasks/tasks.h"

bool by__task_is_chat(const by_config *config)
{
    return strcmp(config->task.kind, "chat") == 0;
}

bool by__task_keeps_documents(const by_config *config)
{
    const char *documents = config->data.documents; /* NULL for tasks without the key */
    return by__task_is_chat(config) || (documents != NULL && strcmp(documents, "mask") == 0);
}
