/* Removal of a run. Nothing is removed that a process trains, serves or reads, or that another run
 * was started from. */
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/runs.h"
#include "base/paths.h"
#include "checkpoint/storage.h"
#include "track/track.h"

/* The run and the directory that it is in. */
typedef struct run_location {
    char *run;  /* absolute */
    char *runs; /* absolute, and its last name */
    const char *name;
    const char *runs_name;
} run_location;

static void free_place(run_location *p)
{
    free(p->run);
    free(p->runs);
}

static by_status find_place(run_location *out, const char *run, by_error *error)
{
    struct stat info;
    char *paths[2] = {by__path_join(run, "run.json"), by__path_join(run, "config.yaml")};
    bool is_run = paths[0] != NULL && paths[1] != NULL && by__path_exists(paths[0]) &&
                  by__path_exists(paths[1]);
    free(paths[0]);
    free(paths[1]);
    *out = (run_location){0};
    if (!is_run) {
        return by_error_set(error, BY_EARG,
                            "%s is not a run directory: it lacks run.json or config.yaml", run);
    }
    if (lstat(run, &info) != 0 || S_ISLNK(info.st_mode)) {
        return by_error_set(error, BY_EARG, "%s is a link: name the directory that it leads to",
                            run);
    }
    out->run = realpath(run, NULL);
    out->runs = out->run == NULL ? NULL : by__strdup(out->run);
    char *slash = out->runs == NULL ? NULL : strrchr(out->runs, '/');
    if (slash == NULL || slash == out->runs) {
        free_place(out);
        return by_error_set(error, BY_EARG, "%s is not below a directory of runs", run);
    }
    *slash = '\0';
    out->name = out->run + (slash - out->runs) + 1;
    out->runs_name = strrchr(out->runs, '/') + 1;
    return BY_OK;
}

/* ---- what forbids it ---- */

/* Whether a config names a path in RUNS/NAME. */
static bool names_run(const char *text, const run_location *p)
{
    size_t n = strlen(p->name);
    for (const char *at = text; (at = strstr(at, p->name)) != NULL; at += n) {
        size_t m = strlen(p->runs_name);
        bool behind = at > text + m && at[-1] == '/' && memcmp(at - 1 - m, p->runs_name, m) == 0;
        if (behind && strchr("/\"'\n ,]", at[n]) != NULL) {
            return true;
        }
    }
    return false;
}

/* Refuses if the config of another run names this one: as its base, its teacher or its adapter. */
static by_status check_dependents(const run_location *p, by_error *error)
{
    char **names;
    size_t count;
    by_status status = BY_OK;
    BY_TRY(by__list_dir(&names, &count, p->runs, error));
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *run = by__path_join(p->runs, names[i]);
        char *file = run == NULL ? NULL : by__path_join(run, "config.yaml");
        char *text = NULL;
        size_t length;
        if (strcmp(names[i], p->name) != 0 && file != NULL && by__path_exists(file) &&
            by__file_read(&text, &length, file, 1 << 20, NULL) == BY_OK && names_run(text, p)) {
            status = by_error_set(error, BY_ESTATE,
                                  "%s is used by %s, whose config names it: delete that first",
                                  p->run, run);
        }
        free(text);
        free(file);
        free(run);
    }
    by__names_free(names, count);
    return status;
}

/* Takes all checkpoints, so that nobody begins to read one. *leases is freed by the caller. */
static by_status lease_checkpoints(by__checkpoint_lease ***leases, size_t *taken,
                                   const run_location *p, by_error *error)
{
    char **names = NULL;
    size_t count = 0;
    uint64_t step;
    char *root;
    BY_TRY(by__path_make(&root, p->run, "checkpoints", error));
    by_status status = by__path_is_dir(root) ? by__list_dir(&names, &count, root, error) : BY_OK;
    if (status == BY_OK) {
        status = by__alloc((void **)leases, count + 1, sizeof **leases, "checkpoints", error);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char *path = by__path_join(root, names[i]);
        if (path != NULL && by__checkpoint_step_of_name(names[i], &step) &&
            !by__checkpoint_lease_exclusive(&(*leases)[(*taken)++], path)) {
            (*taken)--;
            status = by_error_set(error, BY_ESTATE,
                                  "%s is in use: a server or another process reads it", path);
        }
        free(path);
    }
    by__names_free(names, count);
    free(root);
    return status;
}

/* ---- removal ---- */

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    BY_UNUSED(info);
    BY_UNUSED(at);
    return (type == FTW_DP ? rmdir(path) : unlink(path)) == 0 ? 0 : -1;
}

/* Gives the directory another name first, by which nobody takes what is left of it for a run. */
static by_status remove_directory(const run_location *p, by_error *error)
{
    by_string text = {0};
    char *path;
    by_string_format(&text, "%s/.%s.removed-%ld", p->runs, p->name, (long)getpid());
    BY_TRY(by__string_release(&text, &path, error));
    by_status status = rename(p->run, path) == 0 ? BY_OK : by__io_error(error, "remove", p->run);
    char *record = status == BY_OK ? by__path_join(path, "run.json") : NULL;
    if (record != NULL) {
        (void)unlink(record);
    }
    if (status == BY_OK && nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0) {
        status = by__io_error(error, "remove all of", path);
    }
    free(record);
    free(path);
    return status;
}

static void drop_from_registry(const run_location *p)
{
    by_registry *registry;
    char *path = by__path_join(p->runs, "registry.sqlite");
    if (path != NULL && by__path_exists(path) &&
        by_registry_open(&registry, p->runs, NULL) == BY_OK) {
        (void)by__track_registry_drop(registry, p->name,
                                      NULL); /* an index, which can be made anew */
        by_registry_close(&registry);
    }
    free(path);
}

by_status by_run_remove(const char *run, by_error *error)
{
    run_location p;
    int lock = -1;
    by__checkpoint_lease **leases = NULL;
    size_t taken = 0;
    BY_TRY(find_place(&p, run, error));
    by_status status =
        by__track_run_is_held(p.run)
            ? by_error_set(error, BY_ESTATE, "%s is being trained; stop that first", p.run)
            : by__track_run_lock(&lock, p.run, error);
    if (status == BY_OK) {
        status = check_dependents(&p, error);
    }
    if (status == BY_OK) {
        status = lease_checkpoints(&leases, &taken, &p, error);
    }
    if (status == BY_OK) {
        status = remove_directory(&p, error);
    }
    if (status == BY_OK) {
        drop_from_registry(&p);
    }
    for (size_t i = 0; i < taken; i++) {
        by__checkpoint_lease_close(&leases[i]);
    }
    free(leases);
    by__track_run_unlock(&lock);
    free_place(&p);
    return status;
}
