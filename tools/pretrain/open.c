/* The data that a rank reads, by its place in the mesh. The first pipeline stage opens the data for
 * inputs, the last one for targets. Other stages receive the facts that they need and open no file,
 * unless their layers read samples too.
 *
 * Tensor-parallel ranks of one data rank each read the same samples. A broadcast from the first of
 * them would be on the critical path of every micro-batch, overlapped with nothing. Reading runs in
 * the prefetch thread, from one page cache where the ranks share a machine. */
#include "pretrain/pretrain.h"

shoal_status pretrain_open_mesh(struct pretrain *run)
{
    shoal_status status;
    const struct mesh_flags *flags = &run->options.mesh;
    SHOAL_TRY(status, mesh_flags_open(flags, run->group, 1, 0, &run->mesh), done);
    if (pretrain_is_first(run))
        mesh_flags_say(flags, "shoal pretrain");
    const int32_t stages = shoal_mesh_size(run->mesh, SHOAL_AXIS_PP);
    const int32_t stage =
        shoal_mesh_coordinate(run->mesh, SHOAL_AXIS_PP, shoal_mesh_rank(run->mesh));
    /* of masked samples every layer asks for the lengths */
    run->all_read = stages <= 2 || pretrain_samples(&run->options) != SHOAL_SAMPLE_NEXT_TOKEN;
    run->reads = run->all_read || stage == 0 || stage == stages - 1;
done:
    return status;
}

/* From rank 0, which is on the first stage. */
static shoal_status tell(struct pretrain *run, void *facts, int64_t count)
{
    if (run->all_read)
        return SHOAL_OK;
    return shoal_broadcast(run->group, facts, count, SHOAL_I64, 0, NULL);
}

/* A part without a single sample gives no validation. Where somebody asked for one, that is an
 * error; where --split leaves the part out, or only --eval-iters speaks of it, it is said. */
static shoal_status decide_validation(struct pretrain *run, int64_t tokens)
{
    const struct pretrain_options *options = &run->options;
    const bool left_out = tokens == 0 && options->split;
    run->validates = options->full_validation || options->eval_iters > 0;
    if (!run->validates || tokens > options->seq_length)
        return SHOAL_OK;
    run->validates = false;
    if (pretrain_asks_validation(options) && !left_out)
        return SHOAL_FAIL(
            SHOAL_EINVAL,
            "the validation part has %lld tokens, and a sample of --seq-length %lld needs %lld: "
            "give more data, another --split, a shorter --seq-length, or --eval-iters 0",
            (long long)tokens, (long long)options->seq_length, (long long)options->seq_length + 1);
    run->too_few = true;
    run->valid_tokens = tokens;
    return SHOAL_OK;
}

/* When nothing else can be wrong with the data. */
static void say_unused(const struct pretrain *run)
{
    if (!pretrain_is_first(run))
        return;
    if (run->too_few)
        fprintf(stderr,
                "shoal pretrain: no validation: the validation part has %lld tokens, and a sample "
                "needs %lld\n",
                (long long)run->valid_tokens, (long long)run->options.seq_length + 1);
    if (run->options.data.split_path[SHOAL_SPLIT_TEST].count)
        fprintf(stderr, "shoal pretrain: no loss is computed on the data of --test-data-path: only "
                        "training and validation parts are used\n");
}

shoal_status pretrain_open_data(struct pretrain *run)
{
    shoal_status status;
    int64_t facts[2] = {0, 0}; /* kinds of tokens, those of the validation part */
    if (run->reads) {
        SHOAL_TRY(status,
                  pretrain_choose_tokenizer(&run->options, pretrain_is_first(run), &run->tokenizer),
                  done);
        const shoal_dataset_args data = pretrain_data_args(&run->options, &run->tokenizer);
        SHOAL_TRY(status, shoal_dataset_create(&data, &run->dataset), done);
        facts[0] = shoal_dataset_vocab_size(run->dataset);
        facts[1] = shoal_dataset_token_count(run->dataset, SHOAL_SPLIT_VALID);
    }
    SHOAL_TRY(status, tell(run, facts, 2), done);
    run->vocab_size = facts[0];
    SHOAL_TRY(status, pretrain_stored_check(run), done);
    SHOAL_TRY(status, decide_validation(run, facts[1]), done);
done:
    return status;
}

shoal_status pretrain_open_loaders(struct pretrain *run)
{
    shoal_status status = SHOAL_OK;
    const struct pretrain_options *options = &run->options;
    shoal_loader_args args = {.dataset = run->dataset,
                              .seq_length = options->seq_length,
                              .micro_batch = run->micro_batch,
                              .micro_batches = run->micro_per_step,
                              .seed = (uint64_t)options->shared.seed};
    run->valid_steps = options->eval_iters;
    if (run->reads) {
        pretrain_loader_args(options, SHOAL_SPLIT_TRAIN, &args);
        pretrain_order_args(run, SHOAL_SPLIT_TRAIN, &args);
        SHOAL_TRY(status, shoal_loader_create(&args, &run->train), done);
        SHOAL_TRY(status, pretrain_make_batch(run), done);
    }
    if (run->reads && run->validates) {
        pretrain_loader_args(options, SHOAL_SPLIT_VALID, &args);
        pretrain_order_args(run, SHOAL_SPLIT_VALID, &args);
        SHOAL_TRY(status, shoal_loader_create(&args, &run->valid), done);
        if (options->full_validation)
            run->valid_steps = shoal_loader_step_count(run->valid);
    }
    if (options->full_validation)
        SHOAL_TRY(status, tell(run, &run->valid_steps, 1), done);
    say_unused(run);
done:
    return status;
}

int64_t pretrain_data_bytes(const struct pretrain *run)
{
    return run->dataset ? shoal_dataset_host_bytes(run->dataset) : 0;
}
