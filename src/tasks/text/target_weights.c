/* Weights of tokens in the loss (data.token_weights, data.valid_token_weights). */
#include "tasks/tasks.h"
#include "tasks/teacher.h"
#include "tasks/text/language.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "token_weights", BY__KEY_TEXT, BY__OWN(by__task_language_keys, weight), "\"\"",
     .later = true,
     .help =
         "npy file of little-endian f32 (or u8 of 0 and 1) with a number of at least 0 for each "
         "token of train: its "
         "weight in the loss as a target, which is divided by the sum of the weights of a batch; 0 "
         "leaves a token out; empty: all weigh 1"},
    {"data", "valid_token_weights", BY__KEY_TEXT, BY__OWN(by__task_language_keys, valid_weight),
     "\"\"", .later = true, .help = "the same of valid"},
};
/* clang-format on */
const by__config_key_list by__task_weight_keys = BY__KEY_LIST(keys);

const by__task_language_keys *by__task_language_keys_of(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_language.kind);
}

bool by__task_weighs_targets(const by_config *config)
{
    const by__task_language_keys *k = by__task_language_keys_of(config);
    return (by__task_is_chat(config) && !by__task_has_pairs(config)) ||
           (k != NULL && (k->weight[0] != '\0' || k->valid_weight[0] != '\0'));
}

static by_status check_one(const by_config *config, const char *weight, const char *key,
                           const char *data, const char *data_key, by_error *error)
{
    return weight[0] == '\0' || data[0] != '\0'
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: %s has a number for each token of %s, which is not set",
                              by__config_where(config, key, data_key), key, data_key);
}

by_status by__task_weights_check(const by_config *config, const by__task_language_keys *k,
                                 by_error *error)
{
    BY_TRY(check_one(config, k->weight, "data.token_weights", config->data.train, "data.train",
                     error));
    BY_TRY(check_one(config, k->valid_weight, "data.valid_token_weights", config->data.valid,
                     "data.valid", error));
    bool weighted = k->weight[0] != '\0' || k->valid_weight[0] != '\0';
    bool distilled = by__task_has_teacher(config) || config->distill.logits[0] != '\0';
    return !weighted || !distilled
               ? BY_OK
               : by_error_set(
                     error, BY_ECONFIG,
                     "%s: the loss of a student has no weights of tokens: leave data.%s "
                     "out",
                     by__config_where(config, "data.token_weights", "data.valid_token_weights"),
                     k->weight[0] != '\0' ? "token_weights" : "valid_token_weights");
}
