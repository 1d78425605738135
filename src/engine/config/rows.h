/* config_rows - short forms of table rows for this folder's configuration files.
 *
 * ROW(struct tag, TYPE, member, default number, help, more initialisers...) describes member
 * `member` of struct shoali_TAG_config under the key of the same name; ROW_AS names the key.
 * SECTION(TAG, key, rows, help, more...) makes the section of a struct that has a `given` member.
 */
#ifndef SHOALI_ENGINE_CONFIG_ROWS_H
#define SHOALI_ENGINE_CONFIG_ROWS_H

#include "engine/config/config.h"

#include <math.h>

#define NO_MAX ((double)INFINITY) /* with a minimum alone */

#define ROW_AS(key_, tag, type_, member, default_, help_, ...)                                \
    {                                                                                         \
        .key = key_, .type = SHOALI_##type_,                                                  \
        .offset = offsetof(struct shoali_##tag##_config, member), .default_number = default_, \
        .help = help_, __VA_ARGS__                                                            \
    }
#define ROW(tag, type_, member, default_, help_, ...) \
    ROW_AS(#member, tag, type_, member, default_, help_, __VA_ARGS__)
#define SECTION(tag, name_, rows_, help_, ...)                                     \
    {                                                                              \
        .name = name_, .help = help_, .rows = rows_,                               \
        .row_count = (int32_t)(sizeof(rows_) / sizeof((rows_)[0])),                \
        .struct_bytes = sizeof(struct shoali_##tag##_config),                      \
        .given_offset = offsetof(struct shoali_##tag##_config, given), __VA_ARGS__ \
    }

#define PENDING .state = SHOALI_PENDING
#define DEAD .state = SHOALI_DEAD
#define NOEFFECT .state = SHOALI_NOEFFECT
#define RENAMED .state = SHOALI_RENAMED
#define IDLE .state = SHOALI_IDLE
#define BY_RANK .flags = SHOALI_OPTION_BY_RANK
#define TRAINING .flags = SHOALI_OPTION_TRAINING

/* config_zero.c */
extern const struct shoali_section shoali_zero_section, shoali_aio_section;
/* config_features.c */
extern const struct shoali_section shoali_bf16_section, shoali_data_types_section,
    shoali_torch_autocast_section, shoali_activation_checkpointing_section, shoali_pipeline_section,
    shoali_tensor_parallel_section, shoali_expert_parallel_section, shoali_compile_section,
    shoali_hybrid_engine_section, shoali_layer_drop_section, shoali_curriculum_section,
    shoali_data_efficiency_section, shoali_weight_quantization_section;
/* config_tools.c */
extern const struct shoali_section shoali_comms_logger_section, shoali_flops_profiler_section,
    shoali_timers_section, shoali_checkpoint_section;

#endif
