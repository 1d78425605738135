/* model - the options of a model as flags.
 *
 * The first word of `pretrain` and `plan`, and --model of `bench`, name a model; what describes one
 * is then a table of flags like any other, made from the options that the library lists.
 */
#ifndef SHOAL_MODEL_FLAGS_H
#define SHOAL_MODEL_FLAGS_H

#include "base/config_table.h"
#include "shoal/transformer.h"

struct model_flags {
    shoal_model_config *config; /* owned */
    struct shoali_section section;
    struct shoali_flags table; /* for shoali_flags_parse, its defaults written */
};
/* The model that the first word names; where a flag stands there, the first of the table. *skip:
 * words that were taken. `command` becomes "TOOL MODEL". SHOAL_EINVAL: there is no word, or no such
 * model. */
SHOAL_CHECKED shoal_status model_flags_word(const char *tool, int argc, char **argv,
                                            const char **model, int *skip, char *command,
                                            size_t bytes);
/* For the model of that name. Options of a known model have its values as defaults, and none is
 * required. The section lives in the arena. */
SHOAL_CHECKED shoal_status model_flags_init(struct model_flags *flags, const char *name,
                                            struct shoali_arena *arena);
/* For the model llama with the defaults of Megatron's pretrain_gpt.py: layer norm, learned
 * positions, biases, no gate, tied head, dropout. */
SHOAL_CHECKED shoal_status model_flags_init_megatron(struct model_flags *flags,
                                                     struct shoali_arena *arena);
/* The same for a configuration (transferred, also on an error): its values are the defaults. */
SHOAL_CHECKED shoal_status model_flags_init_of(struct model_flags *flags,
                                               shoal_model_config *config,
                                               struct shoali_arena *arena);
void model_flags_fini(struct model_flags *flags);
/* After parsing: the flags' values go into the configuration. */
SHOAL_CHECKED shoal_status model_flags_take(struct model_flags *flags);
/* Whether the flag of the option was given. */
bool model_flags_given(const struct model_flags *flags, const char *option);
/* Of an option that every model has. */
int64_t model_flags_int(const struct model_flags *flags, const char *option);

#endif
