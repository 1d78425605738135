/* In sections with a switch only the switch is refused, so that a section that is off may carry any
 * valid values, as published configurations do. */
#include "engine/config/rows.h"

static const char *const tag_validations[] = {"Warn", "Ignore", "Fail", NULL};
static const char *const tuning_metrics[] = {"throughput", "latency", "flops",
                                             "forward",    "step",    NULL};
static const char *const tuner_types[] = {"gridsearch", "random", "model_based", NULL};

static const struct shoali_option comms_logger_rows[] = {
    ROW(comms_logger, BOOL, enabled, 0,
        "Time collectives: rank 0 logs a table at the end of the training. The section alone does "
        "not "
        "turn it on.", ),
    ROW(comms_logger, BOOL, prof_all, 1, "All collectives, not only those in prof_ops.", ),
    ROW(comms_logger, STRINGS, prof_ops, 0, "Names of the collectives to time.", ),
    ROW(comms_logger, BOOL, verbose, 0, "Log each call.", ),
    ROW(comms_logger, BOOL, debug, 0, "With verbose, also where each call was made.", ),
    ROW(comms_logger, BOOL, show_straggler, 0,
        "Add a second table: the part of each operation spent waiting for the last rank "
        "(DeepSpeed: an argument of log_summary), and the bytes sent between hosts.", ),
};
const struct shoali_section shoali_comms_logger_section =
    SECTION(comms_logger, "comms_logger", comms_logger_rows, "Time and volume of collectives.", );

/* Keys that published files have and DeepSpeed does not read. */
#define UNREAD(key_)                                   \
    {                                                  \
        .key = #key_, .type = SHOALI_JSON, NOEFFECT,   \
        .help = "DeepSpeed reads no key of this name." \
    }

static const struct shoali_option flops_profiler_rows[] = {
    ROW(flops_profiler, BOOL, enabled, 0,
        "No report is written; shoal plan says the operations of a model.", IDLE),
    ROW(flops_profiler, FLOAT, recompute_fwd_factor, 0, "Forwards recomputed per backward.",
        .min = 0, .max = 1),
    ROW(flops_profiler, INT, profile_step, 1, "Step to report.", .min = -1, .max = NO_MAX),
    ROW(flops_profiler, INT, module_depth, -1, "Depth of the report; -1: all.", .min = -1,
        .max = NO_MAX),
    ROW(flops_profiler, INT, top_modules, 1, "Layers listed per depth.", .min = 1, .max = NO_MAX),
    ROW(flops_profiler, BOOL, detailed, 1, "Print the whole tree.", ),
    ROW(flops_profiler, STRING, output_file, 0, "File for the report.", ),
    {.key = "start_step", .type = SHOALI_JSON, NOEFFECT, .help = "Use profile_step."},
    {.key = "end_step", .type = SHOALI_JSON, NOEFFECT, .help = "Use profile_step."},
    UNREAD(step),
    UNREAD(warm_up),
    UNREAD(end_profile_step),
};
const struct shoali_section shoali_flops_profiler_section = SECTION(
    flops_profiler, "flops_profiler", flops_profiler_rows, "Operations and time per layer.", );

static const struct shoali_option throughput_rows[] = {
    ROW(throughput, BOOL, enabled, 1,
        "Samples per second and device memory with every line of steps_per_print, from the third "
        "step on.", ),
    ROW(throughput, BOOL, synchronized, 1, "A step always waits for the device once.", NOEFFECT),
};
static const struct shoali_section throughput_section =
    SECTION(throughput, "throughput", throughput_rows, "The throughput timer.", );
static const struct shoali_option timers_rows[] = {
    ROW(timers, SECTION, throughput, 0, "The throughput timer.", .section = &throughput_section),
};
const struct shoali_section shoali_timers_section =
    SECTION(timers, "timers", timers_rows, "Timers.", );

static const struct shoali_option parallel_write_rows[] = {
    ROW(parallel_write, BOOL, pipeline_stage, 0, "All ranks always write in parallel.", NOEFFECT),
};
static const struct shoali_section parallel_write_section =
    SECTION(parallel_write, "parallel_write", parallel_write_rows, "Ranks that write.", );
static const struct shoali_option writer_rows[] = {
    ROW(writer, STRING, type, 0, "There is one writer.", .default_text = "FAST", NOEFFECT),
    ROW(writer, BOOL, decoupled, 0,
        "Write while training goes on: a save returns at once. Also --async-save.", ),
    ROW(writer, INT, staging_buffer_size, 536870912,
        "With decoupled: memory of a rank for copies of data that training changes before it is "
        "written; an update waits when it is full. A rank allocates at most what it could need.",
        .min = 1, .max = NO_MAX, .unit = "bytes"),
    ROW(writer, INT, io_buffer_size, 67108864, "Shards are written directly to their place.",
        .unit = "bytes", NOEFFECT),
    ROW(writer, BOOL, io_buffer_double, 1, "Shards are written directly to their place.", NOEFFECT),
    ROW(writer, INT, io_multiplier, 1, "Shards are written directly to their place.", NOEFFECT),
    ROW(writer, BOOL, show_statistics, 0, "The speed of writing is not logged.", IDLE),
    ROW(writer, STRING, data_parallel, 0, "Every rank always writes its share.", NOEFFECT),
};
static const struct shoali_section writer_section =
    SECTION(writer, "writer", writer_rows, "How checkpoints are written.", );
static const struct shoali_option checkpoint_rows[] = {
    ROW(checkpoint, ENUM, tag_validation, 0, "Ranks must always agree on the tag.",
        .choices = tag_validations, NOEFFECT),
    ROW(checkpoint, BOOL, load_universal, 0, "Every checkpoint loads into any layout.", NOEFFECT),
    ROW(checkpoint, BOOL, use_node_local_storage, 0,
        "A checkpoint is one folder, which all hosts share.", IDLE),
    UNREAD(tag_validation_enabled),
    UNREAD(partition_activations),
    UNREAD(save_fp16_master_weights),
    UNREAD(save_optimizer_states),
    ROW(checkpoint, SECTION, parallel_write, 0, "Ranks that write.",
        .section = &parallel_write_section),
    ROW(checkpoint, BOOL, checkpoint_serialization, 1, "Files are always safetensors.", NOEFFECT),
    ROW(checkpoint, SECTION, writer, 0, "How checkpoints are written.", .section = &writer_section),
    ROW(checkpoint, INT, keep_last, 0,
        "After each save keep this many of the newest checkpoints and remove older ones; 0: remove "
        "none. Removes only folders named global_stepN, none of a later step than the save's, and "
        "not the one that `latest` names. Also --keep-last.",
        .min = 0, .max = NO_MAX),
    ROW(checkpoint, INT, keep_every, 0,
        "Keep also the checkpoints whose step is a multiple of this; with keep_last 0 these and "
        "the newest one. Also --save-retain-interval.",
        .min = 0, .max = NO_MAX, .unit = "steps"),
};
const struct shoali_section shoali_checkpoint_section =
    SECTION(checkpoint, "checkpoint", checkpoint_rows, "Checkpoints.", );

static const struct shoali_option autotuning_rows[] = {
    ROW(autotuning, BOOL, enabled, 0,
        "This run is an experiment: it measures its steps start_profile_step to end_profile_step, "
        "writes the result to metric_path, and stops. `shoal run --autotuning` starts such runs by "
        "itself.", ),
    ROW(autotuning, BOOL, fast, 1,
        "Try only stages of ZeRO and micro-batch sizes; false: then also buckets, overlap_comm and "
        "reduce_scatter.", ),
    ROW(autotuning, STRING, results_dir, 0,
        "Folder of results: a folder for each experiment, summary.txt, ds_config_optimal.json, "
        "cmd_optimal.txt.",
        .default_text = "autotuning_results", BY_RANK),
    ROW(autotuning, STRING, exps_dir, 0,
        "Folder of the configurations tried: a file for each experiment.",
        .default_text = "autotuning_exps", BY_RANK),
    ROW(autotuning, BOOL, overwrite, 1,
        "Repeat experiments that have results in these folders; false: reuse results that "
        "match.", ),
    ROW(autotuning, INT, start_profile_step, 3, "First step measured; a run's first is 1.",
        .min = 1, .max = NO_MAX),
    ROW(autotuning, INT, end_profile_step, 5, "Last step measured; the run stops after the next.",
        .min = 1, .max = NO_MAX),
    ROW(autotuning, ENUM, metric, 0,
        "Quantity to optimize. More is better: throughput (samples per second), flops (FLOP/s of a "
        "rank). Less is better: latency (time of a step), forward (of its forwards), step (of its "
        "update).",
        .choices = tuning_metrics),
    ROW(autotuning, STRING, metric_path, 0,
        "File where a run writes its numbers; without it autotuning_metric.json.", BY_RANK),
    ROW(autotuning, ENUM, tuner_type, 0,
        "Order of experiments: gridsearch: as listed; random: at random; model_based: the most "
        "promising first, by the times measured so far.",
        .choices = tuner_types),
    ROW(autotuning, INT, tuner_early_stopping, 5,
        "This many experiments in a row without an improvement end a search.", .min = 1,
        .max = NO_MAX),
    ROW(autotuning, INT, tuner_num_trials, 50, "Most experiments of a search.", .min = 1,
        .max = NO_MAX),
    ROW(autotuning, JSON, arg_mappings, 0,
        "Flags of the program that mean the same as a key of this file, and change with it: "
        "{\"train_micro_batch_size_per_gpu\": \"--batch\"}. The flags of shoal pretrain are "
        "known.", ),
    ROW(autotuning, INT, max_train_batch_size, 0,
        "Largest global batch where none is given; 0: any.", .min = 0, .max = NO_MAX),
    ROW(autotuning, INT, min_train_batch_size, 1, "Least global batch where none is given.",
        .min = 1, .max = NO_MAX),
    ROW(autotuning, INT, max_train_micro_batch_size_per_gpu, 1024, "Largest micro-batch.", .min = 1,
        .max = NO_MAX),
    ROW(autotuning, INT, min_train_micro_batch_size_per_gpu, 1, "Least micro-batch.", .min = 1,
        .max = NO_MAX),
    ROW(autotuning, INT, num_tuning_micro_batch_sizes, 3,
        "Micro-batch sizes tried around the best of 1, 2, 4, ...", .min = 0, .max = NO_MAX),
    ROW(autotuning, INT, mp_size, 1,
        "Ranks that share one model; of shoal pretrain the number comes from its flags.", .min = 1,
        .max = NO_MAX),
    ROW(autotuning, JSON, model_info, 0, "Each experiment first plans its own memory.", NOEFFECT),
    ROW(autotuning, STRING, model_info_path, 0, "Each experiment first plans its own memory.",
        NOEFFECT),
};
static shoal_status check_autotuning(void *config)
{
    const struct shoali_autotuning_config *own = config;
    if (own->start_profile_step > own->end_profile_step)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "end_profile_step %lld is before start_profile_step %lld: nothing would "
                          "be measured",
                          (long long)own->end_profile_step, (long long)own->start_profile_step);
    if (own->min_train_micro_batch_size_per_gpu > own->max_train_micro_batch_size_per_gpu)
        return SHOAL_FAIL(SHOAL_ECONFIG,
                          "min_train_micro_batch_size_per_gpu %lld is more than "
                          "max_train_micro_batch_size_per_gpu %lld",
                          (long long)own->min_train_micro_batch_size_per_gpu,
                          (long long)own->max_train_micro_batch_size_per_gpu);
    return SHOAL_OK;
}
const struct shoali_section shoali_autotuning_section =
    SECTION(autotuning, "autotuning", autotuning_rows, "Searching for a fast configuration.",
            .validate = check_autotuning);
