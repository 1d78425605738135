/* Which texts are JSON lines. */
#include "base/json.h"
#include "base/test_cmocka.h"

#include <string.h>

static void test_is_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {"{\"a\": 1}\n{\"a\": 2}\n",
                                        "{\"a\": 1}",
                                        "\xef\xbb\xbf{\"a\":1}\r\n{",
                                        "\n\n  { \"a\" : [1, 2] } \t\r\ntext",
                                        "{}\n",
                                        "{\"\\\"}\": NaN}\n",
                                        "{\"text\": \"the line goes on and o"};
    static const char *const texts[] = {"",
                                        "\n \n",
                                        "{",
                                        "{\n  \"a\": 1\n}\n",
                                        "{\"a\": 1,\n \"b\": 2}\n",
                                        "{a: 1}\n",
                                        "{\"a\"}\n",
                                        "{\"a\\",
                                        "text {\"a\": 1}\n",
                                        "[{\"a\": 1}]\n",
                                        "\"a\": 1\n{\"a\": 1}\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!shoali_json_is_lines(lines[i], strlen(lines[i])))
            fail_msg("no JSON lines: %s", lines[i]);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (shoali_json_is_lines(texts[i], strlen(texts[i])))
            fail_msg("JSON lines: %s", texts[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_is_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
