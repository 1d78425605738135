/* autotp - splits for models that declare none (DeepSpeed's AutoTP). Level L6.
 *
 * A model of one's own may leave out how ranks along tp divide its matrices; rules by the names of
 * parameters say it then, from the section `tensor_parallel`:
 *
 *   preset_model       a list of rules of this folder, by the name of a family (`presets`)
 *   partition_config   {"layer_specs": [rule, ...], "strict_mode": false, "use_default_specs": true}
 *                      rules of one's own, which come before the preset's; without
 *                      use_default_specs the preset's are left out; strict_mode: a matrix that no
 *                      rule knows is an error
 *   rule               {"patterns": [REGEX, ...], "partition_type": "column"|"row"|"vocabulary"|"skip",
 *                      "partition_dim": D, "shape": [...]}
 *
 * A pattern (POSIX extended) matches from a name's beginning on; the first rule that matches
 * counts. `column` divides dim 0 of a matrix [out, in] and its bias, `row` dim 1 and no bias,
 * `vocabulary` dim
 * 0 of a table; partition_dim is for matrices that lie otherwise ([in, out]: column 1, row 0).
 * `shape` is for matrices that hold several: at the cut dim a number of equal parts, or a list of
 * their sizes; its other entries mean nothing here.
 *
 * Only matrices are divided. What reads a divided tensor and cannot compute with a part of it, as
 * attention whose heads the rules have cut through, gets the whole (autograd/tensor_parallel.h).
 * Parameters with splits of their own are left alone.
 *
 * Source: deepspeed.module_inject.autotp_config, for the keys and their meaning.
 */
#ifndef SHOALI_AUTOTP_H
#define SHOALI_AUTOTP_H

#include "autograd/autograd.h"

struct json_t;

enum shoali_autotp_type {
    SHOALI_AUTOTP_COLUMN,
    SHOALI_AUTOTP_ROW,
    SHOALI_AUTOTP_VOCABULARY,
    SHOALI_AUTOTP_SKIP
};
struct shoali_autotp_rule {
    const char *pattern;
    enum shoali_autotp_type type;
    int32_t dim;        /* -1: the type's */
    int32_t part_count; /* equal parts, or with part[0] > 0 of these sizes; 0: one */
    int64_t part[SHOAL_SPLIT_PARTS];
};
struct shoali_autotp {
    struct shoali_autotp_rule *rule; /* first matches count */
    int32_t rule_count;
    void *compiled; /* regex_t [rule_count] */
    bool strict;
    struct shoali_arena arena;
};

/* Reads the two keys; either may be NULL. SHOAL_ECONFIG with a sentence that names the key. */
SHOAL_CHECKED shoal_status shoali_autotp_init(struct shoali_autotp *autotp,
                                              const char *preset_model,
                                              const struct json_t *partition_config);
void shoali_autotp_fini(struct shoali_autotp *autotp); /* zeros are fine */
/* Whether a rule matches a parameter's name. */
bool shoali_autotp_knows(const struct shoali_autotp *autotp, const char *name);
/* struct shoali_tagger's function: user is the autotp. */
SHOAL_CHECKED shoal_status shoali_autotp_tag(void *user, const char *name, shoal_param_spec *spec);

#endif
