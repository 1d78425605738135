# Sourced by the tests of this folder: runs commands and compares what they did.
failures=0
output=
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

complain() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}
# expect CODE COMMAND...: runs it, keeps its output (both streams) in $output
expect() {
    local wanted=$1 code=0
    shift
    output=$("$@" 2>&1 </dev/null) || code=$?
    [ "$code" -eq "$wanted" ] || complain "$* ended with $code, not $wanted: $output"
}
# says TEXT...: each stands in the last output
says() {
    local text
    for text in "$@"; do
        case $output in
        *"$text"*) ;;
        *) complain "\"$text\" is missing in: $output" ;;
        esac
    done
}
# Forgets the variables of a job around this test and those that change a training; tests' own (SHOAL_TEST_*) stay.
forget_job() {
    local variable
    for variable in RANK WORLD_SIZE LOCAL_RANK $(compgen -e | grep -E '^(SHOAL_|DS_|MASTER_)' | grep -v '^SHOAL_TEST_'); do
        unset "$variable"
    done
}
# left_segments: files in shared memory of jobs whose launcher is gone (shoal-PID.NAMESPACE.RANDOM-*).  Other tests may run
# beside this one: what a living launcher holds is not left, nor is the page of a lone process, which the next one removes.
left_segments() {
    local name pid space random own
    own=$(printf %x "$(stat -L -c %i /proc/self/ns/pid)")
    for name in $(ls "/dev/shm/shoal-$(id -u)" 2>/dev/null | grep -E '^shoal-[0-9]+\.[0-9a-f]+\.[0-9a-f]{8}-' | sort); do
        IFS=. read -r pid space random <<<"${name#shoal-}"
        [ "$space" != "$own" ] || [ -d "/proc/$pid" ] || echo "$name"
    done
}
# nothing_left BEFORE: left_segments lists no more than BEFORE, what it printed at the start.  It waits up to a minute, since
# a launcher that another test killed leaves files until that test's next job.
nothing_left() {
    local after
    after=$(comm -13 <(echo "$1") <(left_segments))
    for _ in $(seq 600); do
        [ -n "$after" ] || break
        sleep 0.1
        after=$(comm -12 <(echo "$after") <(left_segments))
    done
    [ -z "$after" ] || complain "left in /dev/shm: $after"
}
finish() {
    [ "$failures" -eq 0 ] || exit 1
    echo "all passed"
}
