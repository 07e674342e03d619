#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/cli.h"

/* How often an idle thread of GNU OpenMP polls for work before it sleeps: about 20 to 50
 * microseconds. */
#define SPINS "2000"

static const cli_command *const commands[] = {
    &cli_pack,     &cli_data,  &cli_train,      &cli_eval,     &cli_backtest, &cli_predict,
    &cli_generate, &cli_chat,  &cli_embed,      &cli_classify, &cli_export,   &cli_compress,
    &cli_logits,   &cli_drift, &cli_serve,      &cli_deploy,   &cli_gateway,  &cli_broker,
    &cli_worker,   &cli_info,  &cli_checkpoint, &cli_runs,     &cli_watch,    &cli_plot,
    &cli_profile,  &cli_bench, &cli_launch,     &cli_doctor,   &cli_plan,     &cli_assistant,
};

static void print_help(FILE *out)
{
    fprintf(out, "banyan: train, evaluate and serve deep-learning models\n\n"
                 "usage: banyan COMMAND [ARGUMENTS]\n\ncommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    }
    size_t count;
    const by_exit_row *rows = by_exit_rows(&count);
    fprintf(
        out,
        "\n`banyan COMMAND --help` describes a command, with examples and flags.\n\nexit codes:\n");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %-11d %s\n", rows[i].code, rows[i].meaning);
    }
    fprintf(out, "  %-11s a signal ended the process\n", "128 + N");
}

/* With OMP_PROC_BIND or OMP_PLACES, GNU OpenMP binds the thread that loads it to the processor of
 * the first place. What this thread starts, a program or a thread of its own, would have that one
 * alone: it gets those of all places back. Threads of teams are bound when they are created. */
static void unbind_main_thread(void)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int place = 0; place < omp_get_num_places(); place++) {
        int count = omp_get_place_num_procs(place);
        int *ids = calloc((size_t)count + 1, sizeof *ids);
        if (ids != NULL) {
            omp_get_place_proc_ids(place, ids);
        }
        for (int i = 0; ids != NULL && i < count; i++) {
            if (ids[i] >= 0 && ids[i] < CPU_SETSIZE) {
                CPU_SET((size_t)ids[i], &all);
            }
        }
        free(ids);
    }
    if (CPU_COUNT(&all) > 0) {
        (void)sched_setaffinity(0, sizeof all, &all);
    }
}

/* By default, idle threads of GNU OpenMP poll for milliseconds, about as long as a scheduler time
 * slice. If the machine runs anything else, threads then sleep and wake in turns, and a step of a
 * small model takes 960 ms instead of 60 (docs/performance.md). The library reads how often they
 * shall poll from the environment when it is loaded, and only then. What is in .preinit_array runs
 * before that (System V ABI, "Initialization and Termination Functions"), on the environment as the
 * kernel made it, which has no room for one more variable: until main, the limit stands in place of
 * one that only shells read. */
static struct {
    char **slot;    /* of the environment; NULL: the user set a limit, or there was no slot */
    char *variable; /* that belongs there */
} replaced;

static bool is_variable(const char *entry, const char *name)
{
    size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

static void limit_spinning(int argc, char **argv, char **environment)
{
    static char limit[] = "GOMP_SPINCOUNT=" SPINS;
    (void)argc;
    (void)argv;
    for (char **entry = environment; *entry != NULL; entry++) {
        if (is_variable(*entry, "GOMP_SPINCOUNT") || is_variable(*entry, "OMP_WAIT_POLICY")) {
            replaced.slot = NULL;
            return;
        }
        if (is_variable(*entry, "_") || is_variable(*entry, "SHLVL") ||
            is_variable(*entry, "OLDPWD") || is_variable(*entry, "PWD")) {
            replaced.slot = entry;
        }
    }
    if (replaced.slot != NULL) {
        replaced.variable = *replaced.slot;
        *replaced.slot = limit;
    }
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int argc, char **argv,
                                                            char **environment) = limit_spinning;

/* Gives the variable its place back, and sets the limit for the programs that this one starts.
 * Without a shell's variable to replace, the program executes itself again with the limit. */
static void keep_spin_limit(char **argv)
{
    char *path;
    if (replaced.slot != NULL) {
        *replaced.slot = replaced.variable;
        (void)setenv("GOMP_SPINCOUNT", SPINS, 1);
    } else if (getenv("GOMP_SPINCOUNT") == NULL && getenv("OMP_WAIT_POLICY") == NULL &&
               by_executable_path(&path, NULL) == BY_OK) {
        if (setenv("GOMP_SPINCOUNT", SPINS, 1) == 0) {
            (void)execv(path, argv); /* if this fails, threads simply poll */
        }
        free(path);
    }
}

/* Planned memory is allocated once. Larger blocks that are freed, such as the copy of a tensor
 * during loading, are returned to the system at once. By default, GNU malloc raises its threshold
 * with each such block and keeps more, so that a process would exceed its plan. */
static void return_large_memory(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

/* The kernel names a process by the file that it executed, which is the loader where a program is
 * started through one, as in a bundle. ps, top and pgrep shall find it by its own name. */
static void name_process(const char *path)
{
    const char *slash = strrchr(path, '/');
    (void)prctl(PR_SET_NAME, slash == NULL ? path : slash + 1);
}

static int refuse_command(const char *name)
{
    const char *names[sizeof commands / sizeof commands[0]];
    size_t count = sizeof commands / sizeof commands[0];
    for (size_t i = 0; i < count; i++) {
        names[i] = commands[i]->name;
    }
    const char *near = by_nearest_name(name, names, count);
    fprintf(stderr, "banyan: unknown command '%s'%s%s%s; see banyan --help\n", name,
            near == NULL ? "" : "; did you mean '", near == NULL ? "" : near,
            near == NULL ? "" : "'?");
    return CLI_USAGE;
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(name, commands[i]->name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

/* `banyan help COMMAND` is `banyan COMMAND --help`. */
static int help_on(char *name)
{
    const cli_command *command = find_command(name);
    char flag[] = "--help";
    char *args[] = {name, flag, NULL};
    return command == NULL ? refuse_command(name) : command->run(2, args);
}

/* Parsing moves the arguments, which a hint reads in their order. */
static int run_command(const cli_command *command, int argc, char **argv)
{
    char **given = malloc(((size_t)argc + 1) * sizeof *given);
    if (given != NULL) {
        memcpy(given, argv, ((size_t)argc + 1) * sizeof *given);
    }
    int code = command->run(argc, argv);
    if (given != NULL && (code == CLI_USAGE || code == CLI_FAILED)) {
        cli_hint(argc, given);
    }
    free(given);
    return code;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        if (argc > 2) {
            return help_on(argv[2]);
        }
        print_help(stdout);
        return CLI_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("banyan %s\n", BY_VERSION);
        cli_print_build_parts("with", true);
        cli_print_build_parts("without", false);
        return CLI_DONE;
    }
    const cli_command *command = find_command(argv[1]);
    return command == NULL ? refuse_command(argv[1]) : run_command(command, argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    cli_guard_streams();
    if (argc > 0) {
        name_process(argv[0]);
    }
    keep_spin_limit(argv);
    return_large_memory();
    unbind_main_thread();
    int code = cli_open_heartbeat();
    if (code < 0) {
        code = dispatch(argc, argv);
    }
    return cli_close_heartbeat(cli_finish_output(code));
}
