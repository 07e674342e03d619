#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "banyan/build.h"
#include "banyan/device.h"
#include "banyan/device_meter.h"
#include "banyan/text.h"
#include "banyan/track.h"
#include "bench/doctor.h"

/* ---- examining this host ---- */

static void list_cpus(char *out, size_t size)
{
    cpu_set_t set;
    int n = 0;
    out[0] = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    for (size_t first = 0; first < CPU_SETSIZE; first++) {
        size_t last = first;
        if (!CPU_ISSET(first, &set)) {
            continue;
        }
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) {
            last++;
        }
        if (n >= 0 && (size_t)n < size) {
            n += snprintf(out + n, size - (size_t)n, last > first ? "%s%zu-%zu" : "%s%zu",
                          n == 0 ? "" : ",", first, last);
        }
        first = last;
    }
}

static void list_interfaces(char *out, size_t size)
{
    struct ifaddrs *all;
    int n = 0;
    out[0] = '\0';
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        char text[INET_ADDRSTRLEN];
        struct sockaddr_in address;
        struct sockaddr_in mask;
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET || i->ifa_netmask == NULL ||
            (i->ifa_flags & IFF_UP) == 0) {
            continue;
        }
        memcpy(&address, i->ifa_addr, sizeof address);
        memcpy(&mask, i->ifa_netmask, sizeof mask);
        if (inet_ntop(AF_INET, &address.sin_addr, text, sizeof text) != NULL && n >= 0 &&
            (size_t)n < size) {
            n += snprintf(out + n, size - (size_t)n, "%s%s %s/%d", n == 0 ? "" : ", ", i->ifa_name,
                          text, __builtin_popcount(mask.sin_addr.s_addr));
        }
    }
    freeifaddrs(all);
}

static by_status inspect_host(doctor_host *h, by_error *error)
{
    by_machine machine;
    by_launch_facts facts;
    char *libraries = NULL;
    by_host_list none = {0};
    const char *threads = getenv("OMP_NUM_THREADS");
    *h = (doctor_host){0};
    by_status status = by_machine_describe(&machine, "cpu", -1, error);
    if (status == BY_OK) {
        status = by_machine_libraries(&libraries, error);
    }
    if (status == BY_OK) {
        status = by_build_hash(h->build, error);
    }
    if (status != BY_OK) {
        free(libraries);
        return status;
    }
    by_launch_inspect(&facts, &none, NULL);
    (void)gethostname(h->host, sizeof h->host - 1);
    (void)snprintf(h->version, sizeof h->version, "%s", BY_VERSION);
    (void)snprintf(h->level, sizeof h->level, "%s", machine.isa);
    (void)snprintf(h->cpu, sizeof h->cpu, "%s", machine.cpu);
    (void)snprintf(h->libraries, sizeof h->libraries, "%s", libraries);
    (void)snprintf(h->threads, sizeof h->threads, "%s", threads == NULL ? "" : threads);
    list_cpus(h->cpus, sizeof h->cpus);
    list_interfaces(h->interfaces, sizeof h->interfaces);
    h->cores = facts.cores;
    h->quota = facts.quota;
    h->single_copy = facts.single_copy;
    by_comm_library library;
    by_comm_library_describe(&library);
    (void)snprintf(h->mpi, sizeof h->mpi, "%s", library.version);
    free(libraries);
    return BY_OK;
}

/* ---- printing ---- */

static void print_differences(const doctor_report *r)
{
    for (int k = 0; k < doctor_field_count(); k++) {
        bool refused;
        const char *name = doctor_field_name(k, &refused);
        const char *first = doctor_field(&r->hosts[0], k);
        for (int i = 1; i < r->ranks; i++) {
            if (strcmp(first, doctor_field(&r->hosts[i], k)) != 0) {
                printf("DIFFERENT    %s: '%s' on rank 0 (%s), '%s' on rank %d (%s)%s\n", name,
                       first, r->hosts[0].host, doctor_field(&r->hosts[i], k), i, r->hosts[i].host,
                       refused ? "; weights could differ, so training refuses to start" : "");
                break;
            }
        }
    }
}

static void print_matrix(const char *title, const doctor_report *r, const double *values,
                         double scale)
{
    printf("%s\n%7s", title, "");
    for (int k = 0; k < r->measured; k++) {
        printf(" %8d", r->chosen[k]);
    }
    printf("\n");
    for (int i = 0; i < r->measured; i++) {
        printf("%7d", r->chosen[i]);
        for (int k = 0; k < r->measured; k++) {
            if (i == k) {
                printf(" %8s", "-");
            } else {
                printf(" %8.2f", scale * values[i * r->measured + k]);
            }
        }
        printf("\n");
    }
}

static void print_ranks(const doctor_report *r)
{
    printf("ranks        %d over %s, thread level %s\n", r->ranks, r->backend, r->thread_level);
    for (int i = 0; i < r->ranks; i++) {
        const doctor_host *h = &r->hosts[i];
        printf("rank %-7d host %s, cpus %s, OMP_NUM_THREADS %s, clock %+.3f ms (within %.3f)\n", i,
               h->host, h->cpus, h->threads[0] == '\0' ? "unset" : h->threads, 1e3 * r->clocks[i],
               1e3 * r->clock_errors[i]);
    }
    print_differences(r);
    printf("parity       %s\n", !r->same ? "ranks differ"
                                : r->same_bits
                                    ? "all ranks have the same build, level and libraries"
                                    : "");
    print_matrix("latency of one way, microseconds", r, r->latency, 1e6);
    print_matrix("bandwidth of 4 MiB messages, GB/s", r, r->bandwidth, 1e-9);
}

/* What the build left out, and what that is for. */
static void print_missing(void)
{
    for (by_build_part part = 0; part < BY_BUILD_PARTS; part++) {
        if (!by_build_has(part)) {
            printf("without      %s (%s)\n", by_build_part_name(part), by_build_part_purpose(part));
        }
    }
}

#define GPU_TEXT 540

/* The GPU of this process, "X, sm_90, 3.9 GiB of 4.0 GiB free", or why none can be used. */
static void describe_gpu(char out[GPU_TEXT])
{
    by_device *device = NULL;
    by_device_info info = {0};
    by_error error = {0};
    char text[2][32];
    by_status status = by_device_open(&device, "cuda", 1, &error);
    if (status == BY_OK) {
        status = by_device_describe(&info, device, &error);
    }
    if (status == BY_OK) {
        (void)snprintf(out, GPU_TEXT, "%s, %s, %s of %s free", info.name, info.level,
                       by_format_bytes(text[0], info.memory_free),
                       by_format_bytes(text[1], info.memory_total));
    } else {
        (void)snprintf(out, GPU_TEXT, "none: %s", error.message);
    }
    by_device_close(&device);
}

/* What the GPU is doing: "3.0 GiB of 8.0 GiB in use, 37 % busy, 45 C, 120 W". */
static void print_gpu_usage(void)
{
    by_device_meter *meter = NULL;
    by_device_usage usage;
    char text[2][32];
    if (by_device_meter_open(&meter, "cuda", NULL) == BY_OK &&
        by_device_meter_read(&usage, meter, NULL) == BY_OK) {
        printf("GPU use      %s of %s in use", by_format_bytes(text[0], usage.memory_used),
               by_format_bytes(text[1], usage.memory_total));
        if (usage.busy >= 0.0) {
            printf(", %.0f %% busy", 100.0 * usage.busy);
        }
        if (usage.celsius >= 0.0) {
            printf(", %.0f C", usage.celsius);
        }
        if (usage.watts >= 0.0) {
            printf(", %.0f W", usage.watts);
        }
        if (usage.most_watts >= 0.0) {
            printf(" of %.0f W", usage.most_watts);
        }
        putchar('\n');
    }
    by_device_meter_close(&meter);
}

static void print_text(const doctor_report *r)
{
    char gpu[GPU_TEXT];
    const doctor_host *h = &r->hosts[0];
    printf("build        banyan %s, kernels for %s, executable %s\n", h->version, h->level,
           h->build);
    printf("libraries    %s\n", h->libraries);
    cli_print_build_parts("with        ", true);
    print_missing();
    printf("host         %s, %s\n", h->host, h->cpu);
    printf("cores        %d%s, this process may use cpus %s\n", h->cores,
           h->quota ? " (the control group's quota)" : "", h->cpus);
    describe_gpu(gpu);
    printf("GPU          %s\n", gpu);
    print_gpu_usage();
    printf("interfaces   %s\n", h->interfaces);
    printf("MPI          %s\n", h->mpi[0] == '\0'
                                    ? "none in this build: for several ranks, install "
                                      "libopenmpi-dev and openmpi-bin and build again"
                                    : h->mpi);
    printf("single copy  %s\n", h->single_copy
                                    ? "works: ranks on one host read each other's memory"
                                    : "not permitted (process_vm_readv), ranks on one host send "
                                      "messages: give the container CAP_SYS_PTRACE");
    if (r->ranks > 1) {
        print_ranks(r);
    }
    if (r->line != NULL) {
        printf("launch       %s\n", r->line);
    }
}

static void print_text_field(const char *name, const char *value)
{
    printf(",\"%s\":", name);
    cli_print_json_string(value);
}

static void print_json_matrix(const char *name, const doctor_report *r, const double *values)
{
    char text[32];
    printf(",\"%s\":[", name);
    for (int i = 0; i < r->measured; i++) {
        printf("%s[", i == 0 ? "" : ",");
        for (int k = 0; k < r->measured; k++) {
            printf("%s%s", k == 0 ? "" : ",",
                   cli_json_number(text, values[i * r->measured + k], 4));
        }
        printf("]");
    }
    printf("]");
}

static void print_json(const doctor_report *r)
{
    char text[2][32];
    char gpu[GPU_TEXT];
    printf("{\"ranks\":%d,\"backend\":\"%s\",\"thread_level\":\"%s\",\"same\":%s,\"same_bits\":%s",
           r->ranks, r->backend, r->thread_level, r->same ? "true" : "false",
           r->same_bits ? "true" : "false");
    print_text_field("mpi", r->hosts[0].mpi);
    describe_gpu(gpu);
    print_text_field("gpu", gpu);
    printf(",\"parts\":{");
    for (by_build_part part = 0; part < BY_BUILD_PARTS; part++) {
        printf("%s\"%s\":%s", part == 0 ? "" : ",", by_build_part_name(part),
               by_build_has(part) ? "true" : "false");
    }
    printf("}");
    print_text_field("launch", r->line == NULL ? "" : r->line);
    printf(",\"hosts\":[");
    for (int i = 0; i < r->ranks; i++) {
        const doctor_host *h = &r->hosts[i];
        printf("%s{\"rank\":%d,\"cores\":%d,\"single_copy\":%s,\"clock\":%s,\"clock_error\":%s",
               i == 0 ? "" : ",", i, h->cores, h->single_copy ? "true" : "false",
               cli_json_number(text[0], r->clocks[i], 6),
               cli_json_number(text[1], r->clock_errors[i], 6));
        for (int k = 0; k < doctor_field_count(); k++) {
            bool refused;
            const char *name = doctor_field_name(k, &refused);
            print_text_field(name, doctor_field(h, k));
        }
        print_text_field("host", h->host);
        print_text_field("cpus", h->cpus);
        print_text_field("interfaces", h->interfaces);
        printf("}");
    }
    printf("],\"measured\":[");
    for (int i = 0; i < r->measured; i++) {
        printf("%s%d", i == 0 ? "" : ",", r->chosen[i]);
    }
    printf("]");
    print_json_matrix("latency_s", r, r->latency);
    print_json_matrix("bytes_per_s", r, r->bandwidth);
    printf("}\n");
}

/* ---- the command ---- */

/* Returns the cores available on rank 0's host: those of one rank or, if ranks have separate cores,
 * of all ranks there. */
static int cores_of(const doctor_report *r)
{
    int cores = r->hosts[0].cores;
    for (int i = 1; i < r->ranks; i++) {
        bool counts = strcmp(r->hosts[i].host, r->hosts[0].host) == 0;
        for (int k = 0; k < i; k++) {
            counts = counts && (strcmp(r->hosts[k].host, r->hosts[0].host) != 0 ||
                                strcmp(r->hosts[i].cpus, r->hosts[k].cpus) != 0);
        }
        cores += counts ? r->hosts[i].cores : 0;
    }
    return cores;
}

/* Composes the command line for this job's ranks and hosts; for a single rank, one rank for each
 * core of this host. */
static by_status advise(doctor_report *r, const by_host_list *hosts, by_error *error)
{
    static char train[] = "train";
    static char config[] = "CONFIG";
    char *command[] = {train, config};
    by_launch_facts facts;
    by_launch_line line = {0};
    by_launch_options options = {.ranks = r->ranks > 1 ? r->ranks : r->hosts[0].cores,
                                 .hosts = *hosts,
                                 .program = "banyan",
                                 .command = command,
                                 .command_count = 2};
    by_launch_inspect(&facts, hosts, NULL);
    facts.cores = cores_of(r);
    by_status status = by_launch_line_make(&line, &options, &facts, error);
    if (status == BY_OK) {
        status = by_launch_line_print(&r->line, &line, error);
        by_launch_line_free(&line);
    }
    return status;
}

/* Lists the hosts in rank order, with one slot for each rank; empty if there is only one host. */
static void hosts_of(by_host_list *out, by_host *items, const doctor_report *r)
{
    *out = (by_host_list){items, 0};
    for (int i = 0; i < r->ranks; i++) {
        size_t k = 0;
        while (k < out->count && strcmp(items[k].name, r->hosts[i].host) != 0) {
            k++;
        }
        if (k == out->count) {
            items[k] = (by_host){.slots = 0};
            (void)snprintf(items[k].name, sizeof items[k].name, "%s", r->hosts[i].host);
            out->count++;
        }
        items[k].slots++;
    }
    if (out->count == 1) {
        *out = (by_host_list){0};
    }
}

static by_status examine(bool *same_bits, bool json, by_error *error)
{
    doctor_report r = {.same_bits = true};
    doctor_host here;
    by_comm *comm;
    by_host_list hosts;
    by_status status = inspect_host(&here, error);
    if (status == BY_OK) {
        status = by_comm_open(&comm, NULL, error);
    }
    if (status != BY_OK) {
        return status;
    }
    cli_watch_comm(comm);
    status = doctor_measure(&r, &here, comm, error);
    if (status == BY_OK && by_comm_rank(comm) == 0) {
        by_host *items = calloc((size_t)r.ranks, sizeof *items);
        status = items == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: hosts") : BY_OK;
        if (status == BY_OK) {
            hosts_of(&hosts, items, &r);
            status = advise(&r, &hosts, error);
        }
        if (status == BY_OK && json) {
            print_json(&r);
        } else if (status == BY_OK) {
            print_text(&r);
        }
        free(items);
    }
    *same_bits = r.same_bits;
    status = by_comm_fail(comm, status, error);
    cli_watch_comm(NULL);
    by_comm_close(&comm);
    doctor_report_free(&r);
    return status;
}

/* Starts ranks on other hosts the same way as a training would. */
static int launch_self(int64_t ranks, const char *hostfile, bool json)
{
    static char name[] = "banyan";
    static char launch[] = "launch";
    static char doctor[] = "doctor";
    static char hosts_flag[] = "--hostfile";
    static char ranks_flag[] = "--ranks";
    static char json_flag[] = "--json";
    char number[32];
    char *path;
    char *words[9] = {name, launch};
    size_t count = 2;
    by_error error = {0};
    if (by_executable_path(&path, &error) != BY_OK) {
        return cli_fail(&cli_doctor, &error);
    }
    (void)snprintf(number, sizeof number, "%lld", (long long)ranks);
    if (hostfile != NULL) {
        words[count++] = hosts_flag;
        words[count++] = (char *)(uintptr_t)hostfile;
    }
    if (ranks > 0) {
        words[count++] = ranks_flag;
        words[count++] = number;
    }
    words[count++] = doctor;
    if (json) {
        words[count++] = json_flag;
    }
    words[count] = NULL;
    (void)execv(path, words);
    fprintf(stderr, "banyan doctor: cannot run %s\n", path);
    free(path);
    return CLI_FAILED;
}

static int run(int argc, char **argv)
{
    const char *hostfile = NULL;
    int64_t ranks = 0;
    bool json = false;
    const cli_flag flags[] = {
        {"ranks", CLI_INTEGER_IN(1, 65536), &ranks, "N", "start N ranks and check all of them"},
        {"hostfile", CLI_INPUT, &hostfile, "FILE",
         "start them on these hosts: one per line, NAME slots=N"},
        {"json", CLI_SWITCH, &json, NULL, CLI_JSON_HELP},
        {NULL, CLI_SWITCH, NULL, NULL, NULL}};
    char **rest;
    int count;
    bool same_bits = true;
    by_error error = {0};
    int code = cli_parse(&cli_doctor, flags, argc, argv, &rest, &count);
    if (code >= 0) {
        return code;
    }
    if (count != 0) {
        return cli_misuse(&cli_doctor, "this command takes no arguments");
    }
    if (hostfile != NULL || ranks > 0) {
        return launch_self(ranks, hostfile, json);
    }
    if (examine(&same_bits, json, &error) != BY_OK) {
        return cli_fail(&cli_doctor, &error);
    }
    return same_bits ? CLI_DONE : CLI_FAILED;
}

const cli_command cli_doctor = {
    .name = "doctor",
    .summary = "check this host, or all ranks: MPI, network, clocks, builds, speed",
    .usage = "banyan doctor [--ranks N] [--hostfile FILE] [--json]",
    .text =
        "Checks what a job of many ranks depends on (processors, MPI, network), and\n"
        "prints the command that would start one.\n"
        "\n"
        "examples:\n"
        "  banyan doctor\n"
        "  banyan doctor --hostfile hosts\n"
        "\n"
        "With --hostfile or --ranks, or under mpirun or srun, all ranks are checked:\n"
        "differences between their builds, clocks, and latency and bandwidth between each pair.\n"
        "Exit code 1: the builds differ so that weights could differ.",
    .run = run};
