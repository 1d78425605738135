/* fetch - the weights: where they are, and, where each rank keeps own parts alone, which units are
 * gathered, when they come and when they go.
 *
 *   data       compute dtype: everything (stages 0 to 2), or own parts; NULL when those wait outside
 *              the device
 *   gathered   a unit's whole weights in a buffer of the pool, held by the scopes that use it
 *   position   of a pass over the layers: layer i computes forward at position i, and backward, when
 *              there is training, at 2 * layers - 1 - i
 *
 * A layer's scope holds the units that it declared or is tied to, counted, in forward and again in
 * backward. A unit is given back at the scope's end unless it is used again within
 * max_reuse_distance elements and no more than max_live_parameters are gathered. Units of small
 * parameters only stay gathered, and are refreshed after an update. With overlap the next layer's
 * units are gathered while this one computes.
 *
 * INVARIANTS. Every decision is a function of the layers and of the order of scopes, so all ranks
 * gather the same units in the same order. A held unit never goes, however many tapes are alive.
 * A parameter's `data` is NULL while it is not gathered.
 */
#ifndef SHOALI_ZERO_FETCH_H
#define SHOALI_ZERO_FETCH_H

#include "zero/hpz.h"
#include "zero/param_store.h"
#include "zero/pool.h"
#include "zero/wire.h"

struct shoali_zero_gathered {
    void *data, *home;  /* the buffer, NULL none; the one used last */
    uint32_t gathering; /* ticket of a gather under way, 0 none */
    int32_t holders;    /* scopes that use it now */
    bool persistent;    /* always gathered */
};
struct shoali_zero_weights {
    const struct shoali_zero_setup *setup;
    const struct shoali_zero_layout *layout;
    struct shoali_zero_jobs *jobs;
    struct shoali_zero_pool *pool;
    const struct shoali_zero_wire *wire;
    struct shoali_zero_param_store *store;
    struct shoali_zero_hpz hpz;
    void *data;
    struct shoali_zero_gathered *unit; /* [units] */
    int32_t position;                  /* of the scope entered last */
    int64_t micro;                     /* of the step: whether another follows */
    int64_t live;                      /* alike_count of gathered units that are not persistent */
    int64_t held, held_peak;           /* this rank's elements of them: now, at most */
    bool planning;                     /* scopes are walked to make the pool: nothing is sent */
};
/* Collective. The parts are borrowed. */
SHOAL_CHECKED shoal_status shoali_zero_weights_init(struct shoali_zero_weights *weights);
void shoali_zero_weights_fini(struct shoali_zero_weights *weights);
int64_t shoali_zero_weights_bytes(const struct shoali_zero_weights *weights);

int32_t shoali_zero_backward_position(const struct shoali_zero_weights *weights, int32_t layer);
/* A layer's scope begins and ends. */
SHOAL_CHECKED shoal_status shoali_zero_weights_enter(struct shoali_zero_weights *weights,
                                                     int32_t position);
void shoali_zero_weights_leave(struct shoali_zero_weights *weights, int32_t position);
/* The same for a layer of a group that runs again before its backward. */
SHOAL_CHECKED shoal_status shoali_zero_weights_replay(struct shoali_zero_weights *weights,
                                                      int32_t layer);
void shoali_zero_weights_replayed(struct shoali_zero_weights *weights, int32_t layer);
/* After own parts changed: gathers what has to be (stages 1, 2: everything), forgets the rest. */
SHOAL_CHECKED shoal_status shoali_zero_weights_changed(struct shoali_zero_weights *weights);
/* Gives all that is not persistent back, with no gather under way. */
void shoali_zero_weights_release(struct shoali_zero_weights *weights);

#endif
