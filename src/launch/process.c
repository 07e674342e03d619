/* Starts and ends the processes of a job on this host. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch/supervisor.h"

extern char **environ;

/* environ with `extra` replacing variables of the same names. */
static by_status join_environment(char ***out, char *const *extra, by_error *error)
{
    size_t count = 0;
    size_t extras = 0;
    size_t kept = 0;
    char **joined;
    while (environ[count] != NULL) {
        count++;
    }
    while (extra[extras] != NULL) {
        extras++;
    }
    BY_TRY(by__alloc((void **)&joined, count + extras + 1, sizeof *joined, "environment", error));
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
    memcpy(joined + kept, extra, extras * sizeof *joined);
    *out = joined;
    return BY_OK;
}

/* posix_spawn instead of fork, because the caller may have threads. */
static int spawn(pid_t *out, char *const *words, char *const *environment)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none;
    sigset_t defaults;
    (void)sigemptyset(&none);
    (void)sigemptyset(&defaults);
    for (int number = SIGHUP; number <= SIGTERM; number++) {
        (void)sigaddset(&defaults, number);
    }
    int problem = posix_spawnattr_init(&attributes);
    if (problem != 0) {
        return problem;
    }
    problem = posix_spawn_file_actions_init(&actions);
    if (problem == 0) {
        (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                        POSIX_SPAWN_SETSIGDEF);
        (void)posix_spawnattr_setsigmask(&attributes, &none);
        (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
        problem =
            posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        if (problem == 0) {
            problem = posix_spawnp(out, words[0], &actions, &attributes, words, environment);
        }
        (void)posix_spawn_file_actions_destroy(&actions);
    }
    (void)posix_spawnattr_destroy(&attributes);
    return problem;
}

by_status by__launch_process_start(pid_t *out, char *const *words, char *const *extra,
                                   by_error *error)
{
    char **environment;
    /* Makes orphans of the job children of this process, which can then end them. */
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    BY_TRY(join_environment(&environment, extra, error));
    int problem = spawn(out, words, environment);
    free(environment);
    return problem == 0
               ? BY_OK
               : by_error_set(error, BY_EIO, "cannot run %s: %s%s", words[0], strerror(problem),
                              problem == ENOENT && strcmp(words[0], "mpirun") == 0
                                  ? "; install Open MPI (Debian: openmpi-bin)"
                                  : "");
}

void by__launch_process_reap(const pid_t *pids, int *codes, size_t count)
{
    int status;
    for (pid_t one; (one = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (size_t i = 0; i < count; i++) {
            if (one == pids[i]) {
                codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            }
        }
    }
}

typedef struct process {
    pid_t pid;
    pid_t parent;
    bool ours; /* a descendant of this process */
} process;

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

static size_t list_processes(process **out)
{
    process *all = NULL;
    size_t capacity = 0;
    size_t count = 0;
    DIR *directory = opendir("/proc");
    for (struct dirent *e; directory != NULL && (e = readdir(directory)) != NULL;) {
        char *end;
        long pid = strtol(e->d_name, &end, 10);
        pid_t parent = *end == '\0' && pid > 0 ? parent_of((pid_t)pid) : 0;
        if (parent > 0 &&
            by__reserve((void **)&all, &capacity, count + 1, sizeof *all, NULL) == BY_OK) {
            all[count++] = (process){(pid_t)pid, parent, false};
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    *out = all;
    return count;
}

/* Marks the children of a process, then theirs. */
static size_t mark_descendants(process *all, size_t count, pid_t of)
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

static size_t kill_descendants(void)
{
    process *all;
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

bool by__launch_process_end_all(double seconds)
{
    double end = by__now() + seconds;
    for (;;) {
        size_t left = kill_descendants();
        by__launch_process_reap(NULL, NULL, 0);
        if (left == 0) {
            return true;
        }
        if (by__now() > end) {
            return false;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}
