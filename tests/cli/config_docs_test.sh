#!/usr/bin/env bash
# docs/CONFIG.md is what `shoal help config` prints.  Usage: config_docs_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
"$1" help config >"$folder/CONFIG.md" || complain "help config failed"
diff -u "$2/docs/CONFIG.md" "$folder/CONFIG.md" ||
    complain "docs/CONFIG.md is old: run  $1 help config > docs/CONFIG.md"
finish
