#include "serve/base/sandbox.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "serve/base/sandbox_calls.h"

/* The newest call of which it is known what it does (Linux 6.17): later ones are not there. */
#define NEWEST 469

/* ---- refused calls ---- */

/* The number of the last refused call + 1; 0: none. A signal handler can only communicate in this
 * way. */
static volatile sig_atomic_t refused;

/* What malloc (heaps and arenas) and libuv (a file to close when there are too many) look up late,
 * and do without. */
static bool is_harmless(int number, const char *path)
{
    static const char *const paths[] = {"/proc/sys/vm/overcommit_memory",
                                        "/sys/devices/system/cpu/online",
                                        "/proc/stat",
                                        "/proc/cpuinfo",
                                        "/dev/null",
                                        "/"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(paths) && number == SYS_openat; i++) {
        if (strcmp(path, paths[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* A refused call returns an error as if from the kernel. */
static void on_refused(int number, siginfo_t *info, void *context)
{
    ucontext_t *c = context;
    int call = info->si_syscall;
    long code = call > NEWEST ? -ENOSYS : -EPERM;
    BY_UNUSED(number);
#if defined(__x86_64__)
    const char *path = (const char *)c->uc_mcontext.gregs[REG_RSI];
    c->uc_mcontext.gregs[REG_RAX] = code;
#elif defined(__aarch64__)
    const char *path = (const char *)c->uc_mcontext.regs[1];
    c->uc_mcontext.regs[0] = (unsigned long long)code;
#else
#error "where does this machine return the value of a system call?"
#endif
    if (call <= NEWEST && !is_harmless(call, path)) {
        refused = call + 1;
    }
}

bool by__serve_sandbox_violation(char name[BY__SANDBOX_CALL])
{
    int number = refused - 1;
    if (number < 0) {
        return false;
    }
    refused = 0;
    char *known = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
    if (known != NULL) {
        (void)snprintf(name, BY__SANDBOX_CALL, "%s", known);
    } else {
        (void)snprintf(name, BY__SANDBOX_CALL, "system call %d", number);
    }
    free(known);
    return true;
}

/* ---- the filter ---- */

static int allow_rule(scmp_filter_ctx filter, const by__serve_sandbox_rule *rule)
{
    struct scmp_arg_cmp terms[BY__SANDBOX_TERMS];
    unsigned used = 0;
    for (size_t k = 0; k < BY__SANDBOX_TERMS; k++) {
        const by__serve_sandbox_term *t = &rule->terms[k];
        if (t->mask != 0) {
            terms[used++] = (struct scmp_arg_cmp){t->index, SCMP_CMP_MASKED_EQ, t->mask, t->value};
        }
    }
    /* negative: this architecture lacks the call */
    return rule->call < 0 ? 0
                          : seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rule->call, used, terms);
}

static int allow(scmp_filter_ctx filter, const by__serve_sandbox_list *list)
{
    int code = 0;
    for (size_t i = 0; i < list->call_count && code == 0; i++) {
        code = seccomp_rule_add(filter, SCMP_ACT_ALLOW, list->calls[i], 0);
    }
    for (size_t i = 0; i < list->rule_count && code == 0; i++) {
        code = allow_rule(filter, &list->rules[i]);
    }
    return code;
}

/* io_uring runs calls that no filter sees. libuv from 1.49 on would make a ring for each event
 * loop. */
static int add_absent(scmp_filter_ctx filter, size_t count)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        code =
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), by__serve_sandbox_absent.calls[i], 0);
    }
    return code;
}

/* Signals may be sent to this process only. */
static int add_signals(scmp_filter_ctx filter)
{
    static const int calls[] = {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo),
                                SCMP_SYS(rt_tgsigqueueinfo)};
    int code = 0;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(calls) && code == 0; i++) {
        const by__serve_sandbox_rule self = {calls[i], {{0, UINT32_MAX, (uint64_t)getpid()}}};
        code = allow_rule(filter, &self);
    }
    return code;
}

/* Loads a filter for all threads and frees it; code: what adding its rules returned. */
static by_status load(scmp_filter_ctx filter, int code, by_error *error)
{
    code = code != 0 ? code : seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    code = code != 0 ? code : seccomp_load(filter);
    seccomp_release(filter);
    return code == 0 ? BY_OK
                     : by_error_set(error, BY_ESTATE,
                                    "cannot set up the sandbox of this process (%s): run it where "
                                    "seccomp is allowed, or add --no-sandbox",
                                    uv_strerror(code));
}

/* A process of root is none in what it could still do, but that a gateway or broker goes on reading
 * and writing files of other users, which Landlock names. It cannot fail. */
static void drop_capabilities(by__serve_sandbox_kind kind)
{
    const uint32_t files = kind == BY__SANDBOX_WORKER
                               ? 0
                               : (1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH) |
                                     (1U << CAP_FOWNER) | (1U << CAP_CHOWN);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct kept[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capget, &header, kept) == 0) {
        kept[0].effective &= files;
        kept[0].permitted &= files;
        kept[0].inheritable = 0;
        kept[1] = (struct __user_cap_data_struct){0};
        (void)syscall(SYS_capset, &header, kept);
    }
}

/* Libraries that the C library opens when a name is looked up first: inside the sandbox their code
 * could not be mapped. Those that this system lacks are not needed. */
static void load_lookups(void)
{
    static const char *const names[] = {
        "libnss_files.so.2",   "libnss_dns.so.2",           "libnss_myhostname.so.2",
        "libnss_resolve.so.2", "libnss_mdns4_minimal.so.2", "libnss_mdns_minimal.so.2",
        "libgcc_s.so.1"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(names); i++) {
        (void)dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
}

by_status by__serve_sandbox_prepare(const by__serve_sandbox *sandbox, int *version, by_error *error)
{
    const by__serve_landlock files = {.port = sandbox->port,
                                      .network = sandbox->kind == BY__SANDBOX_GATEWAY,
                                      .devices = sandbox->devices,
                                      .paths = sandbox->paths,
                                      .path_count = sandbox->path_count};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    /* Reads the file of the time zone, for templates and logs that tell the time. */
    tzset();
    if (sandbox->kind == BY__SANDBOX_GATEWAY) {
        load_lookups();
    }
    BY_TRY(load(filter, add_absent(filter, 3), error));
    BY_TRY(by__serve_landlock_enter(version, &files, error));
    if (sandbox->devices != NULL && *version == 0) {
        return by_error_set(error, BY_ESTATE,
                            "the sandbox of a worker on this device needs Landlock (Linux 5.13), "
                            "which this kernel lacks or has disabled: add --no-sandbox");
    }
    if (sandbox->kind == BY__SANDBOX_WORKER) {
        drop_capabilities(sandbox->kind);
    }
    return BY_OK;
}

/* What the kind of process needs beside the calls of all. */
static int allow_kind(scmp_filter_ctx filter, const by__serve_sandbox *sandbox)
{
    if (sandbox->kind != BY__SANDBOX_WORKER) {
        int code = allow(filter, &by__serve_sandbox_server);
        return code != 0 || sandbox->kind == BY__SANDBOX_BROKER
                   ? code
                   : allow(filter, &by__serve_sandbox_network);
    }
    int code = allow(filter, &by__serve_sandbox_connected);
    code = code != 0 || sandbox->port == 0 ? code : allow(filter, &by__serve_sandbox_tcp);
    return code != 0 || sandbox->devices == NULL ? code : allow(filter, &by__serve_sandbox_opening);
}

by_status by__serve_sandbox_enter(const by__serve_sandbox *sandbox, by_error *error)
{
    struct sigaction action = {.sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_RESTART};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_TRAP);
    if (filter == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a sandbox");
    }
    int code = sigaction(SIGSYS, &action, NULL) == 0 ? 0 : -errno;
    code = code != 0 ? code : allow(filter, &by__serve_sandbox_all);
    code = code != 0 ? code : allow_kind(filter, sandbox);
    code = code != 0 ? code : add_signals(filter);
    code = code != 0 ? code : add_absent(filter, by__serve_sandbox_absent.call_count);
    /* GNU OpenMP pins a new thread if it is told to, and ends the process if it cannot. A filter
     * does not know which threads are those of this process: the call is left out. */
    const struct scmp_arg_cmp other = {0, SCMP_CMP_NE, 0, 0};
    code = code != 0 ? code
                     : seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(0),
                                              SCMP_SYS(sched_setaffinity), 1, &other);
    /* A tree of comparisons instead of a chain, where the library can. */
    (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    drop_capabilities(sandbox->kind);
    return load(filter, code, error);
}
