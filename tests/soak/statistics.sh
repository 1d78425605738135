# Sourced by hosts_soak: sums the lines of its logs, which are, separated by blanks,
#   outcome where fault verdict-ms clean-ms layout seed trial
# outcome: ok, or of hang, code, verdict, late, left, checkpoint, lost (the job ended before the fault)
# those that were wrong, joined by +. clean-ms: from the launcher's end until nothing was left.
statistics() {
    sort -k2,3 -k4,4n "$@" | awk '
        function row(name, n) {
            split(times[name], sorted, " ")
            printf "%-8s %-11s %6d %8d %8d %8d %9d\n", where[name], fault[name], n, sorted[int((n + 1) / 2)],
                sorted[n], clean[name], wrong[name]
        }
        BEGIN { printf "%-8s %-11s %6s %8s %8s %8s %9s\n", "where", "fault", "count", "median", "max", "clean",
                "failures" }
        NF >= 8 {
            name = $2 " " $3
            if (name != last && last != "") row(last, count[last])
            last = name
            where[name] = $2
            fault[name] = $3
            times[name] = times[name] " " $4
            count[name]++
            if ($5 > clean[name]) clean[name] = $5
            wrong[name] += $1 != "ok"
            total++
            verdicts += $1 !~ /hang|verdict|lost/
            hangs += $1 ~ /hang/
            late += $1 ~ /late/
            leftovers += $1 ~ /left/
            checkpoints += $1 ~ /checkpoint/
        }
        END {
            if (last != "") row(last, count[last])
            printf "soak: %d faults: %d verdicts, %d hangs, %d leftovers, %d late, %d checkpoints that do not load",
                total, verdicts, hangs, leftovers, late, checkpoints
            print " (times in ms; clean: at most so long after the end until nothing was left)"
        }'
}
