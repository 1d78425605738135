/* Plans of meshes: for random ones each rank plans itself, trains a step, and its own counters say
 * what the plan said: memory by kind, messages, FLOPs. The seed is printed; SHOAL_TEST_SEED gives
 * another, SHOAL_TEST_CELLS more of them. */
#include "engine/test_gpt.h"
#include "shoal/plan.h"

#include <inttypes.h>
#include <math.h>

enum { CELLS = 30, OPTIONS = 512, RANKS = 8 };

static struct gpt_seat seats[GPT_RANKS_MAX];

struct cell {
    uint64_t number;
    int32_t tensor, pipeline, data, chunks, stage;
    bool overlap, bf16, exact, sequence_parallel;
    const char *schedule, *recompute;
    int64_t accumulation, samples;
    char options[OPTIONS];
};

/* ---- counting ------------------------------------------------------------------------------- */

/* FLOPs of what was recorded to be trained. */
struct counted {
    int64_t forward, backward, replay;
};

static shoal_status count_layer(void *user, struct shoal_tape *tape, struct shoali_scope *scope)
{
    struct counted *counted = user;
    (void)tape;
    counted->replay += scope->recompute ? scope->flops_forward : 0;
    if (!scope->layer)
        return SHOAL_OK;
    counted->forward += scope->flops_forward;
    counted->backward += scope->flops_backward;
    return SHOAL_OK;
}

static bool compare_traffic(const struct gpt_seat *seat, const shoal_plan *plan,
                            const struct shoali_comm_counters *before)
{
    struct shoali_comm_counters now;
    int64_t bytes = 0;
    EXPECT(shoali_engine_counters(seat->engine, &now) == SHOAL_OK);
    for (int32_t k = 0; k < SHOALI_COLLECTIVE_COUNT; k++) {
        const char *name = shoali_collective_name((enum shoali_collective)k);
        shoal_plan_traffic planned = {0};
        for (int32_t t = 0; t < plan->traffic_count; t++)
            if (strcmp(plan->traffic[t].name, name) == 0)
                planned = plan->traffic[t];
        EXPECT(planned.calls == now.calls[k] - before->calls[k]);
        EXPECT(planned.elements == now.elements[k] - before->elements[k]);
        EXPECT(planned.bytes == now.bytes[k] - before->bytes[k]);
        bytes += planned.bytes;
    }
    EXPECT(plan->sent_bytes == bytes);
    return true;
}

static bool compare_memory(const struct gpt_seat *seat, const shoal_plan *plan)
{
    shoal_memory_info info;
    shoal_engine_get_memory_info(seat->engine, &info);
    EXPECT(plan->weights_bytes == info.weights_bytes);
    EXPECT(plan->gradients_bytes == info.gradients_bytes);
    EXPECT(plan->master_bytes + plan->states_bytes == info.states_bytes);
    EXPECT(plan->buffers_bytes == info.buffers_bytes);
    EXPECT(plan->packed_weights_bytes == info.packed_weights_bytes);
    EXPECT(plan->activations_bytes >= info.activations_bytes);
    EXPECT(plan->comm_bytes == info.comm_bytes);
    EXPECT(plan->workspace_bytes == info.workspace_bytes && info.workspace_bytes > 0);
    EXPECT(info.arena_growths == 0);
    const int64_t sum = plan->weights_bytes + plan->gradients_bytes + plan->master_bytes +
                        plan->states_bytes + plan->activations_bytes + plan->buffers_bytes +
                        plan->packed_weights_bytes;
    const int64_t most = info.device_peak_bytes > sum ? info.device_peak_bytes : sum;
    EXPECT(fabs((double)plan->device_bytes - (double)most) <= 0.02 * (double)most);
    EXPECT(plan->in_flight == seat->engine->step.micro_count);
    return true;
}

/* ---- a cell --------------------------------------------------------------------------------- */

static bool plan_and_run(struct gpt_seat *seat)
{
    const struct cell *cell = seat->run->user;
    char text[2048];
    shoal_plan plan;
    shoal_mesh *mesh = NULL;
    struct counted counted = {0};
    struct shoali_comm_counters before;
    const struct shoali_observer watch = {.user = &counted, .forward_end = count_layer};
    gpt_config_text(seat->run, text, sizeof text);
    EXPECT(gpt_make_model(seat->run, &seat->model) == SHOAL_OK);
    shoal_engine_args args = {.model = seat->model,
                              .config_text = text,
                              .group = seat->group,
                              .seed = 7,
                              .threads = 1,
                              .recompute_granularity = cell->recompute,
                              .sequence_parallel = cell->sequence_parallel,
                              .pipeline_schedule = cell->schedule,
                              .virtual_stages = cell->chunks};
    EXPECT(shoal_plan_make(&args,
                           &(shoal_plan_args){.rank = seat->rank,
                                              .world_size = seat->run->ranks,
                                              .tensor = cell->tensor,
                                              .pipeline = cell->pipeline},
                           &plan) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group,
                                                .tensor = cell->tensor,
                                                .pipeline = cell->pipeline},
                             &mesh) == SHOAL_OK);
    args.mesh = mesh;
    EXPECT(shoali_engine_make(&args, &(struct shoali_engine_making){.watch = &watch},
                              &seat->engine) == SHOAL_OK);
    counted = (struct counted){0};
    EXPECT(shoali_engine_counters(seat->engine, &before) == SHOAL_OK);
    EXPECT(shoal_engine_train_batch(seat->engine, gpt_next, seat, NULL) == SHOAL_OK);
    EXPECT(compare_traffic(seat, &plan, &before));
    EXPECT(compare_memory(seat, &plan));
    EXPECT(plan.flops_forward == counted.forward && plan.flops_backward == counted.backward);
    EXPECT(plan.flops_replay == counted.replay);
    EXPECT(plan.tensor_ranks == cell->tensor && plan.pipeline_stages == cell->pipeline);
    EXPECT(plan.data_ranks == cell->data);
    EXPECT(plan.pipeline_stage == shoal_mesh_coordinate(mesh, SHOAL_AXIS_PP, seat->rank));
    EXPECT(plan.tensor_rank == shoal_mesh_coordinate(mesh, SHOAL_AXIS_TP, seat->rank));
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return true;
}

static bool run_seat(struct gpt_seat *seat)
{
    const bool passed = plan_and_run(seat);
    if (!passed) /* the others wait for it */
        shoal_comm_abort(seat->group, SHOAL_EINTERNAL);
    return passed;
}

/* ---- random cells --------------------------------------------------------------------------- */

static int32_t pick(uint64_t *state, int32_t count)
{
    *state = gpt_mix(*state + 0x9E3779B97F4A7C15u);
    return (int32_t)(*state % (uint64_t)count);
}

static void draw(uint64_t seed, uint64_t number, struct cell *cell)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1", "interleaved"};
    uint64_t state = gpt_mix(seed) + number;
    *cell = (struct cell){.number = number, .tensor = 1 << pick(&state, 3)};
    cell->pipeline = 1 + pick(&state, RANKS / cell->tensor < 4 ? RANKS / cell->tensor : 4);
    const int32_t left = RANKS / (cell->tensor * cell->pipeline);
    cell->data = 1 + pick(&state, left < 3 ? left : 3);
    cell->sequence_parallel = cell->tensor > 1 && pick(&state, 2);
    cell->stage = pick(&state, 4);
    cell->overlap = pick(&state, 2);
    cell->bf16 = pick(&state, 2);
    cell->exact = pick(&state, 3) == 0 && cell->tensor == 1;
    cell->recompute = pick(&state, 2) ? "full" : NULL;
    cell->samples = 1 + pick(&state, 2);
    cell->accumulation = 1 + pick(&state, 9);
    cell->schedule = cell->pipeline > 1 ? schedules[pick(&state, 4)] : NULL;
    if (cell->schedule && strcmp(cell->schedule, "interleaved") == 0) {
        cell->chunks = 1 + pick(&state, 2);
        cell->accumulation = cell->pipeline * (1 + pick(&state, 4));
    }
    snprintf(cell->options, sizeof cell->options,
             "\"bf16\":{\"enabled\":%s},%s\"zero_optimization\":{\"stage\":%d,\"overlap_comm\":%s,"
             "\"reduce_bucket_size\":4000}",
             cell->bf16 ? "true" : "false", cell->exact ? "\"reduction\":\"exact\"," : "",
             (int)cell->stage, cell->overlap ? "true" : "false");
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_meshes(void **state)
{
    const uint64_t seed = number_of("SHOAL_TEST_SEED", 20),
                   cells = number_of("SHOAL_TEST_CELLS", CELLS);
    (void)state;
    printf("seed %" PRIu64 ", %" PRIu64 " cells\n", seed, cells);
    for (uint64_t n = 0; n < cells; n++) {
        struct cell cell;
        draw(seed, n, &cell);
        printf("cell %" PRIu64 ": tp %d pp %d dp %d, %s of %d, stage %d, %lld micro-batches of %lld"
               "%s%s%s%s%s\n",
               n, (int)cell.tensor, (int)cell.pipeline, (int)cell.data,
               cell.schedule ? cell.schedule : "no pipeline", (int)cell.chunks, (int)cell.stage,
               (long long)cell.accumulation, (long long)cell.samples,
               cell.sequence_parallel ? ", sequence" : "", cell.overlap ? ", overlap" : "",
               cell.bf16 ? ", bf16" : "", cell.exact ? ", exact" : "",
               cell.recompute ? ", recompute" : "");
        gpt_run_ranks((struct gpt_run){.ranks = cell.tensor * cell.pipeline * cell.data,
                                       .options = cell.options,
                                       .micro_batches = cell.accumulation * cell.data,
                                       .samples = cell.samples,
                                       .layers = 6,
                                       .run = run_seat,
                                       .user = &cell},
                      seats);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_meshes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
