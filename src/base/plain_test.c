#include "base/plain.h"

#include "base/json.h"
#include "base/str.h"
#include "base/test_cmocka.h"
#include "base/test_folder.h"

#include <jansson.h>
#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers and words under every locale that the program may have set. */
static void check_everything(void)
{
    char text[64], *end;
    shoali_snprintf(text, sizeof text, "%.2f %g %e", 0.5, 1.25, 3.5);
    assert_string_equal(text, "0.50 1.25 3.500000e+00");
    assert_true(shoali_strtod("2.75x", &end) == 2.75);
    assert_string_equal(end, "x");
    double value = 0;
    assert_true(shoali_parse_f64("-0.125", &value) && value == -0.125);
    struct shoali_str str = {0};
    shoali_str_append(&str, "%.1f", 1.5);
    assert_string_equal(shoali_str_get(&str), "1.5");
    shoali_str_fini(&str);
    (void)SHOAL_FAIL(SHOAL_EINVAL, "%.1f", 2.5);
    assert_string_equal(shoal_error_message(), "2.5");
    assert_int_equal(shoali_strcasecmp("INIT", "init"), 0);
    assert_true(shoali_strcasecmp("a", "B") < 0 && shoali_strcasecmp("ab", "A") > 0);
    assert_int_equal(shoali_strncasecmp("LINEAR", "linex", 4), 0);
    assert_false(shoali_ascii_space((char)0xa0));
    json_t *list = NULL;
    char *json = NULL;
    assert_int_equal(shoali_json_read("[0.5, 1e3]", 10, &list, NULL), SHOAL_OK);
    assert_true(json_real_value(json_array_get(list, 0)) == 0.5);
    assert_int_equal(shoali_json_write(list, JSON_COMPACT, "a list", &json), SHOAL_OK);
    assert_string_equal(json, "[0.5,1000.0]");
    free(json);
    json_decref(list);
}

static void test_plain(void **state)
{
    (void)state;
    check_everything();
}

/* Makes the locale in the test's folder; false where localedef or its sources are not there. */
static bool enter(const char *name, const char *charmap)
{
    char command[512];
    snprintf(command, sizeof command, "localedef -i %s -f %s %s/%s >/dev/null 2>&1", name, charmap,
             folder, name);
    (void)!system(command); /* warnings end it with 1, the locale is there nevertheless */
    return setenv("LOCPATH", folder, 1) == 0 && setlocale(LC_ALL, name) != NULL;
}

static void test_other_locales(void **state)
{
    static const char *const locales[][2] = {{"de_DE", "UTF-8"}, {"tr_TR", "ISO-8859-9"}};
    char text[16];
    (void)state;
    int entered = 0;
    for (int i = 0; i < 2; i++) {
        if (!enter(locales[i][0], locales[i][1]))
            continue;
        entered++;
        snprintf(text, sizeof text, "%.1f", 0.5);
        assert_string_equal(text, "0,5"); /* so the locale does what it is here for */
        check_everything();
        snprintf(text, sizeof text, "%.1f", 0.5);
        assert_string_equal(text, "0,5"); /* and is left as it was */
    }
    setlocale(LC_ALL, "C");
    if (entered == 0) {
        puts("skipped: no localedef, or no sources of locales");
        skip();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_other_locales),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
