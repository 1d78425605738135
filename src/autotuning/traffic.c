/* traffic.c - what ZeRO keeps and sends, by the formulas of zero.h. */
#include "autotuning/autotuning.h"

/* Units that are live at once where a stage keeps parts only: the one in use and, with overlap, the
 * one on its way. */
static double live_units(const struct shoali_costs *costs)
{
    return costs->overlaps ? 2 : 1;
}

double shoali_state_bytes(const struct shoali_costs *costs, const struct shoali_state *state)
{
    const double all = (double)state->parameters, part = all / state->data;
    const double live = live_units(costs) * (double)state->largest_layer;
    const int32_t stage = state->data > 1 ? state->stage : 0;
    const double kept = stage >= 1 ? part : all;
    const double weights = costs->weight_bytes * (stage == 3 ? part + live : all);
    double gradients = costs->gradient_bytes * all;
    if (stage >= 2)
        gradients = costs->gradient_bytes * (part + live);
    else if (stage == 1)
        gradients += costs->gradient_bytes * part;
    /* fp32 weights are their own masters where this rank has all of what it updates */
    const double masters = costs->weight_bytes < 4 ? 4 * kept : 0;
    return weights + gradients + masters + 4 * costs->states * kept;
}

static double take(double amount, double speed)
{
    return speed > 0 ? amount / speed : 0;
}

/* How often a rank's weights are gathered in a step with stage 3: for each forward and each
 * backward, but what is kept from one to the next. A small model is gathered once. */
static double gather_count(const struct shoali_costs *costs, const struct shoali_state *state)
{
    const double all = (double)state->parameters, passes = 2 * (double)state->micro_batches;
    const double kept = all > 0 && costs->reused < all ? costs->reused / all : 1;
    return passes - kept * (passes - 1);
}

void shoali_state_messages(const struct shoali_costs *costs, const struct shoali_state *state,
                           const struct shoali_speeds *speeds, struct shoali_state_time *time)
{
    *time = (struct shoali_state_time){0};
    if (state->data <= 1)
        return;
    const double weights = costs->weight_bytes * (double)state->parameters;
    const double gradients = costs->gradient_bytes * (double)state->parameters;
    const struct shoali_network *network = &speeds->network;
    const double gather = shoali_network_best(network, &speeds->data, SHOALI_ALL_GATHER, weights);
    const double reduce =
        shoali_network_best(network, &speeds->data, SHOALI_REDUCE_SCATTER, gradients);
    const double times = (double)state->micro_batches;
    switch (state->stage) {
    case 0:
        time->last_backward =
            shoali_network_best(network, &speeds->data, SHOALI_ALL_REDUCE, gradients);
        break;
    case 1:
        time->last_backward = reduce;
        time->gathers = gather;
        break;
    case 2:
        time->backwards = times * reduce;
        time->gathers = gather;
        break;
    default:
        time->all = gather_count(costs, state) * gather + times * reduce;
        break;
    }
}

/* Gradient, masters and states are read, the latter two written, and the weights; as plan.c. */
double shoali_state_update(const struct shoali_costs *costs, const struct shoali_state *state,
                           const struct shoali_speeds *speeds)
{
    const double elements =
        (double)state->parameters / (state->data > 1 && state->stage >= 1 ? state->data : 1);
    const double masters = costs->weight_bytes < 4 ? 8 + costs->weight_bytes : 8;
    return take(elements * (costs->gradient_bytes + masters + 8 * costs->states), speeds->memory);
}
