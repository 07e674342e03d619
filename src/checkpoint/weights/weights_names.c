/* Names in weights: of their files, and the order of their tensors. */
#include <string.h>

#include "checkpoint/storage.h"

bool by__checkpoint_plain_name(const char *name)
{
    return name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

int by__checkpoint_compare_entries(const void *a, const void *b)
{
    return strcmp((*(const by__checkpoint_tensor_entry *const *)a)->name,
                  (*(const by__checkpoint_tensor_entry *const *)b)->name);
}
