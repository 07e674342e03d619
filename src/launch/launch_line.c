/* Builds the command that starts the ranks of a job, from properties of the machine. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host/executable.h"
#include "base/threads.h"
#include "launch/supervisor.h"

/* ---- properties of the machine ---- */

static int count_cores(void)
{
    by__cores cores;
    if (!by__cores_usable(&cores)) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online < 1 ? 1 : (int)online;
    }
    return by__cores_count(&cores);
}

/* CPU quota of the control group in cores; 0: none. */
static int quota_cores(void)
{
    long long quota;
    long long period;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    int read = file == NULL ? 0 : fscanf(file, "%lld %lld", &quota, &period);
    if (file != NULL) {
        (void)fclose(file);
    }
    if (read != 2 || quota <= 0 || period <= 0) {
        return 0;
    }
    return quota < period ? 1 : (int)(quota / period);
}

/* Returns true if a child can read this process's memory, as the ranks of a host read each
 * other's. */
static bool can_copy_once(void)
{
    int64_t secret = 0x62616e79616e;
    int status = -1;
#ifdef PR_SET_PTRACER
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
    pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0) {
        int64_t copy = 0;
        const struct iovec local = {&copy, sizeof copy};
        const struct iovec remote = {&secret, sizeof secret};
        _exit(process_vm_readv(parent, &local, 1, &remote, 1, 0) == (ssize_t)sizeof copy &&
                      copy == secret
                  ? 0
                  : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* The MPI library of a bundle starts its ranks with the mpirun of the same version. */
static void name_mpirun(char *out, size_t size)
{
    char *path = NULL;
    (void)by__executable_bundled(&path, "mpi/bin/mpirun", NULL);
    (void)snprintf(out, size, "%s", path == NULL ? "mpirun" : path);
    free(path);
}

static bool in_path(const char *name)
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        char path[4096];
        size_t n = strcspn(at, ":");
        (void)snprintf(path, sizeof path, "%.*s/%s", (int)n, at, name);
        if (n > 0 && access(path, X_OK) == 0) {
            return true;
        }
        at += n + (at[n] == ':');
    }
    return false;
}

static bool lacks_shell(void)
{
    return getenv("OMPI_MCA_plm") == NULL && getenv("OMPI_MCA_plm_rsh_agent") == NULL &&
           getenv("SLURM_JOB_ID") == NULL && !in_path("ssh") && !in_path("rsh");
}

void by_launch_inspect(by_launch_facts *out, const by_host_list *hosts, const char *network)
{
    int quota = quota_cores();
    *out = (by_launch_facts){.cores = count_cores(),
                             .root = geteuid() == 0,
                             .single_copy = can_copy_once(),
                             .no_shell = lacks_shell()};
    if (quota > 0 && quota < out->cores) {
        out->cores = quota;
        out->quota = true;
    }
    name_mpirun(out->mpirun, sizeof out->mpirun);
    if (network != NULL) {
        (void)snprintf(out->network, sizeof out->network, "%s", network);
    } else {
        by__launch_common_network(out->network, hosts);
    }
}

/* ---- the command ---- */

typedef struct line_writer {
    by_launch_line *out;
    size_t capacity;
    bool failed;
} line_writer;

static void add(line_writer *l, const char *format, ...) BY_PRINTF(2, 3);
static void add(line_writer *l, const char *format, ...)
{
    va_list args;
    char *word = NULL;
    va_start(args, format);
    if (vasprintf(&word, format, args) < 0) {
        word = NULL;
    }
    va_end(args);
    by_launch_line *out = l->out;
    if (word == NULL || by__reserve((void **)&out->words, &l->capacity, out->count + 2,
                                    sizeof *out->words, NULL) != BY_OK) {
        free(word);
        l->failed = true;
        return;
    }
    out->words[out->count++] = word;
    out->words[out->count] = NULL;
}

static void add_option(line_writer *l, const char *name, const char *value)
{
    add(l, "--mca");
    add(l, "%s", name);
    add(l, "%s", value);
}

/* Takes hosts in order until all ranks have a slot: "n1:4,n2:2". *most: ranks of the fullest
 * host. */
static by_status choose_hosts(by_string *out, int *used, int *most, const by_launch_options *o,
                              by_error *error)
{
    int left = o->ranks;
    *used = 0;
    *most = 0;
    for (size_t i = 0; i < o->hosts.count && left > 0; i++) {
        const by_host *h = &o->hosts.items[i];
        int ranks = h->slots < left ? h->slots : left;
        by_string_format(out, "%s%s:%d", *used == 0 ? "" : ",", h->name, ranks);
        *most = ranks > *most ? ranks : *most;
        *used += 1;
        left -= ranks;
    }
    if (left > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%d ranks are requested, but the hosts have %d slots; add hosts or "
                            "slots, or start %d ranks",
                            o->ranks, o->ranks - left, o->ranks - left);
    }
    return BY_OK;
}

/* Binding: each rank gets `threads` cores of its own or, if there are not enough, no rank is bound.
 * A control group's quota applies to any core. */
static void add_binding(line_writer *l, const by_launch_facts *f, int on_host, bool local)
{
    by_launch_line *out = l->out;
    out->bound = !f->quota && on_host * out->threads <= f->cores;
    if (out->bound) {
        add(l, "--map-by");
        add(l, "slot:PE=%d", out->threads);
    }
    add(l, "--bind-to");
    add(l, out->bound ? "core" : "none");
    if (on_host > f->cores) {
        if (local) {
            add(l, "--oversubscribe");
        }
        add_option(l, "mpi_yield_when_idle", "1");
    }
}

static void add_network(line_writer *l, const by_launch_facts *f, int hosts)
{
    if (hosts > 1 && f->network[0] != '\0') {
        add_option(l, "btl_tcp_if_include", f->network);
        add_option(l, "oob_tcp_if_include", f->network);
    }
    if (!f->single_copy) {
        add_option(l, "btl_vader_single_copy_mechanism", "none");
    }
}

by_status by_launch_line_make(by_launch_line *out, const by_launch_options *o,
                              const by_launch_facts *f, by_error *error)
{
    by_string hosts = {0};
    int used = 0;
    int on_host = o->ranks;
    line_writer l = {.out = out};
    *out = (by_launch_line){0};
    if (o->hosts.count > 0) {
        by_status status = choose_hosts(&hosts, &used, &on_host, o, error);
        if (status != BY_OK) {
            by_string_free(&hosts);
            return status;
        }
    }
    on_host = on_host < 1 ? 1 : on_host;
    out->threads = o->threads > 0 ? o->threads : f->cores / on_host;
    out->threads = out->threads < 1 ? 1 : out->threads;
    if (o->ranks > 1 || o->hosts.count > 0) {
        add(&l, "%s", f->mpirun[0] == '\0' ? "mpirun" : f->mpirun);
        add(&l, "-n");
        add(&l, "%d", o->ranks);
        if (o->hosts.count > 0) {
            add(&l, "--host");
            add(&l, "%s", hosts.data == NULL ? "" : hosts.data);
        }
        add_binding(&l, f, on_host, o->hosts.count == 0);
        add_network(&l, f, used);
        if (f->no_shell && o->hosts.count == 0) {
            /* Open MPI looks for ssh even where no rank is on another host. */
            add_option(&l, "plm", "isolated");
        }
        if (f->root) {
            add(&l, "--allow-run-as-root");
        }
        add(&l, "-x");
        add(&l, "OMP_NUM_THREADS");
        if (o->watched) {
            /* The supervisor evaluates the exit of a rank: others may still be saving. The first
             * is for Open MPI 4, the second for 5; each ignores the other's. */
            add_option(&l, "orte_abort_on_non_zero_status", "0");
            add_option(&l, "state_base_error_non_zero_exit", "0");
            add(&l, "-x");
            add(&l, BY__SUPERVISOR);
        }
    }
    add(&l, "%s", o->program);
    for (size_t i = 0; i < o->command_count; i++) {
        add(&l, "%s", o->command[i]);
    }
    l.failed = l.failed || hosts.failed;
    by_string_free(&hosts);
    if (l.failed) {
        by_launch_line_free(out);
        return by_error_set(error, BY_EMEMORY, "out of memory: a command line");
    }
    return BY_OK;
}

static void print_word(by_string *out, const char *word)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-+=:,./@%";
    if (word[0] != '\0' && word[strspn(word, safe)] == '\0') {
        by__string_append(out, word);
        return;
    }
    by__string_append(out, "'");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            by__string_append(out, "'\\''");
        } else {
            by_string_add(out, word, 1);
        }
    }
    by__string_append(out, "'");
}

by_status by_launch_line_print(char **out, const by_launch_line *l, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "OMP_NUM_THREADS=%d", l->threads);
    for (size_t i = 0; i < l->count; i++) {
        by__string_append(&text, " ");
        print_word(&text, l->words[i]);
    }
    return by__string_release(&text, out, error);
}

void by_launch_line_free(by_launch_line *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->words[i]);
    }
    free(l->words);
    *l = (by_launch_line){0};
}
