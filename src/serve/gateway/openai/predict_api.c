/* POST /v1/predict: rows of tables, images and graphs, as JSON; rows and images also as
 * multipart/form-data, or one image as the body; and entities, whose features are fetched from a
 * store before a worker gets the rows. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "serve/base/fields.h"
#include "serve/gateway/openai/openai.h"
#include "serve/http/multipart.h"
#include "serve/protocol/messages.h"

typedef struct predict_fields {
    const char *model;
    const json_t *rows;
    const json_t *images;
    const json_t *entities;
    const json_t *nodes;
    const json_t *graph;
    const json_t *pairs;
    int64_t priority;
} predict_fields;

static const by__serve_field fields[] = {
    BY__STRING("model", predict_fields, model, BY__MAX_NAME),
    BY__ANY("rows", predict_fields, rows),
    BY__ANY("images", predict_fields, images),
    BY__ANY("entities", predict_fields, entities),
    BY__ANY("nodes", predict_fields, nodes),
    BY__ANY("graph", predict_fields, graph),
    BY__ANY("pairs", predict_fields, pairs),
    BY__INTEGER("priority", predict_fields, priority, -100, 100),
};

static json_t *base64_of(const char *data, size_t length)
{
    by_string text = {0};
    by__string_add_base64(&text, data, length);
    json_t *out =
        text.failed ? NULL : json_stringn(text.data == NULL ? "" : text.data, text.length);
    by_string_free(&text);
    return out;
}

/* ---- bodies in other formats, converted to JSON ---- */

static by_status read_image(json_t **out, const by__http_request *request, by_error *error)
{
    json_t *model = by__gateway_query_model(request->query);
    if (model == NULL) {
        return by_error_set(error, BY_EARG,
                            "an image as a body needs the model's name: /v1/predict?model=NAME");
    }
    *out = json_pack("{so s[o]}", "model", model, "images",
                     base64_of(request->body, request->body_length));
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: an image") : BY_OK;
}

/* Reads the fields "model" and "rows" (JSON), and any number of files "image". */
static by_status read_parts(json_t **out, const by__http_request *request, by_error *error)
{
    const char *type = by__http_header_of(request, "content-type");
    by__http_multipart_part parts[BY__MULTIPART_MAX];
    size_t count;
    BY_TRY(
        by__http_multipart_split(parts, &count, type, request->body, request->body_length, error));
    json_t *body = json_object();
    by_status status = body == NULL ? by_error_set(error, BY_EMEMORY, "out of memory") : BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        const by__http_multipart_part *p = &parts[i];
        json_t *value;
        if (strcmp(p->name, "image") == 0) {
            json_t *images = json_object_get(body, "images");
            if (images == NULL) {
                images = json_array();
                status = json_object_set_new(body, "images", images) == 0 ? BY_OK : BY_EMEMORY;
            }
            if (status != BY_OK ||
                json_array_append_new(images, base64_of(p->data, p->length)) != 0) {
                status = by_error_set(error, BY_EMEMORY, "out of memory: an image");
            }
        } else if (json_object_get(body, p->name) != NULL) {
            status = by_error_set(error, BY_EARG, "the field '%s' comes twice", p->name);
        } else if (strcmp(p->name, "rows") == 0) {
            status = by__gateway_body_parse(&value, p->data, p->length, error);
            if (status == BY_OK) {
                status = json_object_set_new(body, "rows", value) == 0
                             ? BY_OK
                             : by_error_set(error, BY_EMEMORY, "out of memory: rows");
            }
        } else {
            value = json_stringn(p->data, p->length);
            status = value == NULL || json_object_set_new(body, p->name, value) != 0
                         ? by_error_set(error, BY_EARG, "the field '%s' is not UTF-8", p->name)
                         : BY_OK;
        }
    }
    if (status != BY_OK) {
        json_decref(body);
        return status;
    }
    *out = body;
    return BY_OK;
}

static by_status read_json(json_t **out, const by__http_request *request, by_error *error)
{
    if (by__http_is_type(request, "image/")) {
        return read_image(out, request, error);
    }
    if (by__http_is_type(request, "multipart/form-data")) {
        return read_parts(out, request, error);
    }
    if (by__http_is_type(request, "application/json")) {
        return by__gateway_body_parse(out, request->body, request->body_length, error);
    }
    return by_error_set(error, BY_EARG,
                        "Content-Type must be application/json, multipart/form-data, image/jpeg, "
                        "image/png or image/webp");
}

/* ---- the request ---- */

/* Nodes of the graph that the model has, or of the one in the request; that one as a whole without
 * nodes; or pairs of nodes that may be linked. */
static by_status read_graph(by__gateway_request *request, const predict_fields *a, size_t length,
                            const char **param, by_error *error)
{
    *param = a->pairs != NULL ? "pairs" : a->nodes != NULL ? "nodes" : "graph";
    if (a->pairs != NULL && (a->nodes != NULL || a->graph != NULL)) {
        return by_error_set(error, BY_EARG,
                            "'pairs' are of a model of links, which has neither 'nodes' nor "
                            "'graph'");
    }
    if (a->pairs != NULL && json_array_size(a->pairs) == 0) {
        return by_error_set(error, BY_EARG,
                            "'pairs' must be a list of at least one pair of numbers of nodes");
    }
    if (a->rows != NULL || a->images != NULL || a->entities != NULL) {
        return by_error_set(error, BY_EARG,
                            "'%s' is of a model of graphs, which has neither 'rows', 'images' nor "
                            "'entities'",
                            *param);
    }
    if (a->nodes != NULL && json_array_size(a->nodes) == 0) {
        return by_error_set(error, BY_EARG, "'nodes' must be a list of at least one number");
    }
    if (a->graph != NULL && !json_is_object(a->graph)) {
        *param = "graph";
        return by_error_set(error, BY_EARG, "'graph' must be an object");
    }
    *param = NULL;
    json_t *wanted = json_pack("{ss sO* sO* sO*}", "kind", "predict", "nodes", a->nodes, "graph",
                               a->graph, "pairs", a->pairs);
    return by__gateway_request_one_part(request, a->model, wanted, length, a->priority, error);
}

static by_status read_fields(by__gateway_request *request, const predict_fields *a, size_t length,
                             const char **param, by_error *error)
{
    *param = "model";
    if (a->model == NULL) {
        return by_error_set(error, BY_EARG, "'model' is missing");
    }
    if (a->nodes != NULL || a->graph != NULL || a->pairs != NULL) {
        return read_graph(request, a, length, param, error);
    }
    *param = "rows";
    const json_t *list = a->entities != NULL ? a->entities : a->rows != NULL ? a->rows : a->images;
    if (json_is_array(list) && json_array_size(list) == 0) {
        return by_error_set(error, BY_EARG, "'%s' is an empty list: give at least one example",
                            a->entities != NULL ? "entities"
                            : a->rows != NULL   ? "rows"
                                                : "images");
    }
    if ((a->rows == NULL && a->entities == NULL) == (a->images == NULL) ||
        json_array_size(list) == 0) {
        return by_error_set(error, BY_EARG,
                            "one of 'rows', 'entities' and 'images' must be a list of examples; "
                            "or, of a model of graphs, give 'nodes', 'graph' or 'pairs'");
    }
    *param = NULL;
    json_t *wanted =
        json_pack("{ss sO}", "kind", "predict", a->images != NULL ? "images" : "rows", list);
    if (a->entities != NULL) {
        request->fetches = true;
        request->own = json_pack("{sO sO*}", "entities", list, "rows", a->rows);
    }
    return by__gateway_request_one_part(request, a->model, wanted, length, a->priority, error);
}

static by_status read_request(by__gateway_request *request, const by__http_request *http,
                              const char **param, by_error *error)
{
    predict_fields a = {0};
    json_t *body;
    BY_TRY(read_json(&body, http, error));
    by_status status =
        by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), body, param, error);
    if (status == BY_OK) {
        status = read_fields(request, &a, http->body_length, param, error);
    }
    json_decref(body);
    return status;
}

/* ---- features ---- */

static void refuse(by__gateway_request *request, int status, const char *code, const char *param,
                   const char *message)
{
    by__gateway *g = request->gateway;
    by__gateway_detail(request->connection, json_pack("{ss ss ss}", "id", request->id, "model",
                                                      request->model, "code", code));
    if (status == 503) {
        by__http_connection_header(request->connection, "Retry-After", "1");
    }
    by__gateway_reply_error(g, request->connection, status, code, param, message);
    by__gateway_request_free(request);
}

static void on_disconnect(by__gateway_waiter *waiter)
{
    by__gateway_request *request = (by__gateway_request *)(void *)waiter;
    by__feature_fetch_cancel(request->fetch);
    request->gateway->metrics.cancelled++;
    by__gateway_request_free(request);
}

static void on_features(void *user, const by__feature_result *result)
{
    by__gateway_request *request = user;
    by__gateway *g = request->gateway;
    by_error error = {0};
    json_t *wanted = json_object_get(request->parts[0].message, "request");
    by__gateway_span(g, request->connection, "features", by__feature_fetch_since(request->fetch),
                     by__now());
    request->fetch = NULL;
    request->waiter.disconnected = by__gateway_request_gone;
    if (result->rows == NULL) {
        refuse(request, result->status, result->code, "entities", result->message);
    } else if (json_object_set_new(wanted, "rows", result->rows) != 0) {
        refuse(request, 503, "out_of_memory", NULL, "no memory for features");
    } else if (by__gateway_request_encode(request, SIZE_MAX, &error) != BY_OK) {
        refuse(request, 400, "invalid_request", "entities", error.message);
    } else {
        by__gateway_request_start(request);
    }
}

static void start(by__gateway_request *request)
{
    by__gateway *g = request->gateway;
    const json_t *model = by__gateway_model(g, request->model);
    const char *param = NULL;
    by_error error = {0};
    if (!request->fetches) {
        by__gateway_request_start(request);
        return;
    }
    const by__feature_request wanted = {
        .model = request->model,
        .entities = json_object_get(request->own, "entities"),
        .rows = json_object_get(request->own, "rows"),
        .columns = json_object_get(json_object_get(model, "info"), "columns")};
    by_status status = by__feature_fetch_begin(&request->fetch, g->features, &wanted, on_features,
                                               request, &param, &error);
    if (status != BY_OK) {
        bool theirs = status == BY_EARG;
        refuse(request, theirs ? 400 : 503, theirs ? "invalid_request" : "out_of_memory", param,
               error.message);
        return;
    }
    request->waiter.disconnected = on_disconnect;
    by__http_connection_set(request->connection, &request->waiter);
}

static void add_answer(by__gateway_request *request, by_string *out)
{
    by_string_format(out,
                     "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", request->id,
                     (long long)request->created);
    by_string_json(out, request->model, strlen(request->model));
    by__string_append(out, ",\"predictions\":");
    by__json_write(out, json_object_get(request->whole, "list"),
                   JSON_COMPACT | JSON_REAL_PRECISION(9));
    by__string_append(out, "}");
}

const by__gateway_request_form by__openai_predict_form = {.name = "predict",
                                                          .route = "/v1/predict",
                                                          .prefix = "pred-",
                                                          .kind = BY__REQUEST_PREDICT,
                                                          .any_type = true,
                                                          .read = read_request,
                                                          .start = start,
                                                          .answer = add_answer,
                                                          .apart = true};
