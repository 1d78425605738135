/* What stands behind the last norm of a model that says the next token. */
#include "transformer/transformer.h"

shoal_tensor *shoali_next_token_head(shoal_tape *tape, shoal_tensor *x,
                                     const struct shoali_head *head)
{
    const shoal_linear_args table = {.bias = head->bias, .weight_out_in = true};
    /* What evaluation and plans of it report is the cross-entropy itself. */
    const double smoothing = shoal_tape_training(tape) ? head->label_smoothing : 0;
    if (shoal_tape_generating(tape))
        return shoal_linear(tape, shoal_generation_rows(tape, x), head->weight, &table);
    shoal_tensor *targets = shoal_tape_input(tape, 1);
    if (head->fused)
        return shoal_linear_cross_entropy_smoothed(tape, x, head->weight, targets, smoothing);
    shoal_tensor *logits = shoal_linear(tape, x, head->weight, &table); /* [B, T, V] */
    return shoal_cross_entropy_smoothed(tape, logits, targets, smoothing);
}
