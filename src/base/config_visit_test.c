/* What ranks compare of a configuration: paths and values, whatever form a file gives them. */
#include "base/config_table.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/test_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct inner {
    double rate;
    int32_t kind;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
struct outer {
    bool enabled;
    int64_t count, threads;
    const char *name, *folder;
    struct shoali_ints sizes;
    struct inner inner;
    struct json_t *params;
    uint64_t given[SHOALI_GIVEN_WORDS];
};
static const char *const kinds[] = {"first", "second", NULL};
static const struct shoali_option inner_rows[] = {
    {.key = "rate",
     .type = SHOALI_FLOAT,
     .offset = offsetof(struct inner, rate),
     .flags = SHOALI_OPTION_TRAINING},
    {.key = "kind", .type = SHOALI_ENUM, .offset = offsetof(struct inner, kind), .choices = kinds},
};
static const struct shoali_section inner = {.name = "inner",
                                            .rows = SHOALI_ROWS(inner_rows),
                                            .struct_bytes = sizeof(struct inner),
                                            .given_offset = offsetof(struct inner, given)};
static const struct shoali_option rows[] = {
    {.key = "enabled", .type = SHOALI_BOOL, .offset = offsetof(struct outer, enabled)},
    {.key = "count", .type = SHOALI_INT, .offset = offsetof(struct outer, count)},
    {.key = "threads",
     .type = SHOALI_INT,
     .offset = offsetof(struct outer, threads),
     .flags = SHOALI_OPTION_BY_RANK},
    {.key = "name", .type = SHOALI_STRING, .offset = offsetof(struct outer, name)},
    {.key = "folder",
     .type = SHOALI_STRING,
     .offset = offsetof(struct outer, folder),
     .flags = SHOALI_OPTION_BY_RANK},
    {.key = "sizes", .type = SHOALI_INTS, .offset = offsetof(struct outer, sizes)},
    {.key = "inner",
     .type = SHOALI_SECTION,
     .offset = offsetof(struct outer, inner),
     .section = &inner},
    {.key = "params", .type = SHOALI_JSON, .offset = offsetof(struct outer, params)},
    {.key = "dead", .type = SHOALI_INT, .state = SHOALI_DEAD, .help = "leave it out"},
};
static const struct shoali_section outer = {.name = "outer",
                                            .rows = SHOALI_ROWS(rows),
                                            .struct_bytes = sizeof(struct outer),
                                            .given_offset = offsetof(struct outer, given)};

static void append(void *user, const char *path, const char *value)
{
    shoali_str_append(user, "%s=%s;", path, value);
}

static void assert_visits(const char *json, unsigned only, const char *wanted)
{
    struct outer config;
    struct shoali_arena arena;
    struct shoali_json *document;
    struct shoali_str seen = {0};
    shoali_arena_init(&arena);
    assert_int_equal(shoali_config_defaults(&outer, &config, &arena), SHOAL_OK);
    assert_int_equal(shoali_json_parse(json, strlen(json), "test", &document), SHOAL_OK);
    assert_int_equal(shoali_config_read_json(&outer, document, "", &config, &arena), SHOAL_OK);
    assert_int_equal(shoali_config_visit(&outer, &config, "", only, append, &seen), SHOAL_OK);
    assert_string_equal(shoali_str_get(&seen), wanted);
    shoali_str_fini(&seen);
    shoali_json_close(document);
    shoali_arena_fini(&arena);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_visits("{}", 0,
                  "enabled=false;count=0;name=;sizes=;inner.rate=0;inner.kind=first;params=;");
}

/* The order of keys and the form of numbers say nothing. */
static void test_values(void **state)
{
    (void)state;
    const char *wanted = "enabled=true;count=3;name=x;sizes=1 2;inner.rate=0.1;inner.kind=second;"
                         "params.a=[1,2];params.betas.low=0.5;params.lr=1;";
    assert_visits("{\"enabled\":true,\"count\":3,\"threads\":4,\"name\":\"x\","
                  "\"folder\":\"/a\",\"sizes\":[1,2],"
                  "\"inner\":{\"rate\":0.1,\"kind\":\"second\"},"
                  "\"params\":{\"lr\":1,\"betas\":{\"low\":0.5},\"a\":[1,2]}}",
                  0, wanted);
    assert_visits("{\"params\":{\"a\":[1,2],\"lr\":1.0,\"betas\":{\"low\":5e-1}},"
                  "\"inner\":{\"kind\":\"SECOND\",\"rate\":1e-1},\"sizes\":[1,2],"
                  "\"folder\":\"/b\",\"name\":\"x\",\"count\":3.0,\"enabled\":true}",
                  0, wanted);
}

/* Rows of one kind, in whatever section they stand. */
static void test_only(void **state)
{
    (void)state;
    assert_visits("{\"count\":3,\"params\":{\"lr\":1},\"inner\":{\"rate\":2,\"kind\":\"second\"}}",
                  SHOALI_OPTION_TRAINING, "inner.rate=2;");
}

/* Whatever allocation fails, the visit says that a text was not complete. */
static void test_memory(void **state)
{
    struct outer config;
    struct shoali_arena arena;
    struct shoali_json *document;
    static const char json[] = "{\"name\":\"x\",\"sizes\":[1,2],"
                               "\"params\":{\"lr\":1,\"b\":{\"low\":\"y\"},\"a\":[1,true]}}";
    (void)state;
    shoali_arena_init(&arena);
    assert_int_equal(shoali_config_defaults(&outer, &config, &arena), SHOAL_OK);
    assert_int_equal(shoali_json_parse(json, strlen(json), "test", &document), SHOAL_OK);
    assert_int_equal(shoali_config_read_json(&outer, document, "", &config, &arena), SHOAL_OK);
    int32_t failures = 0;
    for (bool fired = true; fired; failures += fired) {
        char spec[32];
        struct shoali_str seen = {.text = malloc(1024), .capacity = 1024};
        snprintf(spec, sizeof spec, "alloc:%d", (int)failures);
        assert_true(shoali_fault_arm(spec));
        const shoal_status status = shoali_config_visit(&outer, &config, "", 0, append, &seen);
        fired = shoali_fault_left() < 0;
        assert_true(shoali_fault_arm(NULL));
        assert_int_equal(status, fired ? SHOAL_ENOMEM : SHOAL_OK);
        shoali_str_fini(&seen);
    }
    assert_true(failures > 10);
    shoali_json_close(document);
    shoali_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_only),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
