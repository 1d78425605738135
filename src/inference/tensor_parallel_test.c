/* Ranks along tp generate the tokens of one rank, text by text and several at once. */
#include "engine/test_gpt.h"
#include "shoal/inference.h"

enum { SEQUENCES = 3, PROMPT = 5, TOKENS = 24, VOCABULARY = 37 };

static struct gpt_seat seats[GPT_RANKS_MAX];
struct found {
    int32_t tokens[TOKENS], count;
    float logits[SEQUENCES * VOCABULARY];
};
static struct found found[GPT_RANKS_MAX], one;

struct kind {
    const char *model, *dtype;
    int32_t kv_heads; /* llama */
};

static shoal_status make_model(const struct kind *kind, shoal_model **model)
{
    shoal_status status;
    shoal_model_config *config;
    const struct {
        const char *option;
        double value;
    } all[] = {{"num-layers", 2},
               {"hidden-size", 32},
               {"num-attention-heads", 8},
               {"seq-length", 16},
               {"vocab-size", VOCABULARY},
               {"make-vocab-size-divisible-by", 1},
               {"init-method-std", 0.3},
               {"group-query-attention", 1},
               {"num-query-groups", kind->kv_heads}};
    SHOAL_TRY(status, shoal_model_config_create(kind->model, &config), done);
    for (size_t i = 0; i < sizeof all / sizeof all[0] - (kind->kv_heads ? 0 : 2); i++)
        SHOAL_TRY(status, shoal_model_config_set(config, all[i].option, all[i].value), done);
    SHOAL_TRY(status, shoal_model_create(config, model), done);
done:
    shoal_model_config_destroy(config);
    return status;
}

static shoal_status take(void *user, int32_t token)
{
    struct found *mine = user;
    mine->tokens[mine->count++] = token;
    return SHOAL_OK;
}

static bool generate(struct gpt_seat *seat, shoal_generator *generator)
{
    struct found *mine = &found[seat->rank];
    static const int32_t prompt[SEQUENCES][PROMPT] = {
        {1, 36, 3, 4, 18}, {19, 2, 0, 7, 7}, {30, 29, 28, 1, 5}};
    shoal_generator_input inputs[SEQUENCES];
    *mine = (struct found){.count = 0};
    EXPECT(shoal_generator_vocab_size(generator) == VOCABULARY);
    EXPECT(shoal_generate(
               generator,
               &(shoal_sample_args){
                   .prompt = prompt[0], .prompt_count = PROMPT, .num_tokens = TOKENS, .top_k = 1},
               take, mine) == SHOAL_OK);
    EXPECT(shoal_generator_truncate(generator, 0, 0) == SHOAL_OK);
    for (int32_t s = 0; s < SEQUENCES; s++)
        inputs[s] = (shoal_generator_input){s, prompt[s], 3 + s % 2};
    EXPECT(shoal_generator_forward(generator, inputs, SEQUENCES, false, NULL) == SHOAL_OK);
    for (int32_t s = 0; s < SEQUENCES; s++)
        inputs[s] = (shoal_generator_input){s, prompt[s] + 3, 1};
    EXPECT(shoal_generator_forward(generator, inputs, SEQUENCES, false, mine->logits) == SHOAL_OK);
    return true;
}

static bool live(struct gpt_seat *seat)
{
    const struct kind *kind = seat->run->user;
    shoal_mesh *mesh = NULL;
    shoal_generator *generator = NULL;
    char config[128];
    snprintf(config, sizeof config, "{\"train_micro_batch_size_per_gpu\":1%s}",
             kind->dtype ? ",\"bf16\":{\"enabled\":true}" : "");
    EXPECT(make_model(kind, &seat->model) == SHOAL_OK);
    EXPECT(shoal_mesh_create(&(shoal_mesh_args){.group = seat->group, .tensor = seat->run->ranks},
                             &mesh) == SHOAL_OK);
    EXPECT(shoal_engine_create(&(shoal_engine_args){.model = seat->model,
                                                    .config_text = config,
                                                    .mesh = mesh,
                                                    .seed = 5,
                                                    .threads = 1,
                                                    .accelerator = "cpu",
                                                    .sequence_parallel = seat->run->ranks != 3,
                                                    .inference = true},
                               &seat->engine) == SHOAL_OK);
    EXPECT(shoal_generator_create(&(shoal_generator_args){.engine = seat->engine,
                                                          .sequences = SEQUENCES,
                                                          .max_length = 16},
                                  &generator) == SHOAL_OK);
    const bool passed = generate(seat, generator);
    shoal_generator_destroy(generator);
    shoal_engine_destroy(seat->engine);
    seat->engine = NULL;
    shoal_mesh_destroy(mesh);
    return passed;
}

/* Logits are of some units, sums of 32 and 128 products: 8 layers' sums of 2^-24 (2^-8 bf16)
 * each. */
static void compare(const struct kind *kind, int32_t ranks)
{
    const float tolerance = kind->dtype ? 0.3F : 2e-5F;
    for (int32_t r = 0; r < ranks; r++) {
        assert_int_equal(found[r].count, TOKENS);
        assert_memory_equal(found[r].tokens, found[0].tokens, sizeof one.tokens);
        assert_memory_equal(found[r].logits, found[0].logits, sizeof one.logits);
        for (int i = 0; i < SEQUENCES * VOCABULARY; i++)
            if (!(found[r].logits[i] - one.logits[i] < tolerance &&
                  one.logits[i] - found[r].logits[i] < tolerance))
                fail_msg("%s, %d ranks: logit %d is %g, not %g", kind->model, (int)ranks, i,
                         (double)found[r].logits[i], (double)one.logits[i]);
    }
    if (!kind->dtype)
        assert_memory_equal(found[0].tokens, one.tokens, sizeof one.tokens);
}

static void test_tokens(void **state)
{
    static const struct kind kinds[] = {
        {"gpt", NULL, 0}, {"llama", NULL, 8}, {"llama", NULL, 2}, {"llama", "bf16", 4}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int32_t ranks = 1; ranks <= 4; ranks++) {
            if (ranks == 3 && kinds[k].kv_heads == 2)
                continue; /* they share heads in pairs alone */
            gpt_run_ranks(
                (struct gpt_run){.ranks = ranks, .run = live, .user = (void *)(uintptr_t)&kinds[k]},
                seats);
            if (ranks == 1)
                one = found[0];
            compare(&kinds[k], ranks);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
