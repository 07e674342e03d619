/* Child processes by posix_spawn and waitpid; descendants by /proc. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process/process.h"

extern char **environ;

/* environ with `extra` replacing variables of the same names; NULL: memory is exhausted. */
static char **join_environment(char *const *extra)
{
    size_t count = 0;
    size_t extras = 0;
    size_t kept = 0;
    char **joined = NULL;
    while (environ[count] != NULL) {
        count++;
    }
    while (extra != NULL && extra[extras] != NULL) {
        extras++;
    }
    if (by__alloc((void **)&joined, count + extras + 1, sizeof *joined, "environment", NULL) !=
        BY_OK) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        bool replaced = false;
        for (size_t k = 0; k < extras; k++) {
            size_t name = strcspn(extra[k], "=") + 1;
            replaced = replaced || strncmp(environ[i], extra[k], name) == 0;
        }
        if (!replaced) {
            joined[kept++] = environ[i];
        }
    }
    if (extras > 0) {
        memcpy(joined + kept, extra, extras * sizeof *joined);
    }
    return joined;
}

/* posix_spawn instead of fork, because the caller may have threads. */
static int spawn(pid_t *out, const by__process_options *options, char *const *environment)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none;
    sigset_t defaults;
    short group = options->session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
    (void)sigemptyset(&none);
    (void)sigfillset(&defaults);
    (void)sigdelset(&defaults, SIGKILL);
    (void)sigdelset(&defaults, SIGSTOP);
    (void)posix_spawnattr_init(&attributes); /* these cannot fail */
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_setflags(&attributes,
                                   (short)(group | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    int problem =
        options->input < 0
            ? posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
            : posix_spawn_file_actions_adddup2(&actions, options->input, STDIN_FILENO);
    if (problem == 0 && options->output > 0) {
        problem = posix_spawn_file_actions_adddup2(&actions, options->output, STDOUT_FILENO);
    }
    if (problem == 0 && options->errors > 0) {
        problem = posix_spawn_file_actions_adddup2(&actions, options->errors, STDERR_FILENO);
    }
    if (problem == 0) {
        problem = posix_spawnp(out, options->words[0], &actions, &attributes, options->words,
                               environment);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return problem;
}

int by__process_start(by__process *p, const by__process_options *options)
{
    char **environment = join_environment(options->extra);
    *p = (by__process){.code = -1, .began = by__now()};
    int problem = environment == NULL ? ENOMEM : spawn(&p->pid, options, environment);
    p->running = problem == 0;
    free(environment);
    return problem;
}

void by__process_stop(by__process *p, double grace)
{
    if (p->running) {
        (void)kill(p->pid, SIGTERM);
        p->due = by__now() + grace;
        p->killed = false;
    }
}

void by__process_kill(by__process *p)
{
    if (p->running) {
        (void)kill(-p->pid, SIGKILL);
        p->due = by__now() + BY__PROCESS_KILL_SECONDS;
        p->killed = true;
    }
}

by__process_news by__process_watch(by__process *p, double now)
{
    int status;
    if (!p->running) {
        return BY__PROCESS_NONE;
    }
    if (waitpid(p->pid, &status, WNOHANG) == p->pid) {
        p->running = false;
        p->due = 0.0;
        p->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return BY__PROCESS_ENDED;
    }
    if (p->due == 0.0 || now < p->due) {
        return BY__PROCESS_NONE;
    }
    bool left = p->killed;
    by__process_kill(p);
    return left ? BY__PROCESS_LEFT : BY__PROCESS_NONE;
}

double by__process_back_off(double first, double longest, unsigned exits)
{
    double delay = first;
    for (unsigned i = 1; i < exits && delay < longest; i++) {
        delay *= 2.0;
    }
    return delay < longest ? delay : longest;
}

/* ---- descendants ---- */

typedef struct process_entry {
    pid_t pid;
    pid_t parent;
    bool ours; /* a descendant of this process */
} process_entry;

/* The parent of a process; 0: it is gone, or a zombie. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    char text[512];
    int parent;
    char state;
    (void)snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        (void)close(fd);
    }
    text[n < 0 ? 0 : n] = '\0';
    const char *behind_name = strrchr(text, ')'); /* the name may contain any characters */
    return behind_name != NULL && sscanf(behind_name + 1, " %c %d", &state, &parent) == 2 &&
                   state != 'Z' && state != 'X'
               ? (pid_t)parent
               : 0;
}

static size_t list_processes(process_entry **out)
{
    process_entry *all = NULL;
    size_t capacity = 0;
    size_t count = 0;
    DIR *directory = opendir("/proc");
    for (struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        pid_t parent = *end == '\0' && pid > 0 ? parent_of((pid_t)pid) : 0;
        if (parent > 0 &&
            by__reserve((void **)&all, &capacity, count + 1, sizeof *all, NULL) == BY_OK) {
            all[count++] = (process_entry){(pid_t)pid, parent, false};
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    *out = all;
    return count;
}

/* Marks the children of a process, then theirs. */
static size_t mark_descendants(process_entry *all, size_t count, pid_t of)
{
    size_t marked = 0;
    for (size_t i = 0; i < count; i++) {
        if (all[i].parent == of && !all[i].ours) {
            all[i].ours = true;
            marked += 1 + mark_descendants(all, count, all[i].pid);
        }
    }
    return marked;
}

static size_t signal_descendants(void)
{
    process_entry *all;
    size_t count = list_processes(&all);
    size_t marked = mark_descendants(all, count, getpid());
    for (size_t i = 0; i < count; i++) {
        if (all[i].ours) {
            (void)kill(all[i].pid, SIGKILL);
        }
    }
    free(all);
    return marked;
}

bool by__process_kill_descendants(double seconds)
{
    double end = by__now() + seconds;
    for (;;) {
        size_t left = signal_descendants();
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (left == 0 || by__now() > end) {
            return left == 0;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}
