/* Lists of sizes, such as the widths of layers: texts in a config, numbers in config.json. */
#include <errno.h>
#include <stdlib.h>

#include "nn/nn.h"

/* Parses a positive number of at most 2^24; 0: malformed. */
static int64_t read_size(const char *text)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    bool good = errno == 0 && end != text && *end == '\0' && value >= 1 && value <= BY__MI24;
    return good ? value : 0;
}

int64_t by__nn_size_at(const by_string_list *list, int64_t i)
{
    return read_size(list->items[i]);
}

by_status by__nn_sizes_check(const by_config *config, const char *key, const by_string_list *list,
                             by_error *error)
{
    for (size_t i = 0; i < list->count; i++) {
        if (read_size(list->items[i]) == 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: %s: '%s' is not a whole number from 1 to %d",
                                by__config_where(config, key, key), key, list->items[i], BY__MI24);
        }
    }
    return BY_OK;
}

int64_t by__nn_sizes_sum(const by_string_list *list)
{
    int64_t sum = 0;
    for (size_t i = 0; i < list->count; i++) {
        sum += read_size(list->items[i]);
    }
    return sum;
}

by_status by__nn_stages_check(const by_config *config, const by_string_list *depths,
                              const by_string_list *widths, by_error *error)
{
    bool fits = widths->count == 0 || widths->count == depths->count;
    if (depths->count >= 1 && depths->count <= 8 && fits) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: there are 1 to 8 stages, and model.widths has as many entries as "
                        "model.depths or none",
                        by__config_where(config, "model.depths", "model.depths"));
}

json_t *by__nn_sizes_json(const by_string_list *list)
{
    json_t *sizes = json_array();
    for (size_t i = 0; i < list->count; i++) {
        (void)json_array_append_new(sizes, json_integer(read_size(list->items[i])));
    }
    return sizes;
}

by_status by__nn_json_sizes(by_string_list *list, const char *name, const json_t *in,
                            const char *key, by_error *error)
{
    const json_t *sizes = json_object_get(in, key);
    char **items;
    BY_TRY(by__alloc((void **)&items, json_array_size(sizes), sizeof *items, "config.json", error));
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (by_string_list){items, json_array_size(sizes)};
    for (size_t i = 0; i < list->count; i++) {
        json_int_t size = json_integer_value(json_array_get(sizes, i));
        char text[32];
        if (size < 1 || size > BY__MI24) {
            return by_error_set(error, BY_EFORMAT, "%s: \"%s\" holds something other than sizes",
                                name, key);
        }
        (void)snprintf(text, sizeof text, "%lld", (long long)size);
        BY_TRY(by__nn_set_string(&items[i], text, error));
    }
    return BY_OK;
}

static by_status set_sizes(by_string_list *list, const int64_t *sizes, size_t count,
                           by_error *error)
{
    by_string_list made = {0};
    BY_TRY(by__alloc((void **)&made.items, count + 1, sizeof *made.items, "sizes", error));
    by_status status = BY_OK;
    for (; made.count < count && status == BY_OK; made.count++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%lld", (long long)sizes[made.count]);
        status = by__nn_set_string(&made.items[made.count], text, error);
    }
    by_string_list *old = status == BY_OK ? list : &made;
    for (size_t i = 0; i < old->count; i++) {
        free(old->items[i]);
    }
    free(old->items);
    if (status == BY_OK) {
        *list = made;
    }
    return status;
}

by_status by__nn_node_set_hops(by__nn_node_sizes *sizes, const int64_t *nodes, const int64_t *edges,
                               int hops, by_error *error)
{
    BY_TRY(set_sizes(&sizes->hop_nodes, nodes, (size_t)hops, error));
    return set_sizes(&sizes->hop_edges, edges, (size_t)hops, error);
}

void by__nn_node_read_whole(by__nn_node_sizes *sizes)
{
    sizes->sample_nodes = 0;
    sizes->sample_edges = 0;
    sizes->sample_targets = 1;
    sizes->sample_weights = 0;
    sizes->feature_entries = 0;
}
