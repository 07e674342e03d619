#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "plan/plan.h"

/* {"version": 2, "machines": [{"device": ..., "cpu": ..., "key": ..., "isa": ..., "threads": ...,
 * "f32_gflops": ..., ...}]} */
#define VERSION   2
#define MAX_BYTES ((size_t)1 << 20)
/* Entries kept; the oldest are dropped first. */
#define MAX_MACHINES 64

typedef struct cached_figure {
    const char *key;
    size_t offset; /* offset of a double in by_machine */
} cached_figure;

static const cached_figure figures[] = {
    {"f32_gflops", offsetof(by_machine, f32_gflops)},
    {"bf16_gflops", offsetof(by_machine, bf16_gflops)},
    {"int8_gops", offsetof(by_machine, int8_gops)},
    {"own_f32_gflops", offsetof(by_machine, own_f32_gflops)},
    {"own_bf16_gflops", offsetof(by_machine, own_bf16_gflops)},
    {"read_gbps", offsetof(by_machine, read_gbps)},
    {"copy_gbps", offsetof(by_machine, copy_gbps)},
    {"disk_write_gbps", offsetof(by_machine, disk_write_gbps)},
    {"disk_read_gbps", offsetof(by_machine, disk_read_gbps)},
};

by_status by_machine_cache_path(char **out, by_error *error)
{
    return by__cache_path(out, "machine.json", error);
}

/* Returns the array of machines in the file as a new reference, or NULL if the file is not a cache
 * of this version. */
static json_t *read_machines(const char *path)
{
    char *text;
    size_t length;
    if (by__file_read(&text, &length, path, MAX_BYTES, NULL) != BY_OK) {
        return NULL;
    }
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    json_t *version = json_object_get(root, "version");
    json_t *machines = json_object_get(root, "machines");
    machines = json_is_array(machines) && json_integer_value(version) == VERSION
                   ? json_incref(machines)
                   : NULL;
    json_decref(root);
    return machines;
}

bool by__plan_machine_is(const json_t *entry, const by_machine *machine)
{
    const char *cpu = json_string_value(json_object_get(entry, "cpu"));
    const char *key = json_string_value(json_object_get(entry, "key"));
    const char *isa = json_string_value(json_object_get(entry, "isa"));
    const char *device = json_string_value(json_object_get(entry, "device"));
    device = device == NULL ? "cpu" : device; /* of versions without other devices */
    return strcmp(device, machine->device) == 0 && cpu != NULL && key != NULL && isa != NULL &&
           strcmp(cpu, machine->cpu) == 0 && strcmp(key, machine->key) == 0 &&
           strcmp(isa, machine->isa) == 0 &&
           json_integer_value(json_object_get(entry, "threads")) == machine->threads;
}

void by__plan_machine_recall(by_machine *machine, const char *path)
{
    json_t *machines = read_machines(path);
    for (size_t i = 0; i < json_array_size(machines); i++) {
        const json_t *entry = json_array_get(machines, i);
        if (!by__plan_machine_is(entry, machine)) {
            continue;
        }
        for (size_t f = 0; f < BY_ARRAY_LENGTH(figures); f++) {
            double value = json_number_value(json_object_get(entry, figures[f].key));
            if (value > 0.0) {
                memcpy((char *)machine + figures[f].offset, &value, sizeof value);
            }
        }
        machine->disk_direct = json_is_true(json_object_get(entry, "disk_direct"));
        machine->busy =
            (unsigned)json_integer_value(json_object_get(entry, "busy")) & (unsigned)BY_MACHINE_ALL;
        json_int_t retries = json_integer_value(json_object_get(entry, "retries"));
        machine->retries =
            retries >= 0 && retries < BY_MACHINE_RETRIES ? (int)retries : BY_MACHINE_RETRIES;
    }
    json_decref(machines);
}

void by__plan_machine_raise(by_machine *machine, const by_machine *other)
{
    for (size_t f = 0; f < BY_ARRAY_LENGTH(figures); f++) {
        double value;
        double most;
        memcpy(&value, (const char *)other + figures[f].offset, sizeof value);
        memcpy(&most, (const char *)machine + figures[f].offset, sizeof most);
        if (value > most) {
            memcpy((char *)machine + figures[f].offset, &value, sizeof value);
        }
    }
}

json_t *by__plan_machine_name(const by_machine *machine)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "device", machine->device, "cpu", machine->cpu,
                     "key", machine->key, "isa", machine->isa, "threads", machine->threads);
}

static json_t *make_entry(const by_machine *machine)
{
    json_t *entry = by__plan_machine_name(machine);
    bool ok = json_object_set_new(entry, "disk_direct", json_boolean(machine->disk_direct)) == 0 &&
              json_object_set_new(entry, "busy", json_integer(machine->busy)) == 0 &&
              json_object_set_new(entry, "retries", json_integer(machine->retries)) == 0;
    for (size_t f = 0; f < BY_ARRAY_LENGTH(figures) && ok; f++) {
        double value;
        memcpy(&value, (const char *)machine + figures[f].offset, sizeof value);
        ok = value <= 0.0 || json_object_set_new(entry, figures[f].key, json_real(value)) == 0;
    }
    if (!ok) {
        json_decref(entry);
        entry = NULL;
    }
    return entry;
}

/* Returns the text of the cache with this machine added; NULL when memory is exhausted. */
static char *make_text(const by_machine *machine, const char *path)
{
    json_t *machines = read_machines(path);
    char *text = NULL;
    if (machines == NULL) {
        machines = json_array();
    }
    for (size_t i = json_array_size(machines); i-- > 0;) {
        if (by__plan_machine_is(json_array_get(machines, i), machine)) {
            (void)json_array_remove(machines, i);
        }
    }
    while (json_array_size(machines) >= MAX_MACHINES) {
        (void)json_array_remove(machines, 0);
    }
    if (json_array_append_new(machines, make_entry(machine)) == 0) {
        json_t *root = json_pack("{s:i, s:O}", "version", VERSION, "machines", machines);
        text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        json_decref(root);
    }
    json_decref(machines);
    return text;
}

by_status by__plan_machine_remember(const by_machine *machine, const char *path, by_error *error)
{
    char *directory = by__strndup(path, (size_t)(strrchr(path, '/') - path));
    char *text = make_text(machine, path);
    by_status status = directory == NULL || text == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: machine cache")
                           : by__make_dirs(directory, error);
    if (status == BY_OK) {
        status = by__file_write(path, text, strlen(text), error);
    }
    free(text);
    free(directory);
    return status;
}

by_status by_machine_store(const by_machine *machine, by_error *error)
{
    char *path;
    BY_TRY(by_machine_cache_path(&path, error));
    by_status status = by__plan_machine_remember(machine, path, error);
    free(path);
    return status;
}
