/* Parses what `banyan serve` should serve: [NAME=]RUN[+ADAPTER]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/serving.h"

#define MAX_WORKERS 256

/* Returns the part after the last '/'. */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

static void cut_slashes(char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        path[--length] = '\0';
    }
}

char *cli_served_adapter(char *path)
{
    char *plus = strrchr(path, '+');
    if (plus == NULL || access(path, F_OK) == 0) {
        return NULL;
    }
    *plus = '\0';
    cut_slashes(plus + 1);
    return plus + 1;
}

/* An existing path is taken as a whole, whatever characters it contains. */
by_status cli_served_parse(cli_served *out, const char *text, by_error *error)
{
    *out = (cli_served){.memory = strdup(text)};
    if (out->memory == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory");
    }
    out->path = out->memory;
    char *equals = strchr(out->path, '=');
    if (equals != NULL && access(out->path, F_OK) != 0) {
        *equals = '\0';
        out->name = out->path;
        out->path = equals + 1;
    }
    out->adapter = cli_served_adapter(out->path);
    cut_slashes(out->path);
    if (out->path[0] == '\0' || (out->name != NULL && out->name[0] == '\0') ||
        (out->adapter != NULL && out->adapter[0] == '\0')) {
        cli_served_free(out);
        return by_error_set(error, BY_EARG, "'%s' is not [NAME=]RUN[+ADAPTER]", text);
    }
    if (out->name == NULL) {
        out->name = last_part(out->adapter == NULL ? out->path : out->adapter);
    }
    return BY_OK;
}

bool cli_read_workers(const char *text, size_t *least, size_t *most)
{
    char *end;
    long long first = strtoll(text, &end, 10);
    bool good = end != text && first >= 0 && first <= MAX_WORKERS;
    long long last = first;
    if (good && *end == ':') {
        const char *second = end + 1;
        last = strtoll(second, &end, 10);
        good = end != second && last >= first && last >= 1 && last <= MAX_WORKERS;
    } else {
        good = good && first >= 1;
    }
    *least = (size_t)first;
    *most = (size_t)last;
    return good && *end == '\0';
}

by_status cli_served_read(cli_served *out, const by_served_model_config *own, by_error *error)
{
    *out = (cli_served){.memory = strdup(own->path), .own = own};
    if (out->memory == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory");
    }
    out->path = out->memory;
    cut_slashes(out->path);
    out->adapter = own->adapter[0] == '\0' ? NULL : own->adapter;
    out->name = own->name[0] != '\0' ? own->name
                                     : last_part(out->adapter == NULL ? out->path : out->adapter);
    if (own->workers[0] != '\0' && !cli_read_workers(own->workers, &out->least, &out->most)) {
        by_error_set(error, BY_ECONFIG,
                     "models: %s: workers is '%s': it must be 1 to 256, or LEAST:MOST such as 1:8",
                     own->path, own->workers);
        cli_served_free(out);
        return BY_ECONFIG;
    }
    return BY_OK;
}

void cli_served_free(cli_served *served)
{
    free(served->memory);
    free(served->settings);
    *served = (cli_served){0};
}
