#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "banyan/infer.h"
#include "banyan/path_hint.h"
#include "banyan/remote.h"
#include "banyan/train.h"
#include "base/cli.h"

/* Every rank of a job opens the config. */
static void show_notes(const by_config *config)
{
    int rank, ranks;
    const char *notes = by_config_notes(config);
    cli_find_rank(&rank, &ranks);
    if (notes != NULL && rank == 0) {
        cli_print_lines(stderr, notes);
        fprintf(stderr, "\n");
    }
}

by_status cli_open_config(by_config **out, const char *path, const cli_list *overrides,
                          by_error *error)
{
    struct stat info;
    char file[4096];
    char near[BY_PATH_HINT];
    const char *const *items = overrides == NULL ? NULL : overrides->items;
    size_t count = overrides == NULL ? 0 : overrides->count;
    bool is_run = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    (void)snprintf(file, sizeof file, "%s%s", path, is_run ? "/config.yaml" : "");
    by_status status = is_run ? by_config_open_run(out, path, items, count, error)
                              : by_config_open(out, path, items, count, error);
    if (status == BY_EIO && access(file, F_OK) != 0) {
        /* A name that is wrong: never worth a retry. */
        status = by_error_set(error, BY_ECONFIG, "config file %s does not exist%s", file,
                              by_path_hint(near, path));
    }
    if (status == BY_OK) {
        status = by_config_resolve(*out, error);
        if (status != BY_OK) {
            by_config_close(out);
        }
    }
    if (status == BY_OK) {
        show_notes(*out);
    }
    return status;
}

int cli_with_config(const cli_command *command, const char *path, const cli_list *overrides,
                    by_status (*work)(void *user, by_config *config, by_error *error), void *user)
{
    by_config *config;
    by_error error = {0};
    by_status status = cli_open_config(&config, path, overrides, &error);
    if (status == BY_OK) {
        status = work(user, config, &error);
        by_config_close(&config);
    }
    return status == BY_OK ? CLI_DONE : cli_fail(command, &error);
}

by_status cli_find_model(char **out, const char *path, by_error *error)
{
    char inside[4096];
    (void)snprintf(inside, sizeof inside, "%s/config.json", path);
    if (access(inside, F_OK) != 0) {
        return by_run_find(out, path, error);
    }
    *out = strdup(path);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
}

void cli_tell_written(const char *path)
{
    if (path != NULL) {
        fprintf(stderr, "wrote %s\n", path);
    }
}

by_status cli_redirect(const char *path, by_error *error)
{
    return path == NULL || freopen(path, "w", stdout) != NULL
               ? BY_OK
               : by_error_set(error, BY_EIO, "cannot write %s: %s", path, strerror(errno));
}

int cli_tell_failed(const cli_command *command, size_t failed, size_t all)
{
    if (failed == 0) {
        return CLI_DONE;
    }
    fprintf(stderr, "banyan %s: %zu of %zu texts failed: \"error\" in their lines says why\n",
            command->name, failed, all);
    return CLI_FAILED;
}

const char *cli_duration(char buffer[32], double seconds)
{
    if (!(seconds < 1e15)) { /* no number, or beyond those that a long holds to the second */
        (void)snprintf(buffer, 32, "%.4gh", seconds / 3600.0);
        return buffer;
    }
    long s = seconds < 0.0 ? 0 : (long)(seconds + 0.5);
    if (s >= 3600) {
        (void)snprintf(buffer, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    } else if (s >= 60) {
        (void)snprintf(buffer, 32, "%ldm%02lds", s / 60, s % 60);
    } else {
        (void)snprintf(buffer, 32, "%lds", s);
    }
    return buffer;
}

int cli_check_input(const cli_command *command, const char *path)
{
    struct stat info;
    char near[BY_PATH_HINT];
    /* An array of an archive, FILE.npz/NAME, is below a file. */
    if (by_remote_is(path) || stat(path, &info) == 0 || errno != ENOENT) {
        return -1;
    }
    fprintf(stderr, "banyan %s: there is no file or directory %s%s\n", command->name, path,
            by_path_hint(near, path));
    cli_record_failure(
        &(by_error){.status = BY_EIO, .message = "there is no such file or directory"});
    return CLI_USAGE;
}

int cli_check_data(const cli_command *command, const char *data)
{
    char first[4096];
    struct stat info;
    const char *comma = data == NULL ? NULL : strchr(data, ',');
    if (data == NULL || strcmp(data, "-") == 0) {
        return -1;
    }
    if (comma == NULL || stat(data, &info) == 0 || (size_t)(comma - data) >= sizeof first) {
        return cli_check_input(command, data);
    }
    (void)snprintf(first, sizeof first, "%.*s", (int)(comma - data), data);
    int code = cli_check_input(command, first);
    return code >= 0 ? code : cli_check_input(command, comma + 1);
}

int cli_check_inputs(const cli_command *command, char **paths, int count)
{
    int code = -1;
    for (int i = 0; i < count && code < 0; i++) {
        code = cli_check_input(command, paths[i]);
    }
    return code;
}

const char *cli_json_number(char buffer[32], double value, int digits)
{
    if (isfinite(value)) {
        (void)snprintf(buffer, 32, "%.*g", digits, value);
    } else {
        (void)snprintf(buffer, 32, "null");
    }
    return buffer;
}

const char *cli_short_number(char buffer[32], const char *text, int digits)
{
    bool fraction = strchr(text, '.') != NULL || strchr(text, 'e') != NULL;
    if (!fraction || strlen(text) <= (size_t)digits) {
        return text;
    }
    (void)snprintf(buffer, 32, "%.*g", digits, strtod(text, NULL));
    return buffer;
}

const char *cli_number(char buffer[32], double value, int decimals)
{
    if (isfinite(value)) {
        (void)snprintf(buffer, 32, "%.*f", decimals, value);
    } else {
        (void)snprintf(buffer, 32, "-");
    }
    return buffer;
}

const char *cli_share(char buffer[32], double share, int decimals, const char *unit)
{
    if (share > 1.0) {
        (void)snprintf(buffer, 32, ">100%s", unit);
    } else {
        (void)snprintf(buffer, 32, "%.*f%s", decimals, 100.0 * share, unit);
    }
    return buffer;
}

const char *cli_ms(char buffer[32], double ms)
{
    (void)snprintf(buffer, 32,
                   ms >= 9.995 || ms <= 0.0 ? "%.1f"
                   : ms >= 0.01             ? "%.3f"
                                            : "%.2g",
                   ms);
    return buffer;
}

double cli_trained_percent(const by_model_size *size)
{
    return 100.0 * (double)size->trained / (double)size->parameters;
}

/* Returns true if a path is that of a run, and not of a directory of runs. */
static bool is_run(const char *path)
{
    char file[4096];
    (void)snprintf(file, sizeof file, "%s/config.yaml", path);
    return access(file, F_OK) == 0;
}

/* *run: the run directory, NULL where there is none, freed with free(). */
static by_status open_pretrained(by_pretrained **out, char **run, const char *path,
                                 const char *device, bool best, bool ema, const char *adapter,
                                 by_error *error)
{
    /* Neither a run nor a directory of runs: a directory in Hugging Face format, or an error. */
    if (by_run_find(run, path, NULL) != BY_OK) {
        *run = NULL;
    }
    by_status status = by_pretrained_open(out, *run != NULL ? *run : path, best, error);
    if (status == BY_OK && *run != NULL && !is_run(path)) {
        fprintf(stderr, "using %s, the newest run in %s\n", by_pretrained_directory(*out), path);
    }
    if (status == BY_OK && by_pretrained_skipped(*out)[0] != '\0') {
        cli_print_lines(stderr, by_pretrained_skipped(*out));
    }
    if (status == BY_OK && device != NULL) {
        status = by_pretrained_use_device(*out, device, error);
    }
    if (status == BY_OK && ema) {
        status = by_pretrained_use_average(*out, error);
    }
    if (status == BY_OK && adapter != NULL) {
        status = by_pretrained_adapt(*out, adapter, error);
    }
    return status;
}

by_status cli_check_writes(const by_pretrained *model, by_error *error)
{
    const char *directory = by_pretrained_directory(model);
    if (strcmp(by_pretrained_config(model)->task.kind, "reward") != 0) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s was trained with task.kind reward: it rates texts and writes none: "
                        "`banyan classify %s --batch FILE` prints the reward of each line",
                        directory, directory);
}

by_status cli_open_pretrained(by_pretrained **out, const char *path, const char *device, bool best,
                              bool ema, const char *adapter, by_error *error)
{
    char *run = NULL;
    by_status status = open_pretrained(out, &run, path, device, best, ema, adapter, error);
    free(run);
    return status;
}

int cli_with_pretrained(const cli_command *command, const char *path, const char *device, bool best,
                        bool ema, const char *adapter,
                        by_status (*work)(void *user, const by_pretrained *model, const char *run,
                                          by_error *error),
                        void *user)
{
    by_error error = {0};
    by_pretrained *model = NULL;
    char *run = NULL;
    cli_catch_signals();
    by_status status = open_pretrained(&model, &run, path, device, best, ema, adapter, &error);
    if (status == BY_OK) {
        status = work(user, model, run, &error);
    }
    by_pretrained_close(&model);
    free(run);
    return status == BY_OK ? CLI_DONE : cli_fail(command, &error);
}

by_status cli_copy_config(by_config **out, const by_pretrained *model, by_error *error)
{
    by_config *config;
    by_status status = by_config_copy(&config, by_pretrained_config(model), error);
    if (status == BY_OK) {
        config->model.from[0] = '\0';
        *out = config;
    }
    return status;
}

void cli_print_metrics_json(const by_evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->task->metric_count; i++) {
        char text[32];
        if (evaluation->metrics[i] == evaluation->metrics[i] || !isfinite(evaluation->loss)) {
            printf(",\"%s\":%s", evaluation->task->metrics[i].name,
                   cli_json_number(text, evaluation->metrics[i], 9));
        }
    }
    for (size_t i = 0; i < evaluation->output_metric_count; i++) {
        const by_output_metric *m = &evaluation->output_metrics[i];
        char text[32];
        if (m->value == m->value || !isfinite(evaluation->loss)) {
            printf(",");
            cli_print_json_string(m->name);
            printf(":%s", cli_json_number(text, m->value, 9));
        }
    }
}

void cli_print_parts_json(const by_evaluation *evaluation)
{
    for (size_t i = 0; i < evaluation->part_count; i++) {
        char text[32];
        printf(",\"%s\":%s", evaluation->parts[i].part->key,
               cli_json_number(text, evaluation->parts[i].loss, 9));
        if (!isnan(evaluation->parts[i].metric)) {
            printf(",\"%s\":%s", evaluation->parts[i].part->metric_key,
                   cli_json_number(text, evaluation->parts[i].metric, 9));
        }
    }
}

const char *cli_rate_unit(const by_task *task)
{
    return strcmp(task->examples, "tokens") == 0 ? "tok" : task->examples;
}

by_speeds cli_speeds(const by_config *config)
{
    by_machine m;
    if (by_machine_load(&m, config->device, (int)config->train.threads, 0, NULL) != BY_OK) {
        return (by_speeds){0};
    }
    double slower = m.disk_read_gbps < m.disk_write_gbps ? m.disk_read_gbps : m.disk_write_gbps;
    return (by_speeds){
        .f32_flops = 1e9 * m.f32_gflops,
        .bf16_flops = 1e9 * m.bf16_gflops,
        .bytes = 1e9 * (m.copy_gbps > m.read_gbps ? m.copy_gbps : m.read_gbps),
        .disk = 1e9 * slower,
    };
}

double cli_disk_seconds(const by_machine *machine, uint64_t bytes)
{
    return 1e-9 * (double)bytes * (1.0 / machine->disk_read_gbps + 1.0 / machine->disk_write_gbps);
}

by_dtype cli_compute_dtype(const by_config *config)
{
    by_dtype dtype = BY_F32;
    (void)by_precision_parse(&dtype, config->precision.compute,
                             NULL); /* the schema contains the names */
    return dtype;
}

int cli_check_precision(const cli_command *command, const char *precision)
{
    by_dtype dtype;
    by_error error = {0};
    if (precision == NULL || by_infer_precision(&dtype, precision, &error) == BY_OK) {
        return -1;
    }
    return cli_misuse(command, "--precision %s", error.message);
}

bool cli_find_pool(by_pooling *out, const char *pool)
{
    static const char *const names[] = {
        [BY_POOL_LAST] = "last", [BY_POOL_MEAN] = "mean", [BY_POOL_FIRST] = "first"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], pool) == 0) {
            *out = (by_pooling)i;
            return true;
        }
    }
    return false;
}

int cli_check_pool(const cli_command *command, by_pooling *out, const char *pool)
{
    return pool == NULL || cli_find_pool(out, pool)
               ? -1
               : cli_misuse(command, "--pool %s: must be mean, last or first", pool);
}

const char *cli_precision_name(const char *precision, by_dtype computes)
{
    by_dtype dtype;
    bool in_codes = precision != NULL && by_precision_parse(&dtype, precision, NULL) != BY_OK;
    return in_codes ? precision : by_dtype_name(computes);
}

/* The time of the first signal in milliseconds of a monotonic clock; 0: none. Global, because a
 * signal handler can reach nothing else. */
static _Atomic int64_t first_signal;

#define SAME_REQUEST_MS 500

static void on_signal(int number)
{
    (void)number;
    struct timespec now;
    int64_t none = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = 1 + (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (!atomic_compare_exchange_strong(&first_signal, &none, ms) && ms - none >= SAME_REQUEST_MS) {
        _exit(CLI_INTERRUPTED);
    }
}

void cli_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction hang_up;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) {
        (void)sigaction(SIGHUP, &action, NULL);
    }
    /* Exceeding a file-size limit must be a write error, which leaves the checkpoint intact. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

void cli_clear_stop(void)
{
    atomic_store(&first_signal, 0);
}

bool cli_stop_requested(void *unused)
{
    (void)unused;
    if (atomic_load(&first_signal) != 0) {
        by_heartbeat_stopping(cli_heartbeat());
        return true;
    }
    return by_heartbeat_stop(cli_heartbeat());
}

void cli_guard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
            (void)open("/dev/null", O_RDWR); /* gets the lowest free descriptor, which is fd */
        }
    }
}

int cli_finish_output(int code)
{
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int reason = errno;
    if (!failed && ferror(stdout) == 0) {
        return code;
    }
    fprintf(stderr, "banyan: cannot write to standard output%s%s\n", failed ? ": " : "",
            failed ? strerror(reason) : "");
    return code == CLI_DONE ? CLI_FAILED : code;
}

void cli_print_build_parts(const char *title, bool built)
{
    bool any = false;
    for (by_build_part part = 0; part < BY_BUILD_PARTS; part++) {
        if (by_build_has(part) == built) {
            printf("%s%s%s", any ? "" : title, any ? ", " : " ", by_build_part_name(part));
            any = true;
        }
    }
    if (any) {
        printf("\n");
    }
}
