/* The model of --model, and its batch where no flags give another. */
#include "bench/bench.h"

shoal_status bench_model(const struct shoali_section *section, const struct bench_options *options,
                         int64_t *micro_batch)
{
    shoal_status status = SHOAL_OK;
    int64_t sequence;
    shoal_model_config *config = options->model_flags.config;
    shoal_model_config_bench_batch(config, micro_batch, &sequence);
    if (!model_flags_given(&options->model_flags, "seq-length"))
        SHOAL_TRY(status, shoal_model_config_set(config, "seq-length", (double)sequence), done);
    if (shoali_config_given(section, options, "micro-batch"))
        *micro_batch = options->micro_batch;
done:
    return status;
}
