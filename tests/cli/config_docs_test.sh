#!/usr/bin/env bash
# docs/CONFIG.md is what `shoal help config` prints, and pages that people read from the first line on stay short.
# Usage: config_docs_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
"$1" help config >"$folder/CONFIG.md" || complain "help config failed"
diff -u "$2/docs/CONFIG.md" "$folder/CONFIG.md" ||
    complain "docs/CONFIG.md is old: run  $1 help config > docs/CONFIG.md"
# at_most PAGE BYTES
at_most() { [ "$(stat -c %s "$root/$1")" -le "$2" ] || complain "$1 has $(stat -c %s "$root/$1") bytes: shorten it to $2, or move a part"; }
root=$2
at_most README.md 9000
at_most docs/PERFORMANCE.md 12000
at_most docs/RATIONALE.md 30000
[ "$(wc -l <"$root/README.md")" -le 120 ] || complain "README.md has more lines than three screens, 120"
rows=$(sed -n '/^## Features/,/^\[docs/p' "$root/README.md" | grep -c '^| [a-zA-Z]')
[ "$rows" -le 13 ] || complain "README.md's table of features has $((rows - 1)) rows: merge some into 12"
finish
