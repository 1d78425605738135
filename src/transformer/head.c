/* What stands behind the last norm of a model that says the next token. */
#include "transformer/transformer.h"

shoal_tensor *shoali_next_token_head(shoal_tape *tape, shoal_tensor *x, shoal_param *weight,
                                     bool fused, double label_smoothing)
{
    const shoal_linear_args table = {.weight_out_in = true};
    /* What evaluation and plans of it report is the cross-entropy itself. */
    const double smoothing = shoal_tape_training(tape) ? label_smoothing : 0;
    if (shoal_tape_generating(tape))
        return shoal_linear(tape, shoal_generation_rows(tape, x), weight, &table);
    shoal_tensor *targets = shoal_tape_input(tape, 1);
    if (fused)
        return shoal_linear_cross_entropy_smoothed(tape, x, weight, targets, smoothing);
    shoal_tensor *logits = shoal_linear(tape, x, weight, &table); /* [B, T, V] */
    return shoal_cross_entropy_smoothed(tape, logits, targets, smoothing);
}
