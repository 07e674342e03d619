/* Events and their sinks: the bytes of each format, and sinks that fail. What the programs that the
 * formats are for make of them is in tests/e2e/test_tracking.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

#include "base/wire/protobuf.h"
#include "temporary.h"
#include "track/mlflow_client.h"
#include "track/sinks/sink.h"
#include "track/system_load.h"

typedef struct listener {
    int notes;
    char last[640];
    int reports;
} listener;

static void hear(void *user, const char *text)
{
    listener *l = user;
    l->notes++;
    (void)snprintf(l->last, sizeof l->last, "%s", text);
}

static void see(void *user, const void *report)
{
    listener *l = user;
    l->reports += *(const int *)report;
}

static by__track_tracker *open_tracker(const char *run, const char *sink, uint64_t step,
                                       bool is_resumed, listener *l)
{
    by__track_tracker *tracker;
    const char *sinks[] = {sink};
    const by__track_tracker_options options = {.run = run,
                                               .sinks = sinks,
                                               .sink_count = sink == NULL ? 0 : 1,
                                               .project = "tests",
                                               .mlflow = "",
                                               .prometheus = "",
                                               .is_resumed = is_resumed,
                                               .step = step,
                                               .show = see,
                                               .note = hear,
                                               .user = l};
    assert_int_equal(by__track_tracker_open(&tracker, &options, NULL), BY_OK);
    return tracker;
}

static void log_step(by__track_tracker *tracker, uint64_t step, double loss, const char *remark)
{
    const int report = 1;
    by__track_begin(tracker, BY__EVENT_STEP, "train", step);
    by__track_number(tracker, "loss", loss);
    by__track_integer(tracker, "tokens", (int64_t)step * 1000);
    if (remark != NULL) {
        by__track_text(tracker, "remark", remark);
    }
    by__track_report(tracker, &report);
    by__track_end(tracker);
}

/* The only file below RUN/FOLDER, which may be in one more directory. */
static uint8_t *read_only(const char *run, const char *folder, size_t *size)
{
    char *path = by__path_join(run, folder);
    char *data;
    while (by__path_is_dir(path)) {
        char **names;
        size_t count;
        assert_int_equal(by__list_dir(&names, &count, path, NULL), BY_OK);
        assert_int_equal(count, 1);
        char *inner = by__path_join(path, names[0]);
        free(path);
        path = inner;
        by__names_free(names, count);
    }
    assert_int_equal(by__file_read(&data, size, path, 64 << 20, NULL), BY_OK);
    free(path);
    return (uint8_t *)data;
}

static uint64_t number_at(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

static void protocol_buffers(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {
        0x08, 0x96, 0x01,                                                 /* 1: 150 */
        0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, /* 2: -1 */
        0x1d, 0x00, 0x00, 0x00, 0x3f,                                     /* 3: 0.5f */
        0x21, 0,    0,    0,    0,    0,    0,    0xf0, 0x3f,             /* 4: 1.0 */
        0x2a, 0x02, 'h',  'i',                                            /* 5: "hi" */
        0x82, 0x01, 0x02, 0x08, 0x07,                                     /* 16: {1: 7} */
        0x32, 0x08, 0,    0,    0,    0,    0,    0,    0xf0, 0x3f,       /* 6: [1.0] */
    };
    static const double one = 1.0;
    by_string out = {0};
    by_string inner = {0};
    by__proto_int(&out, 1, 150);
    by__proto_int(&out, 2, -1);
    by__proto_float(&out, 3, 0.5f);
    by__proto_double(&out, 4, 1.0);
    by__proto_string(&out, 5, "hi");
    by__proto_int(&inner, 1, 7);
    by__proto_message(&out, 16, &inner);
    by__proto_doubles(&out, 6, &one, 1);
    assert_int_equal(inner.length, 0);
    assert_int_equal(out.length, sizeof wanted);
    assert_memory_equal(out.data, wanted, sizeof wanted);
    assert_int_equal(by__crc32c("123456789", 9), 0xe3069283u);
    by_string_free(&out);
    by_string_free(&inner);
}

/* Records of an events file: their number, and bytes of the last. */
static size_t check_tfrecords(const uint8_t *data, size_t size, const uint8_t **last,
                              uint64_t *last_length)
{
    size_t count = 0;
    for (size_t at = 0; at < size; count++) {
        assert_true(size - at >= 16);
        uint64_t length = number_at(data + at, 8);
        assert_true(length <= size - at - 16);
        const uint8_t *parts[2] = {data + at, data + at + 12};
        const uint64_t lengths[2] = {8, length};
        for (int i = 0; i < 2; i++) {
            uint32_t crc = by__crc32c(parts[i], lengths[i]);
            uint32_t masked = (uint32_t)number_at(parts[i] + lengths[i], 4) - 0xa282ead8u;
            assert_int_equal(masked >> 17 | masked << 15, crc);
        }
        *last = parts[1];
        *last_length = length;
        at += 16 + length;
    }
    return count;
}

static void tensorboard_records(void **state)
{
    (void)state;
    static const uint8_t summary[] = {0x10, 0x07, 0x2a, 0x13, 0x0a, 0x11, 0x0a, 0x0a,
                                      't',  'r',  'a',  'i',  'n',  '/',  'l',  'o',
                                      's',  's',  0x15, 0,    0,    0,    0x3f};
    char *run = temporary_make();
    listener l = {0};
    const uint8_t *last;
    uint64_t length;
    size_t size;
    by__track_tracker *tracker = open_tracker(run, "tensorboard", 0, false, &l);
    by__track_begin(tracker, BY__EVENT_STEP, "train", 7);
    by__track_number(tracker, "loss", 0.5);
    by__track_end(tracker);
    assert_int_equal(by__track_tracker_flush(tracker, NULL), BY_OK);
    by__track_tracker_close(&tracker);
    assert_null(tracker);
    uint8_t *data = read_only(run, "tensorboard", &size);
    assert_int_equal(check_tfrecords(data, size, &last, &length), 2);
    /* behind wall_time, the nine bytes of which are of now */
    assert_int_equal(length, 9 + sizeof summary);
    assert_memory_equal(last + 9, summary, sizeof summary);
    free(data);
    assert_int_equal(l.notes, 0);
    temporary_remove(run);
}

/* All records of a .wandb file, joined; each is checked. */
static size_t check_wandb(const uint8_t *data, size_t size)
{
    enum { block = 32768 };
    size_t records = 0;
    bool inside = false;
    assert_memory_equal(data, ":W&B\xe1\xbe\0", 7);
    for (size_t at = 7; at < size;) {
        size_t room = block - at % block;
        if (room < 7) {
            for (size_t i = 0; i < room; i++) {
                assert_int_equal(data[at + i], 0);
            }
            at += room;
            continue;
        }
        size_t length = number_at(data + at + 4, 2);
        uint8_t type = data[at + 6];
        assert_true(length <= room - 7 && at + 7 + length <= size);
        assert_int_equal(number_at(data + at, 4), crc32(0, data + at + 6, (uInt)length + 1));
        assert_true(inside ? type == 3 || type == 4 : type == 1 || type == 2);
        inside = type == 2 || type == 3;
        records += type == 1 || type == 4;
        at += 7 + length;
    }
    assert_false(inside);
    return records;
}

/* Records that end anywhere in a block, and one over several. */
static void wandb_records(void **state)
{
    (void)state;
    char *run = temporary_make();
    char *remark = calloc(1, 100001);
    listener l = {0};
    size_t size;
    by__track_tracker *tracker = open_tracker(run, "wandb", 0, false, &l);
    assert_non_null(remark);
    memset(remark, 'x', 100000);
    by__track_begin(tracker, BY__EVENT_BEGIN, "run", 0);
    by__track_text(tracker, "config", "seed: 1\nmodel:\n  kind: gpt2\n");
    by__track_end(tracker);
    for (uint64_t step = 1; step <= 2000; step++) {
        const char *some = step == 1000 ? remark : step > 1500 ? remark + 99990 - step % 90 : NULL;
        log_step(tracker, step, step == 3 ? (double)NAN : 1.0 / (double)step, some);
    }
    by__track_begin(tracker, BY__EVENT_END, "run", 2000);
    by__track_text(tracker, "status", "done");
    by__track_end(tracker);
    assert_int_equal(by__track_tracker_flush(tracker, NULL), BY_OK);
    by__track_tracker_close(&tracker);
    uint8_t *data = read_only(run, "wandb", &size);
    assert_int_equal(check_wandb(data, size), 2 + 2000 + 3);
    free(data);
    free(remark);
    assert_int_equal(l.reports, 2000);
    temporary_remove(run);
}

/* W&B takes 512 buckets: neighbours are joined, and nothing is lost. */
static void wandb_histograms(void **state)
{
    (void)state;
    enum { buckets = 1500 };
    char *run = temporary_make();
    listener l = {0};
    size_t size;
    double *limits = calloc(2 * buckets, sizeof *limits);
    assert_non_null(limits);
    double *counts = limits + buckets;
    for (int i = 0; i < buckets; i++) {
        limits[i] = i + 1;
        counts[i] = 1 + i % 3;
    }
    const by__track_histogram h = {
        .min = 0.5, .max = buckets, .limit = limits, .count = counts, .buckets = buckets};
    by__track_tracker *tracker = open_tracker(run, "wandb", 0, false, &l);
    by__track_begin(tracker, BY__EVENT_BEGIN, "run", 0);
    by__track_end(tracker);
    by__track_begin(tracker, BY__EVENT_HISTOGRAM, "weight", 1);
    by__track_text(tracker, "tensor", "w");
    by__track_add_histogram(tracker, &h);
    by__track_end(tracker);
    assert_int_equal(by__track_tracker_flush(tracker, NULL), BY_OK);
    by__track_tracker_close(&tracker);
    char *data = (char *)read_only(run, "wandb", &size);
    const char *at = memmem(data, size, "\"values\":[", 10);
    assert_non_null(at);
    at += 10;
    double all = 0.0;
    int values = 0;
    for (char *end; *at != ']'; at = *end == ',' ? end + 1 : end) {
        all += strtod(at, &end);
        values++;
    }
    assert_true(values <= 512 && values >= 256);
    assert_true(all == 3000.0);
    at = memmem(data, size, "\"bins\":[0.5,3,6,", 16);
    assert_non_null(at);
    int bins = 1;
    for (; *at != ']'; at++) {
        bins += *at == ',';
    }
    assert_int_equal(bins, values + 1);
    assert_true(memcmp(at - 5, ",1500", 5) == 0);
    free(data);
    free(limits);
    temporary_remove(run);
}

/* A run that goes on cuts its events: what MLflow has of those behind is sent anew, whether this
 * process sends anything or not. */
static void mlflow_rewind(void **state)
{
    (void)state;
    char *run = temporary_make();
    char *path = by__path_join(run, "mlflow.json");
    listener l = {0};
    char *text;
    size_t length;
    by__track_mlflow_state found;
    by_error error = {0};
    by__track_tracker *tracker = open_tracker(run, NULL, 0, false, &l);
    for (uint64_t step = 1; step <= 9; step++) {
        log_step(tracker, step, 1.0, NULL);
    }
    by__track_tracker_close(&tracker);
    const by__track_mlflow_state state_then = {
        .server = "http://a", .experiment = "1", .run = "r", .offset = 400, .is_described = true};
    by_string printed = {0};
    by__track_mlflow_state_print(&printed, &state_then);
    assert_int_equal(by__file_write(path, printed.data, printed.length, &error), BY_OK);
    by_string_free(&printed);
    tracker = open_tracker(run, NULL, 2, true, &l);
    for (uint64_t step = 3; step <= 12; step++) {
        log_step(tracker, step, 1.0, NULL);
    }
    by__track_tracker_close(&tracker);
    assert_int_equal(by__file_read(&text, &length, path, 1 << 16, &error), BY_OK);
    assert_int_equal(by__track_mlflow_state_parse(&found, path, text, length, &error), BY_OK);
    free(text);
    char *events = by__path_join(run, "events.jsonl");
    assert_int_equal(by__file_read(&text, &length, events, 1 << 20, &error), BY_OK);
    assert_true(found.offset > 0 && found.offset < 400);
    assert_int_equal(text[found.offset - 1], '\n');
    assert_non_null(strstr(text + found.offset, "\"step\":3,"));
    assert_null(strstr(text + found.offset, "\"step\":2,"));
    free(text);
    by__track_mlflow_state_free(&found);
    free(events);
    free(path);
    temporary_remove(run);
}

/* A process that goes on begins behind all that the run has, though the clock was set back. */
static void times_go_on(void **state)
{
    (void)state;
    char *run = temporary_make();
    char *path = by__path_join(run, "events.jsonl");
    static const char ahead[] =
        "{\"event\":\"train\",\"step\":1,\"loss\":1,\"time\":4102444800.250}\n";
    listener l = {0};
    by_error error = {0};
    assert_int_equal(by__file_write(path, ahead, sizeof ahead - 1, &error), BY_OK);
    assert_true(by__track_events_last_time(path) == 4102444800.25);
    by__track_tracker *tracker = open_tracker(run, "tensorboard", 1, true, &l);
    log_step(tracker, 2, 1.0, NULL);
    by__track_tracker_close(&tracker);
    double time = by__track_events_last_time(path);
    assert_true(time >= 4102444801.0 && time < 4102444900.0);
    char *folder = by__path_join(run, "tensorboard");
    char **names;
    size_t count;
    assert_int_equal(by__list_dir(&names, &count, folder, &error), BY_OK);
    assert_int_equal(count, 1);
    assert_non_null(strstr(names[0], "tfevents.4102444801."));
    by__names_free(names, count);
    free(folder);
    free(path);
    temporary_remove(run);
}

static void config_item(void *user, const char *key, const char *json)
{
    by_string_format(user, "%s=%s;", key, json);
}

static void config_items(void **state)
{
    (void)state;
    by_string out = {0};
    by__track_config_items(
        "name: a-1\nseed: 18446744073709551615\nmodel:\n  kind: gpt2\n  from: \"\"\n"
        "  dropout: 0.1\noptimizer:\n  betas: [0.9, 0.99]\n  on: true\n"
        "data:\n  text: [\"a: b\", c]\n  eval: all\n",
        config_item, &out);
    assert_string_equal(
        out.data, "name=\"a-1\";seed=18446744073709551615;model.kind=\"gpt2\";model.from=\"\";"
                  "model.dropout=0.1;optimizer.betas=\"[0.9, 0.99]\";optimizer.on=true;"
                  "data.text=\"[\\\"a: b\\\", c]\";data.eval=\"all\";");
    by_string_free(&out);
}

static void wrong_options(void **state)
{
    (void)state;
    static const struct {
        const char *sink;
        const char *mlflow;
        const char *prometheus;
        const char *message; /* NULL: it is right */
    } cases[] = {
        {"tensorboard", "", "", NULL},
        {"wandbb", "", "", "'wandbb'; nearest: wandb"},
        {"terminal", "", "", "there are: tensorboard, wandb, mlflow, prometheus"},
        {"mlflow", "https://host/path@x", "", NULL},
        {"mlflow", "host:5000", "", "is not the URL"},
        {"mlflow", "http://", "", "is not the URL"},
        {"mlflow", "http://me:secret@host:5000", "", "MLFLOW_TRACKING_PASSWORD"},
        {"prometheus", "", "127.0.0.1:9464", NULL},
        {"prometheus", "", "[::1]:0", NULL},
        {"prometheus", "", "localhost:65535", NULL},
        {"prometheus", "", "9464", "track.prometheus: '9464' is not an address"},
        {"prometheus", "", "127.0.0.1:65536", "is not an address"},
        {"prometheus", "", "127.0.0.1:", "is not an address"},
        {"prometheus", "", "example.org:80", "is not an address"},
        {"prometheus", "", "[::1:80", "is not an address"},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        by_error error = {0};
        const by__track_tracker_options options = {.sinks = &cases[i].sink,
                                                   .sink_count = 1,
                                                   .mlflow = cases[i].mlflow,
                                                   .prometheus = cases[i].prometheus};
        by_status status = by__track_tracker_check(&options, &error);
        assert_int_equal(status, cases[i].message == NULL ? BY_OK : BY_ECONFIG);
        assert_true(cases[i].message == NULL || strstr(error.message, cases[i].message) != NULL);
    }
}

/* A line of more metrics than a request may have is sent in several, and no metric is left out. */
static void mlflow_batches(void **state)
{
    (void)state;
    by_string events = {0};
    size_t at = 0;
    size_t skip = 0;
    size_t metrics = 0;
    size_t requests = 0;
    for (int line = 0; line < 5; line++) {
        by_string_format(&events, "{\"event\":\"norm\",\"step\":%d", line);
        for (int i = 0; i < (line == 2 ? 2300 : 300); i++) {
            by_string_format(&events, ",\"h.%d\":%d.5", i, i);
        }
        by__string_append(&events, ",\"note\":\"text\",\"time\":7.25}\n");
    }
    size_t whole = events.length;
    by__string_append(&events, "{\"event\":\"norm\",\"st");
    while (at < whole) {
        by_string body = {0};
        size_t used;
        size_t next;
        size_t count;
        assert_int_equal(by__track_mlflow_batch(&body, "id", "events.jsonl", events.data + at,
                                                events.length - at, skip, &used, &next, &count,
                                                NULL),
                         BY_OK);
        assert_true(count == BY__MLFLOW_BATCH || at + used == whole);
        if (requests == 0) {
            static const char begin[] =
                "{\"run_id\":\"id\",\"metrics\":[{\"key\":\"norm/h.0\",\"value\":0.5,"
                "\"timestamp\":7250,\"step\":0},";
            assert_memory_equal(body.data, begin, sizeof begin - 1);
        }
        at += used;
        skip = next;
        metrics += count;
        requests++;
        by_string_free(&body);
    }
    assert_int_equal(at, whole);
    assert_int_equal(metrics, 4 * 300 + 2300);
    assert_int_equal(requests, 4);
    by_string_free(&events);
}

static void write_at(const char *root, const char *directory, const char *name, const char *text)
{
    char *folder = by__path_join(root, directory);
    assert_int_equal(by__make_dirs(folder, NULL), BY_OK);
    char *path = by__path_join(folder, name);
    assert_int_equal(by__file_write(path, text, strlen(text), NULL), BY_OK);
    free(path);
    free(folder);
}

/* The kernel's files, as a machine with two sensors has them, and one without any. */
static void system_load(void **state)
{
    (void)state;
    char *root = temporary_make();
    by__track_system_past past = {0};
    by__track_system_load load;
    by__track_system_read(&load, &past, root, root);
    assert_true(isnan(load.cpu_cores) && isnan(load.cpu_share) && isnan(load.temperature));
    assert_true(isnan(load.resident) && isnan(load.written));
    assert_true(load.disk_free > 0.0);
    write_at(root, "proc", "stat", "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1\n");
    write_at(root, "proc/self", "status", "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t   2048 kB\n");
    write_at(root, "proc/self", "io", "rchar: 5\nwrite_bytes: 4096\n");
    write_at(root, "sys/class/hwmon/hwmon0", "name", "nvme\n");
    write_at(root, "sys/class/hwmon/hwmon0", "temp1_input", "95000\n");
    write_at(root, "sys/class/hwmon/hwmon3", "name", "k10temp\n");
    write_at(root, "sys/class/hwmon/hwmon3", "temp1_input", "61250\n");
    write_at(root, "sys/class/hwmon/hwmon3", "temp2_input", "64500\n");
    by__track_system_read(&load, &past, root, root);
    assert_true(isnan(load.cpu_share)); /* ticks were not known before */
    write_at(root, "proc", "stat", "cpu  160 10 60 820 50 0 0 0 0 0\n");
    by__track_system_read(&load, &past, root, root);
    assert_true(load.cpu_share == 0.8);
    assert_true(load.cpu_cores >= 0.0);
    assert_true(load.temperature == 64.5);
    assert_true(load.resident == 2048.0 * 1024.0 && load.written == 4096.0);
    temporary_remove(root);
}

/* Counters of packages are summed, also past their ends; other zones are not, nor what may not be
 * read. */
static void processor_energy(void **state)
{
    (void)state;
    char *root = temporary_make();
    by__track_energy energy;
    by__track_energy_begin(&energy, root);
    by__track_energy_update(&energy, root);
    assert_true(energy.count == 0 && energy.joules == 0.0);
    static const char *const zones[] = {"sys/class/powercap/intel-rapl:0",
                                        "sys/class/powercap/intel-rapl:1",
                                        "sys/class/powercap/intel-rapl:2"};
    for (int i = 0; i < 3; i++) {
        write_at(root, zones[i], "name", i == 2 ? "psys\n" : "package-0\n");
        write_at(root, zones[i], "max_energy_range_uj", "262143000000\n");
        write_at(root, zones[i], "energy_uj", "262142000000\n");
    }
    by__track_energy_begin(&energy, root);
    assert_int_equal(energy.count, 2);
    write_at(root, zones[0], "energy_uj", "262142500000\n");
    write_at(root, zones[1], "energy_uj", "3000000\n");
    write_at(root, zones[2], "energy_uj", "9000000\n");
    by__track_energy_update(&energy, root);
    assert_true(fabs(energy.joules - (0.5 + 4.0)) < 1e-6);
    write_at(root, zones[1], "energy_uj", "4000000\n");
    by__track_energy_update(&energy, root);
    assert_true(fabs(energy.joules - 5.5) < 1e-6);
    temporary_remove(root);
}

/* A sink that cannot be opened, and files that cannot grow: the run is told once and goes on; what
 * could not be written is written once it can be. */
static void failing_sinks(void **state)
{
    (void)state;
    char *run = temporary_make();
    char *blocked = by__path_join(run, "wandb");
    listener l = {0};
    const uint8_t *last;
    uint64_t length;
    size_t size;
    assert_int_equal(by__file_write(blocked, "", 0, NULL), BY_OK);
    by__track_tracker *tracker = open_tracker(run, "wandb", 0, false, &l);
    assert_int_equal(l.notes, 1);
    assert_non_null(strstr(l.last, "training continues without this sink"));
    log_step(tracker, 1, 1.0, NULL);
    by__track_tracker_close(&tracker);
    free(blocked);

    l = (listener){0};
    tracker = open_tracker(run, "tensorboard", 1, true, &l);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 150, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t step = 2; step <= 50; step++) {
        log_step(tracker, step, 1.0, NULL);
    }
    assert_int_equal(l.notes, 2); /* one of each file */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(by__track_tracker_flush(tracker, NULL), BY_OK);
    by__track_tracker_close(&tracker);
    uint8_t *data = read_only(run, "tensorboard", &size);
    assert_int_equal(check_tfrecords(data, size, &last, &length), 2 + 49);
    free(data);
    by_series series;
    assert_int_equal(by_events_read(&series, run, "train", "loss", NULL), BY_OK);
    assert_int_equal(series.count, 50);
    by_series_free(&series);
    temporary_remove(run);
}

static void mlflow_patience(void **state)
{
    (void)state;
    assert_true(by__track_mlflow_patience(0.4) == 1);
    assert_true(by__track_mlflow_patience(3) == 3);
    assert_true(by__track_mlflow_patience(1e6) == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protocol_buffers), cmocka_unit_test(tensorboard_records),
        cmocka_unit_test(wandb_records),    cmocka_unit_test(config_items),
        cmocka_unit_test(wrong_options),    cmocka_unit_test(failing_sinks),
        cmocka_unit_test(mlflow_patience),  cmocka_unit_test(mlflow_batches),
        cmocka_unit_test(system_load),      cmocka_unit_test(processor_energy),
        cmocka_unit_test(wandb_histograms), cmocka_unit_test(mlflow_rewind),
        cmocka_unit_test(times_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
