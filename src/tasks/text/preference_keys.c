#include "tasks/text/preference_keys.h"

#include <string.h>

#include "tasks/tasks.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(by__task_preference_keys, loss), "dpo",
     .choices = "dpo|ipo|simpo|orpo",
     .help =
         "what is minimised: dpo (Rafailov et al. 2023), ipo (Azar et al. 2023), simpo (Meng et "
         "al. 2024), orpo (Hong et al. 2024)"},
    {"task", "beta", BY__KEY_REAL, BY__OWN(by__task_preference_keys, beta), "0.1", 0, 1e6,
     BY__ABOVE_MIN,
     .help = "factor of the difference of log-probabilities, tau of ipo, lambda of orpo; simpo is "
             "published with 2 to 2.5"},
    {"task", "margin", BY__KEY_REAL, BY__OWN(by__task_preference_keys, margin), "0", 0, 1e6,
     .help = "dpo, simpo: what the difference times beta is to exceed; simpo is published with 0.5 "
             "to 1.5"},
    {"task", "smoothing", BY__KEY_REAL, BY__OWN(by__task_preference_keys, smoothing), "0", 0, 0.5,
     BY__BELOW_MAX,
     .help = "dpo, simpo: assumed share of pairs whose answers are the wrong way round"},
    {"task", "nll", BY__KEY_REAL, BY__OWN(by__task_preference_keys, nll), "0", 0, 1e6,
     .help = "weight of the mean cross-entropy of the chosen answer's tokens, which is added; orpo "
             "has it once already"},
    {"task", "reduce", BY__KEY_TEXT, BY__OWN(by__task_preference_keys, reduce), "auto",
     .choices = "auto|sum|mean",
     .help = "the log-probability of an answer is the sum over its tokens or their mean; auto: sum "
             "for dpo and ipo, mean for simpo and orpo"},
    {"task", "reference", BY__KEY_TEXT, BY__OWN(by__task_preference_keys, reference), "cached",
     .choices = "cached|live",
     .help = "dpo, ipo: log-probabilities by the weights at the start are computed once, before "
             "the first step, and kept in data.cache (cached), or in every step by a second copy "
             "of the weights (live), with the same bits"},
    {"task", "reference_from", BY__KEY_TEXT, BY__OWN(by__task_preference_keys, reference_from),
     "\"\"",
     .help =
         "dpo, ipo: directory of the weights to compare with, to which the adapters of lora.from "
         "are added; empty: model.from"},
};
/* clang-format on */
const by__config_key_list by__task_preference_key_list = BY__KEY_LIST(keys);

const by__task_preference_keys *by__task_preference_keys_of(const by_config *config)
{
    return strcmp(config->task.kind, "preference") == 0
               ? by__config_kind_own(config->task.own,
                                     by__config_kind_named(config->task.own, "preference"))
               : NULL;
}

bool by__task_reads_reference(const by_config *config)
{
    const by__task_preference_keys *k = by__task_preference_keys_of(config);
    return k != NULL && (strcmp(k->loss, "dpo") == 0 || strcmp(k->loss, "ipo") == 0);
}

bool by__task_has_live_reference(const by_config *config)
{
    return by__task_reads_reference(config) &&
           strcmp(by__task_preference_keys_of(config)->reference, "live") == 0;
}

const char *by__task_reference_path(const by_config *config)
{
    const char *path = by__task_preference_keys_of(config)->reference_from;
    return path[0] == '\0' ? config->model.from : path;
}
