/* Tuning on conversations: predicts the tokens of answers from those before them. */
#include "config/kind.h"
#include "tasks/tasks.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/language.h"
#include "tasks/text/text_data.h"

extern const by__task_row by__task_chat;

static const by_metric metrics[] = {{"perplexity", false, 2, by__task_perplexity}};

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    return by__task_text_open(out, &by__task_chat.task, request, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    BY_TRY(by__task_chat_check(config, own, error));
    return by__task_data_mix_resolve(config, own, error);
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats per learned token)";
}

const by__task_row by__task_chat = {
    .kind = {.name = "chat",
             .help = "Prediction of the answers of conversations (docs/chat_tuning.md).",
             .keys = {&by__task_text_source_keys, &by__task_text_training_keys,
                      &by__task_text_held_out_keys, &by__task_chat_data_keys,
                      &by__task_chat_key_list},
             .size = sizeof(by__task_chat_keys),
             .resolve = resolve},
    .task = {.name = "chat",
             .examples = "tokens",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .loss_label = loss_label,
             .open = open_data,
             .close = by__task_text_close,
             .per_sample = by__task_text_per_sample,
             .knows = by__task_text_knows,
             .assume = by__task_text_assume,
             .complete = by__task_text_complete,
             .source = by__task_text_source,
             .loss = by__task_language_loss,
             .keep = by__task_text_keep,
             .check = by__task_text_check,
             .encode = by__task_text_encode,
             .decode = by__task_text_decode},
};
