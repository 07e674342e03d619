/* The supervisor's loop: starts the ranks, watches them, evaluates how they ended, and restarts
 * them. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "banyan/checkpoint.h"
#include "launch/supervisor.h"
#include "process/process.h"

#define TICK 0.1
#define SETTLE_SECONDS                                                                             \
    10.0 /* seconds for the other ranks to end by themselves when one has failed */
#define CRASH_SETTLE_SECONDS 1.0  /* the same when one was lost: the others wait for it in vain */
#define ENDED_SETTLE_SECONDS 30.0 /* the same for mpirun, when all have ended */
#define TERM_SECONDS         3.0  /* between SIGTERM and SIGKILL for mpirun */
#define PROBE_SECONDS        15.0 /* seconds in which a host must answer */

typedef struct host {
    const by_host *given;
    int faults;
    bool out;     /* not used any more */
    bool reached; /* answered the last probe */
    int first;    /* its first rank in this start */
    int ranks;
} host;

typedef struct supervisor {
    by_supervisor_options o; /* with defaults filled in */
    by_launch_facts facts;
    by__launch_watch watch;
    by__launch_policy policy;
    by__launch_history history;
    host *hosts;
    int ranks;         /* in this start */
    bool resumes;      /* this start goes on from a checkpoint */
    by__process child; /* mpirun, or the program itself */
} supervisor;

static void report(const supervisor *s, const char *format, ...) BY_PRINTF(2, 3);
static void report(const supervisor *s, const char *format, ...)
{
    char line[2048];
    va_list args;
    if (s->o.report != NULL) {
        va_start(args, format);
        (void)vsnprintf(line, sizeof line, format, args);
        va_end(args);
        s->o.report(s->o.user, line);
    }
}

static int stop_wanted(const supervisor *s)
{
    return s->o.stop == NULL ? 0 : s->o.stop(s->o.user);
}

static void pause_for(double seconds)
{
    (void)nanosleep(
        &(struct timespec){.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))},
        NULL);
}

/* ---- hosts ---- */

static bool in_slurm(void)
{
    return getenv("SLURM_JOB_ID") != NULL;
}

/* Starts a command that does nothing on a host, in the way in which mpirun reaches it. */
static bool start_probe(by__process *probe, const char *name)
{
    char agent[512];
    char host_name[BY_HOST_NAME];
    char *words[24];
    const by__process_options options = {.words = words, .input = -1};
    size_t count = 0;
    const char *set = getenv("OMPI_MCA_plm_rsh_agent");
    (void)snprintf(agent, sizeof agent, "%s",
                   in_slurm()    ? "srun --overlap -N1 -n1 -w"
                   : set != NULL ? set
                                 : "ssh -o BatchMode=yes -o ConnectTimeout=10");
    (void)snprintf(host_name, sizeof host_name, "%s", name);
    for (char *at = agent, *rest; count < 20 && (words[count] = strtok_r(at, " ", &rest)) != NULL;
         at = NULL) {
        count++;
    }
    words[count++] = host_name;
    words[count++] = (char[]){"true"};
    words[count] = NULL;
    return by__process_start(probe, &options) == 0;
}

/* Finds which hosts answer; this host does by definition. */
static void probe(supervisor *s)
{
    size_t count = s->o.launch.hosts.count;
    by__process *probes = NULL;
    double end = by__now() + PROBE_SECONDS;
    bool waiting = true;
    if (by__alloc((void **)&probes, count + 1, sizeof *probes, "hosts", NULL) != BY_OK) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = s->hosts[i].given->name;
        bool here = by__launch_host_is_here(name);
        if (!here && (s->hosts[i].out || !start_probe(&probes[i], name))) {
            probes[i].code = 1;
        }
    }
    while (waiting && by__now() < end && stop_wanted(s) == 0) {
        waiting = false;
        for (size_t i = 0; i < count; i++) {
            (void)by__process_watch(&probes[i], 0.0);
            waiting = waiting || probes[i].running;
        }
        if (waiting) {
            pause_for(0.02);
        }
    }
    (void)by__process_kill_descendants(BY__PROCESS_KILL_SECONDS);
    for (size_t i = 0; i < count; i++) {
        s->hosts[i].reached = probes[i].code == 0;
        if (!s->hosts[i].reached && !s->hosts[i].out) {
            report(s, "host %s cannot be reached and is not used", s->hosts[i].given->name);
        }
    }
    free(probes);
}

/* Assigns ranks to hosts in mpirun's order. */
static int place_ranks(supervisor *s)
{
    int left = s->o.launch.ranks;
    int placed = 0;
    for (size_t i = 0; i < s->o.launch.hosts.count; i++) {
        host *h = &s->hosts[i];
        h->first = placed;
        h->ranks = h->out || !h->reached ? 0 : h->given->slots < left ? h->given->slots : left;
        placed += h->ranks;
        left -= h->ranks;
    }
    return placed;
}

static host *host_of(const supervisor *s, int rank)
{
    for (size_t i = 0; i < s->o.launch.hosts.count; i++) {
        host *h = &s->hosts[i];
        if (rank >= h->first && rank < h->first + h->ranks) {
            return h;
        }
    }
    return NULL;
}

static by_status choose_ranks(supervisor *s, by_error *error)
{
    int wanted = s->o.launch.ranks;
    int multiple = s->o.multiple;
    s->ranks = wanted;
    if (s->o.launch.hosts.count > 0) {
        probe(s);
        s->ranks = place_ranks(s);
    }
    if (s->ranks == wanted) {
        return BY_OK;
    }
    s->ranks -= s->ranks % multiple;
    if (s->ranks == 0) {
        return by_error_set(
            error, BY_EPEER,
            multiple > 1
                ? "the remaining hosts have no room for the %d ranks that the layout needs at least"
                : "no remaining host can run %d rank",
            multiple);
    }
    report(s, "%d of %d ranks fit on the remaining hosts; the global batch is unchanged", s->ranks,
           wanted);
    return BY_OK;
}

/* ---- one start ---- */

static void add_word(char **words, size_t *count, const char *word)
{
    words[(*count)++] = (char *)(uintptr_t)word;
}

/* Makes the command of this start: the first one, or `again` for a known run. */
static by_status make_command(char ***out, size_t *count, supervisor *s, by_error *error)
{
    const by_supervisor_options *o = &s->o;
    bool resume = s->watch.run[0] != '\0' && o->again_count > 0;
    s->resumes = resume || o->resumed;
    char *const *from = resume ? o->again : o->launch.command;
    size_t words = resume ? o->again_count : o->launch.command_count;
    *count = 0;
    BY_TRY(by__alloc((void **)out, words + 6, sizeof **out, "a command", error));
    for (size_t i = 0; i < words; i++) {
        add_word(*out, count, from[i]);
    }
    if (resume) {
        add_word(*out, count, "--resume");
        add_word(*out, count, s->watch.run);
        if (o->from_start) {
            add_word(*out, count, "--from-start");
        }
    }
    if (s->ranks != o->launch.ranks) {
        add_word(*out, count, "--set");
        add_word(*out, count, "parallel.data=-1");
    }
    return BY_OK;
}

static by_status make_line(by_launch_line *out, supervisor *s, by_error *error)
{
    by_launch_options launch = s->o.launch;
    by_host_list hosts = {0};
    char **command = NULL;
    launch.ranks = s->ranks;
    launch.watched = true;
    BY_TRY(by__alloc((void **)&hosts.items, s->o.launch.hosts.count + 1, sizeof *hosts.items,
                     "hosts", error));
    for (size_t i = 0; i < s->o.launch.hosts.count; i++) {
        if (!s->hosts[i].out && s->hosts[i].reached) {
            hosts.items[hosts.count++] = *s->hosts[i].given;
        }
    }
    launch.hosts = hosts;
    by_status status = make_command(&command, &launch.command_count, s, error);
    if (status == BY_OK) {
        launch.command = command;
        status = by_launch_line_make(out, &launch, &s->facts, error);
    }
    free(command);
    by_hosts_free(&hosts);
    return status;
}

static by_status start_child(supervisor *s, const by__process_options *options, by_error *error)
{
    const char *program = options->words[0];
    int problem = by__process_start(&s->child, options);
    return problem == 0
               ? BY_OK
               : by_error_set(error, BY_EIO, "cannot run %s: %s%s", program, strerror(problem),
                              problem == ENOENT && strcmp(program, "mpirun") == 0
                                  ? "; install Open MPI (Debian: openmpi-bin)"
                                  : "");
}

static by_status start(supervisor *s, by_error *error)
{
    char contact[1024];
    char threads[32];
    char *text = NULL;
    by_launch_line line = {0};
    int n = snprintf(contact, sizeof contact, "%s=", BY__SUPERVISOR);
    char *extra[] = {threads, contact, NULL};
    BY_TRY(by__launch_watch_reset(&s->watch, s->ranks, error));
    (void)by__launch_contact_format(contact + n, sizeof contact - (size_t)n, &s->watch.contact);
    BY_TRY(make_line(&line, s, error));
    (void)snprintf(threads, sizeof threads, "OMP_NUM_THREADS=%d", line.threads);
    by_status status = by_launch_line_print(&text, &line, error);
    if (status == BY_OK) {
        report(s, "%s", text);
        status = start_child(s, &(by__process_options){line.words, extra, .input = -1}, error);
    }
    free(text);
    by_launch_line_free(&line);
    return status;
}

static bool is_leaving(const supervisor *s)
{
    for (int i = 0; i < s->watch.count; i++) {
        if (s->watch.ranks[i].stopping) {
            return true;
        }
    }
    return false;
}

static int unfinished(const supervisor *s)
{
    return by__launch_watch_number(&s->watch, BY__RANK_RUNNING) +
           by__launch_watch_number(&s->watch, BY__RANK_ABSENT);
}

static double sooner(double a, double b)
{
    return a < b ? a : b;
}

/* Handles news since the last call; returns the time at which the job is to be ended by force. */
static double next_deadline(supervisor *s, double deadline)
{
    by__launch_watch *w = &s->watch;
    double now = by__now();
    int request = stop_wanted(s);
    if (request >= 2) {
        return now;
    }
    if (!w->stopping && (request == 1 || is_leaving(s))) {
        report(s, "stop requested: all ranks save and exit within %.0f s", s->o.grace);
        by__launch_watch_stop(w);
        deadline = sooner(deadline, now + s->o.grace);
    }
    by__launch_watch_check(w, now, s->o.timeout, s->o.silence);
    if (w->fault.code == BY_EXIT_HANG) {
        return now;
    }
    if (w->fault.code != 0 || by__launch_watch_peer(w) >= 0) {
        deadline = sooner(
            deadline, now + (w->fault.code == BY__CRASH ? CRASH_SETTLE_SECONDS : SETTLE_SECONDS));
    }
    return unfinished(s) == 0 ? sooner(deadline, now + ENDED_SETTLE_SECONDS) : deadline;
}

/* mpirun ends its ranks on other hosts when asked to; the remaining processes here are then
 * ended. */
static void end_job(supervisor *s)
{
    by__process_stop(&s->child, TERM_SECONDS);
    while (s->child.running && !s->child.killed) {
        by__launch_watch_receive(&s->watch, TICK);
        (void)by__process_watch(&s->child, by__now());
    }
    if (!by__process_kill_descendants(BY__PROCESS_KILL_SECONDS)) {
        report(s,
               "a process of the job does not exit; it is waiting for a device or a file system");
    }
}

/* Watches the job until it has ended. */
static void watch_job(supervisor *s)
{
    double deadline = HUGE_VAL;
    while (s->child.running && by__now() < deadline) {
        by__launch_watch_receive(&s->watch, TICK);
        (void)by__process_watch(&s->child, by__now());
        deadline = next_deadline(s, deadline);
    }
    /* The last messages of the ranks may still be in transit. */
    for (int i = 0;
         i < 10 && !s->child.running && by__launch_watch_number(&s->watch, BY__RANK_RUNNING) > 0;
         i++) {
        by__launch_watch_receive(&s->watch, TICK);
    }
    if (s->child.running) {
        by__launch_watch_give_up(&s->watch);
    }
    end_job(s);
}

/* ---- evaluation of the end ---- */

static bool all_ended_well(const by__launch_watch *w, bool *saved)
{
    *saved = false;
    for (int i = 0; i < w->count; i++) {
        const by__launch_rank *r = &w->ranks[i];
        if (r->state != BY__RANK_ENDED || (r->code != BY_EXIT_DONE && r->code != BY_EXIT_SAVED)) {
            return false;
        }
        *saved = *saved || r->code == BY_EXIT_SAVED;
    }
    return true;
}

/* The exit code for a start that no rank explained. */
static int child_exit_code(supervisor *s)
{
    by__launch_fault *f = &s->watch.fault;
    int peer = by__launch_watch_peer(&s->watch);
    if (peer >= 0) {
        (void)snprintf(f->text, sizeof f->text, "rank %d (host %s) says: %s", peer,
                       s->watch.ranks[peer].host, s->watch.ranks[peer].text);
        return BY_EXIT_PEER;
    }
    int code = s->child.code < 0 ? BY_EXIT_FAILED : s->child.code;
    int started = s->watch.count - by__launch_watch_number(&s->watch, BY__RANK_ABSENT);
    (void)snprintf(f->text, sizeof f->text, "%s ended with %d when %d of %d ranks had started",
                   s->ranks == 1 && s->o.launch.hosts.count == 0 ? "the program" : "mpirun", code,
                   started, s->watch.count);
    return code == BY_EXIT_DONE ? BY_EXIT_FAILED : code;
}

static int exit_code_of(supervisor *s)
{
    by__launch_watch *w = &s->watch;
    bool saved;
    if (all_ended_well(w, &saved)) {
        return saved ? BY_EXIT_SAVED : BY_EXIT_DONE;
    }
    if (w->fault.code == BY_EXIT_CONFIG) {
        return BY_EXIT_CONFIG;
    }
    if (w->stopping) {
        return BY_EXIT_INTERRUPTED;
    }
    if (w->fault.code == BY__CRASH) {
        return s->child.code > BY__CRASH ? s->child.code : BY_EXIT_FAILED;
    }
    return w->fault.code != 0 ? w->fault.code : child_exit_code(s);
}

static void report_fault(const supervisor *s, int code)
{
    const by__launch_watch *w = &s->watch;
    if (w->fault.text[0] == '\0') {
        return;
    }
    const char *name = by_exit_name(w->fault.code == BY__CRASH ? BY__CRASH : code);
    if (w->fault.code == BY__CRASH && code > BY__CRASH) {
        report(s, "%s: %s (mpirun or the program: %d, signal %d)", name, w->fault.text, code,
               code - 128);
    } else {
        report(s, "%s: %s", name, w->fault.text);
    }
}

static void count_fault(supervisor *s)
{
    host *h = s->watch.fault.rank < 0 ? NULL : host_of(s, s->watch.fault.rank);
    if (h != NULL && ++h->faults == s->o.host_faults && s->o.launch.hosts.count > 1) {
        h->out = true;
        report(s, "host %s has failed %d times and is no longer used", h->given->name, h->faults);
    }
}

/* Drops hosts whose ranks were asked to stop there, because these hosts are going away. Returns
 * true if others are left. */
static bool drop_leaving(supervisor *s)
{
    bool left = false;
    for (size_t i = 0; i < s->o.launch.hosts.count; i++) {
        host *h = &s->hosts[i];
        for (int r = h->first; r < h->first + h->ranks; r++) {
            h->out = h->out || s->watch.ranks[r].stopping;
        }
        left = left || !h->out;
    }
    return left;
}

/* Renames the newest checkpoint so that readers ignore it, if there is an older one (or the job may
 * start over). */
static void set_aside(const supervisor *s)
{
    char *root = by__path_join(s->watch.run, "checkpoints");
    char *path = NULL;
    char *older = NULL;
    char *aside = NULL;
    by_string name = {0};
    if (s->watch.run[0] == '\0' || root == NULL ||
        by_checkpoint_latest(root, &path, NULL, NULL) != BY_OK) {
        free(root);
        return;
    }
    by_string_format(&name, "%s.aside", path);
    if (by__string_release(&name, &aside, NULL) == BY_OK) {
        (void)by__remove_tree(aside, NULL); /* from an earlier time */
        if (rename(path, aside) == 0) {
            if (by_checkpoint_latest(root, &older, NULL, NULL) != BY_OK && !s->o.from_start) {
                (void)rename(aside, path);
            } else {
                report(
                    s,
                    "%d failures after resuming from %s: it is renamed to %s, and an older one is "
                    "used",
                    BY__SAME_CHECKPOINT, path, aside);
            }
        }
    }
    free(root);
    free(path);
    free(older);
    free(aside);
}

/* Waits before a restart; returns false if a request to stop arrives. */
static bool wait_for_restart(const supervisor *s, double seconds)
{
    double end = by__now() + seconds;
    while (by__now() < end) {
        if (stop_wanted(s) != 0) {
            return false;
        }
        pause_for(TICK);
    }
    return stop_wanted(s) == 0;
}

/* ---- the whole run ---- */

static by_status open_supervisor(supervisor *s, const by_supervisor_options *options,
                                 by_error *error)
{
    bool here = true;
    *s = (supervisor){.o = *options, .history = {.saved = -1}, .watch = {.listener = -1}};
    by_supervisor_options *o = &s->o;
    o->multiple = o->multiple < 1 ? 1 : o->multiple;
    o->host_faults = o->host_faults < 1 ? 3 : o->host_faults;
    o->grace = o->grace > 0.0 ? o->grace : 30.0;
    o->timeout = o->timeout > 0.0 ? o->timeout : 600.0;
    o->silence = o->silence > 0.0 ? o->silence : 60.0;
    o->back_off = o->back_off > 0.0 ? o->back_off : 1.0;
    s->policy = (by__launch_policy){o->max_restarts, o->host_faults, o->back_off};
    /* Makes orphans of the job children of this process, which can then end them. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    by_launch_inspect(&s->facts, &o->launch.hosts, o->network);
    BY_TRY(
        by__alloc((void **)&s->hosts, o->launch.hosts.count + 1, sizeof *s->hosts, "hosts", error));
    for (size_t i = 0; i < o->launch.hosts.count; i++) {
        s->hosts[i].given = &o->launch.hosts.items[i];
        here = here && by__launch_host_is_here(s->hosts[i].given->name);
    }
    return by__launch_watch_open(&s->watch, here, o->silence, o->grace, error);
}

/* A checkpoint may be malformed, and an older one do. What a start reads that has none to go on
 * from, or has saved one since, is data or weights to begin with, which only their owner mends. */
static bool is_permanent(const supervisor *s)
{
    return s->watch.fault.malformed && (!s->resumes || s->watch.saved >= 0);
}

/* After a start that ended with *code: returns true if another one follows. */
static bool decide(supervisor *s, int *code)
{
    by__launch_watch *w = &s->watch;
    report_fault(s, *code);
    if (*code == BY_EXIT_SAVED && stop_wanted(s) == 0 && drop_leaving(s)) {
        report(s, "continuing on the remaining hosts");
        return true;
    }
    if (is_permanent(s)) {
        report(s, "not tried again: it would read the same");
        return false;
    }
    by__launch_decision d = by__launch_policy_decide(&s->history, &s->policy, *code, w->saved);
    if (d.why[0] != '\0') {
        report(s, "%s", d.why);
    }
    if (!d.restart) {
        return false;
    }
    count_fault(s);
    if (d.older) {
        set_aside(s);
    }
    if (!wait_for_restart(s, d.delay)) {
        *code = BY_EXIT_INTERRUPTED;
        return false;
    }
    return true;
}

by_status by_supervise(const by_supervisor_options *options, int *code, by_error *error)
{
    supervisor s;
    by_status status = open_supervisor(&s, options, error);
    bool again = status == BY_OK;
    while (again) {
        status = choose_ranks(&s, error);
        if (status == BY_OK) {
            status = start(&s, error);
        }
        again = false;
        if (status == BY_OK) {
            watch_job(&s);
            *code = exit_code_of(&s);
            again = *code != BY_EXIT_DONE && decide(&s, code);
        }
    }
    by__launch_watch_close(&s.watch);
    free(s.hosts);
    return status;
}
