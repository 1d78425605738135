#include "base/test_cmocka.h"
#include "launcher/hosts/hosts.h"

#include <string.h>

static void expect(const char *include, const char *exclude, const char *slots_text)
{
    struct shoali_arena arena;
    struct shoali_world world = {0};
    struct shoali_hosts hosts;
    char text[64] = "";
    shoali_arena_init(&arena);
    assert_int_equal(shoali_hosts_read(NULL, &arena, &hosts), SHOAL_OK);
    hosts.host[0].slots = 4;
    hosts.host[0].selected = shoali_arena_alloc(&arena, 4 * sizeof(bool));
    shoal_status status = shoali_slots_select(include, exclude, &hosts);
    if (status == SHOAL_OK)
        status = shoali_world_make(&hosts, 0, 0, &arena, &world);
    for (int32_t i = 0; status == SHOAL_OK && i < world.ranks; i++) {
        size_t length = strlen(text);
        text[length] = (char)('0' + world.node[0].slots.value[i]);
        text[length + 1] = '\0';
    }
    if (slots_text) {
        assert_int_equal(status, SHOAL_OK);
        assert_string_equal(text, slots_text);
    } else {
        assert_int_equal(status, SHOAL_EINVAL);
    }
    shoali_arena_fini(&arena);
}

static void test_grammar(void **state)
{
    (void)state;
    expect(NULL, NULL, "0123");
    expect("localhost", NULL, "0123");
    expect("localhost:2", NULL, "2");
    expect("localhost:3,0,3", NULL, "03");
    expect("localhost:1@localhost:0", NULL, "01");
    expect("localhost@localhost:0", NULL, "0123");
    expect(NULL, "localhost:1", "023");
    expect(NULL, "localhost:0,1@localhost:3", "2");
}

static void test_mistakes(void **state)
{
    (void)state;
    expect("localhost:4", NULL, NULL);
    expect(NULL, "localhost:9", NULL);
    expect("worker-0", NULL, NULL);
    expect("local", NULL, NULL);
    expect("localhost:", NULL, NULL);
    expect("localhost:0,", NULL, NULL);
    expect("localhost:,0", NULL, NULL);
    expect("localhost:a", NULL, NULL);
    expect("localhost:-1", NULL, NULL);
    expect("localhost:99999999999999999999", NULL, NULL);
    expect("localhost@", NULL, NULL);
    expect("", NULL, NULL);
    expect(NULL, "localhost", NULL); /* nothing is left */
    expect("localhost:0", "localhost:1", NULL);
}

static void test_message_names_what_exists(void **state)
{
    (void)state;
    expect("localhost:7", NULL, NULL);
    assert_non_null(strstr(shoal_error_message(), "slot 7"));
    assert_non_null(strstr(shoal_error_message(), "0 to 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_message_names_what_exists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
