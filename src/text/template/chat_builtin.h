#ifndef BY_TEXT_TEMPLATE_CHAT_BUILTIN_H
#define BY_TEXT_TEMPLATE_CHAT_BUILTIN_H

/* The text of a built-in chat template; NULL: there is none of this name. */
const char *by__template_chat_builtin(const char *name);
/* Their names, separated by commas. */
extern const char by__template_chat_builtin_names[];

#endif
