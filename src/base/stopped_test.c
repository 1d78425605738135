#include "base/test_folder.h"

#include "base/stopped.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <string.h>

static char sentence[SHOALI_STOPPED_BYTES];

static const char *format(const char *save, int64_t steps, bool handler, bool whole)
{
    const struct shoali_stopped stopped = {save, steps, handler};
    assert_int_equal(shoali_stopped_format(&stopped, sentence, sizeof sentence), whole);
    return sentence;
}

static void write_latest(const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/latest", folder);
    assert_int_equal(shoali_write_file_atomic(path, text, strlen(text)), SHOAL_OK);
}

static void test_what_is_lost(void **state)
{
    char wanted[1024];
    (void)state;
    assert_string_equal(format(NULL, 0, false, true), "no step was finished: nothing is lost");
    assert_string_equal(format(NULL, 1, false, false),
                        "nothing is saved: 1 step is lost; with --save DIR --exit-signal-handler "
                        "Ctrl-C finishes the step and saves");
    assert_string_equal(format(folder, 12, true, false), "nothing is saved: 12 steps are lost");
    write_latest("\xef\xbb\xbf global_step10 \n");
    snprintf(wanted, sizeof wanted, "saved: %s/global_step10", folder);
    assert_string_equal(format(folder, 10, true, true), wanted);
    snprintf(wanted, sizeof wanted,
             "the newest checkpoint is %s/global_step10: 2 steps are lost; with "
             "--exit-signal-handler Ctrl-C finishes the step and saves",
             folder);
    assert_string_equal(format(folder, 12, false, false), wanted);
    snprintf(wanted, sizeof wanted,
             "the newest checkpoint is %s/global_step10, of another run: 3 steps are lost", folder);
    assert_string_equal(format(folder, 3, true, false), wanted);
    snprintf(wanted, sizeof wanted,
             "the newest checkpoint is %s/global_step10: the steps behind it are lost", folder);
    assert_string_equal(format(folder, -1, true, false), wanted);
    write_latest("mine");
    snprintf(wanted, sizeof wanted,
             "the newest checkpoint is %s/mine, of another run: 3 steps are lost", folder);
    assert_string_equal(format(folder, 3, true, false), wanted);
    char tag[8];
    assert_int_equal(shoali_latest_read("/nowhere", tag, sizeof tag), -1);
    assert_string_equal(tag, "");
}

/* A small buffer ends a sentence early, and no number is without end. */
static void test_limits(void **state)
{
    char small[16], tag[SHOALI_STOPPED_TAG_BYTES];
    const struct shoali_stopped stopped = {.steps = INT64_MAX, .handler = true};
    (void)shoali_stopped_format(&stopped, small, sizeof small);
    assert_string_equal(small, "nothing is save");
    (void)state;
    write_latest("global_step99999999999999999999");
    assert_int_equal(shoali_latest_read(folder, tag, sizeof tag), -1);
}

#define CONTINUE(words, wanted)                             \
    do {                                                    \
        struct shoali_str own = {0}, line = {0};            \
        shoali_str_append_bytes(&own, words, sizeof words); \
        shoali_continue_format(&own, "my saves", &line);    \
        assert_string_equal(shoali_str_get(&line), wanted); \
        shoali_str_fini(&own);                              \
        shoali_str_fini(&line);                             \
    } while (0)

static void test_the_command(void **state)
{
    (void)state;
    CONTINUE("shoal\0pretrain\0gpt\0--save\0my saves",
             "shoal pretrain gpt --save 'my saves' --load 'my saves'");
    CONTINUE("shoal\0--load\0old\0--finetune\0--load_tag=x\0--lr\0001",
             "shoal --lr 1 --load 'my saves'");
    CONTINUE("shoal\0--load=my saves\0--load-tag\0t\0--loader\0--dry",
             "shoal --loader --dry --load 'my saves'");
    CONTINUE("shoal\0--load", "shoal --load 'my saves'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_lost, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_limits, make_folder, remove_folder),
        cmocka_unit_test(test_the_command),
    };
    return cmocka_run_group_tests_name("stopped", tests, NULL, NULL);
}
