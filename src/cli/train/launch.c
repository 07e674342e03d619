#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "banyan/config.h"
#include "banyan/train.h"
#include "base/cli.h"

typedef struct launch {
    int64_t ranks;
    int64_t threads;
    int64_t max_restarts;
    int64_t host_faults;
    const char *hostfile;
    const char *network;
    double grace;
    double timeout;
    double silence;
    bool dry_run;
    by_host_list hosts;
    char *again[4]; /* the arguments of a restart */
    size_t again_count;
} launch;

/* ---- signals: the first one requests saving, the second ends the job ---- */

static _Atomic int requests;
static _Atomic int64_t last_request;

/* A terminal signals both the process and its group: signals within half a second are one
 * request. */
static void on_signal(int number)
{
    struct timespec now;
    (void)number;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = 1000 + (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    int64_t last = atomic_exchange(&last_request, ms);
    if (ms - last >= 500) {
        (void)atomic_fetch_add(&requests, 1);
    }
}

static int stop(void *unused)
{
    (void)unused;
    return atomic_load(&requests);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct sigaction hang_up;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL); /* sent by Slurm's --signal */
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) {
        (void)sigaction(SIGHUP, &action, NULL);
    }
    (void)signal(SIGPIPE, SIG_IGN);
}

static void print_event(void *unused, const char *line)
{
    (void)unused;
    fprintf(stderr, "banyan launch: %s\n", line);
}

/* ---- the launched command ---- */

/* Returns the value of "--NAME VALUE" or "--NAME=VALUE" at words[*i], and moves *i to its last
 * word. */
static char *value_of(char **words, size_t count, size_t *i, const char *name)
{
    size_t length = strlen(name);
    char *word = words[*i];
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0) {
        return NULL;
    }
    if (word[2 + length] == '=') {
        return word + 3 + length;
    }
    return word[2 + length] == '\0' && *i + 1 < count ? words[++*i] : NULL;
}

/* The arguments of `train`: the config or the run, and the keys that are set. */
typedef struct training {
    const char *path;
    cli_list overrides;
    bool resumed;
    bool from_start;
} training;

static void read_training(training *out, launch *l, char **words, size_t count)
{
    *out = (training){0};
    l->again[l->again_count++] = words[0];
    for (size_t i = 1; i < count; i++) {
        char *value;
        if ((value = value_of(words, count, &i, "set")) != NULL) {
            if (out->overrides.count < CLI_LIST_MAX) {
                out->overrides.items[out->overrides.count++] = value;
            }
        } else if ((value = value_of(words, count, &i, "resume")) != NULL) {
            out->path = value;
            out->resumed = true;
        } else if (value_of(words, count, &i, "minutes") != NULL) {
            continue; /* a run that is started again keeps its steps */
        } else if (strcmp(words[i], "--from-start") == 0) {
            out->from_start = true;
        } else if (strcmp(words[i], "--json") == 0 || strcmp(words[i], "--quiet") == 0) {
            if (l->again_count < sizeof l->again / sizeof l->again[0]) {
                l->again[l->again_count++] = words[i];
            }
        } else if (words[i][0] != '-' && out->path == NULL) {
            out->path = words[i];
        }
    }
}

/* Checks the config before any rank starts. Returns -1 to continue. */
static int check_training(by_supervisor_options *o, const training *t)
{
    by_config *config;
    by_error error = {0};
    if (t->path == NULL) {
        return -1; /* `train` itself reports what is missing */
    }
    if (cli_open_config(&config, t->path, &t->overrides, &error) != BY_OK) {
        return cli_fail(&cli_launch, &error);
    }
    by_status status = by_train_check_ranks(config, o->launch.ranks, &o->multiple, &error);
    by_config_close(&config);
    if (status != BY_OK) {
        return cli_fail(&cli_launch, &error);
    }
    o->resumed = t->resumed;
    o->from_start = !t->resumed || t->from_start;
    return -1;
}

static int supervise(launch *l, char **words, size_t count, const char *program)
{
    training t;
    int code = -1;
    by_error error = {0};
    by_supervisor_options o = {.launch = {.ranks = (int)l->ranks,
                                          .hosts = l->hosts,
                                          .threads = (int)l->threads,
                                          .program = program,
                                          .command = words,
                                          .command_count = count},
                               .network = l->network,
                               .max_restarts = (int)l->max_restarts,
                               .host_faults = (int)l->host_faults,
                               .grace = l->grace,
                               .timeout = l->timeout,
                               .silence = l->silence,
                               .stop = stop,
                               .report = print_event};
    if (strcmp(words[0], "train") == 0) {
        read_training(&t, l, words, count);
        o.again = l->again;
        o.again_count = l->again_count;
        code = check_training(&o, &t);
    } else {
        o.max_restarts = 0; /* there is no checkpoint to continue from */
    }
    if (code >= 0) {
        return code;
    }
    catch_signals();
    return by_supervise(&o, &code, &error) == BY_OK ? code : cli_fail(&cli_launch, &error);
}

static int print_line(const launch *l, char **words, size_t count, const char *program)
{
    by_launch_facts facts;
    by_launch_line line = {0};
    char *text = NULL;
    by_error error = {0};
    by_launch_options o = {.ranks = (int)l->ranks,
                           .hosts = l->hosts,
                           .threads = (int)l->threads,
                           .program = program,
                           .command = words,
                           .command_count = count};
    by_launch_inspect(&facts, &l->hosts, l->network);
    by_status status = by_launch_line_make(&line, &o, &facts, &error);
    if (status == BY_OK) {
        status = by_launch_line_print(&text, &line, &error);
        by_launch_line_free(&line);
    }
    if (status != BY_OK) {
        return cli_fail(&cli_launch, &error);
    }
    printf("%s\n", text);
    free(text);
    return CLI_DONE;
}

/* ---- flags ---- */

/* Counts launch's own arguments: they end at the first word that is not a flag, where the command
 * starts. "-n" means "--ranks", as for mpirun. */
static int count_own(const cli_flag *flags, int argc, char **argv)
{
    static char ranks[] = "--ranks";
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "-np") == 0) {
            argv[i] = ranks;
        }
        for (const cli_flag *f = flags; f->name != NULL; f++) {
            if (f->value != NULL && strncmp(argv[i], "--", 2) == 0 &&
                strcmp(argv[i] + 2, f->name) == 0) {
                i++;
                break;
            }
        }
    }
    return i < argc ? i : argc;
}

static int read_hosts(launch *l)
{
    by_error error = {0};
    if (l->hostfile != NULL) {
        int64_t slots = 0;
        if (by_hosts_read(&l->hosts, l->hostfile, &error) != BY_OK) {
            return cli_fail(&cli_launch, &error);
        }
        for (size_t i = 0; i < l->hosts.count; i++) {
            slots += l->hosts.items[i].slots;
        }
        l->ranks = l->ranks == 0 ? slots : l->ranks;
        if (l->ranks > slots) {
            return cli_misuse(&cli_launch, "-n %lld: the hosts in %s have only %lld slots",
                              (long long)l->ranks, l->hostfile, (long long)slots);
        }
    }
    l->ranks = l->ranks == 0 ? 1 : l->ranks;
    return -1;
}

static int run(int argc, char **argv)
{
    launch l = {
        .max_restarts = 10, .host_faults = 3, .grace = 30.0, .timeout = 600.0, .silence = 60.0};
    const cli_flag flags[] = {
        {"ranks", CLI_INTEGER_IN(1, 65536), &l.ranks, "N",
         "number of ranks, also -n N (default: the slots of the host file, else 1)"},
        {"hostfile", CLI_INPUT, &l.hostfile, "FILE", "file with one host per line: NAME slots=N"},
        {"threads", CLI_THREADS, &l.threads, "N",
         "compute threads of each rank (default: cores divided by ranks)"},
        {"max-restarts", CLI_INTEGER_IN(0, 1000000), &l.max_restarts, "N",
         "restarts in a row without a new checkpoint before giving up (default 10)"},
        {"host-faults", CLI_INTEGER_IN(1, 1000000), &l.host_faults, "N",
         "failures of a host after which it is no longer used (default 3)"},
        {"grace", CLI_TIME_IN(0.1, 1e6), &l.grace, "TIME",
         "time to save a checkpoint after SIGTERM or Ctrl-C (default 30s)"},
        {"timeout", CLI_TIME_IN(0.1, 1e6), &l.timeout, "TIME",
         "time without progress after which a rank counts as hung (default 10m)"},
        {"silence", CLI_TIME_IN(0.1, 1e6), &l.silence, "TIME",
         "time without a heartbeat after which a rank counts as hung (default 1m)"},
        {"network", CLI_STRING, &l.network, "CIDR",
         "network between the hosts, e.g. 10.0.0.0/24 (default: the one that all are in)"},
        {"dry-run", CLI_SWITCH, &l.dry_run, NULL,
         "print the command that would start the ranks, and exit"},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    char *program;
    by_error error = {0};
    int own = count_own(flags, argc, argv);
    int code = cli_parse(&cli_launch, flags, own, argv, &rest, &count);
    if (code < 0 && own == argc) {
        code = cli_misuse(&cli_launch, "name a command to launch, e.g. train CONFIG");
    }
    const char *first = own < argc ? argv[own] : "";
    const char *slash = strrchr(first, '/');
    if (code < 0 && strcmp(slash == NULL ? first : slash + 1, "banyan") == 0) {
        code = cli_misuse(&cli_launch,
                          "name a command of banyan, without '%s' before it: banyan "
                          "launch -n N train CONFIG",
                          first);
    }
    if (code < 0) {
        code = read_hosts(&l);
    }
    if (code >= 0) {
        return code;
    }
    if (by_executable_path(&program, &error) != BY_OK) {
        by_hosts_free(&l.hosts);
        return cli_fail(&cli_launch, &error);
    }
    code = l.dry_run ? print_line(&l, argv + own, (size_t)(argc - own), program)
                     : supervise(&l, argv + own, (size_t)(argc - own), program);
    by_hosts_free(&l.hosts);
    free(program);
    return code;
}

const cli_command cli_launch = {
    .name = "launch",
    .summary = "run a command on many ranks and supervise it: restarts, hosts, preemption",
    .usage = "banyan launch [-n N] [--hostfile FILE] [FLAG]... COMMAND [ARGUMENT]...",
    .text =
        "Runs a command on many ranks with mpirun and supervises them: a training that crashes\n"
        "or hangs is restarted from its newest valid checkpoint, on the hosts that are left.\n"
        "\n"
        "examples:\n"
        "  banyan launch -n 4 train examples/shakespeare_char.yaml --set data.text=input.txt\n"
        "  banyan launch --hostfile hosts --max-restarts 5 train --resume runs/shakespeare-char\n"
        "\n"
        "The command that starts the ranks is printed; a single rank on this host runs without\n"
        "mpirun. A bundle (docs/install.md) uses the mpirun that it brings, any other build the\n"
        "one in PATH, which must belong to the MPI library that the program was built with.\n"
        "Pauses between restarts grow. A wrong configuration or malformed data ends the job.\n"
        "SIGTERM or Ctrl-C, here or at any rank, saves a checkpoint on all ranks and exits with\n"
        "code 3; a second one ends the job at once.",
    .run = run};
