/* The keys of a server's configuration file. */
#include "banyan/serve_config.h"

#include <stdlib.h>
#include <string.h>

#include "config/schema.h"
#include "serve/base/serve.h"

static const by__config_section sections[] = {
    {"", "Keys at the top of the file.", 0},
    {"gateway", "The process that answers HTTP.", 0},
    {"worker", "The processes that run the model.", 0},
    {"scaling",
     "Autoscaling: the number of workers of each model follows its load (docs/operations.md).", 0},
    {"broker", "The process that queues requests between gateway and workers.", 0},
    {"log", "Events of the server, on its standard error.", 0},
    {"limits",
     "Rate limits and quotas of API keys (docs/security.md). A request counts before it runs, with "
     "all tokens that it may use; those that it did not use are given back. Above a limit the "
     "answer is 429 with Retry-After.",
     0},
    {"cors", "Cross-origin requests: which web sites may use the server from a browser.", 0},
    {"payload", "A sample of requests and answers, stored as JSON lines (docs/drift.md).", 0},
    {"feedback", "Ratings and labels that clients send for answers (docs/drift.md).", 0},
    {"webhooks", "Messages that tell a receiver that a task has ended (docs/operations.md).", 0},
    {"tracing", "Spans of requests, sent to an OpenTelemetry collector (docs/operations.md).", 0},
    {"features",
     "A Feast online store that fills columns of a table model for the entities that a request "
     "names (docs/features.md).",
     0},
};

/* clang-format off: one row a key */
#define OWN(member) BY__OWN(by_serve_config, member)
static const by__config_key model_fields[] = {
    {"models", "path", BY__KEY_TEXT, BY__OWN(by_served_model_config, path), NULL, .min = 1,
     .help = "run, model directory or GGUF file"},
    {"models", "name", BY__KEY_TEXT, BY__OWN(by_served_model_config, name), "\"\"",
     .help =
         "model name that clients use; empty: the last part of the adapter's path, or of `path`"},
    {"models", "adapter", BY__KEY_TEXT, BY__OWN(by_served_model_config, adapter), "\"\"",
     .help = "directory of a LoRA adapter to merge into the model; empty: none"},
    {"models", "workers", BY__KEY_TEXT, BY__OWN(by_served_model_config, workers), "\"\"",
     .help = "worker processes, as `2`; `1:8` scales with the load; empty: worker.count and "
             "scaling.most"},
    {"models", "precision", BY__KEY_TEXT, BY__OWN(by_served_model_config, precision), "\"\"",
     .help = "precision of the weights; empty, as in the following keys, or 0: what the key of "
             "this name in `worker` says"},
    {"models", "kv", BY__KEY_TEXT, BY__OWN(by_served_model_config, kv), "\"\"",
     .help = "KV cache: auto or int8"},
    {"models", "chat_template", BY__KEY_TEXT, BY__OWN(by_served_model_config, chat_template),
     "\"\"", .help = "chat template: a file, or chatml, llama3, zephyr or plain"},
    {"models", "pool", BY__KEY_TEXT, BY__OWN(by_served_model_config, pool), "\"\"",
     .help = "embeddings: the `mean` of the hidden states of all tokens (empty), or that of the "
             "`last` token"},
    {"models", "sessions", BY__KEY_INT, BY__OWN(by_served_model_config, sessions), "0", 0, 65536,
     .help = "sequences that a worker runs at the same time"},
    {"models", "context", BY__KEY_INT, BY__OWN(by_served_model_config, context), "0", 0, BY__MI24,
     .help = "longest sequence in tokens"},
    {"models", "device", BY__KEY_TEXT, BY__OWN(by_served_model_config, device), "\"\"",
     .help = "what computes"},
    {"models", "threads", BY__KEY_INT, BY__OWN(by_served_model_config, threads), "0", 0, 4096,
     .help = "compute threads per worker"},
    {"models", "batch", BY__KEY_INT, BY__OWN(by_served_model_config, batch), "0", 0, 4096,
     .help = "table rows or images computed together, at most; 0: 16"},
    {"models", "delay", BY__KEY_REAL, BY__OWN(by_served_model_config, delay), "0", 0, 60,
     .help = "seconds that an incomplete batch of rows, images or texts waits for more; 0: 0.002"},
    {"models", "max_rate", BY__KEY_REAL, BY__OWN(by_served_model_config, max_rate), "0", 0, 1e6,
     .help = "requests per second that a worker starts, at most"},
    {"models", "drift_window", BY__KEY_INT, BY__OWN(by_served_model_config, drift_window), "0", 0,
     BY__MI30, .help = "requests per window that is compared with the training data"},
};
static const by__config_key_list model_list = BY__KEY_LIST(model_fields);

static const by__config_key limit_fields[] = {
    {"limits.keys", "name", BY__KEY_TEXT, BY__OWN(by_limit_config, name), NULL, .min = 1,
     .help = "name of the API keys that this entry applies to; keys of the same name share its "
             "limits"},
    {"limits.keys", "requests_per_minute", BY__KEY_INT,
     BY__OWN(by_limit_config, requests_per_minute), "0", 0, BY__MI30,
     .help = "requests per minute; 0: no limit"},
    {"limits.keys", "tokens_per_minute", BY__KEY_INT, BY__OWN(by_limit_config, tokens_per_minute),
     "0", 0, BY__COUNT_LIMIT, .help = "tokens per minute, of prompts and answers; 0: no limit"},
    {"limits.keys", "tokens_per_day", BY__KEY_INT, BY__OWN(by_limit_config, tokens_per_day), "0", 0,
     BY__COUNT_LIMIT,
     .help = "tokens per day, of prompts and answers, from midnight to midnight UTC; 0: no limit"},
};
static const by__config_key_list limit_list = BY__KEY_LIST(limit_fields);

static const by__config_key entity_fields[] = {
    {"features.entities", "name", BY__KEY_TEXT, BY__OWN(by_feature_entity_config, name), NULL,
     .min = 1, .help = "join key of the entity, as in Feast"},
    {"features.entities", "type", BY__KEY_TEXT, BY__OWN(by_feature_entity_config, type), "int64",
     .choices = "int64|int32|string|bytes|unix_timestamp",
     .help = "type of its values, as in Feast; in a request, bytes are base64"},
};
static const by__config_key_list entity_list = BY__KEY_LIST(entity_fields);

static const by__config_key view_fields[] = {
    {"features.views", "name", BY__KEY_TEXT, BY__OWN(by_feature_view_config, name), NULL, .min = 1,
     .help = "name of the feature view"},
    {"features.views", "entities", BY__KEY_TEXT, BY__OWN(by_feature_view_config, entities), NULL,
     .min = 1, .help = "its join keys, separated by commas"},
    {"features.views", "ttl", BY__KEY_TIME, BY__OWN(by_feature_view_config, ttl), "0", 0, 1e12,
     .help = "age in seconds at which a feature counts as missing; 0: never"},
};
static const by__config_key_list view_list = BY__KEY_LIST(view_fields);

static const by__config_key column_fields[] = {
    {"features.columns", "column", BY__KEY_TEXT, BY__OWN(by_feature_column_config, column), NULL,
     .min = 1, .help = "name of the model's column"},
    {"features.columns", "feature", BY__KEY_TEXT, BY__OWN(by_feature_column_config, feature), NULL,
     .min = 1, .help = "feature that fills it, as `VIEW:FEATURE`"},
    {"features.columns", "model", BY__KEY_TEXT, BY__OWN(by_feature_column_config, model), "\"\"",
     .help = "model that has the column; empty: every model that is queried with entities"},
    {"features.columns", "default", BY__KEY_TEXT, BY__OWN(by_feature_column_config, otherwise),
     "\"\"",
     .help = "cell value if the store has none; empty: a missing cell, as in the training data"},
    {"features.columns", "required", BY__KEY_SWITCH, BY__OWN(by_feature_column_config, required),
     "false", .help = "reject a request with 422 if the store has no value"},
    {"features.columns", "time_unit", BY__KEY_TEXT, BY__OWN(by_feature_column_config, time_unit),
     "s", .choices = "s|ms|us|ns",
     .help = "unit of the number that a Feast timestamp becomes; must match the training data"},
};
static const by__config_key_list column_list = BY__KEY_LIST(column_fields);

static const by__config_key keys[] = {
    {"", "models", BY__KEY_RECORDS, OWN(models), "[]", .fields = &model_list,
     .size = sizeof(by_served_model_config),
     .help =
         "models to serve, each with settings of its own: `[{path: runs/a, name: small}, {path: "
         "runs/b, precision: int8, workers: 1:4}]`; models of the command line replace them"},

    {"gateway", "listen", BY__KEY_TEXT, OWN(gateway.listen), "127.0.0.1:8080", .min = 1,
     .help = "address to listen on: `HOST:PORT`, `[ADDRESS]:PORT` or `unix:PATH`"},
    {"gateway", "keys", BY__KEY_TEXT, OWN(gateway.keys), "\"\"",
     .help = "file of API keys, with the SHA-256 of a key, a name and optional scopes per line; "
             "empty: clients need no key"},
    {"gateway", "insecure", BY__KEY_SWITCH, OWN(gateway.insecure), "false",
     .help = "allow an address that other machines reach without keys"},
    {"gateway", "body", BY__KEY_SIZE, OWN(gateway.body), "8MiB", 1, BY__MI30,
     .help = "largest request body"},
    {"gateway", "connections", BY__KEY_INT, OWN(gateway.connections), "20000", 1, BY__MI20,
     .help = "open connections, at most"},
    {"gateway", "connections_per_address", BY__KEY_INT, OWN(gateway.connections_per_address), "0",
     0, BY__MI20,
     .help = "open connections per client address (IPv6: per /64), at most; of clients behind "
             "`proxies`, requests in progress; 0: no limit"},
    {"gateway", "proxies", BY__KEY_TEXTS, OWN(gateway.proxies), "[]",
     .help = "networks of trusted proxies whose `X-Forwarded-For` gives the client address, such "
             "as `10.0.0.0/8`; `unix`: trust what connects through a Unix socket"},
    {"gateway", "deadline", BY__KEY_TIME, OWN(gateway.deadline), "600", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds in which a request must be answered; then it fails with 504"},
    {"gateway", "drain", BY__KEY_TIME, OWN(gateway.drain), "45", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds to answer accepted requests after SIGTERM"},
    {"gateway", "metrics_names", BY__KEY_TEXT, OWN(gateway.metrics_names), "banyan", .min = 1,
     .help = "metric names of `/metrics`: `banyan`, or `vllm` for dashboards made for vLLM "
             "(docs/operations.md)"},
    {"gateway", "page", BY__KEY_SWITCH, OWN(gateway.page), "true",
     .help = "serve a web page at `/`, without a key (docs/serving.md)"},
    {"gateway", "head_timeout", BY__KEY_TIME, OWN(gateway.head_timeout), "10", 0, 1e6,
     BY__ABOVE_MIN,
     .help = "seconds from the first byte of a request to the end of its headers, at most"},
    {"gateway", "body_timeout", BY__KEY_TIME, OWN(gateway.body_timeout), "60", 0, 1e6,
     BY__ABOVE_MIN,
     .help = "seconds from the first byte of a request to the end of its body, at most"},
    {"gateway", "idle_timeout", BY__KEY_TIME, OWN(gateway.idle_timeout), "75", 0, 1e6,
     BY__ABOVE_MIN, .help = "seconds that a connection may stay idle between requests"},
    {"gateway", "output_timeout", BY__KEY_TIME, OWN(gateway.output_timeout), "30", 0, 1e6,
     BY__ABOVE_MIN,
     .help = "seconds after which a client that reads or acknowledges none of its output is "
             "disconnected"},
    {"gateway", "output", BY__KEY_SIZE, OWN(gateway.output), "256KiB", 1, BY__MI30,
     .help = "output buffered for a slow reader of a stream, in addition to the kernel's socket "
             "buffer; a client that falls further behind is disconnected"},
    {"gateway", "output_total", BY__KEY_SIZE, OWN(gateway.output_total), "16MiB", 1, BY__MI30,
     .help = "output buffered for all streams together; as it fills up, the limit of a single "
             "stream shrinks to what the others leave"},

    {"worker", "model", BY__KEY_TEXT, OWN(worker.model), "\"\"",
     .help = "run or model directory to serve; empty: given on the command line"},
    {"worker", "name", BY__KEY_TEXT, OWN(worker.name), "\"\"",
     .help = "model name that clients use; empty: the last part of the path"},
    {"worker", "count", BY__KEY_INT, OWN(worker.count), "1", 0, BY__MAX_WORKERS,
     .help = "worker processes of each model; with autoscaling (scaling.most), the smallest "
             "number, and 0 stops all of them while the model has no requests"},
    {"worker", "precision", BY__KEY_TEXT, OWN(worker.precision), "\"\"",
     .help = "precision of the weights: f32, bf16, fp16, int8, w8a8, fp8 or int4; empty: the "
             "model's"},
    {"worker", "chat_template", BY__KEY_TEXT, OWN(worker.chat_template), "\"\"",
     .help = "chat template: a file, or chatml, llama3, zephyr or plain; empty: the model's own"},
    {"worker", "kv", BY__KEY_TEXT, OWN(worker.kv), "auto", .choices = "auto|int8",
     .help = "KV cache of language models: auto as the precision, int8 with 8-bit integers"},
    {"worker", "sessions", BY__KEY_INT, OWN(worker.sessions), "0", 0, 65536,
     .help = "sequences that a worker runs at the same time; 0: the engine's default (16)"},
    {"worker", "context", BY__KEY_INT, OWN(worker.context), "0", 0, BY__MI24,
     .help = "longest sequence in tokens, prompt and answer together; 0: the model's context"},
    {"worker", "device", BY__KEY_TEXT, OWN(worker.device), "auto", .min = 1,
     .help = "what computes: `cpu`, `cuda` (NVIDIA GPUs), or `auto` for the best device of the "
             "machine; `KIND:N` is "
             "device N of several of a kind, from 0"},
    {"worker", "threads", BY__KEY_INT, OWN(worker.threads), "0", 0, 4096,
     .help = "compute threads per worker; 0: one per core"},
    {"worker", "nice", BY__KEY_INT, OWN(worker.nice), "5", 0, 19,
     .help = "niceness of workers, as for nice(1): when all cores are busy, gateway and broker run "
             "before workers"},
    {"worker", "drift_window", BY__KEY_INT, OWN(worker.drift_window), "500", 1, BY__MI30,
     .help = "requests per window that is compared with the training data (docs/drift.md)"},
    {"worker", "sandbox", BY__KEY_SWITCH, OWN(worker.sandbox), "true",
     .help =
         "run gateway, broker and workers in sandboxes: they give up all system calls and files "
         "that they do not need (docs/security.md)"},
    {"worker", "max_rate", BY__KEY_REAL, OWN(worker.max_rate), "0", 0, 1e6,
     .help = "requests per second that a worker starts, at most; 0: no limit"},
    {"worker", "grace", BY__KEY_TIME, OWN(worker.grace), "60", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds that a worker may take to finish its requests after SIGTERM"},

    {"scaling", "most", BY__KEY_INT, OWN(scaling.most), "0", 0, BY__MAX_WORKERS,
     .help = "largest number of workers of each model; 0: no autoscaling, always worker.count"},
    {"scaling", "total", BY__KEY_INT, OWN(scaling.total), "0", 0, BY__MI20,
     .help = "largest number of workers of all models together, without those of versions that are "
             "being deployed; 0: no limit"},
    {"scaling", "target_p95", BY__KEY_TIME, OWN(scaling.target_p95), "0.2", 0, 1e6, BY__ABOVE_MIN,
     .help = "wanted 95th percentile of the time to the first text, in seconds"},
    {"scaling", "calm", BY__KEY_TIME, OWN(scaling.calm), "15", 0, 1e6, BY__ABOVE_MIN,
     .help = "cool-down: seconds that an idle worker is kept before it is stopped"},
    {"scaling", "idle", BY__KEY_TIME, OWN(scaling.idle), "60", 0, 1e6, BY__ABOVE_MIN,
     .help = "seconds without requests before the last worker is stopped, if worker.count is 0"},

    {"broker", "address", BY__KEY_TEXT, OWN(broker.address), "\"\"",
     .help = "use the Redis server at `redis://HOST[:PORT]` as the broker; empty: start the "
             "embedded broker"},
    {"broker", "queue", BY__KEY_INT, OWN(broker.queue), "1024", 1, BY__MI20,
     .help = "requests that may wait for a worker, at most"},
    {"broker", "wait", BY__KEY_TIME, OWN(broker.wait), "0", 0, 86400,
     .help = "longest time in seconds that a request is expected to wait for a worker; requests "
             "that would wait longer are rejected with 429 at once (docs/serving.md); 0: 0.1 to 2 "
             "s, by the load"},
    {"broker", "stored", BY__KEY_INT, OWN(broker.stored), "100000", 1, BY__MI30,
     .help = "tasks, and responses, that are stored for each key name, at most; further tasks are "
             "rejected with 429, and further responses replace the oldest ones"},
    {"broker", "stored_bytes", BY__KEY_SIZE, OWN(broker.stored_bytes), "256MiB", 1, BY__COUNT_LIMIT,
     .help = "bytes of them for each key name, likewise, in the embedded broker"},
    {"broker", "tasks", BY__KEY_TEXT, OWN(broker.tasks), "\"\"",
     .help = "SQLite file that stores tasks; empty: tasks.sqlite in the server's directory"},

    {"log", "format", BY__KEY_TEXT, OWN(log.format), "auto", .choices = "auto|json|text",
     .help = "one JSON object per line, or text for people; auto: text on a terminal"},

    {"limits", "requests_per_minute", BY__KEY_INT, OWN(limits.requests_per_minute), "0", 0,
     BY__MI30,
     .help = "requests per minute of each key name that has no entry in limits.keys; 0: no limit"},
    {"limits", "tokens_per_minute", BY__KEY_INT, OWN(limits.tokens_per_minute), "0", 0,
     BY__COUNT_LIMIT, .help = "tokens per minute, of prompts and answers, likewise; 0: no limit"},
    {"limits", "tokens_per_day", BY__KEY_INT, OWN(limits.tokens_per_day), "0", 0, BY__COUNT_LIMIT,
     .help = "tokens per day, of prompts and answers, from midnight to midnight UTC, likewise; "
             "usage survives a restart; 0: no limit"},
    {"limits", "keys", BY__KEY_RECORDS, OWN(limits.keys), "[]", .fields = &limit_list,
     .size = sizeof(by_limit_config),
     .help = "limits for particular key names: `[{name: alice, requests_per_minute: 60}]`"},

    {"cors", "origins", BY__KEY_TEXTS, OWN(cors.origins), "[]",
     .help = "origins whose pages may use the server from a browser: `https://app.example.com`, or "
             "`*` for all; empty: none"},
    {"cors", "max_age", BY__KEY_TIME, OWN(cors.max_age), "600", 0, 86400,
     .help = "seconds that a browser may cache this permission"},

    {"payload", "directory", BY__KEY_TEXT, OWN(payload.directory), "\"\"",
     .help = "directory to store them in; empty: none are stored"},
    {"payload", "fraction", BY__KEY_REAL, OWN(payload.fraction), "0.01", 0, 1,
     .help = "share of the requests that is stored, selected by a hash of their ids"},
    {"payload", "bytes", BY__KEY_SIZE, OWN(payload.bytes), "64MiB", 4096, BY__COUNT_LIMIT,
     .help = "size at which a file is closed and the next one begun"},
    {"payload", "files", BY__KEY_INT, OWN(payload.files), "16", 1, BY__MI20,
     .help = "files to keep; older ones are removed"},
    {"payload", "drop", BY__KEY_TEXTS, OWN(payload.drop), "[]",
     .help = "names of fields to omit, at any depth, including `text`: `[prompt, messages]`"},
    {"payload", "hash", BY__KEY_TEXTS, OWN(payload.hash), "[]",
     .help = "names of fields to store as a hash, which is the same for the same value until the "
             "gateway is restarted"},
    {"payload", "redact", BY__KEY_SWITCH, OWN(payload.redact), "true",
     .help = "replace e-mail addresses by `<email>`, numbers of 7 or more digits by `<number>`, "
             "and prompts of token ids by `<tokens>`"},

    {"feedback", "directory", BY__KEY_TEXT, OWN(feedback.directory), "\"\"",
     .help = "directory that stores what clients send to POST /v1/feedback; empty: the route does "
             "not exist"},
    {"feedback", "bytes", BY__KEY_SIZE, OWN(feedback.bytes), "64MiB", 4096, BY__COUNT_LIMIT,
     .help = "size at which a file is closed and the next one begun"},
    {"feedback", "files", BY__KEY_INT, OWN(feedback.files), "64", 1, BY__MI20,
     .help = "files to keep; older ones are removed"},

    {"webhooks", "origins", BY__KEY_TEXTS, OWN(webhooks.origins), "[]",
     .help = "origins of the URLs that a task may name: `https://hooks.example.com`, with the port "
             "if it is not 443; empty: none"},
    {"webhooks", "networks", BY__KEY_TEXTS, OWN(webhooks.networks), "[]",
     .help = "non-public networks to which messages may be sent nevertheless: `10.1.0.0/16`"},
    {"webhooks", "secret", BY__KEY_TEXT, OWN(webhooks.secret), "\"\"",
     .help = "file with the secret that signs messages, one `whsec_BASE64` per line; up to 4 "
             "during a rotation"},
    {"webhooks", "certificates", BY__KEY_TEXT, OWN(webhooks.certificates), "\"\"",
     .help = "PEM file of the certificate authorities for receivers; empty: the system's"},
    {"webhooks", "attempts", BY__KEY_INT, OWN(webhooks.attempts), "10", 1, 100,
     .help = "attempts to deliver a message, at most"},
    {"webhooks", "pause", BY__KEY_TIME, OWN(webhooks.pause), "5", 0, 3600, BY__ABOVE_MIN,
     .help = "seconds between the first two attempts, minus random jitter of up to a half; doubled "
             "after each attempt, up to an hour"},
    {"webhooks", "timeout", BY__KEY_TIME, OWN(webhooks.timeout), "10", 0, 600, BY__ABOVE_MIN,
     .help = "seconds after which an attempt fails"},

    {"tracing", "endpoint", BY__KEY_TEXT, OWN(tracing.endpoint), "\"\"",
     .help = "URL of the collector (OTLP over HTTP): `http://HOST:4318/v1/traces`; empty: no spans "
             "are sent"},
    {"tracing", "service", BY__KEY_TEXT, OWN(tracing.service), "banyan", .min = 1,
     .help = "resource attribute `service.name`"},
    {"tracing", "fraction", BY__KEY_REAL, OWN(tracing.fraction), "1", 0, 1,
     .help = "share of new traces that is sampled; for a trace that a caller began, the caller "
             "decides"},
    {"tracing", "queue", BY__KEY_INT, OWN(tracing.queue), "4096", 1, BY__MI20,
     .help = "spans that may wait for the collector; further ones are dropped and counted"},

    {"features", "store", BY__KEY_TEXT, OWN(features.store), "\"\"",
     .help = "address of the store: `redis://[USER@]HOST[:PORT][/DATABASE]`, or `http://HOST:6566` "
             "of a `feast serve`; empty: none"},
    {"features", "password_file", BY__KEY_TEXT, OWN(features.password_file), "\"\"",
     .help = "file whose first line is the password of Redis; empty: the environment variable "
             "BANYAN_FEATURES_PASSWORD, if set"},
    {"features", "project", BY__KEY_TEXT, OWN(features.project), "\"\"",
     .help = "Feast project, which its keys in Redis end with"},
    {"features", "key_version", BY__KEY_INT, OWN(features.key_version), "3", 2, 3,
     .help = "Feast's `entity_key_serialization_version`"},
    {"features", "timeout", BY__KEY_TIME, OWN(features.timeout), "0.1", 0, 60, BY__ABOVE_MIN,
     .help = "seconds that a fetch may take"},
    {"features", "fallback", BY__KEY_TEXT, OWN(features.fallback), "error",
     .choices = "error|missing",
     .help = "what to do if the store does not answer in time: error answers 503, missing "
             "continues as if the store had no values"},
    {"features", "cache", BY__KEY_INT, OWN(features.cache), "0", 0, BY__MI20,
     .help = "entities whose features are cached; 0: none"},
    {"features", "cache_time", BY__KEY_TIME, OWN(features.cache_time), "1", 0, 86400,
     .help = "seconds that cached features are used"},
    {"features", "entities", BY__KEY_RECORDS, OWN(features.entities), "[]", .fields = &entity_list,
     .size = sizeof(by_feature_entity_config),
     .help = "entities that a request may name: `[{name: driver_id, type: int64}]`"},
    {"features", "views", BY__KEY_RECORDS, OWN(features.views), "[]", .fields = &view_list,
     .size = sizeof(by_feature_view_config),
     .help = "feature views: `[{name: driver_stats, entities: driver_id, ttl: 86400}]`"},
    {"features", "columns", BY__KEY_RECORDS, OWN(features.columns), "[]", .fields = &column_list,
     .size = sizeof(by_feature_column_config),
     .help = "columns that features fill: `[{column: rate, feature: driver_stats:conv_rate}]`"},
};
/* clang-format on */
static const by__config_section_list section_list = {sections, BY_ARRAY_LENGTH(sections)};
static const by__config_key_list key_list = BY__KEY_LIST(keys);
static const by__config_schema schema = {
    .sections = &section_list, .keys = &key_list, .size = sizeof(by_serve_config)};

static by_serve_config *copy_config(by_config *config)
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
    *out = copy_config(config);
    return BY_OK;
}

by_status by_serve_config_parse(by_serve_config **out, const char *name, const char *text,
                                size_t length, by_error *error)
{
    by_config *config = NULL;
    *out = NULL;
    BY_TRY(by__config_parse(&config, &schema, name, text, length, NULL, 0, false, error));
    *out = copy_config(config);
    return BY_OK;
}

by_status by_serve_config_set(by_serve_config *config, const char *key, const char *value,
                              const char *where, by_error *error)
{
    by__config *whole = (by__config *)config->config;
    by__config_entry *entry = by__config_entry_at(whole, key);
    by__config_node node = {0};
    if (entry == NULL) {
        return by_error_set(error, BY_EARG, "%s: there is no key %s", where, key);
    }
    /* Quoted, a text is taken as it is; an empty one is refused as a missing value. */
    bool quoted = entry->key.type == BY__KEY_TEXT && value[0] != '\0';
    by_status status = by__config_node_add(&node, value, strlen(value), quoted, error);
    if (status == BY_OK) {
        status = by__config_assign(whole, entry, &node, where, true, error);
    }
    by__config_node_free(&node);
    return status;
}

void by_serve_config_close(by_serve_config **config)
{
    if (*config != NULL) {
        by_config *whole = (*config)->config;
        *config = NULL;
        by_config_close(&whole);
    }
}

static const char reference_head[] =
    "# Configuration of a server\n\n"
    "All keys of the YAML file that `banyan serve --config serve.yaml` reads. The rules are those\n"
    "of a run's [config](config.md): `base:` includes another file, `--set section.key=value`\n"
    "overrides a key, and errors are reported with file and line. Other flags of the command line\n"
    "override keys too. `--check` checks the file and the flags, with the models, files and\n"
    "directories that they name, and exits.\n\n"
    "<!-- Generated from the declarations of all keys; regenerate it with\n"
    "     `build/debug/tests/test_config --write`. -->\n";

by_status by_serve_config_reference(char **out, by_error *error)
{
    return by__config_reference(out, &schema, reference_head, error);
}
