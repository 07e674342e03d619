/* What a worker cannot do once it is warm: each forbidden call is tried in a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve/worker/sandbox.h"
#include "temporary.h"

static char *directory;
static char path[512];
static pid_t parent;

static int try_exec(void)
{
    char *const arguments[] = {"true", NULL};
    return execv("/bin/true", arguments);
}

static int try_fork(void)
{
    return (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0UL);
}

static int try_internet(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int try_packets(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0);
}

static int try_bind(void)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), &address, sizeof address);
}

static int try_write(void)
{
    return open(path, O_WRONLY);
}

static int try_create(void)
{
    return open(directory, O_RDONLY | O_CREAT, 0600);
}

/* Linux empties the file, although it is opened for reading. */
static int try_truncate(void)
{
    return open(path, O_RDONLY | O_TRUNC);
}

static int try_unlink(void)
{
    return unlink(path);
}

static int try_rename(void)
{
    return rename(path, directory);
}

static int try_kill(void)
{
    return kill(parent, 0);
}

static int try_queue(void)
{
    return sigqueue(parent, 0, (union sigval){0});
}

static int try_thread_kill(void)
{
    return (int)syscall(SYS_tkill, parent, 0);
}

/* Whose signal tells that a file can be read: the kernel sends any signal to any process of the
 * user. */
static int try_owner(void)
{
    return fcntl(STDIN_FILENO, F_SETOWN, parent);
}

static int try_signal(void)
{
    return fcntl(STDIN_FILENO, F_SETSIG, SIGKILL);
}

static int try_limits(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_CORE, &limit) == 0 ? prlimit(parent, RLIMIT_CORE, &limit, NULL) : 0;
}

static int try_shared(void)
{
    return shmget(IPC_PRIVATE, 4096, 0600);
}

static int try_times(void)
{
    return utimensat(AT_FDCWD, path, NULL, 0);
}

static int try_trace(void)
{
    return (int)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static int try_keys(void)
{
    return (int)syscall(SYS_keyctl, 0, 0, 0, 0, 0);
}

static void *touch(void *user)
{
    *(int *)user = 7;
    return NULL;
}

/* What goes on: reading, memory, threads, sockets of this machine, what is open already. */
static int try_allowed(void)
{
    pthread_t thread;
    int touched = 0;
    char byte;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, &byte, 1) == 1 && byte == 'a';
    good = good && pthread_create(&thread, NULL, touch, &touched) == 0;
    good = good && pthread_join(thread, NULL) == 0 && touched == 7;
    good = good && socket(AF_UNIX, SOCK_STREAM, 0) >= 0 && kill(getpid(), 0) == 0;
    void *memory = malloc((size_t)64 << 20);
    good = good && memory != NULL && write(STDERR_FILENO, "", 0) == 0;
    free(memory);
    errno = EPERM;
    return good ? -1 : 0;
}

static const struct {
    const char *name;
    int (*attempt)(void);
    const char *told; /* NULL: nothing is */
} rows[] = {{"exec", try_exec, "execve"},
            {"fork", try_fork, "clone"},
            {"a socket of the internet", try_internet, "socket"},
            {"a socket of the kernel", try_packets, "socket"},
            {"bind", try_bind, "bind"},
            {"open for writing", try_write, "openat"},
            {"create", try_create, "openat"},
            {"open that empties the file", try_truncate, "openat"},
            {"unlink", try_unlink, "a system call"},
            {"rename", try_rename, "a system call"},
            {"kill of another process", try_kill, "kill"},
            {"a queued signal for another process", try_queue, "a system call"},
            {"a signal for another thread", try_thread_kill, "a system call"},
            {"a file's signal for another process", try_owner, "a system call"},
            {"another signal of a file", try_signal, "a system call"},
            {"limits of another process", try_limits, "a system call"},
            {"memory that outlives the process", try_shared, "a system call"},
            {"times of a file", try_times, "a system call"},
            {"ptrace", try_trace, "ptrace"},
            {"keyctl", try_keys, "a system call"},
            {"what is allowed", try_allowed, NULL}};

/* 0: refused and told as the row says; else which of it was not so. */
static int in_sandbox(size_t row, bool closed)
{
    by_error error = {0};
    if (closed && by__sandbox_enter(false, &error) != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    errno = 0;
    if (rows[row].attempt() != -1 || errno != EPERM) {
        return 2;
    }
    const char *told = by__sandbox_violation();
    bool right =
        rows[row].told == NULL ? told == NULL : told != NULL && strcmp(told, rows[row].told) == 0;
    return right && by__sandbox_violation() == NULL ? 0 : 3;
}

/* 0: a worker whose broker is on the network has sockets of the internet, and no others. */
static int with_network(void)
{
    by_error error = {0};
    if (by__sandbox_enter(true, &error) != BY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    bool open = socket(AF_INET, SOCK_STREAM, 0) >= 0 && socket(AF_UNIX, SOCK_STREAM, 0) >= 0;
    errno = 0;
    bool closed = socket(AF_PACKET, SOCK_RAW, 0) == -1 && errno == EPERM;
    const char *told = by__sandbox_violation();
    return open && closed && told != NULL && strcmp(told, "socket") == 0 ? 0 : 2;
}

/* `row` behind the last one: with_network. */
static int code_of(size_t row, bool closed)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(row == BY_ARRAY_LENGTH(rows) ? with_network() : in_sandbox(row, closed));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        int code = code_of(i, true);
        if (code != 0) {
            fail_msg("%s: %d", rows[i].name, code);
        }
    }
    assert_int_equal(code_of(BY_ARRAY_LENGTH(rows), true), 0);
    assert_int_equal(access(path, R_OK), 0);
    /* The attempts would work without the sandbox. */
    assert_int_not_equal(code_of(2, false), 0);
    assert_int_not_equal(code_of(5, false), 0);
}

static int set_up(void **state)
{
    (void)state;
    parent = getpid();
    directory = temporary_make();
    if (directory == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/file", directory);
    return by__file_write(path, "a", 1, NULL) == BY_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
