/* The dynamic loss scale against a golden sequence, its save and restore, and its refusals. */
#include "base/test_cmocka.h"
#include "optimizer/loss_scaler.h"

#include <stdio.h>
#include <string.h>

static struct shoali_fp16_config config_of(int64_t power, int64_t window, int64_t hysteresis,
                                           bool consecutive)
{
    return (struct shoali_fp16_config){.enabled = true,
                                       .initial_scale_power = power,
                                       .loss_scale_window = window,
                                       .hysteresis = hysteresis,
                                       .consecutive_hysteresis = consecutive,
                                       .min_loss_scale = 1};
}

static const bool events[20] = {1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};
static const double golden[20] = {65536, 32768, 16384, 16384, 16384, 16384, 16384,
                                  32768, 32768, 32768, 16384, 16384, 16384, 16384,
                                  16384, 32768, 32768, 32768, 32768, 65536};

static void test_golden(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(16, 4, 2, false);
    struct shoali_loss_scaler scaler;
    shoali_loss_scaler_init(&scaler, &config);
    assert_true(scaler.scale == 65536);
    for (int k = 0; k < 20; k++) {
        assert_int_equal(shoali_loss_scaler_update(&scaler, events[k]), SHOAL_OK);
        if (scaler.scale != golden[k])
            fail_msg("after update %d: scale %g, expected %g", k, scaler.scale, golden[k]);
    }
}

/* Saving and restoring at any point continues the same sequence. */
static void test_restore(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(16, 4, 2, false);
    for (int cut = 0; cut <= 20; cut++) {
        struct shoali_loss_scaler first, second;
        struct shoali_loss_scaler_state saved;
        shoali_loss_scaler_init(&first, &config);
        for (int k = 0; k < cut; k++)
            assert_int_equal(shoali_loss_scaler_update(&first, events[k]), SHOAL_OK);
        shoali_loss_scaler_save(&first, &saved);
        shoali_loss_scaler_init(&second, &config);
        assert_int_equal(shoali_loss_scaler_restore(&second, &saved), SHOAL_OK);
        for (int k = cut; k < 20; k++) {
            assert_int_equal(shoali_loss_scaler_update(&second, events[k]), SHOAL_OK);
            assert_true(second.scale == golden[k]);
        }
    }
}

static void test_restore_refuses(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(16, 4, 2, false);
    struct shoali_loss_scaler scaler;
    shoali_loss_scaler_init(&scaler, &config);
    static const struct shoali_loss_scaler_state wrong[] = {
        {0, 1, -1, 2},  {-2, 1, -1, 2}, {1.0 / 0.0, 1, -1, 2}, {2, 1, 1, 2},
        {2, -1, -2, 2}, {2, 1, -2, 2},  {2, 1, -1, 0}};
    for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++)
        assert_int_equal(shoali_loss_scaler_restore(&scaler, &wrong[k]), SHOAL_ECORRUPT);
    assert_true(scaler.scale == 65536);
}

/* fp32, bf16 and static scales leave nothing to go on with. */
static void test_restore_from_none(void **state)
{
    (void)state;
    const struct shoali_fp16_config config = config_of(16, 4, 2, false);
    struct shoali_loss_scaler none, scaler;
    struct shoali_loss_scaler_state saved;
    shoali_loss_scaler_init(&none, &(struct shoali_fp16_config){.enabled = false});
    shoali_loss_scaler_save(&none, &saved);
    shoali_loss_scaler_init(&scaler, &config);
    assert_int_equal(shoali_loss_scaler_restore(&scaler, &saved), SHOAL_OK);
    assert_true(scaler.scale == 65536 && scaler.hysteresis_left == 2);
}

static void test_consecutive(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(4, 1000, 2, true);
    struct shoali_loss_scaler scaler;
    shoali_loss_scaler_init(&scaler, &config);
    for (int k = 0; k < 10; k++) { /* overflow, clean, overflow, ...: always refilled */
        assert_int_equal(shoali_loss_scaler_update(&scaler, k % 2 == 0), SHOAL_OK);
        assert_true(scaler.scale == 16);
    }
    config = config_of(4, 1000, 2, false);
    shoali_loss_scaler_init(&scaler, &config);
    for (int k = 0; k < 4; k++)
        assert_int_equal(shoali_loss_scaler_update(&scaler, k % 2 == 0), SHOAL_OK);
    assert_true(scaler.scale == 8);
}

static void test_minimum(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(1, 1000, 1, false);
    struct shoali_loss_scaler scaler;
    shoali_loss_scaler_init(&scaler, &config);
    assert_int_equal(shoali_loss_scaler_update(&scaler, true), SHOAL_OK);
    assert_true(scaler.scale == 1);
    assert_int_equal(shoali_loss_scaler_update(&scaler, true), SHOAL_ENUMERIC);
    assert_non_null(strstr(shoal_error_message(), "minimum"));
}

static void test_static(void **state)
{
    (void)state;
    struct shoali_fp16_config config = config_of(16, 4, 2, false);
    struct shoali_loss_scaler scaler;
    config.loss_scale = 100;
    shoali_loss_scaler_init(&scaler, &config);
    for (int k = 0; k < 20; k++) {
        assert_int_equal(shoali_loss_scaler_update(&scaler, events[k]), SHOAL_OK);
        assert_true(scaler.scale == 100);
    }
    assert_int_equal(shoali_loss_scaler_check_exact(&scaler), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "use 64"));
    config.loss_scale = 128;
    shoali_loss_scaler_init(&scaler, &config);
    assert_int_equal(shoali_loss_scaler_check_exact(&scaler), SHOAL_OK);
    config.enabled = false;
    shoali_loss_scaler_init(&scaler, &config);
    assert_true(scaler.scale == 1);
    config = config_of(16, 4, 2, false);
    config.min_loss_scale = 0.3;
    shoali_loss_scaler_init(&scaler, &config);
    assert_int_equal(shoali_loss_scaler_check_exact(&scaler), SHOAL_ECONFIG);
    assert_non_null(strstr(shoal_error_message(), "0.25"));
}

static shoal_status read_fp16(const char *text, struct shoali_fp16_config *config)
{
    struct shoali_json *document = NULL;
    struct shoali_arena arena;
    shoal_status status;
    shoali_arena_init(&arena);
    SHOAL_TRY(status, shoali_json_parse(text, strlen(text), "test.json", &document), done);
    SHOAL_TRY(status, shoali_config_defaults(&shoali_fp16_section, config, &arena), done);
    SHOAL_TRY(status,
              shoali_config_read_json(&shoali_fp16_section, document, "fp16", config, &arena),
              done);
done:
    shoali_json_close(document);
    shoali_arena_fini(&arena);
    return status;
}

static void test_section(void **state)
{
    (void)state;
    struct shoali_fp16_config config;
    struct shoali_loss_scaler scaler;
    assert_int_equal(read_fp16("{\"fp16\": {\"enabled\": true}}", &config), SHOAL_OK);
    shoali_loss_scaler_init(&scaler, &config);
    assert_true(scaler.dynamic && scaler.scale == 65536 && scaler.window == 1000 &&
                scaler.hysteresis == 2 && scaler.min_scale == 1);
    assert_int_equal(read_fp16("{\"fp16\": {\"loss_scale_window\": 0}}", &config), SHOAL_ECONFIG);
    assert_int_equal(read_fp16("{\"fp16\": {\"loss_scale\": -1}}", &config), SHOAL_ECONFIG);
    assert_int_equal(read_fp16("{\"fp16\": {\"loss_scale\": true}}", &config), SHOAL_ECONFIG);
    assert_int_equal(read_fp16("{\"fp16\": {\"enabled\": true, \"hysteresis\": 0}}", &config),
                     SHOAL_OK);
    assert_int_equal(config.hysteresis, 1);
    assert_int_equal(read_fp16("{\"fp16\": {\"hysteresis\": -1}}", &config), SHOAL_ECONFIG);
    /* DeepSpeed takes 0 */
    assert_int_equal(read_fp16("{\"fp16\": {\"min_loss_scale\": 0}}", &config), SHOAL_OK);
    assert_true(config.min_loss_scale == 0x1p-24);
    assert_int_equal(read_fp16("{\"fp16\": {\"min_loss_scale\": 0, \"loss_scale\": 2}}", &config),
                     SHOAL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_restore),
        cmocka_unit_test(test_restore_refuses),
        cmocka_unit_test(test_consecutive),
        cmocka_unit_test(test_restore_from_none),
        cmocka_unit_test(test_minimum),
        cmocka_unit_test(test_static),
        cmocka_unit_test(test_section),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
