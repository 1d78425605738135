/* engine.h - trains a model with DeepSpeed's semantics; one engine per rank.
 *
 *   shoal_engine_create(&(shoal_engine_args){.model = &model, .config_path = "ds_config.json",
 *                                            .group = world}, &engine);
 *   for each micro-batch:
 *       shoal_engine_forward(engine, &batch, &loss);
 *       shoal_engine_backward(engine);
 *       shoal_engine_step(engine);      updates at every gas-th call, else counts
 *   or, one call per optimizer step:
 *       shoal_engine_train_batch(engine, next_batch, user, &result);
 *
 * Terms
 *   gas          gradient_accumulation_steps: micro-batches of a data-parallel rank in one step.
 *   micro-batch  train_micro_batch_size_per_gpu samples. Micro-batches are numbered globally: a
 *                step has M = gas * N of them, for N data-parallel ranks.
 *                shoal_engine_get_micro_range returns the numbers that a rank computes.
 *   boundary     a call of shoal_engine_step that updates the weights.
 *
 * Invariants
 * - All functions are collective over the engine's group and block, unless they say otherwise.
 * - The caller owns the main loop. The engine never exits, and it prints only through the log sink.
 * - With "reduction": "exact" the bits of the weights do not depend on N.
 */
#ifndef SHOAL_ENGINE_H
#define SHOAL_ENGINE_H

#include "shoal/autograd.h"
#include "shoal/comm.h"
#include "shoal/mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal_engine shoal_engine;

typedef struct shoal_engine_args {
    const shoal_model *model; /* borrowed until destroy */
    const char *config_path;  /* ds_config.json */
    /* Or the text of a configuration. If both are given, the text was made from the file and from
     * flags: the text counts, and errors name the file's lines. */
    const char *config_text;
    shoal_group *group; /* NULL: one rank (no communication); borrowed until destroy */
    /* Which ranks divide what; NULL: all ranks of `group` divide the samples. With a mesh `group`
     * may be NULL. Borrowed until destroy. */
    shoal_mesh *mesh;
    uint64_t seed; /* of init and dropout; 0: the key "seed" (default 1234) */
    /* 0: the key "threads", else SHOAL_NUM_THREADS, else cores of this machine / local ranks. */
    int32_t threads;
    const char *accelerator; /* NULL: SHOAL_ACCELERATOR, DS_ACCELERATOR, detection */
    const char *ops;         /* NULL: SHOAL_OPS, detection */
    /* Layers or named scopes that drop their activations and recompute them in backward, with the
     * same bits (Megatron's flags of these names). "full" or "selective". NULL: keep everything,
     * unless the key activation_checkpointing.number_checkpoints is set. */
    const char *recompute_granularity, *recompute_method; /* method: "uniform" (NULL) or "block" */
    int64_t recompute_num_layers; /* uniform: layers of a chunk (0: 1); block: how many layers */
    const char *const *recompute_modules; /* NULL-terminated, borrowed until destroy; NULL: none */
    bool inference;                       /* no gradients, no optimizer */
    const char *output_path; /* folder of hashes.jsonl (key "hashes"); NULL: the current folder */
    /* The engine will save checkpoints. The memory for saves is then allocated, and planned, with
     * the engine; otherwise at each save. */
    bool saves;
    /* A save may replace a checkpoint of a later step, and may move `latest` back to its own
     * step. */
    bool override_existing_checkpoint;
    /* Weights start as zeros instead of their initial values. Set it if you load weights right
     * after creation. */
    bool blank_weights;
    /* The members below are for the axes tp and pp of the mesh. An axis of one rank ignores
     * them. */
    /* Outside the matrices that tp partitions, each rank computes only its shard of the
     * sequence. */
    bool sequence_parallel;
    /* Sums input gradients over tp before the weight gradient is computed, without overlap. */
    bool no_async_tensor_parallel;
    /* "gpipe", "1f1b", "interleaved", "zb-h1". NULL: 1f1b, or interleaved with virtual stages. */
    const char *pipeline_schedule;
    int32_t virtual_stages;    /* chunks of layers on each stage; 0: 1 */
    int32_t micro_batch_group; /* interleaved: micro-batches of a chunk in sequence; 0: stages */
    /* "uniform", "parameters", "flops", "type:REGEX", "even", "layout:TEXT"; NULL: the key
     * pipeline.partition_method, else "flops". */
    const char *partition_method;
    int32_t first_stage_layers, last_stage_layers; /* of "even"; 0: as many as the other stages */
    bool account_for_embedding, account_for_loss;  /* of "even": they count as a layer */
    /* The computing thread sends and receives the pipeline's messages itself, without overlap,
     * whatever pipeline.overlap_p2p says. */
    bool no_overlap_p2p;
} shoal_engine_args;

/* Reads the configuration, places and initialises the model, and plans the activation memory.
 * *engine is owned by the caller. SHOAL_ECONFIG and SHOAL_EINVAL name the key or the argument.
 * SHOAL_ENOMEM. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_create(const shoal_engine_args *args,
                                                         shoal_engine **engine);
/* Destroys the engine. Waits for the other ranks if the engine made groups of its own
 * (overlap_comm, MiCS, hpZ), unless the group is aborted. A rank that fails alone calls
 * shoal_comm_abort first. NULL is fine. */
SHOAL_API void shoal_engine_destroy(shoal_engine *engine);

/* One micro-batch: host arrays in the order of the model's input specs, each samples * sample
 * shape. Borrowed for the call. */
typedef struct shoal_batch {
    const void **data; /* as many as the model has inputs */
    int64_t samples;   /* 0: train_micro_batch_size_per_gpu */
} shoal_batch;

/* shoal_engine_forward, shoal_engine_backward and shoal_engine_step do not support pipelines
 * (SHOAL_EUNSUPPORTED): stages work on several micro-batches at once. Use shoal_engine_train_batch
 * and shoal_engine_eval_batch there. */
/* Runs the model forward. *loss is a device scalar, borrowed until backward.
 * shoal_tensor_get_scalar reads it (synchronises). The next forward, an evaluation and a checkpoint
 * discard a forward that had no backward. Returns the errors of the model's ops. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_forward(shoal_engine *engine,
                                                          const shoal_batch *batch,
                                                          shoal_tensor **loss);
/* Runs backward for the last forward, with loss scaling. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_backward(shoal_engine *engine);
/* At a boundary: reduces gradients, clips, updates, and advances the schedule. Otherwise counts the
 * micro-batch. SHOAL_SKIPPED: overflow; only the loss scale changed. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_step(shoal_engine *engine);
/* Returns whether the next shoal_engine_step updates. Not collective. */
SHOAL_API bool shoal_engine_is_gradient_accumulation_boundary(const shoal_engine *engine);

/* The last step. `loss` is the mean over the global batch, the same on every rank. */
typedef struct shoal_step_info {
    int64_t step;          /* 0-based index of the last step */
    int64_t skipped_steps; /* of all steps so far */
    double loss, grad_norm, lr, loss_scale;
    bool applied;                                                  /* false: skipped */
    double step_ms, forward_ms, backward_ms, reduce_ms, update_ms; /* on this rank */
    int64_t train_batch_size; /* samples of this step, over all ranks */
    int64_t consumed_samples; /* samples of all steps so far, this one included */
} shoal_step_info;

/* Fills *batch for global micro-batch `micro` of step `step`: sets batch->data[i] for each input of
 * the model. Arrays must stay valid until the next call. In a pipeline only stages that read the
 * batch call it: the first, the last, and each stage whose layers read an input of the model. */
typedef shoal_status (*shoal_batch_source)(void *user, int64_t step, int64_t micro,
                                           shoal_batch *batch);
/* Returns the global numbers of the micro-batches that train_batch requests from this rank's source
 * in each step: [*first, *first + *count). Not collective. */
SHOAL_API void shoal_engine_get_micro_range(const shoal_engine *engine, int64_t *first,
                                            int64_t *count);
/* Sets the samples per step, from the next step on (DeepSpeed's name). The micro-batch stays; the
 * accumulation steps and shoal_engine_get_micro_range change. The maximum is the batch that the
 * engine was created with. Every rank gives the same number, between steps. Means are over the
 * batch of their step. Megatron's schedules count samples, DeepSpeed's schedules count steps. Not
 * collective. SHOAL_EINVAL: too large, or no multiple of micro-batch times data-parallel ranks. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_set_train_batch_size(shoal_engine *engine,
                                                                       int64_t samples);
/* Returns the samples of all steps so far; checkpoints store it. With a constant batch it is steps
 * times train_batch_size. Not collective. */
SHOAL_API int64_t shoal_engine_consumed_samples(const shoal_engine *engine);
/* Runs gas micro-batches forward and backward, then updates. SHOAL_SKIPPED: overflow. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_train_batch(shoal_engine *engine,
                                                              shoal_batch_source source, void *user,
                                                              shoal_step_info *info);
/* Computes the mean loss over `micro_batches` global evaluation micro-batches, distributed over the
 * ranks. Each is weighted by its number of valid targets. The bits are the same for any N. No
 * dropout. The source gets -1 as `step`. SHOAL_SKIPPED on all ranks, with a loss of NaN: any rank
 * has called shoal_engine_request_stop since the last step. shoal_engine_stop_requested is true
 * then, and a further call evaluates. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_eval_batch(shoal_engine *engine,
                                                             shoal_batch_source source, void *user,
                                                             int64_t micro_batches, double *loss);

/* Formats the table of `comms_logger`, as DeepSpeed's log_summary: a row per collective and message
 * size, of all calls of this rank. With `show_straggler` there is a second table, and with several
 * hosts the bytes that all ranks have sent to other hosts. Collective with `show_straggler`,
 * otherwise not. *text is owned by the caller: free(). It is NULL if the section is not enabled. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_format_comms(shoal_engine *engine, char **text);

/* Fills *info for the last step. Not collective. */
SHOAL_API void shoal_engine_get_step_info(const shoal_engine *engine, shoal_step_info *info);
/* Returns the number of optimizer steps, skipped ones included. Not collective. */
SHOAL_API int64_t shoal_engine_global_steps(const shoal_engine *engine);
/* Returns sizes in samples, samples and micro-batches of a rank. Each pointer may be NULL. Not
 * collective. */
SHOAL_API void shoal_engine_get_batch_info(const shoal_engine *engine, int64_t *train_batch_size,
                                           int64_t *micro_batch_size,
                                           int64_t *gradient_accumulation_steps);
/* Returns the type in which weights and activations are computed. Not collective. */
SHOAL_API shoal_dtype shoal_engine_dtype(const shoal_engine *engine);
/* Returns the number of elements of all parameters, tied ones once. Not collective. */
SHOAL_API int64_t shoal_engine_param_count(const shoal_engine *engine);
/* Memory of this rank in bytes by kind, from counters. Not collective. */
typedef struct shoal_memory_info {
    int64_t weights_bytes, gradients_bytes, states_bytes, activations_bytes, buffers_bytes;
    int64_t device_peak_bytes, arena_growths, device_alloc_count, host_sync_count;
    int64_t packed_weights_bytes; /* weights in the layout that products read */
    int64_t master_bytes;         /* fp32 copies of 16-bit weights: a part of states_bytes */
    int64_t host_peak_bytes;      /* pinned host memory */
    int64_t comm_bytes;           /* a rank's share of the groups' communication buffers */
    int64_t offload_host_bytes, offload_nvme_bytes; /* outside the device, see offload_optimizer */
    int64_t offload_pinned_bytes; /* of offload_host_bytes: also a part of host_peak_bytes */
    /* Bytes of masters and states that were read from and written to the drive by this engine. */
    int64_t offload_read_bytes, offload_written_bytes;
    int64_t activations_host_bytes; /* cpu_checkpointing: a part of host_peak_bytes */
    int64_t checkpoint_bytes;       /* host memory for saves (`saves`) */
    int64_t workspace_bytes;        /* host memory that kernels use, of all threads */
    int64_t device_workspace_bytes; /* device memory that kernels use: a part of the peak */
} shoal_memory_info;
SHOAL_API void shoal_engine_get_memory_info(const shoal_engine *engine, shoal_memory_info *info);
/* Asks every rank to stop at the next step boundary, or within an evaluation. Not collective; safe
 * in a signal handler. */
SHOAL_API void shoal_engine_request_stop(shoal_engine *engine);
/* Returns true on all ranks of the group after any rank has asked. The step's scalars carry the
 * request; an evaluation compares it every few seconds. Not collective. */
SHOAL_API bool shoal_engine_stop_requested(const shoal_engine *engine);
/* Return rank and size of the engine's group. Not collective. */
SHOAL_API int32_t shoal_engine_rank(const shoal_engine *engine);
SHOAL_API int32_t shoal_engine_world_size(const shoal_engine *engine);

/* Copy a full parameter, or its gradient of the last step, as fp32 to `out` on every rank (tests,
 * tools). `out` is host memory for shoal_param_count elements: the whole parameter, whichever
 * shards the ranks hold. A 16-bit engine for inference has no masters and returns the rounded
 * weights. Cost: a gather. SHOAL_EINVAL: there is no parameter of this name. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_param(shoal_engine *engine, const char *name,
                                                            float *out);
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_gradient(shoal_engine *engine,
                                                               const char *name, float *out);
/* Copies an optimizer state of the parameter. `state` is its name in checkpoints ("exp_avg",
 * "exp_avg_sq", "momentum_buffer"). `out` has as many numbers as the parameter has elements. A
 * state per row or column ("exp_avg_sq_row", "exp_avg_sq_col" of Adafactor) has as many numbers as
 * there are rows or columns. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_get_state(shoal_engine *engine, const char *name,
                                                            const char *state, float *out);
/* Sets a whole parameter. Every rank passes the same values and stores its shard. Optimizer states
 * do not change. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_set_param(shoal_engine *engine, const char *name,
                                                            const float *values);
/* Returns the name of the index-th parameter in canonical order; NULL beyond the last. Borrowed
 * until destroy. Not collective. */
SHOAL_API const char *shoal_engine_param_name(const shoal_engine *engine, int32_t index);
/* Describes in one line which parameters weight decay applies to; the same on every layout. Returns
 * `text`. A line longer than `bytes` is truncated. "" for inference. Not collective. */
SHOAL_API const char *shoal_engine_describe_weight_decay(const shoal_engine *engine, char *text,
                                                         size_t bytes);
/* Describes the mesh: its sizes and the order of its ranks. For a pipeline also each stage's layers
 * and parameters, the schedule and its idle time. *text consists of lines, each with its newline;
 * "" if all ranks only divide the samples. It is the same on every rank and is owned by the caller:
 * free(). Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_describe_mesh(const shoal_engine *engine,
                                                                char **text);
/* Computes a 64-bit fingerprint of weights (masters) and optimizer states. It does not depend on
 * the layout. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_fingerprint(shoal_engine *engine, uint64_t *hash);

/* Writes DIR/TAG, in the format of docs/CHECKPOINT-FORMAT.md. tag NULL: "global_stepN".
 * client_json: text that the manifest stores (tokenizer, model flags, ...); may be NULL. Only at a
 * step boundary. Waits while another job saves in DIR. SHOAL_EEXIST: DIR/TAG or DIR/latest is of a
 * later step than this engine, and nothing was written. A new TAG is always written, and `latest`
 * then stays. override_existing_checkpoint permits both. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_save_checkpoint(shoal_engine *engine,
                                                                  const char *dir, const char *tag,
                                                                  const char *client_json);
/* With the key checkpoint.writer.decoupled (DeepSpeed; --async-save of Megatron) a save returns at
 * once and runs concurrently with training. Training first copies what it changes before it is
 * written. These copies take planned memory (writer.staging_buffer_size). The files have the bits
 * of the step at which the save was called. The next save, a load and the end wait for it. If it
 * fails, all ranks get its status from the next step or from the first of these waits. `latest`
 * moves when the save is complete. */
typedef struct shoal_save_info {
    int64_t step;                             /* of the last complete save; -1: none yet */
    double seconds;                           /* from the call to the end of the save */
    double stall_ms;                          /* time that training on this rank waited for it */
    bool at_work;                             /* a save is running */
    int64_t at_work_step;                     /* step of the running save */
    int64_t staging_bytes, most_staged_bytes; /* limit of the copies, and their maximum so far */
    int64_t waits; /* blocks that an update waited for, for lack of room */
} shoal_save_info;
/* Fills *info. Not collective. */
SHOAL_API void shoal_engine_get_save_info(const shoal_engine *engine, shoal_save_info *info);
/* Waits for the running save, if there is one, and returns its status. Each rank waits for its own
 * files. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_wait_save(shoal_engine *engine);
/* Asks all ranks to save after the next step. shoal_engine_save_requested returns it, the same on
 * all ranks, until a save begins; the caller then saves. Not collective; safe in a signal
 * handler. */
SHOAL_API void shoal_engine_request_save(shoal_engine *engine);
SHOAL_API bool shoal_engine_save_requested(const shoal_engine *engine);
/* Checks before the first step whether saves in DIR can succeed. Creates DIR, writes and removes a
 * file there, and removes leftover files of failed saves. Compares free space and the limit of file
 * sizes with the size of a checkpoint. SHOAL_EEXIST: DIR holds a later step than this engine's.
 * ignore_space: lack of space is only a warning. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_check_save(shoal_engine *engine, const char *dir,
                                                             bool ignore_space);
/* Loads DIR/TAG; tag NULL: DIR/latest. weights_only: no optimizer states, step 0. DIR may also hold
 * a checkpoint of DeepSpeed, of ZeRO stages 0 to 3 or universal. Weights, optimizer states, steps
 * and loss scale are then loaded, and *client_json is NULL. *client_json (optional) is owned by the
 * caller: free(). SHOAL_ENOENT: there is no checkpoint; no other failure has this status. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load_checkpoint(shoal_engine *engine,
                                                                  const char *dir, const char *tag,
                                                                  bool weights_only,
                                                                  char **client_json);
/* Which parts of a checkpoint are loaded, and how strictly. */
typedef struct shoal_load_args {
    const char *dir, *tag; /* tag NULL: DIR/latest */
    bool module_only;      /* weights alone; step 0 (DeepSpeed's load_module_only, --finetune) */
    /* Loads weights and the step, so that data continues where it was. Optimizer states, schedule
     * and loss scale start from their initial values (load_optimizer_states=False,
     * --no-load-optim). */
    bool no_optimizer_states;
    /* Tensors that are missing in the checkpoint keep their values. Tensors that are missing in the
     * model are not read. A log line lists both. Different shapes are an error in any case
     * (load_module_strict=False). */
    bool not_strict;
} shoal_load_args;
/* Loads as shoal_engine_load_checkpoint does. Reads only the requested kinds of tensors.
 * SHOAL_EINVAL: the optimizer states are those of another optimizer, and no_optimizer_states is not
 * set. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load(shoal_engine *engine,
                                                       const shoal_load_args *args,
                                                       char **client_json);
/* Weights of a folder in the layout of the Hugging Face Hub, in F32, BF16 or F16:
 * model.safetensors, or several files and model.safetensors.index.json. */
typedef struct shoal_load_weights_args {
    const char *path; /* the folder */
    /* A tensor with this many rows in the files may have more rows in the engine. The additional
     * rows become zeros (padding of a vocabulary). 0: none. */
    int64_t vocab_rows;
    bool not_strict; /* as in shoal_load_args; else SHOAL_EINVAL lists the mismatches */
} shoal_load_weights_args;
/* Loads the weights by name, at a step boundary (docs/HUGGING-FACE.md has the rules). Optimizer
 * states do not change. Every rank reads its shards, through 32 MiB of memory. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_load_weights(shoal_engine *engine,
                                                               const shoal_load_weights_args *args);
/* Adds a file to the folder of each later checkpoint of this engine, e.g. config.json or
 * tokenizer.json for other programs. `name` has no folder; a second file of a name replaces the
 * first. The bytes are copied. Only rank 0's files are written. Not collective. SHOAL_EINVAL: a
 * checkpoint needs this name itself. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_engine_add_file(shoal_engine *engine, const char *name,
                                                           const void *data, size_t bytes);
/* Reads only the client JSON and the step of a checkpoint. Statuses as for
 * shoal_engine_load_checkpoint. Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_peek(const char *dir, const char *tag,
                                                           char **client_json, int64_t *step);

/* Returns the folder DIR/TAG of a checkpoint (tag NULL: the latest), owned by the caller: free().
 * Statuses as for shoal_engine_load_checkpoint. Not collective. */
SHOAL_API SHOAL_CHECKED shoal_status shoal_checkpoint_find(const char *dir, const char *tag,
                                                           char **folder);

#ifdef __cplusplus
}
#endif
#endif
