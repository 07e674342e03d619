/* What a gateway and a broker cannot do, and what they go on doing: each in a process of its
 * own. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
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
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <uv.h>

#include "serve/base/sandbox_paths.h"
#include "serve/broker/task_store.h"
#include "temporary.h"

static char *own;     /* the directory of the process */
static char *foreign; /* another one */
static pid_t parent;

static const char *in(char out[512], const char *directory, const char *name)
{
    (void)snprintf(out, 512, "%s/%s", directory, name);
    return out;
}

static int try_exec(void)
{
    char *const arguments[] = {"true", NULL};
    return execv("/bin/true", arguments);
}

static int try_fork(void)
{
    return (int)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0UL);
}

static int try_namespace(void)
{
    return unshare(CLONE_NEWNS);
}

static int try_mount(void)
{
    return mount("none", own, "tmpfs", 0, NULL);
}

static int try_root(void)
{
    return chroot(own);
}

static int try_trace(void)
{
    return (int)ptrace(PTRACE_ATTACH, parent, NULL, NULL);
}

static int try_other_memory(void)
{
    char byte;
    struct iovec part = {&byte, 1};
    return (int)syscall(SYS_process_vm_readv, parent, &part, 1UL, &part, 1UL, 0UL);
}

static int try_write_memory(void)
{
    char byte = 0;
    struct iovec part = {&byte, 1};
    return (int)syscall(SYS_process_vm_writev, parent, &part, 1UL, &part, 1UL, 0UL);
}

static int try_kill(void)
{
    return kill(parent, 0);
}

static int try_pidfd(void)
{
    return (int)syscall(434, parent, 0);
}

static int try_priority(void)
{
    return setpriority(PRIO_PROCESS, (id_t)parent, 19);
}

static int try_typing(void)
{
    return ioctl(STDIN_FILENO, TIOCSTI, "x");
}

static int try_console(void)
{
    return ioctl(STDIN_FILENO, 0x541c, "\3");
}

static int try_code(void)
{
    void *code =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return code == MAP_FAILED ? -1 : 0;
}

static int try_code_of_file(void)
{
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, STDIN_FILENO, 0);
    return code == MAP_FAILED ? -1 : 0;
}

static int try_nameless_file(void)
{
    return (int)syscall(SYS_memfd_create, "x", 0U);
}

static int try_shared(void)
{
    return shmget(IPC_PRIVATE, 4096, 0600);
}

static int try_link(void)
{
    char target[512];
    return symlink("/etc/passwd", in(target, own, "link"));
}

static int try_device(void)
{
    char name[512];
    return mknod(in(name, own, "device"), S_IFCHR | 0600, 0x103);
}

static int try_bpf(void)
{
    return (int)syscall(SYS_bpf, 0, NULL, 0U);
}

static int try_keys(void)
{
    return (int)syscall(SYS_keyctl, 0, 0, 0, 0, 0);
}

static int try_personality(void)
{
    return (int)syscall(SYS_personality, 0x0400000);
}

static int early = -1; /* a socket from before the sandbox */
static int try_listen(void)
{
    return listen(early, 1);
}

static int try_filter(void)
{
    int code = 0;
    return setsockopt(early, SOL_SOCKET, SO_ATTACH_FILTER, &code, sizeof code);
}

static int try_packets(void)
{
    return socket(AF_PACKET, SOCK_RAW, 0);
}

static int try_owner(void)
{
    return fcntl(STDIN_FILENO, F_SETOWN, parent);
}

static int try_internet(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int try_names(void)
{
    return socket(AF_INET, SOCK_DGRAM, 0);
}

#define BOTH 3U

static const struct {
    const char *name;
    int (*attempt)(void);
    const char *told;
    unsigned kinds; /* bits of those for whom it is forbidden */
} rows[] = {{"exec", try_exec, "execve", BOTH},
            {"fork", try_fork, "clone", BOTH},
            {"a namespace", try_namespace, "unshare", BOTH},
            {"mount", try_mount, "mount", BOTH},
            {"another root", try_root, "chroot", BOTH},
            {"ptrace", try_trace, "ptrace", BOTH},
            {"reading the memory of another process", try_other_memory, "process_vm_readv", BOTH},
            {"writing it", try_write_memory, "process_vm_writev", BOTH},
            {"a signal", try_kill, "kill", BOTH},
            {"a file for a process", try_pidfd, "pidfd_open", BOTH},
            {"priority of another process", try_priority, "setpriority", BOTH},
            {"typing", try_typing, "ioctl", BOTH},
            {"pasting", try_console, "ioctl", BOTH},
            {"new code", try_code, "mmap", BOTH},
            {"a file as code", try_code_of_file, "mmap", BOTH},
            {"a file without a name", try_nameless_file, "memfd_create", BOTH},
            {"memory that outlives the process", try_shared, "shmget", BOTH},
            {"a link", try_link, "symlink", BOTH},
            {"a device", try_device, "mknod", BOTH},
            {"bpf", try_bpf, "bpf", BOTH},
            {"keyctl", try_keys, "keyctl", BOTH},
            {"personality", try_personality, "personality", BOTH},
            {"a further listener", try_listen, "listen", BOTH},
            {"a filter of a socket", try_filter, "setsockopt", BOTH},
            {"packets", try_packets, "socket", BOTH},
            {"a file's signal for another process", try_owner, "fcntl", BOTH},
            {"another machine", try_internet, "socket", 1U},
            {"names", try_names, "socket", 1U}};

static by__serve_sandbox_kind kind_of(unsigned bit)
{
    return bit == 0 ? BY__SANDBOX_BROKER : BY__SANDBOX_GATEWAY;
}

static bool enter(by__serve_sandbox_kind kind, int *version)
{
    by_error error = {0};
    by__serve_sandbox_paths paths = {0};
    char name[512];
    by__serve_sandbox_paths_add_system(&paths, kind == BY__SANDBOX_GATEWAY);
    by__serve_sandbox_paths_add_file(&paths, in(name, own, "file"), true);
    by__serve_sandbox_paths_add_file(&paths, "/nonexistent/keys", false);
    by__serve_sandbox_paths_add(&paths, NULL, true);
    const by__serve_sandbox sandbox = {
        .kind = kind, .paths = paths.items, .path_count = paths.count};
    bool good = !paths.failed && by__serve_sandbox_prepare(&sandbox, version, &error) == BY_OK &&
                by__serve_sandbox_enter(&sandbox, &error) == BY_OK;
    if (!good) {
        fprintf(stderr, "%s\n", error.message);
    }
    by__serve_sandbox_paths_free(&paths);
    return good;
}

/* 0: refused, and told as the row says; else which of it was not so. */
static int refuses(size_t row, by__serve_sandbox_kind kind)
{
    char told[BY__SANDBOX_CALL] = "";
    int version;
    early = socket(AF_UNIX, SOCK_STREAM, 0);
    if (!enter(kind, &version)) {
        return 1;
    }
    errno = 0;
    if (rows[row].attempt() != -1 || errno != EPERM) {
        return 2;
    }
    bool tells = by__serve_sandbox_violation(told);
    bool right = strcmp(told, rows[row].told) == 0 || strncmp(told, "system call ", 12) == 0 ||
                 strncmp(told, rows[row].told, strlen(rows[row].told)) == 0; /* mknodat */
    return tells && right ? 0 : 3;
}

/* ---- what goes on ---- */

static bool writes_files(void)
{
    by_error error = {0};
    char name[512], other[512];
    char *text = NULL;
    size_t length = 0;
    bool good = by__file_write(in(name, own, "quota.json"), "{}", 2, &error) == BY_OK &&
                by__file_write(name, "{1}", 3, &error) == BY_OK &&
                by__file_read(&text, &length, name, 64, &error) == BY_OK && length == 3;
    free(text);
    good = good && by__make_dirs(in(other, own, "a/b"), &error) == BY_OK;
    good = good && rename(name, in(other, own, "renamed")) == 0 && unlink(other) == 0;
    return good;
}

/* Files of others, and what is written where it may only be read. */
static bool leaves_files(void)
{
    char name[512];
    return open(in(name, foreign, "secret"), O_RDONLY) == -1 && errno == EACCES &&
           open(in(name, foreign, "new"), O_WRONLY | O_CREAT, 0600) == -1 && errno == EACCES &&
           unlink(in(name, foreign, "secret")) == -1 && errno == EACCES &&
           mkdir(in(name, foreign, "new"), 0700) == -1 && errno == EACCES;
}

static bool leaves_processes(void)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/mem", (int)parent);
    bool good = open(name, O_RDONLY) == -1;
    (void)snprintf(name, sizeof name, "/proc/%d/environ", (int)parent);
    int fd = open(name, O_RDONLY);
    char byte;
    return good && (fd < 0 || read(fd, &byte, 1) <= 0);
}

static bool reaches_peers(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", own);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    int peer = accept4(early, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return good && peer >= 0 && write(fd, "x", 1) == 1;
}

static void set_bit(uv_work_t *work)
{
    *(int *)work->data = 7;
}

static void on_bit(uv_work_t *work, int status)
{
    (void)work;
    (void)status;
}

/* A loop that is made before, as a server's, with its threads. */
static bool runs_loop(uv_loop_t *loop)
{
    int bit = 0;
    uv_work_t work = {.data = &bit};
    uv_fs_t state;
    char name[512];
    bool good = uv_queue_work(loop, &work, set_bit, on_bit) == 0 &&
                uv_run(loop, UV_RUN_DEFAULT) == 0 && bit == 7;
    good = good && uv_fs_stat(NULL, &state, in(name, own, "file"), NULL) == 0;
    uv_fs_req_cleanup(&state);
    return good;
}

static bool keeps_tasks(void)
{
    by__broker_tasks *tasks = NULL;
    by_error error = {0};
    char name[512];
    bool good = by__broker_tasks_open(&tasks, in(name, own, "tasks.sqlite"), &error) == BY_OK;
    by__broker_tasks_close(&tasks);
    return good;
}

static bool finds_names(void)
{
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    bool good = getaddrinfo("localhost", "80", &hints, &list) == 0;
    freeaddrinfo(list);
    return good && socket(AF_INET6, SOCK_STREAM, 0) != 0;
}

/* 0: a process of this kind works in its sandbox. */
static int works(by__serve_sandbox_kind kind)
{
    uv_loop_t loop;
    char told[BY__SANDBOX_CALL] = "";
    char parameters[256] = {0};
    int version;
    early = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", own);
    (void)unlink(address.sun_path);
    if (bind(early, (struct sockaddr *)&address, sizeof address) != 0 || listen(early, 4) != 0) {
        return 1;
    }
    if (!enter(kind, &version) || uv_loop_init(&loop) != 0) {
        return 2;
    }
    if (syscall(SYS_io_uring_setup, 1, parameters) != -1 || errno != ENOSYS) {
        return 3;
    }
    if (!writes_files()) {
        return 4;
    }
    if (version > 0 && !(leaves_files() && leaves_processes())) {
        return 5;
    }
    if (!reaches_peers() || !runs_loop(&loop)) {
        return 6;
    }
    if (kind == BY__SANDBOX_BROKER ? !keeps_tasks() : !finds_names()) {
        return 7;
    }
    if (by__serve_sandbox_violation(told)) {
        fprintf(stderr, "%s\n", told);
        return 8;
    }
    return 0;
}

static int code_of_child(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows) * 2; i++) {
        size_t row = i / 2;
        unsigned bit = i % 2;
        if ((rows[row].kinds >> bit & 1) == 0) {
            continue;
        }
        pid_t child = fork();
        if (child == 0) {
            _exit(refuses(row, kind_of(bit)));
        }
        int code = code_of_child(child);
        if (code != 0) {
            fail_msg("%s, %s: %d", bit == 0 ? "broker" : "gateway", rows[row].name, code);
        }
    }
}

static void test_works(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 2; bit++) {
        pid_t child = fork();
        if (child == 0) {
            _exit(works(kind_of(bit)));
        }
        assert_int_equal(code_of_child(child), 0);
    }
}

static int set_up(void **state)
{
    char name[512];
    (void)state;
    parent = getpid();
    own = temporary_make();
    foreign = temporary_make();
    return own != NULL && foreign != NULL &&
                   by__file_write(in(name, own, "file"), "a", 1, NULL) == BY_OK &&
                   by__file_write(in(name, foreign, "secret"), "a", 1, NULL) == BY_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_remove(own);
    temporary_remove(foreign);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_works)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
