/* The keys of a server's configuration file. */
#include "banyan/serve_config.h"

#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "serve/features/feature_map.h"
#include "serve/gateway/keys.h"
#include "serve/gateway/webhook.h"
#include "serve/http/client_address.h"
#include "serve/http/http_server.h"
#include "serve/serve.h"

static const by__section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"gateway", "The process that clients speak to.", 0},
    {"worker", "The processes that have the model.", 0},
    {"scaling", "The number of workers by load (docs/operations.md).", 0},
    {"broker", "The process between them.", 0},
    {"limits",
     "What a key may use (docs/operations.md). A request counts before it runs, with the tokens "
     "that it may need; those that it did not need are given back. Above a limit the answer is 429 "
     "with Retry-After.",
     0},
    {"cors", "Which pages of other sites a browser lets use the server.", 0},
    {"payload", "Requests and their answers, kept as JSON lines to train on later (docs/drift.md).",
     0},
    {"feedback", "What clients say of answers (docs/drift.md).", 0},
    {"webhooks",
     "Messages about the ends of tasks, sent to receivers that the operator lists "
     "(docs/operations.md).",
     0},
    {"tracing", "Spans of requests, sent to a collector of OpenTelemetry (docs/operations.md).", 0},
    {"features",
     "A Feast online store, from which columns of a table's model are fetched for the entities "
     "that a request names (docs/features.md).",
     0},
};

/* clang-format off: one row a key */
#define OWN(member) BY__OWN(by_serve_config, member)
static const by__key limit_fields[] = {
    {"limits.keys", "name", BY__KEY_TEXT, BY__OWN(by_limit_config, name), NULL, .min = 1,
     .help = "the name of one or more keys, which share the limits"},
    {"limits.keys", "requests_per_minute", BY__KEY_INT,
     BY__OWN(by_limit_config, requests_per_minute), "0", 0, BY__MI30, .help = "0: no limit"},
    {"limits.keys", "tokens_per_minute", BY__KEY_INT, BY__OWN(by_limit_config, tokens_per_minute),
     "0", 0, BY__MANY, .help = "of prompts and answers; 0: no limit"},
    {"limits.keys", "tokens_per_day", BY__KEY_INT, BY__OWN(by_limit_config, tokens_per_day), "0", 0,
     BY__MANY, .help = "from midnight to midnight, UTC; 0: no limit"},
};
static const by__key_list limit_list = BY__KEY_LIST(limit_fields);

static const by__key entity_fields[] = {
    {"features.entities", "name", BY__KEY_TEXT, BY__OWN(by_feature_entity_config, name), NULL,
     .min = 1, .help = "join key of an entity, as Feast has it"},
    {"features.entities", "type", BY__KEY_TEXT, BY__OWN(by_feature_entity_config, type), "int64",
     .choices = "int64|int32|string|bytes|unix_timestamp",
     .help = "of its values, as Feast has it; bytes are base64 in a request"},
};
static const by__key_list entity_list = BY__KEY_LIST(entity_fields);

static const by__key view_fields[] = {
    {"features.views", "name", BY__KEY_TEXT, BY__OWN(by_feature_view_config, name), NULL, .min = 1,
     .help = "of a feature view"},
    {"features.views", "entities", BY__KEY_TEXT, BY__OWN(by_feature_view_config, entities), NULL,
     .min = 1, .help = "its join keys, with commas between them"},
    {"features.views", "ttl", BY__KEY_REAL, BY__OWN(by_feature_view_config, ttl), "0", 0, 1e12,
     .help = "seconds after which a feature is too old, and missing; 0: never"},
};
static const by__key_list view_list = BY__KEY_LIST(view_fields);

static const by__key column_fields[] = {
    {"features.columns", "column", BY__KEY_TEXT, BY__OWN(by_feature_column_config, column), NULL,
     .min = 1, .help = "of the model"},
    {"features.columns", "feature", BY__KEY_TEXT, BY__OWN(by_feature_column_config, feature), NULL,
     .min = 3, .help = "`VIEW:FEATURE`"},
    {"features.columns", "model", BY__KEY_TEXT, BY__OWN(by_feature_column_config, model), "\"\"",
     .help = "the name of the model whose column it is; empty: every model that entities are asked "
             "of has it"},
    {"features.columns", "default", BY__KEY_TEXT, BY__OWN(by_feature_column_config, otherwise),
     "\"\"",
     .help =
         "the cell where the store has no value; empty: a missing one, as in the training data"},
    {"features.columns", "required", BY__KEY_SWITCH, BY__OWN(by_feature_column_config, required),
     "false", .help = "whether a request is refused where the store has no value"},
    {"features.columns", "time_unit", BY__KEY_TEXT, BY__OWN(by_feature_column_config, time_unit),
     "s", .choices = "s|ms|us|ns",
     .help = "of the numbers that a timestamp of Feast becomes: that of the training data"},
};
static const by__key_list column_list = BY__KEY_LIST(column_fields);

static const by__key keys[] = {
    {"gateway", "listen", BY__KEY_TEXT, OWN(gateway.listen), "127.0.0.1:8080", .min = 1,
     .help = "`HOST:PORT`, `[ADDRESS]:PORT` or `unix:PATH`"},
    {"gateway", "keys", BY__KEY_TEXT, OWN(gateway.keys), "\"\"",
     .help = "file of keys: a line has the SHA-256 of a key, a name and perhaps scopes; empty: no "
             "key is asked for"},
    {"gateway", "insecure", BY__KEY_SWITCH, OWN(gateway.insecure), "false",
     .help = "serve addresses that other machines reach without keys"},
    {"gateway", "body", BY__KEY_SIZE, OWN(gateway.body), "8MiB", 1, BY__MI30,
     .help = "of a request, at most"},
    {"gateway", "connections", BY__KEY_INT, OWN(gateway.connections), "20000", 1, BY__MI20,
     .help = "at a time"},
    {"gateway", "connections_per_address", BY__KEY_INT, OWN(gateway.connections_per_address), "0",
     0, BY__MI20,
     .help = "at a time, of a client's address (IPv6: of its /64); behind `proxies`, requests; 0: "
             "no limit"},
    {"gateway", "proxies", BY__KEY_TEXTS, OWN(gateway.proxies), "[]",
     .help = "networks of proxies whose `X-Forwarded-For` says who the client is, such as "
             "`10.0.0.0/8`; `unix`: who connects to a socket in the file system"},
    {"gateway", "deadline", BY__KEY_REAL, OWN(gateway.deadline), "600", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds of a request"},
    {"gateway", "drain", BY__KEY_REAL, OWN(gateway.drain), "45", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds for what was accepted, after SIGTERM"},
    {"gateway", "metrics_names", BY__KEY_TEXT, OWN(gateway.metrics_names), "banyan", .min = 1,
     .help = "of `/metrics`: `banyan`, or `vllm` for dashboards made for it (docs/operations.md)"},
    {"gateway", "page", BY__KEY_SWITCH, OWN(gateway.page), "true",
     .help = "whether `/` is a page for browsers, without a key (docs/serving.md)"},
    {"gateway", "head_timeout", BY__KEY_REAL, OWN(gateway.head_timeout), "10", 0, 1e6,
     BY__ABOVE_MIN, .help = "seconds from the first byte of a request to the end of its head"},
    {"gateway", "body_timeout", BY__KEY_REAL, OWN(gateway.body_timeout), "60", 0, 1e6,
     BY__ABOVE_MIN, .help = "seconds from the first byte of a request to the end of its body"},
    {"gateway", "idle_timeout", BY__KEY_REAL, OWN(gateway.idle_timeout), "75", 0, 1e6,
     BY__ABOVE_MIN, .help = "seconds of a connection between requests"},
    {"gateway", "output_timeout", BY__KEY_REAL, OWN(gateway.output_timeout), "30", 0, 1e6,
     BY__ABOVE_MIN,
     .help = "seconds in which a client takes, or acknowledges, nothing of what is sent to it"},
    {"gateway", "output", BY__KEY_SIZE, OWN(gateway.output), "256KiB", 1, BY__MI30,
     .help = "of a stream that are kept for a slow reader, beyond the kernel's own buffers; a "
             "client that is further behind is cut off"},
    {"gateway", "output_total", BY__KEY_SIZE, OWN(gateway.output_total), "16MiB", 1, BY__MI30,
     .help = "of all streams together; as they hold back more, a single one may hold back less: as "
             "much as the others leave"},

    {"worker", "model", BY__KEY_TEXT, OWN(worker.model), "\"\"",
     .help = "a run or a directory with a model; empty: the command line names it"},
    {"worker", "name", BY__KEY_TEXT, OWN(worker.name), "\"\"",
     .help = "under which clients ask for the model; empty: the last part of its path"},
    {"worker", "count", BY__KEY_INT, OWN(worker.count), "1", 0, BY__MOST_WORKERS,
     .help = "processes; where scaling.most is above it, at least, and 0: none while there are no "
             "requests"},
    {"worker", "precision", BY__KEY_TEXT, OWN(worker.precision), "\"\"",
     .help = "f32, bf16, fp16, int8, w8a8, fp8 or int4; empty: as the weights are"},
    {"worker", "sessions", BY__KEY_INT, OWN(worker.sessions), "0", 0, 65536,
     .help = "sequences that run at a time in a worker; 0: the engine's default"},
    {"worker", "context", BY__KEY_INT, OWN(worker.context), "0", 0, BY__MI24,
     .help = "tokens of a prompt with its answer; 0: the model's"},
    {"worker", "threads", BY__KEY_INT, OWN(worker.threads), "0", 0, 4096,
     .help = "compute threads of a worker; 0: one a core"},
    {"worker", "nice", BY__KEY_INT, OWN(worker.nice), "5", 0, 19,
     .help = "how much workers give way to other processes, as nice(1) has it: on a machine whose "
             "cores are all busy, gateway and broker answer before a worker goes on"},
    {"worker", "drift_window", BY__KEY_INT, OWN(worker.drift_window), "500", 1, BY__MI30,
     .help = "requests that are compared with the training data at a time (docs/drift.md)"},
    {"worker", "sandbox", BY__KEY_SWITCH, OWN(worker.sandbox), "true",
     .help = "whether a warm worker gives up all that it does not need of the kernel "
             "(docs/security.md)"},
    {"worker", "max_rate", BY__KEY_REAL, OWN(worker.max_rate), "0", 0, 1e6,
     .help = "requests a second that a worker begins, at most; 0: as many as come"},
    {"worker", "grace", BY__KEY_REAL, OWN(worker.grace), "60", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds that a worker has to finish, after SIGTERM"},

    {"scaling", "most", BY__KEY_INT, OWN(scaling.most), "0", 0, BY__MOST_WORKERS,
     .help = "processes, at most, by load; 0: as many as worker.count"},
    {"scaling", "target_p95", BY__KEY_REAL, OWN(scaling.target_p95), "0.2", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds to the first text, of 95 % of the requests"},
    {"scaling", "calm", BY__KEY_REAL, OWN(scaling.calm), "15", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds before workers that are not needed go"},
    {"scaling", "idle", BY__KEY_REAL, OWN(scaling.idle), "60", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds without requests before the last worker goes, where worker.count is 0"},

    {"broker", "address", BY__KEY_TEXT, OWN(broker.address), "\"\"",
     .help = "`redis://HOST[:PORT]`: a Redis server is the broker; empty: one is started"},
    {"broker", "queue", BY__KEY_INT, OWN(broker.queue), "1024", 1, BY__MI20,
     .help = "requests that may wait for a worker"},
    {"broker", "wait", BY__KEY_REAL, OWN(broker.wait), "0", 0, 86400,
     .help =
         "seconds that a request may wait for a worker: one that would wait longer, by what was "
         "measured, is refused at once (docs/serving.md); 0: by the load, 0.1 to 2 s"},
    {"broker", "tasks", BY__KEY_TEXT, OWN(broker.tasks), "\"\"",
     .help = "file of tasks; empty: tasks.sqlite in the server's directory"},

    {"limits", "requests_per_minute", BY__KEY_INT, OWN(limits.requests_per_minute), "0", 0,
     BY__MI30, .help = "of each key that keys does not name; 0: no limit"},
    {"limits", "tokens_per_minute", BY__KEY_INT, OWN(limits.tokens_per_minute), "0", 0, BY__MANY,
     .help = "the same, of prompts and answers"},
    {"limits", "tokens_per_day", BY__KEY_INT, OWN(limits.tokens_per_day), "0", 0, BY__MANY,
     .help = "the same, from midnight to midnight, UTC; what was used survives a restart"},
    {"limits", "keys", BY__KEY_RECORDS, OWN(limits.keys), "[]", .fields = &limit_list,
     .size = sizeof(by_limit_config),
     .help = "keys with limits of their own: `[{name: alice, requests_per_minute: 60}]`"},

    {"cors", "origins", BY__KEY_TEXTS, OWN(cors.origins), "[]",
     .help = "of pages that may: `https://app.example.com`, or `*` for all; empty: none"},
    {"cors", "max_age", BY__KEY_INT, OWN(cors.max_age), "600", 0, 86400,
     .help = "seconds that a browser may remember that it may"},

    {"payload", "directory", BY__KEY_TEXT, OWN(payload.directory), "\"\"",
     .help = "where they are kept; empty: none are"},
    {"payload", "fraction", BY__KEY_REAL, OWN(payload.fraction), "0.01", 0, 1,
     .help = "of the requests that are kept, drawn by their ids"},
    {"payload", "bytes", BY__KEY_SIZE, OWN(payload.bytes), "64MiB", 4096, BY__MANY,
     .help = "of a file, after which the next begins"},
    {"payload", "files", BY__KEY_INT, OWN(payload.files), "16", 1, BY__MI20,
     .help = "that are kept; older ones are removed"},
    {"payload", "drop", BY__KEY_TEXTS, OWN(payload.drop), "[]",
     .help = "names of fields that are left out, at any depth and of `text`: `[prompt, messages]`"},
    {"payload", "hash", BY__KEY_TEXTS, OWN(payload.hash), "[]",
     .help = "names of fields of which a hash is kept, the same for the same value until the "
             "gateway starts again"},
    {"payload", "redact", BY__KEY_SWITCH, OWN(payload.redact), "true",
     .help =
         "e-mail addresses and numbers of 7 digits or more become `<email>` and `<number>`, and "
         "prompts of token ids `<tokens>`"},

    {"feedback", "directory", BY__KEY_TEXT, OWN(feedback.directory), "\"\"",
     .help = "where the records of POST /v1/feedback are kept; empty: there is no such route"},

    {"webhooks", "origins", BY__KEY_TEXTS, OWN(webhooks.origins), "[]",
     .help = "of URLs that a task may name: `https://hooks.example.com`, with a port where it is "
             "not 443; empty: none"},
    {"webhooks", "networks", BY__KEY_TEXTS, OWN(webhooks.networks), "[]",
     .help = "that are not public, and that messages may be sent to all the same: `10.1.0.0/16`"},
    {"webhooks", "secret", BY__KEY_TEXT, OWN(webhooks.secret), "\"\"",
     .help = "file of the secret that signs messages: a line `whsec_BASE64`, up to 4 while one "
             "replaces another"},
    {"webhooks", "certificates", BY__KEY_TEXT, OWN(webhooks.certificates), "\"\"",
     .help = "PEM file of the authorities that receivers' certificates are checked against; "
             "empty: the system's"},
    {"webhooks", "attempts", BY__KEY_INT, OWN(webhooks.attempts), "10", 1, 100,
     .help = "for a message"},
    {"webhooks", "pause", BY__KEY_REAL, OWN(webhooks.pause), "5", 0, 3600, BY__ABOVE_MIN,
     .help = "seconds between the first two attempts, less a random part of up to a half; it "
             "doubles with each, up to an hour"},
    {"webhooks", "timeout", BY__KEY_REAL, OWN(webhooks.timeout), "10", 0, 600, BY__ABOVE_MIN,
     .help = "seconds of an attempt"},

    {"tracing", "endpoint", BY__KEY_TEXT, OWN(tracing.endpoint), "\"\"",
     .help =
         "`http://HOST:4318/v1/traces`, where OTLP over HTTP is taken; empty: no spans are sent"},
    {"tracing", "service", BY__KEY_TEXT, OWN(tracing.service), "banyan", .min = 1,
     .help = "the resource's `service.name`"},
    {"tracing", "fraction", BY__KEY_REAL, OWN(tracing.fraction), "1", 0, 1,
     .help = "of traces that begin here; of others the caller says whether they are sampled"},
    {"tracing", "queue", BY__KEY_INT, OWN(tracing.queue), "4096", 1, BY__MI20,
     .help = "spans that may wait for the collector; more are dropped and counted"},

    {"features", "store", BY__KEY_TEXT, OWN(features.store), "\"\"",
     .help = "`redis://[USER@]HOST[:PORT][/DATABASE]`, or `http://HOST:6566` of a `feast serve`; "
             "empty: there is none"},
    {"features", "password_file", BY__KEY_TEXT, OWN(features.password_file), "\"\"",
     .help = "whose first line is the password of Redis; empty: the environment's "
             "BANYAN_FEATURES_PASSWORD, if any"},
    {"features", "project", BY__KEY_TEXT, OWN(features.project), "\"\"",
     .help = "of Feast, which keys in Redis end with"},
    {"features", "key_version", BY__KEY_INT, OWN(features.key_version), "3", 2, 3,
     .help = "Feast's `entity_key_serialization_version`"},
    {"features", "timeout", BY__KEY_REAL, OWN(features.timeout), "0.1", 0, 60, BY__ABOVE_MIN,
     .help = "seconds of a fetch"},
    {"features", "fallback", BY__KEY_TEXT, OWN(features.fallback), "error",
     .choices = "error|missing",
     .help = "where the store does not answer in time: error answers 503, missing goes on as if it "
             "had no values"},
    {"features", "cache", BY__KEY_INT, OWN(features.cache), "0", 0, BY__MI20,
     .help = "entities whose features are remembered; 0: none"},
    {"features", "cache_time", BY__KEY_REAL, OWN(features.cache_time), "1", 0, 86400,
     .help = "seconds for which they are"},
    {"features", "entities", BY__KEY_RECORDS, OWN(features.entities), "[]", .fields = &entity_list,
     .size = sizeof(by_feature_entity_config),
     .help = "what a request names: `[{name: driver_id, type: int64}]`"},
    {"features", "views", BY__KEY_RECORDS, OWN(features.views), "[]", .fields = &view_list,
     .size = sizeof(by_feature_view_config),
     .help = "feature views: `[{name: driver_stats, entities: driver_id, ttl: 86400}]`"},
    {"features", "columns", BY__KEY_RECORDS, OWN(features.columns), "[]", .fields = &column_list,
     .size = sizeof(by_feature_column_config),
     .help = "columns and their features: `[{column: rate, feature: driver_stats:conv_rate}]`"},
};
/* clang-format on */
static const by__section_list section_list = {sections, BY_ARRAY_LENGTH(sections)};
static const by__key_list key_list = BY__KEY_LIST(keys);
static const by__schema schema = {
    .sections = &section_list, .keys = &key_list, .size = sizeof(by_serve_config)};

static by_serve_config *take(by_config *config)
{
    by_serve_config *own = ((by__config *)config)->own;
    own->config = config;
    return own;
}

by_status by_serve_config_open(by_serve_config **out, const char *path,
                               const char *const *overrides, size_t count, by_error *error)
{
    by_config *config = NULL;
    *out = NULL;
    BY_TRY(path == NULL ? by__config_parse(&config, &schema, "defaults", "", 0, overrides, count,
                                           false, error)
                        : by__config_open(&config, &schema, path, overrides, count, false, error));
    *out = take(config);
    return BY_OK;
}

by_status by_serve_config_parse(by_serve_config **out, const char *name, const char *text,
                                size_t length, by_error *error)
{
    by_config *config = NULL;
    *out = NULL;
    BY_TRY(by__config_parse(&config, &schema, name, text, length, NULL, 0, false, error));
    *out = take(config);
    return BY_OK;
}

void by_serve_config_close(by_serve_config **config)
{
    if (*config != NULL) {
        by_config *whole = (*config)->config;
        *config = NULL;
        by_config_close(&whole);
    }
}

/* ---- checks ---- */

bool by__listens_locally(const char *listen)
{
    return strncmp(listen, "unix:", 5) == 0 || strncmp(listen, "127.", 4) == 0 ||
           strncmp(listen, "localhost:", 10) == 0 || strncmp(listen, "[::1]:", 6) == 0;
}

static bool has_name(const by__keys *file, const char *name)
{
    for (size_t i = 0; i < by__keys_count(file); i++) {
        if (strcmp(by__keys_at(file, i)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static by_status check_limits(const by_serve_config *c, const by__keys *file, by_error *error)
{
    const by_limit_config *rows = c->limits.keys.items;
    const char *where = by__config_where(c->config, "limits.keys", "limits.keys");
    for (size_t i = 0; i < c->limits.keys.count; i++) {
        if (file == NULL || !has_name(file, rows[i].name)) {
            return by_error_set(
                error, BY_ECONFIG, "%s: limits.keys names %s, which is no name in gateway.keys%s%s",
                where, rows[i].name, file == NULL ? "" : " ", file == NULL ? "" : c->gateway.keys);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(rows[k].name, rows[i].name) == 0) {
                return by_error_set(error, BY_ECONFIG, "%s: limits.keys names %s twice", where,
                                    rows[i].name);
            }
        }
    }
    return BY_OK;
}

static by_status check_origins(const by_serve_config *c, by_error *error)
{
    for (size_t i = 0; i < c->cors.origins.count; i++) {
        const char *origin = c->cors.origins.items[i];
        const char *host = strncmp(origin, "https://", 8) == 0  ? origin + 8
                           : strncmp(origin, "http://", 7) == 0 ? origin + 7
                                                                : "";
        if (strcmp(origin, "*") != 0 && (host[0] == '\0' || strpbrk(host, "/?#* ") != NULL)) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: cors.origins has %s, which is no origin: write it as "
                                "https://app.example.com, without a path, or *",
                                by__config_where(c->config, "cors.origins", "cors.origins"),
                                origin);
        }
    }
    return BY_OK;
}

static by_status check_scaling(const by_serve_config *c, by_error *error)
{
    if (c->scaling.most == 0 ? c->worker.count > 0 : c->scaling.most >= c->worker.count) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "%s: scaling.most is %lld and worker.count, the least, is %lld: "
                        "scaling.most must be as many, and at least 1 where worker.count is 0",
                        by__config_where(c->config, "scaling.most", "worker.count"),
                        (long long)c->scaling.most, (long long)c->worker.count);
}

static by_status check_tracing(const by_serve_config *c, by_error *error)
{
    const char *url = c->tracing.endpoint;
    if (url[0] != '\0' && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: tracing.endpoint is %s: it must be a URL such as "
                            "http://127.0.0.1:4318/v1/traces",
                            by__config_where(c->config, "tracing.endpoint", "tracing.endpoint"),
                            url);
    }
    return BY_OK;
}

static by_status check_metrics(const by_serve_config *c, by_error *error)
{
    const char *names = c->gateway.metrics_names;
    return strcmp(names, "banyan") == 0 || strcmp(names, "vllm") == 0
               ? BY_OK
               : by_error_set(
                     error, BY_ECONFIG, "%s: gateway.metrics_names is %s: it is banyan or vllm",
                     by__config_where(c->config, "gateway.metrics_names", "gateway.metrics_names"),
                     names);
}

static by_status check_proxies(const by_serve_config *c, by_error *error)
{
    by__addresses *addresses = NULL;
    by_status status = by__addresses_open(&addresses, 0, &c->gateway.proxies, error);
    by__addresses_close(&addresses);
    return status;
}

static by_status check_webhooks(const by_serve_config *c, by_error *error)
{
    by__webhook_rules *rules = NULL;
    by_status status = by__webhook_rules_open(&rules, &c->webhooks, error);
    by__webhook_rules_close(&rules);
    return status;
}

by_status by_serve_config_check(const by_serve_config *config, by_error *error)
{
    const by_serve_config *c = config;
    by__keys *file = NULL;
    by__feature_map *features = NULL;
    struct sockaddr_storage address;
    by_status status = by__listen_address(&address, c->gateway.listen, error);
    if (status != BY_OK) {
        return by_error_prefix(error, status, "%s: gateway.listen",
                               by__config_where(c->config, "gateway.listen", "gateway.listen"));
    }
    if (c->gateway.keys[0] == '\0' && c->gateway.insecure == 0 &&
        !by__listens_locally(c->gateway.listen)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: gateway.listen %s is reachable by others: give gateway.keys, "
                            "listen on 127.0.0.1, or set gateway.insecure: true",
                            by__config_where(c->config, "gateway.listen", "gateway.keys"),
                            c->gateway.listen);
    }
    if (c->gateway.keys[0] != '\0') {
        status = by__keys_open(&file, c->gateway.keys, error);
    }
    if (status == BY_OK) {
        status = check_limits(c, file, error);
    }
    if (status == BY_OK) {
        status = check_origins(c, error);
    }
    if (status == BY_OK) {
        status = check_tracing(c, error);
    }
    if (status == BY_OK) {
        status = check_webhooks(c, error);
    }
    if (status == BY_OK) {
        status = check_scaling(c, error);
    }
    if (status == BY_OK) {
        status = check_proxies(c, error);
    }
    if (status == BY_OK) {
        status = check_metrics(c, error);
    }
    if (status == BY_OK) {
        status = by__feature_map_open(&features, c, error);
    }
    by__feature_map_close(&features);
    by__keys_close(&file);
    return status;
}

static const char reference_head[] =
    "# Configuration of a server\n\n"
    "`banyan serve --config serve.yaml` reads one YAML file, by the rules of a run's\n"
    "([configuration](config.md)): `base:` names a file whose keys this one starts from, `--set\n"
    "section.key=value` replaces a key, and what is wrong is told with file and line. `--check`\n"
    "reads it, and what it names, and ends. A flag of the command line replaces a key.\n\n"
    "<!-- Made from the declarations of all keys; make it anew with\n"
    "     `build/debug/tests/test_config --write`. -->\n";

by_status by_serve_config_reference(char **out, by_error *error)
{
    return by__config_reference(out, &schema, reference_head, error);
}
