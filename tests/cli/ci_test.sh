#!/usr/bin/env bash
# .ci/run with stages of its own in a small tree: which stages run, what a failure stops, and what the last lines say.
# Usage: ci_test.sh ROOT
. "$(dirname "$0")/check.sh"
root=$1
unset WITHOUT TEST_JOBS SHOAL_TEST_SEED
run=$folder/tree/.ci/run
mkdir -p "$folder/tree/.ci" "$folder/tree/scripts" && cp "$1/.ci/run" "$run" && cp "$1/scripts/test-output" "$folder/tree/scripts" || exit 1
stages() { sed -nE 's/^stage_([a-z]+)\(.*/\1/p' "$1"; }
# The true stages by name, each empty; then those of this test.
{
    stages "$root/.ci/stages" | sed 's/.*/stage_&() { echo "ran & without=${WITHOUT-none} full=$full"; }/'
    cat <<'END'
stage_red() {
    printf '%s\n' 'Internal ctest changing into directory: /somewhere/build-red' '      Start 1: a.good_test' \
        ' 1/3 Test #1: a.good_test .....   Passed    0.01 sec' '      Start 2: a.bad_test' \
        ' 2/3 Test #2: a.bad_test .....***Failed    0.20 sec' 'first line' "$(seq -f 'line %g' 20)" '' '      Start 3: a.left_out_test' \
        ' 3/3 Test #3: a.left_out_test .....***Skipped    0.20 sec' 'why it was skipped' '' '67% tests passed, 1 tests failed out of 3'
    false
    echo "went on behind a failure"
}
stage_test() {
    printf '%s\n' ' 1/1 Test #1: c.bad_test .....***Failed    0.20 sec'
    return 8
}
stage_clock() {
    printf '%s\n' 'Internal ctest changing into directory: /somewhere/build-clock' ' 1/2 Test #1: d.late_test .....***Failed    0.20 sec' 'came late' '' \
        ' 2/2 Test #2: d.good_test .....   Passed    0.20 sec' 'again, one at a time' '    Start 1: d.late_test' \
        '1/1 Test #1: d.late_test .....***Failed    0.20 sec' 'came late again' '' '    Start 1: d.late_test' '    Test #1: d.late_test .....   Passed    0.20 sec'
}
stage_litter() {
    echo 'left behind: process 4711: sleep 1000'
    echo "slowest: nothing"
    return 1
}
stage_many() {
    local i
    for i in $(seq 8); do printf ' %s/8 Test #%s: b.test_%s .....***Failed    0.20 sec\n%s\n' "$i" "$i" "$i" "$(seq 30)"; done
    return 8
}
END
} >"$folder/tree/.ci/stages"
# Cuts the output to the verdict, which has at most 40 lines.
verdict() {
    output=$(tail -n 40 <<<"$output")
    says "ci: verdict"
    output=${output##*ci: verdict}
}

expect 2 "$run" nosuch
says 'there is no stage "nosuch"' "Stages: format layers docs gcc test install quickstart clang"
expect 2 "$run" nightly format nosuch
for stage in $(stages "$root/.ci/stages"); do
    [ "$stage" = dependencies ] || [[ " $(expect 2 "$run" nosuch && echo $output) " == *" $stage"[.\ ]* ]] || complain "nobody runs the stage $stage"
done

expect 1 "$run" --keep-going
[ "$(grep -c '^ran ' <<<"$output")" -eq 7 ] || complain "the gate has other stages: $output"
expect 0 "$run" format quickstart
says "ran format without=none full=" "ci: all stages passed"
expect 0 "$run" nightly sim tsan
says "ran sim without= full=1" "ran tsan without= full=1"

expect 1 "$run" format red layers
[[ "$output" != *"ran layers"* && "$output" != *"went on behind"* ]] || complain "a failure stopped nothing: $output"
says "== red: failed with 1"
verdict
says "red: a.bad_test failed; alone: ctest --test-dir build-red --output-on-failure -R '^a.bad_test$'" "    line 11" "    line 20" \
    "format       passed " "red          FAILED " "layers       not-run" "ci: failed after"
[[ "$output" != *"    line 10"* && "$output" != *a.good_test* && "$output" != *a.left_out_test* ]] || complain "the verdict says too much: $output"
expect 1 "$run" --keep-going format red layers
says "ran layers" "layers       passed"
expect 1 "$run" nightly many red layers
says "ran layers"
verdict
says "many: b.test_1 failed" "many: b.test_8 failed" "red: a.bad_test failed" "ci: failed after"
expect 0 "$run" clock format
verdict
says "clock: d.late_test failed, and passed when it ran again; alone: ctest --test-dir build-clock" "    came late" "ci: all stages passed"
[[ "$output" != *"late again"* && "$output" != *d.good_test* ]] || complain "the verdict says too much: $output"
expect 1 "$run" litter
verdict
says "litter failed" "    left behind: process 4711"
expect 1 "$run" test
says "test: c.bad_test failed; alone: SHOAL_TEST_SEED=42 make test TESTS='^c.bad_test$'"
expect 1 "$run" nightly test
says "alone: WITHOUT= make test TESTS='^c.bad_test$'"
sed -i 's/^stage_dependencies.*/stage_dependencies() { echo "no apt"; return 3; }/; s/^stage_docs.*/stage_docs() { echo "a page is wrong"; return 1; }/' "$folder/tree/.ci/stages"
expect 1 "$run" --keep-going format
says "    no apt" "dependencies FAILED" "format       not-run"
[[ "$output" != *"ran format"* ]] || complain "without its packages a stage ran: $output"
finish
