/* What a worker cannot do once it is warm: each forbidden call is tried in a process of its own. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "serve/base/sandbox.h"
#include "temporary.h"

static char *directory;
static char path[512];
static char listening[108]; /* a socket, as the server's control socket */
static int opened;          /* the file, since before the sandbox */
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

static int try_pair(void)
{
    int pair[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

/* By a socket from before the sandbox. */
static int early = -1;
static int try_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", listening);
    return connect(early, (struct sockaddr *)&address, sizeof address);
}

/* Data that opens the connection. */
static int try_fast_open(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    return (int)sendto(early, "", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&address,
                       sizeof address);
}

static int try_bind(void)
{
    struct sockaddr address = {.sa_family = AF_UNIX};
    return bind(early, &address, sizeof address);
}

static int try_accept(void)
{
    return accept(early, NULL, NULL);
}

/* ---- files ---- */

static int try_read(void)
{
    return open(path, O_RDONLY);
}

#ifdef SYS_open
#define OLD_OPEN SYS_open
#define OLD_NAME "open"
#else
#define OLD_OPEN SYS_openat2
#define OLD_NAME NULL
#endif
static int try_other_open(void)
{
    return (int)syscall(OLD_OPEN, path, O_RDONLY);
}

static int try_memory(void)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/mem", (int)parent);
    return open(name, O_RDONLY);
}

static int try_environment(void)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/environ", (int)parent);
    return open(name, O_RDONLY);
}

static int try_state(void)
{
    struct stat info;
    return stat(path, &info);
}

static int try_access(void)
{
    return access(path, R_OK);
}

static int try_link_target(void)
{
    char target[64];
    return (int)readlink("/proc/self/exe", target, sizeof target);
}

static int try_handle(void)
{
    return (int)syscall(SYS_open_by_handle_at, opened, NULL, O_RDONLY);
}

static int try_directory(void)
{
    return chdir("/");
}

static int try_mode(void)
{
    return (int)syscall(452, AT_FDCWD, path, 0666, 0); /* fchmodat2 */
}

static int try_attribute(void)
{
    return (int)syscall(463, AT_FDCWD, path, 0, "user.a", NULL, 0); /* setxattrat */
}

static int try_copy(void)
{
    return (int)syscall(SYS_copy_file_range, opened, NULL, opened, NULL, 1UL, 0U);
}

static int try_watch(void)
{
    return (int)syscall(SYS_inotify_init1, 0);
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

static int try_pidfd(void)
{
    return (int)syscall(434, parent, 0); /* pidfd_open */
}

static int try_priority(void)
{
    return setpriority(PRIO_PROCESS, (id_t)parent, 19);
}

static int try_disk_priority(void)
{
    return (int)syscall(SYS_ioprio_set, 1, parent, 0);
}

static int try_scheduler(void)
{
    struct sched_param parameter = {0};
    return sched_setscheduler(parent, SCHED_BATCH, &parameter);
}

static int try_other_memory(void)
{
    char byte;
    struct iovec part = {&byte, 1};
    return (int)syscall(SYS_process_vm_readv, parent, &part, 1UL, &part, 1UL, 0UL);
}

/* A thread in a mount namespace of its own. */
static int try_namespace(void)
{
    return (int)syscall(SYS_clone,
                        CLONE_VM | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                            CLONE_NEWNS,
                        NULL, NULL, NULL, 0UL);
}

static int try_clock(void)
{
    struct timex none = {0};
    return (int)syscall(SYS_adjtimex, &none);
}

static int try_clock_too(void)
{
    struct timex none = {0};
    return clock_adjtime(CLOCK_REALTIME, &none);
}

/* Types into the terminal of the user. */
static int try_typing(void)
{
    return ioctl(STDIN_FILENO, TIOCSTI, "x");
}

static int try_console(void)
{
    return ioctl(STDIN_FILENO, 0x541c, "\3"); /* TIOCLINUX: pastes */
}

static int try_tracer(void)
{
    return prctl(PR_SET_PTRACER, (unsigned long)parent, 0, 0, 0);
}

static int try_old_memory(void)
{
    return (int)syscall(SYS_personality, 0x0400000); /* READ_IMPLIES_EXEC */
}

static int try_code(void)
{
    void *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code == MAP_FAILED ? -1 : 0;
}

static int try_code_late(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(code, 4096, PROT_READ | PROT_EXEC);
}

static int try_nameless_file(void)
{
    return (int)syscall(SYS_memfd_create, "x", 0U);
}

static int try_hole(void)
{
    void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, opened, 0);
    return memory == MAP_FAILED ? 0 : madvise(memory, 4096, MADV_REMOVE);
}

static int try_bpf(void)
{
    return (int)syscall(SYS_bpf, 0, NULL, 0U);
}

static int try_filter(void)
{
    int code = 0;
    return setsockopt(early, SOL_SOCKET, SO_ATTACH_FILTER, &code, sizeof code);
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

/* What goes on: memory, threads, what is open already. */
static int try_allowed(void)
{
    pthread_t thread;
    int touched = 0;
    char byte;
    struct stat info;
    cpu_set_t cores;
    bool good = pread(opened, &byte, 1, 0) == 1 && byte == 'a' && fstat(opened, &info) == 0;
    /* What malloc looks up is not there, which is no violation. */
    good = good && open("/proc/sys/vm/overcommit_memory", O_RDONLY) == -1;
    /* Threads of OpenMP that are to be pinned start without. */
    good = good && sched_getaffinity(0, sizeof cores, &cores) == 0 &&
           sched_setaffinity(parent, sizeof cores, &cores) == 0;
    /* Calls that do not exist yet. */
    good = good && syscall(9999) == -1 && errno == ENOSYS;
    good = good && pthread_create(&thread, NULL, touch, &touched) == 0;
    good = good && pthread_join(thread, NULL) == 0 && touched == 7;
    good = good && kill(getpid(), 0) == 0;
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
            {"a namespace", try_namespace, "clone"},
            {"a socket of the internet", try_internet, "socket"},
            {"a socket of the kernel", try_packets, "socket"},
            {"a pair of sockets", try_pair, "socketpair"},
            {"connect to a socket of the machine", try_connect, "connect"},
            {"data that connect", try_fast_open, "sendto"},
            {"bind", try_bind, "bind"},
            {"accept", try_accept, "accept"},
            {"a filter of a socket", try_filter, "setsockopt"},
            {"open for reading", try_read, "openat"},
            {"open by the older call", try_other_open, OLD_NAME},
            {"memory of another process", try_memory, "openat"},
            {"environment of another process", try_environment, "openat"},
            {"open for writing", try_write, "openat"},
            {"create", try_create, "openat"},
            {"open that empties the file", try_truncate, "openat"},
            {"open by a handle", try_handle, "open_by_handle_at"},
            {"state of a file", try_state, NULL},
            {"access", try_access, NULL},
            {"target of a link", try_link_target, "readlink"},
            {"chdir", try_directory, "chdir"},
            {"unlink", try_unlink, "unlink"},
            {"rename", try_rename, "rename"},
            {"mode of a file", try_mode, "fchmodat2"},
            {"attribute of a file", try_attribute, "setxattrat"},
            {"copy", try_copy, "copy_file_range"},
            {"watch", try_watch, "inotify_init1"},
            {"times of a file", try_times, "utimensat"},
            {"kill of another process", try_kill, "kill"},
            {"a queued signal for another process", try_queue, "rt_sigqueueinfo"},
            {"a signal for another thread", try_thread_kill, "tkill"},
            {"a file's signal for another process", try_owner, "fcntl"},
            {"another signal of a file", try_signal, "fcntl"},
            {"a file for a process", try_pidfd, "pidfd_open"},
            {"priority of another process", try_priority, "setpriority"},
            {"disk priority of another process", try_disk_priority, "ioprio_set"},
            {"scheduling of another process", try_scheduler, "sched_setscheduler"},
            {"limits of another process", try_limits, "prlimit64"},
            {"memory of another process by a call", try_other_memory, "process_vm_readv"},
            {"memory that outlives the process", try_shared, "shmget"},
            {"a file without a name", try_nameless_file, "memfd_create"},
            {"a hole in a file", try_hole, "madvise"},
            {"new code", try_code, "mmap"},
            {"data as code", try_code_late, "mprotect"},
            {"clock", try_clock, "adjtimex"},
            {"clock by the newer call", try_clock_too, "clock_adjtime"},
            {"typing", try_typing, "ioctl"},
            {"pasting", try_console, "ioctl"},
            {"ptrace", try_trace, "ptrace"},
            {"a debugger", try_tracer, "prctl"},
            {"personality", try_old_memory, "personality"},
            {"bpf", try_bpf, "bpf"},
            {"keyctl", try_keys, "keyctl"},
            {"what is allowed", try_allowed, NULL}};

static bool enter(const by__serve_sandbox *sandbox)
{
    by_error error = {0};
    int version;
    bool good = by__serve_sandbox_prepare(sandbox, &version, &error) == BY_OK &&
                by__serve_sandbox_enter(sandbox, &error) == BY_OK;
    if (!good) {
        fprintf(stderr, "%s\n", error.message);
    }
    return good;
}

/* 0: refused and told as the row says; else which of it was not so. */
static int in_sandbox(size_t row, bool closed)
{
    const by__serve_sandbox sandbox = {0};
    char told[BY__SANDBOX_CALL] = "";
    early = socket(AF_UNIX, SOCK_STREAM, 0);
    if (closed && !enter(&sandbox)) {
        return 1;
    }
    errno = 0;
    if (rows[row].attempt() != -1 || errno != EPERM) {
        return 2;
    }
    bool tells = by__serve_sandbox_violation(told);
    if (rows[row].told != NULL && strcmp(told, rows[row].told) != 0 &&
        strncmp(told, "system call ", 12) != 0) { /* newer than the library that knows the names */
        fprintf(stderr, "%s\n", told);
        return 3;
    }
    bool last = row + 1 == BY_ARRAY_LENGTH(rows);
    return tells == !last && !by__serve_sandbox_violation(told) ? 0 : 4;
}

/* 0: a worker whose broker is on the network connects by TCP, to no other port where Landlock can
 * tell, and by nothing else. */
static int with_network(void)
{
    const by__serve_sandbox sandbox = {.port = 6379};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};
    char told[BY__SANDBOX_CALL] = "";
    by_error error = {0};
    int version = 0;
    if (by__serve_sandbox_prepare(&sandbox, &version, &error) != BY_OK ||
        by__serve_sandbox_enter(&sandbox, &error) != BY_OK) {
        return 1;
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool open = fd >= 0 && !by__serve_sandbox_violation(told);
    if (version >= 4) {
        open = open && connect(fd, (struct sockaddr *)&address, sizeof address) == -1 &&
               errno == EACCES;
        address.sin_port = htons(6379);
        open = open && (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ||
                        errno == ECONNREFUSED || errno == EINPROGRESS);
    }
    static const int closed[][2] = {{AF_UNIX, SOCK_STREAM}, {AF_PACKET, SOCK_RAW},
                                    {AF_INET, SOCK_DGRAM},  {AF_INET6, SOCK_RAW},
                                    {AF_NETLINK, SOCK_RAW}, {AF_VSOCK, SOCK_STREAM}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(closed); i++) {
        errno = 0;
        open = open && socket(closed[i][0], closed[i][1], 0) == -1 && errno == EPERM &&
               by__serve_sandbox_violation(told) && strcmp(told, "socket") == 0;
    }
    return open ? 0 : 2;
}

/* 0: devices can be opened, and nothing beside them. */
static int with_devices(void)
{
    static const char *const devices[] = {"/dev/null", NULL};
    const by__serve_sandbox sandbox = {.devices = devices};
    by_error error = {0};
    int version;
    by_status status = by__serve_sandbox_prepare(&sandbox, &version, &error);
    if (version == 0) {
        return status == BY_ESTATE ? 0 : 1;
    }
    if (status != BY_OK || by__serve_sandbox_enter(&sandbox, &error) != BY_OK) {
        return 2;
    }
    bool good = open("/dev/null", O_RDWR) >= 0 && open("/dev/zero", O_RDONLY) == -1;
    return good && open(path, O_RDONLY) == -1 && errno == EACCES ? 0 : 3;
}

/* 0: Landlock alone keeps a thread from files, beside those that are open. */
static int with_landlock(void)
{
    const by__serve_landlock none = {0};
    by_error error = {0};
    int version;
    char byte;
    if (by__serve_landlock_enter(&version, &none, &error) != BY_OK) {
        return 1;
    }
    bool closed = open(path, O_RDONLY) == -1 && errno == EACCES && unlink(path) == -1;
    return version == 0 || (closed && pread(opened, &byte, 1, 0) == 1) ? 0 : 2;
}

static int (*const others[])(void) = {with_network, with_devices, with_landlock};

/* ---- an event loop, as a worker's ---- */

typedef struct served_loop {
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t timer;
    uv_pipe_t pipe;
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

static bool ask_echo(served_loop *l, int connection)
{
    static char letter = 'e';
    uv_buf_t buffer = uv_buf_init(&letter, 1);
    return uv_pipe_open(&l->pipe, connection) == 0 &&
           uv_read_start((uv_stream_t *)&l->pipe, give_byte, on_echo) == 0 &&
           uv_write(&l->writing, (uv_stream_t *)&l->pipe, &buffer, 1, NULL) == 0;
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
 * inside it. A dialer opens the connections (dialer.h). */
static int with_loop(void)
{
    const by__serve_sandbox sandbox = {0};
    by_error error = {0};
    int version;
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    served_loop l = {.address = {.sun_family = AF_UNIX}};
    pthread_t thread;
    (void)snprintf(l.address.sun_path, sizeof l.address.sun_path, "%s", listening);
    if (connect(connection, (struct sockaddr *)&l.address, sizeof l.address) != 0 ||
        by__serve_sandbox_prepare(&sandbox, &version, &error) != BY_OK ||
        uv_loop_init(&l.loop) != 0 || uv_async_init(&l.loop, &l.wake, on_wake) != 0 ||
        uv_timer_init(&l.loop, &l.timer) != 0) {
        return 1;
    }
    /* A library that looks for io_uring does without it, whenever it looks. */
    char parameters[256] = {0};
    char told[BY__SANDBOX_CALL];
    bool absent = syscall(SYS_io_uring_setup, 1, parameters) == -1 && errno == ENOSYS;
    if (!absent || by__serve_sandbox_enter(&sandbox, &error) != BY_OK) {
        return 2;
    }
    absent = syscall(SYS_io_uring_setup, 1, parameters) == -1 && errno == ENOSYS;
    l.wake.data = l.timer.data = l.pipe.data = &l;
    if (!absent || uv_pipe_init(&l.loop, &l.pipe, 0) != 0 ||
        uv_timer_start(&l.timer, on_timer, 1, 0) != 0 || !ask_echo(&l, connection)) {
        return 3;
    }
    if (pthread_create(&thread, NULL, send_wake, &l.wake) != 0) {
        return 4;
    }
    (void)uv_run(&l.loop, UV_RUN_DEFAULT);
    (void)pthread_join(thread, NULL);
    return l.seen == 7 && !by__serve_sandbox_violation(told) ? 0 : 5;
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
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", listening);
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

/* `row` behind the last one: of `others`. */
static int code_of(size_t row, bool closed)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(row < BY_ARRAY_LENGTH(rows) ? in_sandbox(row, closed)
                                          : others[row - BY_ARRAY_LENGTH(rows)]());
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
    for (size_t i = 0; i < BY_ARRAY_LENGTH(others); i++) {
        assert_int_equal(code_of(BY_ARRAY_LENGTH(rows) + i, true), 0);
    }
    assert_int_equal(access(path, R_OK), 0);
    /* The attempts would work without the sandbox. */
    static const char *const work[] = {"a socket of the internet", "open for writing",
                                       "open for reading", "memory of another process"};
    for (size_t i = 0, row; i < BY_ARRAY_LENGTH(work); i++) {
        for (row = 0; strcmp(rows[row].name, work[i]) != 0; row++) {
        }
        assert_int_not_equal(code_of(row, false), 0);
    }
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
    (void)snprintf(listening, sizeof listening, "%s/socket", directory);
    if (by__file_write(path, "a", 1, NULL) != BY_OK) {
        return -1;
    }
    opened = open(path, O_RDONLY | O_CLOEXEC);
    return opened >= 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    (void)close(opened);
    temporary_remove(directory);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loop), cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
