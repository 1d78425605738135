/* decoder.c - new tokens of some sequences through the layers. */
#include "inference/inference.h"

#include <string.h>

/* ---- one pass ------------------------------------------------------------------------------- */

/* What goes through the layers at once. */
struct pass {
    int64_t rows, asked;
    int32_t segments;
};

static shoal_status run_layers(struct shoali_decoder *decoder, struct shoal_tape *tape,
                               const struct pass *pass, shoal_boundary *boundary)
{
    shoal_status status;
    const struct shoali_module *module = &decoder->engine->module;
    const struct shoali_generation generation = {decoder->cache, decoder->segment, pass->segments};
    const bool meta = shoali_tape_is_meta(tape);
    const shoal_shape tokens = shoal_shape_2(1, pass->rows), asked = shoal_shape_1(pass->asked);
    struct shoal_tensor *inputs[2];
    *boundary = (shoal_boundary){0};
    SHOAL_TRY(status,
              shoali_tape_begin(tape, &(struct shoali_tape_begin){.generation = &generation}),
              done);
    inputs[0] =
        shoali_tape_add_input(tape, SHOAL_I32, &tokens, meta ? NULL : decoder->tokens, false);
    inputs[1] = shoali_tape_add_input(tape, SHOAL_I32, &asked, meta ? NULL : decoder->asked, false);
    shoali_tape_set_batch(tape, inputs, 2);
    SHOAL_TRY(status, shoali_tape_forward_layers(tape, module, 0, module->layer_count, boundary),
              done);
    if (boundary->count == 1)
        boundary->tensor[0] = shoali_tensor_gather_columns(tape, boundary->tensor[0]);
    SHOAL_TRY(status, shoali_tape_status(tape), done);
    const struct shoal_tensor *logits = boundary->tensor[0];
    if (boundary->count != 1 || logits->shape.ndim != 2 || logits->shape.dim[0] != pass->asked)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "the last layer of model `%s` produced no logits: when "
                            "shoal_tape_generating is true, it must produce [n, vocabulary] for "
                            "shoal_generation_rows",
                            decoder->engine->model->name);
done:
    return status;
}

/* Logits as fp32 on the host. */
static shoal_status read_logits(const struct shoali_decoder *decoder, const shoal_tensor *tensor,
                                float *logits)
{
    shoal_status status;
    const int64_t count = shoal_shape_count(&tensor->shape);
    void *out = decoder->low != NULL ? (void *)decoder->low : logits;
    SHOAL_TRY(status, shoal_tensor_read(tensor, 0, count, out), done);
    for (int64_t i = 0; decoder->low != NULL && i < count; i++)
        logits[i] = tensor->dtype == SHOAL_BF16 ? shoali_bf16_to_f32(decoder->low[i])
                                                : shoali_f16_to_f32(decoder->low[i]);
done:
    return status;
}

static shoal_status run_pass(struct shoali_decoder *decoder, const struct pass *pass, float *logits)
{
    shoal_status status;
    shoal_boundary boundary;
    SHOAL_TRY(status, run_layers(decoder, decoder->tape, pass, &boundary), done);
    if (logits != NULL && pass->asked > 0)
        SHOAL_TRY(status, read_logits(decoder, boundary.tensor[0], logits), done);
    SHOAL_TRY(status, shoali_tape_check_ids(decoder->tape), done);
    for (int32_t i = 0; i < pass->segments; i++)
        decoder->length[decoder->segment[i].sequence] += decoder->segment[i].rows;
done:
    shoali_tape_end(decoder->tape);
    return status;
}

/* ---- cutting a call into passes ------------------------------------------------------------- */

static shoal_status check_inputs(struct shoali_decoder *decoder,
                                 const shoal_generator_input *inputs, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const shoal_generator_input *input = &inputs[i];
        if (input->sequence < 0 || input->sequence >= decoder->sequences)
            return SHOAL_FAIL(SHOAL_EINVAL, "there is no sequence %d: give 0 to %d",
                              (int)input->sequence, (int)decoder->sequences - 1);
        for (int32_t j = 0; j < i; j++)
            if (inputs[j].sequence == input->sequence)
                return SHOAL_FAIL(SHOAL_EINVAL,
                                  "sequence %d appears twice in one call: give "
                                  "each sequence once",
                                  (int)input->sequence);
        if (input->count < 1)
            return SHOAL_FAIL(SHOAL_EINVAL, "sequence %d has %lld new tokens: give at least one",
                              (int)input->sequence, (long long)input->count);
        const int64_t length = decoder->length[input->sequence];
        if (input->count > decoder->positions - length)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "sequence %d has %lld tokens, and %lld more exceed its maximum of "
                              "%lld: truncate it, or give a larger max_length",
                              (int)input->sequence, (long long)length, (long long)input->count,
                              (long long)decoder->positions);
        if (length > 0 && decoder->applied_steps != decoder->engine->step.applied_steps)
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "sequence %d was started with older weights: truncate it to 0 and "
                              "give its text again",
                              (int)input->sequence);
    }
    return SHOAL_OK;
}

/* Adds tokens of `input` from `*done` on while there is room. */
static void fill_pass(struct shoali_decoder *decoder, struct pass *pass,
                      const shoal_generator_input *input, bool all, int64_t *done)
{
    const int64_t length = decoder->length[input->sequence];
    int64_t rows = input->count - *done;
    if (rows > decoder->pass_rows - pass->rows)
        rows = decoder->pass_rows - pass->rows;
    if (all && rows > decoder->pass_asked - pass->asked)
        rows = decoder->pass_asked - pass->asked;
    decoder->segment[pass->segments++] =
        (struct shoali_kv_segment){input->sequence, pass->rows, rows, length};
    memcpy(decoder->tokens + pass->rows, input->tokens + *done, (size_t)rows * sizeof(int32_t));
    *done += rows;
    for (int64_t r = 0; r < rows; r++)
        if (all || (*done == input->count && r == rows - 1))
            decoder->asked[pass->asked++] = (int32_t)(pass->rows + r);
    pass->rows += rows;
}

shoal_status shoali_decoder_forward(struct shoali_decoder *decoder,
                                    const shoal_generator_input *inputs, int32_t count, bool all,
                                    float *logits)
{
    shoal_status status;
    SHOAL_TRY(status, shoali_engine_between_steps(decoder->engine, "generation"), done);
    SHOAL_TRY(status, check_inputs(decoder, inputs, count), done);
    decoder->applied_steps = decoder->engine->step.applied_steps;
    int64_t begun = 0; /* tokens of input `at` that are done */
    for (int32_t at = 0; at < count;) {
        struct pass pass = {0};
        while (at < count && pass.rows < decoder->pass_rows && pass.asked < decoder->pass_asked) {
            fill_pass(decoder, &pass, &inputs[at], all, &begun);
            if (begun < inputs[at].count)
                break;
            at++;
            begun = 0;
        }
        SHOAL_TRY(status, run_pass(decoder, &pass, logits), done);
        if (logits != NULL)
            logits += pass.asked * decoder->vocab;
    }
done:
    return status;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* The largest pass without memory: entries of the cache, bytes of the slot, size of the vocabulary.
 */
static shoal_status measure(struct shoali_decoder *decoder, struct shoali_tape_args *args,
                            size_t *bytes)
{
    shoal_status status;
    shoal_boundary boundary;
    struct shoal_tape *tape = NULL;
    struct shoali_slot *slot = NULL;
    struct shoali_tape_args meta = *args;
    meta.exec.stream = NULL;
    meta.observer_count = 0;
    /* Memory depends on the rows, not on whose they are. */
    decoder->segment[0] = (struct shoali_kv_segment){.rows = 1};
    SHOAL_TRY(status, shoali_slot_create(NULL, 0, &slot), done);
    meta.slot = slot;
    SHOAL_TRY(status, shoali_tape_create(&meta, &tape), done);
    SHOAL_TRY(status,
              run_layers(decoder, tape,
                         &(struct pass){decoder->pass_rows, decoder->pass_asked, .segments = 1},
                         &boundary),
              done);
    decoder->vocab = boundary.tensor[0]->shape.dim[1];
    *bytes = shoali_slot_peak_bytes(slot);
done:
    shoali_tape_destroy(tape);
    shoali_slot_destroy(slot);
    return status;
}

static shoal_status allocate_host(struct shoali_decoder *decoder)
{
    decoder->length = shoali_calloc((size_t)decoder->sequences, sizeof *decoder->length, "lengths");
    decoder->segment =
        shoali_calloc((size_t)decoder->sequences, sizeof *decoder->segment, "segments");
    decoder->tokens = shoali_calloc(SHOALI_PASS_ROWS, sizeof *decoder->tokens, "tokens of a pass");
    decoder->asked = shoali_calloc(SHOALI_PASS_ROWS, sizeof *decoder->asked, "rows of a pass");
    const bool made = decoder->length && decoder->segment && decoder->tokens && decoder->asked;
    return made ? SHOAL_OK : SHOAL_ENOMEM;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

shoal_status shoali_decoder_init(struct shoali_decoder *decoder, shoal_engine *engine,
                                 int32_t sequences, int64_t positions)
{
    shoal_status status;
    size_t bytes;
    *decoder =
        (struct shoali_decoder){.engine = engine, .sequences = sequences, .positions = positions};
    decoder->pass_rows = least(SHOALI_PASS_ROWS, sequences * positions);
    decoder->pass_asked = least(SHOALI_PASS_ASKED, decoder->pass_rows);
    decoder->observer = *shoali_zero_observer(engine->zero);
    struct shoali_tape_args args = {.exec = engine->exec,
                                    .module = &engine->module,
                                    .dtype = engine->module.dtype,
                                    .observers = &decoder->observer,
                                    .observer_count = 1,
                                    .tensor_parallel = engine->place.tensor_parallel};
    SHOAL_TRY(status, allocate_host(decoder), done);
    SHOAL_TRY(status, shoali_kv_cache_create(engine->device, sequences, positions, &decoder->cache),
              done);
    SHOAL_TRY(status, measure(decoder, &args, &bytes), done);
    SHOAL_TRY(status, shoali_kv_cache_place(decoder->cache), done);
    SHOAL_TRY(status, shoali_slot_create(engine->device, bytes, &decoder->slot), done);
    args.slot = decoder->slot;
    SHOAL_TRY(status, shoali_tape_create(&args, &decoder->tape), done);
    if (engine->module.dtype == SHOAL_F32)
        goto done;
    decoder->low = shoali_calloc((size_t)(decoder->pass_asked * decoder->vocab),
                                 sizeof *decoder->low, "16-bit logits");
    if (decoder->low == NULL)
        status = SHOAL_ENOMEM;
done:
    return status;
}

void shoali_decoder_fini(struct shoali_decoder *decoder)
{
    shoali_tape_destroy(decoder->tape);
    shoali_slot_destroy(decoder->slot);
    shoali_kv_cache_destroy(decoder->cache);
    shoali_free(decoder->length);
    shoali_free(decoder->segment);
    shoali_free(decoder->tokens);
    shoali_free(decoder->asked);
    shoali_free(decoder->low);
}
