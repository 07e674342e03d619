/* What a worker cannot do once it is warm: each forbidden call is tried in a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

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

/* ---- an event loop, as a worker's ---- */

typedef struct served_loop {
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t timer;
    uv_pipe_t pipe;
    uv_connect_t connecting;
    uv_write_t writing;
    struct sockaddr_un address;
    char byte;
    unsigned seen; /* a bit for each of the three events below */
} served_loop;

static void see(served_loop *l, unsigned event)
{
    l->seen |= 1U << event;
    if (l->seen == 7) {
        uv_stop(&l->loop);
    }
}

static void on_echo(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer)
{
    if (count == 1 && buffer->base[0] == 'e') {
        see(stream->data, 0);
    }
}

static void give_byte(uv_handle_t *handle, size_t wanted, uv_buf_t *buffer)
{
    served_loop *l = handle->data;
    (void)wanted;
    *buffer = uv_buf_init(&l->byte, 1);
}

static void on_connect(uv_connect_t *request, int code)
{
    static char letter = 'e';
    served_loop *l = request->data;
    uv_buf_t buffer = uv_buf_init(&letter, 1);
    if (code == 0) {
        (void)uv_read_start((uv_stream_t *)&l->pipe, give_byte, on_echo);
        (void)uv_write(&l->writing, (uv_stream_t *)&l->pipe, &buffer, 1, NULL);
    } else {
        uv_stop(&l->loop);
    }
}

static void on_wake(uv_async_t *wake)
{
    see(wake->data, 1);
}

static void on_timer(uv_timer_t *timer)
{
    see(timer->data, 2);
}

static void *send_wake(void *user)
{
    (void)uv_async_send(user);
    return NULL;
}

/* 0: a loop that was made before the sandbox takes handles, connections and messages of threads
 * inside it. */
static int with_loop(void)
{
    by_error error = {0};
    served_loop l = {.address = {.sun_family = AF_UNIX}};
    pthread_t thread;
    (void)snprintf(l.address.sun_path, sizeof l.address.sun_path, "%s/socket", directory);
    if (by__sandbox_prepare(&error) != BY_OK || uv_loop_init(&l.loop) != 0 ||
        uv_async_init(&l.loop, &l.wake, on_wake) != 0 || uv_timer_init(&l.loop, &l.timer) != 0) {
        return 1;
    }
    /* A library that looks for io_uring does without it, whenever it looks. */
    char parameters[256] = {0};
    bool absent = syscall(SYS_io_uring_setup, 1, parameters) == -1 && errno == ENOSYS;
    if (!absent || by__sandbox_enter(false, &error) != BY_OK) {
        return 2;
    }
    absent = syscall(SYS_io_uring_setup, 1, parameters) == -1 && errno == ENOSYS;
    l.wake.data = l.timer.data = l.pipe.data = l.connecting.data = &l;
    if (!absent || uv_pipe_init(&l.loop, &l.pipe, 0) != 0 ||
        uv_timer_start(&l.timer, on_timer, 1, 0) != 0) {
        return 3;
    }
    uv_pipe_connect(&l.connecting, &l.pipe, l.address.sun_path, on_connect);
    if (pthread_create(&thread, NULL, send_wake, &l.wake) != 0) {
        return 4;
    }
    (void)uv_run(&l.loop, UV_RUN_DEFAULT);
    (void)pthread_join(thread, NULL);
    return l.seen == 7 && by__sandbox_violation() == NULL ? 0 : 5;
}

static int code_of_child(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_loop(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte = 0;
    (void)state;
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(with_loop());
    }
    /* The kernel has accepted the connection, or the child has ended. */
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    int connection = -1;
    while (connection < 0 && poll(&waiting, 1, 100) >= 0) {
        siginfo_t ended = {0};
        if ((waiting.revents & POLLIN) != 0) {
            connection = accept(listener, NULL, NULL);
        } else if (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                   ended.si_pid == child) {
            break;
        }
    }
    if (connection >= 0 && read(connection, &byte, 1) == 1) {
        assert_int_equal(write(connection, &byte, 1), 1);
    }
    assert_int_equal(code_of_child(child), 0);
    (void)close(connection);
    (void)close(listener);
}

/* ---- calls ---- */

/* `row` behind the last one: with_network. */
static int code_of(size_t row, bool closed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(row == BY_ARRAY_LENGTH(rows) ? with_network() : in_sandbox(row, closed));
    }
    return code_of_child(child);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loop), cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
