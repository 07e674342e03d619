/* Chat templates of widespread forms, for models that come without one. */
#include "text/template/chat_builtin.h"

#include <string.h>

#include "base/base.h"

static const struct {
    const char *name;
    const char *text;
} templates[] = {
    {"chatml", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
               "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"zephyr", "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n"
               "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"plain", "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content }}\n{% endfor %}"
              "{% if add_generation_prompt %}Assistant:{% endif %}"},
    {"none", "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}"
             "{% endif %}{% endfor %}"},
};

const char by__template_chat_builtin_names[] = "chatml, llama3, zephyr, plain, none";

const char *by__template_chat_builtin(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(templates); i++) {
        if (strcmp(templates[i].name, name) == 0) {
            return templates[i].text;
        }
    }
    return NULL;
}
