/* Paths of other servers (Ollama, llama.cpp, vLLM, Text Generation Inference, KServe), and the
 * routes here that do the same. */
#include "serve/gateway/gateway_routes.h"

#include <string.h>

#include "banyan/text.h"

#define COMPLETIONS "; ask POST /v1/completions instead"
#define CHATS       "; ask POST /v1/chat/completions instead"
#define EMBEDDINGS  "; ask POST /v1/embeddings instead"
#define PREDICT     "; ask POST /v1/predict instead"
#define MODELS      "; GET /v1/models lists the models"
#define READY       "; ask GET /health/ready, or /health/live, instead"
#define TOKENS      "; prompts may be lists of token ids, and the usage of an answer counts tokens"

static const struct {
    const char *path; /* if it ends with '*', what begins so */
    const char *hint;
} hints[] = {
    {"/generate", COMPLETIONS},
    {"/api/generate", COMPLETIONS},
    {"/completion", COMPLETIONS},
    {"/completions", COMPLETIONS},
    {"/infill", COMPLETIONS},
    {"/v1/generate", COMPLETIONS},
    {"/v1/engines/*", COMPLETIONS},
    {"/generate_stream", "; ask POST /v1/completions with \"stream\": true instead"},
    {"/api/chat", CHATS},
    {"/chat", CHATS},
    {"/chat/completions", CHATS},
    {"/v1/chat", CHATS},
    {"/v1/messages", CHATS},
    {"/responses", "; ask POST /v1/responses instead"},
    {"/embedding", EMBEDDINGS},
    {"/embeddings", EMBEDDINGS},
    {"/embed", EMBEDDINGS},
    {"/api/embed", EMBEDDINGS},
    {"/api/embeddings", EMBEDDINGS},
    {"/predict", PREDICT},
    {"/classify", PREDICT},
    {"/invocations", PREDICT},
    {"/v2/models/*", PREDICT},
    {"/models", MODELS},
    {"/v1", MODELS},
    {"/v1/", MODELS},
    {"/api/tags", MODELS},
    {"/api/ps", MODELS},
    {"/api/show", MODELS},
    {"/info", MODELS},
    {"/props", MODELS},
    {"/healthz", READY},
    {"/livez", READY},
    {"/readyz", READY},
    {"/health/*", READY},
    {"/v2/health/*", READY},
    {"/api/version", "; ask GET /version instead"},
    {"/v1/version", "; ask GET /version instead"},
    {"/slots", "; ask GET /metrics instead"},
    {"/load", "; ask GET /metrics instead"},
    {"/tokenize", TOKENS},
    {"/detokenize", TOKENS},
    {"/v1/tokenize", TOKENS},
    {"/v1/detokenize", TOKENS},
};

/* The route that a path is spelled otherwise, or that it has something in front of; NULL: none. */
static const by__gateway_route *near_route(const char *path)
{
    const char *names[64];
    size_t count = 0;
    size_t length = strlen(path);
    for (size_t i = 0; i < by__gateway_route_count && i < BY_ARRAY_LENGTH(names); i++) {
        const char *own = by__gateway_routes[i].path;
        size_t n = strlen(own);
        if (n > 4 && length > n && strcmp(path + length - n, own) == 0) {
            return &by__gateway_routes[i];
        }
        /* Of routes that take a name, the name is not compared. */
        names[count++] = own[n - 1] == '/' ? "" : own;
    }
    const char *near = length < 64 ? by_nearest_name(path, names, count) : NULL;
    for (size_t i = 0; near != NULL && near[0] != '\0' && i < count; i++) {
        if (near == names[i]) {
            return &by__gateway_routes[i];
        }
    }
    return NULL;
}

const char *by__gateway_route_hint(char buffer[BY__ROUTE_HINT], const char *path)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(hints); i++) {
        size_t length = strcspn(hints[i].path, "*");
        bool begins = strncmp(hints[i].path, path, length) == 0;
        if (begins && (hints[i].path[length] == '*' || path[length] == '\0')) {
            return hints[i].hint;
        }
    }
    const by__gateway_route *near = near_route(path);
    if (near == NULL) {
        return "";
    }
    (void)snprintf(buffer, BY__ROUTE_HINT, "; did you mean %s %s?", near->method, near->path);
    return buffer;
}
