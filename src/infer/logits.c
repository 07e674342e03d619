#include <stdlib.h>
#include <string.h>

#include "infer/infer.h"

struct by_logits {
    by__forward forward;
    by__block weights;
    by__block outputs;
    by__pages arena;
    by__pages workspace;
    by__pages tokens;
    size_t count; /* tokens of a run */
};

static by_status set_up(by_logits *l, const by__forward_options *options, const by_weights *weights,
                        int64_t batch, int64_t time, by_error *error)
{
    by_model_request request = {.mode = BY_MODEL_LOGITS, .batch = batch, .time = time};
    BY_TRY(by__forward_build(&l->forward, options, &request, error));
    by_graph *graph = l->forward.graph;
    l->count = (size_t)(batch * time); /* the graph has checked that the extents fit */
    BY_TRY(by__weights_block_open(&l->weights, graph, options, weights, error));
    BY_TRY(by__block_open(&l->outputs, graph, BY_ROLE_OUTPUT, "the logits", error));
    BY_TRY(by__forward_compile(&l->forward, options->threads, error));
    by_program *program = l->forward.program;
    BY_TRY(by__pages_open(&l->arena, by_program_arena_bytes(program), "the activations", error));
    BY_TRY(
        by__pages_open(&l->workspace, by_program_workspace_bytes(program), "the workspace", error));
    BY_TRY(by__pages_open(&l->tokens, l->count * sizeof(int32_t), "the tokens", error));
    by_program_set_memory(program, by_host_memory(l->arena.data, l->arena.bytes),
                          by_host_memory(l->workspace.data, l->workspace.bytes));
    BY_TRY(by__block_bind(&l->weights, &l->forward, error));
    BY_TRY(by__block_bind(&l->outputs, &l->forward, error));
    return by__forward_bind(&l->forward, "tokens", l->tokens.data, error);
}

by_status by_logits_open(by_logits **out, const by_config *config, const by_weights *weights,
                         int64_t batch, int64_t time, const char *precision, int threads,
                         by_error *error)
{
    by_logits *l;
    by__forward_options options;
    BY_TRY(by__forward_options_read(&options, config, precision, threads, error));
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "logits", error));
    by_status status = set_up(l, &options, weights, batch, time, error);
    if (status != BY_OK) {
        by_logits_close(&l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by_logits_close(by_logits **logits)
{
    if (logits == NULL || *logits == NULL) {
        return;
    }
    by_logits *l = *logits;
    by__block_close(&l->weights);
    by__block_close(&l->outputs);
    by__forward_close(&l->forward);
    by__pages_close(&l->arena);
    by__pages_close(&l->workspace);
    by__pages_close(&l->tokens);
    free(l);
    *logits = NULL;
}

by_status by_logits_run(by_logits *logits, const int32_t *tokens, const float **out,
                        by_error *error)
{
    memcpy(logits->tokens.data, tokens, logits->count * sizeof *tokens);
    BY_TRY(by_program_run(logits->forward.program, error));
    *out = logits->outputs.pages.data; /* the only output */
    return BY_OK;
}
